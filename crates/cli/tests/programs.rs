//! Unmodified programs over the stack, each as a server and as a client, against programs on a Linux kernel, their
//! contents checked.

mod common;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::{Arch, PATIENCE, Side, Stage, expect_file, make_file, output_of};
use lab::{Lab, Process};

const PYTHON: &str = "/usr/bin/python3";
const STOP: Duration = Duration::from_secs(5);
/// Transferred files; not a multiple of anything.
const LENGTH: usize = 9_999_991;

/// Starts a server on one side and waits for its port.
fn start_server(
    lab: &Lab,
    stage: &Stage,
    side: Side,
    port: u16,
    program: &str,
    arguments: &[&str],
) -> Result<Process> {
    let mut spawn = stage.on(side, program)?;
    spawn.args(arguments);
    let name = format!("server-{side:?}-{port}");
    let mut server = lab.start(&name, spawn)?;
    stage.wait_for_port(side, port, &mut server)?;
    Ok(server)
}

/// curl takes a file from Python's http.server, each once on the stack.
fn http(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let (_, bytes) = make_file(lab, "file", LENGTH)?;
    let folder = lab.directory().to_str().context("a path")?.to_owned();
    for (server_side, client_side) in Side::PAIRS {
        let arguments = ["-m", "http.server", "--directory", &folder, "8000"];
        let server = start_server(lab, &stage, server_side, 8000, PYTHON, &arguments)?;
        let to = lab.file(&format!("got-{client_side:?}"));
        let mut client = stage.on(client_side, "curl")?;
        client.args(["--silent", "--show-error", "--fail", "--output"]).arg(&to);
        client.arg(format!("http://{}:8000/file", server_side.address()));
        output_of(lab, &format!("curl-{client_side:?}"), client)?;
        expect_file(&to, &bytes)?;
        server.stop(STOP)?;
    }
    Ok(())
}

/// What the FTP client does: takes a file, puts it under another name, takes that, and lists.
const FTP_CLIENT: &str = r#"
import ftplib, io, sys
host, mode, path = sys.argv[1:]
data = open(path, "rb").read()
ftp = ftplib.FTP()
ftp.connect(host, 2121, timeout=60)
ftp.login("user", "secret")
ftp.set_pasv(mode == "passive")
got = io.BytesIO()
ftp.retrbinary("RETR file", got.write, 65536)
assert got.getvalue() == data, "RETR"
ftp.storbinary("STOR put-" + mode, io.BytesIO(data), 65536)
got = io.BytesIO()
ftp.retrbinary("RETR put-" + mode, got.write)
assert got.getvalue() == data, "RETR of what was put"
assert "file" in ftp.nlst() and "put-" + mode in ftp.nlst(), "NLST"
ftp.quit()
print("good")
"#;

/// pyftpdlib and ftplib move files both ways, in passive and in active mode, each once on the stack.
fn ftp(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let root = lab.file("ftp");
    std::fs::create_dir(&root)?;
    let (path, _) = make_file(lab, "ftp/file", LENGTH)?;
    let root = root.to_str().context("a path")?.to_owned();
    for (server_side, client_side) in Side::PAIRS {
        let arguments = ["-m", "pyftpdlib", "-p", "2121", "-w", "-d", &root, "-u", "user", "-P", "secret"];
        let server = start_server(lab, &stage, server_side, 2121, PYTHON, &arguments)?;
        for mode in ["passive", "active"] {
            let mut client = stage.on(client_side, PYTHON)?;
            client.args(["-c", FTP_CLIENT, &server_side.address().to_string(), mode]).arg(&path);
            let text = output_of(lab, &format!("ftp-{client_side:?}-{mode}"), client)?;
            ensure!(text == "good\n", "{text}");
        }
        server.stop(STOP)?;
    }
    Ok(())
}

/// What an iperf3 run over TCP sends.
const IPERF_BYTES: f64 = 160e6;
/// How much of it the buffers of both ends hold at most, for one connection: 4 MiB at a sender (`tcp_wmem`), and a receive
/// window of half the 32 MiB that `tcp_rmem` is at most on a machine with much memory.
const IPERF_BUFFERS: f64 = 22e6;

