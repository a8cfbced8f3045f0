//! The Linux kernel's TCP over an emulated path, in real time: what the simulator's `lossy_path` is held against.
//!
//! ```text
//! cargo run --release -p outboard-perf --example linux_over_path -- [--cc cubic,reno] [--loss 3e-5,3e-4] [--seeds 8]
//!     [--seconds 60] [--sack on,off] [--path PATH] [--back PATH] [--mtu 9180] [--at-once 4]
//! ```
//!
//! Two hosts of the kernel, each in a network namespace with a TAP device; between the devices a thread that sends every
//! frame through the same `netem` stages as the simulator, by the clock of the machine. Figures are means over the runs,
//! start-up included. `late` is how often the path came to what was due a millisecond or more after its time, because the
//! machine was busy, and the longest such time: what the kernel's TCP saw and the simulator's did not.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::{NonZero, NonZeroU64};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base::{Instant, SeededRng};
use clap::Parser;
use clap::builder::BoolishValueParser;
use device::Device;
use device::tap::{Tap, TapOptions};
use lab::{Lab, Namespace};
use netem::{Output, Packet, Path, PathSpec};
use rustix::event::{PollFd, PollFlags};
use sim::experiment::reference;
use socket2::{Domain, Socket, Type};
use wire::ethernet::EthernetAddress;
use wire::frame::{Medium, TxFrame};

const PORT: u16 = 5001;
const DEVICE: &str = "tap-path";
/// Room for the path and its queue, several times: never what holds a transfer back.
const BUFFERS: &str = "4096 1048576 67108864";
/// Frames that a TAP device holds for the path: more than any window, so that the path's own queue is the one that drops.
const DEVICE_QUEUE: u32 = 50_000;

/// The Linux kernel's TCP over an emulated path, in real time.
#[derive(Parser)]
struct Arguments {
    /// Congestion controls, as the kernel calls them.
    #[arg(long = "cc", value_delimiter = ',', default_value = "reno,cubic")]
    controls: Vec<String>,
    /// Probabilities, each of which stands for `{loss}` in a path.
    #[arg(long = "loss", value_delimiter = ',', default_value = "3e-5,3e-4")]
    losses: Vec<String>,
    /// With selective acknowledgements, and without.
    #[arg(long = "sack", value_delimiter = ',', value_parser = BoolishValueParser::new(), default_value = "on,off")]
    sacks: Vec<bool>,
    /// Runs of each.
    #[arg(long, default_value_t = 8)]
    seeds: u64,
    /// The seed of the first of them.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// How long a run sends.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The way of the data.
    #[arg(long, default_value = reference::LOSSY)]
    path: String,
    /// The way of the acknowledgements.
    #[arg(long, default_value = reference::BACK)]
    back: String,
    /// The MTU of both hosts, in bytes.
    #[arg(long, default_value_t = reference::MTU)]
    mtu: u16,
    /// Runs at the same time.
    #[arg(long, default_value_t = NonZero::<usize>::MIN.saturating_add(3))]
    at_once: NonZero<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = lab::enter().map_err(anyhow::Error::from).and_then(|()| table(&arguments)) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// One way to transfer: everything but the seed.
struct Case<'a> {
    control: &'a str,
    sack: bool,
    forward: PathSpec,
    back: PathSpec,
    mtu: u16,
    duration: Duration,
}

/// What came of a run.
struct Outcome {
    megabits_per_second: f64,
    late: Lateness,
}

/// How well the path kept its times.
#[derive(Clone, Copy, Default)]
struct Lateness {
    times: u64,
    /// By a millisecond or more.
    late: u64,
    longest: Duration,
}

impl Lateness {
    fn note(&mut self, by: Duration) {
        self.times += 1;
        self.late += u64::from(by >= Duration::from_millis(1));
        self.longest = self.longest.max(by);
    }

    fn and(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            late: self.late + other.late,
            longest: self.longest.max(other.longest),
        }
    }
}

