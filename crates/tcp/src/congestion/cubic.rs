//! CUBIC (RFC 9438) with HyStart++ (RFC 9406), in integers: bytes and milliseconds.
//!
//! After a reduction the window follows `W(t) = C·(t − K)³ + W_max`: quickly back towards the window at which the loss
//! happened, slowly around it, quickly beyond. Where Reno would be faster, it does as Reno would.

use base::{Duration, Instant};

use super::hystart::{Growth, HyStart};
use super::reno::UNLIMITED;
use super::{AckSample, CongestionControl};

/// β = 0.7 (RFC 9438 §4.6).
const BETA: (u64, u64) = (7, 10);
/// C = 0.4 segments a second cubed (RFC 9438 §5).
const C: (u64, u64) = (4, 10);
/// α = 3·(1 − β)/(1 + β) = 9/17 (RFC 9438 §4.3).
const ALPHA: (u64, u64) = (9, 17);
/// The longest time that counts, so that its cube fits: an hour.
const MAX_TIME_MS: u64 = 3_600_000;

/// What a reduction changes, to be able to take it back.
#[derive(Clone, Debug)]
struct Core {
    window: u32,
    ssthresh: u32,
    /// W_max.
    max_window: u32,
    /// The window before the last reduction (cwnd_prior).
    prior_window: u32,
    /// W_est: what Reno would have.
    estimate: u32,
    /// When the congestion avoidance of now began, in milliseconds modulo 2³².
    epoch_ms: u32,
    /// K, in milliseconds.
    k_ms: u32,
    /// An epoch has begun.
    has_epoch: bool,
}

/// CUBIC's variables.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    core: Core,
    /// Only while a reduction may still be taken back.
    saved: Option<Box<Core>>,
    /// Remainders of divisions, so that small growth adds up.
    window_remainder: u32,
    estimate_remainder: u32,
    /// When an acknowledgement last came, in milliseconds modulo 2³².
    acked_ms: u32,
    /// Only in slow start, while the window limits the flight.
    start: Option<Box<HyStart>>,
}

impl Cubic {
    pub(crate) const fn new(initial_window: u32) -> Self {
        Self::restored(initial_window, UNLIMITED)
    }

    pub(crate) const fn restored(window: u32, ssthresh: u32) -> Self {
        let core = Core {
            window,
            ssthresh,
            max_window: 0,
            prior_window: 0,
            estimate: 0,
            epoch_ms: 0,
            k_ms: 0,
            has_epoch: false,
        };
        Self { core, saved: None, window_remainder: 0, estimate_remainder: 0, acked_ms: 0, start: None }
    }

    fn begin_epoch(&mut self, now_ms: u32, mss: u32) {
        let core = &mut self.core;
        core.has_epoch = true;
        core.epoch_ms = now_ms;
        core.estimate = core.window;
        self.window_remainder = 0;
        self.estimate_remainder = 0;
        if core.window >= core.max_window {
            // RFC 9438 §4.2: beyond the old maximum, the search starts here.
            core.max_window = core.window;
            core.k_ms = 0;
            return;
        }
        // K = ∛((W_max − cwnd_epoch)/C), windows in segments, K in seconds.
        let missing = u128::from(core.max_window - core.window);
        let cubed = missing * 1_000_000_000 * u128::from(C.1) / (u128::from(mss) * u128::from(C.0));
        core.k_ms = cube_root(cubed) as u32;
    }

    /// W_cubic at `elapsed_ms` after the epoch began, in bytes.
    fn curve(&self, elapsed_ms: u64, mss: u32) -> u64 {
        let k = u64::from(self.core.k_ms);
        let distance = elapsed_ms.min(MAX_TIME_MS).abs_diff(k);
        let cube = u128::from(distance).pow(3);
        let change = (cube * u128::from(mss) * u128::from(C.0) / (1_000_000_000 * u128::from(C.1))) as u64;
        let max_window = u64::from(self.core.max_window);
        if elapsed_ms >= k { max_window + change } else { max_window.saturating_sub(change) }
    }

    fn avoid_congestion(&mut self, ack: &AckSample, delivered: u32, now_ms: u32) {
        if !self.core.has_epoch {
            self.begin_epoch(now_ms, ack.mss);
        }
        let window = u64::from(self.core.window);
        let elapsed = u64::from(now_ms.wrapping_sub(self.core.epoch_ms));
        self.grow_estimate(delivered, ack.mss);
        if self.curve(elapsed, ack.mss) < u64::from(self.core.estimate) {
            // RFC 9438 §4.3: the Reno-friendly region.
            self.core.window = self.core.window.max(self.core.estimate);
            return;
        }
        // §4.4 and §4.5: towards the window of one round trip ahead, at most half more than now.
        let target = self.curve(elapsed + ack.srtt.as_millis(), ack.mss).clamp(window, window + window / 2);
        let growth = (target - window) * u64::from(delivered) + u64::from(self.window_remainder);
        self.core.window = self.core.window.saturating_add((growth / window) as u32);
        self.window_remainder = (growth % window) as u32;
    }

