//! TCP's options against the Linux kernel through a TAP device, in both roles and judged by what passed the device:
//! selective acknowledgements and their reports of duplicates, timestamps, window scaling, keepalive, urgent data. (Fast open and SYN
//! cookies are in `cli/tests/opening.rs`; ECN and path MTU discovery in `path_interop.rs`.)

mod common;
mod interop;

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::SeqNumber;
use lab::{Namespace, lab_test};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, RecvFlags, SendFlags, sockopt};
use stack::{SocketId, SocketOption, StackConfig};
use wire::tcp::{Flags, Header, SackBlock};

use common::{KERNEL, OURS, PATIENCE};
use interop::{Host, Manners, Seen};

const COUNT: usize = 2_000_000;
/// The largest window that can be told without scaling.
const UNSCALED: u32 = 65_535;

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) + (at >> 8)) as u8
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(byte).collect()
}

fn join(thread: JoinHandle<Result<()>>) -> Result<()> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// We are the client and send to the kernel; it reads all of it.
fn sends(kernel: &Namespace, config: StackConfig, manners: Manners) -> Result<(Host, SocketId)> {
    let mut host = kernel.within(|| Host::new(1500, false, config))??;
    let listener = kernel.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 4001)))??;
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut got = vec![0; COUNT];
        stream.read_exact(&mut got)?;
        ensure!(got.iter().enumerate().all(|(at, got)| *got == byte(at)), "the bytes are not those sent");
        Ok(())
    });
    host.manners = manners;
    let id = host.connect(KERNEL, 4001)?;
    host.send(id, &bytes(COUNT))?;
    join(server)?;
    Ok((host, id))
}

/// The kernel is the client and sends to us. `meanwhile` comes before anything is read.
fn receives(
    kernel: &Namespace,
    config: StackConfig,
    manners: Manners,
    meanwhile: impl FnOnce(&mut Host, SocketId) -> Result<()>,
) -> Result<Host> {
    let mut host = kernel.within(|| Host::new(1500, false, config))??;
    let listener = host.listen(5001)?;
    let namespace = kernel.clone();
    let client = std::thread::spawn(move || {
        let mut stream = namespace.within(|| TcpStream::connect((OURS, 5001)))??;
        stream.write_all(&bytes(COUNT))?;
        // Our FIN.
        stream.set_read_timeout(Some(PATIENCE))?;
        ensure!(stream.read_to_end(&mut Vec::new())? == 0, "nothing was sent to the client");
        Ok(())
    });
    host.manners = manners;
    let id = host.accept(listener)?;
    meanwhile(&mut host, id)?;
    host.receive(id, COUNT, byte)?;
    host.stack.tcp_shutdown(id);
    host.run(|_| client.is_finished().then_some(()))?;
    join(client)?;
    Ok(host)
}

fn nothing(_: &mut Host, _: SocketId) -> Result<()> {
    Ok(())
}

/// The TCP segments of the connection that a capture sees opened first, and how much data each carries. What the kernel
/// still says for a connection of a host that has gone (its FIN, again and again) comes to the next host as well.
fn segments(seen: &[Seen]) -> impl Iterator<Item = (&Seen, &Header, usize)> {
    fn ends(header: &Header) -> (u16, u16) {
        (header.src_port.min(header.dst_port), header.src_port.max(header.dst_port))
    }
    let all = || seen.iter().filter_map(|seen| seen.tcp().map(|(header, len)| (seen, header, len)));
    let opening = all().find(|(_, header, _)| header.flags == Flags::SYN).map(|(_, header, _)| ends(header));
    all().filter(move |(_, header, _)| Some(ends(header)) == opening)
}

/// Where the urgent byte is in the tests of it.
const URGENT_AT: usize = 4000;

