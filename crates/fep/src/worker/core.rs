//! The stack and its applications: everything of a worker that needs no descriptor and no clock.
//!
//! The worker's loop calls, in this order: [`Core::poll_commands`], the stack, [`Core::publish_changes`]. Which sockets
//! to look at comes from the stack alone; nothing here ever walks over all sockets of a living application.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

use base::{Duration, Instant};
use channel::Offence;
use channel::control::Token;
use channel::fep::Family;
use slab::Slab;
use stack::Stack;
use tracing::{debug, warn};

use super::app::{Application, Ending, Entry, LiveKind};
use super::filling::Waiting;
use super::idle::IdleWatch;
use super::key::{Key, NOBODY};
use super::kin::Families;
use super::noise::Noise;
use super::pause::Withheld;
use crate::config::Limits;

/// Commands taken from one application before the next one's turn.
const COMMAND_BUDGET: usize = 256;
/// Bytes of lent files, and of sockets that are claimed, that commands of one application bring in before the next one's turn.
const FILL_BUDGET: u64 = 1 << 20;
/// Sockets of applications that have ended which are taken down in one turn.
const END_BUDGET: u32 = 256;
/// How soon something is tried again that an application holds up by not reading its events.
const RETRY: Duration = Duration::from_millis(10);

/// The applications by their place in the table.
#[derive(Default)]
pub(crate) struct Applications(Slab<Application>);

impl Applications {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&mut self, app: u32) -> Option<&mut Application> {
        self.0.get_mut(app as usize)
    }

    pub(crate) fn find(&self, app: u32) -> Option<&Application> {
        self.0.get(app as usize)
    }

    /// The application, if it has not ended.
    pub(crate) fn living(&self, app: u32) -> Option<&Application> {
        self.find(app).filter(|application| application.ending.is_none())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Application> {
        self.0.iter().map(|(_, application)| application)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Application)> {
        self.0.iter_mut().map(|(index, application)| (index as u32, application))
    }
}

impl Index<u32> for Applications {
    type Output = Application;

    fn index(&self, app: u32) -> &Application {
        &self.0[app as usize]
    }
}

impl IndexMut<u32> for Applications {
    fn index_mut(&mut self, app: u32) -> &mut Application {
        &mut self.0[app as usize]
    }
}

/// The stack with its applications.
pub(crate) struct Core {
    pub(crate) stack: Stack<Family>,
    pub(crate) apps: Applications,
    pub(crate) limits: Limits,
    pub(super) noise: Noise,
    pub(super) families: Families,
    pub(super) idle: IdleWatch,
    pub(super) withheld: Withheld,
    /// Connections that wait for bytes of lent files.
    pub(super) unfilled: Waiting,
    /// Connections that are closed when output was asked for, and whether by a reset.
    pub(super) last_words: Vec<(stack::SocketId, bool)>,
    /// How narrow paths are at most, as applications were told.
    pub(super) narrowest_mtu: u16,
    /// Bytes of lent files that commands have asked for.
    pub(crate) filled_bytes: u64,
    /// Bytes that went with sockets from one application to another.
    pub(super) moved_bytes: u64,
    /// Applications whose listeners wait for free numbers, and when that is tried again.
    starved: Vec<u32>,
    retry_at: Option<Instant>,
    /// Listeners whose programs are slow to accept; the number tells each from a later one of the same name.
    pub(super) crowded: VecDeque<(Key, u64)>,
    /// Applications that have ended and are not taken down yet.
    ending: Vec<u32>,
    finished: Vec<Application>,
    /// Whose turn it is first.
    first: usize,
    /// Applications cut off, by reason.
    pub(crate) offences: BTreeMap<&'static str, u64>,
    /// Commands carried out.
    pub(crate) commands: u64,
    /// Applications that ever were.
    pub(crate) applications_seen: u64,
    /// Wake-ups of, and events for, applications that are no more.
    past: (u64, u64),
}

