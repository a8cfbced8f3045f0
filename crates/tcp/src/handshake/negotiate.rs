//! What the two SYNs agree on: MSS, window scale, timestamps, selective acknowledgement, ECN.

use base::Instant;
use wire::tcp::{Options, Timestamps};

use crate::connection::Connection;
use crate::input::acceptable::seconds;
use crate::segment::SegmentIn;
use crate::state::State;
use crate::timer::Stamp;

/// The smallest MSS believed, options included: a peer cannot make us send a byte a segment. As in Linux.
pub(crate) const MIN_MSS: u16 = 48;
/// The peer's MSS if it announces none (RFC 9293 §3.7.1).
const DEFAULT_MSS_V4: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1220;
/// The largest shift (RFC 7323 §2.3).
pub(crate) const MAX_WINDOW_SCALE: u8 = 14;

/// The smallest shift with which `limit` fits the window field.
pub(crate) fn window_scale_for(limit: u32) -> u8 {
    let mut scale = 0;
    while scale < MAX_WINDOW_SCALE && (limit >> scale) > u32::from(u16::MAX) {
        scale += 1;
    }
    scale
}

impl Connection {
    /// Takes the peer's SYN (with or without an acknowledgement): its sequence number, window and options.
    pub(crate) fn on_peer_syn(&mut self, now: Instant, syn: &SegmentIn<'_>) {
        let options = &syn.header.options;
        self.recv.irs = syn.header.seq;
        self.recv.nxt = 1;
        self.recv.last_ack_sent = 1;
        self.heard_at = Stamp::at(now);
        let default = if self.ends.is_ipv4() { DEFAULT_MSS_V4 } else { DEFAULT_MSS_V6 };
        let told = options.mss.filter(|mss| *mss > 0).unwrap_or(default);
        // Who takes no more sends no more either: the link's size, or `TCP_MAXSEG` (Linux: `tcp_mss_clamp`).
        self.send.peer_mss = told.min(self.settings.announced_mss).max(MIN_MSS);
        self.settings.sack &= options.sack_permitted;
        // RFC 7323 §2.2: both sides must send the option; a shift over 14 is taken as 14.
        self.settings.window_scaling &= options.window_scale.is_some();
        if self.settings.window_scaling {
            self.send.scale = options.window_scale.unwrap_or(0).min(MAX_WINDOW_SCALE);
        } else {
            self.send.scale = 0;
            self.recv.scale = 0;
            self.recv.max_limit = self.recv.max_limit.min(u32::from(u16::MAX));
            self.recv.limit = self.recv.limit.min(self.recv.max_limit);
        }
        self.settings.timestamps &= options.timestamps.is_some();
        if let (true, Some(stamps)) = (self.settings.timestamps, options.timestamps) {
            self.recv.ts_recent = stamps.value;
            self.recv.ts_recent_s = seconds(now);
        }
        if let Some(told) = options.user_timeout {
            self.settings.heed_user_timeout(told);
        }
        self.negotiate_ecn(syn);
        self.on_mss_changed();
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        self.send.window = u32::from(syn.header.window);
        self.send.max_window = self.send.window;
        self.send.window_seq = 0;
        if self.state == State::SynSent {
            // Our SYN offered this much.
            self.recv.right_edge = 1 + u64::from(self.syn_window());
        }
    }

    /// The window field of a SYN: not scaled, but a value that can be said with scaling as well, so that the first
    /// segment behind it does not take anything back (RFC 7323 §2.4). What came with the peer's SYN takes its room.
    pub(crate) fn syn_window(&self) -> u16 {
        let taken = self.recv.nxt.saturating_sub(self.recv.consumed);
        let room = u64::from(self.recv.room()).saturating_sub(taken);
        let window = u16::try_from(room).unwrap_or(u16::MAX);
        let granule = if self.settings.window_scaling { 1 << self.recv.scale } else { 1 };
        if window > granule { window - window % granule } else { window }
    }

    /// The options of our SYN or SYN-ACK. A SYN-ACK carries only what the SYN carried.
    pub(crate) fn syn_options(&self, now: Instant) -> Options {
        Options {
            mss: Some(self.settings.announced_mss),
            window_scale: self.settings.window_scaling.then_some(self.recv.scale),
            sack_permitted: self.settings.sack,
            timestamps: self
                .settings
                .timestamps
                .then(|| Timestamps { value: self.timestamp(now), echo: self.recv.ts_recent }),
            user_timeout: self.settings.advertised_user_timeout(),
            fast_open: self.opening.as_ref().and_then(|opening| opening.cookie.clone()),
            fast_open_experimental: self.opening.as_ref().is_some_and(|opening| opening.experimental),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_smallest_that_fits() {
        assert_eq!(window_scale_for(65_535), 0);
        assert_eq!(window_scale_for(65_536), 1);
        assert_eq!(window_scale_for(6 << 20), 7);
        assert_eq!(window_scale_for(u32::MAX), 14);
    }
}
