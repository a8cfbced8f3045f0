//! One stream between two stacks in one thread, over a link in memory: Outboard, and smoltcp beside it.
//!
//! `cargo bench -p outboard-stack --bench beside_smoltcp -- [--slices N] [--bytes N] [--buffer N]… [--mtu N] [--json]`
//!
//! Both stacks compute and verify all checksums in software, with buffers of one size and the same applications. Both streams live
//! at the same time and carry slices of some bytes in turn; a row has the medians, and the median of the ratios of neighbours, so that
//! what else the processor does meets both.
//!
//! *The link* is one of two, the same for both. `handed over`: every frame is taken in by the other stack while it is sent; smoltcp
//! fills the one buffer of the link, and its peer reads it there; Outboard's peer is given headers and payload as they stand.
//! `queue`: frames are copied into a queue and taken from it.
//!
//! *The applications* write what there is room for, at most 128 KiB a turn, and read what has come. `only count`: they say how many bytes
//! they have written and read in the stacks' buffers, as those of smoltcp's own benchmark do, so that it is the stacks that are
//! measured. `every byte`: they write a pattern and compare all that arrives, whose time is the same for both stacks. Before every row
//! a slice is carried whose bytes are all compared, whichever it is.
//!
//! Exits with 1 when the ratio is below two in any row.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod link;
mod theirs;

use std::process::ExitCode;
use std::time::Instant as Clock;

use theirs::Smoltcp;

/// MTUs, and how many frames the link holds at each.
const MTUS: [(u16, usize); 2] = [(1500, 64), (65_535, 4)];
/// What is demanded.
const TARGET: f64 = 2.0;

/// A stream that goes on by itself.
trait Stream {
    /// Everything once, at a time since the start.
    fn turn(&mut self, nanos: u64);
    /// Bytes that the receiving application has got.
    fn read(&self) -> u64;
    /// From now on the applications write and compare every byte, or only say how many there are.
    fn touch(&mut self, touches: bool);
    /// Whether all bytes that were compared were the stream's.
    fn is_right(&self) -> bool;
}

/// Outboard's stream, with where the frame stands that is handed over on a link without a queue.
struct Outboard {
    transfer: link::Transfer,
    handed: bool,
}

impl Stream for Outboard {
    fn turn(&mut self, nanos: u64) {
        let now = base::Instant::from_nanos(2_000_000_000 + nanos);
        if self.handed { self.transfer.turn_handed(now) } else { self.transfer.turn(now) }
    }

    fn read(&self) -> u64 {
        self.transfer.read
    }

    fn touch(&mut self, touches: bool) {
        self.transfer.touches = touches;
    }

    fn is_right(&self) -> bool {
        self.transfer.is_right
    }
}

impl Stream for Smoltcp {
    fn turn(&mut self, nanos: u64) {
        Self::turn(self, smoltcp::time::Instant::from_micros((nanos / 1000) as i64 + 2_000_000));
    }

    fn read(&self) -> u64 {
        self.read
    }

    fn touch(&mut self, touches: bool) {
        self.touches = touches;
    }

    fn is_right(&self) -> bool {
        self.is_right
    }
}

/// What is compared.
#[derive(Clone, Copy)]
struct Case {
    mtu: u16,
    /// Frames that the link holds.
    frames: usize,
    /// Each frame is handed over while it is sent.
    handed: bool,
    /// The applications write and compare every byte, instead of only saying how many there are.
    touches: bool,
    buffer: usize,
}

/// A stream and its clock, which goes only while it runs.
struct Timed<S> {
    stream: S,
    nanos: u64,
    rates: Vec<f64>,
}

impl<S: Stream> Timed<S> {
    /// A stream that has begun, and carried some bytes all of which were compared.
    fn warm(stream: S, bytes: u64, touches: bool) -> Self {
        let mut timed = Self { stream, nanos: 0, rates: Vec::new() };
        timed.stream.touch(true);
        timed.run(bytes);
        timed.stream.touch(touches);
        timed
    }

    /// Carries so many bytes; returns Gbit/s.
    fn run(&mut self, bytes: u64) -> f64 {
        let (start, before) = (Clock::now(), self.stream.read());
        let (from, mut idle) = (self.nanos, 0);
        while self.stream.read() < before + bytes {
            self.nanos = from + start.elapsed().as_nanos() as u64;
            let read = self.stream.read();
            self.stream.turn(self.nanos);
            idle = if self.stream.read() == read { idle + 1 } else { 0 };
            assert!(idle < 10_000_000, "the stream stands still at {read}");
        }
        self.nanos = from + start.elapsed().as_nanos() as u64;
        assert!(self.stream.is_right(), "the bytes that were sent");
        (self.stream.read() - before) as f64 * 8.0 / (self.nanos - from) as f64
    }

