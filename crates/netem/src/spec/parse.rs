//! Paths from text. An error names the stage, the word and what would have been right there.

use core::fmt;
use core::str::FromStr;
use std::str::SplitWhitespace;

use base::{Duration, Instant};

use super::{DelaySpec, HoldBack, Jitter, LossSpec, OutageSpec, PathSpec, ReorderSpec, StageSpec};
use crate::bottleneck::{Framing, Server};
use crate::queue::{CodelSpec, Discipline, Limit, QueueSpec, RedSpec};
use crate::trace::Trace;
use crate::units::{Bytes, Rate, Span, parse_probability};

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePathError {
    /// The stage's place in the list, from one.
    pub stage: usize,
    /// The stage as it was written.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ParsePathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {} of the path, \"{}\": {}", self.stage, self.text, self.reason)
    }
}

impl core::error::Error for ParsePathError {}

impl FromStr for PathSpec {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, ParsePathError> {
        Self::parse_with_traces(text, |name| Err(format!("no trace is known as {name} here")))
    }
}

impl PathSpec {
    /// Reads a path; `resolve` gives the trace of a name, or says why it cannot.
    pub fn parse_with_traces(
        text: &str,
        mut resolve: impl FnMut(&str) -> Result<Trace, String>,
    ) -> Result<Self, ParsePathError> {
        let mut stages: Vec<StageSpec> = Vec::new();
        let mut waiting_queue = None;
        // Whether the last bottleneck has been given a queue of its own.
        let mut queue_given = false;
        let written = text.split([',', '\n']).map(str::trim).filter(|text| !text.is_empty());
        for (index, text) in written.enumerate() {
            let fail = |reason| ParsePathError { stage: index + 1, text: text.to_owned(), reason };
            match parse_stage(text, &mut resolve).map_err(fail)? {
                Parsed::Server(server) => {
                    let queue: Option<QueueSpec> = waiting_queue.take();
                    queue_given = queue.is_some();
                    stages.push(StageSpec::Bottleneck { server, queue: queue.unwrap_or_default() });
                }
                Parsed::Queue(spec) => {
                    let last = stages.iter_mut().rev().find_map(|stage| match stage {
                        StageSpec::Bottleneck { queue, .. } => Some(queue),
                        _ => None,
                    });
                    match last {
                        Some(queue) if !queue_given => {
                            *queue = spec;
                            queue_given = true;
                        }
                        _ if waiting_queue.is_some() => {
                            return Err(fail("two queues stand before one rate or trace".to_owned()));
                        }
                        _ => waiting_queue = Some(spec),
                    }
                }
                Parsed::Other(stage) => stages.push(stage),
            }
        }
        match waiting_queue {
            None => Ok(Self { stages }),
            Some(queue) => Err(ParsePathError {
                stage: stages.len() + 1,
                text: queue.to_string(),
                reason: "a queue needs a rate or a trace of its own to drain it".to_owned(),
            }),
        }
    }
}

enum Parsed {
    Server(Server),
    Queue(QueueSpec),
    Other(StageSpec),
}

