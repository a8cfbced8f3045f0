//! A test's body in a process of its own.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::enter::{Way, explain, way};
use crate::sys::{self, Beginning, UserMap};
use crate::{Lab, Unavailable};

/// Says to a test program that it is the process of its own, and which test it is.
const MARK: &str = "OUTBOARD_LAB_TEST";
/// A body that has not ended by then hangs; no test is meant to come near.
const PATIENCE: Duration = Duration::from_secs(600);

/// Declares tests whose bodies run inside a laboratory: `lab_test! { fn name(lab) { … } }`.
///
/// The body gets `lab: &Lab` and answers with `anyhow::Result<()>`. It runs in a process of its own (the test program
/// started again), so it may change namespaces, and whatever it leaves behind goes with that process.
#[macro_export]
macro_rules! lab_test {
    ($($(#[$attribute:meta])* fn $name:ident($lab:ident) $body:block)+) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            $crate::isolated(concat!(module_path!(), "::", stringify!($name)), |$lab: &$crate::Lab| $body);
        }
    )+};
}

/// Runs `body` in a process of its own; `test` is the test's full path, the crate's name included.
///
/// # Panics
/// When the body fails, with its output, or when there can be no laboratory, with the reason.
pub fn isolated(test: &str, body: impl FnOnce(&Lab) -> Result<()>) {
    let test = test.split_once("::").map_or(test, |(_crate, path)| path);
    if std::env::var(MARK).as_deref() == Ok(test) {
        if let Err(error) = Lab::new().and_then(|lab| body(&lab)) {
            panic!("{error:?}");
        }
        return;
    }
    if let Err(error) = run_again(test) {
        panic!("{error:?}");
    }
}

/// Starts this test program again, inside the laboratory, for one test.
fn run_again(test: &str) -> Result<()> {
    let enter = match way()? {
        Way::Root => None,
        Way::UserNamespace => Some(UserMap::of_this_user()),
    };
    let mut command = Command::new(std::env::current_exe().context("where is this test program?")?);
    command.args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"]).env(MARK, test);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::begin(&mut command, Beginning { enter: Some(enter), ..Beginning::default() });
    let mut child = command.spawn().map_err(|error| Unavailable::new(explain(&error)))?;
    let output = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = || format!("{}{}", output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    match status {
        Some(status) if status.success() => {
            print!("{}", text());
            Ok(())
        }
        Some(status) => bail!("the test's process ended with {status}:\n{}", text()),
        None => bail!("the test's process hung for {} s:\n{}", PATIENCE.as_secs(), text()),
    }
}

/// Reads a pipe to its end on a thread of its own.
fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
