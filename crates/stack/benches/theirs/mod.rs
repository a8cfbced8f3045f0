//! smoltcp's side of the comparison: two hosts with one connection, over the same links as Outboard's.
//!
//! smoltcp runs as it is fastest: without congestion control, delayed acknowledgements as by default, without Nagle's algorithm.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::link::{CHUNK, Link, Pattern};

/// An end of the link.
struct End<'a> {
    inbound: &'a mut Link,
    outbound: &'a mut Link,
    mtu: usize,
    /// On a link without a queue, who gets what is sent; not what is answered at once to a received frame.
    peer: Option<Peer<'a>>,
}

/// Who takes a frame in while it is sent.
struct Peer<'a> {
    host: &'a mut Host,
    slot: &'a mut [u8],
    answers: &'a mut Link,
    now: Instant,
}

struct Inbound<'a>(&'a mut Link);

enum Outbound<'a> {
    Queue(&'a mut Link),
    Peer { host: &'a mut Host, slot: &'a mut [u8], answers: &'a mut Link, now: Instant, mtu: usize },
}

/// One frame that is handed over.
struct Handed<'a> {
    frame: Option<&'a [u8]>,
    answers: &'a mut Link,
    mtu: usize,
}

struct HandedFrame<'a>(&'a [u8]);

impl RxToken for Inbound<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(self.0.front().unwrap_or_default());
        self.0.pop();
        result
    }
}

impl RxToken for HandedFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for Outbound<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        match self {
            Self::Queue(link) => fill(link.push(len)),
            Self::Peer { host, slot, answers, now, mtu } => {
                let result = fill(&mut slot[..len]);
                let mut device = Handed { frame: Some(&slot[..len]), answers, mtu };
                host.interface.poll_ingress_single(now, &mut device, &mut host.sockets);
                result
            }
        }
    }
}

impl Device for End<'_> {
    type RxToken<'a>
        = Inbound<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outbound<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Inbound<'_>, Outbound<'_>)> {
        let ready = !self.inbound.is_empty() && self.outbound.has_room();
        ready.then_some((Inbound(self.inbound), Outbound::Queue(self.outbound)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outbound<'_>> {
        let mtu = self.mtu;
        match &mut self.peer {
            Some(Peer { host, slot, answers, now }) => {
                answers.has_room().then_some(Outbound::Peer { host, slot, answers, now: *now, mtu })
            }
            None => self.outbound.has_room().then_some(Outbound::Queue(self.outbound)),
        }
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu)
    }
}

impl Device for Handed<'_> {
    type RxToken<'a>
        = HandedFrame<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outbound<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(HandedFrame<'_>, Outbound<'_>)> {
        Some((HandedFrame(self.frame.take()?), Outbound::Queue(self.answers)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outbound<'_>> {
        self.answers.has_room().then_some(Outbound::Queue(self.answers))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu)
    }
}

fn capabilities(mtu: usize) -> DeviceCapabilities {
    // The default asks for all checksums in both directions.
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    capabilities
}

/// One of the hosts.
struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Host {
    fn new(number: u8, buffer: usize, device: &mut End<'_>) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = number.into();
        let mut interface = Interface::new(config, device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address = IpCidr::new(IpAddress::v4(10, 0, 0, number), 24);
            assert!(addresses.push(address).is_ok(), "there is room for one address");
        });
        let memory = || SocketBuffer::new(vec![0; buffer]);
        let mut socket = Socket::new(memory(), memory());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self { interface, sockets, socket }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

/// One stream from the client to the server.
pub(crate) struct Smoltcp {
    client: Host,
    server: Host,
    forward: Link,
    back: Link,
    mtu: usize,
    /// On a link without a queue, where the frame stands that is handed over.
    slot: Option<Vec<u8>>,
    pattern: Pattern,
    queued: u64,
    pub(crate) read: u64,
    pub(crate) touches: bool,
    pub(crate) is_right: bool,
}

impl Smoltcp {
    pub(crate) fn new(mtu: u16, frames: usize, buffer: usize, handed: bool) -> Self {
        let mtu = usize::from(mtu);
        let (mut forward, mut back) = (Link::new(frames, mtu), Link::new(frames, mtu));
        let mut device = End { inbound: &mut forward, outbound: &mut back, mtu, peer: None };
        let mut client = Host::new(1, buffer, &mut device);
        let mut server = Host::new(2, buffer, &mut device);
        let context = client.interface.context();
        let to = (IpAddress::v4(10, 0, 0, 2), 80);
        let connected = client.sockets.get_mut::<Socket<'_>>(client.socket).connect(context, to, 50_000);
        assert!(connected.is_ok() && server.socket().listen(80).is_ok(), "the ports are free");
        Self {
            client,
            server,
            forward,
            back,
            mtu,
            slot: handed.then(|| vec![0; mtu]),
            pattern: Pattern::new(),
            queued: 0,
            read: 0,
            touches: true,
            is_right: true,
        }
    }

    /// Everything once.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.write();
        self.poll_client(now);
        if self.slot.is_some() {
            // What was handed over stands in the buffer already.
            self.read();
            self.poll_server(now);
        } else {
            self.poll_server(now);
            self.read();
        }
    }

    fn write(&mut self) {
        let Self { client, pattern, queued, touches, .. } = self;
        let socket = client.socket();
        // Twice, where the ring wraps; at most what the other stack's application writes in a turn.
        let mut left = CHUNK;
        while socket.can_send() && left > 0 {
            let written = socket.send(|room| {
                let len = room.len().min(left);
                if *touches {
                    pattern.write(*queued, &mut room[..len]);
                }
                (len, len)
            });
            let written = written.unwrap_or(0);
            *queued += written as u64;
            left -= written;
        }
    }

    fn poll_client(&mut self, now: Instant) {
        let Self { client, server, forward, back, mtu, slot, .. } = self;
        // What arrived goes first, since what is sent may be answered at once.
        let mut device = End { inbound: back, outbound: forward, mtu: *mtu, peer: None };
        let Some(slot) = slot else {
            client.interface.poll(now, &mut device, &mut client.sockets);
            return;
        };
        client.interface.poll_maintenance(now);
        while !device.inbound.is_empty() {
            client.interface.poll_ingress_single(now, &mut device, &mut client.sockets);
        }
        let End { inbound: back, outbound: forward, .. } = device;
        let mut nothing = Link::new(0, 0);
        let peer = Some(Peer { host: server, slot, answers: back, now });
        let mut device = End { inbound: &mut nothing, outbound: forward, mtu: *mtu, peer };
        while client.interface.poll_egress(now, &mut device, &mut client.sockets)
            == smoltcp::iface::PollResult::SocketStateChanged
        {}
    }

    fn poll_server(&mut self, now: Instant) {
        let Self { server, forward, back, mtu, .. } = self;
        let mut device = End { inbound: forward, outbound: back, mtu: *mtu, peer: None };
        server.interface.poll(now, &mut device, &mut server.sockets);
    }

    fn read(&mut self) {
        let Self { server, pattern, read, touches, is_right, .. } = self;
        let socket = server.socket();
        while socket.can_recv() {
            let part = socket.recv(|bytes| {
                *is_right &= !*touches || pattern.is(*read, bytes);
                (bytes.len(), bytes.len())
            });
            *read += part.unwrap_or(0) as u64;
        }
    }
}
