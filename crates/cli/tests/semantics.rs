//! The socket interface, call by call: one C program runs on the kernel's sockets and on the stack's, against the same
//! peer, and must print the same lines.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::{Arch, PATIENCE, Stage, output_of};
use lab::{Lab, Namespace, Process};

const SECTIONS: [&str; 21] = [
    "stream",
    "ready",
    "epoll",
    "server",
    "datagram",
    "process",
    "family",
    "bulk",
    "calls",
    "urgent",
    "pairs",
    "messages",
    "choices",
    "matrix",
    "errors",
    "segments",
    "stamps",
    "several",
    "peeks",
    "forks",
    "exhausted",
];

/// Compiles the program with the system's C compiler.
fn compile(lab: &Lab) -> Result<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload/tests/semantics");
    let program = lab.file("semantics");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Wno-unused-result", "-o"]).arg(&program);
    for source in std::fs::read_dir(folder)? {
        let path = source?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            compiler.arg(path);
        }
    }
    let output = compiler.arg("-lpthread").output().context("cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

fn start_peer(lab: &Lab, stage: &Stage, program: &str, name: &str) -> Result<Process> {
    let mut spawn = stage.there(program);
    spawn.arg("peer").arg(Namespace::PEER.to_string());
    let mut peer = lab.start(name, spawn)?;
    stage.wait_for_port(common::Side::There, 7000, &mut peer)?;
    Ok(peer)
}

/// How often a difference must show: where the machine stands still, a timer can come before what should have been faster.
const ATTEMPTS: usize = 3;

/// The program on one architecture, and its peer.
struct Actor<'a> {
    stage: Stage,
    arch: Arch,
    program: &'a str,
    _peer: Process,
    runs: usize,
}

impl<'a> Actor<'a> {
    fn new(lab: &Lab, arch: Arch, program: &'a str) -> Result<Self> {
        let stage = Stage::new(lab, arch)?;
        let peer = start_peer(lab, &stage, program, &format!("peer-{arch:?}"))?;
        Ok(Self { stage, arch, program, _peer: peer, runs: 0 })
    }

