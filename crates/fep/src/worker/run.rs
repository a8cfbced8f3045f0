//! The worker's loop by the real clock, and how it waits.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use base::{Duration, Instant};
use device::Device;
use ring::{Crowd, Patience};
use rustix::event::{EventfdFlags, eventfd};
use stack::{ConnectionInfo, ConnectionState};
use tracing::info;

use super::{Ending, Worker};
use crate::DRAIN_LIMIT;
use crate::accounting::Spent;
use crate::clock;
use crate::control::Server;
use crate::poller::Source;
use crate::sys;

/// How often descriptors other than the device are looked at while there is no time to sleep.
const CONTROL_PERIOD: Duration = Duration::from_millis(1);
/// How long the worker looks for work without letting anybody else have the processor. After that it offers it at every
/// look: that costs next to nothing where nobody wants it, and everything waits where the application or the peer
/// of a small machine has to run on the same one.
const SPIN_ALONE: Duration = Duration::from_micros(5);
/// A deadline nearer than this is waited for by looking: going to sleep and waking up would take longer.
const NEAR: Duration = Duration::from_micros(20);
/// How late the kernel may end a sleep in favour of fewer interrupts (50 µs by default, too much for pacing).
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");
/// The longest sleep while the device has no room and cannot tell when it has.
const BLOCKED_NAP: Duration = Duration::from_micros(500);

/// What makes a worker stop.
#[derive(Debug, Default)]
pub struct Stop {
    /// Readable: a signal arrived.
    pub signal: Option<OwnedFd>,
    /// Readable: the supervisor hung up.
    pub supervisor: Option<OwnedFd>,
    /// The thread that started the worker.
    pub caller: Option<Arc<Caller>>,
}

/// What the thread that started a worker says to it and hears from it.
#[derive(Debug)]
pub struct Caller {
    /// Rung when one of the following has changed.
    bell: OwnedFd,
    must_stop: AtomicBool,
    /// The number of the last question whether all is drained.
    asked: AtomicU32,
    /// The last question that was answered with yes.
    drained: AtomicU32,
}

impl Caller {
    /// Says nothing yet.
    ///
    /// # Errors
    /// The operating system refuses a descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            must_stop: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            drained: AtomicU32::new(0),
        })
    }

    /// Tells the worker to stop.
    pub fn stop(&self) {
        self.must_stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the last call asked when all that had been queued was acknowledged already. To be repeated until it is.
    pub fn is_drained(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked != 0 && self.drained.load(Ordering::Acquire) == asked {
            return true;
        }
        self.asked.store(asked.wrapping_add(1).max(1), Ordering::Release);
        self.ring();
        false
    }

    fn ring(&self) {
        // A counter that is full rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// What the loop keeps from turn to turn.
struct Rhythm<'a> {
    stop: &'a Stop,
    /// When there was something to do last.
    busy_at: Instant,
    next_control: Instant,
    /// Who else wants the processor.
    crowd: Crowd,
    /// When it was offered last, if that is not judged yet.
    offered_at: Option<Instant>,
    /// Whether looking pays while the processor is not offered.
    patience: Patience,
    /// What is done so in this pause, once it has begun.
    alone: Option<Alone>,
    /// Set once it is told to stop: until when connections may take to finish.
    stop_at: Option<Instant>,
}

/// Looking for work without offering the processor.
struct Alone {
    limit: Duration,
    /// The thread's preemptions when it began.
    preemptions: u64,
}

impl Rhythm<'_> {
    /// Somebody computes on this processor and would keep it, so it is not offered. Whether to look on, after so long a pause: what
    /// applications on other processors ask for soon is worth more than the time, where they do; a wake-up costs both sides.
    fn keeps_looking(&mut self, idle: Duration) -> bool {
        let Self { patience, alone, .. } = self;
        let alone = alone.get_or_insert_with(|| {
            let limit = Duration::from_nanos(patience.allowed_ns().unwrap_or(0));
            Alone { limit, preemptions: if limit > Duration::ZERO { preemptions() } else { 0 } }
        });
        let goes_on = idle < alone.limit;
        if !goes_on && alone.limit > Duration::ZERO {
            patience.on_vain();
            alone.limit = Duration::ZERO;
        }
        goes_on
    }

    /// There is something to do again.
    fn end_looking(&mut self) {
        let Some(alone) = self.alone.take().filter(|alone| alone.limit > Duration::ZERO) else { return };
        // Who asked ran in this thread's place, perhaps, and would have done so sooner had it slept.
        if preemptions() == alone.preemptions { self.patience.on_success() } else { self.patience.on_vain() }
    }
}

