//! TCP Fast Open at a host (RFC 7413): whose cookies are known, where it is avoided, and how many connections a listener
//! lets begin with data.
//!
//! A connection that begins with data goes to the accept queue at once, before its handshake is over. Until that is over
//! its listener counts it (RFC 7413 §5.1), and one that the peer resets before counts for a while longer, so that a host
//! that replays somebody else's cookie cannot have the server work without end.

use std::collections::VecDeque;

use base::{Duration, Instant};
use core::net::IpAddr;
use hashbrown::HashMap;
use tcp::{Cookie, CookieVerdict, FastOpen, FastOpenKeys, FastOpenProgress};

use crate::buffers::BufferFamily;
use crate::config::FastOpenConfig;
use crate::flow::FourTuple;
use crate::hash::{KeyedState, random_key};
use crate::slab::Key;
use crate::stack::Stack;

/// How long a connection that was reset before its handshake was over still counts (as on Linux).
const RESET_COUNTS: Duration = Duration::from_secs(60);
/// Failures in a row, from the second on, keep fast open off for this long times two to their number (as on Linux).
const AVOIDANCE: Duration = Duration::from_secs(60);
const MOST_FAILURES: u8 = 10;

/// What a host knows about fast open.
pub(crate) struct FastOpenState {
    /// Made when first needed.
    keys: Option<FastOpenKeys>,
    peers: Peers,
}

/// The peers of which something is known; the oldest makes room.
struct Peers {
    known: HashMap<(IpAddr, IpAddr), Peer, KeyedState>,
    order: VecDeque<(IpAddr, IpAddr)>,
    max: usize,
}

/// What is known of a peer.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// Empty: none.
    cookie: Cookie,
    mss: u16,
    /// SYNs in a row that were lost or whose data was not taken, and when the last was.
    failures: u8,
    failed_at: Instant,
}

/// A listener's connections whose data was taken before their handshake is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct EarlyQueue {
    pending: u32,
    /// When those that were reset cease to count.
    reset: VecDeque<Instant>,
}

impl FastOpenState {
    pub(crate) fn new(config: &FastOpenConfig, hash: KeyedState) -> Self {
        let known = HashMap::with_hasher(hash);
        Self { keys: None, peers: Peers { known, order: VecDeque::new(), max: config.max_peers } }
    }
}

impl Peers {
    /// A peer, to note something about it; the same two addresses always mean the same.
    fn entry(&mut self, local: IpAddr, remote: IpAddr) -> Option<&mut Peer> {
        if self.max == 0 {
            return None;
        }
        let key = (local, remote);
        if !self.known.contains_key(&key) {
            if self.known.len() >= self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(key);
        }
        Some(self.known.entry(key).or_default())
    }
}

impl Peer {
    /// SYNs with data seem not to get through, or not to be wanted (RFC 7413 §4.1.3.2).
    fn is_avoided(&self, now: Instant) -> bool {
        self.failures > 1 && now < self.failed_at + AVOIDANCE * (1 << self.failures)
    }

    fn on_failed(&mut self, now: Instant) {
        self.failures = (self.failures + 1).min(MOST_FAILURES);
        self.failed_at = now;
    }
}

impl EarlyQueue {
    fn has_room(&mut self, now: Instant, limit: u32) -> bool {
        while self.reset.front().is_some_and(|&until| until <= now) {
            self.reset.pop_front();
        }
        u64::from(self.pending) + (self.reset.len() as u64) < u64::from(limit)
    }
}

impl<B: BufferFamily> Stack<B> {
    /// Gives the server's cookies a new key, and lets those of the present one be good until the next renewal.
    pub fn renew_fast_open_key(&mut self, now: Instant, key: [u8; 16]) {
        self.fast_open_keys(now).renew(now, key);
    }

    /// How many peers are remembered for fast open.
    pub fn fast_open_peers(&self) -> usize {
        self.fast_open.peers.known.len()
    }

    fn fast_open_keys(&mut self, now: Instant) -> &mut FastOpenKeys {
        let config = &self.config.fast_open;
        let rng = &mut *self.rng;
        let keys = self.fast_open.keys.get_or_insert_with(|| match config.key {
            Some(key) => FastOpenKeys::new(now, key, Duration::ZERO),
            None => FastOpenKeys::new(now, random_key(rng), config.key_lifetime),
        });
        if keys.wants_renewal(now) {
            keys.renew(now, random_key(rng));
        }
        keys
    }

    /// An active open is to use fast open, if nothing speaks against it.
    pub(crate) fn begin_fast_open(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        connection: &mut tcp::Connection,
    ) {
        if !self.config.fast_open.client {
            return;
        }
        let request = match self.fast_open.peers.known.get(&(tuple.local.ip(), tuple.remote.ip())) {
            Some(peer) if peer.is_avoided(now) => {
                self.stats.fast_open_avoided += 1;
                return;
            }
            Some(peer) if !peer.cookie.is_empty() => {
                FastOpen { cookie: peer.cookie.clone(), peer_mss: peer.mss, wait_for_data: true }
            }
            Some(_) | None => FastOpen::default(),
        };
        connection.use_fast_open(request);
    }