fn table(arguments: &Arguments) -> Result<()> {
    let lab = Lab::new()?;
    println!(
        "path {}; back {}; MTU {}; {} runs of {} s, {} at once; Linux {}",
        arguments.path,
        arguments.back,
        arguments.mtu,
        arguments.seeds,
        arguments.seconds,
        arguments.at_once,
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    );
    println!("| control | SACK | loss | Mbit/s | least | most | late, % | longest, ms |");
    println!("|---|---|---|---|---|---|---|---|");
    for control in &arguments.controls {
        for &sack in &arguments.sacks {
            for loss in &arguments.losses {
                let case = Case {
                    control,
                    sack,
                    forward: arguments.path.replace("{loss}", loss).parse()?,
                    back: arguments.back.replace("{loss}", loss).parse()?,
                    mtu: arguments.mtu,
                    duration: Duration::from_secs(arguments.seconds),
                };
                let seeds: Vec<u64> =
                    (arguments.first_seed..arguments.first_seed + arguments.seeds).collect();
                let mut outcomes = Vec::new();
                for some in seeds.chunks(arguments.at_once.get()) {
                    outcomes.extend(together(&lab, &case, some)?);
                    eprintln!("{control}, SACK {sack}, loss {loss}: {} of {}", outcomes.len(), seeds.len());
                }
                println!("{}", row(&case, loss, &outcomes));
            }
        }
    }
    Ok(())
}

fn row(case: &Case<'_>, loss: &str, outcomes: &[Outcome]) -> String {
    let rates = || outcomes.iter().map(|outcome| outcome.megabits_per_second);
    let late = outcomes.iter().fold(Lateness::default(), |all, outcome| all.and(outcome.late));
    format!(
        "| {} | {} | {loss} | {:.1} | {:.1} | {:.1} | {:.2} | {:.1} |",
        case.control,
        if case.sack { "yes" } else { "no" },
        rates().sum::<f64>() / outcomes.len().max(1) as f64,
        rates().fold(f64::MAX, f64::min),
        rates().fold(0.0, f64::max),
        late.late as f64 / late.times.max(1) as f64 * 100.0,
        late.longest.as_secs_f64() * 1e3,
    )
}

/// One run for each seed, all at the same time.
fn together(lab: &Lab, case: &Case<'_>, seeds: &[u64]) -> Result<Vec<Outcome>> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|&seed| scope.spawn(move || run(lab, case, seed))).collect();
        runs.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    })
}

/// A host of the kernel: its namespace, and the TAP device that is its only link.
struct Host {
    namespace: Namespace,
    tap: Tap,
}

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];

fn hardware_address(host: usize) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

fn host(lab: &Lab, case: &Case<'_>, index: usize) -> Result<Host> {
    let namespace = lab.namespace("host")?;
    let other = 1 - index;
    namespace.tap(DEVICE, IpAddr::V4(ADDRESSES[index]), 24, u32::from(case.mtu))?;
    namespace.ip(&format!(
        "link set {DEVICE} address {} txqueuelen {DEVICE_QUEUE} gso_max_size 65536",
        hardware_address(index)
    ))?;
    // Known for good: a lost question for an address would cost a second.
    namespace.ip(&format!(
        "neighbour replace {} lladdr {} dev {DEVICE} nud permanent",
        ADDRESSES[other],
        hardware_address(other)
    ))?;
    for (name, value) in
        [("tcp_sack", if case.sack { "1" } else { "0" }), ("tcp_rmem", BUFFERS), ("tcp_wmem", BUFFERS)]
    {
        namespace.set_sysctl(&format!("net.ipv4.{name}"), value)?;
    }
    let options = TapOptions {
        name: DEVICE.to_owned(),
        medium: Medium::Ethernet,
        mtu: None,
        offload: false,
        bring_up: false,
        kernel_address: None,
        // Of the path's side of the device: frames are only passed on.
        hardware_address: hardware_address(other),
    };
    let tap = namespace.within(|| Tap::open(&options))??;
    Ok(Host { namespace, tap })
}

fn run(lab: &Lab, case: &Case<'_>, seed: u64) -> Result<Outcome> {
    let mut hosts = [host(lab, case, 0)?, host(lab, case, 1)?];
    let [client, server] = hosts.each_ref().map(|host| host.namespace.clone());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let emulator = scope.spawn(|| emulate(case, seed, hosts.each_mut().map(|host| &mut host.tap), &over));
        let transferred = transfer(case, &client, &server);
        over.store(true, Ordering::Relaxed);
        let late = emulator.join().expect("the path does not panic")?;
        let bytes = transferred?;
        for namespace in [&client, &server] {
            no_frame_lost_in_the_device(namespace)?;
        }
        Ok(Outcome { megabits_per_second: bytes as f64 * 8e-6 / case.duration.as_secs_f64(), late })
    })
}

