//! How long a simulated transfer takes in real time: 10 GB at 527 Mbit/s and 45 ms by default.
//!
//! `cargo run --release -p outboard-sim --example speed -- [GIGABYTES]`

use std::process::ExitCode;

use sim::experiment::Transfer;
use sim::experiment::reference::{BACK, FORWARD, MTU, WINDOW};

fn main() -> ExitCode {
    let gigabytes = std::env::args().nth(1).map_or(Ok(10.0), |text| text.parse::<f64>());
    let Ok(gigabytes) = gigabytes else {
        eprintln!("usage: speed [GIGABYTES]");
        return ExitCode::from(2);
    };
    let mut transfer = match Transfer::over(FORWARD, BACK, MTU) {
        Ok(transfer) => transfer,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    transfer.bytes = (gigabytes * 1e9) as u64;
    transfer.duration = base::Duration::from_secs(100_000);
    transfer.tcp.window_limit = WINDOW;
    let mut worst: f64 = 0.0;
    for max_segmentation in [0, 65_535] {
        transfer.max_segmentation = max_segmentation;
        // The measurement is of real time: the world itself has none.
        #[allow(clippy::disallowed_methods)]
        let start = std::time::Instant::now();
        let outcome = transfer.run(1);
        let real = start.elapsed().as_secs_f64();
        worst = worst.max(real);
        println!(
            "{gigabytes} GB, super-segments to {max_segmentation}: {:.1} s virtual at {:.0} Mbit/s, {} packets, {} lost; \
             {real:.2} s real, {:.2} us a packet",
            outcome.elapsed.as_secs_f64(),
            outcome.bits_per_second() / 1e6,
            outcome.packets,
            outcome.dropped,
            real * 1e6 / outcome.packets as f64,
        );
    }
    if worst < gigabytes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
