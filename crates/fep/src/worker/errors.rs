//! The queues of errors of an application's sockets (`IP_RECVERR`): the stack tells, the application takes by command.
//!
//! They are the worker's own memory, and bounded: for a socket about as by Linux's default of `SO_RCVBUF`, and for all of an
//! application's together. What comes when a queue is full is lost, as there.

use std::collections::{HashMap, VecDeque};

use base::Instant;
use channel::{Offence, Stamp};
use stack::{ErrorOrigin, QueuedError, SocketOption, Told};

use super::app::{Entry, LiveKind};
use super::core::Core;
use super::key::Key;

/// What an entry counts for beside its payload.
const OVERHEAD: usize = 256;
/// The most that one socket's entries count.
const MAX_OF_SOCKET: usize = 128 << 10;
/// The most that all of an application's entries count.
const MAX_OF_APPLICATION: usize = 1 << 20;

/// The queues of one application.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueues {
    by_socket: HashMap<u32, Queue>,
    used: usize,
    /// Sends whose times are wanted, by socket, as they were queued.
    stamps: HashMap<u32, VecDeque<Pending>>,
    pending: usize,
}

/// A send whose times are wanted.
#[derive(Debug)]
struct Pending {
    offset: u64,
    stamp: Stamp,
    is_sent: bool,
}

/// The most sends of one socket, and of all of an application's, whose times may be waited for.
const MAX_PENDING: usize = 512;
const MAX_PENDING_OF_APPLICATION: usize = 8192;

/// What happened at a time (`SCM_TSTAMP_SND` and its like).
const SENT: u32 = 0;
const SCHEDULED: u32 = 1;
const ACKNOWLEDGED: u32 = 2;

/// The entry that tells of a time.
fn time_entry(now: Instant, what: u32, key: u32) -> QueuedError {
    QueuedError {
        errno: libc::ENOMSG,
        origin: ErrorOrigin::Timestamping,
        kind: 0,
        code: 0,
        info: what,
        data: key,
        offender: None,
        local: std::net::Ipv4Addr::UNSPECIFIED,
        ttl: 0,
        tos: 0,
        destination: None,
        at: Some(now),
        payload: Vec::new(),
    }
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<QueuedError>,
    used: usize,
}

fn cost(error: &QueuedError) -> usize {
    OVERHEAD + error.payload.len()
}

impl ErrorQueues {
    /// Adds an entry to the queue of a socket; whether there was room.
    fn push(&mut self, socket: u32, error: QueuedError) -> bool {
        let cost = cost(&error);
        let held = self.by_socket.get(&socket).map_or(0, |queue| queue.used);
        if held + cost > MAX_OF_SOCKET || self.used + cost > MAX_OF_APPLICATION {
            return false;
        }
        let queue = self.by_socket.entry(socket).or_default();
        queue.entries.push_back(error);
        queue.used += cost;
        self.used += cost;
        true
    }

    /// Takes the oldest entry of a socket, and the origin and error of the next.
    fn take(&mut self, socket: u32) -> Option<(QueuedError, Option<(ErrorOrigin, i32)>)> {
        let queue = self.by_socket.get_mut(&socket)?;
        let error = queue.entries.pop_front()?;
        let next = queue.entries.front().map(|next| (next.origin, next.errno));
        queue.used -= cost(&error);
        self.used -= cost(&error);
        if next.is_none() {
            self.by_socket.remove(&socket);
        }
        Some((error, next))
    }

    /// The times of a send are wanted.
    fn wait_for(&mut self, socket: u32, offset: u64, stamp: Stamp) {
        let waiting = self.stamps.entry(socket).or_default();
        if waiting.len() < MAX_PENDING && self.pending < MAX_PENDING_OF_APPLICATION {
            waiting.push_back(Pending { offset, stamp, is_sent: false });
            self.pending += 1;
        } else if waiting.is_empty() {
            self.stamps.remove(&socket);
        }
    }

    /// Whether some are, of a socket.
    fn is_waiting(&self, socket: u32) -> bool {
        self.pending > 0 && self.stamps.contains_key(&socket)
    }

