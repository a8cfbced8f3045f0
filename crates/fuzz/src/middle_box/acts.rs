//! What the middle box and the applications do.

use base::{Duration, SeqNumber};
use tcp::{CongestionAlgorithm, Connection, Ecn, IcmpError, Keepalive};
use wire::tcp::{Flags, Header, SackBlock, Timestamps};

use super::end::pattern;
use super::{Flying, ISS, USUAL, World};
use crate::input::Input;

/// No application queues more than this.
const LONGEST_STREAM: u64 = 300_000;

/// One act, chosen by the next byte: the side in its top bit.
pub(crate) fn act(world: &mut World, input: &mut Input<'_>) {
    let choice = input.byte();
    let side = usize::from(choice >> 7);
    match choice & 31 {
        0..=2 => world.deliver(side),
        3 => {
            for _ in 0..input.below(40) {
                world.deliver(side);
            }
        }
        4 => drop(world.links[side].pop_front()),
        5 => repeat(world, side, input),
        6 => exchange(world, side, input),
        7 => split(world, side, input),
        8 => join(world, side),
        9 => {
            if let Some(flying) = world.links[side].front_mut().filter(|flying| flying.ecn != Ecn::NotEct) {
                flying.ecn = Ecn::Ce;
            }
        }
        10 => world.pass_to(world.now + Duration::from_micros(u64::from(input.u16()) * 10)),
        11 => world.pass_to_deadline(),
        12 | 13 => {
            let conn = &mut world.ends[side].conn;
            let more = u64::from(input.u16());
            let queued_to = (conn.queued_to() + more).min(LONGEST_STREAM).max(conn.queued_to());
            if more & 7 == 7 {
                conn.handle_send_urgent(queued_to, queued_to);
            } else {
                conn.handle_send(queued_to);
            }
        }
        14 | 15 => world.ends[side].read(world.now),
        16 => read_some(world, side, input),
        17 => world.ends[side].conn.handle_shutdown(),
        18 => end(world, side, input),
        19 => restart(world, side),
        20..=22 => forge(world, side, input),
        23 | 24 => change(world, side, input),
        25 => router(world, side, input),
        26..=28 => option(world, side, input),
        29 => world.ends[side].buffer.full = input.bit(),
        30 => rounds(world, input),
        _ => world.pass_to(world.now + Duration::from_millis(u64::from(input.u16()))),
    }
}

/// A clean path for a while.
fn rounds(world: &mut World, input: &mut Input<'_>) {
    for _ in 0..input.below(16) {
        for side in 0..2 {
            for _ in 0..world.links[side].len() {
                world.deliver(side);
            }
            world.ends[side].read(world.now);
        }
        world.pump();
        world.pass_to(world.now + Duration::from_millis(10));
    }
}

fn repeat(world: &mut World, side: usize, input: &mut Input<'_>) {
    let link = &mut world.links[side];
    if let Some(flying) = link.get(input.below(link.len())).cloned() {
        let at = input.below(link.len() + 1).min(link.len());
        link.insert(at, flying);
    }
}

fn exchange(world: &mut World, side: usize, input: &mut Input<'_>) {
    let link = &mut world.links[side];
    if !link.is_empty() {
        let (one, other) = (input.below(link.len()), input.below(link.len()));
        link.swap(one, other);
    }
}

/// As a router that cuts a super-segment, or any.
fn split(world: &mut World, side: usize, input: &mut Input<'_>) {
    let Some(mut first) = world.links[side].pop_front() else { return };
    let at = usize::from(input.u16()) % first.payload.len().max(1);
    if at > 0 {
        let mut second = first.clone();
        second.payload = first.payload.split_off(at);
        second.header.seq += at as u32;
        let last = Flags::FIN | Flags::PSH;
        first.header.flags = first.header.flags.difference(last);
        (first.count, second.count) = (first.count.div_ceil(2), (first.count / 2).max(1));
        world.links[side].push_front(second);
    }
    world.links[side].push_front(first);
}

/// As a device that puts neighbours together.
fn join(world: &mut World, side: usize) {
    let link = &mut world.links[side];
    let [Some(first), Some(second)] = [link.front(), link.get(1)] else { return };
    let follows = second.header.seq == first.header.seq + first.payload.len() as u32
        && !first.payload.is_empty()
        && !second.payload.is_empty()
        && first.header.flags.difference(Flags::PSH) == Flags::ACK
        && second.header.flags.difference(Flags::PSH | Flags::FIN) == Flags::ACK
        && first.header.options == second.header.options
        && first.header.ack == second.header.ack
        && first.payload.len() + second.payload.len() < 65_000;
    if follows && let (Some(mut first), Some(second)) = (link.pop_front(), link.pop_front()) {
        first.payload.extend_from_slice(&second.payload);
        first.header.flags |= second.header.flags;
        first.header.window = second.header.window;
        first.count = first.count.saturating_add(second.count);
        first.forged |= second.forged;
        link.push_front(first);
    }
}

fn read_some(world: &mut World, side: usize, input: &mut Input<'_>) {
    let conn = &mut world.ends[side].conn;
    let to = conn.consumed_to() + u64::from(input.u16());
    let to = to.min(conn.received_to());
    conn.handle_consumed(world.now, to);
}

fn end(world: &mut World, side: usize, input: &mut Input<'_>) {
    world.may_fail = true;
    let conn = &mut world.ends[side].conn;
    if input.bit() { conn.handle_abort() } else { conn.handle_close(world.now) }
}

