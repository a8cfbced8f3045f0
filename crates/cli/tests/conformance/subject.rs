//! The two subjects: the Linux kernel behind a TAP device, and Outboard's stack behind a queue of frames, each with the
//! sockets that a program has of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::IpCidr;
use device::memory::{Frame, Handle, queue};
use device::tap::{Tap, TapOptions};
use device::{Device, memory};
use lab::{Lab, Namespace};
use outboard::raw::{Interest, Manner, Readiness, Socket, SocketOption};
use outboard::{Endpoint, HostConfig};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};

/// The subject's address.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The address that the test's packets come from, unless they say another.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The test's own hardware address.
pub(crate) const PEER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
/// That of Outboard's stack.
const HOST_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Outboard,
}

/// One of the two, with the wire to it.
pub(crate) enum Subject {
    Kernel { namespace: Namespace, tap: Box<Tap> },
    Outboard { endpoint: Endpoint, handle: Handle },
}

impl Subject {
    pub(crate) fn new(lab: &Lab, kind: Kind) -> Result<Self> {
        match kind {
            Kind::Kernel => Self::kernel(lab),
            Kind::Outboard => Self::outboard(),
        }
    }

    fn kernel(lab: &Lab) -> Result<Self> {
        let namespace = lab.namespace("subject")?;
        for (name, value) in [
            // Answers at any rate, and nothing remembered from one case to the next.
            ("net.ipv4.icmp_ratelimit", "0"),
            ("net.ipv4.tcp_invalid_ratelimit", "0"),
            ("net.ipv4.tcp_no_metrics_save", "1"),
            // Back-off from the first retransmission on (RFC 6298 §5.5).
            ("net.ipv4.tcp_syn_linear_timeouts", "0"),
            // Selective acknowledgements at once, not several at a time.
            ("net.ipv4.tcp_comp_sack_nr", "0"),
            ("net.ipv4.tcp_congestion_control", "reno"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ] {
            namespace.set_sysctl(name, value)?;
        }
        let options = TapOptions {
            name: "tap0".to_owned(),
            medium: Medium::Ethernet,
            mtu: Some(1500),
            offload: false,
            bring_up: true,
            kernel_address: Some(IpCidr::new(IpAddr::V4(HOST), 24).context("a prefix")?),
            hardware_address: PEER_MAC,
        };
        let tap = Box::new(namespace.within(|| Tap::open(&options))??);
        Ok(Self::Kernel { namespace, tap })
    }

    fn outboard() -> Result<Self> {
        let capabilities = Capabilities {
            medium: Medium::Ethernet,
            mtu: 1500,
            checksum_tx: false,
            checksum_rx: false,
            max_segmentation: 0,
            hardware_address: HOST_MAC,
        };
        let (device, handle): (memory::MemoryDevice, Handle) = queue(capabilities)?;
        let addresses = vec![IpCidr::new(IpAddr::V4(HOST), 24).context("a prefix")?];
        let endpoint = Endpoint::host(HostConfig { addresses, ..HostConfig::default() }, device)?;
        Ok(Self::Outboard { endpoint, handle })
    }

    /// Lets the subject receive a frame.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Kernel { tap, .. } => tap.transmit(&TxFrame {
                headers: bytes,
                payload: [&[], &[]],
                checksum: ChecksumOut::Complete,
                segmentation: Segmentation::None,
            })?,
            Self::Outboard { handle, .. } => {
                if handle.inject(Frame::plain(bytes.to_vec())).is_err() {
                    bail!("the stack takes no frames any more");
                }
            }
        }
        Ok(())
    }

    /// The next frame that the subject sent, if there is one.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Kernel { tap, .. } => {
                let mut taken = None;
                tap.receive(1, &mut |frame: &RxFrame<'_>| taken = Some(frame.bytes.to_vec()))?;
                Ok(taken)
            }
            Self::Outboard { handle, .. } => Ok(handle.collect().map(|frame| frame.bytes)),
        }
    }

    pub(crate) fn socket(&self, kind: SocketType) -> Result<Sock> {
        Ok(match self {
            Self::Kernel { namespace, .. } => Sock::Kernel(namespace.within(|| {
                net::socket_with(
                    AddressFamily::INET,
                    kind,
                    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                    None,
                )
            })??),
            Self::Outboard { endpoint, .. } if kind == SocketType::STREAM => {
                Sock::Outboard(Socket::tcp(endpoint)?)
            }
            Self::Outboard { endpoint, .. } => Sock::Outboard(Socket::udp(endpoint)?),
        })
    }
}

/// A socket of a subject; it never blocks.
#[allow(clippy::large_enum_variant, reason = "a case has a handful of them")]
pub(crate) enum Sock {
    Kernel(OwnedFd),
    Outboard(Socket),
}

fn v4(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(HOST, port)
}

