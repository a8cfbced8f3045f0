//! The accounting against loads of known cost: what a program's own clock says that it used is what the reading says.

#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Fep, FepConfig, Lab, Namespace, Process, Spawn};
use perf::meter::Reading;
use perf::results::{Document, Measure};
use perf::site::{Between, Placement, Setup, Site, Subject};
use perf::steer::Steer;

/// Beyond what a program measures of itself: its start, and the reading of the clocks.
const OVERHEAD_SECONDS: f64 = 0.06;

/// Starts a program that uses so much in its own code and in the kernel's.
fn burn(lab: &Lab, name: &str, mut spawn: Spawn, user: f64, system: f64, stay: bool) -> Result<Process> {
    spawn.args(["bench-end", "burn", "--user"]).arg(user.to_string());
    spawn.arg("--system").arg(system.to_string());
    if stay {
        spawn.arg("--stay");
    }
    lab.start(name, spawn)
}

/// What a program says that it used, once it has.
fn says(process: &mut Process) -> Result<f64> {
    let began = Instant::now();
    loop {
        let text = process.stdout()?;
        if let Some(line) = text.strip_suffix('\n') {
            return Ok(line.parse()?);
        }
        ensure!(began.elapsed() < Duration::from_secs(120), "{}", process.text());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_about(what: &str, read: f64, known: f64) -> Result<()> {
    let right = known * 0.98 <= read && read <= known * 1.05 + OVERHEAD_SECONDS;
    ensure!(right, "{what}: {read} s were read, {known} s were used");
    Ok(())
}

fn setup() -> Setup {
    Setup {
        mtu: 1500,
        congestion_control: None,
        placement: Placement { application: Vec::new(), fep: Vec::new(), peer: Vec::new() },
        between: Between::Link,
        fep_arguments: Vec::new(),
        executable: None,
        steer: Steer::No,
        application_share: None,
    }
}

fn accounts_for_known_costs(lab: &Lab, subject: Subject) -> Result<()> {
    let site = Site::new(lab, subject, &setup())?;
    let executable = env!("CARGO_BIN_EXE_outboard");
    let before = Reading::take(&site, &[])?;
    // The application's program is still there when the clocks are read, the peer's is not: as a server and its clients.
    let mut user = burn(lab, "user", site.application_program(executable)?, 0.4, 0.0, true)?;
    let mut system = burn(lab, "system", site.application_program(executable)?, 0.0, 0.3, true)?;
    let mut peer = burn(lab, "peer", site.peer_program(executable)?, 0.2, 0.0, false)?;
    let used = [says(&mut user)?, says(&mut system)?];
    let used_by_peer = says(&mut peer)?;
    peer.wait_for_success(Duration::from_secs(20))?;
    let after = Reading::take(&site, &[user.id(), system.id()])?;
    let measure = Measure { operations: 1000, bytes: 4_000_000, ..Measure::default() };
    let measure = after.complete(&before, measure);

    let cpu = &measure.cpu_seconds;
    is_about("application", cpu.host(), used[0] + used[1])?;
    is_about("peer", cpu.peer, used_by_peer)?;
    // How a total splits is the kernel's estimate at its tick.
    ensure!((0.3..0.55).contains(&cpu.application_user), "{cpu:?}");
    ensure!((0.2..0.45).contains(&cpu.application_system), "{cpu:?}");
    let all = used[0] + used[1] + used_by_peer;
    ensure!(cpu.machine_busy >= all * 0.7, "{cpu:?}: the machine was busy for {all} s at least");
    let each = measure.cpu_seconds_per_operation.unwrap();
    is_about("an operation, in ms", each.host() * 1000.0, used[0] + used[1])?;
    let megabyte = measure.cpu_seconds_per_megabyte.unwrap();
    is_about("four megabytes", megabyte.host() * 4.0, used[0] + used[1])?;
    if subject == Subject::Fep {
        // It had nothing to do, and none of this is its own.
        ensure!(cpu.fep_work + cpu.fep_system + cpu.fep_polling < 0.2, "{cpu:?}");
    } else {
        ensure!(cpu.fep_work + cpu.fep_system + cpu.fep_polling == 0.0, "{cpu:?}");
    }
    drop((user, system));
    site.close()
}

lab::lab_test! {
    fn a_server_that_forks_costs_what_its_children_use(lab) {
        let site = Site::new(lab, Subject::Kernel, &setup())?;
        let executable = env!("CARGO_BIN_EXE_outboard");
        // Two sessions that are over when the clocks are read, one of them with a child of its own, and one that goes on.
        let sessions = "\"$0\" bench-end burn --user 0.2 --system 0; (\"$0\" bench-end burn --user 0 --system 0.15; true); \
            \"$0\" bench-end burn --user 0.1 --system 0 --stay & wait";
        let before = Reading::take(&site, &[])?;
        let mut spawn = site.application_program("sh")?;
        spawn.args(["-c", sessions, executable]);
        let server = lab.start("server", spawn)?;
        let began = Instant::now();
        let used: f64 = loop {
            let text = server.stdout()?;
            let lines: Vec<&str> = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).collect();
            if let [first, second, third] = lines[..] {
                break first.parse::<f64>()? + second.parse::<f64>()? + third.parse::<f64>()?;
            }
            ensure!(began.elapsed() < Duration::from_secs(120), "{}", server.text());
            std::thread::sleep(Duration::from_millis(5));
        };
        let after = Reading::take(&site, &[server.id()])?;
        let measure = after.complete(&before, Measure::default());
        is_about("a server and its sessions", measure.cpu_seconds.host(), used)?;
        // What is read where there are no control groups; of ended children in steps of 10 ms.
        let tree = lab::cpu::tree(server.id())?.total().as_secs_f64();
        is_about("the same by its processes", tree + 0.02, used)?;
        drop(server);
        site.close()
    }
}

lab::lab_test! {
    fn what_programs_use_is_what_is_read(lab) {
        accounts_for_known_costs(lab, Subject::Kernel)
    }
}

lab::lab_test! {
    fn the_same_beside_a_fep(lab) {
        accounts_for_known_costs(lab, Subject::Fep)
    }
}

lab::lab_test! {
    fn a_server_on_a_fep_answers_a_client_elsewhere(lab) {
        let peer = lab.namespace("peer")?;
        peer.tap("tap0", Namespace::PEER, Namespace::PREFIX, 1500)?;
        let config = FepConfig {
            peer: &peer,
            tap: "tap0",
            address: Namespace::HOST,
            prefix: Namespace::PREFIX,
            mtu: 1500,
            processors: &[],
            arguments: &[],
        };
        let fep = Fep::start(lab, "fep", &config)?;
        let mut spawn = lab.namespace("server")?.command(env!("CARGO_BIN_EXE_outboard"));
        spawn.args(["bench", "-s", "--on", "fep", "-p", "7701", "--socket"]).arg(fep.socket());
        let mut server = lab.start("server", spawn)?;
        let address = SocketAddr::new(Namespace::HOST, 7701);
        lab::wait_for_port(&peer, address, &mut server, Duration::from_secs(20))?;
        let mut spawn = peer.command(env!("CARGO_BIN_EXE_outboard"));
        spawn.args(["bench", "crr", "-n", "20", "-J", "-p", "7701", "-c"]).arg(Namespace::HOST.to_string());
        let output = spawn.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: Document = serde_json::from_slice(&output.stdout)?;
        let server = document.subject("server").context("both sides")?;
        ensure!(server.options["sockets"] == "fep");
        let total = &server.trials[0].total;
        ensure!(total.operations == 20 && total.verified);
        let cpu = &total.cpu_seconds;
        ensure!(cpu.host() > 0.0 && cpu.fep_work + cpu.fep_system > 0.0, "{cpu:?}");
        ensure!(!total.counters.is_empty(), "the FEP's counters are in the document");
        Ok(())
    }
}
