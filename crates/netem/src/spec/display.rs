//! Paths to text. The parser reads it back to the same path.

use core::fmt;

use super::{DelaySpec, HoldBack, LossSpec, OutageSpec, PathSpec, ReorderSpec, StageSpec};
use crate::bottleneck::{Framing, Server};
use crate::queue::{Discipline, Limit, QueueSpec};
use crate::units::{Bytes, Span};

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, stage) in self.stages.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            stage.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for StageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bottleneck { server, queue } => write!(f, "{server}, {queue}"),
            Self::Delay(delay) => delay.fmt(f),
            Self::Loss(loss) => loss.fmt(f),
            Self::Duplicate(probability) => write!(f, "duplicate {probability}"),
            Self::Reorder(reorder) => reorder.fmt(f),
            Self::Corrupt { probability, bits } => write!(f, "corrupt {probability} bits {bits}"),
            Self::Mtu { mtu, icmp: true } => write!(f, "mtu {mtu}"),
            Self::Mtu { mtu, icmp: false } => write!(f, "mtu {mtu} blackhole"),
            Self::Policer { rate, burst } => write!(f, "policer {rate} burst {}", Bytes(*burst)),
            Self::Outage(outage) => outage.fmt(f),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate, Framing::None) => write!(f, "rate {rate}"),
            Self::Rate(rate, Framing::Bytes(38)) => write!(f, "rate {rate} ethernet"),
            Self::Rate(rate, Framing::Bytes(bytes)) => {
                write!(f, "rate {rate} overhead {}", Bytes(u64::from(*bytes)))
            }
            Self::Rate(rate, Framing::Atm) => write!(f, "rate {rate} atm"),
            Self::Trace(trace) => write!(f, "trace {}", trace.name()),
        }
    }
}

impl fmt::Display for QueueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Limit::Bytes(bytes) => write!(f, "queue {}", Bytes(bytes))?,
            Limit::Frames(frames) => write!(f, "queue {frames}pkt")?,
        }
        let ecn = match &self.discipline {
            Discipline::DropTail => return f.write_str(" droptail"),
            Discipline::Codel(codel) => {
                write!(f, " codel target {} interval {}", Span(codel.target), Span(codel.interval))?;
                codel.ecn
            }
            Discipline::Red(red) => {
                let (min, max) = (Bytes(red.min), Bytes(red.max));
                write!(f, " red min {min} max {max} p {} weight {}", red.probability, red.weight)?;
                red.ecn
            }
        };
        f.write_str(if ecn { " ecn" } else { "" })
    }
}

impl fmt::Display for DelaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", Span(self.delay))?;
        let Some(jitter) = self.jitter else { return Ok(()) };
        write!(f, " jitter {}", Span(jitter.spread))?;
        f.write_str(if jitter.normal { " normal" } else { "" })?;
        f.write_str(if jitter.reorder { " reorder" } else { "" })
    }
}

impl fmt::Display for LossSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bernoulli(probability) => write!(f, "loss {probability}"),
            Self::Burst { length, probability } => write!(f, "loss burst {length} {probability}"),
            Self::Gilbert { to_bad, to_good, in_bad, in_good } => {
                write!(f, "loss gilbert {to_bad} {to_good} bad {in_bad} good {in_good}")
            }
            Self::Packets(ranges) => {
                f.write_str("loss packets")?;
                ranges.iter().try_for_each(|range| match (range.start(), range.end()) {
                    (start, end) if start == end => write!(f, " {start}"),
                    (start, end) => write!(f, " {start}..{end}"),
                })
            }
        }
    }
}

impl fmt::Display for ReorderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reorder {} ", self.probability)?;
        match self.by {
            HoldBack::Time { least, most } => write!(f, "{}..{}", Span(least), Span(most)),
            HoldBack::Frames { least, most } => write!(f, "{least}..{most}pkt"),
        }
    }
}

impl fmt::Display for OutageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = Span(self.start.saturating_since(base::Instant::ZERO));
        write!(f, "outage at {start} for {}", Span(self.length))?;
        if let Some(every) = self.every {
            write!(f, " every {}", Span(every))?;
        }
        f.write_str(if self.hold { " hold" } else { "" })
    }
}
