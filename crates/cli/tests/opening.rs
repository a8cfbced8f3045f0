//! The opening of connections between unmodified programs and the Linux kernel: fast open and SYN cookies in both roles, as
//! the packets show them; and what programs see of it, which must be what they see on the kernel.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::{Arch, PATIENCE, Side, Stage, output_of};
use lab::{Fep, FepConfig, Lab, Namespace, Process, Spawn};

const PYTHON: &str = "/usr/bin/python3";
const PORT: u16 = 7300;
/// Bytes of a request: with cookie and options they fit a SYN.
const REQUEST: u32 = 600;

/// Answers each connection's bytes with the same bytes; fast open is allowed.
const SERVER: &str = r#"
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_TCP, 23, 16)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(16)
print("ready", flush=True)
while True:
    stream, _ = listener.accept()
    try:
        got = b""
        while part := stream.recv(65536):
            got += part
        stream.sendall(got)
    except OSError as error:
        print(error, flush=True)
    stream.close()
"#;

/// Four requests by MSG_FASTOPEN, one after the other.
const CLIENT: &str = r#"
import socket, sys
request = bytes(index % 251 for index in range(int(sys.argv[3])))
for round in range(4):
    stream = socket.socket()
    sent = stream.sendto(request, 0x20000000, (sys.argv[1], int(sys.argv[2])))
    stream.shutdown(socket.SHUT_WR)
    got = b""
    while part := stream.recv(65536):
        got += part
    print(sent, got == request)
    stream.close()
"#;

/// A request of a megabyte by an ordinary connection.
const PLAIN_CLIENT: &str = r#"
import socket, sys
request = bytes(index % 251 for index in range(1 << 20))
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
stream.sendall(request)
stream.shutdown(socket.SHUT_WR)
got = b""
while part := stream.recv(65536):
    got += part
print(got == request)
"#;

/// A SYN or SYN-ACK of a capture.
#[derive(Debug)]
struct Opening {
    from: String,
    is_answer: bool,
    seq: u32,
    ack: u32,
    payload: u32,
    /// The options as they stand, in hexadecimal.
    options: String,
}

impl Opening {
    fn has(&self, option: &str) -> bool {
        self.options.contains(option)
    }
}

/// Allows the kernel of a namespace what the test needs.
fn set(stage_command: impl Fn(&str) -> Result<Spawn>, lab: &Lab, key: &str, value: &str) -> Result<()> {
    let mut spawn = stage_command("/bin/sh")?;
    spawn.args(["-c", &format!("echo {value} > /proc/sys/net/ipv4/{key}")]);
    output_of(lab, &format!("set-{key}"), spawn).map(drop)
}