    /// §4.3: W_est grows by α segments for each window acknowledged, by one once it has reached the window of before.
    fn grow_estimate(&mut self, delivered: u32, mss: u32) {
        let window = u64::from(self.core.window);
        let alpha = if self.core.estimate >= self.core.prior_window { (1, 1) } else { ALPHA };
        let growth =
            u64::from(delivered) * u64::from(mss) * alpha.0 / alpha.1 + u64::from(self.estimate_remainder);
        self.core.estimate = self.core.estimate.saturating_add((growth / window) as u32);
        self.estimate_remainder = (growth % window) as u32;
    }

    /// §4.6 and §4.7: the reduction, with fast convergence.
    fn reduce(&mut self, flight: u32, mss: u32) {
        let core = &mut self.core;
        core.prior_window = core.window;
        core.max_window = if core.window < core.max_window {
            // Another flow has come: leave it room.
            (u64::from(core.window) * (BETA.1 + BETA.0) / (2 * BETA.1)) as u32
        } else {
            core.window
        };
        core.ssthresh = ((u64::from(flight) * BETA.0 / BETA.1) as u32).max(2 * mss);
        core.has_epoch = false;
        self.start = None;
    }
}

impl CongestionControl for Cubic {
    #[inline]
    fn window(&self) -> u32 {
        self.core.window
    }

    fn ssthresh(&self) -> u32 {
        self.core.ssthresh
    }

    #[inline]
    fn uses_prr(&self) -> bool {
        true
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let now_ms = ack.now.as_millis() as u32;
        let since = now_ms.wrapping_sub(self.acked_ms);
        self.acked_ms = now_ms;
        if !ack.window_limited {
            // §5.8: time in which the application did not use the window does not count.
            self.core.epoch_ms = self.core.epoch_ms.wrapping_add(since);
            return;
        }
        let mut delivered = ack.delivered;
        if self.core.window < self.core.ssthresh {
            match self.start.get_or_insert_with(|| Box::new(HyStart::new())).on_ack(ack) {
                Growth::Leave => {
                    self.core.ssthresh = self.core.window;
                    self.start = None;
                }
                Growth::By(bytes) => {
                    let growth = bytes.min(self.core.ssthresh - self.core.window);
                    self.core.window = self.core.window.saturating_add(growth);
                    delivered = if self.core.window < self.core.ssthresh { 0 } else { bytes - growth };
                }
            }
        }
        if delivered > 0 && self.core.window >= self.core.ssthresh {
            self.avoid_congestion(ack, delivered, now_ms);
        }
    }

    fn on_loss_found(&mut self, _now: Instant, flight: u32, mss: u32) {
        self.reduce(flight, mss);
    }

    fn on_timeout(&mut self, _now: Instant, flight: u32, mss: u32, first: bool) {
        if first {
            self.reduce(flight, mss);
        }
        self.core.window = mss;
        self.core.has_epoch = false;
        self.start = None;
    }

    fn on_recovered(&mut self, _now: Instant, _flight: u32, _mss: u32) {
        self.core.window = self.core.ssthresh;
    }

    fn save(&mut self) {
        self.saved = Some(Box::new(self.core.clone()));
    }

    fn forget(&mut self) {
        self.saved = None;
    }

    fn on_flight_end(&mut self) {
        self.start = None;
    }

    fn on_undo(&mut self, _now: Instant) {
        if let Some(saved) = self.saved.take() {
            let window = self.core.window.max(saved.window);
            self.core = Core { window, ..*saved };
        }
    }

    fn on_idle(&mut self, idle: Duration, rto: Duration, restart_window: u32) {
        self.core.ssthresh = self.core.ssthresh.max(self.core.window / 4 * 3);
        let mut left = idle.saturating_sub(rto);
        while left > Duration::ZERO && self.core.window > restart_window {
            self.core.window = (self.core.window / 2).max(restart_window);
            left = left.saturating_sub(rto);
        }
        self.core.has_epoch = false;
        self.start = None;
    }
}