    /// It is sent up to one offset, and acknowledged up to another; how many entries the queue was given for that.
    fn advance(&mut self, now: Instant, socket: u32, sent: u64, acknowledged: u64) -> u32 {
        let mut told = Vec::new();
        let Some(waiting) = self.stamps.get_mut(&socket) else { return 0 };
        for one in waiting.iter_mut().take_while(|one| one.offset <= sent).filter(|one| !one.is_sent) {
            one.is_sent = true;
            let Stamp { scheduled, sent, key, .. } = one.stamp;
            told.extend(scheduled.then(|| time_entry(now, SCHEDULED, key)));
            told.extend(sent.then(|| time_entry(now, SENT, key)));
        }
        let before = waiting.len();
        while let Some(one) = waiting.front() {
            let is_over = !one.stamp.acknowledged || one.offset <= acknowledged;
            if !one.is_sent || !is_over {
                break;
            }
            told.extend(one.stamp.acknowledged.then(|| time_entry(now, ACKNOWLEDGED, one.stamp.key)));
            waiting.pop_front();
        }
        self.pending -= before - waiting.len();
        if waiting.is_empty() {
            self.stamps.remove(&socket);
        }
        told.into_iter().map(|entry| u32::from(self.push(socket, entry))).sum()
    }

    /// A socket's number is free: nothing is waited for any more.
    pub(crate) fn forget(&mut self, socket: u32) {
        self.clear(socket);
        self.pending -= self.stamps.remove(&socket).map_or(0, |waiting| waiting.len());
    }

    /// A socket's queue goes; whether there was one.
    pub(crate) fn clear(&mut self, socket: u32) -> bool {
        let queue = self.by_socket.remove(&socket);
        self.used -= queue.as_ref().map_or(0, |queue| queue.used);
        queue.is_some()
    }
}

impl Core {
    /// Hands on what the stack tells beside data.
    pub(super) fn publish_told(&mut self) {
        let narrowest = self.stack.narrowest_mtu();
        if std::mem::replace(&mut self.narrowest_mtu, narrowest) != narrowest {
            for (_, application) in self.apps.iter_mut() {
                application.channel.publish_narrowest_mtu(narrowest);
            }
        }
        while let Some((id, told)) = self.stack.poll_told() {
            let Some(key) = Key::from_word(self.stack.user_data(id)) else { continue };
            let Some(application) = self.apps.get(key.app) else { continue };
            if !matches!(application.entry(key.socket), Entry::Live(live) if live.id == id) {
                continue;
            }
            // Whoever is woken for the queue finds the error that goes with it.
            if let Some(error) = self.stack.take_error(id) {
                application.channel.publish_error(key.socket, error.errno());
            }
            match told {
                Told::Passing(errno) => application.channel.publish_passing_error(key.socket, errno),
                Told::Queued(error) => {
                    if application.errors.push(key.socket, error) {
                        application.channel.publish_queued(key.socket, true, 1);
                    }
                }
            }
        }
    }

    /// TAKE_ERROR. As Linux (`sock_dequeue_err_skb`): the pending error becomes that of the next ICMP message, or none.
    pub(super) fn on_take_error(&mut self, app: u32, socket: u32) -> Result<Result<(), i32>, Offence> {
        let application = &mut self.apps[app];
        if matches!(application.entry(socket), Entry::Free | Entry::Closing(_) | Entry::Moved(_)) {
            return Err(Offence::NotOpen);
        }
        let Some((error, next)) = application.errors.take(socket) else { return Ok(Err(libc::EAGAIN)) };
        let next_icmp = next.filter(|(origin, _)| *origin == ErrorOrigin::Icmp);
        if let Some((_, errno)) = next_icmp {
            application.channel.publish_passing_error(socket, errno);
        } else if error.origin == ErrorOrigin::Icmp {
            application.channel.publish_passing_error(socket, 0);
        }
        application.channel.publish_queued(socket, next.is_some(), u32::from(next.is_some()));
        application.channel.publish_queued_error(&error);
        Ok(Ok(()))
    }

