//! What the two ends are to do, as the client tells it to the server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CHUNK;

/// The version of the plan's form; ends of other versions do not understand each other.
const VERSION: u32 = 1;
/// Data connections at a time, each with a thread at either end.
pub const MAX_CONNECTIONS: u64 = 1024;
/// Connections that are only held.
const MAX_HELD: u64 = 1_000_000;
/// The longest message of a request, an answer or a transfer.
const MAX_MESSAGE: u64 = 1 << 40;
/// The longest datagram.
const MAX_DATAGRAM: u64 = 65_507;
/// Pipelined requests, and the bytes of them (or of their answers) that may be on the way: what buffers take for sure.
const MAX_DEPTH: u64 = 4096;
const MAX_PIPELINED_BYTES: u64 = 64 * 1024;
/// A datagram that is told from others on the way bears a number of so many bytes.
pub(super) const NUMBER: u64 = 8;

/// The load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Requests and their answers on connections that stay.
    Exchange,
    /// Connect, a request, its answer, disconnect; again and again.
    Transact,
    /// Bytes, as many as go.
    Stream,
    /// Messages of one size, one way, each received as one.
    Messages,
    /// Connections that are opened, held and replaced.
    Hold,
}

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// Which way a stream goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Flow {
    Download,
    Upload,
    Both,
}

/// What the receiving end does with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Nothing.
    No,
    /// It reads every byte, and the sending end does not make any.
    Read,
    /// The sending end makes a pattern, and the receiving end compares every byte with it.
    Pattern,
}

impl std::str::FromStr for Verify {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "no" => Ok(Self::No),
            "read" => Ok(Self::Read),
            "pattern" => Ok(Self::Pattern),
            other => Err(format!("`{other}` is none of no, read, pattern")),
        }
    }
}

/// A load with all its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The version of this form.
    pub version: u32,
    /// The load.
    pub work: Work,
    /// Over which protocol.
    pub protocol: Protocol,
    /// Data connections at a time; of [`Work::Hold`], connections that are held.
    pub connections: u64,
    /// The size of a request; of [`Work::Messages`], of a message.
    pub request_bytes: u64,
    /// The size of an answer.
    pub answer_bytes: u64,
    /// Which way a stream goes.
    pub flow: Flow,
    /// How many bytes of a stream are produced and read at a time.
    pub chunk_bytes: u64,
    /// How many bytes a stream has, on each connection and each way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_bytes: Option<u64>,
    /// How many operations, on each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// For how long, what is omitted not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
    /// How long at the beginning nothing counts.
    pub omit_seconds: f64,
    /// Operations per second, begun when their time has come and not when the last is done; all connections together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    /// Requests on the way on each connection.
    pub depth: u64,
    /// Of [`Work::Hold`]: connections replaced per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn_per_second: Option<f64>,
    /// What is done with the bytes.
    pub verify: Verify,
    /// Whether the client looks for its answers without sleeping, on the kernel's sockets.
    pub client_spins: bool,
    /// Limit of the socket buffers at both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffer_bytes: Option<u64>,
    /// Congestion control of the kernel's sockets at both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// How often the client tells how far it is.
    pub interval_seconds: f64,
}

impl Plan {
    /// A load of one TCP connection without limits: the caller sets what differs, and a count or a duration.
    pub fn new(work: Work) -> Self {
        Self {
            version: VERSION,
            work,
            protocol: Protocol::Tcp,
            connections: 1,
            request_bytes: 1,
            answer_bytes: 1,
            flow: Flow::Download,
            chunk_bytes: CHUNK as u64,
            stream_bytes: None,
            count: None,
            duration_seconds: None,
            omit_seconds: 0.0,
            rate_per_second: None,
            depth: 1,
            churn_per_second: None,
            verify: Verify::Pattern,
            client_spins: false,
            socket_buffer_bytes: None,
            congestion_control: None,
            interval_seconds: 1.0,
        }
    }

