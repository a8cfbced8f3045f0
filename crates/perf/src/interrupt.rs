//! Ctrl-C and its like: a measurement ends in order, so that everything it made is taken down.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The measurement was interrupted.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// From here on SIGINT, SIGTERM and SIGHUP only leave a note; a second one ends the program at once.
pub fn catch() -> std::io::Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// An error once a signal has come.
pub fn check() -> Result<(), Interrupted> {
    match FLAG.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Interrupted),
        _ => Ok(()),
    }
}