impl Core {
    pub(crate) fn new(stack: Stack<Family>, limits: Limits, noise: Noise) -> Self {
        Self {
            stack,
            apps: Applications::default(),
            limits,
            noise,
            families: Families::default(),
            idle: IdleWatch::default(),
            withheld: Withheld::default(),
            unfilled: Waiting::default(),
            last_words: Vec::new(),
            narrowest_mtu: 0,
            filled_bytes: 0,
            moved_bytes: 0,
            starved: Vec::new(),
            retry_at: None,
            crowded: VecDeque::new(),
            ending: Vec::new(),
            finished: Vec::new(),
            first: 0,
            offences: BTreeMap::new(),
            commands: 0,
            applications_seen: 0,
            past: (0, 0),
        }
    }

    /// Takes an application in; its place in the table.
    pub(crate) fn add(&mut self, mut application: Application, token: Token, parent: Option<u32>) -> u32 {
        application.channel.publish_narrowest_mtu(self.stack.narrowest_mtu());
        self.applications_seen += 1;
        let app = self.apps.0.insert(application) as u32;
        self.found(app, token, parent);
        app
    }

    /// The application is over. Its sockets are taken down in the turns to come.
    pub(crate) fn end(&mut self, app: u32, ending: Ending) {
        let Some(application) = self.apps.get(app) else { return };
        if application.ending.is_some() {
            return;
        }
        application.ending = Some(ending);
        let identity = &application.identity;
        if let Ending::CutOff(offence) = ending {
            warn!(pid = identity.pid, name = %identity.name, "application cut off: {}", offence.name());
            application.channel.close(Some(offence));
            *self.offences.entry(offence.name()).or_default() += 1;
        } else {
            debug!(pid = identity.pid, name = %identity.name, "application gone");
        }
        self.ending.push(app);
    }

    /// An application that is taken down entirely: whoever keeps descriptors for it lets go of them.
    pub(crate) fn poll_finished(&mut self) -> Option<Application> {
        self.finished.pop()
    }

    /// Wake-ups of applications, and events given to them, since the start.
    pub(crate) fn wakeups_and_events(&self) -> (u64, u64) {
        self.apps.iter().fold(self.past, |(wakeups, events), application| {
            (wakeups + application.channel.wakeups(), events + application.channel.events_posted())
        })
    }

    /// Carries out what the applications have asked for, so much of each; how many commands that were.
    pub(crate) fn poll_commands(&mut self, now: Instant) -> usize {
        let places = self.apps.0.capacity();
        let mut count = 0;
        if self.apps.0.is_empty() {
            return 0;
        }
        self.first = (self.first + 1) % places;
        for step in 0..places {
            let place = (self.first + step) % places;
            if self.apps.0.get(place).is_some_and(|application| application.ending.is_none()) {
                count += self.take_commands(now, place as u32);
            }
        }
        count + self.take_down(now)
    }

    /// Whether an application has asked for something that is not done yet, or is being taken down.
    pub(crate) fn has_commands(&mut self) -> bool {
        !self.ending.is_empty()
            || self.apps.0.iter_mut().any(|(_, application)| application.channel.has_commands() != Ok(false))
    }

