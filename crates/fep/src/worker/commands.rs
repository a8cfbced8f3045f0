//! What each command of an application does.
//!
//! A command is the worker's private, validated copy. What an application may not ask at all is an [`Offence`]; what
//! merely cannot be done is answered with the errno that Linux gives.

use std::net::{Ipv4Addr, Shutdown, SocketAddr};

use base::Instant;
use channel::{Command, Manner, Offence, State};
use stack::{SocketError, SocketOptions};

use super::app::{Ending, Entry, Live, LiveKind};
use super::core::Core;
use super::key::{Key, NOBODY};

const EINVAL: i32 = libc::EINVAL;
const ENOTCONN: i32 = libc::ENOTCONN;
const EISCONN: i32 = libc::EISCONN;
const EALREADY: i32 = libc::EALREADY;
const EOPNOTSUPP: i32 = libc::EOPNOTSUPP;

/// The errno of an answer; 0 is success.
type Answer = Result<(), i32>;

fn errno(error: SocketError) -> i32 {
    error.errno()
}

/// The wildcard address with port 0: what an unbound socket is bound to when it must be.
fn anywhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
}

impl Core {
    /// Carries out one command of the application at `app`.
    pub(super) fn on_command(&mut self, now: Instant, app: u32, command: Command) -> Result<(), Offence> {
        let socket = command.socket();
        if let Entry::Moved(id) = *self.apps[app].entry(socket)
            && !matches!(command, Command::ReturnFile { .. })
        {
            self.on_moved(app, socket, id, command);
            return Ok(());
        }
        match command {
            Command::OpenTcp { sequence, .. } => {
                self.on_open(app, socket, false)?;
                self.answer(app, socket, sequence, Ok(()));
            }
            Command::OpenUdp { sequence, .. } => {
                self.on_open(app, socket, true)?;
                self.answer(app, socket, sequence, Ok(()));
            }
            Command::Bind { sequence, local, .. } => {
                let answer = self.on_bind(app, socket, local)?;
                self.answer(app, socket, sequence, answer);
            }
            Command::Listen { sequence, backlog, .. } => {
                let answer = self.on_listen(app, socket, backlog)?;
                self.answer(app, socket, sequence, answer);
            }
            Command::Connect { sequence, remote, .. } => {
                let answer = self.on_connect(now, app, socket, remote)?;
                if answer.is_ok() {
                    self.meet(now, app, socket);
                }
                self.answer(app, socket, sequence, answer);
            }
            Command::AttachSend { location, .. } => self.on_attach(app, socket, location)?,
            Command::Send { queued_to, .. } => self.on_send(app, socket, queued_to, Manner::Plain)?,
            Command::SendMore { queued_to, .. } => self.on_send(app, socket, queued_to, Manner::More)?,
            Command::SendUrgent { queued_to, .. } => self.on_send(app, socket, queued_to, Manner::Urgent)?,
            Command::Fill { file, queued_to, offset, .. } => {
                self.on_fill(now, app, socket, file, (queued_to, offset))?;
            }
            Command::ReturnFile { file } => self.on_return_file(app, file),
            Command::Consumed { .. } => self.on_consumed(now, app, socket)?,
            Command::Shutdown { sequence, how, .. } => {
                let answer = self.on_shutdown(now, app, socket, how)?;
                self.answer(app, socket, sequence, answer);
            }
            Command::Close { .. } => self.on_close(now, app, socket, false)?,
            Command::Abort { .. } => self.on_close(now, app, socket, true)?,
            Command::SetOption { sequence, option, .. } => {
                let answer = self.on_option(now, app, socket, option)?;
                self.answer(app, socket, sequence, answer);
            }
            Command::UnknownOption { sequence, .. } => {
                self.answer(app, socket, sequence, Err(libc::ENOPROTOOPT));
            }
            Command::Stamp { offset, stamp, .. } => self.on_stamp(now, app, socket, (offset, stamp))?,
            question => return self.on_question(now, app, question),
        }
        Ok(())
    }

    /// Those whose answers are more than an errno.
    fn on_question(&mut self, now: Instant, app: u32, question: Command) -> Result<(), Offence> {
        let socket = question.socket();
        let answer = match question {
            Command::TakeError { .. } => self.on_take_error(app, socket)?,
            Command::PathMtu { remote, .. } => self.on_path_mtu(now, app, socket, remote)?,
            Command::Claim { identity, .. } => self.on_claim(now, app, socket, identity)?,
            Command::Info { .. } => self.on_info(now, app, socket)?,
            // A command that a later version of the channel knows and this one does not carry out.
            _ => return Err(Offence::UnknownCommand),
        };
        self.answer(app, socket, question.sequence(), answer);
        Ok(())
    }

