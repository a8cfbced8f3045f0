//! Processes that fork share their sockets.
//!
//! On Linux a forked child has its parent's sockets as well, and a connection ends with the last descriptor of it. Here each
//! application has segments of its own, so a socket is *used* by one at a time, and *held* by all that have it: the one that opened
//! it and those that were forked after that, until they close it or end. A child becomes an application before the fork
//! (HELLO with the parent's token), so nothing is closed in between. Who wants to use a socket that another one uses claims it: its
//! streams go over as they stand. If who uses it closes it, it goes to another holder, or is closed if there is none. Who holds
//! what follows from when things were opened and forked, so forking costs the same however many sockets there are.
//!
//! A listener may be used by several: its connections go to them in turn. Datagram sockets are not shared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base::Instant;
use channel::control::Token;
use channel::{Command, Offence, State};
use stack::SocketId;

use super::app::{Entry, Live, LiveKind};
use super::core::Core;
use super::key::Key;

/// Of so many forks above it an application knows: with those further up it shares nothing.
const MOST_ANCESTORS: usize = 16;

/// What a socket is called by applications: never 0.
pub(super) fn identity_of(id: SocketId) -> u64 {
    id.to_bits().wrapping_add(1)
}

fn id_of(identity: u64) -> SocketId {
    SocketId::from_bits(identity.wrapping_sub(1))
}

/// When a socket was opened, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    /// The application's number for life.
    by: u64,
    /// The forks there had been.
    at: u64,
}

/// What an application is to others.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    /// Its number for life.
    number: u64,
    /// By this its children name it.
    token: Token,
    /// Those from which it was forked, the nearest last, and when.
    ancestors: Vec<(u64, u64)>,
    /// It has forked, or was forked.
    is_kin: bool,
}

/// The living that came from one application.
#[derive(Debug, Default)]
struct Descent {
    /// The application itself.
    founder: Option<u32>,
    /// Those that were forked from it, or from one that was: when the first of them on the way was forked, and who it is.
    descendants: BTreeSet<(u64, u32)>,
}

/// Who was forked from whom, and who has left which socket to others.
#[derive(Debug, Default)]
pub(crate) struct Families {
    /// The applications that ever were, and the forks.
    numbers: u64,
    forks: u64,
    descents: HashMap<u64, Descent>,
    by_token: HashMap<Token, u32>,
    /// Applications that have closed a socket which others still hold, by the socket, and the forks there had been by then.
    left: HashMap<u64, BTreeMap<u64, u64>>,
    /// The users of listeners that several use, and whose turn it is.
    shared: HashMap<u64, (Vec<Key>, usize)>,
    /// Connections that nobody has heard of who uses their listener: nobody does.
    unannounced: HashMap<u64, Vec<SocketId>>,
}

impl Families {
    /// What is remembered.
    pub(super) fn len(&self) -> usize {
        self.descents.len()
            + self.by_token.len()
            + self.left.len()
            + self.shared.len()
            + self.unannounced.len()
    }

    pub(super) fn keep_unannounced(&mut self, listener: SocketId, connection: SocketId) {
        self.unannounced.entry(listener.to_bits()).or_default().push(connection);
    }

    pub(super) fn take_unannounced(&mut self, listener: SocketId) -> Vec<SocketId> {
        if self.unannounced.is_empty() {
            return Vec::new();
        }
        self.unannounced.remove(&listener.to_bits()).unwrap_or_default()
    }

    fn forget_socket(&mut self, id: SocketId) {
        if !self.left.is_empty() {
            self.left.remove(&id.to_bits());
        }
        if !self.shared.is_empty() {
            self.shared.remove(&id.to_bits());
        }
    }

    /// The forks there had been when an application closed the socket, if it has.
    fn left_at(&self, id: SocketId, number: u64) -> Option<u64> {
        self.left.get(&id.to_bits())?.get(&number).copied()
    }

    fn leave(&mut self, id: SocketId, number: u64) {
        self.left.entry(id.to_bits()).or_default().entry(number).or_insert(self.forks);
    }

    /// Whether an application has the socket: it opened it, or was forked by one that had it then, and has not closed it.
    fn holds(&self, kin: &Kin, id: SocketId, birth: Birth) -> bool {
        if self.left_at(id, kin.number).is_some() {
            return false;
        }
        let line = kin.ancestors.iter().position(|&(by, forked)| by == birth.by && forked > birth.at);
        match line {
            Some(first) => kin.ancestors[first..]
                .iter()
                .all(|&(ancestor, forked)| self.left_at(id, ancestor).is_none_or(|left| forked <= left)),
            None => kin.number == birth.by,
        }
    }
}

