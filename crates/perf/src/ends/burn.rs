//! A load of known cost, to check the accounting with: it uses the processor until its own clock says that it has.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Uses the processor for `user` in this program's code and for `system` in the kernel's, prints what its clock says in
/// seconds, and stays until it is killed if it is to `stay`.
pub fn burn(user: Duration, system: Duration, stay: bool) -> io::Result<()> {
    let before = own_clock();
    let mut number = 1_u64;
    while own_clock() < before + user {
        for _ in 0..20_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    let before = own_clock();
    let mut zeros = File::open("/dev/zero")?;
    let mut buffer = vec![0; 1 << 20];
    while own_clock() < before + system {
        zeros.read_exact(&mut buffer)?;
    }
    writeln!(io::stdout(), "{}", own_clock().as_secs_f64())?;
    if stay {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    Ok(())
}

/// What this process has used of its processors.
fn own_clock() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