/// Each segment with data before the urgent byte's end points there, and no other has a pointer.
fn judge_pointers(seen: &[Seen], incoming: bool) -> Result<()> {
    let iss = syn(seen, incoming)?.seq;
    let mut pointers = 0;
    for (_, header, len) in segments(seen).filter(|(packet, ..)| packet.incoming == incoming) {
        let at = header.seq.distance_from(iss + 1) as usize;
        let is_urgent = header.flags.contains(Flags::URG);
        if len > 0 {
            ensure!(is_urgent == (at <= URGENT_AT), "{at} + {len}: {}", header.flags);
        }
        ensure!(!is_urgent || at + usize::from(header.urgent) == URGENT_AT + 1, "{at}: {}", header.urgent);
        pointers += u32::from(is_urgent);
    }
    ensure!(pointers >= 3, "{pointers} segments with a pointer");
    Ok(())
}

/// The SYN of a direction, with or without an acknowledgement.
fn syn(seen: &[Seen], incoming: bool) -> Result<&Header> {
    let mut sent =
        segments(seen).filter(|(packet, _, _)| packet.incoming == incoming).map(|(_, header, _)| header);
    sent.find(|header| header.flags.contains(Flags::SYN)).context("a SYN")
}

/// Ranges of a stream, none touching another.
#[derive(Default)]
struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    fn add(&mut self, mut start: u32, mut end: u32) {
        let first = self.0.partition_point(|&(_, other)| other < start);
        let last = self.0.partition_point(|&(other, _)| other <= end);
        if first < last {
            start = start.min(self.0[first].0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(start, end)]);
    }

    /// What these ranges have of another one.
    fn within(&self, start: u32, end: u32) -> Vec<(u32, u32)> {
        let parts = self.0.iter().map(|&(from, to)| (from.max(start), to.min(end)));
        parts.filter(|(from, to)| from < to).collect()
    }

    /// The range that holds all of this one.
    fn around(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        self.0.iter().copied().find(|&(from, to)| from <= start && end <= to)
    }
}

/// Whether the first block reports a duplicate (RFC 2883 §4).
fn reports_duplicate(header: &Header) -> bool {
    let Some(first) = header.options.sack.first() else { return false };
    let inside = |outer: &SackBlock| !first.start.before(outer.start) && !first.end.after(outer.end);
    first.start.before(header.ack) || header.options.sack.get(1).is_some_and(inside)
}

/// What passed, of the data of one direction and the acknowledgements of the other, as a test of SACK sees it.
#[derive(Debug, Default)]
struct Tally {
    /// Segments that were lost, and that were sent again.
    lost: u32,
    repeats: u32,
    /// Acknowledgements with blocks, and those of them whose first block reports a duplicate.
    selective: u32,
    duplicates: u32,
}

/// Looks at everything in order. Holds our end to: a block is a range of what has arrived, as long as it goes (RFC 2018
/// §3), or a duplicate that came (RFC 2883 §4); and what the other end has reported is not sent again.
fn tally(seen: &[Seen], data_incoming: bool) -> Result<Tally> {
    let initial = syn(seen, data_incoming)?.seq;
    let position = |seq: SeqNumber| seq.distance_from(initial);
    let (mut arrived, mut twice, mut reported) = (Ranges::default(), Ranges::default(), Ranges::default());
    let (mut tally, mut highest) = (Tally::default(), 1);
    for (packet, header, len) in segments(seen) {
        if header.flags.intersects(Flags::SYN | Flags::RST) {
            continue;
        }
        if packet.incoming == data_incoming && len > 0 {
            let (start, end) = (position(header.seq), position(header.seq) + len as u32);
            tally.lost += u32::from(packet.lost);
            tally.repeats += u32::from(start < highest);
            highest = highest.max(end);
            ensure!(
                data_incoming || reported.around(start, end).is_none(),
                "{start}..{end} was reported and is sent again"
            );
            if !packet.lost {
                // What is sent again need not be cut as it was.
                arrived.within(start, end).into_iter().for_each(|(from, to)| twice.add(from, to));
                arrived.add(start, end);
            }
        } else if packet.incoming != data_incoming {
            let duplicate = reports_duplicate(header);
            tally.selective += u32::from(!header.options.sack.is_empty());
            tally.duplicates += u32::from(duplicate);
            for (index, block) in header.options.sack.iter().enumerate() {
                let (start, end) = (position(block.start), position(block.end));
                if duplicate && index == 0 {
                    ensure!(twice.around(start, end).is_some(), "{start}..{end} did not come twice");
                    continue;
                }
                let whole = arrived.around(start, end).context("a block of what has not arrived")?;
                ensure!(!data_incoming || whole == (start, end), "{start}..{end} of {whole:?} is reported");
                reported.add(start, end);
            }
        }
    }
    Ok(tally)
}

