//! `outboard up`, `status` and `down` against a Linux kernel behind a TAP device.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fep::control::{Client, Status};
use lab::{Lab, Namespace, executable};
use rustix::process::{Pid, Resource, Rlimit};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A FEP that was started with `--detach`, and the namespace with the kernel's end of its TAP device.
struct Detached {
    namespace: Namespace,
    socket: PathBuf,
}

impl Detached {
    fn up(lab: &Lab, more: &[&str]) -> Result<Self> {
        let fep = Self { namespace: lab.namespace("peer")?, socket: lab.file("run/fep.sock") };
        let log = lab.file("fep.log");
        let address = format!("{}/{}", Namespace::HOST, Namespace::PREFIX);
        let kernel_address = format!("{}/{}", Namespace::PEER, Namespace::PREFIX);
        let (socket, log) = (text(&fep.socket)?, text(&log)?);
        let mut arguments = vec!["up", "--tap", "tap0", "--detach", "--socket", socket, "--log", log];
        arguments.extend(["--address", &address, "--kernel-address", &kernel_address]);
        arguments.extend(more);
        let mut up = fep.namespace.command(executable()?);
        up.args(arguments);
        expect_success(&up.output()?)?;
        Ok(fep)
    }

    fn outboard(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.namespace.command(executable()?);
        command.args(arguments).args(["--socket", text(&self.socket)?]);
        command.output()
    }

    fn status(&self) -> Result<Status> {
        Ok(Client::connect(&self.socket)?.status()?)
    }

    fn down(&self) -> Result<()> {
        expect_success(&self.outboard(&["down"])?)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // It is down already unless the test has failed.
        let _ = self.outboard(&["down"]);
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is a text")
}

fn expect_success(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}

lab::lab_test! {
    fn up_status_and_down(lab) {
        let fep = Detached::up(lab, &[])?;
        let output = fep.outboard(&["status", "--json"])?;
        expect_success(&output)?;
        let status: Status = serde_json::from_slice(&output.stdout)?;
        ensure!(status.interfaces[0].name == "tap0" && status.interfaces[0].segmentation_offload);
        ensure!(String::from_utf8_lossy(&fep.outboard(&["status"])?.stdout).contains("tap0"));
        // Another one with the same control socket is refused, and does the first no harm.
        let mut second = fep.namespace.command(executable()?);
        second.args(["up", "--tap", "tap1", "--address", "10.1.0.1/24", "--socket", text(&fep.socket)?]);
        let refused = second.output()?;
        ensure!(refused.status.code() == Some(1));
        ensure!(String::from_utf8_lossy(&refused.stderr).contains("already runs"));
        fep.status()?;
        fep.down()?;
        ensure!(!fep.socket.exists(), "the socket file is removed");
        let gone = fep.outboard(&["status"])?;
        ensure!(gone.status.code() == Some(4));
        ensure!(String::from_utf8_lossy(&gone.stderr).contains("outboard up"));
        ensure!(!fep.namespace.ip("link show")?.stdout.windows(4).any(|name| name == b"tap0"));
        Ok(())
    }
}

lab::lab_test! {
    fn a_start_that_fails_says_why(lab) {
        let namespace = lab.namespace("nowhere")?;
        for (arguments, code, why) in [
            (&["up", "--address", "10.1.0.1/24"][..], 2, "--tap"),
            (&["up", "--tap", "tap0", "--address", "10.1.0.1"][..], 2, "prefix"),
            (&["up", "--tap", "tap0", "--address", "10.1.0.1/24", "--mtu", "100"][..], 2, "mtu"),
            (&["up", "--tap", "a/b", "--address", "10.1.0.1/24", "--detach"][..], 1, "interface name"),
        ] {
            let mut command = namespace.command(executable()?);
            command.args(arguments).args(["--socket", text(&lab.file("x.sock"))?, "--log", text(&lab.file("x.log"))?]);
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(code) && said.contains(why), "{arguments:?}: {} {said}", output.status);
            ensure!(!lab.file("x.sock").exists());
        }
        let file = lab.file("wrong.toml");
        std::fs::write(&file, "tap = 'tap0'\nadress = '10.1.0.1/24'\n")?;
        let mut command = namespace.command(executable()?);
        command.args(["up", "--config", text(&file)?]);
        let output = command.output()?;
        ensure!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("adress"));
        Ok(())
    }
}

