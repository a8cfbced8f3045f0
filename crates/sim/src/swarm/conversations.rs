//! Random conversations.

use base::{Duration, Instant, Rng, SeededRng};
use stack::SocketOptions;
use tcp::Keepalive;

use super::{Scenario, between, chance, span_between};
use crate::application::{ConversationSpec, End, Pace, Plan, Read};

/// About so many packets carry a world's data, however many conversations share it.
const PACKETS: u64 = 1500;
/// And so many in one world of sixteen.
const MANY_PACKETS: u64 = 20_000;
/// And they take about so long at the rate of the slowest path.
const SECONDS: u64 = 60;

/// Adds conversations between the hosts that have ways to each other, a client on each even host.
pub(super) fn add(rng: &mut SeededRng, scenario: &mut Scenario, slowest: u64, mtu: u16) {
    let pairs = scenario.hosts.len() as u16 / 2;
    let churn = chance(rng, 0.2);
    let count = if churn { 10 + rng.below(40) } else { 1 + rng.below(6) };
    let payload = u64::from(mtu).min(1500) - 60;
    let packets = if scenario.seed % 16 == 7 { MANY_PACKETS } else { PACKETS };
    let budget = (packets * payload * u64::from(mtu) / 1500).min(slowest / 8 * SECONDS).max(1000);
    for number in 0..count {
        let pair = rng.below(u64::from(pairs)) as u16;
        let most = (budget / count.min(8)).max(100);
        let (mut client_plan, mut server_plan) = plans(rng, most, churn);
        let mut own = SeededRng::new(scenario.seed.rotate_left(32) ^ number);
        choose_opening(&mut own, &mut client_plan, &mut server_plan);
        let aborts = [&client_plan, &server_plan].iter().any(|plan| matches!(plan.end, End::Abort(_)));
        // The options of a server's socket are its listener's: keepalive is for those that need it.
        let port = if aborts { 1000 + number } else { 80 + number % 3 } as u16;
        scenario.conversations.push(ConversationSpec {
            client: 2 * pair,
            server: 2 * pair + 1,
            port,
            start: Instant::from_nanos(rng.below(if churn { 20_000_000_000 } else { 3_000_000_000 })),
            client_plan,
            server_plan,
        });
    }
}

/// How the connection is opened: with data in the SYN, or accepted only with its first data.
fn choose_opening(rng: &mut SeededRng, client: &mut Plan, server: &mut Plan) {
    if chance(rng, 0.5) {
        server.options.fast_open = 1 + rng.below(20) as u32;
        // Without something to say first its SYN would wait for ever.
        client.options.fast_open_connect = client.allowed(0) > 0;
    }
    if chance(rng, 0.1) {
        let time = span_between(rng, Duration::from_millis(1), Duration::from_secs(20));
        server.options.defer_accept = Some(time);
    }
}

fn plans(rng: &mut SeededRng, most: u64, churn: bool) -> (Plan, Plan) {
    let mut size = |most: u64| if chance(rng, 0.1) { 0 } else { between(rng, 1, most) };
    let (up, down) =
        if churn { (size(2000.min(most)), size(20_000.min(most))) } else { (size(most), size(most)) };
    let (mut client, mut server) = (Plan::sending(up), Plan::sending(down));
    match rng.below(10) {
        0..=2 => {}
        3 => client.send = 0,
        4 => server.send = 0,
        5..=6 => (client, server) = turns(rng, most),
        7 => {
            // The client closes as soon as it has written.
            server.send = 0;
            client.end = End::CloseAtOnce;
        }
        8 => {
            client.end = End::Linger(span_between(rng, Duration::from_millis(1), Duration::from_secs(30)));
            server.end = if chance(rng, 0.5) { client.end } else { End::Orderly };
        }
        _ => abort(rng, &mut client, &mut server),
    }
    for plan in [&mut client, &mut server] {
        plan.chunk = between(rng, 1, 64 << 10) as usize;
        plan.chunk = plan.chunk.max((plan.send / 500) as usize);
        plan.buffer = between(rng, 2048, 4 << 20);
        if chance(rng, 0.15) && !matches!(plan.pace, Pace::Turns { .. }) {
            // At most a few hundred reads, and never more than a minute of them.
            let bytes = (most / 50).max(1) + rng.below(most);
            plan.read = Read::Slow {
                bytes,
                every: span_between(rng, Duration::from_micros(100), Duration::from_secs(1)),
            };
        }
        plan.options.nodelay = chance(rng, 0.4);
        if chance(rng, 0.1) {
            plan.options.receive_limit = Some(between(rng, 2048, 1 << 20) as u32);
        }
    }
    (client, server)
}

/// Requests and responses.
fn turns(rng: &mut SeededRng, most: u64) -> (Plan, Plan) {
    let count = 1 + rng.below(20);
    let request = between(rng, 1, (most / count).max(1));
    let response = between(rng, 1, (most / count).max(1));
    let mut client = Plan::sending(request * count);
    let mut server = Plan::sending(response * count);
    client.pace = Pace::Turns { mine: request, theirs: response, leads: true };
    server.pace = Pace::Turns { mine: response, theirs: request, leads: false };
    (client, server)
}

/// One side resets the connection. The reset may be lost, so both sides look after the other.
fn abort(rng: &mut SeededRng, client: &mut Plan, server: &mut Plan) {
    let end = End::Abort(span_between(rng, Duration::from_millis(1), Duration::from_secs(5)));
    if chance(rng, 0.5) {
        client.end = end
    } else {
        server.end = end
    }
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), count: 5 };
    for plan in [client, server] {
        plan.options = SocketOptions { keepalive: Some(keepalive), ..SocketOptions::default() };
    }
}