impl Core {
    /// An application begins. `parent`: it is forked from that one.
    pub(super) fn found(&mut self, app: u32, token: Token, parent: Option<u32>) {
        let families = &mut self.families;
        families.numbers += 1;
        let number = families.numbers;
        let mut kin = Kin { number, token, ..Kin::default() };
        families.descents.insert(number, Descent { founder: Some(app), ..Descent::default() });
        families.by_token.insert(token, app);
        if let Some(parent) = parent {
            families.forks += 1;
            let forked = families.forks;
            self.apps[parent].channel.publish_forks(u32::try_from(forked).unwrap_or(u32::MAX));
            let parent = &mut self.apps[parent].kin;
            parent.is_kin = true;
            kin.is_kin = true;
            kin.ancestors.clone_from(&parent.ancestors);
            kin.ancestors.push((parent.number, forked));
            let too_many = kin.ancestors.len().saturating_sub(MOST_ANCESTORS);
            kin.ancestors.drain(..too_many);
            for &(ancestor, forked) in &kin.ancestors {
                families.descents.entry(ancestor).or_default().descendants.insert((forked, app));
            }
        }
        self.apps[app].kin = kin;
    }

    /// The application whose token this is, while it lives.
    pub(crate) fn parent(&self, token: &Token) -> Option<u32> {
        let app = *self.families.by_token.get(token)?;
        self.apps.living(app).map(|_| app)
    }

    /// An application has ended, and its sockets are taken down.
    pub(super) fn forget_kin(&mut self, app: u32, kin: &Kin) {
        let families = &mut self.families;
        families.by_token.remove(&kin.token);
        for (number, forked) in kin.ancestors.iter().copied().chain([(kin.number, 0)]) {
            let Some(descent) = families.descents.get_mut(&number) else { continue };
            if number == kin.number {
                descent.founder = None;
            } else {
                descent.descendants.remove(&(forked, app));
            }
            if descent.founder.is_none() && descent.descendants.is_empty() {
                families.descents.remove(&number);
            }
        }
    }

    /// A socket that an application opens now.
    pub(super) fn birth(&self, app: u32) -> Birth {
        Birth { by: self.apps[app].kin.number, at: self.families.forks }
    }

    /// Another application that holds the socket.
    pub(super) fn heir(&self, except: u32, id: SocketId, birth: Birth) -> Option<u32> {
        let families = &self.families;
        let descent = families.descents.get(&birth.by)?;
        // Who was forked after the founder had closed it has not got it from there.
        let last = families.left_at(id, birth.by).unwrap_or(u64::MAX);
        let first = birth.at.saturating_add(1);
        let descendants = (first <= last).then(|| descent.descendants.range((first, 0)..=(last, u32::MAX)));
        let candidates =
            descent.founder.into_iter().chain(descendants.into_iter().flatten().map(|&(_, app)| app));
        candidates.filter(|&app| app != except).find(|&app| {
            let living = self.apps.living(app);
            living.is_some_and(|application| families.holds(&application.kin, id, birth))
        })
    }

    fn holds(&self, app: u32, id: SocketId, birth: Birth) -> bool {
        self.apps.find(app).is_some_and(|application| self.families.holds(&application.kin, id, birth))
    }

    fn leave(&mut self, app: u32, id: SocketId) {
        self.families.leave(id, self.apps[app].kin.number);
    }

    /// Who uses a socket lets go of it: if others hold it, it goes to one of them, and this one's number stands for nothing.
    pub(super) fn bequeath(&mut self, now: Instant, app: u32, socket: u32, reset: bool) -> bool {
        if !self.apps[app].kin.is_kin {
            return false;
        }
        let from = Key { app, socket };
        let Some(Live { id, birth, kind, .. }) = self.user_at(from) else { return false };
        if kind == LiveKind::Listener && self.leave_shared(from, id) {
            self.leave(app, id);
            *self.apps[app].entry(socket) = Entry::Moved(id);
            return true;
        }
        let Some(heir) = self.heir(app, id, birth) else { return false };
        self.leave(app, id);
        let Some(number) = self.apps[heir].channel.allocate_socket() else { return false };
        let to = Key { app: heir, socket: number };
        if self.hand_over(now, from, to, true).is_err() {
            self.apps[heir].channel.return_socket(number);
            return false;
        }
        let all_read = |connection: &tcp::Connection| connection.received_to() == connection.consumed_to();
        if let Some(live) = self.apps[heir].live(number) {
            // Not for what this one has not read: the others may.
            live.resets |= reset && self.stack.tcp(id).is_some_and(all_read);
        }
        true
    }

