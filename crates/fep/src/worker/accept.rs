//! Connections of listeners: numbers for them, and how many of them no program has accepted.
//!
//! An application hears of a connection as soon as it is established, and takes it from its own list when its program accepts. Until
//! then it counts against the listener's backlog, so that a program that does not accept is not given any number of
//! connections. How many were accepted is a word of shared memory. It is read again whenever connections come, and
//! in every turn while less than half of the backlog is left: a SYN is not dropped for want of a look.

use base::Instant;
use channel::State;

use super::app::{Entry, Live, LiveKind};
use super::core::Core;
use super::key::Key;

/// Crowded listeners looked at in one turn.
const BUDGET: usize = 64;

impl Core {
    /// Gives a listener's connections numbers and announces them.
    pub(super) fn accept_waiting(&mut self, now: Instant, app: u32, listener: u32) {
        let Some(live) = self.apps[app].live(listener) else { return };
        let listening = live.id;
        while self.stack.tcp_backlog(listening).is_some_and(|(waiting, _)| waiting > 0) {
            let Some(socket) = self.apps[app].channel.allocate_socket() else {
                self.starve(now, app, listener);
                return;
            };
            let Some(id) = self.stack.tcp_accept(listening) else {
                self.apps[app].channel.return_socket(socket);
                return;
            };
            self.stack.set_user_data(id, Key { app, socket }.to_word());
            if let Some(rings) = self.stack.stream(id) {
                rings.assign(socket);
                rings.set_receive_limit(self.limits.receive_buffer_max as usize);
            }
            self.apps[app].insert(socket, Entry::Live(Live::new(id, LiveKind::Connection)));
            self.publish_place(app, socket, State::BOUND | State::CONNECTED);
            if !self.guarded(app, |core| core.publish_connection(now, app, socket)) {
                return;
            }
            self.apps[app].channel.accepted(listener, socket);
            if let Some(live) = self.apps[app].live(listener) {
                live.announced = live.announced.wrapping_add(1);
            }
        }
        if self.is_crowded(app, listener)
            && let Some(live) = self.apps[app].live(listener)
            && !live.crowded
        {
            live.crowded = true;
            self.crowded.push_back((Key { app, socket: listener }, live.id.to_bits()));
        }
    }

    /// Tells the stack how many of the listener's connections no program has accepted; whether they are many.
    fn is_crowded(&mut self, app: u32, listener: u32) -> bool {
        let Some(&mut Live { id, announced, .. }) = self.apps[app].live(listener) else { return false };
        // Whatever the application writes there only harms its own listener.
        let accepted = self.apps[app].channel.accepted_by_program(listener);
        let unaccepted = i32::max(announced.wrapping_sub(accepted) as i32, 0);
        self.stack.tcp_set_unaccepted(id, unaccepted as usize)
    }

    /// Looks again at listeners whose programs are slow to accept. To be called before SYNs are taken in.
    pub(super) fn recount_crowded(&mut self) {
        for _ in 0..self.crowded.len().min(BUDGET) {
            let Some((key, id)) = self.crowded.pop_front() else { return };
            let is_there = |live: &mut Live| live.kind == LiveKind::Listener && live.id.to_bits() == id;
            if self.apps.get(key.app).is_none() || !self.apps[key.app].live(key.socket).is_some_and(is_there)
            {
                continue;
            }
            if self.is_crowded(key.app, key.socket) {
                self.crowded.push_back((key, id));
            } else if let Some(live) = self.apps[key.app].live(key.socket) {
                live.crowded = false;
            }
        }
    }
}