    /// The peer has answered a SYN of ours: what that tells of fast open to it.
    pub(crate) fn note_fast_open(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) {
        let Some(tcp) = self.sockets.get_index(index).and_then(|socket| socket.tcp()) else { return };
        let progress = tcp.connection.fast_open();
        if progress == FastOpenProgress::Unused || !tcp.connection.state().is_synchronised() {
            return;
        }
        let options = &segment.header.options;
        let given = options.fast_open.as_ref().filter(|cookie| cookie.len() >= 4);
        let Some(peer) = self.fast_open.peers.entry(tuple.local.ip(), tuple.remote.ip()) else { return };
        match progress {
            FastOpenProgress::Acknowledged => {
                peer.failures = 0;
                self.stats.fast_open_active += 1;
            }
            FastOpenProgress::Refused => {
                // RFC 7413 §4.1.3.2: this is a negative answer like a loss, unless a better cookie came with it.
                peer.on_failed(now);
                self.stats.fast_open_active_fail += 1;
            }
            FastOpenProgress::Abandoned if given.is_none() => {
                peer.on_failed(now);
                self.stats.fast_open_active_fail += 1;
            }
            FastOpenProgress::Abandoned
            | FastOpenProgress::Asked
            | FastOpenProgress::Sent
            | FastOpenProgress::Unused
            | FastOpenProgress::Taken
            | FastOpenProgress::Begun => {}
        }
        if let Some(cookie) = given {
            peer.cookie = cookie.clone();
            peer.mss = options.mss.unwrap_or(0);
            peer.failures = 0;
        }
    }

    /// An active open came to nothing. If nobody answered, fast open may be why (RFC 7413 §4.1.3.2).
    pub(crate) fn note_failed_fast_open(&mut self, now: Instant, index: u32) {
        let Some(tcp) = self.sockets.get_index(index).and_then(|socket| socket.tcp()) else { return };
        let unanswered = tcp.connection.error() == Some(tcp::Error::TimedOut);
        let tuple = tcp.tuple();
        if unanswered
            && tcp.connection.fast_open() == FastOpenProgress::Abandoned
            && let Some(peer) = self.fast_open.peers.entry(tuple.local.ip(), tuple.remote.ip())
        {
            peer.on_failed(now);
            self.stats.fast_open_active_fail += 1;
        }
    }

    /// What a listener does about a SYN's fast-open option; `true`: its data may be taken (RFC 7413 §4.2.2).
    pub(crate) fn answer_fast_open(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
        connection: &mut tcp::Connection,
    ) -> bool {
        let Some(shown) = &segment.header.options.fast_open else { return false };
        let most = u32::try_from(self.config.max_backlog).unwrap_or(u32::MAX);
        let Some(listener) = self.listener_mut(index) else { return false };
        let limit = listener.options.fast_open.min(most);
        if limit == 0 {
            return false;
        }
        let has_room = listener.early.has_room(now, limit);
        if !self.config.fast_open.server {
            return false;
        }
        if !has_room {
            self.stats.fast_open_overflow += 1;
            return false;
        }
        let (local, remote) = (tuple.local.ip(), tuple.remote.ip());
        let keys = self.fast_open_keys(now);
        let fresh = keys.cookie(local, remote);
        let verdict = keys.check(shown, local, remote);
        if verdict != CookieVerdict::Good {
            connection.give_cookie(fresh, segment.header.options.fast_open_experimental);
        }
        match verdict {
            CookieVerdict::Good | CookieVerdict::Old => true,
            CookieVerdict::Bad if shown.is_empty() => {
                self.stats.fast_open_cookies_asked += 1;
                false
            }
            CookieVerdict::Bad => {
                self.stats.fast_open_passive_fail += 1;
                false
            }
        }
    }

    /// A connection of a listener begins with the data of its SYN.
    pub(crate) fn begin_early(&mut self, listener: u32, child: u32, segment: &tcp::SegmentIn<'_>) {
        let key: Option<Key> = self.key_of(listener);
        if let Some(tcp) = self.sockets.get_index_mut(child).and_then(|socket| socket.tcp_mut()) {
            tcp.connection.take_syn_data(segment, &mut tcp.stream);
            tcp.early_of = key;
            self.stats.fast_open_passive += 1;
        }
        if let Some(listener) = self.listener_mut(listener) {
            listener.early.pending += 1;
        }
    }

    /// Its handshake is over, or it has come to nothing.
    pub(crate) fn end_early(&mut self, now: Instant, child: u32) {
        let Some(tcp) = self.sockets.get_index_mut(child).and_then(|socket| socket.tcp_mut()) else { return };
        let Some(listener) = tcp.early_of.take() else { return };
        let was_reset =
            tcp.connection.error() == Some(tcp::Error::Reset) && tcp.connection.state() == tcp::State::Closed;
        if let Some(listener) = self.sockets.get_mut(listener).and_then(|socket| socket.listener_mut()) {
            listener.early.pending -= 1;
            if was_reset {
                listener.early.reset.push_back(now + RESET_COUNTS);
            }
        }
    }
}
