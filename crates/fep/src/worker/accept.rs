//! Connections of listeners: numbers for them, and how many of them no program has accepted.
//!
//! An application hears of a connection as soon as it is established, and takes it from its own list when its program accepts. Until
//! then it counts against the listener's backlog, so that a program that does not accept is not given any number of
//! connections. How many were accepted is a word of shared memory. It is read again whenever connections come, and
//! in every turn while less than half of the backlog is left: a SYN is not dropped for want of a look.

use base::Instant;
use channel::State;
use stack::SocketId;

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
        if live.inherited {
            return; // its connections wait until it is claimed
        }
        self.announce_again(now, listening, Key { app, socket: listener });
        let (first_app, first_listener) = (app, listener);
        while self.stack.tcp_backlog(listening).is_some_and(|(waiting, _)| waiting > 0) {
            let user = self.next_user(listening);
            let (app, listener) = user.map_or((first_app, first_listener), |user| (user.app, user.socket));
            let Some(socket) = self.apps[app].channel.allocate_socket() else {
                self.starve(now, app, listener);
                return;
            };
            let Some(id) = self.stack.tcp_accept(listening) else {
                self.apps[app].channel.return_socket(socket);
                return;
            };
            self.stack.set_user_data(id, Key { app, socket }.to_word());
            let is_taken_over = self.assign_accepted(id, Key { app, socket });
            let live = Live::new(id, LiveKind::Connection, self.birth(app));
            let live = Live { listener: Some(listening), ..live };
            self.apps[app].insert(socket, Entry::Live(live));
            if !is_taken_over {
                // There is no memory for what it has received.
                self.guarded(app, |core| core.on_close(now, app, socket, true));
                continue;
            }
            self.publish_place(app, socket, State::BOUND | State::CONNECTED);
            if !self.guarded(app, |core| core.publish_connection(now, app, socket)) {
                return;
            }
            self.announce(Key { app, socket: listener }, socket);
        }
        if self.is_crowded(app, listener)
            && let Some(live) = self.apps[app].live(listener)
            && !live.crowded
        {
            live.crowded = true;
            self.crowded.push_back((Key { app, socket: listener }, live.id.to_bits()));
        }
    }

    fn announce(&mut self, listener: Key, connection: u32) {
        let application = &mut self.apps[listener.app];
        application.channel.accepted(listener.socket, connection);
        if let Some(live) = application.live(listener.socket) {
            live.announced = live.announced.wrapping_add(1);
        }
    }

    /// An application ends with a connection that it has not accepted: another one that has the listener, too, is to accept it.
    pub(super) fn pass_on_untaken(&mut self, now: Instant, app: u32, socket: u32) -> bool {
        let application = &mut self.apps[app];
        let is_untaken = application.channel.is_untaken(socket);
        let listener = application.live(socket).filter(|live| is_untaken && !live.inherited);
        let Some(listener) = listener.and_then(|live| live.listener) else { return false };
        let from = Key { app, socket };
        if let Some((user, live)) = self.living_user(listener)
            && user.app != app
            && !live.inherited
        {
            return self.pass_on(now, from, user, false).is_some();
        }
        // Nobody uses it now. Who is next to do so hears of the connection then.
        let Some((_, live)) = self.user_of(listener) else { return false };
        let Some(heir) = self.heir(app, listener, live.birth) else { return false };
        let passed = self.pass_on(now, from, Key { app: heir, socket: 0 }, true);
        if let Some(id) = passed {
            self.families.keep_unannounced(listener, id);
        }
        passed.is_some()
    }

    /// Connections that came by a listener which nobody used are announced to who uses it now.
    fn announce_again(&mut self, now: Instant, listening: SocketId, listener: Key) {
        for id in self.families.take_unannounced(listening) {
            if let Some((from, _)) = self.user_of(id)
                && self.pass_on(now, from, listener, false).is_none()
            {
                // There is no number or no memory for it.
                self.guarded(from.app, |core| core.on_close(now, from.app, from.socket, true));
            }
        }
    }

    /// Gives a connection that was not accepted to another user of its listener.
    fn pass_on(&mut self, now: Instant, from: Key, listener: Key, inherited: bool) -> Option<SocketId> {
        let number = self.apps[listener.app].channel.allocate_socket()?;
        let to = Key { app: listener.app, socket: number };
        if self.hand_over(now, from, to, inherited).is_err() {
            self.apps[to.app].channel.return_socket(number);
            return None;
        }
        let birth = self.birth(to.app);
        let live = self.apps[to.app].live(number)?;
        live.birth = birth;
        let id = live.id;
        if !inherited {
            self.announce(listener, number);
        }
        Some(id)
    }

    /// Gives an accepted connection its number, and rings in its application's segments, if they are in those of another one, which
    /// the listener was of first. Whether that could be.
    fn assign_accepted(&mut self, id: SocketId, key: Key) -> bool {
        let owner = &self.apps[key.app].owner;
        let is_elsewhere = self.stack.stream(id).is_some_and(|rings| !rings.are_of(owner));
        let is_moved = is_elsewhere && self.move_rings(id, key).is_ok();
        let Some(rings) = self.stack.stream(id) else { return true };
        if !is_moved {
            rings.assign(key.socket);
        }
        rings.set_receive_limit(self.limits.receive_buffer_max as usize);
        is_moved || !is_elsewhere
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