fn preemptions() -> u64 {
    sys::thread_usage().unwrap_or_default().preemptions
}

impl<D: Device> Worker<D> {
    /// Serves applications over a control socket.
    ///
    /// # Errors
    /// The operating system refuses to watch the socket.
    pub fn serve(&mut self, server: Server) -> io::Result<()> {
        self.poller.add(server.listener(), Source::Listener)?;
        self.server = Some(server);
        Ok(())
    }

    /// Runs until told to stop, and then until all connections are finished or the drain limit has passed.
    ///
    /// # Errors
    /// The device is broken, or the operating system refuses to wait.
    pub fn run(&mut self, stop: &Stop) -> io::Result<()> {
        for (descriptor, source) in [(&stop.signal, Source::Signal), (&stop.supervisor, Source::Supervisor)] {
            if let Some(descriptor) = descriptor {
                self.poller.add(descriptor, source)?;
            }
        }
        if let Some(caller) = &stop.caller {
            self.poller.add(&caller.bell, Source::Caller)?;
        }
        self.caller.clone_from(&stop.caller);
        // Without it timers are less exact, no more.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        if let Some(slice) = self.config.slice
            && let Err(error) = crate::slice::shorten(slice)
        {
            info!("the scheduler gives no short slice: {error}");
        }
        let now = clock::now();
        let spin_ns = self.config.spin.as_nanos();
        let mut rhythm = Rhythm {
            stop,
            busy_at: now,
            next_control: now,
            crowd: Crowd::new(),
            offered_at: None,
            patience: Patience::new(spin_ns, spin_ns),
            alone: None,
            stop_at: None,
        };
        loop {
            let now = clock::now();
            if let Some(offered_at) = rhythm.offered_at.take() {
                rhythm.crowd.on_offered(now.as_nanos(), now.saturating_since(offered_at).as_nanos());
            }
            let busy = self.round(now, self.listening.is_due(now));
            if let Some(error) = self.device_error.take() {
                return Err(error);
            }
            if rhythm.stop_at.is_some_and(|limit| now >= limit)
                || (rhythm.stop_at.is_some() && !busy && self.is_drained())
            {
                return Ok(());
            }
            self.wait(now, busy, &mut rhythm)?;
        }
    }

    /// Closes the span of the turn that began at `now` and goes on to the next, at once or after some waiting.
    fn wait(&mut self, now: Instant, busy: bool, rhythm: &mut Rhythm<'_>) -> io::Result<()> {
        if busy {
            rhythm.busy_at = now;
            rhythm.end_looking();
        }
        let done = clock::now();
        self.account.close_span(done, if busy { Spent::Working } else { Spent::Polling });
        if now >= rhythm.next_control {
            rhythm.next_control = now + CONTROL_PERIOD;
            if let Some(server) = self.server.as_mut().filter(|_| rhythm.stop_at.is_none()) {
                server.resume(now, &self.poller);
            }
            self.look(now, Some(Duration::ZERO), rhythm)?;
        }
        if busy {
            return Ok(());
        }
        let idle = now.saturating_since(rhythm.busy_at);
        if idle < self.config.spin {
            if idle < SPIN_ALONE {
                return Ok(());
            }
            if rhythm.crowd.may_offer(done.as_nanos()) {
                self.account.system_calls += 1;
                rhythm.offered_at = Some(done);
                rustix::thread::sched_yield();
                return Ok(());
            }
            if rhythm.keeps_looking(idle) {
                return Ok(());
            }
        }
        if self.deadline().is_some_and(|deadline| deadline.saturating_since(now) < NEAR) {
            return Ok(());
        }
        rhythm.alone = None;
        self.sleep(rhythm)
    }

