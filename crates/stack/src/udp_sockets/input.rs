//! Datagrams in: to the connected socket of their flow, else to whoever is bound there.

use base::Instant;
use core::net::SocketAddr;
use wire::frame::ChecksumIn;
use wire::udp::{self, Header};

use crate::buffers::{BufferFamily, DatagramBuffer, DatagramMeta, Full};
use crate::flow::FourTuple;
use crate::icmp::IcmpKind;
use crate::ingress::Packet;
use crate::socket::wildcard;
use crate::stack::Stack;

impl<B: BufferFamily> Stack<B> {
    /// Takes a UDP datagram in.
    pub(crate) fn handle_udp(&mut self, now: Instant, packet: &Packet<'_>) {
        self.stats.udp_in += 1;
        let Ok((header, payload)) = Header::parse(packet.payload) else {
            self.stats.drop_udp_malformed += 1;
            return;
        };
        let datagram = &packet.payload[..usize::from(header.len)];
        if packet.checksum == ChecksumIn::Unknown
            && !udp::verify(packet.source(), packet.destination(), datagram)
        {
            self.stats.drop_udp_checksum += 1;
            return;
        }
        let tuple = FourTuple {
            local: SocketAddr::new(packet.destination(), header.dst_port),
            remote: SocketAddr::new(packet.source(), header.src_port),
        };
        let meta = DatagramMeta {
            remote: tuple.remote,
            local: tuple.local,
            ttl: packet.header.ttl,
            tos: packet.tos(),
            segment: 0,
        };
        if packet.to_group {
            self.deliver_to_all(now, &meta, payload);
            return;
        }
        match self.find_udp(&tuple) {
            Some(index) => self.deliver(now, index, &meta, payload),
            None => {
                self.stats.drop_udp_no_socket += 1;
                // RFC 1122 §4.1.3.1: port unreachable.
                self.send_icmp_error(now, packet, IcmpKind::PortUnreachable);
            }
        }
    }

    /// The socket that a datagram of this flow is for.
    pub(crate) fn find_udp(&mut self, tuple: &FourTuple) -> Option<u32> {
        self.find_udp_connected(tuple).or_else(|| self.find_udp_bound(tuple))
    }

    /// Among several at one address, as on Linux: the flow chooses with SO_REUSEPORT, else the latest.
    fn find_udp_bound(&self, tuple: &FourTuple) -> Option<u32> {
        let group = self.udp_endpoints.find(tuple.local);
        let latest = *group.last()?;
        let manner = self.sockets.get_index(latest).and_then(|socket| socket.manner);
        if manner.is_some_and(|manner| manner.reuse_port) {
            return group.get(self.udp_flows.tag(tuple) as usize % group.len()).copied();
        }
        Some(latest)
    }

    /// To every socket that takes broadcasts to this address and port.
    fn deliver_to_all(&mut self, now: Instant, meta: &DatagramMeta, payload: &[u8]) {
        let mut delivered = false;
        for end in [meta.local, wildcard(meta.local)] {
            let mut number = 0;
            while let Some(&index) = self.udp_endpoints.exact(end).and_then(|group| group.get(number)) {
                self.deliver(now, index, meta, payload);
                delivered = true;
                number += 1;
            }
        }
        if !delivered {
            self.stats.drop_udp_no_socket += 1;
        }
    }

    fn deliver(&mut self, now: Instant, index: u32, meta: &DatagramMeta, payload: &[u8]) {
        let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) else { return };
        match udp.buffers.push(now, meta, payload) {
            Ok(()) => self.mark_changed(index),
            Err(Full) => self.stats.drop_udp_queue_full += 1,
        }
    }
}