lab::lab_test! {
    fn a_killed_worker_is_replaced(lab) {
        let fep = Detached::up(lab, &[])?;
        let before = fep.status()?;
        let endpoint = outboard::Endpoint::fep(&fep.socket)?;
        let peer = fep.namespace.within(|| TcpListener::bind(SocketAddr::new(Namespace::PEER, 0)))??;
        let mut stream = outboard::TcpStream::connect(&endpoint, peer.local_addr()?)?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(before.worker_pid)?).context("a process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        // The application hears of it.
        let mut byte = [0];
        let outcome = stream.read(&mut byte);
        ensure!(outcome.is_err() || outcome.as_ref().is_ok_and(|count| *count == 0), "{outcome:?}");
        // The control socket is the supervisor's: whoever asks meanwhile waits for the next worker. The one that is
        // just dying may still hang up on the first who ask.
        let started = std::time::Instant::now();
        let after = loop {
            match fep.status() {
                Ok(status) if status.worker_pid != before.worker_pid => break status,
                Ok(_) | Err(_) => ensure!(started.elapsed() < PATIENCE, "no new worker"),
            }
        };
        ensure!(after.worker_restarts == 1 && after.supervisor_pid == before.supervisor_pid);
        let endpoint = outboard::Endpoint::fep(&fep.socket)?;
        let stream = outboard::TcpStream::connect(&endpoint, peer.local_addr()?)?;
        drop(stream);
        fep.down()
    }
}

lab::lab_test! {
    fn down_delivers_what_was_sent(lab) {
        let capture = lab.file("frames.pcapng");
        let fep = Detached::up(lab, &["--capture", text(&capture)?])?;
        let peer = fep.namespace.within(|| TcpListener::bind(SocketAddr::new(Namespace::PEER, 0)))??;
        let endpoint = outboard::Endpoint::fep(&fep.socket)?;
        let mut stream = outboard::TcpStream::connect(&endpoint, peer.local_addr()?)?;
        let (mut accepted, _) = peer.accept()?;
        let sent: Vec<u8> = (0..3_000_000u32).map(|index| (index >> 3) as u8).collect();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            accepted.read_to_end(&mut received).map(|_| received)
        });
        stream.write_all(&sent)?;
        fep.down()?;
        let received = reader.join().ok().context("the reader")??;
        ensure!(received == sent, "{} of {} bytes", received.len(), sent.len());
        ensure!(std::fs::metadata(&capture)?.len() > sent.len() as u64);
        Ok(())
    }
}

lab::lab_test! {
    fn an_idle_fep_sleeps(lab) {
        let fep = Detached::up(lab, &[])?;
        let peer = fep.namespace.within(|| TcpListener::bind(SocketAddr::new(Namespace::PEER, 0)))??;
        let endpoint = outboard::Endpoint::fep(&fep.socket)?;
        let streams = (0..50)
            .map(|_| outboard::TcpStream::connect(&endpoint, peer.local_addr()?))
            .collect::<std::io::Result<Vec<_>>>()?;
        // However long the pause really is, a FEP without anything to do takes hardly a turn.
        let before = fep.status()?;
        std::thread::sleep(Duration::from_secs(2));
        let after = fep.status()?;
        ensure!(after.connections.get("established") == Some(&50), "{:?}", after.connections);
        let sleeps = after.worker.sleeps - before.worker.sleeps;
        ensure!(sleeps < 100, "{sleeps} sleeps in two seconds without anything to do");
        let work = after.cpu.work_seconds + after.cpu.polling_seconds - before.cpu.work_seconds - before.cpu.polling_seconds;
        eprintln!("{sleeps} sleeps, {work:.6} s awake in two idle seconds");
        drop(streams);
        fep.down()
    }
}

lab::lab_test! {
    fn a_fep_without_descriptors_left_lets_others_in_later(lab) {
        let fep = Detached::up(lab, &[])?;
        let worker = fep.status()?.worker_pid;
        let pid = Pid::from_raw(worker.try_into()?).context("a process")?;
        let open = std::fs::read_dir(format!("/proc/{worker}/fd"))?.count() as u64;
        let few = Rlimit { current: Some(open + 4), maximum: Some(open + 4) };
        rustix::process::prlimit(Some(pid), Resource::Nofile, few)?;
        let callers = (0..12)
            .map(|_| fep::control::connect_to(&fep.socket))
            .collect::<std::io::Result<Vec<_>>>()?;
        // However long that really is: the FEP looks for a descriptor again and again, but not all the time.
        std::thread::sleep(Duration::from_secs(1));
        drop(callers);
        fep.status()?;
        let log = std::fs::read_to_string(lab.file("fep.log"))?;
        let complaints = log.lines().filter(|line| line.contains("cannot take a control connection")).count();
        ensure!((1..200).contains(&complaints), "{complaints} complaints");
        fep.down()
    }
}