    /// One of several users of a listener leaves it; false: there are no others.
    fn leave_shared(&mut self, from: Key, id: SocketId) -> bool {
        let Some((users, _)) = self.families.shared.get_mut(&id.to_bits()) else { return false };
        users.retain(|&user| user != from);
        let next = users.iter().find(|user| self.apps.living(user.app).is_some()).or(users.first()).copied();
        match next {
            Some(next) => self.stack.set_user_data(id, next.to_word()),
            None => drop(self.families.shared.remove(&id.to_bits())),
        }
        next.is_some()
    }

    /// CLAIM.
    pub(super) fn on_claim(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        identity: u64,
    ) -> Result<Result<(), i32>, Offence> {
        self.apps[app].channel.check_own(socket)?;
        if !matches!(self.apps[app].entry(socket), Entry::Free) {
            return Err(Offence::AlreadyOpen);
        }
        let id = id_of(identity);
        let Some((from, live)) = self.user_of(id) else { return Ok(Err(libc::ENOTCONN)) };
        if !self.holds(app, id, live.birth) {
            return Ok(Err(libc::ENOTCONN));
        }
        // What its user has asked for comes first.
        if from.app != app && self.apps[from.app].channel.has_commands() == Ok(true) {
            return Ok(Err(libc::EAGAIN));
        }
        let claimed = self.hand_over(now, from, Key { app, socket }, false);
        if claimed.is_ok() {
            let at = self.stack.stream(id).map_or((0, 0), |rings| (rings.consumed_to(), rings.queued()));
            self.apps[app].channel.publish_claimed(at.0, at.1);
            if live.kind == LiveKind::Listener {
                self.accept_waiting(now, app, socket);
            }
        }
        Ok(claimed)
    }

    /// RELEASE: an inherited socket is of no use.
    pub(crate) fn on_release(&mut self, now: Instant, app: u32, identity: u64) {
        let id = id_of(identity);
        let Some((user, live)) = self.user_of(id) else { return };
        if !self.holds(app, id, live.birth) {
            return;
        }
        if user.app != app {
            self.leave(app, id);
        } else if live.inherited {
            // It came to it when another one closed it, and was never claimed.
            self.guarded(app, |core| core.on_close(now, app, user.socket, live.resets));
        }
    }

    /// The user of a shared listener whose turn it is.
    pub(super) fn next_user(&mut self, listener: SocketId) -> Option<Key> {
        if self.families.shared.is_empty() {
            return None;
        }
        let (users, turn) = self.families.shared.get_mut(&listener.to_bits())?;
        *turn = (*turn + 1) % users.len().max(1);
        let (before, after) = users.split_at(*turn);
        after.iter().chain(before).find(|user| self.apps.living(user.app).is_some()).copied()
    }

    /// Who uses a socket, of several one that has not ended.
    pub(super) fn living_user(&mut self, id: SocketId) -> Option<(Key, Live)> {
        match self.next_user(id) {
            Some(user) => Some((user, self.user_at(user)?)),
            None => self.user_of(id).filter(|(user, _)| self.apps.living(user.app).is_some()),
        }
    }

    /// A socket of the stack is no more. Connections that were to be announced to the next user of a listener are reset.
    pub(super) fn forget_shared(&mut self, now: Instant, id: SocketId) {
        for connection in self.families.take_unannounced(id) {
            if let Some((user, _)) = self.user_of(connection) {
                self.guarded(user.app, |core| core.on_close(now, user.app, user.socket, true));
            }
        }
        self.families.forget_socket(id);
    }

    /// Who uses a socket of the stack.
    pub(super) fn user_of(&mut self, id: SocketId) -> Option<(Key, Live)> {
        let key = Key::from_word(self.stack.user_data(id))?;
        let live = self.user_at(key)?;
        (live.id == id).then_some((key, live))
    }

    /// The socket that is used under this number. One that waits to be accepted nobody has yet, and who was forked before it was
    /// accepted has not got it.
    fn user_at(&mut self, key: Key) -> Option<Live> {
        let application = self.apps.get(key.app)?;
        let live = *application.live(key.socket)?;
        let channel = &application.channel;
        if live.kind != LiveKind::Connection || live.inherited || !channel.is_for_accepted(key.socket) {
            return Some(live);
        }
        let taken = channel.taken_after(key.socket).map_or(u64::MAX, u64::from);
        Some(Live { birth: Birth { at: live.birth.at.max(taken), ..live.birth }, ..live })
    }

