//! How the connections of a load fare while it runs: samples of each one's TCP state, seen from outside.
//!
//! The kernel's sockets, those of the subject and those of the peer, are read by `sock_diag` in their namespaces
//! ([`kernel`]), the FEP's by its control socket. So nothing is added to the programs that are measured. A stack in the
//! application's own process cannot be seen from outside; there only the peer's end is. What a connection did between the
//! last sample and its end is not seen either: connections that live shorter than [`PERIOD`] are seen by chance.
//!
//! [`Watch`] samples while a part of a trial runs; what comes out is a [`Trace`] for each end of each connection.

mod kernel;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use fep::control::{Client, ConnectionStatus, TcpStatus};
use serde::{Deserialize, Serialize};

use crate::ends;
use crate::site::{Site, Subject};

/// Between two samples.
const PERIOD: Duration = Duration::from_millis(100);
/// Ends of connections that are followed in one part of a trial.
const MAX_TRACES: usize = 64;
/// Samples kept of each. When there are more, every second one goes and the others are taken half as often.
const MAX_SAMPLES: usize = 64;
/// Ports of connections that carry no load: of the native ends and of FTP.
const CONTROL_PORTS: [&str; 2] = [":7700", ":2121"];
const _: () = assert!(ends::PORT == 7700);

/// One end of a connection over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Whose: `subject` or `peer`.
    pub end: String,
    /// This end's address.
    pub local: String,
    /// The other end's.
    pub remote: String,
    /// The congestion control.
    pub congestion_control: String,
    /// How long each reason kept this end from sending more, between the first and the last sample. The kernel does not
    /// tell congestion window, pacing and recovery apart: there all of it is `congestion_window`.
    pub limited_by_seconds: BTreeMap<String, f64>,
    /// The samples, in order.
    pub samples: Vec<Sample>,
}

/// An end's state at one moment. What an end does not tell is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it, with their units")]
pub struct Sample {
    /// Since the part began.
    pub seconds: f64,
    pub congestion_window_bytes: u64,
    pub peer_window_bytes: u64,
    pub unacknowledged_bytes: u64,
    pub round_trip_us: u32,
    pub round_trip_variation_us: u32,
    pub delivery_rate_bytes_per_second: u64,
    pub retransmitted_segments: u32,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// One end as it was found.
struct Found {
    local: String,
    remote: String,
    congestion_control: String,
    sample: Sample,
    /// How long each reason has limited it so far. Without the application, where its age is not known.
    limited_by: BTreeMap<String, f64>,
    /// Whether that adds up to its age.
    ages: bool,
    /// What is in flight is all that the application had to send. The kernel counts the time until it is acknowledged as busy.
    is_idle: bool,
}

/// A trace in the making.
struct Growing {
    trace: Trace,
    /// When it was first seen, and what limited it until it was last seen.
    first: f64,
    last: BTreeMap<String, f64>,
    /// One in so many moments is kept; how many have passed.
    every: u32,
    passed: u32,
}

/// Watches the connections of a site.
pub(crate) struct Watch<'a> {
    site: &'a Site,
    began: Instant,
    next: Instant,
    traces: BTreeMap<(&'static str, String, String), Growing>,
}

impl<'a> Watch<'a> {
    /// From now on.
    pub(crate) fn new(site: &'a Site) -> Self {
        let now = Instant::now();
        Self { site, began: now, next: now, traces: BTreeMap::new() }
    }

    /// What was so far counts for nothing.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.site);
    }

    /// To be called often; takes a sample when one is due.
    pub(crate) fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + PERIOD;
        let seconds = (now - self.began).as_secs_f64();
        let site = self.site;
        let subject = match (site.subject(), &site.fep) {
            (Subject::Kernel, _) => kernel::sockets(site.host())?,
            (_, Some(fep)) => of_fep(&Client::connect(fep.socket())?.connection_page(0)?.connections),
            (_, None) => Vec::new(),
        };
        for one in subject {
            self.take("subject", seconds, one);
        }
        for one in kernel::sockets(site.peer())? {
            self.take("peer", seconds, one);
        }
        Ok(())
    }

    fn take(&mut self, end: &'static str, seconds: f64, found: Found) {
        if CONTROL_PORTS.iter().any(|port| found.local.ends_with(port) || found.remote.ends_with(port)) {
            return;
        }
        let key = (end, found.local.clone(), found.remote.clone());
        if self.traces.len() >= MAX_TRACES && !self.traces.contains_key(&key) {
            return;
        }
        let growing = self.traces.entry(key).or_insert_with(|| Growing::new(end, seconds, &found));
        growing.take(seconds, found);
    }

    /// The ends that were seen at least twice.
    pub(crate) fn into_traces(self) -> Vec<Trace> {
        let traces = self.traces.into_values().map(|growing| growing.trace);
        traces.filter(|trace| trace.samples.len() > 1).collect()
    }
}

impl Growing {
    fn new(end: &str, seconds: f64, found: &Found) -> Self {
        let trace = Trace {
            end: end.to_owned(),
            local: found.local.clone(),
            remote: found.remote.clone(),
            congestion_control: found.congestion_control.clone(),
            ..Trace::default()
        };
        Self { trace, first: seconds, last: found.limited_by.clone(), every: 1, passed: 0 }
    }

