//! Bytes of lent files on their way into send rings.
//!
//! Nearly always they are in memory, and there before the command is done. Where they are not, the application's clerk
//! reads them, and what was queued behind waits: the stack is told only of what is there. An end of the stream that is
//! asked for meanwhile is put off until all is. What is queued behind bytes that were taken over from another application waits in
//! the same way, until those are acknowledged.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Duration, Instant};
use channel::Offence;
use channel::fep::Filling;
use stack::SocketId;

use super::app::LiveKind;
use super::core::Core;
use crate::clerk::{Answer, Desk};

/// A connection whose bytes have not come after so long is reset, when it is next looked for such connections.
const LIMIT: Duration = Duration::from_secs(60);
/// How often that is.
const LOOK: Duration = Duration::from_secs(1);
/// Connections that wait for bytes at a time; another one that would have to is reset.
const MOST: usize = 4096;

/// The connections that wait for bytes of files.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    connections: HashMap<u64, Unfilled>,
    /// When those that have waited for too long are looked for next; none while nobody waits.
    next_look: Option<Instant>,
}

impl Waiting {
    /// When the next look is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// A connection waits from now on, if it did not before.
    fn wait(&mut self, now: Instant, id: SocketId) -> &mut Unfilled {
        self.next_look.get_or_insert(now + LOOK);
        let fresh = || Unfilled { id, desk: None, since: now, shut: false, closed: false };
        self.connections.entry(id.to_bits()).or_insert_with(fresh)
    }
}

/// A connection that waits for bytes of a file, or for acknowledgements.
#[derive(Debug)]
struct Unfilled {
    id: SocketId,
    /// Where the file is.
    desk: Option<Arc<Desk>>,
    since: Instant,
    /// The application has shut the sending side,
    shut: bool,
    /// or closed the socket.
    closed: bool,
}

impl Core {
    /// FILL: how many bytes were read for it.
    pub(super) fn on_fill(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        file: u16,
        range: (u64, u64),
    ) -> Result<(), Offence> {
        let (queued_to, offset) = range;
        let live = *self.live_or_offence(app, socket)?;
        if live.kind != LiveKind::Connection {
            return Err(Offence::WrongKind);
        }
        let desk = self.apps[app].desk.clone().ok_or(Offence::BadFile)?;
        let file = desk.file(file).ok_or(Offence::BadFile)?;
        let Some(rings) = self.stack.stream(live.id) else { return Ok(()) };
        let before = rings.queued();
        let filling = rings.fill(queued_to, file, offset)?;
        self.filled_bytes += queued_to - before;
        self.on_filling(now, live.id, &desk, filling);
        Ok(())
    }

    /// RETURN_FILE.
    pub(super) fn on_return_file(&mut self, app: u32, file: u16) {
        if let Some(desk) = &self.apps[app].desk {
            desk.return_file(file);
        }
    }

    /// A clerk has read something, or could not.
    pub(crate) fn on_answer(&mut self, now: Instant, answer: Answer) {
        let id = answer.socket;
        // It may be gone since.
        let unfilled = self.unfilled.connections.get(&id.to_bits());
        let Some(desk) = unfilled.and_then(|unfilled| unfilled.desk.clone()) else { return };
        let filling = match (answer.outcome, self.stack.stream(id)) {
            (Ok(bytes), Some(rings)) => rings.put(&bytes),
            (Err(_), _) | (_, None) => Filling::Failed,
        };
        self.on_filling(now, id, &desk, filling);
    }

    fn on_filling(&mut self, now: Instant, id: SocketId, desk: &Arc<Desk>, filling: Filling) {
        if let Some(rings) = self.stack.stream(id) {
            let filled_to = rings.filled_to();
            self.stack.tcp_send(id, filled_to);
        }
        match filling {
            Filling::Behind => {}
            Filling::Done => self.finish_filling(now, id),
            Filling::Wait(reading) if self.unfilled.connections.len() < MOST => {
                let unfilled = self.unfilled.wait(now, id);
                unfilled.desk = Some(Arc::clone(desk));
                unfilled.since = now;
                desk.read(id, reading);
            }
            Filling::Wait(_) | Filling::Failed => self.fail_filling(now, id),
        }
    }

    /// The sending side is to be shut; whether that has to wait.
    pub(super) fn put_off_shutdown(&mut self, now: Instant, id: SocketId) -> bool {
        self.unfilled(now, id).map(|unfilled| unfilled.shut = true).is_some()
    }

    /// The socket is to be closed in order; whether that has to wait.
    pub(super) fn put_off_close(&mut self, now: Instant, id: SocketId) -> bool {
        self.unfilled(now, id).map(|unfilled| unfilled.closed = true).is_some()
    }

    /// What a connection waits for that has queued what cannot be sent yet.
    fn unfilled(&mut self, now: Instant, id: SocketId) -> Option<&mut Unfilled> {
        let is_waiting = self.unfilled.connections.contains_key(&id.to_bits());
        let waits = |rings: &mut channel::fep::StreamRings| rings.filled_to() < rings.queued();
        (is_waiting || self.stack.stream(id).is_some_and(waits)).then(|| self.unfilled.wait(now, id))
    }

    /// What was taken over from another application is acknowledged: what is queued behind it can be sent.
    pub(super) fn on_kept_acked(&mut self, now: Instant, id: SocketId) {
        let Some(rings) = self.stack.stream(id) else { return };
        let (filled_to, is_filling) = (rings.filled_to(), rings.is_filling());
        self.stack.tcp_send(id, filled_to);
        if !is_filling {
            self.finish_filling(now, id);
        }
    }

    /// Bytes that are awaited do not matter any more; whether the socket is still to be closed.
    pub(super) fn forget_filling(&mut self, id: SocketId) -> bool {
        self.unfilled.connections.remove(&id.to_bits()).is_some_and(|unfilled| unfilled.closed)
    }

    fn finish_filling(&mut self, now: Instant, id: SocketId) {
        let Some(unfilled) = self.unfilled.connections.remove(&id.to_bits()) else { return };
        if unfilled.shut && !unfilled.closed {
            self.stack.tcp_shutdown(id);
        }
        if unfilled.closed {
            // Refused only if it is gone already.
            let _ = self.stack.close(now, id);
        }
    }

    /// The bytes that were promised cannot be had: the peer must not take what it has for the whole.
    fn fail_filling(&mut self, now: Instant, id: SocketId) {
        self.stack.tcp_abort(id);
        if self.forget_filling(id) {
            // As above.
            let _ = self.stack.close(now, id);
        }
    }

    /// Resets connections that have waited for too long.
    pub(super) fn end_overdue_filling(&mut self, now: Instant) {
        if self.unfilled.next_look.is_none_or(|look| now < look) {
            return;
        }
        let overdue: Vec<SocketId> = self
            .unfilled
            .connections
            .values()
            .filter(|unfilled| unfilled.since + LIMIT <= now)
            .map(|unfilled| unfilled.id)
            .collect();
        for id in overdue {
            self.fail_filling(now, id);
        }
        self.unfilled.next_look = (!self.unfilled.connections.is_empty()).then_some(now + LOOK);
    }
}