    pub(super) fn answer(&mut self, app: u32, socket: u32, sequence: u32, answer: Answer) {
        let errno = answer.err().unwrap_or(0);
        self.apps[app].channel.answer(socket, sequence, errno);
    }

    fn on_open(&mut self, app: u32, socket: u32, is_udp: bool) -> Result<(), Offence> {
        let limit = self.limits.receive_buffer_max as usize;
        let application = &mut self.apps[app];
        application.channel.check_own(socket)?;
        if !matches!(application.entry(socket), Entry::Free) {
            return Err(Offence::AlreadyOpen);
        }
        let options = SocketOptions::default();
        let entry = if is_udp {
            let mut rings = application.owner.datagrams();
            rings.assign(socket);
            rings.set_receive_limit(limit.min(DEFAULT_DATAGRAM_BUFFER));
            Entry::FreshUdp(Box::new((options, rings)))
        } else {
            Entry::FreshTcp(Box::new(options))
        };
        application.insert(socket, entry);
        Ok(())
    }

    fn on_bind(&mut self, app: u32, socket: u32, local: SocketAddr) -> Result<Answer, Offence> {
        match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => Err(Offence::NotOpen),
            Entry::Live(_) => Ok(Err(EINVAL)),
            Entry::FreshTcp(_) => Ok(self.bind_tcp(app, socket, local)),
            Entry::FreshUdp(_) => Ok(self.bind_udp(app, socket, local)),
        }
    }

    fn bind_tcp(&mut self, app: u32, socket: u32, local: SocketAddr) -> Answer {
        let Entry::FreshTcp(options) = self.apps[app].entry(socket) else { return Err(EINVAL) };
        let id = self.stack.tcp_bind(local, options).map_err(errno)?;
        self.stack.set_user_data(id, Key { app, socket }.to_word());
        *self.apps[app].entry(socket) = Entry::Live(Live::new(id, LiveKind::Bound, self.birth(app)));
        self.publish_place(app, socket, State::BOUND);
        Ok(())
    }

    fn bind_udp(&mut self, app: u32, socket: u32, local: SocketAddr) -> Answer {
        let application = &mut self.apps[app];
        let Entry::FreshUdp(fresh) = std::mem::replace(application.entry(socket), Entry::Free) else {
            return Err(EINVAL);
        };
        let (options, rings) = *fresh;
        let bound = self.stack.udp_bind(local, rings, &options);
        let birth = self.birth(app);
        let application = &mut self.apps[app];
        match bound {
            Ok(id) => {
                *application.entry(socket) = Entry::Live(Live::new(id, LiveKind::Udp, birth));
                self.stack.set_user_data(id, Key { app, socket }.to_word());
                if let Some(bound) = self.stack.local_addr(id) {
                    self.noise.admit_port(bound.port());
                }
                self.publish_place(app, socket, State::BOUND);
                Ok(())
            }
            Err(error) => {
                // The rings went with the attempt; nothing was in them, since nothing is before the first address.
                let mut rings = application.owner.datagrams();
                rings.assign(socket);
                *application.entry(socket) = Entry::FreshUdp(Box::new((options, rings)));
                Err(errno(error))
            }
        }
    }

    fn on_listen(&mut self, app: u32, socket: u32, backlog: u32) -> Result<Answer, Offence> {
        match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => return Err(Offence::NotOpen),
            Entry::FreshUdp(_) => return Ok(Err(EOPNOTSUPP)),
            Entry::FreshTcp(_) => {
                if let Err(errno) = self.bind_tcp(app, socket, anywhere()) {
                    return Ok(Err(errno));
                }
            }
            Entry::Live(_) => {}
        }
        let owner = self.apps[app].owner.clone();
        let Some(live) = self.apps[app].live(socket) else { return Err(Offence::NotOpen) };
        Ok(match live.kind {
            LiveKind::Udp => Err(EOPNOTSUPP),
            LiveKind::Connection => Err(EINVAL),
            LiveKind::Bound | LiveKind::Listener => {
                let id = live.id;
                let listening = self.stack.tcp_listen_bound(id, backlog as usize, owner).map_err(errno);
                if listening.is_ok() {
                    live_kind(self.apps[app].live(socket), LiveKind::Listener);
                    self.publish_place(app, socket, State::BOUND | State::LISTENING);
                }
                listening
            }
        })
    }

    fn on_connect(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        remote: Option<SocketAddr>,
    ) -> Result<Answer, Offence> {
        match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => Err(Offence::NotOpen),
            Entry::FreshUdp(_) => Ok(match self.bind_udp(app, socket, anywhere()) {
                Ok(()) => self.connect_udp(app, socket, remote),
                refused => refused,
            }),
            Entry::FreshTcp(_) => match remote {
                Some(remote) => Ok(self.connect_tcp(now, app, socket, remote)),
                None => Ok(Ok(())),
            },
            Entry::Live(live) => match (live.kind, remote) {
                (LiveKind::Udp, remote) => Ok(self.connect_udp(app, socket, remote)),
                (LiveKind::Listener, _) => Ok(Err(EISCONN)),
                (LiveKind::Connection, _) => self.connect_again(now, app, socket, remote),
                (LiveKind::Bound, None) => Ok(Ok(())),
                (LiveKind::Bound, Some(remote)) => Ok(self.connect_bound(now, app, socket, remote)),
            },
        }
    }

    /// An attempt to reach another application here has succeeded, or failed, before its owner hears that it was made: he
    /// need not wait twice.
    fn meet(&mut self, now: Instant, app: u32, socket: u32) {
        let Some(live) = self.apps[app].live(socket).filter(|live| live.kind == LiveKind::Connection) else {
            return;
        };
        let id = live.id;
        self.stack.tcp_meet(now, id);
        if self.stack.tcp(id).is_some_and(|connection| connection.state() != tcp::State::SynSent) {
            self.publish_changes(now);
        }
    }

    fn connect_udp(&mut self, app: u32, socket: u32, remote: Option<SocketAddr>) -> Answer {
        let Some(live) = self.apps[app].live(socket) else { return Err(EINVAL) };
        let id = live.id;
        self.stack.udp_connect(id, remote).map_err(errno)?;
        let connected = if remote.is_some() { State::BOUND | State::CONNECTED } else { State::BOUND };
        self.publish_place(app, socket, connected);
        Ok(())
    }

    fn connect_tcp(&mut self, now: Instant, app: u32, socket: u32, remote: SocketAddr) -> Answer {
        let Entry::FreshTcp(options) = self.apps[app].entry(socket) else { return Err(EINVAL) };
        let options = options.clone();
        let rings = self.stream_rings(app, socket, &options);
        let id = self.stack.tcp_connect(now, None, remote, rings, &options).map_err(errno)?;
        self.stack.set_user_data(id, Key { app, socket }.to_word());
        *self.apps[app].entry(socket) = Entry::Live(Live::new(id, LiveKind::Connection, self.birth(app)));
        self.publish_place(app, socket, self.attempt_state(id));
        Ok(())
    }

    fn connect_bound(&mut self, now: Instant, app: u32, socket: u32, remote: SocketAddr) -> Answer {
        let Some(live) = self.apps[app].live(socket) else { return Err(EINVAL) };
        let id = live.id;
        let rings = self.stream_rings(app, socket, &SocketOptions::default());
        self.stack.tcp_connect_bound(now, id, remote, rings).map_err(errno)?;
        live_kind(self.apps[app].live(socket), LiveKind::Connection);
        self.publish_place(app, socket, self.attempt_state(id));
        Ok(())
    }

    /// What a connection attempt looks like at its start.
    fn attempt_state(&self, id: stack::SocketId) -> State {
        let awaits_data = self.stack.tcp(id).is_some_and(tcp::Connection::awaits_data);
        let more = if awaits_data { State::AWAITS_DATA } else { State::empty() };
        State::BOUND | State::CONNECTING | more
    }

    /// `connect` on a socket that has a connection: Linux allows it once the old one has failed.
    fn connect_again(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        remote: Option<SocketAddr>,
    ) -> Result<Answer, Offence> {
        let Some(live) = self.apps[app].live(socket) else { return Err(Offence::NotOpen) };
        let id = live.id;
        let state = self.stack.tcp(id).map_or(tcp::State::Closed, tcp::Connection::state);
        match state {
            tcp::State::SynSent | tcp::State::SynReceived => return Ok(Err(EALREADY)),
            tcp::State::Closed => {}
            _ => return Ok(Err(EISCONN)),
        }
        self.let_go(now, id);
        *self.apps[app].entry(socket) = Entry::FreshTcp(Box::default());
        self.apps[app].channel.publish_state(socket, State::empty());
        Ok(remote.map_or(Ok(()), |remote| self.connect_tcp(now, app, socket, remote)))
    }

    fn stream_rings(&mut self, app: u32, socket: u32, options: &SocketOptions) -> channel::fep::StreamRings {
        let most = self.limits.receive_buffer_max;
        let mut rings = self.apps[app].owner.stream();
        rings.assign(socket);
        rings.set_receive_limit(options.receive_limit.map_or(most, u64::from).min(most) as usize);
        rings
    }

    fn on_attach(
        &mut self,
        app: u32,
        socket: u32,
        location: channel::layout::RingLocation,
    ) -> Result<(), Offence> {
        if matches!(self.apps[app].entry(socket), Entry::FreshUdp(_)) {
            // Sending from a socket without an address binds it, as on Linux. A refusal shows when it sends.
            if let Err(errno) = self.bind_udp(app, socket, anywhere()) {
                self.apps[app].channel.publish_error(socket, errno);
                return Ok(());
            }
        }
        let live = *self.live_or_offence(app, socket)?;
        match live.kind {
            LiveKind::Connection => match self.stack.stream(live.id) {
                Some(rings) => rings.attach_send(location),
                None => Ok(()),
            },
            LiveKind::Udp => match self.stack.datagrams(live.id) {
                Some(rings) => rings.attach_send(location),
                None => Ok(()),
            },
            LiveKind::Bound | LiveKind::Listener => Err(Offence::WrongKind),
        }
    }

    fn on_send(&mut self, app: u32, socket: u32, queued_to: u64, manner: Manner) -> Result<(), Offence> {
        if matches!(self.apps[app].entry(socket), Entry::FreshUdp(_)) {
            return Ok(());
        }
        let live = *self.live_or_offence(app, socket)?;
        match live.kind {
            LiveKind::Connection => {
                if let Some(rings) = self.stack.stream(live.id) {
                    rings.queue(queued_to)?;
                    let filled_to = rings.filled_to();
                    match manner {
                        Manner::Plain => self.stack.tcp_send(live.id, filled_to),
                        Manner::More => self.stack.tcp_send_more(live.id, filled_to),
                        Manner::Urgent => self.stack.tcp_send_urgent(live.id, filled_to, queued_to),
                    }
                }
                Ok(())
            }
            LiveKind::Udp => {
                if let Some(rings) = self.stack.datagrams(live.id) {
                    rings.queue(queued_to)?;
                    // Refused for sockets that are no UDP socket, which this is.
                    let _ = self.stack.udp_send(live.id);
                }
                Ok(())
            }
            LiveKind::Bound | LiveKind::Listener => Err(Offence::WrongKind),
        }
    }

    fn on_consumed(&mut self, now: Instant, app: u32, socket: u32) -> Result<(), Offence> {
        let live = *self.live_or_offence(app, socket)?;
        if live.kind == LiveKind::Connection {
            self.hear_consumed(now, live.id)?;
        }
        Ok(())
    }

    fn on_shutdown(&mut self, now: Instant, app: u32, socket: u32, how: Shutdown) -> Result<Answer, Offence> {
        let Some(live) = self.open_entry(app, socket)? else { return Ok(Err(ENOTCONN)) };
        let (id, kind) = (live.id, live.kind);
        match kind {
            LiveKind::Bound => Ok(Err(ENOTCONN)),
            LiveKind::Listener => {
                // Linux: a listener whose reading side is shut listens no more.
                if how != Shutdown::Write {
                    self.let_go(now, id);
                    *self.apps[app].entry(socket) = Entry::FreshTcp(Box::default());
                    self.apps[app].channel.publish_state(socket, State::CLOSED);
                    self.apps[app].channel.notify(socket);
                }
                Ok(Ok(()))
            }
            LiveKind::Udp => {
                let connected = self.stack.remote_addr(id).is_some();
                self.close_reading(app, socket, how);
                self.publish_udp(app, socket);
                Ok(if connected { Ok(()) } else { Err(ENOTCONN) })
            }
            LiveKind::Connection => {
                let state = self.stack.tcp(id).map_or(tcp::State::Closed, tcp::Connection::state);
                match state {
                    tcp::State::Closed => return Ok(Err(ENOTCONN)),
                    tcp::State::SynSent => {
                        self.give_up_attempt(now, app, socket, id);
                        return Ok(Ok(()));
                    }
                    _ => {}
                }
                if how != Shutdown::Read && !self.put_off_shutdown(now, id) {
                    self.stack.tcp_shutdown(id);
                }
                self.close_reading(app, socket, how);
                self.publish_connection(now, app, socket)?;
                Ok(Ok(()))
            }
        }
    }

    /// SHUTDOWN of a connection attempt: as Linux ends it (`inet_shutdown`).
    fn give_up_attempt(&mut self, now: Instant, app: u32, socket: u32, id: stack::SocketId) {
        self.let_go(now, id);
        *self.apps[app].entry(socket) = Entry::FreshTcp(Box::default());
        let channel = &mut self.apps[app].channel;
        channel.publish_error(socket, libc::ECONNRESET);
        channel.publish_state(socket, State::CLOSED | State::ERROR);
        channel.notify(socket);
    }

    fn close_reading(&mut self, app: u32, socket: u32, how: Shutdown) {
        if let Some(live) = self.apps[app].live(socket) {
            live.read_closed |= how != Shutdown::Write;
        }
    }

    /// CLOSE and ABORT: the application lets go for good.
    pub(super) fn on_close(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        reset: bool,
    ) -> Result<(), Offence> {
        if self.bequeath(now, app, socket, reset) {
            if matches!(self.apps[app].entry(socket), Entry::Moved(_)) {
                self.release(app, socket);
            }
            return Ok(());
        }
        match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => Err(Offence::NotOpen),
            Entry::FreshTcp(_) | Entry::FreshUdp(_) => {
                self.release(app, socket);
                Ok(())
            }
            Entry::Live(live) => {
                let (id, kind) = (live.id, live.kind);
                let read = self.give_up_reading(now, id, kind, reset);
                *self.apps[app].entry(socket) = Entry::Closing(id);
                let is_cut_off = matches!(self.apps[app].ending, Some(Ending::CutOff(_)));
                if kind == LiveKind::Connection && !is_cut_off && self.has_last_words(id, reset) {
                    self.close_after_output(id, reset);
                } else {
                    self.close_in_stack(now, id, kind, reset);
                }
                read
            }
        }
    }

    /// Hears how far the application has read, so that the stack can tell whether it leaves something unread; receive
    /// memory goes back.
    fn give_up_reading(
        &mut self,
        now: Instant,
        id: stack::SocketId,
        kind: LiveKind,
        reset: bool,
    ) -> Result<(), Offence> {
        match kind {
            LiveKind::Connection => {
                let heard = if reset { Ok(()) } else { self.hear_consumed(now, id) };
                if let Some(rings) = self.stack.stream(id) {
                    rings.discard_receive();
                }
                heard
            }
            LiveKind::Udp => {
                if let Some(rings) = self.stack.datagrams(id) {
                    rings.discard_receive();
                }
                Ok(())
            }
            LiveKind::Bound | LiveKind::Listener => Ok(()),
        }
    }

    pub(super) fn close_in_stack(&mut self, now: Instant, id: stack::SocketId, kind: LiveKind, reset: bool) {
        if reset && kind == LiveKind::Connection {
            self.forget_filling(id);
            self.stack.tcp_abort(id);
        } else if self.put_off_close(now, id) {
            return;
        }
        // Only a socket that was closed before is refused, and each is closed here once.
        let _ = self.stack.close(now, id);
    }

    /// Closes a socket of the stack that no application's number stands for any more.
    fn let_go(&mut self, now: Instant, id: stack::SocketId) {
        self.stack.set_user_data(id, NOBODY);
        // As above.
        let _ = self.stack.close(now, id);
    }

    /// The live socket of a number; `None` for one that has no address yet.
    fn open_entry(&mut self, app: u32, socket: u32) -> Result<Option<&mut Live>, Offence> {
        match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => Err(Offence::NotOpen),
            Entry::FreshTcp(_) | Entry::FreshUdp(_) => Ok(None),
            Entry::Live(live) => Ok(Some(live)),
        }
    }

    pub(super) fn live_or_offence(&mut self, app: u32, socket: u32) -> Result<&mut Live, Offence> {
        self.open_entry(app, socket)?.ok_or(Offence::WrongKind)
    }
}

/// The receive buffer of a UDP socket that asks for none.
const DEFAULT_DATAGRAM_BUFFER: usize = 1 << 20;

fn live_kind(live: Option<&mut Live>, kind: LiveKind) {
    if let Some(live) = live {
        live.kind = kind;
    }
}
