//! The laboratory examined by itself.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cpu::{self, Group};
use crate::{Lab, Link, LinkEnd, Namespace, Spawn, wait_for_port};

/// Two namespaces with a link between them.
fn pair(lab: &Lab, mtu: u32) -> Result<[Namespace; 2]> {
    let [host, peer] = [lab.namespace("host")?, lab.namespace("peer")?];
    Link {
        ends: [
            LinkEnd { namespace: &host, device: "veth0", address: Namespace::HOST },
            LinkEnd { namespace: &peer, device: "veth0", address: Namespace::PEER },
        ],
        prefix: Namespace::PREFIX,
        mtu,
    }
    .make()?;
    Ok([host, peer])
}

crate::lab_test! {
    fn bytes_cross_a_link(lab) {
        let [host, peer] = pair(lab, 9000)?;
        let listener = host.within(|| TcpListener::bind((Namespace::HOST, 0)))??;
        let address = listener.local_addr()?;
        let client = peer.within(|| TcpStream::connect(address))??;
        let (_, from) = listener.accept()?;
        ensure!(from == client.local_addr()? && from.ip() == Namespace::PEER);
        let text = String::from_utf8(host.ip("link show veth0")?.stdout)?;
        ensure!(text.contains("mtu 9000"), "{text}");
        Ok(())
    }

    fn a_tap_device_has_address_and_mtu(lab) {
        let peer = lab.namespace("peer")?;
        peer.tap("tap0", Namespace::PEER, Namespace::PREFIX, Namespace::LARGEST_TAP_MTU)?;
        let text = String::from_utf8(peer.ip("address show tap0")?.stdout)?;
        ensure!(text.contains("mtu 65521") && text.contains("10.77.0.1/24"), "{text}");
        Ok(())
    }

    fn a_namespace_is_private(lab) {
        let namespace = lab.namespace("alone")?;
        let text = String::from_utf8(namespace.ip("-o link")?.stdout)?;
        ensure!(text.lines().count() == 1 && text.contains("lo:"), "{text}");
        ensure!(lab.directory().read_dir()?.next().is_none(), "the folder is not empty");
        Ok(())
    }

    fn programs_are_killed_with_their_children_when_dropped(lab) {
        let namespace = lab.namespace("alone")?;
        let mut spawn = namespace.command("sh");
        spawn.args(["-c", "sleep 1000 & echo $!; wait"]);
        let process = lab.start("shell", spawn)?;
        let child = loop {
            let text = process.stdout()?;
            if text.ends_with('\n') { break text.trim().to_owned(); }
            std::thread::sleep(Duration::from_millis(1));
        };
        drop(process);
        // Killed; it may still be on its way out.
        while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn a_server_that_ends_is_not_waited_for(lab) {
        let namespace = lab.namespace("alone")?;
        let mut spawn = namespace.command("sh");
        spawn.args(["-c", "echo no such luck >&2; exit 3"]);
        let mut process = lab.start("server", spawn)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let error = wait_for_port(&namespace, address, &mut process, Duration::from_secs(60)).unwrap_err();
        ensure!(format!("{error:#}").contains("no such luck"), "{error:#}");
        Ok(())
    }

    fn a_known_load_is_measured(lab) {
        let namespace = lab.namespace("alone")?;
        // A program's own clock says how much it has burned, once before all other readings and once behind them.
        let burn = "import os,sys,time\nwhile time.thread_time() < 0.5: pass\nprint(time.process_time(), flush=True)\n\
            while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint(time.process_time(), flush=True)\ntime.sleep(1000)";
        let seen = lab.file("seen");
        let group = Group::new("known-load");
        let mut spawn = namespace.command("/usr/bin/python3");
        spawn.args(["-c", burn]).arg(&seen);
        if let Some(group) = &group { spawn.in_group(group)?; }
        let process = lab.start("burner", spawn)?;
        let says = |count: usize| -> Result<Duration> {
            loop {
                let text = process.stdout()?;
                if let Some(line) = text.split_inclusive('\n').nth(count).and_then(|line| line.strip_suffix('\n')) {
                    return Ok(Duration::from_secs_f64(line.parse().context("a number")?));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let before = says(0)?;
        let readings = [Some(cpu::process(process.id())?), Some(cpu::tree(process.id())?), group.as_ref().map(Group::time).transpose()?];
        std::fs::write(&seen, "")?;
        let after = says(1)?;
        for reading in readings.into_iter().flatten() {
            let total = reading.total();
            // The clock of a group is one of microseconds; a group also has what the program's start took before its clock began.
            let (least, most) = (before - Duration::from_millis(2), after + Duration::from_millis(50));
            ensure!((least..most).contains(&total), "{reading:?} is not between {before:?} and {after:?}");
        }
        Ok(())
    }

    fn a_forking_load_is_measured_without_a_group(lab) {
        // Twenty sessions, one after the other, each in a child that ends; one more in a child that stays; each says what it used.
        let serve = "import os,time\n\
            def session(seconds):\n while time.process_time() < seconds: pass\n print(time.process_time(), flush=True)\n\
            for _ in range(20):\n child = os.fork()\n if child == 0: session(0.03); os._exit(0)\n os.waitpid(child, 0)\n\
            if os.fork() == 0: session(0.2); time.sleep(1000)\n\
            session(0.1); time.sleep(1000)";
        let mut spawn = lab.namespace("alone")?.command("/usr/bin/python3");
        spawn.args(["-c", serve]);
        let process = lab.start("server", spawn)?;
        let mut last = Duration::ZERO;
        let used: Duration = loop {
            let told = process.stdout()?;
            let total = cpu::tree(process.id())?.total();
            // Ended children are known in steps of 10 ms, of user and of system time.
            ensure!(total + Duration::from_millis(21) > last, "{total:?} were read after {last:?}: a session was missed");
            last = total;
            if told.lines().count() == 22 && told.ends_with('\n') {
                let seconds: Result<Vec<f64>, _> = told.lines().map(str::parse).collect();
                break Duration::from_secs_f64(seconds?.iter().sum());
            }
        };
        // Beyond what they say: the time between saying it and ending, or being read.
        let (least, most) = (used - Duration::from_millis(21), used + Duration::from_millis(250));
        ensure!((least..most).contains(&last), "{last:?} is not between {least:?} and {most:?}");
        ensure!(cpu::process(process.id())?.total() + Duration::from_millis(150) < last, "the child that stays counts");
        ensure!(cpu::children(process.id()).len() == 1, "only one session is left");
        Ok(())
    }

    fn ended_children_are_counted(lab) {
        let group = Group::new("children");
        let Some(group) = group else { return Ok(()) };
        let mut command = Command::new("sh");
        command.args(["-c", "/usr/bin/python3 -c 'import time\nwhile time.thread_time() < 0.2: pass'; exit 0"]);
        let mut spawn = Spawn::new(command);
        spawn.in_group(&group)?;
        lab.start("shell", spawn)?.wait_for_success(Duration::from_secs(60))?;
        let spent = group.time()?.total();
        ensure!(spent > Duration::from_millis(199), "{spent:?}");
        Ok(())
    }
}

#[test]
fn a_split_keeps_its_total() {
    let reading = |user, system| cpu::CpuTime {
        user: Duration::from_millis(user),
        system: Duration::from_millis(system),
    };
    let spent = reading(5, 25).since(&reading(10, 10));
    assert_eq!(spent, reading(0, 10));
    assert_eq!(reading(20, 15).since(&reading(10, 10)), reading(10, 5));
}