/// A counter of the kernel's (`/proc/net/netstat`).
fn counter(kernel: &Namespace, name: &str) -> Result<u64> {
    let text = kernel.within(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))??;
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let mut both = pair[0].split_whitespace().zip(pair[1].split_whitespace());
        if let Some((_, value)) = both.find(|(own, _)| *own == name) {
            return Ok(value.parse()?);
        }
    }
    anyhow::bail!("no counter {name}")
}

/// Timestamps in each segment behind the SYN, or in none. They do not go back, and echo what came (RFC 7323 §3.2, §4.1).
fn judge_stamps(seen: &[Seen], on: bool) -> Result<()> {
    let (mut told, mut last) = ([HashSet::new(), HashSet::new()], [None, None]);
    let mut stamped = 0;
    for (packet, header, _) in segments(seen) {
        let side = usize::from(packet.incoming);
        let opens = header.flags.contains(Flags::SYN) && !header.flags.contains(Flags::ACK);
        let Some(stamps) = header.options.timestamps else {
            ensure!(!on || header.flags.contains(Flags::RST), "a segment without a timestamp: {header:?}");
            continue;
        };
        ensure!(on || opens, "nothing was agreed: {header:?}");
        stamped += 1;
        let back = last[side].is_some_and(|last| (stamps.value.wrapping_sub(last) as i32) < 0);
        ensure!(!back, "a timestamp goes back: {header:?}");
        last[side] = Some(stamps.value);
        told[side].insert(stamps.value);
        ensure!(opens || told[1 - side].contains(&stamps.echo), "the echo of what never came: {header:?}");
    }
    ensure!(!on || stamped > 1000, "{stamped} segments");
    Ok(())
}

/// How far the sender of a direction went beyond what was acknowledged, at the most; and never beyond the window.
fn farthest(seen: &[Seen], data_incoming: bool) -> Result<u32> {
    let (initial, answer) = (syn(seen, data_incoming)?.seq, syn(seen, !data_incoming)?);
    let both = syn(seen, data_incoming)?.options.window_scale.and(answer.options.window_scale);
    let (scale, mut acked) = (both.unwrap_or(0), 1);
    let (mut edge, mut farthest) = (0, 0);
    for (packet, header, len) in segments(seen) {
        if packet.incoming == data_incoming {
            let end = header.seq.distance_from(initial) + len as u32;
            farthest = farthest.max(end.saturating_sub(acked));
            ensure!(len == 0 || end <= edge, "{end} is beyond the window, which ends at {edge}");
        } else if header.flags.contains(Flags::ACK) {
            let shift = if header.flags.contains(Flags::SYN) { 0 } else { scale };
            acked = acked.max(header.ack.distance_from(initial));
            edge = edge.max(header.ack.distance_from(initial) + (u32::from(header.window) << shift));
        }
    }
    Ok(farthest)
}

/// Segments of a direction that are probes of the other's life: from before the sender's next sequence number, without
/// data; and how many acknowledgements followed each.
fn probes(seen: &[Seen], incoming: bool) -> Result<u32> {
    let first = syn(seen, incoming)?.seq;
    let mut next = first + 1;
    let (mut count, mut open) = (0, false);
    for (packet, header, len) in segments(seen) {
        if packet.incoming == incoming {
            let end = header.seq + len as u32;
            open |= len == 0 && header.seq + 1 == next && header.flags == Flags::ACK;
            next = if header.flags.contains(Flags::SYN) { next } else { next.later(end) };
        } else if open && !packet.lost {
            count += 1;
            open = false;
        }
    }
    Ok(count)
}