    fn take(&mut self, seconds: f64, found: Found) {
        let limited_by = &mut self.trace.limited_by_seconds;
        for (name, time) in &found.limited_by {
            let since = (time - self.last.get(name).copied().unwrap_or_default()).max(0.0);
            let counts = name != "congestion_window" || !found.is_idle;
            *limited_by.entry(name.clone()).or_default() += if counts { since } else { 0.0 };
        }
        if !found.ages {
            limited_by.remove("application");
            let busy: f64 = limited_by.values().sum();
            limited_by.insert("application".to_owned(), (seconds - self.first - busy).max(0.0));
        }
        self.last = found.limited_by;
        self.passed += 1;
        if !(self.passed - 1).is_multiple_of(self.every) {
            return;
        }
        self.trace.samples.push(Sample { seconds, ..found.sample });
        if self.trace.samples.len() >= MAX_SAMPLES {
            let mut number = 0;
            self.trace.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every = self.every.saturating_mul(2);
        }
    }
}

/// The connections of a FEP that carry something.
fn of_fep(connections: &[ConnectionStatus]) -> Vec<Found> {
    connections.iter().filter_map(|one| Some(found(one, one.tcp.as_ref()?))).collect()
}

fn found(one: &ConnectionStatus, tcp: &TcpStatus) -> Found {
    Found {
        local: one.local.clone(),
        remote: one.remote.clone(),
        congestion_control: tcp.congestion_control.clone(),
        sample: Sample {
            seconds: 0.0,
            congestion_window_bytes: tcp.snd_cwnd_bytes.into(),
            peer_window_bytes: tcp.snd_wnd_bytes.into(),
            unacknowledged_bytes: one.send_queue,
            round_trip_us: tcp.rtt_us,
            round_trip_variation_us: tcp.rttvar_us,
            delivery_rate_bytes_per_second: tcp.delivery_rate_bytes_per_second,
            retransmitted_segments: tcp.total_retrans_segments,
            bytes_sent: tcp.bytes_sent,
            bytes_received: tcp.bytes_received,
        },
        limited_by: tcp.limited_by_ns.iter().map(|(name, ns)| (name.clone(), *ns as f64 / 1e9)).collect(),
        ages: true,
        is_idle: false,
    }
}

/// The end that sent most of the bytes, and the shares of the reasons that held it back, the largest first. `None` where no
/// end that sent was seen twice.
pub(crate) fn held_back<'a>(
    traces: impl Iterator<Item = &'a Trace>,
) -> Option<(&'a str, Vec<(String, f64)>)> {
    let mut ends: BTreeMap<&str, (u64, BTreeMap<String, f64>)> = BTreeMap::new();
    for trace in traces {
        let (sent, reasons) = ends.entry(&trace.end).or_default();
        let (Some(first), Some(last)) = (trace.samples.first(), trace.samples.last()) else { continue };
        *sent += last.bytes_sent.saturating_sub(first.bytes_sent);
        for (name, seconds) in &trace.limited_by_seconds {
            *reasons.entry(name.clone()).or_default() += seconds;
        }
    }
    let (end, (_, reasons)) =
        ends.into_iter().filter(|(_, (sent, _))| *sent > 0).max_by_key(|(_, (sent, _))| *sent)?;
    let total: f64 = reasons.values().sum();
    let mut shares: Vec<(String, f64)> = reasons
        .into_iter()
        .map(|(name, seconds)| (name, seconds / total))
        .filter(|(_, share)| *share > 0.0)
        .collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    (total > 0.0).then_some((end, shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sent: u64, congestion: f64) -> Found {
        Found {
            local: "10.77.0.2:5000".to_owned(),
            remote: "10.77.0.1:6000".to_owned(),
            congestion_control: "bbr".to_owned(),
            sample: Sample { bytes_sent: sent, ..Sample::default() },
            limited_by: BTreeMap::from([("congestion_window".to_owned(), congestion)]),
            ages: false,
            is_idle: false,
        }
    }

    #[test]
    fn who_waits_for_an_answer_is_not_held_back_by_a_window() {
        let mut growing = Growing::new("subject", 1.0, &found(0, 0.5));
        for second in 1..=5 {
            let busy = found(9, f64::from(second));
            growing.take(f64::from(second), Found { is_idle: true, ..busy });
        }
        let (_, shares) = held_back([growing.trace].iter()).unwrap_or_default();
        assert!(shares.is_empty(), "it sent nothing while it was watched: {shares:?}");
        let mut growing = Growing::new("subject", 1.0, &found(0, 0.5));
        growing.take(1.0, found(0, 0.5));
        growing.take(3.0, Found { is_idle: true, ..found(9, 2.5) });
        growing.take(5.0, found(18, 4.5));
        let traces = [growing.trace];
        let (_, shares) = held_back(traces.iter()).unwrap();
        assert_eq!(shares, [("application".to_owned(), 0.5), ("congestion_window".to_owned(), 0.5)]);
    }

    #[test]
    fn what_is_neither_the_windows_nor_the_buffers_is_the_applications_fault() {
        let mut growing = Growing::new("subject", 1.0, &found(0, 0.5));
        growing.take(1.0, found(0, 0.5));
        growing.take(5.0, found(9, 3.5));
        let traces = [growing.trace, Trace { end: "peer".to_owned(), ..Trace::default() }];
        let (end, shares) = held_back(traces.iter()).unwrap();
        assert_eq!(end, "subject");
        assert_eq!(shares, [("congestion_window".to_owned(), 0.75), ("application".to_owned(), 0.25)]);
    }

    #[test]
    fn a_long_run_keeps_few_samples_spread_over_all_of_it() {
        let mut growing = Growing::new("peer", 0.0, &found(0, 0.0));
        for number in 0..10_000 {
            growing.take(f64::from(number), found(0, 0.0));
        }
        let samples = &growing.trace.samples;
        assert!(samples.len() < MAX_SAMPLES && samples.len() >= MAX_SAMPLES / 4);
        assert!(samples[0].seconds == 0.0 && samples[samples.len() - 1].seconds > 9_000.0);
        let gaps: Vec<f64> = samples.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
        assert!(gaps.windows(2).all(|pair| pair[0] == pair[1]), "{gaps:?}");
    }
}