fn start_and_wait(lab: &Lab, name: &str, spawn: Spawn) -> Result<Process> {
    let mut process = lab.start(name, spawn)?;
    let began = Instant::now();
    while !process.stdout()?.contains("ready") {
        ensure!(process.is_running()? && began.elapsed() < PATIENCE, "{name}: {}", process.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

/// A FEP that captures, beside a kernel.
struct Captured {
    peer: Namespace,
    host: Namespace,
    fep: Fep,
    file: std::path::PathBuf,
}

impl Captured {
    fn new(lab: &Lab, configuration: &str) -> Result<Self> {
        let (peer, host) = (lab.namespace("peer")?, lab.namespace("host")?);
        peer.tap("tap0", Namespace::PEER, Namespace::PREFIX, 1500)?;
        let (file, settings) = (lab.file("capture.pcapng"), lab.file("fep.toml"));
        std::fs::write(&settings, configuration)?;
        let (capture, settings) = (text(&file)?.to_owned(), text(&settings)?.to_owned());
        let arguments: &[&str] = &["--capture", &capture, "--config", &settings];
        let (tap, address, prefix, mtu) = ("tap0", Namespace::HOST, Namespace::PREFIX, 1500);
        let config = FepConfig { peer: &peer, tap, address, prefix, mtu, processors: &[], arguments };
        let fep = Fep::start(lab, "fep", &config)?;
        Ok(Self { peer, host, fep, file })
    }

    fn on(&self, side: Side, script: &str) -> Spawn {
        let mut spawn = match side {
            Side::Here => self.fep.run(&self.host, PYTHON),
            Side::There => self.peer.command(PYTHON),
        };
        spawn.args(["-c", script]);
        spawn
    }

    fn set(&self, lab: &Lab, key: &str, value: &str) -> Result<()> {
        set(|program| Ok(self.peer.command(program)), lab, key, value)
    }

    /// A server on the one side, a client on the other; what the client prints.
    fn converse(&self, lab: &Lab, server: Side, client: &str) -> Result<String> {
        let other = if server == Side::Here { Side::There } else { Side::Here };
        let (address, port) = (server.address().to_string(), PORT.to_string());
        let mut spawn = self.on(server, SERVER);
        spawn.args([&address, &port]);
        let _server = start_and_wait(lab, "server", spawn)?;
        let mut spawn = self.on(other, client);
        spawn.args([&address, &port, &REQUEST.to_string()]);
        output_of(lab, "client", spawn)
    }

    /// Ends the FEP; the SYNs and SYN-ACKs of its capture, each once.
    fn openings(self) -> Result<Vec<Opening>> {
        self.fep.stop()?;
        let fields = ["ip.src", "tcp.flags.ack", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.options"];
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&self.file).args(["-Y", "tcp.flags.syn==1", "-T", "fields"]);
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().context("tshark")?;
        ensure!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
        let mut openings: Vec<Opening> = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let next = opening(line)?;
            // One that is sent again, where the machine stood still for a second, is the first one's.
            let is_repeat = |one: &Opening| (&one.from, one.seq) == (&next.from, next.seq);
            if !openings.iter().any(is_repeat) {
                openings.push(next);
            }
        }
        Ok(openings)
    }
}

fn opening(line: &str) -> Result<Opening> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().with_context(|| format!("a field is missing: {line}"));
    Ok(Opening {
        from: next()?.to_owned(),
        is_answer: matches!(next()?, "1" | "True"),
        seq: next()?.parse()?,
        ack: next()?.parse()?,
        payload: next()?.parse()?,
        options: next()?.replace(':', ""),
    })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is a text")
}

/// Fast open with the server on this side: the first SYN asks for a cookie, the others bring it and the request, and the
/// SYN-ACKs acknowledge all of it.
fn expect_fast_open(lab: &Lab, server: Side) -> Result<()> {
    let captured = Captured::new(lab, "")?;
    captured.set(lab, "tcp_fastopen", "3")?;
    let told = captured.converse(lab, server, CLIENT)?;
    ensure!(told == format!("{REQUEST} True\n").repeat(4), "{told}");
    let openings = captured.openings()?;
    let server = server.address().to_string();
    let syns: Vec<_> = openings.iter().filter(|one| !one.is_answer && one.from != server).collect();
    let answers: Vec<_> = openings.iter().filter(|one| one.is_answer && one.from == server).collect();
    ensure!(syns.len() == 4 && answers.len() == 4, "{openings:#?}");
    // Kind 34: empty it asks; a cookie of eight bytes has a length of ten.
    ensure!(syns[0].has("2202") && syns[0].payload == 0, "{:?}", syns[0]);
    ensure!(answers[0].has("220a") && answers[0].ack == syns[0].seq.wrapping_add(1), "{:?}", answers[0]);
    for (syn, answer) in syns.iter().zip(&answers).skip(1) {
        ensure!(syn.has("220a") && syn.payload == REQUEST, "{syn:?}");
        ensure!(answer.ack == syn.seq.wrapping_add(1 + REQUEST), "{syn:?} {answer:?}");
    }
    Ok(())
}

lab::lab_test! {
    fn fast_open_to_a_linux_server(lab) {
        expect_fast_open(lab, Side::There)
    }
}

lab::lab_test! {
    fn fast_open_from_a_linux_client(lab) {
        expect_fast_open(lab, Side::Here)
    }
}

lab::lab_test! {
    fn a_linux_client_keeps_its_options_through_our_cookies(lab) {
        let captured = Captured::new(lab, "syn_cookies = 'always'\n")?;
        let told = captured.converse(lab, Side::Here, PLAIN_CLIENT)?;
        ensure!(told == "True\n", "{told}");
        let status = captured.fep.status()?;
        let counters = ["syn_cookies_sent", "syn_cookies_received"];
        ensure!(counters.iter().all(|counter| status.contains(counter)), "{status}");
        let openings = captured.openings()?;
        let answer = openings.iter().find(|one| one.is_answer).context("a SYN-ACK")?;
        // Window scale, SACK and timestamps were agreed to.
        ensure!(["0303", "0402", "080a"].iter().all(|option| answer.has(option)), "{answer:?}");
        Ok(())
    }
}

lab::lab_test! {
    fn cookies_of_a_linux_server_are_acknowledged(lab) {
        let captured = Captured::new(lab, "")?;
        captured.set(lab, "tcp_syncookies", "2")?;
        let told = captured.converse(lab, Side::There, PLAIN_CLIENT)?;
        ensure!(told == "True\n", "{told}");
        let mut spawn = captured.peer.command("/bin/cat");
        spawn.arg("/proc/net/netstat");
        let counters = output_of(lab, "netstat", spawn)?;
        ensure!(counter(&counters, "SyncookiesRecv") == Some(1), "{counters}");
        let openings = captured.openings()?;
        let answer = openings.iter().find(|one| one.is_answer).context("a SYN-ACK")?;
        ensure!(["0303", "0402", "080a"].iter().all(|option| answer.has(option)), "{answer:?}");
        Ok(())
    }
}

/// A counter of /proc/net/netstat: names in one line, values in the next.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks(2).find_map(|pair| {
        let at = pair.first()?.split_whitespace().position(|word| word == name)?;
        pair.get(1)?.split_whitespace().nth(at)?.parse().ok()
    })
}

