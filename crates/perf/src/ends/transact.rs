//! Connect, a request, its answer, disconnect: the client's end of one thread.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use super::client::Thread;
use super::connection::Net;
use super::data::check_message;
use super::exchange::{Large, transact_large};
use super::outcome::Part;
use super::pace::{self, Pace};
use super::{Plan, Verify};

pub(super) fn run(net: &Net, address: SocketAddr, thread: &Thread<'_>) -> io::Result<Part> {
    let plan = thread.plan;
    let pace = thread.rate().map(|rate| Pace::new(thread.window.began, rate));
    let is_over = |begun| {
        let due = pace.map_or_else(Instant::now, |pace| pace.due(begun));
        thread.is_over(begun, due)
    };
    let mut begun = 0;
    if plan.is_large() {
        let mut large = Large::new(thread);
        while !is_over(begun) {
            let began = pace::begin(pace.as_ref(), begun, plan.client_spins);
            transact_large(net, address, &mut large, began)?;
            begun += 1;
        }
        return large.finish();
    }
    let mut part = Part::timed()?;
    let mut request = vec![0; plan.request_bytes as usize];
    let mut answer = vec![0; plan.answer_bytes as usize];
    while !is_over(begun) {
        let began = pace::begin(pace.as_ref(), begun, plan.client_spins);
        request.fill(begun as u8);
        transact(net, address, plan, &request, &mut answer)?;
        let now = Instant::now();
        thread.done(&mut part, began, now, plan.request_bytes + plan.answer_bytes, plan.answer_bytes);
        begun += 1;
    }
    part.verified = plan.verify == Verify::Pattern;
    Ok(part)
}

fn transact(
    net: &Net,
    address: SocketAddr,
    plan: &Plan,
    request: &[u8],
    answer: &mut [u8],
) -> io::Result<()> {
    let connection = net.connect_as(address, plan).map_err(explain)?;
    (&mut &connection).write_all(request)?;
    (&mut &connection).read_exact(answer)?;
    check_message(plan.verify, answer, request[0])
}

fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::AddrNotAvailable {
        return io::Error::new(
            error.kind(),
            "all ports are used by connections that were just closed (TIME-WAIT): use a lower rate, fewer operations, or \
             more ports",
        );
    }
    error
}
