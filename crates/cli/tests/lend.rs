//! `sendfile` through a FEP: the file is lent, whether it is in memory or not, and to the last byte.

mod common;

use anyhow::{Context, Result, ensure};
use common::{Arch, Side, Stage, make_file, output_of};
use lab::{Lab, executable};

const PYTHON: &str = "/usr/bin/python3";
const LENGTH: usize = 5_000_011;

/// Sends the file for every byte that it is asked with: `m` as it is, `c` after the system was told to keep none of it in
/// memory, `e` the same and it is over: then the connection and the file are closed at once.
const SERVER: &str = r#"
import os, socket, sys
path = sys.argv[1]
listener = socket.create_server(("", 4000))
connection, _ = listener.accept()
while True:
    # Opened anew each time, as servers do, but twice.
    file = open(path, "rb")
    size = os.fstat(file.fileno()).st_size
    again = os.dup(file.fileno())
    order = connection.recv(1)
    if order in (b"c", b"e"):
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    offset = 0
    while offset < size:
        if offset % 2:
            os.lseek(again, offset, os.SEEK_SET)
            sent = os.sendfile(connection.fileno(), again, None, 150000)
            assert os.lseek(again, 0, os.SEEK_CUR) == offset + sent
        else:
            sent = os.sendfile(connection.fileno(), file.fileno(), offset, 65536)
        offset += sent
    assert os.sendfile(connection.fileno(), file.fileno(), size, 65536) == 0
    os.close(again)
    file.close()
    if order == b"e":
        connection.close()
        break
"#;

/// Asks for the file until the FEP has read some of it, then for all of it from the storage, then for the last time.
const CLIENT: &str = r#"
import json, socket, subprocess, sys
host, path, outboard, control = sys.argv[1:]
data = open(path, "rb").read()
connection = socket.create_connection((host, 4000), timeout=60)

def take(order):
    connection.sendall(order)
    got = bytearray()
    while len(got) < len(data):
        piece = connection.recv(1 << 20)
        assert piece, "the end came early"
        got += piece
    assert got == data, order

def lent():
    status = subprocess.run([outboard, "status", "--json", "--socket", control], capture_output=True, check=True)
    return json.loads(status.stdout)["worker"]["file_bytes"]

take(b"m")
while lent() == 0:
    take(b"m")
for round in range(20):
    take(b"c")
take(b"e")
assert connection.recv(1) == b"", "more than the file came"
print("good")
"#;

fn sendfile(lab: &Lab) -> Result<()> {
    let stage = Stage::new(lab, Arch::Fep)?;
    let (path, _) = make_file(lab, "file", LENGTH)?;
    let mut server = stage.on(Side::Here, PYTHON)?;
    server.args(["-c", SERVER]).arg(&path);
    let mut server = lab.start("server", server)?;
    // Its first connection is the client's.
    let mut client = stage.on(Side::There, PYTHON)?;
    let control = stage.control_socket().context("a FEP")?;
    client.args(["-c", &format!("{WAIT}{CLIENT}"), &Side::Here.address().to_string()]);
    client.arg(&path).arg(executable()?).arg(control);
    let text = output_of(lab, "client", client)?;
    ensure!(text == "good\n", "{text}");
    server.wait_for_success(common::PATIENCE)
}

/// Waits until the server listens.
const WAIT: &str = r#"
import socket, sys, time
def create_connection(address, timeout, real=socket.create_connection, end=time.time() + 60):
    while True:
        try:
            return real(address, timeout)
        except ConnectionRefusedError:
            assert time.time() < end, "nobody listens"
            time.sleep(0.05)
socket.create_connection = create_connection
"#;

lab::lab_test! {
    fn a_sent_file_is_lent_in_memory_or_not_and_to_its_end(lab) {
        sendfile(lab)
    }
}