/// What programs see of fast open.
const CALLS: &str = r#"
import errno, select, socket, sys
FAST = 0x20000000
server = (sys.argv[1], int(sys.argv[2]))
nobody = (sys.argv[1], 9)

def say(*words):
    print(*words, flush=True)

def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]

def finish(stream):
    select.select([], [stream], [], 60)
    stream.setblocking(True)
    stream.shutdown(socket.SHUT_WR)
    got = b""
    while part := stream.recv(65536):
        got += part
    stream.close()
    return got

stream = socket.socket()
stream.setblocking(False)
say("without a cookie, not waiting", tried(stream.sendto, b"one", FAST, server))
select.select([], [stream], [], 60)
say("then", tried(stream.sendto, b"one", FAST, server), finish(stream))
stream = socket.socket()
say("waiting", tried(stream.sendto, b"two", FAST, server))
say("again", tried(stream.sendto, b"two", FAST, server), finish(stream))
stream = socket.socket()
stream.setblocking(False)
say("not waiting", tried(stream.sendto, b"three", FAST, server), finish(stream))
stream = socket.socket()
stream.setblocking(False)
count = tried(stream.sendto, bytes(5000), FAST, server)
say("more than a SYN takes, not waiting", count, finish(stream) == bytes(count))
stream = socket.socket()
stream.setsockopt(socket.IPPROTO_TCP, 30, 1)
stream.connect(server)
stream.setblocking(False)
count = tried(stream.send, bytes(5000))
say("the same by connect and send", count, finish(stream) == bytes(count))
stream = socket.socket()
say("more than a SYN takes", tried(stream.sendto, bytes(5000), FAST, server), finish(stream) == bytes(5000))
stream = socket.socket()
say("no address", tried(stream.send, b"four", FAST))
stream = socket.socket()
say("refused", tried(stream.sendto, b"five", FAST, nobody))
stream = socket.socket()
say("message", tried(stream.sendmsg, [b"s", b"ix"], [], FAST, server), finish(stream))

stream = socket.socket()
say("option", stream.setsockopt(socket.IPPROTO_TCP, 30, 1), stream.getsockopt(socket.IPPROTO_TCP, 30))
say("connect", tried(stream.connect, server))
stream.setblocking(False)
say("and again", tried(stream.connect, server))
stream.setblocking(True)
say("writable", bool(select.select([], [stream], [], 0)[1]), tried(stream.getpeername))
say("too late", tried(stream.setsockopt, socket.IPPROTO_TCP, 30, 1))
say("send", tried(stream.send, b"seven"), tried(stream.connect, server))
say("peer", stream.getpeername() == server, finish(stream))
stream = socket.socket()
stream.setsockopt(socket.IPPROTO_TCP, 30, 1)
say("refused later", tried(stream.connect, nobody), tried(stream.send, b"eight"))
stream = socket.create_connection(server)
say("connected", tried(stream.setsockopt, socket.IPPROTO_TCP, 23, 5), finish(stream))
listener = socket.socket()
listener.bind((sys.argv[3], 0))
say("listener", listener.setsockopt(socket.IPPROTO_TCP, 23, 5), listener.getsockopt(socket.IPPROTO_TCP, 23))
listener.listen()
say("listening", tried(listener.setsockopt, socket.IPPROTO_TCP, 23, 6), tried(listener.setsockopt, socket.IPPROTO_TCP, 30, 1))
"#;

