//! Delivery rate: how fast data was delivered between two points of the flight (draft-ietf-ccwg-bbr §4.1).
//!
//! Each transmission remembers what had been delivered when it left, and when. Its acknowledgement then tells how much
//! was delivered over at least one round trip. Both the sending and the acknowledging side bound the rate, so that neither
//! compressed acknowledgements nor bursts are taken for bandwidth.

use base::{Duration, Instant};

use crate::segment::Position;
use crate::send::scoreboard::Record;

/// What a transmission remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendState {
    /// Delivered by then (P.delivered), as a position.
    pub(crate) delivered: Position,
    /// When that was delivered (P.delivered_time).
    pub(crate) delivered_at: Instant,
    /// When the first transmission of the present sample left (P.first_send_time).
    pub(crate) first_sent_at: Instant,
    /// In flight just after it left (P.tx_in_flight).
    pub(crate) in_flight: u32,
    /// Lost by then, modulo 2³² (P.lost).
    pub(crate) lost: u32,
    /// The application had no more to send (P.is_app_limited).
    pub(crate) app_limited: bool,
}

/// One measurement (RS).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSample {
    /// What had been delivered when the measured transmission left (RS.prior_delivered).
    pub(crate) prior_delivered: Position,
    /// Bytes delivered since (RS.delivered).
    pub(crate) delivered: u64,
    /// Bytes a second (RS.delivery_rate); 0: not known.
    pub(crate) rate: u64,
    /// Bytes lost between its leaving and its delivery (RS.lost).
    pub(crate) lost: u32,
    /// What was in flight when it left (RS.tx_in_flight).
    pub(crate) in_flight: u32,
    /// RS.is_app_limited.
    pub(crate) app_limited: bool,
}

impl RateSample {
    /// From the most recently sent record that an acknowledgement at `now` delivered. `delivered` is all that is delivered
    /// now, `lost` all that was ever lost.
    pub(crate) fn new(
        record: &Record,
        now: Instant,
        delivered: Position,
        lost: u32,
        min_rtt: Duration,
    ) -> Self {
        let sent = &record.sent;
        let send_elapsed = record.sent_at.saturating_since(sent.first_sent_at);
        let ack_elapsed = now.saturating_since(sent.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        let bytes = delivered.saturating_sub(sent.delivered);
        // An interval shorter than the shortest round trip is an artefact.
        let rate = if interval < min_rtt || interval == Duration::ZERO {
            0
        } else {
            (u128::from(bytes) * 1_000_000_000 / u128::from(interval.as_nanos())) as u64
        };
        Self {
            prior_delivered: sent.delivered,
            delivered: bytes,
            rate,
            lost: lost.wrapping_sub(sent.lost),
            in_flight: sent.in_flight,
            app_limited: sent.app_limited,
        }
    }
}