/// What of the 8 MB of a run over UDP arrives; how often it is tried, since what comes while the machine does not let the
/// receiver run is lost.
const IPERF_DATAGRAMS: (f64, usize) = (4e6, 4);

/// iperf3 in all its ways: sending, receiving, in parallel, in both directions, by UDP.
fn iperf(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let ways: [&[&str]; 6] =
        [&[], &["-R"], &["-P", "4"], &["-P", "4", "-R"], &["-u", "-b", "100M"], &["-u", "-b", "100M", "-R"]];
    for (server_side, client_side) in Side::PAIRS {
        for (number, way) in ways.iter().enumerate() {
            let port = 5201 + number as u16;
            let server = start_iperf_server(lab, &stage, server_side, port)?;
            let is_udp = way.contains(&"-u");
            // The receiving iperf3 stops reading when the other says that all is sent; what is in the buffers of both
            // ends at that moment is not in its sum. Contents are checked by the other tests.
            let streams = if way.contains(&"-P") { 4 } else { 1 };
            let (least, tries) =
                if is_udp { IPERF_DATAGRAMS } else { (IPERF_BYTES - f64::from(streams) * IPERF_BUFFERS, 1) };
            for left in (0..tries).rev() {
                let text = iperf_client(lab, &stage, client_side, (server_side, port), way)?;
                let bytes = received(&text).with_context(|| format!("{way:?}: {text}"))?;
                if bytes >= least {
                    break;
                }
                ensure!(left > 0, "{way:?} received {bytes} bytes, not {least}:\n{text}");
            }
            server.stop(STOP)?;
        }
    }
    Ok(())
}