/// Two listeners: the one puts its acceptance off until data comes, the other tells what the client has done.
const DEFERRING: &str = r#"
import os, socket, sys
def listener(port):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((sys.argv[1], port))
    return one
late, plain = listener(7301), listener(7302)
late.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 600)
late.listen()
plain.listen()
print("ready", late.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT), flush=True)
control, _ = plain.accept()
print(control.recv(1))
late.setblocking(False)
try:
    print("accepted", late.accept())
except BlockingIOError:
    print("nothing to accept")
control.send(b"g")
late.setblocking(True)
stream, _ = late.accept()
stream.setblocking(False)
print(stream.recv(5))
# The client's third connection is never accepted.
print(control.recv(1))
sys.stdout.flush()
os._exit(0)
"#;

/// Its client.
const DEFERRED: &str = r#"
import socket, sys
late = socket.create_connection((sys.argv[1], 7301))
control = socket.create_connection((sys.argv[1], 7302))
control.send(b"c")
print(control.recv(1))
late.send(b"hello")
left = socket.create_connection((sys.argv[1], 7302))
control.send(b"l")
def end(stream):
    try:
        return stream.recv(1)
    except OSError as error:
        return type(error).__name__
print(end(left), end(control), end(late))
"#;

fn calls(lab: &Lab, arch: Arch) -> Result<Vec<String>> {
    let stage = Stage::new(lab, arch)?;
    set(|program| Ok(stage.there(program)), lab, "tcp_fastopen", "3")?;
    if arch == Arch::Kernel {
        set(|program| stage.here(program), lab, "tcp_fastopen", "3")?;
    }
    let (peer, own, port) = (Namespace::PEER.to_string(), Namespace::HOST.to_string(), PORT.to_string());
    let mut spawn = stage.there(PYTHON);
    spawn.args(["-c", SERVER, &peer, &port]);
    let _server = start_and_wait(lab, &format!("server-{arch:?}"), spawn)?;
    let mut spawn = stage.here(PYTHON)?;
    spawn.args(["-c", CALLS, &peer, &port, &own]);
    let told = output_of(lab, &format!("calls-{arch:?}"), spawn)?;
    Ok(told.lines().map(str::to_owned).collect())
}

fn acceptance(lab: &Lab, arch: Arch) -> Result<Vec<String>> {
    let stage = Stage::new(lab, arch)?;
    let own = Namespace::HOST.to_string();
    let mut spawn = stage.here(PYTHON)?;
    spawn.args(["-c", DEFERRING, &own]);
    let mut server = start_and_wait(lab, &format!("deferring-{arch:?}"), spawn)?;
    let mut spawn = stage.there(PYTHON);
    spawn.args(["-c", DEFERRED, &own]);
    let told = output_of(lab, &format!("deferred-{arch:?}"), spawn)?;
    server.wait_for_success(PATIENCE)?;
    Ok(told.lines().chain(server.stdout()?.lines()).map(str::to_owned).collect())
}

/// The same lines as on the kernel.
fn expect_the_same(lab: &Lab, what: fn(&Lab, Arch) -> Result<Vec<String>>, least: usize) -> Result<()> {
    let expected = what(lab, Arch::Kernel)?;
    ensure!(expected.len() >= least, "it ended early on the kernel: {expected:?}");
    for arch in [Arch::Fep, Arch::Host] {
        let found = what(lab, arch)?;
        ensure!(found == expected, "kernel: {expected:#?}\n{arch:?}: {found:#?}");
    }
    Ok(())
}

lab::lab_test! {
    fn programs_see_of_fast_open_what_they_see_on_the_kernel(lab) {
        expect_the_same(lab, calls, 17)
    }
}

lab::lab_test! {
    fn programs_see_of_acceptance_what_they_see_on_the_kernel(lab) {
        expect_the_same(lab, acceptance, 6)
    }
}
