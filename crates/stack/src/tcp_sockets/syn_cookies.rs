//! SYN cookies: when too many connections are half-open, a SYN-ACK goes out and nothing is remembered of it.
//!
//! As on Linux a listener looks for cookies only while one of its own can still be answered.

use base::Instant;
use wire::tcp::Flags;

use super::Glance;
use crate::buffers::BufferFamily;
use crate::flow::FourTuple;
use crate::socket::Stage;
use crate::stack::Stack;

impl<B: BufferFamily> Stack<B> {
    /// Answers a SYN and forgets it.
    pub(crate) fn answer_with_cookie(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) {
        let Some(config) = self.cookie_config(now, index, tuple) else {
            self.stats.drop_no_route += 1;
            return;
        };
        let answer = self.syn_cookies.answer(now, &config, self.cookie_ends(tuple), segment);
        if let Some(listener) = self.listener_mut(index) {
            listener.cookies_until = now + tcp::COOKIE_LIFETIME;
        }
        self.stats.syn_cookies_sent += 1;
        self.send_bare_segment(now, tuple, &answer);
    }

    /// A segment for a listener that acknowledges something. Whether it acknowledged a cookie, so that nothing more is
    /// to be done about it.
    pub(crate) fn open_by_cookie(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) -> bool {
        let flags = segment.header.flags;
        let Some(listener) = self.listener_mut(index) else { return false };
        if flags & (Flags::SYN | Flags::RST | Flags::ACK) != Flags::ACK || now >= listener.cookies_until {
            return false;
        }
        let full = listener.accept_is_full() || !self.has_socket_room();
        let Some(mut config) = self.cookie_config(now, index, tuple) else { return false };
        config.remembered = self.remembered(now, tuple.remote.ip());
        let ends = self.cookie_ends(tuple);
        let Some(connection) = self.syn_cookies.open(now, &config, ends, segment) else {
            self.stats.syn_cookies_failed += 1;
            return false;
        };
        if full {
            // The client believes that it is connected; it will say so again with its data.
            self.stats.drop_accept_overflow += 1;
            return true;
        }
        self.stats.syn_cookies_received += 1;
        self.stats.tcp_established += 1;
        let before = Glance::at(&connection);
        let Some(child) = self.insert_child(now, index, connection, Stage::Queued) else { return true };
        if let Some(tcp) = self.sockets.get_index_mut(child).and_then(|socket| socket.tcp_mut()) {
            let verdict = tcp.connection.handle_segment(now, segment, &mut tcp.stream);
            self.stats.verdicts.add(verdict);
        }
        self.settle(now, child, before);
        true
    }

    fn cookie_config(&self, now: Instant, index: u32, tuple: &FourTuple) -> Option<tcp::Config> {
        let options = match &self.sockets.get_index(index)?.kind {
            crate::socket::Kind::Listener(listener) => &listener.options,
            _ => return None,
        };
        let (link_mtu, path_mtu) = self.mtus_to(now, tuple.local.ip(), tuple.remote.ip()).ok()?;
        Some(self.tcp_config(link_mtu, path_mtu, options))
    }

    fn cookie_ends(&self, tuple: &FourTuple) -> tcp::CookieEnds {
        let FourTuple { local, remote } = *tuple;
        tcp::CookieEnds { local, remote, timestamp_offset: self.isn.timestamp_offset(local, remote) }
    }
}