/// Runs an iperf3 client. A server that has seen a connection end, such as the one that found out whether its port is
/// open, closes its listener for a moment and is tried again.
fn iperf_client(
    lab: &Lab,
    stage: &Stage,
    client_side: Side,
    (server_side, port): (Side, u16),
    way: &[&str],
) -> Result<String> {
    let length = if way.contains(&"-u") { "8M".to_owned() } else { IPERF_BYTES.to_string() };
    let (host, port) = (server_side.address().to_string(), port.to_string());
    let started = Instant::now();
    for attempt in 0.. {
        let mut client = stage.on(client_side, "iperf3")?;
        client.args(["-J", "-n", &length, "-p", &port, "-c", &host]).args(way);
        let mut process = lab.start(&format!("iperf-{client_side:?}-{port}-{attempt}"), client)?;
        process.wait(PATIENCE)?;
        let text = process.stdout()?;
        let refused = ["unable to connect", "server is busy"].iter().any(|reason| text.contains(reason));
        if !refused || started.elapsed() > PATIENCE {
            return Ok(text);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    unreachable!("the loop ends by returning")
}

/// A server that gets no connection to see whether it is there: it would take that for a test.
fn start_iperf_server(lab: &Lab, stage: &Stage, side: Side, port: u16) -> Result<Process> {
    let mut spawn = stage.on(side, "iperf3")?;
    spawn.args(["-s", "--forceflush", "-p", &port.to_string()]);
    let mut server = lab.start(&format!("iperf-server-{side:?}-{port}"), spawn)?;
    let began = Instant::now();
    while !server.stdout()?.contains("listening") {
        ensure!(server.is_running()? && began.elapsed() < PATIENCE, "no iperf3 server: {}", server.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// Bytes that the receiving end of an iperf3 run has counted.
fn received(text: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_str(text)?;
    let end = &report["end"];
    if let Some(bytes) = end["sum_received"]["bytes"].as_f64() {
        return Ok(bytes);
    }
    let sum = &end["sum"];
    let (bytes, lost) =
        (sum["bytes"].as_f64().context("sum")?, sum["lost_percent"].as_f64().context("lost")?);
    Ok(bytes * (1.0 - lost / 100.0))
}

/// redis-server and redis-benchmark, and redis-cli to check contents.
fn redis(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let (path, bytes) = make_file(lab, "value", 300_000)?;
    let folder = lab.directory().to_str().context("a path")?.to_owned();
    for (server_side, client_side) in Side::PAIRS {
        let arguments =
            ["--port", "6380", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", &folder];
        let server = start_server(lab, &stage, server_side, 6380, "redis-server", &arguments)?;
        let host = server_side.address();
        redis_value(lab, &stage, client_side, host, &path, &bytes)?;
        let mut bench = stage.on(client_side, "redis-benchmark")?;
        bench.args([
            "-h",
            &host.to_string(),
            "-p",
            "6380",
            "-n",
            "3000",
            "-c",
            "20",
            "-q",
            "-t",
            "set,get,lpush",
        ]);
        let text = output_of(lab, &format!("bench-{client_side:?}"), bench)?;
        ensure!(text.matches("requests per second").count() == 3, "{text}");
        server.stop(STOP)?;
    }
    Ok(())
}

/// Puts a large value in and takes it out again.
fn redis_value(
    lab: &Lab,
    stage: &Stage,
    side: Side,
    host: IpAddr,
    path: &std::path::Path,
    bytes: &[u8],
) -> Result<()> {
    let script = format!(
        "redis-cli -h {host} -p 6380 -x set key < {} && redis-cli -h {host} -p 6380 get key",
        path.display()
    );
    let mut shell = stage.on(side, "/bin/sh")?;
    shell.args(["-c", &script]);
    let mut process = lab.start(&format!("cli-{side:?}"), shell)?;
    process.wait_for_success(PATIENCE)?;
    let got = std::fs::read(lab.file(&format!("cli-{side:?}.out")))?;
    let expected = [b"OK\n", bytes, b"\n"].concat();
    ensure!(got == expected, "redis gave {} bytes, not {}", got.len(), expected.len());
    Ok(())
}

/// The exit status is the program's own, or what a shell gives for one that cannot be run.
fn statuses(lab: &Lab) -> Result<()> {
    let stage = Stage::new(lab, Arch::Fep)?;
    let data = make_file(lab, "data", 10)?.0;
    let cases =
        [("/bin/true", 0), ("/bin/false", 1), ("/nonexistent", 127), (data.to_str().context("a path")?, 126)];
    for (program, expected) in cases {
        let status = stage.here(program)?.output()?.status;
        ensure!(status.code() == Some(expected), "{program}: {status}");
    }
    let mut killed = stage.here("/bin/sh")?;
    killed.args(["-c", "kill -9 $$"]);
    let status = killed.output()?.status;
    ensure!(status.code().is_none(), "a killed program: {status}");
    ensure!(
        stage.here("/bin/true")?.output()?.stderr.is_empty(),
        "a warning about a program that the library reaches"
    );
    // The dynamic linker itself has no dynamic linker.
    let mut unreachable = stage.here("/lib64/ld-linux-x86-64.so.2")?;
    unreachable.args(["--version"]);
    let unreachable = unreachable.output()?;
    let warning = String::from_utf8_lossy(&unreachable.stderr);
    ensure!(unreachable.status.success() && warning.contains("statically linked"), "no warning: {warning}");
    let mut nobody = stage.there(lab::executable()?.to_str().context("a path")?);
    nobody.args(["run", "--socket", "/nonexistent/socket", "--", "/bin/echo", "started"]);
    let output = nobody.output()?;
    ensure!(output.status.code() == Some(4), "without a FEP: {}", output.status);
    ensure!(output.stdout.is_empty(), "the program was started without a FEP");
    Ok(())
}

/// Prints the slice of its thread: before and after it has waited for a connection, in a forked child and in a started program.
const SLICES: &str = "
import ctypes, os, socket, struct, subprocess, sys

def slice():
    number, room = {'x86_64': 315, 'aarch64': 275}[os.uname().machine], ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(number, 0, room, 48, 0) == 0
    return struct.unpack_from('Q', room, 24)[0]

if len(sys.argv) == 2:
    before = slice()
    listener = socket.create_server((sys.argv[1], 2007))
    listener.settimeout(0.05)
    try:
        listener.accept()
    except TimeoutError:
        pass
    print(before, slice(), flush=True)
    if os.fork() == 0:
        print(slice(), flush=True)
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, __file__, 'once', 'more'], check=True)
else:
    print(slice())
";

/// A thread that waits for the stack's sockets has a short slice, unless that is turned off; what it starts has the usual one.
fn slices(lab: &Lab) -> Result<()> {
    let stage = Stage::new(lab, Arch::Fep)?;
    let script = lab.file("slices.py");
    std::fs::write(&script, SLICES)?;
    for wanted in ["", "0"] {
        let mut program = stage.here(PYTHON)?;
        program.arg(&script).arg(Side::Here.address().to_string()).env("OUTBOARD_SLICE_US", wanted);
        let text = output_of(lab, &format!("slices{wanted}"), program)?;
        let told: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [before, waiting, forked, started] = told[..] else { anyhow::bail!("four slices: {text}") };
        // Linux before 6.12 has no slices, and says 0.
        let expected = if wanted == "0" || before == 0 { before } else { 100_077 };
        ensure!(waiting == expected, "a thread that has waited: {text}");
        ensure!((forked, started) == (before, before), "what it has started: {text}");
    }
    Ok(())
}

/// Limits its address space to less than the library maps, as vsftpd does, and talks over the stack all the same.
const LIMITED: &str = "
import resource, socket, sys

def limit(soft, hard):
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert resource.getrlimit(resource.RLIMIT_AS) == (soft, hard), resource.getrlimit(resource.RLIMIT_AS)
    assert resource.prlimit(0, resource.RLIMIT_AS) == (soft, hard)

limit(200 << 20, resource.RLIM_INFINITY)
listener = socket.create_server((sys.argv[1], 2009))
client = socket.create_connection((sys.argv[1], 2009))
server, _ = listener.accept()
client.sendall(b'x' * 100000)
assert server.recv(100000, socket.MSG_WAITALL) == b'x' * 100000
limit(150 << 20, 200 << 20)
limit(100 << 20, 150 << 20)
try:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 20, 1 << 20))
    sys.exit('a soft limit above the hard one')
except ValueError:
    pass
try:
    bytearray(16 << 30)
    sys.exit('there is no limit')
except MemoryError:
    print('limited')
";

fn limited(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    let script = lab.file("limited.py");
    std::fs::write(&script, LIMITED)?;
    let mut program = stage.here(PYTHON)?;
    program.arg(&script).arg(Side::Here.address().to_string());
    ensure!(output_of(lab, "limited", program)? == "limited\n");
    Ok(())
}

lab::lab_test! {
    fn http_through_a_fep(lab) {
        http(lab, Arch::Fep)
    }

    fn http_with_the_stack_inside(lab) {
        http(lab, Arch::Host)
    }

    fn ftp_through_a_fep(lab) {
        ftp(lab, Arch::Fep)
    }

    fn ftp_with_the_stack_inside(lab) {
        ftp(lab, Arch::Host)
    }

    fn iperf3_through_a_fep(lab) {
        iperf(lab, Arch::Fep)
    }

    fn iperf3_with_the_stack_inside(lab) {
        iperf(lab, Arch::Host)
    }

    fn redis_through_a_fep(lab) {
        redis(lab, Arch::Fep)
    }

    fn redis_with_the_stack_inside(lab) {
        redis(lab, Arch::Host)
    }

    fn the_exit_status_is_the_programs(lab) {
        statuses(lab)
    }

    fn a_limited_address_space_leaves_room_for_a_fep(lab) {
        limited(lab, Arch::Fep)
    }

    fn a_limited_address_space_leaves_room_for_the_stack_inside(lab) {
        limited(lab, Arch::Host)
    }

    fn who_waits_has_a_short_slice_and_keeps_it_to_itself(lab) {
        slices(lab)
    }
}