/// The largest integer whose cube is not above `value`.
fn cube_root(value: u128) -> u64 {
    let (mut low, mut high) = (0u64, 1 << 24); // 2^24 ms are more than four hours
    while low + 1 < high {
        let middle = u64::midpoint(low, high);
        if u128::from(middle).pow(3) <= value {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const RTT: u64 = 100;

    fn ack(now_ms: u64, delivered: u32) -> AckSample {
        AckSample {
            now: Instant::from_millis(now_ms),
            delivered,
            window_limited: true,
            mss: MSS,
            una: 0,
            nxt: 0,
            rtt: Duration::from_millis(RTT),
            srtt: Duration::from_millis(RTT),
            in_flight: 0,
            rate: None,
        }
    }

    /// A window of 1000 segments is reduced; then it is acknowledged once each round trip.
    fn after_loss(rounds: u64) -> (Cubic, Vec<u32>) {
        let mut cubic = Cubic::restored(1_000_000, 1_000_000);
        cubic.on_loss_found(Instant::ZERO, 1_000_000, MSS);
        cubic.on_recovered(Instant::ZERO, 700_000, MSS);
        let mut windows = vec![cubic.window()];
        for round in 0..rounds {
            let each = cubic.window() / 100;
            for i in 0..100 {
                cubic.on_ack(&ack(1_000_000 + round * RTT + i, each));
            }
            windows.push(cubic.window());
        }
        (cubic, windows)
    }

    #[test]
    fn returns_to_the_old_window_after_k() {
        // K = ∛(300/0.4) = 9.085 s: 91 round trips of 100 ms.
        let (cubic, windows) = after_loss(91);
        assert_eq!(cubic.core.k_ms, 9085);
        assert_eq!(windows[0], 700_000);
        let last = windows[91];
        assert!((985_000..1_015_000).contains(&last), "{last}");
        // Concave: the first half brings the most.
        assert!(windows[45] - windows[0] > 3 * (windows[90] - windows[46]));
    }

    #[test]
    fn probes_faster_and_faster_beyond_it() {
        let (_, windows) = after_loss(200);
        assert!(windows[200] - windows[150] > 2 * (windows[150] - windows[100]));
    }

    #[test]
    fn is_no_slower_than_reno_on_a_short_path() {
        // At 10 segments and a short round trip the cubic curve is flat; Reno's line decides.
        let mut cubic = Cubic::restored(10_000, 10_000);
        cubic.on_loss_found(Instant::ZERO, 10_000, MSS);
        cubic.on_recovered(Instant::ZERO, 7000, MSS);
        for i in 0..100 {
            cubic.on_ack(&ack(1000 + i / 10, MSS));
        }
        assert!(cubic.window() > 11_000, "{}", cubic.window());
    }

    #[test]
    fn the_estimate_of_reno_grows_by_alpha_and_by_one_once_it_is_back() {
        // RFC 9438 §4.3: nine seventeenths of a segment a window until cwnd_prior is reached, then one.
        let mut cubic = Cubic::restored(40_000, 40_000);
        cubic.on_loss_found(Instant::ZERO, 40_000, MSS);
        cubic.on_recovered(Instant::ZERO, 28_000, MSS);
        cubic.begin_epoch(0, MSS);
        let before = cubic.core.estimate;
        for _ in 0..17 {
            cubic.grow_estimate(cubic.core.window, MSS);
        }
        let grown = cubic.core.estimate - before;
        assert!((9 * MSS - 1..=9 * MSS).contains(&grown), "{grown}");
        cubic.core.estimate = cubic.core.prior_window;
        cubic.grow_estimate(cubic.core.window, MSS);
        assert_eq!(cubic.core.estimate, 41_000);
    }

    #[test]
    fn a_second_loss_below_the_first_converges_fast() {
        let mut cubic = Cubic::restored(1_000_000, 1_000_000);
        cubic.on_loss_found(Instant::ZERO, 1_000_000, MSS);
        cubic.on_recovered(Instant::ZERO, 700_000, MSS);
        cubic.on_loss_found(Instant::ZERO, 700_000, MSS);
        assert_eq!(cubic.core.max_window, 595_000);
    }

    #[test]
    fn undo_brings_everything_back() {
        let (mut cubic, _) = after_loss(50);
        let before = format!("{:?}", cubic.core);
        cubic.save();
        cubic.on_timeout(Instant::ZERO, 500_000, MSS, true);
        assert_eq!(cubic.window(), MSS);
        cubic.on_undo(Instant::ZERO);
        assert_eq!(format!("{:?}", cubic.core), before);
    }

    #[test]
    fn cube_roots() {
        assert_eq!(cube_root(0), 0);
        assert_eq!(cube_root(26), 2);
        assert_eq!(cube_root(27), 3);
        assert_eq!(cube_root(750_000_000_000), 9085);
    }
}
