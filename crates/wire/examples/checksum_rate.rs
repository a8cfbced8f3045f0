//! How fast checksums are on this machine: `cargo run --release -p outboard-wire --example checksum_rate`.

use std::hint::black_box;
use std::time::Instant;

use outboard_wire::checksum::Sum;

#[expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn rate(name: &str, bytes: usize, rounds: usize, mut work: impl FnMut()) {
    work();
    let start = Instant::now();
    for _ in 0..rounds {
        work();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name:>24} {bytes:>6} bytes: {:6.2} GB/s, {:7.1} ns",
        (bytes * rounds) as f64 / seconds / 1e9,
        seconds / rounds as f64 * 1e9
    );
}

fn main() {
    for bytes in [20, 64, 536, 1460, 8960, 65_536, 1 << 20] {
        let data: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let mut copy = vec![0; bytes];
        let rounds = (1 << 31) / bytes.max(200);
        rate("sum", bytes, rounds, || {
            black_box(Sum::of(black_box(&data)).finish());
        });
        rate("copy and sum", bytes, rounds, || {
            black_box(Sum::ZERO.copy_and_add(black_box(&mut copy), black_box(&data)).finish());
        });
        rate("copy", bytes, rounds, || black_box(&mut copy).copy_from_slice(black_box(&data)));
    }
}