    /// Tells all applications that a command from now on must come with a ring of the doorbell. False if one has
    /// asked for something; then they have been told that the worker is awake.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        let mut quiet = self.ending.is_empty();
        for (_, application) in &mut self.apps.0 {
            quiet &= application.channel.prepare_sleep() == Ok(true);
        }
        if !quiet {
            self.end_sleep();
        }
        quiet
    }

    /// Tells all applications that the worker is awake.
    pub(crate) fn end_sleep(&mut self) {
        for (_, application) in &mut self.apps.0 {
            application.channel.end_sleep();
        }
    }

    /// When something is due that the stack knows nothing of.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = [self.retry_at, self.idle.deadline(), self.withheld.deadline(), self.unfilled.deadline()];
        own.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_deadlines(&mut self, now: Instant) {
        self.give_back_idle(now);
        self.wake_withheld(now);
        self.end_overdue_filling(now);
        if self.retry_at.is_none_or(|retry| now < retry) {
            return;
        }
        self.retry_at = None;
        for app in std::mem::take(&mut self.starved) {
            let Some(application) = self.apps.get(app) else { continue };
            if application.channel.flush_events().is_err() {
                continue;
            }
            for listener in std::mem::take(&mut self.apps[app].starved) {
                self.accept_waiting(now, app, listener);
            }
        }
    }

    /// A listener's connections wait for a number.
    pub(super) fn starve(&mut self, now: Instant, app: u32, listener: u32) {
        self.retry_at.get_or_insert(now + RETRY);
        self.apps[app].starved.push(listener);
        if !self.starved.contains(&app) {
            self.starved.push(app);
        }
    }

    /// Runs something on behalf of an application; an offence ends it.
    pub(super) fn guarded(
        &mut self,
        app: u32,
        action: impl FnOnce(&mut Self) -> Result<(), Offence>,
    ) -> bool {
        match action(self) {
            Ok(()) => true,
            Err(offence) => {
                self.end(app, Ending::CutOff(offence));
                false
            }
        }
    }

    fn take_commands(&mut self, now: Instant, app: u32) -> usize {
        let enough = self.filled_bytes + self.moved_bytes + FILL_BUDGET;
        for count in 0..COMMAND_BUDGET {
            let command = match self.apps[app].channel.poll_command() {
                Ok(Some(command)) => command,
                Ok(None) => return count,
                Err(offence) => {
                    self.end(app, Ending::CutOff(offence));
                    return count + 1;
                }
            };
            self.commands += 1;
            let goes_on = self.guarded(app, |core| core.on_command(now, app, command));
            if !goes_on || self.filled_bytes + self.moved_bytes >= enough {
                return count + 1;
            }
        }
        COMMAND_BUDGET
    }

    /// Takes down some sockets of applications that have ended; how many steps that were.
    fn take_down(&mut self, now: Instant) -> usize {
        let Some(&app) = self.ending.first() else { return 0 };
        let reset = match self.apps[app].ending {
            Some(Ending::CutOff(_)) => true,
            Some(Ending::Gone) | None => false,
        };
        if !reset && self.finish_commands(now, app) {
            return 1;
        }
        let end = self.apps[app].socket_numbers();
        let next = self.apps[app].next_to_end;
        let upto = end.min(next + END_BUDGET);
        for socket in next..upto {
            if !reset && self.pass_on_untaken(now, app, socket) {
                self.apps[app].remove(socket);
                continue;
            }
            match *self.apps[app].entry(socket) {
                Entry::Free => continue,
                Entry::FreshTcp(_) | Entry::FreshUdp(_) | Entry::Moved(_) => {}
                Entry::Live(live) => {
                    self.stack.set_user_data(live.id, NOBODY);
                    // As on Linux, a connection that nobody has accepted is reset.
                    let untaken = live.kind == LiveKind::Connection
                        && !live.inherited
                        && self.apps[app].channel.is_untaken(socket);
                    // What it did wrong does not matter any more.
                    let _ = self.on_close(now, app, socket, reset || untaken || live.resets);
                }
                Entry::Closing(id) => {
                    self.stack.set_user_data(id, NOBODY);
                    if reset {
                        self.stack.tcp_abort(id);
                        if self.forget_filling(id) {
                            // What it did wrong does not matter any more.
                            let _ = self.stack.close(now, id);
                        }
                    }
                }
            }
            self.apps[app].remove(socket);
        }
        self.apps[app].next_to_end = upto;
        if upto == end {
            self.ending.remove(0);
            let finished = self.apps.0.remove(app as usize);
            if let Some(desk) = &finished.desk {
                desk.end();
            }
            self.forget_kin(app, &finished.kin);
            self.past.0 += finished.channel.wakeups();
            self.past.1 += finished.channel.events_posted();
            self.finished.push(finished);
        }
        (upto - next) as usize + 1
    }

    /// What an application has asked for before it went is still done; whether there is more.
    fn finish_commands(&mut self, now: Instant, app: u32) -> bool {
        for _ in 0..COMMAND_BUDGET {
            match self.apps[app].channel.poll_command() {
                Ok(Some(command)) => {
                    self.commands += 1;
                    if self.on_command(now, app, command).is_err() {
                        return false;
                    }
                }
                // It is gone; there is nobody to cut off.
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}