    /// What the program prints in one section.
    fn lines(&mut self, lab: &Lab, section: &str) -> Result<Vec<String>> {
        self.runs += 1;
        let mut spawn = self.stage.here(self.program)?;
        spawn.args([Namespace::PEER.to_string(), Namespace::HOST.to_string(), section.to_owned()]);
        let text = output_of(lab, &format!("{section}-{:?}-{}", self.arch, self.runs), spawn)?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn expect_the_kernels_lines(lab: &Lab, arch: Arch, sections: &[&str]) -> Result<()> {
    let program = compile(lab)?;
    let program = program.to_str().context("a path")?;
    let (mut kernel, mut other) = (Actor::new(lab, Arch::Kernel, program)?, Actor::new(lab, arch, program)?);
    let (mut count, mut differences) = (0, Vec::new());
    for section in sections {
        let mut difference = Vec::new();
        for _ in 0..ATTEMPTS {
            // Much of a section is waiting: both at the same time.
            let (expected, found) = std::thread::scope(|scope| {
                let expected = scope.spawn(|| kernel.lines(lab, section));
                let found = other.lines(lab, section);
                (expected.join(), found)
            });
            let expected = expected.map_err(|_| anyhow::anyhow!("the kernel's side panicked"))??;
            let found = found?;
            difference = (0..expected.len().max(found.len()))
                .filter(|index| expected.get(*index) != found.get(*index))
                .map(|index| format!("kernel: {:?}\n{arch:?}: {:?}", expected.get(index), found.get(index)))
                .collect();
            if difference.is_empty() {
                count += expected.len();
                break;
            }
            eprintln!("{section} differs:\n{}", difference.join("\n"));
        }
        differences.extend(difference);
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    ensure!(count > 100, "the program ended early on the kernel");
    Ok(())
}

/// What the peer prints once one of its connections has ended.
fn wait_for_line(peer: &mut Process) -> Result<String> {
    let began = Instant::now();
    loop {
        let text = peer.stdout()?;
        if text.lines().any(|line| line != "ready") || !peer.is_running()? || began.elapsed() > PATIENCE {
            return Ok(text);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program queues 700,000 bytes and ends at once: all of them arrive.
fn expect_all_delivered(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let program = compile(lab)?;
    let program = program.to_str().context("a path")?;
    for way in ["leave-exit", "leave-_exit"] {
        let mut peer = start_peer(lab, &stage, program, &format!("peer-{way}"))?;
        let mut spawn = stage.here(program)?;
        spawn.args([Namespace::PEER.to_string(), Namespace::HOST.to_string(), way.to_owned()]);
        output_of(lab, way, spawn)?;
        // The peer's child prints when the connection has ended.
        let told = wait_for_line(&mut peer)?;
        ensure!(told.contains("700000 good\n"), "{way}: the peer got {told}");
        peer.stop(Duration::from_secs(5))?;
    }
    Ok(())
}

/// Waits in the way of its first argument for bytes that do not come. The error comes once, then the end.
const WAITER: &str = r#"
import select, socket, sys
stream = socket.create_connection((sys.argv[2], 7000))
stream.sendall(b"echo\n")
way = sys.argv[1]
if way != "recv":
    poll = select.poll() if way == "poll" else select.epoll()
    poll.register(stream, 1)
    poll.poll(1)
print("waiting", flush=True)
try:
    if way != "recv":
        poll.poll()
    stream.recv(1)
except OSError as error:
    print("ended", error.errno, stream.recv(1))
"#;

/// A server's loop without connections, as that of Python's http.server. It hears of an error once, then of nothing.
const SERVER: &str = r#"
import select, socket, sys
listener = socket.socket()
listener.bind((sys.argv[2], 7100))
listener.listen()
listener.setblocking(False)
poll = select.poll() if sys.argv[1] == "poll" else select.epoll()
poll.register(listener, 1)
print("waiting", flush=True)
poll.poll()
errors = 0
while errors < 100:
    try:
        listener.accept()
    except BlockingIOError:
        break
    except OSError:
        errors += 1
    if not poll.poll(0):
        break
print("ended", errors)
"#;

/// Programs that wait when the FEP is killed get an error instead of waiting for ever, and do not hear of it for ever.
fn expect_an_end_of_waiting(lab: &Lab) -> Result<()> {
    let mut stage = Stage::new(lab, Arch::Fep)?;
    let program = compile(lab)?;
    let _peer = start_peer(lab, &stage, program.to_str().context("a path")?, "peer")?;
    let (peer, own) = (Namespace::PEER.to_string(), Namespace::HOST.to_string());
    let mut waiters = Vec::new();
    for (script, way, address, end) in [
        (WAITER, "recv", &*peer, "ended 100 b''"),
        (WAITER, "poll", &peer, "ended 100 b''"),
        (WAITER, "epoll", &peer, "ended 100 b''"),
        (SERVER, "poll", &own, "ended 1\n"),
        (SERVER, "epoll", &own, "ended 1\n"),
        (SERVER, "poll", "0.0.0.0", "ended 1\n"),
        (SERVER, "epoll", "0.0.0.0", "ended 1\n"),
    ] {
        let mut spawn = stage.here("/usr/bin/python3")?;
        // Two programs cannot have the same port of the FEP.
        let script = script.replace("7100", &(7100 + waiters.len()).to_string());
        spawn.args(["-c", &script, way, address]);
        let mut waiter = lab.start(&format!("{way}-{}", waiters.len()), spawn)?;
        ensure!(wait_for_line(&mut waiter)?.contains("waiting"), "{way}: {}", waiter.text());
        waiters.push((waiter, end));
    }
    drop(stage.take_fep());
    for (waiter, end) in &mut waiters {
        waiter.wait_for_success(PATIENCE)?;
        let text = waiter.stdout()?;
        ensure!(text.contains(*end), "{}: {text}", waiter.name());
    }
    Ok(())
}

lab::lab_test! {
    fn a_socket_of_a_fep_behaves_as_the_kernels(lab) {
        expect_the_kernels_lines(lab, Arch::Fep, &SECTIONS)
    }

    fn a_socket_of_the_stack_inside_behaves_as_the_kernels(lab) {
        // A forked child has no stack of its own there: the device is its parent's.
        let forking = ["family", "forks"];
        let sections: Vec<&str> = SECTIONS.into_iter().filter(|section| !forking.contains(section)).collect();
        expect_the_kernels_lines(lab, Arch::Host, &sections)
    }

    fn a_socket_of_the_kernel_stays_as_it_is_beside_a_fep(lab) {
        expect_the_kernels_lines(lab, Arch::Elsewhere, &SECTIONS)
    }

    fn a_library_told_to_keep_out_is_the_c_library(lab) {
        expect_the_kernels_lines(lab, Arch::Disabled, &SECTIONS)
    }

    fn who_waits_learns_that_the_fep_is_gone(lab) {
        expect_an_end_of_waiting(lab)
    }

    fn what_is_queued_at_exit_arrives_through_a_fep(lab) {
        expect_all_delivered(lab, Arch::Fep)
    }

    fn what_is_queued_at_exit_arrives_from_the_stack_inside(lab) {
        expect_all_delivered(lab, Arch::Host)
    }
}