    fn sleep(&mut self, rhythm: &mut Rhythm<'_>) -> io::Result<()> {
        // Said first, looked at once more after it: whoever asks for something from here on rings.
        if !self.core.prepare_sleep() {
            return Ok(());
        }
        if self.answers.is_waiting() {
            self.core.end_sleep();
            return Ok(());
        }
        let now = clock::now();
        let blocked =
            self.backlog.is_blocked() || (self.core.stack.wants_transmit() && !self.device.is_ready());
        let resume = self.server.as_ref().and_then(Server::deadline);
        let mut deadline = [self.deadline(), rhythm.stop_at, resume].into_iter().flatten().min();
        if blocked {
            deadline = Some(deadline.unwrap_or(Instant::FAR_FUTURE).min(now + BLOCKED_NAP));
        }
        if let Some(descriptor) = self.device.descriptor() {
            self.poller.want_writable(descriptor, self.backlog.is_blocked())?;
        }
        let timeout = deadline.map(|deadline| deadline.saturating_since(now));
        self.account.close_span(now, Spent::Polling);
        self.account.sleeps += 1;
        let outcome = self.look(now, timeout, rhythm);
        self.core.end_sleep();
        self.listening.wake();
        let now = clock::now();
        self.account.close_span(now, Spent::Sleeping);
        // Work that comes now is looked for again before the next sleep.
        rhythm.busy_at = now;
        outcome
    }

    /// Waits for descriptors and does what they ask, the device's and the doorbells' left to the next turn.
    fn look(&mut self, now: Instant, timeout: Option<Duration>, rhythm: &mut Rhythm<'_>) -> io::Result<()> {
        let mut woken = std::mem::take(&mut self.woken);
        woken.clear();
        self.account.system_calls += 1;
        self.poller.wait(timeout, &mut woken)?;
        for source in woken.drain(..) {
            match source {
                Source::Device | Source::Doorbell(_) | Source::Clerk => {}
                Source::Signal | Source::Supervisor => self.start_to_stop(now, rhythm),
                Source::Caller => self.on_caller(now, rhythm),
                Source::Listener => self.on_listener(now),
                Source::Control(connection) => self.on_control(now, connection),
            }
        }
        self.woken = woken;
        Ok(())
    }

    /// Closes every connection in order: what was queued is sent, then a FIN, and answers are awaited for a while.
    fn start_to_stop(&mut self, now: Instant, rhythm: &mut Rhythm<'_>) {
        if rhythm.stop_at.is_some() {
            return;
        }
        info!("closing {} applications' connections", self.core.apps.len());
        rhythm.stop_at = Some(now + DRAIN_LIMIT);
        // They stay readable, and would end every sleep from here on.
        for told in [&rhythm.stop.signal, &rhythm.stop.supervisor].into_iter().flatten() {
            self.poller.remove(told);
        }
        if let Some(server) = &self.server {
            self.poller.remove(server.listener());
        }
        let apps: Vec<u32> = self.core.apps.iter_mut().map(|(app, _)| app).collect();
        for app in apps {
            self.core.end(app, Ending::Gone);
        }
    }

    fn on_caller(&mut self, now: Instant, rhythm: &mut Rhythm<'_>) {
        let Some(caller) = self.caller.clone() else { return };
        // Taking the ring off; it was readable, so this does not wait.
        let _ = rustix::io::read(&caller.bell, &mut [0u8; 8]);
        let asked = caller.asked.load(Ordering::Acquire);
        if self.is_drained() {
            caller.drained.store(asked, Ordering::Release);
        }
        if caller.must_stop.load(Ordering::Acquire) {
            self.start_to_stop(now, rhythm);
        }
    }

    /// Whether everything that applications have sent was acknowledged, the ends of closed connections included.
    fn is_drained(&mut self) -> bool {
        let delivered = |one: ConnectionInfo| {
            let closing = one.orphan
                && !matches!(one.state, ConnectionState::Tcp(tcp::State::FinWait2 | tcp::State::TimeWait));
            one.send_queue == 0 && !closing
        };
        !self.core.has_commands()
            && !self.core.stack.wants_transmit()
            && !self.backlog.is_blocked()
            && self.core.stack.connections().all(delivered)
    }
}