fn parse_stage(
    text: &str,
    resolve: &mut impl FnMut(&str) -> Result<Trace, String>,
) -> Result<Parsed, String> {
    let mut words = Words(text.split_whitespace());
    let name = words.0.next().unwrap_or_default();
    let parsed = match name {
        "rate" => Parsed::Server(Server::Rate(words.rate()?, framing(&mut words)?)),
        "trace" => Parsed::Server(Server::Trace(resolve(words.next("the name of a trace")?)?)),
        "queue" => Parsed::Queue(queue(&mut words)?),
        "delay" => Parsed::Other(StageSpec::Delay(delay(&mut words)?)),
        "loss" => Parsed::Other(StageSpec::Loss(loss(&mut words)?)),
        "duplicate" => Parsed::Other(StageSpec::Duplicate(words.probability()?)),
        "reorder" => Parsed::Other(StageSpec::Reorder(reorder(&mut words)?)),
        "corrupt" => {
            let probability = words.probability()?;
            let bits = if words.accept("bits") { words.number("a number of bits")? } else { 1 };
            Parsed::Other(StageSpec::Corrupt { probability, bits: bits.min(u64::from(u32::MAX)) as u32 })
        }
        "mtu" => {
            let mtu = words.number("a length in bytes")?;
            let mtu = u32::try_from(mtu).map_err(|_| format!("an MTU of {mtu} is too large"))?;
            Parsed::Other(StageSpec::Mtu { mtu, icmp: !words.accept("blackhole") })
        }
        "policer" => {
            let rate = words.rate()?;
            words.expect("burst")?;
            Parsed::Other(StageSpec::Policer { rate, burst: words.bytes()? })
        }
        "outage" => Parsed::Other(StageSpec::Outage(outage(&mut words)?)),
        _ => {
            return Err(format!(
                "\"{name}\" is not a stage; there are rate, trace, queue, delay, loss, duplicate, reorder, corrupt, \
                 mtu, policer and outage"
            ));
        }
    };
    match words.0.next() {
        None => Ok(parsed),
        Some(word) => Err(format!("\"{word}\" is not understood here")),
    }
}

fn framing(words: &mut Words<'_>) -> Result<Framing, String> {
    if words.accept("atm") {
        Ok(Framing::Atm)
    } else if words.accept("ethernet") {
        Ok(Framing::Bytes(38))
    } else if words.accept("overhead") {
        let bytes = words.bytes()?;
        u32::try_from(bytes).map(Framing::Bytes).map_err(|_| format!("an overhead of {bytes} is too large"))
    } else {
        Ok(Framing::None)
    }
}

fn queue(words: &mut Words<'_>) -> Result<QueueSpec, String> {
    const WANTED: &str = "a size such as 3MB, or a number of packets such as 1000pkt";
    let word = words.next(WANTED)?;
    let limit = match word.strip_suffix("pkt") {
        Some(frames) => frames.parse().ok().map(Limit::Frames),
        None => Bytes::parse(word).map(|bytes| Limit::Bytes(bytes.0)),
    };
    let limit = limit.ok_or_else(|| format!("\"{word}\" is not {WANTED}"))?;
    let discipline = if words.accept("codel") {
        let mut codel = CodelSpec::default();
        loop {
            if words.accept("target") {
                codel.target = words.span()?;
            } else if words.accept("interval") {
                codel.interval = words.span()?;
            } else if words.accept("ecn") {
                codel.ecn = true;
            } else {
                break Discipline::Codel(codel);
            }
        }
    } else if words.accept("red") {
        Discipline::Red(red(words)?)
    } else {
        words.accept("droptail");
        Discipline::DropTail
    };
    Ok(QueueSpec { limit, discipline })
}

fn red(words: &mut Words<'_>) -> Result<RedSpec, String> {
    words.expect("min")?;
    let min = words.bytes()?;
    words.expect("max")?;
    let max = words.bytes()?;
    if max <= min {
        return Err("max must be larger than min".to_owned());
    }
    let mut red = RedSpec { min, max, probability: 0.1, weight: RedSpec::WEIGHT, ecn: false };
    loop {
        if words.accept("p") {
            red.probability = words.probability()?;
        } else if words.accept("weight") {
            red.weight = words.probability()?;
        } else if words.accept("ecn") {
            red.ecn = true;
        } else {
            return Ok(red);
        }
    }
}

fn delay(words: &mut Words<'_>) -> Result<DelaySpec, String> {
    let delay = words.span()?;
    if !words.accept("jitter") {
        return Ok(DelaySpec { delay, jitter: None });
    }
    let mut jitter = Jitter { spread: words.span()?, normal: false, reorder: false };
    loop {
        if words.accept("normal") {
            jitter.normal = true;
        } else if words.accept("reorder") {
            jitter.reorder = true;
        } else {
            return Ok(DelaySpec { delay, jitter: Some(jitter) });
        }
    }
}