    fn measure(&mut self, bytes: u64) {
        let rate = self.run(bytes);
        self.rates.push(rate);
    }
}

/// A case's figures: Gbit/s of each slice, and the ratio of neighbours. All are sorted.
struct Figures {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    ratios: Vec<f64>,
}

impl Case {
    /// Both streams in turn, so that whatever else the processor does meets both.
    fn compare(self, slices: usize, bytes: u64) -> Figures {
        let Self { mtu, frames, handed, touches, buffer } = self;
        let outboard = Outboard {
            transfer: if handed {
                link::Transfer::handed(mtu, buffer)
            } else {
                link::Transfer::new(mtu, frames, buffer)
            },
            handed,
        };
        let mut ours = Timed::warm(outboard, bytes, touches);
        let mut theirs = Timed::warm(Smoltcp::new(mtu, frames, buffer, handed), bytes, touches);
        for slice in 0..slices {
            if slice % 2 == 0 {
                ours.measure(bytes);
                theirs.measure(bytes);
            } else {
                theirs.measure(bytes);
                ours.measure(bytes);
            }
        }
        let ratios = ours.rates.iter().zip(&theirs.rates).map(|(our, their)| our / their).collect();
        let sorted = |mut figures: Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures
        };
        Figures { ours: sorted(ours.rates), theirs: sorted(theirs.rates), ratios: sorted(ratios) }
    }
}

struct Arguments {
    slices: usize,
    bytes: u64,
    buffers: Vec<usize>,
    mtu: Option<u16>,
    json: bool,
}

fn arguments() -> Option<Arguments> {
    let mut arguments =
        Arguments { slices: 200, bytes: 4 << 20, buffers: Vec::new(), mtu: None, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--slices" => arguments.slices = words.next()?.parse().ok().filter(|slices| *slices > 0)?,
            "--bytes" => arguments.bytes = words.next()?.parse().ok()?,
            "--buffer" => arguments.buffers.push(words.next()?.parse().ok()?),
            "--mtu" => arguments.mtu = Some(words.next()?.parse().ok()?),
            "--json" => arguments.json = true,
            // Cargo says so to every benchmark.
            "--bench" => {}
            _ => return None,
        }
    }
    if arguments.buffers.is_empty() {
        arguments.buffers = vec![256 << 10];
    }
    Some(arguments)
}

/// The figure below which `percent` of them lie.
fn quantile(figures: &[f64], percent: usize) -> f64 {
    figures[(figures.len() - 1) * percent / 100]
}

/// The median, and between which two figures the middle half lies.
fn spread(figures: &[f64]) -> String {
    let [low, median, high] = [25, 50, 75].map(|percent| quantile(figures, percent));
    format!("{median:.2} ({low:.2} to {high:.2})")
}

fn main() -> ExitCode {
    let Some(Arguments { slices, bytes, buffers, mtu: only, json }) = arguments() else {
        eprintln!("usage: beside_smoltcp [--slices N] [--bytes N] [--buffer N]… [--mtu N] [--json]");
        return ExitCode::from(2);
    };
    if !json {
        println!("Gbit/s, medians of {slices} slices of {bytes} bytes in turn (the middle half of them)\n");
        println!(
            "| MTU | link | applications | buffers | Outboard | smoltcp | ratio |\n|---|---|---|---|---|---|---|"
        );
    }
    let (mut rows, mut reached) = (Vec::new(), true);
    for (mtu, frames) in MTUS.into_iter().filter(|(mtu, _)| only.is_none_or(|only| only == *mtu)) {
        for &buffer in &buffers {
            for (handed, touches) in [(true, false), (false, false), (true, true), (false, true)] {
                let case = Case { mtu, frames, handed, touches, buffer };
                let Figures { ours, theirs, ratios } = case.compare(slices, bytes);
                let ratio = quantile(&ratios, 50);
                reached &= ratio >= TARGET;
                let link = if handed { "handed over" } else { "queue" };
                let applications = if touches { "every byte" } else { "only count" };
                if json {
                    let [our, their] = [ours, theirs].map(|rates| quantile(&rates, 50));
                    rows.push(format!(
                        "{{\"mtu\":{mtu},\"link\":\"{link}\",\"applications\":\"{applications}\",\"buffer\":{buffer},\"outboard_gbit\":{our:.2},\"smoltcp_gbit\":{their:.2},\"ratio\":{ratio:.3}}}"
                    ));
                } else {
                    let [our, their, ratio] = [ours, theirs, ratios].map(|figures| spread(&figures));
                    println!("| {mtu} | {link} | {applications} | {buffer} | {our} | {their} | {ratio} |");
                }
            }
        }
    }
    if json {
        println!("{{\"target\":{TARGET},\"reached\":{reached},\"rows\":[{}]}}", rows.join(","));
    }
    if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
