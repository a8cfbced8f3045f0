//! What a connection knows of its path, against the Linux kernel and judged by what passed the device: the path's MTU from
//! a router and without its word, congestion marks with classic and with accurate feedback, in both roles.

mod common;
mod interop;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use lab::{Lab, Link, LinkEnd, Namespace, lab_test};
use stack::StackConfig;
use tcp::AccurateEcn;
use wire::icmpv4::{Message, unreachable};
use wire::ip::Ecn;
use wire::tcp::Flags;

use common::{KERNEL, OURS, PATIENCE};
use interop::{Host, Kind, Manners, Seen};

const FAR: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const ACE: Flags = Flags::AE.union(Flags::CWR).union(Flags::ECE);

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) + (at >> 8)) as u8
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(byte).collect()
}

/// A kernel's server inside `namespace` that reads what a client sends, up to its end, and answers with one byte.
fn reader(namespace: &Namespace, port: u16, count: usize) -> Result<JoinHandle<Result<()>>> {
    let listener = namespace.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))??;
    Ok(std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut got = vec![0; count];
        stream.read_exact(&mut got)?;
        ensure!(got.iter().enumerate().all(|(at, got)| *got == byte(at)), "the bytes are not those sent");
        Ok(())
    }))
}

fn join(thread: JoinHandle<Result<()>>) -> Result<()> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A router with the TAP device, and a server behind a narrower link, which announces that it could take more.
fn far_server(lab: &Lab, mtu: u32) -> Result<(Namespace, Namespace)> {
    let (router, server) = (lab.namespace("router")?, lab.namespace("server")?);
    let end = |namespace, device, last| LinkEnd {
        namespace,
        device,
        address: Ipv4Addr::new(10, 2, 0, last).into(),
    };
    Link { ends: [end(&router, "far0", 1), end(&server, "near0", 2)], prefix: 24, mtu }.make()?;
    router.set_sysctl("net.ipv4.ip_forward", "1")?;
    server.ip("route add 10.1.0.0/24 via 10.2.0.1 advmss 8000")?;
    Ok((router, server))
}

/// The routers' words in a capture: at which packet, and the MTU that they name.
fn too_big(seen: &[Seen]) -> Vec<(usize, u16)> {
    let word = |seen: &Seen| match seen.kind {
        Kind::Icmp(Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu }) => {
            Some(next_hop_mtu)
        }
        _ => None,
    };
    seen.iter().enumerate().filter_map(|(at, seen)| word(seen).map(|mtu| (at, mtu))).collect()
}

fn longest(seen: &[Seen]) -> usize {
    seen.iter().filter(|seen| !seen.incoming).map(|seen| seen.packet_len).max().unwrap_or(0)
}

/// Both ends' ECN flags in the SYN and the SYN-ACK.
fn handshake(seen: &[Seen]) -> Result<(Flags, Flags)> {
    let bits = |answer: bool| {
        let flags = seen.iter().filter_map(|seen| seen.tcp()).map(|(header, _)| header.flags);
        let mut syns =
            flags.filter(|flags| flags.contains(Flags::SYN) && flags.contains(Flags::ACK) == answer);
        syns.next().map(|flags| flags.intersection(ACE))
    };
    Ok((bits(false).context("a SYN")?, bits(true).context("a SYN-ACK")?))
}

/// Whether this kernel can give accurate feedback (RFC 9768): its code came with Linux 6.18, the setting later.
fn is_accurate(kernel: &Namespace) -> bool {
    let knows = kernel.set_sysctl("net.ipv4.tcp_ecn", "3").is_ok();
    if !knows {
        println!("not compared: this kernel gives no accurate ECN feedback");
    }
    knows
}

/// For tests that allow no retransmission timeout: one comes where nothing else repairs a loss, and not where the machine
/// stands still for a moment.
fn patient() -> tcp::Config {
    tcp::Config { rto_min: base::Duration::from_secs(10), ..tcp::Config::default() }
}