/// Bytes that the server has read when the time is over.
fn transfer(case: &Case<'_>, client: &Namespace, server: &Namespace) -> Result<u64> {
    let address = SocketAddr::new(IpAddr::V4(ADDRESSES[1]), PORT);
    let listener = server.within(|| TcpListener::bind(address))??;
    let start = std::time::Instant::now();
    let left = || case.duration.saturating_sub(start.elapsed());
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            let mut stream = client.within(|| connect(case.control, address))??;
            let data = vec![0x5a; 1 << 20];
            while !left().is_zero() {
                stream.set_write_timeout(Some(left().max(Duration::from_millis(1))))?;
                // The only end that a transfer has is that of its time, or of its reader.
                let _ = stream.write(&data);
            }
            Ok(())
        });
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        while !left().is_zero() {
            stream.set_read_timeout(Some(left().max(Duration::from_millis(1))))?;
            match stream.read(&mut buffer) {
                Ok(0) => bail!("the sender ended the connection before its time"),
                Ok(count) => bytes += count as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        drop(stream);
        sender.join().expect("the sender does not panic")?;
        Ok(bytes)
    })
}

/// A connection with a congestion control of its own. (The default of a network namespace cannot be any.)
fn connect(control: &str, address: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket
        .set_tcp_congestion(control.as_bytes())
        .with_context(|| format!("the kernel has no congestion control \"{control}\", or root is needed"))?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// A frame that the device dropped was lost without the path's knowledge: the run would not be what it says.
fn no_frame_lost_in_the_device(namespace: &Namespace) -> Result<()> {
    let text = namespace.ip(&format!("-json -statistics link show dev {DEVICE}"))?.stdout;
    let devices: serde_json::Value = serde_json::from_slice(&text)?;
    for direction in ["rx", "tx"] {
        let dropped = devices[0]["stats64"][direction]["dropped"].as_u64().context("ip's counters")?;
        ensure!(
            dropped == 0,
            "the device dropped {dropped} frames ({direction}); fewer runs --at-once may do"
        );
    }
    Ok(())
}

/// Carries frames between the two devices until the transfer is over.
fn emulate(case: &Case<'_>, seed: u64, mut taps: [&mut Tap; 2], over: &AtomicBool) -> Result<Lateness> {
    let mut rng = SeededRng::new(seed);
    let mut paths: [Path<Packet>; 2] = [Path::new(&case.forward, &mut rng), Path::new(&case.back, &mut rng)];
    let start = std::time::Instant::now();
    let now = || Instant::from_nanos(start.elapsed().as_nanos() as u64);
    // 50 µs, which the kernel allows itself by default, would be a third of the time that a frame takes here.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000))?;
    let mut late = Lateness::default();
    while !over.load(Ordering::Relaxed) {
        for (from, path) in paths.iter_mut().enumerate() {
            if let Some(due) = path.deadline().filter(|&due| due <= now()) {
                late.note(Duration::from_nanos(now().saturating_since(due).as_nanos()));
            }
            let (first, second) = taps.split_at_mut(1);
            let (near, far) =
                if from == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
            let mut deliver = |path: &mut Path<Packet>| -> Result<()> {
                while let Some(output) = path.poll_output(now()) {
                    // A frame that is too big for a stage has no sender to tell here: it is dropped.
                    if let Output::Deliver(packet) = output {
                        far.transmit(&TxFrame::plain(packet.bytes(), [&[], &[]]))?;
                    }
                }
                Ok(())
            };
            deliver(path)?;
            near.receive(64, &mut |frame| {
                path.handle_frame(now(), Packet::new(Medium::Ethernet, frame.bytes.to_vec()));
            })?;
            deliver(path)?;
        }
        wait(&taps, paths.iter().filter_map(Path::deadline).min(), now())?;
    }
    Ok(late)
}

/// Sleeps until a frame comes in or the path has something to do, and 100 ms at most.
fn wait(taps: &[&mut Tap; 2], deadline: Option<Instant>, now: Instant) -> Result<()> {
    let most = base::Duration::from_millis(100).as_nanos();
    let nanos = deadline.map_or(most, |deadline| deadline.saturating_since(now).as_nanos().min(most));
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: nanos as i64 };
    let mut polled = Vec::with_capacity(2);
    for tap in taps {
        polled.push(PollFd::from_borrowed_fd(
            tap.descriptor().context("the device's descriptor")?,
            PollFlags::IN,
        ));
    }
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