fn restart(world: &mut World, side: usize) {
    let end = &mut world.ends[side];
    match Connection::restore(&end.conn.snapshot(), world.now) {
        Ok(conn) => end.conn = conn,
        Err(error) => panic!("{error}: {:#?}", end.conn),
    }
    end.buffer.restart(end.conn.received_to());
}

/// A segment out of nothing, like the last that the other end sent.
fn forge(world: &mut World, side: usize, input: &mut Input<'_>) {
    let Some(mut header) = world.last[1 - side].clone() else { return };
    world.may_fail = true;
    let usual = input.below(2 * USUAL.len());
    if let Some(&flags) = USUAL.get(usual) {
        header.flags = flags;
    }
    mangle(&mut header, input);
    let len = if input.bit() { usize::from(input.u16() % 4000) } else { 0 };
    let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ce][input.below(3)];
    let payload = payload(world, side, &header, len);
    let flying = Flying { header, payload, count: 1 + u16::from(input.byte() & 7), ecn, forged: true };
    world.links[side].push_front(flying);
    world.deliver(side);
}

/// Changes the header of what comes next.
fn change(world: &mut World, side: usize, input: &mut Input<'_>) {
    let Some(mut flying) = world.links[side].pop_front() else { return };
    world.may_fail = true;
    mangle(&mut flying.header, input);
    flying.payload = payload(world, side, &flying.header, flying.payload.len());
    flying.forged = true;
    world.links[side].push_front(flying);
}

/// The bytes that the stream towards `side` has where `header` says it is: no end can tell such a segment from a true one.
fn payload(world: &World, side: usize, header: &Header, len: usize) -> Vec<u8> {
    let received = world.ends[side].conn.received_to();
    let expected = SeqNumber(ISS[1 - side]) + 1 + received as u32;
    let syn = u32::from(header.flags.contains(Flags::SYN));
    let from = received as i64 + i64::from((header.seq + syn).distance_from(expected) as i32);
    (0..len as i64).map(|at| pattern(1 - side, from.wrapping_add(at) as u64)).collect()
}

/// Changes one to four things of a header.
pub(crate) fn mangle(header: &mut Header, input: &mut Input<'_>) {
    for _ in 0..1 + input.below(4) {
        let options = &mut header.options;
        match input.below(14) {
            0 => header.flags = Flags::from_bits_truncate(input.u16() & 0x1ff),
            1 => header.flags ^= Flags::from_bits_truncate(1 << (input.byte() % 9)),
            2 | 3 => header.seq += input.nasty() as u32,
            4 | 5 => header.ack += input.nasty() as u32,
            6 => header.window = input.nasty() as u16,
            7 => header.urgent = input.u16(),
            8 => options.mss = input.bit().then(|| input.nasty() as u16),
            9 => options.window_scale = input.bit().then(|| input.byte()),
            10 => options.sack_permitted = input.bit(),
            11 => {
                let stamps = options.timestamps.unwrap_or(Timestamps { value: 0, echo: 0 });
                options.timestamps = input.bit().then(|| Timestamps {
                    value: stamps.value.wrapping_add(input.nasty() as u32),
                    echo: stamps.echo.wrapping_add(input.nasty() as u32),
                });
            }
            12 => {
                let start = header.ack + input.nasty() as u32;
                let _ = options.sack.try_push(SackBlock { start, end: start + input.nasty() as u32 });
            }
            _ => {
                options.user_timeout = input.bit().then(|| input.u16());
                options.fast_open = input.bit().then(|| input.take(8).iter().copied().collect());
            }
        }
    }
}

/// What a router says of a segment that `side` sent.
fn router(world: &mut World, side: usize, input: &mut Input<'_>) {
    let mut seq = world.links[1 - side].front().map_or(SeqNumber(ISS[side]) + 1, |flying| flying.header.seq);
    if input.below(4) == 0 {
        seq += input.nasty() as u32;
    }
    let (now, conn) = (world.now, &mut world.ends[side].conn);
    match input.below(8) {
        0..=3 => {
            conn.handle_too_big(now, input.nasty() as u16, seq);
        }
        4 => conn.handle_path_mtu(input.nasty() as u16),
        error => {
            world.may_fail = true;
            let error =
                [IcmpError::HostUnreachable, IcmpError::PortUnreachable, IcmpError::TimeExceeded][error - 5];
            conn.handle_icmp_error(error, seq);
        }
    }
}

fn option(world: &mut World, side: usize, input: &mut Input<'_>) {
    let (now, conn) = (world.now, &mut world.ends[side].conn);
    match input.below(11) {
        0 => conn.set_nodelay(input.bit()),
        1 => conn.set_cork(input.bit()),
        2 => conn.set_quickack(input.bit()),
        3 => {
            world.may_fail = true;
            let [idle, interval] = [input.byte(), input.byte()].map(|s| Duration::from_secs(s.into()));
            let count = input.byte();
            conn.set_keepalive(now, input.bit().then_some(Keepalive { idle, interval, count }));
        }
        4 => conn.set_congestion(CongestionAlgorithm::ALL[input.below(3)]),
        5 => conn.set_linger2(Duration::from_millis(input.nasty() & 0xffff_ffff)),
        6 => {
            world.may_fail = true;
            conn.set_user_timeout(input.bit().then(|| Duration::from_millis(input.nasty() & 0xffff_ffff)));
        }
        // The least that the stack lets an application ask for: a window of a byte takes for ever.
        7 => conn.set_receive_limit((input.nasty() as u32).max(2304)),
        8 => conn.set_window_share(input.nasty() as u32),
        9 => {
            let _ = conn.tcp_info(now);
        }
        _ => conn.handle_succeeded(),
    }
}
