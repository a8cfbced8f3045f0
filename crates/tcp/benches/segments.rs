//! What one segment costs: two connections back to back without a link, no checksums, no headers as bytes.
//!
//! `cargo bench -p outboard-tcp --bench segments`

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant as Clock;

use base::{Duration, Instant, SeqNumber};
use tcp::{Config, Connection, Ecn, NoMemory, OutputLimit, ReceiveBuffer, SegmentIn, State};

struct Discard(u64);

impl ReceiveBuffer for Discard {
    fn place(&mut self, _offset: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

/// Nanoseconds spent in each call.
#[derive(Default)]
struct Cost {
    data_out: u128,
    data_in: u128,
    ack_out: u128,
    ack_in: u128,
    data_segments: u128,
    acks: u128,
}

fn main() {
    // Fewer under an instruction counter.
    let segments = std::env::var("SEGMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    for (name, max_payload, batch) in [
        ("MTU 1500, batches of 32", 0u32, 32),
        ("MTU 1500, one by one", 0, 1),
        ("64 KiB super-segments", 65_000, 8),
    ] {
        let cost = run(max_payload, batch, segments);
        println!(
            "{name:<24} data out {:>4} ns  data in {:>4} ns  ack out {:>4} ns  ack in {:>4} ns  ({} data, {} acks)",
            cost.data_out / cost.data_segments,
            cost.data_in / cost.data_segments,
            cost.ack_out / cost.acks,
            cost.ack_in / cost.acks,
            cost.data_segments,
            cost.acks
        );
    }
}

fn run(max_payload: u32, batch: usize, segments: usize) -> Cost {
    let config = Config { nodelay: true, initial_window: 4 << 20, ..Config::default() };
    let [a, b] = [([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80)].map(std::net::SocketAddr::from);
    let mut now = Instant::from_millis(1000);
    let limit = OutputLimit { max_payload };
    let mut client = Connection::connect(now, &config, a, b, SeqNumber(1), 0);
    let syn = client.poll_segment(now, &limit).expect("a SYN");
    let segment = |header, payload, now, count| SegmentIn {
        header,
        payload,
        arrival: now,
        segment_count: count,
        ecn: Ecn::NotEct,
    };
    let mut server =
        Connection::accept(now, &config, b, a, SeqNumber(2), 0, &segment(syn.header, &[], now, 1));
    let mut sink = Discard(0);
    let payload = vec![0u8; 65_536];
    let mut cost = Cost::default();
    let mut flight = Vec::with_capacity(batch);
    while cost.data_segments < segments as u128 {
        now += Duration::from_micros(50);
        client.handle_send(client.acked_to() + (8 << 20));
        let start = Clock::now();
        while flight.len() < batch {
            let Some(out) = client.poll_segment(now, &limit) else { break };
            flight.push(out);
        }
        cost.data_out += start.elapsed().as_nanos();
        cost.data_segments += flight.len() as u128;
        let start = Clock::now();
        for out in flight.drain(..) {
            let count = out.len.div_ceil(u32::from(out.segment_size)).max(1) as u16;
            server.handle_segment(
                now,
                &segment(out.header, &payload[..out.len as usize], now, count),
                &mut sink,
            );
        }
        cost.data_in += start.elapsed().as_nanos();
        server.handle_consumed(now, server.received_to());
        let start = Clock::now();
        let Some(ack) = server.poll_segment(now, &limit) else {
            now += Duration::from_millis(41);
            server.handle_deadline(now);
            continue;
        };
        cost.ack_out += start.elapsed().as_nanos();
        cost.acks += 1;
        let start = Clock::now();
        client.handle_segment(now, &segment(ack.header, &[], now, 1), &mut sink);
        cost.ack_in += start.elapsed().as_nanos();
    }
    assert_eq!(client.state(), State::Established);
    assert_eq!(client.stats().retransmissions, 0);
    cost
}