    /// Whether it makes sense and stays within the bounds. A server asks before it believes anything.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |what: &str| Err(what.to_owned());
        if self.version != VERSION {
            return Err(format!("a plan of version {} and not {VERSION}: another release", self.version));
        }
        let most = if self.work == Work::Hold { MAX_HELD } else { MAX_CONNECTIONS };
        if !(1..=most).contains(&self.connections) {
            return Err(format!("{} connections: it takes 1 to {most}", self.connections));
        }
        let sizes = [self.request_bytes, self.answer_bytes];
        let longest = if self.protocol == Protocol::Udp { MAX_DATAGRAM } else { MAX_MESSAGE };
        if sizes.iter().any(|size| !(1..=longest).contains(size)) {
            return Err(format!("a message has 1 to {longest} bytes"));
        }
        if !(1..=64 << 20).contains(&self.chunk_bytes) {
            return refuse("bytes go in pieces of 1 byte to 64 MiB");
        }
        let is_time = |seconds: f64| (0.0..1e9).contains(&seconds);
        if !self.duration_seconds.is_none_or(|seconds| is_time(seconds) && seconds > 0.0)
            || !is_time(self.omit_seconds)
            || !(0.001..1e6).contains(&self.interval_seconds)
        {
            return refuse("that is no duration in seconds");
        }
        if [self.rate_per_second, self.churn_per_second]
            .iter()
            .flatten()
            .any(|rate| !(1e-3..1e9).contains(rate))
        {
            return refuse("a rate is more than 0 a second and less than 10⁹");
        }
        self.check_combination()
    }

    fn check_combination(&self) -> Result<(), String> {
        let refuse = |what: &str| Err(what.to_owned());
        let is_udp = self.protocol == Protocol::Udp;
        if is_udp && !matches!(self.work, Work::Exchange | Work::Messages) {
            return refuse("only round trips and messages go over UDP");
        }
        if self.work == Work::Stream && self.rate_per_second.is_some() {
            return refuse("a stream has no rate");
        }
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err(format!("1 to {MAX_DEPTH} requests can be on the way"));
        }
        let smaller = self.request_bytes.min(self.answer_bytes);
        if self.depth > 1 && self.depth * smaller > MAX_PIPELINED_BYTES {
            return Err(format!(
                "pipelining: requests on the way × the smaller of request and answer may be {MAX_PIPELINED_BYTES} bytes"
            ));
        }
        if self.depth > 1 && self.rate_per_second.is_some() {
            return refuse("with a rate, requests are on the way as they may; a depth has no meaning");
        }
        let told_apart = self.depth > 1 || self.rate_per_second.is_some();
        if is_udp && self.work == Work::Exchange && told_apart && smaller < NUMBER {
            return Err(format!(
                "datagrams that are told apart have at least {NUMBER} bytes (--size {NUMBER})"
            ));
        }
        if self.is_large() && (is_udp || self.rate_per_second.is_some()) && self.work == Work::Exchange {
            return Err(format!("at a rate, messages have at most {CHUNK} bytes"));
        }
        let ends = match self.work {
            Work::Stream => self.stream_bytes.is_some() || self.duration_seconds.is_some(),
            Work::Hold => true,
            Work::Exchange | Work::Transact | Work::Messages => {
                self.count.is_some() || self.duration_seconds.is_some()
            }
        };
        if ends { Ok(()) } else { refuse("neither a duration nor an amount is given") }
    }

    /// Whether messages are so long that they are streamed and not held in a buffer.
    pub(super) fn is_large(&self) -> bool {
        self.request_bytes.max(self.answer_bytes) > CHUNK as u64
    }

    /// The duration with what is omitted.
    pub(super) fn whole_duration(&self) -> Option<Duration> {
        self.duration_seconds.map(|seconds| Duration::from_secs_f64(seconds + self.omit_seconds))
    }

    /// For how long a client may go on before it counts as stuck.
    pub fn patience(&self) -> Duration {
        const MARGIN: Duration = Duration::from_secs(60);
        /// As if at least so many bytes went a second, and so many operations.
        const SLOWEST_BYTES: u64 = 10_000_000;
        const SLOWEST_OPERATIONS: u64 = 100;
        let count = self.count.unwrap_or(1).saturating_mul(self.connections);
        let bytes = match self.work {
            Work::Stream => self.stream_bytes.unwrap_or(0).saturating_mul(2 * self.connections),
            _ => count.saturating_mul(self.request_bytes.saturating_add(self.answer_bytes)),
        };
        let paced = self.rate_per_second.map_or(0.0, |rate| count as f64 / rate);
        MARGIN
            + self.whole_duration().unwrap_or_default()
            + Duration::from_secs(bytes / SLOWEST_BYTES + count / SLOWEST_OPERATIONS)
            + Duration::from_secs_f64(paced.min(1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(work: Work) -> Plan {
        Plan { duration_seconds: Some(1.0), ..Plan::new(work) }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let good = timed(Work::Exchange);
        assert_eq!(good.check(), Ok(()));
        let udp = Plan { protocol: Protocol::Udp, ..good.clone() };
        assert_eq!(udp.check(), Ok(()));
        for bad in [
            Plan { version: VERSION + 1, ..good.clone() },
            Plan { connections: 0, ..good.clone() },
            Plan { connections: MAX_CONNECTIONS + 1, ..good.clone() },
            Plan { request_bytes: 0, ..good.clone() },
            Plan { duration_seconds: Some(f64::NAN), ..good.clone() },
            Plan { duration_seconds: Some(0.0), ..good.clone() },
            Plan { duration_seconds: None, ..good.clone() },
            Plan { omit_seconds: -1.0, ..good.clone() },
            Plan { interval_seconds: 0.0, ..good.clone() },
            Plan { rate_per_second: Some(0.0), ..good.clone() },
            Plan { depth: 2, request_bytes: 40_000, answer_bytes: 40_000, ..good.clone() },
            Plan { depth: 2, rate_per_second: Some(5.0), ..good.clone() },
            Plan { request_bytes: MAX_DATAGRAM + 1, ..udp.clone() },
            Plan { depth: 2, ..udp.clone() },
            Plan { rate_per_second: Some(5.0), ..udp.clone() },
            Plan { work: Work::Transact, ..udp },
            Plan { rate_per_second: Some(5.0), ..timed(Work::Stream) },
            Plan::new(Work::Stream),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_plan_comes_through_the_control_connection_as_it_is() {
        let plan = Plan { count: Some(7), congestion_control: Some("reno".to_owned()), ..timed(Work::Hold) };
        let text = serde_json::to_string(&plan).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