impl Sock {
    pub(crate) fn bind(&self, port: u16) -> io::Result<()> {
        match self {
            Self::Kernel(fd) => {
                sockopt::set_socket_reuseaddr(fd, true)?;
                Ok(net::bind(fd, &v4(port))?)
            }
            Self::Outboard(socket) => {
                socket.set_option(SocketOption::ReuseAddress(true))?;
                socket.bind(SocketAddr::V4(v4(port)))
            }
        }
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        match self {
            Self::Kernel(fd) => Ok(net::listen(fd, backlog as i32)?),
            Self::Outboard(socket) => socket.listen(backlog),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Self> {
        match self {
            Self::Kernel(fd) => Ok(Self::Kernel(net::accept_with(fd, SocketFlags::NONBLOCK)?)),
            Self::Outboard(socket) => Ok(Self::Outboard(socket.accept()?.0)),
        }
    }

    pub(crate) fn connect(&self, port: u16) -> io::Result<()> {
        let peer = SocketAddrV4::new(PEER, port);
        match self {
            Self::Kernel(fd) => Ok(net::connect(fd, &peer)?),
            Self::Outboard(socket) => socket.connect(SocketAddr::V4(peer)),
        }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(fd) => Ok(net::send(fd, bytes, SendFlags::NOSIGNAL)?),
            Self::Outboard(socket) => socket.send(&[io::IoSlice::new(bytes)]),
        }
    }

    pub(crate) fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(fd) => Ok(net::recv(fd, room, RecvFlags::empty())?.0),
            Self::Outboard(socket) => socket.recv(&mut [io::IoSliceMut::new(room)], false),
        }
    }

    pub(crate) fn send_urgent(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(fd) => Ok(net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::OOB)?),
            Self::Outboard(socket) => socket.send_in(&[io::IoSlice::new(bytes)], Manner::Urgent),
        }
    }

    /// The urgent byte, out of the line.
    pub(crate) fn recv_urgent(&self) -> io::Result<Option<u8>> {
        match self {
            Self::Kernel(fd) => {
                let mut byte = [0];
                let (count, _) = net::recv(fd, &mut byte, RecvFlags::OOB)?;
                Ok((count > 0).then_some(byte[0]))
            }
            Self::Outboard(socket) => socket.recv_urgent(false),
        }
    }

    pub(crate) fn is_at_mark(&self) -> io::Result<bool> {
        match self {
            Self::Kernel(fd) => lab::is_at_mark(fd),
            Self::Outboard(socket) => Ok(socket.is_at_mark()),
        }
    }

    pub(crate) fn recv_datagram(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(fd) => Ok(net::recv(fd, room, RecvFlags::empty())?.0),
            Self::Outboard(socket) => {
                socket.recv_from(&mut [io::IoSliceMut::new(room)], false).map(|datagram| datagram.copied)
            }
        }
    }

    pub(crate) fn send_datagram(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(fd) => Ok(net::send(fd, bytes, SendFlags::NOSIGNAL)?),
            Self::Outboard(socket) => socket.send_to(&[io::IoSlice::new(bytes)], None),
        }
    }

    pub(crate) fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        match self {
            Self::Kernel(fd) => Ok(net::shutdown(
                fd,
                match how {
                    std::net::Shutdown::Read => net::Shutdown::Read,
                    std::net::Shutdown::Write => net::Shutdown::Write,
                    std::net::Shutdown::Both => net::Shutdown::Both,
                },
            )?),
            Self::Outboard(socket) => socket.shutdown(how),
        }
    }

    /// What `poll` says, with all bits asked for.
    pub(crate) fn poll(&self) -> io::Result<String> {
        let bits = match self {
            Self::Kernel(fd) => {
                let wanted = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
                let mut entries = [PollFd::new(fd, wanted)];
                poll(&mut entries, Some(&rustix::event::Timespec::default()))?;
                entries[0].revents()
            }
            Self::Outboard(socket) => bits_of(socket.poll_ready(Interest::BOTH)),
        };
        Ok(bits.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join("|"))
    }

    /// `SO_ERROR`.
    pub(crate) fn error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Kernel(fd) => Ok(sockopt::socket_error(fd)?.err().map(Into::into)),
            Self::Outboard(socket) => socket.take_error(),
        }
    }

    pub(crate) fn set(&self, option: SocketOption) -> Result<()> {
        match (self, option) {
            (Self::Outboard(socket), _) => socket.set_option(option)?,
            (Self::Kernel(fd), SocketOption::NoDelay(on)) => sockopt::set_tcp_nodelay(fd, on)?,
            (Self::Kernel(fd), SocketOption::Cork(on)) => sockopt::set_tcp_cork(fd, on)?,
            (Self::Kernel(fd), SocketOption::KeepAlive(on)) => sockopt::set_socket_keepalive(fd, on)?,
            (Self::Kernel(fd), SocketOption::KeepAliveIdle(time)) => sockopt::set_tcp_keepidle(fd, time)?,
            (Self::Kernel(fd), SocketOption::KeepAliveInterval(time)) => {
                sockopt::set_tcp_keepintvl(fd, time)?
            }
            (Self::Kernel(fd), SocketOption::KeepAliveProbes(count)) => sockopt::set_tcp_keepcnt(fd, count)?,
            (Self::Kernel(fd), SocketOption::Linger(time)) => sockopt::set_socket_linger(fd, time)?,
            (Self::Kernel(fd), SocketOption::ReceiveBuffer(bytes)) => {
                // The kernel doubles it for its bookkeeping.
                sockopt::set_socket_recv_buffer_size(fd, bytes as usize)?;
            }
            (Self::Kernel(fd), SocketOption::UrgentInline(on)) => sockopt::set_socket_oobinline(fd, on)?,
            (Self::Kernel(fd), SocketOption::Ttl(ttl)) => sockopt::set_ip_ttl(fd, ttl)?,
            (Self::Kernel(_), other) => bail!("{other:?} is not used in these tests"),
        }
        Ok(())
    }
}

fn bits_of(ready: Readiness) -> PollFlags {
    let mut bits = PollFlags::empty();
    bits.set(PollFlags::IN, ready.readable || ready.peer_closed);
    bits.set(PollFlags::PRI, ready.urgent);
    bits.set(PollFlags::OUT, ready.writable);
    bits.set(PollFlags::RDHUP, ready.peer_closed);
    bits.set(PollFlags::HUP, ready.hangup);
    bits.set(PollFlags::ERR, ready.error);
    bits
}

/// Linger for no time at all: closing resets.
pub(crate) const LINGER_0: SocketOption = SocketOption::Linger(Some(Duration::ZERO));