fn ecn_config(ecn: bool, accurate_ecn: AccurateEcn) -> StackConfig {
    let tcp = tcp::Config { ecn, accurate_ecn, ..patient() };
    StackConfig { tcp, ..StackConfig::default() }
}

/// We send to the kernel, and the device marks some of it. Returns the host with what it saw.
fn marked_on_the_way_out(
    kernel: &Namespace,
    tcp_ecn: &str,
    config: StackConfig,
) -> Result<(Host, Flags, Flags)> {
    kernel.set_sysctl("net.ipv4.tcp_ecn", tcp_ecn)?;
    let mut host = kernel.within(|| Host::new(1500, false, config))??;
    let server = reader(kernel, 4001, 3_000_000)?;
    host.manners = Manners { mark_out: 200, ..Manners::default() };
    let id = host.connect(KERNEL, 4001)?;
    host.send(id, &bytes(3_000_000))?;
    join(server)?;
    let (syn, answer) = handshake(&host.seen)?;
    ensure!(host.marked.0 >= 5, "{} marks", host.marked.0);
    let stats = host.stack.tcp(id).context("a connection")?.stats();
    ensure!(stats.congestion_echoes > 0, "the marks are heard of: {stats:?}");
    ensure!(stats.timeouts == 0, "{stats:?}");
    Ok((host, syn, answer))
}

/// The kernel sends to us, and the device marks some of it. Returns the host with what it saw.
fn marked_on_the_way_in(
    kernel: &Namespace,
    tcp_ecn: &str,
    config: StackConfig,
) -> Result<(Host, Flags, Flags)> {
    kernel.set_sysctl("net.ipv4.tcp_ecn", tcp_ecn)?;
    let mut host = kernel.within(|| Host::new(1500, false, config))??;
    let listener = host.listen(5001)?;
    host.manners = Manners { mark_in: 200, ..Manners::default() };
    let namespace = kernel.clone();
    let client = std::thread::spawn(move || {
        let mut stream = namespace.within(|| TcpStream::connect((OURS, 5001)))??;
        stream.write_all(&bytes(3_000_000))?;
        let mut end = [0];
        let _ = stream.read(&mut end)?;
        Ok(())
    });
    let id = host.accept(listener)?;
    host.receive(id, 3_000_000, byte)?;
    let now = host.now();
    host.stack.close(now, id)?;
    host.run(|host| (host.stack.socket_count() <= 2 && client.is_finished()).then_some(()))?;
    join(client)?;
    let (syn, answer) = handshake(&host.seen)?;
    ensure!(host.marked.1 >= 5, "{} marks", host.marked.1);
    Ok((host, syn, answer))
}

/// The numbers that a direction's ACE fields went through, without repetition, from the first with `after` on.
fn ace_numbers(seen: &[Seen], incoming: bool) -> Vec<u8> {
    let number = |flags: Flags| {
        u8::from(flags.contains(Flags::AE)) << 2
            | u8::from(flags.contains(Flags::CWR)) << 1
            | u8::from(flags.contains(Flags::ECE))
    };
    let headers = seen.iter().filter(|seen| seen.incoming == incoming).filter_map(|seen| seen.tcp());
    let mut numbers: Vec<u8> = headers
        .filter(|(header, _)| !header.flags.intersects(Flags::SYN | Flags::RST))
        .map(|(header, _)| number(header.flags))
        .collect();
    numbers.dedup();
    numbers
}

/// How far a counter of three bits went, if no step was longer than seven.
fn counted(numbers: &[u8]) -> u32 {
    numbers.windows(2).map(|pair| u32::from(pair[1].wrapping_sub(pair[0]) & 7)).sum()
}