    /// Errors are queued no more: what is there goes.
    pub(super) fn forget_errors(&mut self, app: u32, socket: u32) {
        let application = &mut self.apps[app];
        if application.errors.clear(socket) {
            application.channel.publish_queued(socket, false, 0);
        }
    }

    /// STAMP. Whose socket has no address yet asks for nothing.
    pub(super) fn on_stamp(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        (offset, stamp): (u64, Stamp),
    ) -> Result<(), Offence> {
        let live = match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => return Err(Offence::NotOpen),
            Entry::FreshTcp(_) | Entry::FreshUdp(_) => return Ok(()),
            Entry::Live(live) => *live,
        };
        match live.kind {
            LiveKind::Bound | LiveKind::Listener => return Ok(()),
            LiveKind::Connection if !self.stack.tells_sent(live.id) => {
                // It is only refused to sockets that are gone.
                let _ = self.stack.set_option(now, live.id, SocketOption::TellSent(true));
            }
            LiveKind::Connection | LiveKind::Udp => {}
        }
        self.apps[app].errors.wait_for(socket, offset, stamp);
        self.publish_stamps(now, app, socket);
        Ok(())
    }

    /// Tells the times of what was sent and acknowledged, if anybody wants to know.
    pub(super) fn publish_stamps(&mut self, now: Instant, app: u32, socket: u32) {
        if !self.apps[app].errors.is_waiting(socket) {
            return;
        }
        let Some(live) = self.apps[app].live(socket).copied() else { return };
        let (sent, acknowledged) = match self.stack.tcp(live.id) {
            Some(connection) => (connection.sent_to(), connection.acked_to()),
            None => {
                let sent = self.stack.datagrams(live.id).map_or(0, |rings| rings.sent_to());
                (sent, sent)
            }
        };
        let application = &mut self.apps[app];
        let told = application.errors.advance(now, socket, sent, acknowledged);
        if told > 0 {
            application.channel.publish_queued(socket, true, told);
        }
    }

    /// PATH_MTU.
    pub(super) fn on_path_mtu(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        remote: Option<std::net::SocketAddr>,
    ) -> Result<Result<(), i32>, Offence> {
        let live = match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => return Err(Offence::NotOpen),
            Entry::FreshTcp(_) | Entry::FreshUdp(_) => None,
            Entry::Live(live) => Some(*live),
        };
        let Some(live) = live.filter(|live| live.kind == LiveKind::Udp) else {
            return Ok(Err(libc::ENOTCONN));
        };
        if remote.is_none() && self.stack.remote_addr(live.id).is_none() {
            return Ok(Err(libc::ENOTCONN));
        }
        let Some((path, link)) = self.stack.path_mtu(now, live.id, remote) else {
            return Ok(Err(libc::ENETUNREACH));
        };
        self.apps[app].channel.publish_path_mtu(path, link);
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(length: usize) -> QueuedError {
        QueuedError {
            errno: 111,
            origin: ErrorOrigin::Icmp,
            kind: 3,
            code: 3,
            info: 0,
            data: 0,
            offender: None,
            local: std::net::Ipv4Addr::LOCALHOST,
            ttl: 0,
            tos: 0,
            destination: None,
            at: None,
            payload: vec![0; length],
        }
    }

    #[test]
    fn no_socket_and_no_application_leaves_more_than_its_part() {
        let mut queues = ErrorQueues::default();
        let mut taken = 0;
        for socket in 0..1000 {
            while queues.push(socket, error(1000)) {
                taken += 1256;
            }
            assert!(queues.by_socket.get(&socket).is_none_or(|queue| queue.used <= MAX_OF_SOCKET));
        }
        assert!(taken <= MAX_OF_APPLICATION && taken > MAX_OF_APPLICATION / 2);
        assert_eq!(queues.used, taken);
        for socket in 0..1000 {
            if socket % 2 == 0 {
                queues.clear(socket);
            }
            while queues.take(socket).is_some() {}
            assert!(!queues.clear(socket));
        }
        assert_eq!((queues.used, queues.by_socket.len()), (0, 0));
    }
}
