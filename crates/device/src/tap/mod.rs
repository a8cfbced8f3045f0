//! A TAP (or TUN) interface of the Linux kernel, with checksum and segmentation offload.
//!
//! The kernel's end of the interface is a neighbour on the same link. Every frame is preceded by a virtio-net header
//! (virtio 1.2 §5.1.6), so that checksums need not be computed and super-segments of up to 64 KiB pass whole in both
//! directions: with the kernel on the other side of a memory copy there is no wire to protect or to fill.
//!
//! Offload flags belong to the interface, not to the descriptor, and outlive it; the driver resets them when it is
//! dropped, and [`Tap::reset_offload`] does so for an inherited descriptor whose last user died.
//!
//! The noise filter belongs to the descriptor and goes with it. But the kernel remembers of an interface that outlives its
//! descriptors (`TUNSETPERSIST`) that it had one, and where it lay in the memory of a process that is no more: if that was
//! killed, who attaches next must say `IFF_NOFILTER`, as this driver does.

mod filter;
mod header;
mod sys;

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::IpCidr;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};

use crate::{Device, DeviceStats, NoiseFilter, Wanted};
use header::{HEADER_LEN, VnetHeader};

/// The largest frame that either side may pass: a 64 KiB packet behind an Ethernet header with room for tags.
const MAX_FRAME: usize = 65_535 + 14 + 8;

/// The smallest MTU: packets of this length every IPv4 host must take, in pieces or whole (RFC 791 §3.2).
pub const MIN_MTU: u16 = 576;

/// The largest MTU that the kernel allows: 65,535 bytes of packet and link header together (`tun_net_initialize` of
/// tun.c).
pub const fn max_mtu(medium: Medium) -> u16 {
    u16::MAX - medium.header_len() as u16
}