lab_test! {
    fn what_was_lost_is_reported_and_sent_again(lab) {
        let kernel = lab.namespace("kernel")?;
        let (host, id) = sends(&kernel, StackConfig::default(), Manners { drop_out: 40, ..Manners::default() })?;
        ensure!(syn(&host.seen, false)?.options.sack_permitted && syn(&host.seen, true)?.options.sack_permitted);
        let ours = tally(&host.seen, false)?;
        ensure!(ours.lost >= 30 && ours.selective > 0 && ours.repeats >= ours.lost, "{ours:?}");
        let stats = host.stack.tcp(id).context("a connection")?.stats();
        ensure!(stats.fast_recoveries > 0, "{stats:?}");

        drop(host);

        let manners = Manners { drop_in: 40, ..Manners::default() };
        let host = receives(&kernel, StackConfig::default(), manners, nothing)?;
        ensure!(syn(&host.seen, false)?.options.sack_permitted && syn(&host.seen, true)?.options.sack_permitted);
        let theirs = tally(&host.seen, true)?;
        ensure!(theirs.lost >= 30 && theirs.selective > 0 && theirs.repeats >= theirs.lost, "{theirs:?}");
        ensure!(counter(&kernel, "TCPSackRecovery")? > 0, "the kernel recovers by what it is told");
        Ok(())
    }

    fn losses_are_made_good_without_selective_acknowledgements(lab) {
        let kernel = lab.namespace("kernel")?;
        kernel.set_sysctl("net.ipv4.tcp_sack", "0")?;
        let manners = Manners { drop_out: 100, drop_in: 100, ..Manners::default() };
        let (host, _) = sends(&kernel, StackConfig::default(), manners)?;
        let ours = tally(&host.seen, false)?;
        ensure!(ours.lost > 0 && ours.selective == 0 && ours.repeats >= ours.lost, "{ours:?}");
        ensure!(!syn(&host.seen, true)?.options.sack_permitted, "the kernel does not agree");
        drop(host);
        let host = receives(&kernel, StackConfig::default(), manners, nothing)?;
        let theirs = tally(&host.seen, true)?;
        ensure!(theirs.lost > 0 && theirs.selective == 0 && theirs.repeats >= theirs.lost, "{theirs:?}");
        ensure!(!syn(&host.seen, false)?.options.sack_permitted, "what was not offered is not agreed to");
        Ok(())
    }

    fn what_came_twice_is_reported_and_taken_for_no_loss(lab) {
        let kernel = lab.namespace("kernel")?;
        let (host, id) = sends(&kernel, StackConfig::default(), Manners { repeat_out: 30, ..Manners::default() })?;
        let ours = tally(&host.seen, false)?;
        let stats = host.stack.tcp(id).context("a connection")?.stats();
        ensure!(ours.duplicates > 0 && stats.duplicate_sacks >= ours.duplicates, "{ours:?} {stats:?}");
        ensure!(stats.fast_recoveries == 0, "{stats:?}");

        drop(host);

        let manners = Manners { repeat_in: 30, ..Manners::default() };
        let host = receives(&kernel, StackConfig::default(), manners, nothing)?;
        let theirs = tally(&host.seen, true)?;
        ensure!(theirs.duplicates > 0, "{theirs:?}");
        ensure!(counter(&kernel, "TCPDSACKRecv")? >= u64::from(theirs.duplicates), "the kernel understands: {theirs:?}");
        Ok(())
    }

    fn timestamps_are_on_each_segment_or_on_none(lab) {
        for on in [true, false] {
            // Another one: the connections of the one before may not be over.
            let kernel = lab.namespace(if on { "stamped" } else { "plain" })?;
            kernel.set_sysctl("net.ipv4.tcp_timestamps", if on { "1" } else { "0" })?;
            let (host, id) = sends(&kernel, StackConfig::default(), Manners::default())?;
            judge_stamps(&host.seen, on)?;
            let mss = host.stack.tcp(id).context("a connection")?.mss();
            ensure!(mss == if on { 1448 } else { 1460 }, "{mss}");
            drop(host);
            let host = receives(&kernel, StackConfig::default(), Manners::default(), nothing)?;
            judge_stamps(&host.seen, on)?;
        }
        Ok(())
    }

    fn windows_are_scaled_or_stay_under_64_kib(lab) {
        // Without a reader a window is used up to its end.
        let tcp = tcp::Config { initial_window: 1 << 20, ..tcp::Config::default() };
        let config = StackConfig { tcp, ..StackConfig::default() };
        for on in [true, false] {
            // A namespace for each connection: the kernel would know the last one when the next begins, between the same ends.
            let [reader, writer] = [lab.namespace("reader")?, lab.namespace("writer")?];
            for kernel in [&reader, &writer] {
                kernel.set_sysctl("net.ipv4.tcp_window_scaling", if on { "1" } else { "0" })?;
            }
            // Room for more than 64 KiB however seldom its program reads.
            reader.set_sysctl("net.ipv4.tcp_rmem", "4096 1048576 6291456")?;
            let (host, _) = sends(&reader, config.clone(), Manners::default())?;
            ensure!(syn(&host.seen, true)?.options.window_scale.is_some() == on, "what the kernel says");
            let far = farthest(&host.seen, false)?;
            ensure!(on || far <= UNSCALED, "{far}");
            ensure!(!on || far > UNSCALED, "the kernel's window goes beyond what can be told without scaling: {far}");

            drop(host);
            let unread = |host: &mut Host, id: SocketId| {
                host.run(|host| {
                    let received = host.stack.tcp(id)?.received_to();
                    let closed = host.stack.tcp(id)?.info().receive_window == 0;
                    (received > 4 * u64::from(UNSCALED) || closed).then_some(())
                })?;
                let received = host.stack.tcp(id).context("a connection")?.received_to();
                ensure!((received > u64::from(UNSCALED)) == on, "{received} bytes fit a window");
                Ok(())
            };
            let host = receives(&writer, config.clone(), Manners::default(), unread)?;
            ensure!(syn(&host.seen, false)?.options.window_scale.is_some() == on, "as the kernel asks, so it is answered");
            ensure!(on || farthest(&host.seen, true)? <= UNSCALED);
        }
        Ok(())
    }

    fn our_urgent_byte_is_one_to_the_kernel(lab) {
        let kernel = lab.namespace("kernel")?;
        let mut host = kernel.within(|| Host::new(1500, false, StackConfig::default()))??;
        let listener = kernel.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 4001)))??;
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut entries = [PollFd::new(&stream, PollFlags::PRI)];
            poll(&mut entries, Some(&Timespec { tv_sec: 20, tv_nsec: 0 }))?;
            let mut urgent = [0];
            net::recv(&stream, &mut urgent, RecvFlags::OOB)?;
            ensure!(urgent[0] == byte(URGENT_AT), "{urgent:?}");
            let mut before = vec![0; URGENT_AT];
            stream.read_exact(&mut before)?;
            ensure!(lab::is_at_mark(&stream)? && (0..URGENT_AT).all(|at| before[at] == byte(at)));
            let mut after = [0; 99];
            stream.read_exact(&mut after)?;
            ensure!((0..99).all(|at| after[at] == byte(URGENT_AT + 1 + at)), "the byte is out of the line");
            Ok(())
        });
        let id = host.connect(KERNEL, 4001)?;
        let queued = host.stack.stream(id).context("a connection")?.write(&bytes(URGENT_AT + 1));
        host.stack.tcp_send_urgent(id, queued, queued);
        host.run(|host| (host.stack.tcp(id)?.acked_to() >= queued).then_some(()))?;
        host.send(id, &bytes(URGENT_AT + 100)[URGENT_AT + 1..])?;
        join(server)?;
        judge_pointers(&host.seen, false)
    }

    fn the_kernels_urgent_byte_is_one_to_us(lab) {
        let kernel = lab.namespace("kernel")?;
        let mut host = kernel.within(|| Host::new(1500, false, StackConfig::default()))??;
        let listener = host.listen(5001)?;
        let namespace = kernel.clone();
        let client = std::thread::spawn(move || {
            let mut stream = namespace.within(|| TcpStream::connect((OURS, 5001)))??;
            let all = bytes(URGENT_AT + 100);
            net::send(&stream, &all[..=URGENT_AT], SendFlags::OOB)?;
            stream.write_all(&all[URGENT_AT + 1..])?;
            stream.set_read_timeout(Some(PATIENCE))?;
            ensure!(stream.read(&mut [0])? == 0, "nothing was sent to the client");
            Ok(())
        });
        let id = host.accept(listener)?;
        let mark = host.run(|host| host.stack.tcp(id)?.urgent().filter(|mark| mark.byte.is_some()))?;
        ensure!(mark.offset == Some(URGENT_AT as u64) && mark.byte == Some(byte(URGENT_AT)), "{mark:?}");
        host.receive(id, URGENT_AT + 100, byte)?;
        host.stack.tcp_shutdown(id);
        host.run(|_| client.is_finished().then_some(()))?;
        join(client)?;
        judge_pointers(&host.seen, true)
    }

    fn our_probes_keep_a_connection_until_nobody_answers(lab) {
        let kernel = lab.namespace("kernel")?;
        let mut host = kernel.within(|| Host::new(1500, false, StackConfig::default()))??;
        let listener = kernel.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 4001)))??;
        let id = host.connect(KERNEL, 4001)?;
        let second = base::Duration::from_secs(1);
        let keepalive = tcp::Keepalive { idle: second, interval: second, count: 2 };
        let now = host.now();
        host.stack.set_option(now, id, SocketOption::Keepalive(Some(keepalive)))?;
        host.run(|host| (probes(&host.seen, false).ok()? >= 2).then_some(()))?;
        ensure!(host.stack.tcp(id).is_some_and(|connection| connection.error().is_none()), "the kernel answers");
        host.manners.cut = true;
        let error = host.run(|host| host.stack.tcp(id)?.error())?;
        ensure!(error == tcp::Error::TimedOut, "{error:?}");
        drop(listener);
        Ok(())
    }

    fn the_kernels_probes_are_answered_until_we_are_gone(lab) {
        let kernel = lab.namespace("kernel")?;
        let mut host = kernel.within(|| Host::new(1500, false, StackConfig::default()))??;
        let listener = host.listen(5001)?;
        let namespace = kernel.clone();
        let (give, take) = std::sync::mpsc::channel();
        let client = std::thread::spawn(move || {
            let mut stream = namespace.within(|| TcpStream::connect((OURS, 5001)))??;
            sockopt::set_tcp_keepidle(&stream, Duration::from_secs(1))?;
            sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
            // Many: the machine may stand still for a while, and the host with it.
            sockopt::set_tcp_keepcnt(&stream, 30)?;
            sockopt::set_socket_keepalive(&stream, true)?;
            give.send(stream.try_clone()?)?;
            let error = stream.read(&mut [0]).err().context("nothing is ever sent")?;
            ensure!(error.kind() == ErrorKind::TimedOut, "{error}");
            Ok(())
        });
        let id = host.accept(listener)?;
        host.run(|host| (probes(&host.seen, true).ok()? >= 2).then_some(()))?;
        ensure!(!client.is_finished() && host.stack.tcp(id).is_some_and(|connection| connection.error().is_none()));
        host.manners.cut = true;
        sockopt::set_tcp_keepcnt(take.recv()?, 2)?;
        host.run(|_| client.is_finished().then_some(()))?;
        join(client)
    }
}
