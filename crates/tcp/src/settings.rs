//! A connection's own compact copy of its configuration, and what the handshake negotiated.

use base::Duration;

use crate::config::{Config, Keepalive, MtuProbing};
use crate::recovery::rtt::RtoBounds;

/// The unit of RFC 5482's option is a minute instead of a second.
const IN_MINUTES: u16 = 1 << 15;
/// The bounds of what a peer can ask for (RFC 5482 §3.1, `L_LIMIT` and `U_LIMIT`): no less than RFC 1122 §4.2.3.5's R2.
const SHORTEST_USER_TIMEOUT: Duration = Duration::from_secs(100);
const LONGEST_USER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Times in milliseconds or microseconds as four bytes each.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rto_initial_ms: u32,
    pub(crate) rto_min_ms: u32,
    pub(crate) rto_max_ms: u32,
    pub(crate) delayed_ack_us: u32,
    pub(crate) granularity_us: u32,
    pub(crate) fin_wait_2_ms: u32,
    pub(crate) time_wait_ms: u32,
    /// 0: none.
    pub(crate) user_timeout_ms: u32,
    /// 0: no keepalive.
    pub(crate) keepalive_idle_s: u16,
    pub(crate) keepalive_interval_s: u16,
    /// What is added to the clock for our timestamps.
    pub(crate) timestamp_offset: u32,
    pub(crate) announced_mss: u16,
    pub(crate) keepalive_count: u8,
    pub(crate) syn_retries: u8,
    pub(crate) retries: u8,
    pub(crate) initial_congestion_window: u8,
    /// Timestamps are offered, and after the handshake: are in use.
    pub(crate) timestamps: bool,
    /// Window scaling is offered, then in use.
    pub(crate) window_scaling: bool,
    /// Selective acknowledgements are offered, then in use.
    pub(crate) sack: bool,
    /// Explicit congestion notification is offered, then in use.
    pub(crate) ecn: bool,
    /// Windows are spread over the round trip.
    pub(crate) pacing: bool,
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    /// The owner wants every acknowledgement at once (`TCP_QUICKACK`).
    pub(crate) quickack: bool,
    /// The user timeout is told in our SYN, and the peer's is heeded.
    pub(crate) user_timeout_option: bool,
    pub(crate) mtu_probing: MtuProbing,
}

fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

impl Settings {
    pub(crate) fn new(config: &Config, timestamp_offset: u32) -> Self {
        let mut settings = Self {
            rto_initial_ms: millis(config.rto_initial),
            rto_min_ms: millis(config.rto_min),
            rto_max_ms: millis(config.rto_max),
            delayed_ack_us: micros(config.delayed_ack),
            granularity_us: micros(config.clock_granularity),
            fin_wait_2_ms: millis(config.fin_wait_2),
            time_wait_ms: millis(config.time_wait),
            user_timeout_ms: 0,
            keepalive_idle_s: 0,
            keepalive_interval_s: 0,
            timestamp_offset,
            announced_mss: config.announced_mss,
            keepalive_count: 0,
            syn_retries: config.syn_retries,
            retries: config.retries,
            initial_congestion_window: config.initial_congestion_window.max(1),
            timestamps: config.timestamps,
            window_scaling: config.window_scaling,
            sack: config.selective_acks,
            ecn: config.ecn,
            pacing: config.pacing,
            nodelay: config.nodelay,
            cork: config.cork,
            quickack: config.quickack,
            user_timeout_option: config.user_timeout_option,
            mtu_probing: config.mtu_probing,
        };
        settings.set_keepalive(config.keepalive);
        settings.set_user_timeout(config.user_timeout);
        settings
    }

    pub(crate) fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        let seconds =
            |span: Duration| u16::try_from(span.as_millis().div_ceil(1000)).unwrap_or(u16::MAX).max(1);
        match keepalive {
            Some(keepalive) => {
                self.keepalive_idle_s = seconds(keepalive.idle);
                self.keepalive_interval_s = seconds(keepalive.interval);
                self.keepalive_count = keepalive.count.max(1);
            }
            None => self.keepalive_idle_s = 0,
        }
    }

    pub(crate) fn keepalive(&self) -> Option<Keepalive> {
        (self.keepalive_idle_s > 0).then(|| Keepalive {
            idle: Duration::from_secs(self.keepalive_idle_s.into()),
            interval: Duration::from_secs(self.keepalive_interval_s.into()),
            count: self.keepalive_count,
        })
    }

    pub(crate) fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.user_timeout_ms = timeout.map_or(0, |timeout| millis(timeout).max(1));
    }

    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        (self.user_timeout_ms > 0).then(|| Duration::from_millis(self.user_timeout_ms.into()))
    }

    /// What our SYN tells of it: the granularity bit, then seconds or minutes (RFC 5482 §3).
    pub(crate) fn advertised_user_timeout(&self) -> Option<u16> {
        let seconds = self.user_timeout_ms.div_ceil(1000);
        let told = match u16::try_from(seconds) {
            Ok(seconds) if seconds < IN_MINUTES => seconds,
            _ => IN_MINUTES | seconds.div_ceil(60) as u16,
        };
        (self.user_timeout_option && seconds > 0).then_some(told)
    }

    /// The peer's SYN tells of its user timeout: ours, if the owner has not chosen one (RFC 5482 §3.1, `CHANGEABLE`).
    // Deviation from RFC 5482 §3: the option is sent and heeded in SYNs only; a timeout that is changed later is not told.
    pub(crate) fn heed_user_timeout(&mut self, told: u16) {
        if self.user_timeout_ms > 0 || !core::mem::take(&mut self.user_timeout_option) {
            return;
        }
        let unit = if told & IN_MINUTES == 0 { 1 } else { 60 };
        let remote = Duration::from_secs(u64::from(told & !IN_MINUTES) * unit);
        self.set_user_timeout(Some(remote.clamp(SHORTEST_USER_TIMEOUT, LONGEST_USER_TIMEOUT)));
    }

    #[inline]
    pub(crate) fn granularity(&self) -> Duration {
        Duration::from_micros(self.granularity_us.into())
    }

    #[inline]
    pub(crate) fn rto_bounds(&self) -> RtoBounds {
        RtoBounds {
            initial: Duration::from_millis(self.rto_initial_ms.into()),
            min: Duration::from_millis(self.rto_min_ms.into()),
            max: Duration::from_millis(self.rto_max_ms.into()),
            granularity: self.granularity(),
        }
    }
}
