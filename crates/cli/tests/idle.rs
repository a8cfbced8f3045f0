//! A program that sleeps keeps no send memory for connections that have nothing to send.

mod common;

use anyhow::{Result, ensure};
use common::{Arch, Side, Stage, output_of};
use lab::Lab;

const PYTHON: &str = "/usr/bin/python3";
const CONNECTIONS: usize = 30;
const PORT: u16 = 4000;

/// Answers each connection with 200 kB, and then sleeps for good in one call of `epoll_wait`, `poll` or `select`. A thread that makes
/// no calls of sockets looks what the process holds of the channel's memory, and ends it when that has gone.
const SERVER: &str = r#"
import os, select, socket, sys, threading, time
way, count = sys.argv[1], int(sys.argv[2])

def held():
    total, ours = 0, False
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            ours = "memfd:outboard-a" in line
        elif ours and words[0] == "Rss:":
            total += int(words[1])
    return total

def watch():
    most = held()
    while held() > most // 8:
        time.sleep(0.1)
    print(f"most {most} kB", flush=True)
    os._exit(0)

listener = socket.create_server(("", 4000), backlog=128)
# The first is the one that waited for the port.
listener.accept()[0].close()
connections = []
for _ in range(count):
    connection, _ = listener.accept()
    connection.sendall(bytes(200000))
    assert connection.recv(1) == b"k"
    connections.append(connection)
threading.Thread(target=watch).start()
if way == "epoll":
    epoll = select.epoll()
    for connection in connections:
        epoll.register(connection, select.EPOLLIN)
    ready = epoll.poll()
elif way == "poll":
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    ready = poll.poll()
else:
    ready = select.select(connections, [], [])
print("woken", ready, flush=True)
os._exit(1)
"#;

const CLIENT: &str = r#"
import socket, sys
connections = []
for _ in range(int(sys.argv[2])):
    connection = socket.create_connection((sys.argv[1], 4000), timeout=60)
    left = 200000
    while left:
        left -= len(connection.recv(left))
    connection.sendall(b"k")
    connections.append(connection)
for connection in connections:
    connection.settimeout(100)
    try:
        assert connection.recv(1) == b""
    except ConnectionResetError:
        pass
print("good")
"#;

fn asleep(lab: &Lab, way: &str) -> Result<()> {
    let stage = Stage::new(lab, Arch::Fep)?;
    let mut server = stage.on(Side::Here, PYTHON)?;
    server.args(["-c", SERVER, way, &CONNECTIONS.to_string()]);
    let mut server = lab.start("server", server)?;
    let mut client = stage.on(Side::There, PYTHON)?;
    client.args(["-c", CLIENT, &Side::Here.address().to_string(), &CONNECTIONS.to_string()]);
    stage.wait_for_port(Side::Here, PORT, &mut server)?;
    let text = output_of(lab, "client", client)?;
    ensure!(text == "good\n", "{text}");
    server.wait_for_success(common::PATIENCE)?;
    let most = server.stdout()?;
    let most: usize = most.trim().trim_start_matches("most ").trim_end_matches(" kB").parse()?;
    ensure!(most * 1024 >= CONNECTIONS * 150_000, "it never held the memory: {most} kB");
    Ok(())
}

lab::lab_test! {
    fn send_memory_goes_back_while_the_program_sleeps_in_epoll(lab) {
        asleep(lab, "epoll")
    }
    fn send_memory_goes_back_while_the_program_sleeps_in_poll(lab) {
        asleep(lab, "poll")
    }
    fn send_memory_goes_back_while_the_program_sleeps_in_select(lab) {
        asleep(lab, "select")
    }
}
