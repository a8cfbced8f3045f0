//! Transfers over a path, measured: for tables and for tuning.

use base::{Duration, Instant};
use netem::{ParsePathError, PathSpec};
use stack::StackConfig;
use tcp::CongestionAlgorithm;

use crate::application::{ConversationSpec, Plan};
use crate::buffers::PatternBuffers;
use crate::host::HostSpec;
use crate::world::World;

/// The path that most figures are of: 527 Mbit/s, 45 ms there and back, MTU 9180, a drop-tail queue of 3 MB.
pub mod reference {
    /// Its rate, in bits per second.
    pub const RATE: f64 = 527e6;
    /// The way of the data.
    pub const FORWARD: &str = "rate 527mbit, queue 3MB droptail, delay 22.5ms";
    /// The same with bursts of three lost packets, which start with the probability that stands for `{loss}`.
    pub const LOSSY: &str = "rate 527mbit, queue 3MB droptail, delay 22.5ms, loss burst 3 {loss}";
    /// The way of the acknowledgements.
    pub const BACK: &str = "delay 22.5ms";
    /// The MTU of both hosts, in bytes.
    pub const MTU: u16 = 9180;
    /// A window with room for the path and its queue, several times, in bytes.
    pub const WINDOW: u32 = 16 << 20;
}

/// What is transferred over what, and how.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The path of the data.
    pub forward: PathSpec,
    /// The path of the acknowledgements.
    pub back: PathSpec,
    /// The MTU of both hosts.
    pub mtu: u16,
    /// The configuration of both stacks' TCP.
    pub tcp: tcp::Config,
    /// How many flows share the path.
    pub flows: u16,
    /// The congestion control of every second flow, if it differs; hosts of such a flow use it.
    pub rival: Option<CongestionAlgorithm>,
    /// How long the clients send, start-up included.
    pub duration: Duration,
    /// How many bytes each client sends at most.
    pub bytes: u64,
    /// The granularity of both clocks.
    pub granularity: Duration,
    /// The largest super-segment that the devices cut.
    pub max_segmentation: u32,
    /// Most bytes unacknowledged in a sender's buffer.
    pub send_buffer: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Payload bytes that each flow's server had read when the time was over.
    pub delivered: Vec<u64>,
    /// The time that it took: the transfer's duration, or less if all bytes had been delivered before.
    pub elapsed: Duration,
    /// Payload bytes retransmitted by the clients.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Reductions of the congestion window that were undone.
    pub undone: u64,
    /// Wire packets that the forward path carried or dropped.
    pub packets: u64,
    /// Of these, how many it dropped.
    pub dropped: u64,
}

impl Outcome {
    /// All flows together, in bits per second of payload.
    pub fn bits_per_second(&self) -> f64 {
        let bytes: u64 = self.delivered.iter().sum();
        bytes as f64 * 8.0 / self.elapsed.as_secs_f64()
    }

    /// Jain's fairness index of the flows: 1 if all have the same, 1/n if one has all.
    pub fn fairness(&self) -> f64 {
        let sum: f64 = self.delivered.iter().map(|bytes| *bytes as f64).sum();
        let squares: f64 = self.delivered.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        sum * sum / (self.delivered.len() as f64 * squares)
    }
}

impl Transfer {
    /// One flow over a path written as text, the way back with the same delay and no loss.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn over(forward: &str, back: &str, mtu: u16) -> Result<Self, ParsePathError> {
        Ok(Self {
            forward: forward.parse()?,
            back: back.parse()?,
            mtu,
            tcp: tcp::Config::default(),
            flows: 1,
            rival: None,
            duration: Duration::from_secs(60),
            bytes: u64::MAX >> 1,
            granularity: Duration::from_micros(1),
            max_segmentation: 0,
            send_buffer: 32 << 20,
        })
    }

    /// Runs it in a world made from `seed`.
    pub fn run(&self, seed: u64) -> Outcome {
        let mut world = World::<PatternBuffers>::new(seed);
        let (forward, back) = (world.add_path(&self.forward), world.add_path(&self.back));
        let end = Instant::ZERO + self.duration;
        for flow in 0..self.flows {
            let rival = self.rival.filter(|_| flow % 2 == 1);
            let (client, server) = (world.add_host(self.host(rival)), world.add_host(self.host(rival)));
            world.route(client, server, vec![forward]);
            world.route(server, client, vec![back]);
            let plan = Plan { buffer: self.send_buffer, chunk: 1 << 20, ..Plan::sending(self.bytes) };
            world.converse(ConversationSpec {
                client,
                server,
                port: 5001,
                start: Instant::ZERO,
                client_plan: plan,
                server_plan: Plan::default(),
            });
        }
        while world.now() < end {
            let delivered = |flow: u16| world.endpoint(2 * usize::from(flow) + 1).read;
            if (0..self.flows).all(|flow| delivered(flow) >= self.bytes) {
                break;
            }
            world.run_until((world.now() + Duration::from_millis(100)).min(end));
        }
        self.outcome(&world, forward)
    }

    fn host(&self, rival: Option<CongestionAlgorithm>) -> HostSpec {
        let mut tcp = self.tcp.clone();
        tcp.clock_granularity = self.granularity;
        if let Some(rival) = rival {
            tcp.congestion = rival;
        }
        HostSpec {
            stack: StackConfig { tcp, ..StackConfig::default() },
            mtu: self.mtu,
            granularity: self.granularity,
            max_segmentation: self.max_segmentation,
            ..HostSpec::default()
        }
    }

    fn outcome(&self, world: &World<PatternBuffers>, forward: crate::PathId) -> Outcome {
        let mut outcome =
            Outcome { elapsed: world.now().saturating_since(Instant::ZERO), ..Outcome::default() };
        for flow in 0..usize::from(self.flows) {
            outcome.delivered.push(world.endpoint(2 * flow + 1).read);
            if let Some(connection) = world.connection(2 * flow) {
                let stats = connection.stats();
                outcome.retransmitted += stats.bytes_retransmitted;
                outcome.timeouts += u64::from(stats.timeouts);
                outcome.recoveries += u64::from(stats.fast_recoveries);
                outcome.undone += u64::from(stats.undone);
            }
        }
        let path = world.path(forward);
        outcome.packets = path.stats().next().map_or(0, |(_, stats)| stats.frames_in);
        outcome.dropped = path.dropped();
        outcome
    }
}

/// The congestion control that a command calls so.
pub fn congestion_control(name: &str) -> Option<CongestionAlgorithm> {
    match name {
        "reno" | "newreno" => Some(CongestionAlgorithm::NewReno),
        "cubic" => Some(CongestionAlgorithm::Cubic),
        "bbr" => Some(CongestionAlgorithm::Bbr),
        _ => None,
    }
}