lab_test! {
    fn a_routers_word_makes_segments_fit_and_is_remembered(lab) {
        for offload in [true, false] {
            let (router, server) = far_server(lab, 1300)?;
            let config = StackConfig { tcp: patient(), ..StackConfig::default() };
            let mut host = router.within(|| Host::new(1500, offload, config))??;
            let first = reader(&server, 4001, 2_000_000)?;
            let id = host.connect(FAR, 4001)?;
            host.send(id, &bytes(2_000_000))?;
            join(first)?;
            let words = too_big(&host.seen);
            ensure!(!words.is_empty() && words.iter().all(|(_, mtu)| *mtu == 1300), "{words:?}");
            ensure!(longest(&host.seen[..words[0].0]) == 1500, "at first whatever the link takes");
            // What had been given out before the last word came is gone by then.
            let last = words[words.len() - 1].0;
            ensure!(longest(&host.seen[last + 1..]) == 1300, "then what the path takes: {}", longest(&host.seen[last..]));
            let connection = host.stack.tcp(id).context("a connection")?;
            ensure!(connection.mss() == 1300 - 52 && connection.stats().timeouts == 0, "{:?}", connection.stats());
            // The next connection knows.
            let second = reader(&server, 4002, 200_000)?;
            let (at, id) = (host.seen.len(), host.connect(FAR, 4002)?);
            host.send(id, &bytes(200_000))?;
            join(second)?;
            ensure!(longest(&host.seen[at..]) == 1300 && too_big(&host.seen[at..]).is_empty(), "it was remembered");
        }
        Ok(())
    }

    fn a_black_hole_is_crossed(lab) {
        for (mtu, path_mtu) in [(1500, 1300), (9000, 1500)] {
            let (router, server) = far_server(lab, path_mtu)?;
            let mut host = router.within(|| Host::new(mtu, true, StackConfig::default()))??;
            host.manners.drop_icmp = true;
            let thread = reader(&server, 4001, 6_000_000)?;
            let id = host.connect(FAR, 4001)?;
            host.send(id, &bytes(6_000_000))?;
            join(thread)?;
            let connection = host.stack.tcp(id).context("a connection")?;
            let (stats, found) = (connection.stats(), u32::from(connection.mss()) + 52);
            ensure!((path_mtu - 8..=path_mtu).contains(&found), "{mtu} over {path_mtu}: {found}, {stats:?}");
            ensure!(stats.black_holes == 1 && stats.mtu_raises > 0, "{stats:?}");
        }
        Ok(())
    }

    fn classic_marks_as_a_sender(lab) {
        let kernel = lab.namespace("kernel")?;
        let (host, syn, answer) = marked_on_the_way_out(&kernel, "1", ecn_config(true, AccurateEcn::Accept))?;
        ensure!((syn, answer) == (Flags::ECE | Flags::CWR, Flags::ECE), "{syn:?} {answer:?}");
        let flags = |incoming: bool, flag: Flags| {
            let headers = host.seen.iter().filter(|seen| seen.incoming == incoming).filter_map(|seen| seen.tcp());
            headers.filter(|(header, _)| !header.flags.contains(Flags::SYN) && header.flags.contains(flag)).count()
        };
        ensure!(flags(true, Flags::ECE) > 0 && flags(false, Flags::CWR) > 0, "echoed, and answered");
        ensure!(flags(false, Flags::ECE) == 0, "nothing of the kernel's was marked");
        let capable = |seen: &&Seen| !seen.incoming && seen.ecn != Ecn::NotEct;
        let data = host.seen.iter().filter(capable).filter_map(|seen| seen.tcp()).all(|(_, len)| len > 0);
        ensure!(data, "only data is sent as ECN-capable (RFC 3168 §6.1.4)");
        Ok(())
    }

    fn classic_marks_as_a_receiver(lab) {
        let kernel = lab.namespace("kernel")?;
        let (host, syn, answer) = marked_on_the_way_in(&kernel, "1", ecn_config(false, AccurateEcn::Accept))?;
        ensure!((syn, answer) == (Flags::ECE | Flags::CWR, Flags::ECE), "the kernel asks: {syn:?} {answer:?}");
        // From the first mark on every acknowledgement echoes it, until one with CWR has come.
        let mut echoes = false;
        let mut ended = 0;
        for (header, len, incoming, ecn) in
            host.seen.iter().filter_map(|seen| seen.tcp().map(|(header, len)| (header, len, seen.incoming, seen.ecn)))
        {
            if header.flags.intersects(Flags::SYN | Flags::RST) {
                continue;
            }
            if incoming && len > 0 {
                if header.flags.contains(Flags::CWR) {
                    ended += u32::from(echoes);
                    echoes = false;
                }
                echoes |= ecn == Ecn::Ce;
            } else if !incoming {
                ensure!(header.flags.contains(Flags::ECE) == echoes, "an echo is wrong or missing");
            }
        }
        ensure!(ended > 0, "the kernel said that it reduced its window");
        Ok(())
    }

    fn accurate_marks_as_a_client(lab) {
        let kernel = lab.namespace("kernel")?;
        if !is_accurate(&kernel) {
            return Ok(());
        }
        let (host, syn, answer) = marked_on_the_way_out(&kernel, "3", ecn_config(true, AccurateEcn::Offer))?;
        ensure!(syn == ACE && answer == Flags::CWR, "asked, and the SYN came unmarked: {syn:?} {answer:?}");
        ensure!(ace_numbers(&host.seen, false)[..2] == [0b010, 5], "how the SYN-ACK came, then the count");
        let told = ace_numbers(&host.seen, true);
        ensure!(told[0] == 5 && counted(&told) == host.marked.0, "{} marks, told {told:?}", host.marked.0);
        let stats = host.stack.connections().find_map(|info| host.stack.tcp(info.id?)).context("a connection")?.stats();
        ensure!(stats.marks_told == host.marked.0, "{stats:?}");
        Ok(())
    }

    fn accurate_marks_as_a_server(lab) {
        let kernel = lab.namespace("kernel")?;
        if !is_accurate(&kernel) {
            return Ok(());
        }
        let (host, syn, answer) = marked_on_the_way_in(&kernel, "3", ecn_config(false, AccurateEcn::Accept))?;
        ensure!(syn == ACE && answer == Flags::CWR, "{syn:?} {answer:?}");
        ensure!(ace_numbers(&host.seen, true)[..2] == [0b010, 5], "the kernel tells how the SYN-ACK came");
        let told = ace_numbers(&host.seen, false);
        ensure!(told[0] == 5 && counted(&told) == host.marked.1, "{} marks, told {told:?}", host.marked.1);
        Ok(())
    }

    fn whoever_cannot_falls_back(lab) {
        for (tcp_ecn, config, expected) in [
            // We offer accurate feedback; the kernel knows the classic one, or none.
            ("1", ecn_config(true, AccurateEcn::Offer), (ACE, Flags::ECE)),
            ("0", ecn_config(true, AccurateEcn::Offer), (ACE, Flags::empty())),
        ] {
            // Another one: the kernel would know the last connection when the next begins, between the same ends.
            let kernel = lab.namespace("kernel")?;
            kernel.set_sysctl("net.ipv4.tcp_ecn", tcp_ecn)?;
            let mut host = kernel.within(|| Host::new(1500, true, config))??;
            let server = reader(&kernel, 4001, 300_000)?;
            let id = host.connect(KERNEL, 4001)?;
            host.send(id, &bytes(300_000))?;
            join(server)?;
            ensure!(handshake(&host.seen)? == expected, "tcp_ecn {tcp_ecn}: {:?}", handshake(&host.seen)?);
            let info = host.stack.tcp(id).context("a connection")?.info();
            ensure!((info.ecn, info.accurate_ecn) == (tcp_ecn == "1", false), "{info:?}");
        }
        // The kernel offers it to a host that does not know it.
        let kernel = lab.namespace("kernel")?;
        if !is_accurate(&kernel) {
            return Ok(());
        }
        let config = ecn_config(true, AccurateEcn::Off);
        let (_, syn, answer) = marked_on_the_way_in(&kernel, "3", config)?;
        ensure!((syn, answer) == (ACE, Flags::ECE), "{syn:?} {answer:?}");
        Ok(())
    }
}
