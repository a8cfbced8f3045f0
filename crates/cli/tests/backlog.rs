//! A program that does not accept is given as many connections as its backlog says, as by Linux, and the others once it does.

mod common;

use anyhow::{Result, ensure};
use common::{Arch, Side, Stage, output_of};
use lab::Lab;

const PYTHON: &str = "/usr/bin/python3";

/// Listens with a backlog of 1 and accepts a connection for each line that it is told, over a file.
const SERVER: &str = r#"
import os, socket, sys, time
orders = sys.argv[1]
listener = socket.socket()
listener.bind(("", 4000))
listener.listen(1)
open(orders, "w").close()
connections = []
while len(connections) < 5:
    if os.path.getsize(orders) > len(connections):
        connections.append(listener.accept()[0])
    else:
        time.sleep(0.01)
for connection in connections:
    assert connection.recv(1) == b"x"
print("good")
"#;

/// Begins five connections one after the other; two of them come about until the server accepts.
const CLIENT: &str = r#"
import os, select, socket, sys, time
host, orders = sys.argv[1:]
end = time.time() + 90
while not os.path.exists(orders):
    assert time.time() < end, "nobody listens"
    time.sleep(0.05)
waiting = []
for _ in range(5):
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex((host, 4000))
    waiting.append(connection)
    # One after the other, so that each finds those before it established.
    select.select([], [connection], [], 0.3)

def established(count):
    while True:
        done = select.select([], waiting, [], 0.2)[1]
        if len(done) >= count:
            return done
        assert time.time() < end, f"{len(done)} and not {count}"

done = established(2)
time.sleep(1)
done = select.select([], waiting, [], 0)[1]
assert len(done) == 2, f"{len(done)} without anybody accepting"
for accepted in range(5):
    with open(orders, "a") as file:
        file.write("+")
    done = established(min(accepted + 3, 5))
for connection in waiting:
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    connection.send(b"x")
print("good")
"#;

fn backlog(lab: &Lab, arch: Arch) -> Result<()> {
    let stage = Stage::new(lab, arch)?;
    for (server_side, client_side) in Side::PAIRS {
        let orders = lab.file(&format!("orders-{server_side:?}"));
        let mut server = stage.on(server_side, PYTHON)?;
        server.args(["-c", SERVER]).arg(&orders);
        let mut server = lab.start("server", server)?;
        let mut client = stage.on(client_side, PYTHON)?;
        client.args(["-c", CLIENT, &server_side.address().to_string()]).arg(&orders);
        let text = output_of(lab, "client", client)?;
        ensure!(text == "good\n", "{text}");
        server.wait_for_success(common::PATIENCE)?;
    }
    Ok(())
}

lab::lab_test! {
    fn a_backlog_is_kept_by_the_kernel(lab) {
        backlog(lab, Arch::Kernel)
    }
    fn a_backlog_is_kept_by_a_fep(lab) {
        backlog(lab, Arch::Fep)
    }
    fn a_backlog_is_kept_with_the_stack_inside(lab) {
        backlog(lab, Arch::Host)
    }
}
