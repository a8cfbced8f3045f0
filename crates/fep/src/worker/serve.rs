//! What is said on the control socket.
//!
//! An application says HELLO and gets a channel; from then on the connection stands for the application, and its end is
//! the application's end. Everybody else asks a question in a line of text and gets JSON.

use std::os::fd::{AsFd, OwnedFd};

use base::Instant;
use channel::Offence;
use channel::control::sys::{Received, receive, send};
use channel::control::{Answer, MAX_MESSAGE, Network as Reach, Request, Token, version_refusal};
use channel::fep::{AppChannel, WaiterError};
use device::Device;
use serde::Serialize;
use tracing::{debug, warn};

use super::{Application, Ending, Identity, Worker, channel_limits};
use crate::clerk::Desk;
use crate::clock;
use crate::control::{ASK_CENSUS, ASK_CONNECTIONS, ASK_STATUS, MAX_ANSWER, Peer};

/// Connections accepted, or messages of one connection answered, before the loop goes on.
const BUDGET: usize = 16;

/// What is done with a connection after a message.
enum Outcome {
    KeepOpen,
    Close,
}

impl<D: Device> Worker<D> {
    pub(super) fn on_listener(&mut self, now: Instant) {
        let Some(server) = &mut self.server else { return };
        for _ in 0..BUDGET {
            self.account.system_calls += 1;
            match server.accept(&self.poller, self.config.limits.applications_per_user) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    warn!("cannot take a control connection: {error}");
                    server.pause(now, &self.poller);
                    return;
                }
            }
        }
    }

    pub(super) fn on_control(&mut self, now: Instant, connection: u32) {
        let mut buffer = vec![0; MAX_MESSAGE];
        for _ in 0..BUDGET {
            let Some(server) = &mut self.server else { return };
            let Some(known) = server.connection(connection) else { return };
            self.account.system_calls += 1;
            let outcome = match receive(&known.socket, &mut buffer) {
                // Nothing that is asked here brings descriptors: they are closed at once.
                Ok(Received::Message(length, _)) => self.on_message(now, connection, &buffer[..length]),
                Ok(Received::Truncated) => self.on_nonsense(connection),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Ok(Received::HungUp) | Err(_) => Outcome::Close,
            };
            if let Outcome::Close = outcome {
                self.hang_up(connection);
                return;
            }
        }
    }

    /// The connection is over; so is the application behind it, if there is one.
    fn hang_up(&mut self, connection: u32) {
        let Some(server) = &mut self.server else { return };
        if let Some(closed) = server.hang_up(&self.poller, connection)
            && let Some(app) = closed.app
        {
            // The number may be another connection's before the application is taken down.
            self.core.apps[app].connection = None;
            self.core.end(app, Ending::Gone);
        }
    }

    fn on_message(&mut self, now: Instant, connection: u32, message: &[u8]) -> Outcome {
        let Some(known) = self.server.as_mut().and_then(|server| server.connection(connection)) else {
            return Outcome::Close;
        };
        let (app, peer) = (known.app, known.peer);
        match Request::decode(message) {
            Some(Ok(Request::Hello { version, name, parent, .. })) if app.is_none() => {
                self.on_hello(connection, peer, (version, name), parent)
            }
            Some(Ok(Request::Release { identity })) if let Some(app) = app => {
                self.core.on_release(now, app, identity);
                Outcome::KeepOpen
            }
            Some(Ok(Request::NewWaiter { slot })) if app.is_some() => {
                self.on_new_waiter(connection, app, slot)
            }
            Some(Ok(Request::Lend)) if app.is_some() => self.on_lend(connection, app),
            Some(_) => self.on_nonsense(connection),
            None => self.on_question(connection, &String::from_utf8_lossy(message)),
        }
    }

    /// A message that makes no sense ends an application and is refused to everybody else.
    fn on_nonsense(&mut self, connection: u32) -> Outcome {
        let app = self.server.as_mut().and_then(|server| server.connection(connection)).and_then(|it| it.app);
        match app {
            Some(app) => self.cut_off(app, Offence::BadMessage),
            None => self.refuse(connection, "the message makes no sense"),
        }
        Outcome::Close
    }

    fn on_hello(
        &mut self,
        connection: u32,
        peer: Peer,
        (version, name): (u32, String),
        parent: Option<Token>,
    ) -> Outcome {
        let refusal = version_refusal(version).or_else(|| self.limit_refusal(peer));
        if let Some(text) = refusal {
            self.refuse(connection, &text);
            return Outcome::Close;
        }
        let (parent, token) = match parent.map(|token| self.core.parent(&token)) {
            Some(None) => {
                self.refuse(connection, "the process that forks has no channel any more");
                return Outcome::Close;
            }
            parent => (parent.flatten(), clock::entropy()),
        };
        let made = AppChannel::create_within(&channel_limits(&self.config), &self.memory);
        let (channel, token) = match made.and_then(|channel| Ok((channel, token?))) {
            Ok(made) => made,
            Err(error) => {
                warn!("cannot make a channel: {error}");
                self.refuse(connection, &format!("cannot make a channel: {error}"));
                return Outcome::Close;
            }
        };
        let welcome =
            Answer::Welcome { geometry: *channel.geometry(), network: self.reach(), token }.encode();
        let offer = channel.offer();
        if !self.reply(connection, &welcome, &[offer.a, offer.f, offer.doorbell]) {
            return Outcome::Close;
        }
        debug!(pid = peer.pid, %name, "application opens a channel");
        let identity = Identity { pid: peer.pid, uid: peer.uid, name };
        match self.add(Application::new(channel, identity, Some(connection)), token, parent) {
            Ok(app) => {
                if let Some(known) = self.server.as_mut().and_then(|server| server.connection(connection)) {
                    known.app = Some(app);
                }
                Outcome::KeepOpen
            }
            Err(error) => {
                warn!("cannot watch an application: {error}");
                Outcome::Close
            }
        }
    }

    /// The text that refuses one more application, if it must be refused.
    fn limit_refusal(&self, peer: Peer) -> Option<String> {
        let limits = &self.config.limits;
        if self.core.apps.len() >= limits.applications as usize {
            return Some(format!(
                "there are {} applications already, as many as `limits.applications` allows",
                self.core.apps.len()
            ));
        }
        let own = self.core.apps.iter().filter(|application| application.identity.uid == peer.uid).count();
        (!peer.is_privileged() && own >= limits.applications_per_user as usize).then(|| {
            format!(
                "user {} has {own} applications already, as many as `limits.applications_per_user` allows",
                peer.uid
            )
        })
    }

    fn on_new_waiter(&mut self, connection: u32, app: Option<u32>, slot: u32) -> Outcome {
        let Some(app) = app else { return Outcome::Close };
        match self.core.apps[app].channel.add_waiter(slot) {
            Ok(bell) => self.reply_or_close(connection, &Answer::Bell { slot }.encode(), Some(bell)),
            Err(WaiterError::Offence(offence)) => {
                self.cut_off(app, offence);
                Outcome::Close
            }
            Err(WaiterError::System(error)) => {
                self.refuse(connection, &format!("cannot make a bell: {error}"));
                Outcome::KeepOpen
            }
        }
    }

    /// An application wants to lend files: it gets a clerk. A second time is nonsense.
    fn on_lend(&mut self, connection: u32, app: Option<u32>) -> Outcome {
        let Some(app) = app else { return Outcome::Close };
        if self.core.apps[app].desk.is_some() {
            return self.on_nonsense(connection);
        }
        let opened = self.core.apps[app].channel.allow_filling().and_then(|()| Desk::open(&self.answers));
        match opened {
            Ok((desk, theirs)) => {
                self.core.apps[app].desk = Some(desk);
                self.reply_or_close(connection, &Answer::Lender.encode(), Some(theirs))
            }
            Err(error) => {
                self.refuse(connection, &format!("cannot take files: {error}"));
                Outcome::KeepOpen
            }
        }
    }

    fn on_question(&mut self, connection: u32, question: &str) -> Outcome {
        let mut words = question.split_whitespace();
        let start = |position: Option<&str>| position.and_then(|text| text.parse().ok()).unwrap_or(0);
        match (words.next(), words.next()) {
            (Some(ASK_STATUS), None) => {
                let status = self.status();
                self.reply_json(connection, &status)
            }
            (Some(ASK_CONNECTIONS), position) => {
                let page = self.connection_page(start(position));
                self.reply_json(connection, &page)
            }
            (Some(ASK_CENSUS), position) => {
                let page = self.census(start(position));
                self.reply_json(connection, &page)
            }
            _ => self.reply_json(connection, &serde_json::json!({ "error": "no such question" })),
        }
    }

    fn reply_json(&mut self, connection: u32, answer: &impl Serialize) -> Outcome {
        match serde_json::to_vec(answer) {
            Ok(text) if text.len() <= MAX_ANSWER => self.reply_or_close(connection, &text, None),
            Ok(_) | Err(_) => {
                self.reply_or_close(connection, br#"{"error": "the answer is too long"}"#, None)
            }
        }
    }

    fn reply_or_close(&mut self, connection: u32, message: &[u8], descriptor: Option<OwnedFd>) -> Outcome {
        let descriptors: Vec<_> = descriptor.iter().map(OwnedFd::as_fd).collect();
        if self.reply(connection, message, &descriptors) { Outcome::KeepOpen } else { Outcome::Close }
    }

    fn refuse(&mut self, connection: u32, text: &str) {
        // Whether it hears this is its affair.
        let _ = self.reply(connection, &Answer::Refused(text.to_owned()).encode(), &[]);
    }

    /// Whether the message was taken. Whoever asks without listening finds the socket full, and is hung up on.
    fn reply(
        &mut self,
        connection: u32,
        message: &[u8],
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> bool {
        self.account.system_calls += 1;
        self.server
            .as_mut()
            .and_then(|server| server.connection(connection))
            .is_some_and(|known| send(&known.socket, message, descriptors).is_ok())
    }

    /// What the stack reaches, for applications that have to choose.
    fn reach(&self) -> Reach {
        Reach {
            addresses: self.network.addresses.clone(),
            routes: self.network.destinations(),
            mtu: u32::from(self.network.mtu),
        }
    }
}