/// How to open an interface.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The interface's name; it is created if it does not exist.
    pub name: String,
    /// Ethernet frames (TAP) or bare IP packets (TUN).
    pub medium: Medium,
    /// The MTU to set, or `None` to take what the interface has.
    pub mtu: Option<u16>,
    /// Whether to leave checksums and segmentation to the other side.
    pub offload: bool,
    /// Whether to bring the interface up.
    pub bring_up: bool,
    /// The address to give the kernel's end (IPv4).
    pub kernel_address: Option<IpCidr>,
    /// The hardware address of our end (TAP).
    pub hardware_address: EthernetAddress,
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The clone device could not be opened.
    #[error(
        "cannot open /dev/net/tun: {0}; is the tun module loaded, and may this user open it (root, or CAP_NET_ADMIN)?"
    )]
    Open(#[source] io::Error),
    /// The name is not one that an interface can have.
    #[error("'{0}' is no interface name: give 1 to 15 characters without '/' and spaces")]
    Name(String),
    /// The interface could not be attached to.
    #[error(
        "cannot attach to interface '{name}': {error}; another process may hold it, or it is no TAP interface with the same flags, or root (CAP_NET_ADMIN) is needed"
    )]
    Attach {
        /// The interface.
        name: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// An inherited descriptor is not a TAP interface's.
    #[error("the descriptor does not belong to a TAP interface: {0}")]
    Descriptor(#[source] io::Error),
    /// The MTU is one that no interface of this kind can have.
    #[error(
        "MTU {mtu} is not possible for '{name}': {least} to {largest} are, for {kind}",
        least = MIN_MTU,
        largest = max_mtu(*medium),
        kind = if *medium == Medium::Ethernet { "a TAP interface" } else { "a TUN interface" }
    )]
    MtuRange {
        /// The interface.
        name: String,
        /// The MTU asked for, in bytes.
        mtu: u16,
        /// What the interface's frames start with.
        medium: Medium,
    },
    /// The kernel refused to set the MTU.
    #[error("cannot set MTU {mtu} on '{name}': {error}; is this root, or a holder of CAP_NET_ADMIN?")]
    Mtu {
        /// The interface.
        name: String,
        /// The MTU asked for, in bytes.
        mtu: u16,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The interface could not be configured.
    #[error("cannot configure interface '{name}': {error}")]
    Interface {
        /// The interface.
        name: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The kernel's end can only be given an IPv4 address here.
    #[error("'{0}' cannot be given to the kernel's end: only IPv4 is supported there")]
    KernelAddress(IpCidr),
    /// The kernel refused the virtio-net header or the offload flags.
    #[error("the kernel refused the offload settings: {0}")]
    Offload(#[source] io::Error),
}

/// An open TAP or TUN interface.
#[derive(Debug)]
pub struct Tap {
    device: File,
    name: String,
    capabilities: Capabilities,
    buffer: Box<[u8]>,
    stats: DeviceStats,
    /// Whether the offload flags are reset when this is dropped.
    reset_on_drop: bool,
}

impl Tap {
    /// Opens the interface, creating it if need be.
    ///
    /// While the interface is down, transmitting answers `NetworkDown` and nothing is received; both go on when it is
    /// up again.
    ///
    /// # Errors
    /// See [`TapError`]; each says what to do.
    pub fn open(options: &TapOptions) -> Result<Self, TapError> {
        let device = sys::open_clone_device()?;
        sys::attach(&device, &options.name, options.medium == Medium::Ethernet)?;
        Self::configure(device, options.name.clone(), options)
    }

    /// Takes over a descriptor that is already attached, as a worker inherits it from its supervisor. The name in the
    /// options is ignored in favour of the interface's own.
    ///
    /// # Errors
    /// The descriptor is not a TAP interface's, or a setting was refused.
    pub fn from_descriptor(descriptor: OwnedFd, options: &TapOptions) -> Result<Self, TapError> {
        rustix::fs::fcntl_setfl(&descriptor, rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| TapError::Descriptor(error.into()))?;
        let device = File::from(descriptor);
        let name = sys::attached_name(&device)?;
        let mut tap = Self::configure(device, name, options)?;
        tap.reset_on_drop = false;
        Ok(tap)
    }

    fn configure(device: File, name: String, options: &TapOptions) -> Result<Self, TapError> {
        let mut tap = Self {
            device,
            name,
            capabilities: Capabilities {
                medium: options.medium,
                mtu: MIN_MTU,
                checksum_tx: options.offload,
                checksum_rx: options.offload,
                max_segmentation: if options.offload { u32::from(u16::MAX) } else { 0 },
                hardware_address: options.hardware_address,
            },
            buffer: vec![0; HEADER_LEN + MAX_FRAME].into_boxed_slice(),
            stats: DeviceStats::default(),
            reset_on_drop: true,
        };
        // From here on dropping `tap` takes the offload flags back, whatever fails.
        sys::set_header(&tap.device, HEADER_LEN).map_err(TapError::Offload)?;
        set_offload(&tap.device, options.offload).map_err(TapError::Offload)?;
        // An inherited descriptor may have the filter of a worker that died.
        if options.medium == Medium::Ethernet {
            sys::detach_filter(&tap.device).map_err(TapError::Offload)?;
        }
        tap.capabilities.mtu = tap.configure_interface(options)?;
        Ok(tap)
    }

    /// Sets what was asked for on the kernel's end, and returns the MTU.
    fn configure_interface(&self, options: &TapOptions) -> Result<u16, TapError> {
        let (name, medium) = (&self.name, options.medium);
        let out_of_range = |mtu: &u16| *mtu < MIN_MTU || *mtu > max_mtu(medium);
        if let Some(mtu) = options.mtu.filter(out_of_range) {
            return Err(TapError::MtuRange { name: name.clone(), mtu, medium });
        }
        let socket =
            sys::interface_socket().map_err(|error| TapError::Interface { name: name.clone(), error })?;
        if let Some(mtu) = options.mtu {
            sys::set_mtu(socket.as_raw_fd(), name, mtu)?;
        }
        if let Some(cidr) = options.kernel_address {
            let (IpAddr::V4(address), prefix) = (cidr.address(), u32::from(cidr.prefix_len())) else {
                return Err(TapError::KernelAddress(cidr));
            };
            let netmask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            sys::set_address(socket.as_raw_fd(), name, address.octets(), netmask.to_be_bytes())?;
        }
        if options.bring_up {
            sys::bring_up(socket.as_raw_fd(), name)?;
        }
        Ok(u16::try_from(sys::mtu(socket.as_raw_fd(), name)?).unwrap_or(u16::MAX))
    }

    /// Whether there is an interface called `name` in the calling thread's network namespace, of whatever kind. A
    /// caller who wants to open an interface but not to create one asks this first.
    ///
    /// # Errors
    /// The name is not one that an interface can have, or the kernel does not answer.
    pub fn exists(name: &str) -> Result<bool, TapError> {
        let socket =
            sys::interface_socket().map_err(|error| TapError::Interface { name: name.to_owned(), error })?;
        match sys::mtu(socket.as_raw_fd(), name) {
            Ok(_) => Ok(true),
            Err(TapError::Interface { error, .. }) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the interface outlive its last descriptor, or not (as it is when it is created).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        sys::set_persistent(&self.device, persistent)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A second descriptor of the same open device, for a process that outlives this one.
    ///
    /// # Errors
    /// There are too many open descriptors.
    pub fn try_clone_descriptor(&self) -> io::Result<OwnedFd> {
        Ok(OwnedFd::from(self.device.try_clone()?))
    }

    /// Takes back every offload, and the noise filter, from the interface behind `descriptor`, so that its next user gets plain
    /// frames, and all of them.
    ///
    /// # Errors
    /// The descriptor is not a TAP interface's.
    pub fn reset_offload(descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let device = File::from(descriptor.try_clone_to_owned()?);
        // A TUN interface can have none.
        let _ = sys::detach_filter(&device);
        set_offload(&device, false)
    }

    fn write(&mut self, header: VnetHeader, pieces: &[&[u8]; 3]) -> io::Result<()> {
        let header = header.to_bytes();
        let slices = [
            IoSlice::new(&header),
            IoSlice::new(pieces[0]),
            IoSlice::new(pieces[1]),
            IoSlice::new(pieces[2]),
        ];
        self.stats.system_calls += 1;
        match sys::write_frame(&self.device, &slices) {
            Ok(written) => {
                self.stats.frames_out += 1;
                self.stats.bytes_out += (written - HEADER_LEN) as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stats.full += 1;
                Err(error)
            }
            Err(error) => {
                self.stats.errors_out += 1;
                Err(say_if_down(error))
            }
        }
    }
}

/// The kernel says EIO of an interface that is down.
fn say_if_down(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EIO) { io::ErrorKind::NetworkDown.into() } else { error }
}

/// Sets or clears every offload that the kernel knows; older kernels know no UDP runs.
fn set_offload(device: &File, on: bool) -> io::Result<()> {
    if !on {
        return sys::set_offload(device, 0);
    }
    let tcp = sys::TUN_F_CSUM | sys::TUN_F_TSO4 | sys::TUN_F_TSO6 | sys::TUN_F_TSO_ECN;
    let udp = sys::TUN_F_USO4 | sys::TUN_F_USO6;
    sys::set_offload(device, tcp | udp).or_else(|_| sys::set_offload(device, tcp))
}

impl Device for Tap {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        for count in 0..budget {
            self.stats.system_calls += 1;
            let length = match sys::read_frame(&self.device, &mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                // The interface is down: nothing is received, and it may come back.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(count),
                Err(error) => return Err(error),
            };
            let Some((header, bytes)) = VnetHeader::split(&self.buffer[..length]) else {
                self.stats.errors_in += 1;
                continue;
            };
            self.stats.frames_in += 1;
            self.stats.bytes_in += bytes.len() as u64;
            handle(&RxFrame { bytes, checksum: header.checksum_in(), segment_size: header.segment_size() });
        }
        Ok(budget)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        let must_cut = frame.segmentation != Segmentation::None && self.capabilities.max_segmentation == 0;
        let must_sum = frame.checksum != ChecksumOut::Complete && !self.capabilities.checksum_tx;
        if !must_cut && !must_sum {
            let header = VnetHeader::for_frame(frame, self.capabilities.medium);
            return self.write(header, &[frame.headers, frame.payload[0], frame.payload[1]]);
        }
        let mut answer = Ok(());
        let mut sent = 0;
        let medium = self.capabilities.medium;
        let cut = wire::cut::cut(frame, medium, |headers, payload| {
            if answer.is_ok() {
                answer = self.write(VnetHeader::PLAIN, &[headers, payload[0], payload[1]]);
                sent += usize::from(answer.is_ok());
            }
        });
        if let Err(error) = cut {
            self.stats.errors_out += 1;
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        // Once a piece is out the rest is lost as on a wire: offering the whole again would send the first pieces twice.
        if sent > 0 { Ok(()) } else { answer }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }

    fn noise_filter(&self) -> Option<Box<dyn NoiseFilter>> {
        let is_ethernet = self.capabilities.medium == Medium::Ethernet;
        let device = is_ethernet.then(|| self.device.try_clone().ok()).flatten()?;
        Some(Box::new(TapFilter(device)))
    }
}

/// The noise filter of a TAP interface.
struct TapFilter(File);

impl NoiseFilter for TapFilter {
    fn want(&mut self, wanted: &Wanted) -> io::Result<()> {
        sys::attach_filter(&self.0, &filter::program(wanted))
    }

    fn want_everything(&mut self) -> io::Result<()> {
        sys::detach_filter(&self.0)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.reset_on_drop {
            // The interface may be gone with its namespace; then there is nothing left to reset.
            let _ = sys::detach_filter(&self.device);
            let _ = set_offload(&self.device, false);
        }
    }
}