fn loss(words: &mut Words<'_>) -> Result<LossSpec, String> {
    if words.accept("burst") {
        let length = words.number("a number of packets")?;
        return Ok(LossSpec::Burst { length, probability: words.probability()? });
    }
    if words.accept("gilbert") {
        let (to_bad, to_good) = (words.probability()?, words.probability()?);
        let in_bad = if words.accept("bad") { words.probability()? } else { 1.0 };
        let in_good = if words.accept("good") { words.probability()? } else { 0.0 };
        return Ok(LossSpec::Gilbert { to_bad, to_good, in_bad, in_good });
    }
    if words.accept("packets") {
        let mut ranges: Vec<core::ops::RangeInclusive<u64>> = Vec::new();
        for word in words.0.by_ref() {
            let (start, end) = word.split_once("..").unwrap_or((word, word));
            let range = start.parse().ok().zip(end.parse().ok()).filter(|(start, end)| start <= end);
            let (start, end) =
                range.ok_or_else(|| format!("\"{word}\" is not a packet number or a range"))?;
            if ranges.last().is_some_and(|last| start <= *last.end()) {
                return Err(format!("\"{word}\" does not come after the packets before it"));
            }
            ranges.push(start..=end);
        }
        return Ok(LossSpec::Packets(ranges));
    }
    words.probability().map(LossSpec::Bernoulli)
}

fn reorder(words: &mut Words<'_>) -> Result<ReorderSpec, String> {
    const WANTED: &str = "a span such as 10ms or 1ms..10ms, or packets such as 10pkt or 1..10pkt";
    let probability = words.probability()?;
    let word = words.next(WANTED)?;
    let (least, most) = word.split_once("..").unwrap_or((word, word));
    let by = match most.strip_suffix("pkt") {
        Some(most) => {
            let least = least.strip_suffix("pkt").unwrap_or(least).parse().ok();
            least.zip(most.parse().ok()).map(|(least, most)| HoldBack::Frames { least, most })
        }
        None => {
            let least = if least == "0" { Some(Span(Duration::ZERO)) } else { Span::parse(least) };
            least.zip(Span::parse(most)).map(|(least, most)| HoldBack::Time { least: least.0, most: most.0 })
        }
    };
    let by = by.ok_or_else(|| format!("\"{word}\" is not {WANTED}"))?;
    let ordered = match by {
        HoldBack::Time { least, most } => least <= most,
        HoldBack::Frames { least, most } => least <= most && most > 0,
    };
    if ordered { Ok(ReorderSpec { probability, by }) } else { Err(format!("\"{word}\" is an empty range")) }
}

fn outage(words: &mut Words<'_>) -> Result<OutageSpec, String> {
    words.expect("at")?;
    let start = Instant::ZERO + words.span()?;
    words.expect("for")?;
    let length = words.span()?;
    let every = if words.accept("every") { Some(words.span()?) } else { None };
    if every.is_some_and(|every| every <= length) {
        return Err(
            "outages that never end: the span after \"every\" must exceed the one after \"for\"".to_owned()
        );
    }
    Ok(OutageSpec { start, length, every, hold: words.accept("hold") })
}

struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, wanted: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{wanted} is missing at the end"))
    }

    /// Takes the next word if it is `word`.
    fn accept(&mut self, word: &str) -> bool {
        let mut rest = self.0.clone();
        let found = rest.next() == Some(word);
        if found {
            self.0 = rest;
        }
        found
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.accept(word) { Ok(()) } else { Err(format!("\"{word}\" is missing")) }
    }

    fn read<T>(&mut self, wanted: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let word = self.next(wanted)?;
        parse(word).ok_or_else(|| format!("\"{word}\" is not {wanted}"))
    }

    fn rate(&mut self) -> Result<Rate, String> {
        self.read("a rate such as 527mbit", Rate::parse)
    }

    fn bytes(&mut self) -> Result<u64, String> {
        self.read("a size such as 1500B or 3MB", |word| Bytes::parse(word).map(|bytes| bytes.0))
    }

    fn span(&mut self) -> Result<Duration, String> {
        self.read("a span such as 22.5ms", |word| Span::parse(word).map(|span| span.0))
    }

    fn probability(&mut self) -> Result<f64, String> {
        self.read("a probability such as 1% or 3e-5", parse_probability)
    }

    fn number(&mut self, wanted: &str) -> Result<u64, String> {
        self.read(wanted, |word| word.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<PathSpec>().unwrap_err().to_string()
    }

    #[test]
    fn every_stage_is_read_and_written_back() {
        let written = [
            "rate 527mbit, queue 3MB droptail",
            "rate 100mbit ethernet, queue 1000pkt droptail",
            "rate 599mbit atm, queue 64KB codel target 5ms interval 100ms ecn",
            "rate 10mbit overhead 4B, queue 3MB red min 100KB max 300KB p 0.1 weight 0.002 ecn",
            "delay 22.5ms, delay 20ms jitter 3ms, delay 20ms jitter 3ms normal reorder",
            "loss 0.01, loss burst 3 0.00003, loss gilbert 0.01 0.3 bad 0.8 good 0.001",
            "loss packets 7 9 20..30, duplicate 0.001",
            "reorder 0.01 1..10pkt, reorder 0.01 1ms..10ms",
            "corrupt 0.0001 bits 3, mtu 1400, mtu 1400 blackhole, policer 50mbit burst 64KB",
            "outage at 5s for 2s, outage at 5s for 2s every 30s hold",
        ];
        for text in written {
            let path: PathSpec = text.parse().unwrap();
            assert_eq!(path.to_string(), text);
        }
        let short: PathSpec = "reorder 1% 10pkt\nreorder 1% 0..10ms".parse().unwrap();
        assert_eq!(short.to_string(), "reorder 0.01 10..10pkt, reorder 0.01 0ns..10ms");
        assert_eq!(short.to_string().parse(), Ok(short));
    }

    #[test]
    fn a_queue_finds_its_bottleneck() {
        let issue: PathSpec =
            "rate 527mbit, delay 22.5ms, queue 3MB droptail, loss burst 3 3e-5".parse().unwrap();
        let expected = "rate 527mbit, queue 3MB droptail, delay 22.5ms, loss burst 3 0.00003";
        assert_eq!(issue.to_string(), expected);
        let before: PathSpec = "queue 2pkt, rate 1mbit, queue 3pkt, rate 2mbit".parse().unwrap();
        assert_eq!(before.to_string(), "rate 1mbit, queue 2pkt droptail, rate 2mbit, queue 3pkt droptail");
        assert!(error("delay 1ms, queue 3MB").contains("needs a rate"));
        assert!(error("rate 1mbit, queue 3MB, queue 2MB").contains("needs a rate"));
        assert!(error("queue 1MB, queue 2MB, rate 1mbit").contains("two queues"));
    }

    #[test]
    fn errors_name_the_stage_and_the_word() {
        assert_eq!(
            error("rate 5mbit, loss burst x 3e-5"),
            "stage 2 of the path, \"loss burst x 3e-5\": \"x\" is not a number of packets"
        );
        assert!(error("rate 5").contains("\"5\" is not a rate such as 527mbit"));
        assert!(error("rate").contains("missing at the end"));
        assert!(error("loss 1.2").contains("not a probability"));
        assert!(error("loss 1% often").contains("\"often\" is not understood"));
        assert!(error("los 1%").contains("is not a stage"));
        assert!(error("trace cellular").contains("no trace is known as cellular"));
        assert!(error("outage at 1s for 3s every 2s").contains("never end"));
        assert!(error("loss packets 9 7").contains("does not come after"));
        assert!(error("reorder 1% 10..2pkt").contains("empty range"));
    }
}