    /// Gives a socket to another user. `inherited`: who does not know yet that it has it.
    pub(super) fn hand_over(&mut self, now: Instant, from: Key, to: Key, inherited: bool) -> Result<(), i32> {
        let Some(live) = self.user_at(from) else { return Err(libc::ENOTCONN) };
        let id = live.id;
        match live.kind {
            LiveKind::Udp => return Err(libc::EOPNOTSUPP),
            LiveKind::Connection => self.move_streams(now, id, live, to)?,
            LiveKind::Bound | LiveKind::Listener => {}
        }
        tracing::debug!(?from, ?to, inherited, "a socket goes from one process to another");
        let before = self.apps[from.app].channel.state(from.socket);
        let fresh = Live { listener: live.listener, ..Live::new(id, live.kind, live.birth) };
        let moved =
            Live { inherited, resets: inherited && live.resets, read_closed: live.read_closed, ..fresh };
        self.apps[to.app].insert(to.socket, Entry::Live(moved));
        self.publish_place(to.app, to.socket, before & !State::HAS_QUEUED);
        if live.kind == LiveKind::Listener && !inherited {
            // Who used it before it was shared uses it again when it claims it.
            let (users, _) = self.families.shared.entry(id.to_bits()).or_default();
            let is_first = users.is_empty();
            let earlier =
                users.iter().position(|user| user.app == to.app).map(|place| users.swap_remove(place));
            users.push(to);
            if let Some(earlier) = earlier {
                // A process uses it under one number.
                if self.stack.user_data(id) == earlier.to_word() {
                    self.stack.set_user_data(id, to.to_word());
                }
                self.move_away(earlier, id);
            }
            if !is_first {
                return Ok(());
            }
        }
        self.stack.set_user_data(id, to.to_word());
        self.move_away(from, id);
        if live.kind == LiveKind::Connection {
            let (app, socket) = (to.app, to.socket);
            self.guarded(app, |core| core.publish_connection(now, app, socket));
        }
        Ok(())
    }

    /// The streams of a connection, as they stand, to rings in the segments of another application.
    fn move_streams(&mut self, now: Instant, id: SocketId, live: Live, to: Key) -> Result<(), i32> {
        if !live.read_closed && self.hear_consumed(now, id).is_err() {
            return Err(libc::ENOTCONN); // what it says is not believed, and it will be cut off for it
        }
        if self.stack.stream(id).is_some_and(|rings| rings.is_filling()) {
            return Err(libc::EAGAIN);
        }
        self.move_rings(id, to)
    }

    /// Puts rings in the segments of another application in the place of a connection's, with what is in those.
    pub(super) fn move_rings(&mut self, id: SocketId, to: Key) -> Result<(), i32> {
        let mut fresh = self.apps[to.app].owner.stream();
        fresh.assign(to.socket);
        let Some(rings) = self.stack.stream(id) else { return Err(libc::ENOTCONN) };
        self.moved_bytes += fresh.take_over(rings).map_err(|_| libc::ENOMEM)?;
        *rings = fresh;
        Ok(())
    }

    /// The number by which a socket was used stands for nothing any more.
    fn move_away(&mut self, from: Key, id: SocketId) {
        let application = &mut self.apps[from.app];
        let was_known = application.live(from.socket).is_some_and(|live| !live.inherited);
        application.errors.forget(from.socket);
        if was_known {
            *application.entry(from.socket) = Entry::Moved(id);
            let listens = application.channel.state(from.socket) & State::LISTENING;
            application.channel.publish_state(from.socket, State::MOVED | State::CLOSED | listens);
            application.channel.notify(from.socket);
        } else {
            application.remove(from.socket);
            application.channel.return_socket(from.socket);
        }
    }

    /// A command for a number whose socket another application uses.
    pub(super) fn on_moved(&mut self, app: u32, socket: u32, id: SocketId, command: Command) {
        match command {
            Command::Close { .. } | Command::Abort { .. } => {
                let holds = self.user_of(id).is_some_and(|(_, live)| self.holds(app, id, live.birth));
                if holds {
                    self.leave(app, id);
                }
                self.release(app, socket);
            }
            command => self.answer(app, socket, command.sequence(), Err(libc::ENOTCONN)),
        }
    }
}
