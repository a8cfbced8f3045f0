//! socket, bind, listen, accept, connect, shutdown and the names of both ends.

use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::Instant;

use libc::{sockaddr, socklen_t};
use outboard::raw::{self, Interest};

use crate::description::{Description, InetSocket, Kind, Phase};
use crate::runtime::{self, Side, for_stack, side_of_bind, side_of_peer};
use crate::sockaddr::Family;
use crate::table::{self, Held};
use crate::{ancillary, descriptor, errno, options, real, sockaddr as address_of, wait};

/// How often a port is looked for that is free on both sides.
const PORT_ATTEMPTS: usize = 64;

/// See socket(2). An Internet socket gets an entry in the table; who carries its traffic is decided later.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no pointers.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd < 0 || !runtime::enabled() || !table::in_own_process() {
        return fd;
    }
    drop(table::remove(fd));
    if let (Some(family), Some(inet)) = (Family::of_domain(domain), kind_of(kind, protocol)) {
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let socket = InetSocket::new(family, inet, nonblocking);
        drop(table::insert(fd, Held::new(Description::Socket(socket))));
    }
    fd
}

fn kind_of(kind: c_int, protocol: c_int) -> Option<Kind> {
    match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Some(Kind::Stream),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Kind::Datagram),
        _ => None,
    }
}

/// See bind(2).
///
/// # Safety
/// `address` must point to `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if let Some(held) = table::find(fd)
        && let Some(socket) = held.socket()
        // SAFETY: the caller's pointer.
        && let Some(target) = unsafe { address_of::read_checked(address, length) }
    {
        let _change = socket.lock_change();
        match side_of_bind(socket.family, is_v6_only(fd, socket.family), target) {
            Ok(Side::Kernel) if socket.phase() == Phase::Kernel => {}
            Ok(Side::Outboard) if socket.phase() == Phase::Kernel => {
                return errno::status(bind_outboard(fd, &held, socket, target));
            }
            Ok(Side::Both) if socket.phase() == Phase::Kernel => {
                return errno::status(bind_both(fd, &held, socket, target));
            }
            Ok(_) => return errno::fail(libc::EINVAL), // it is bound
            Err(error) => return errno::fail(errno::of(&error)),
        }
    }
    // SAFETY: the caller's pointer.
    unsafe { real::bind(fd, address, length) }
}

/// The stack's socket for a descriptor, with the options that the kernel's has.
fn open(fd: c_int, socket: &InetSocket) -> io::Result<raw::Socket> {
    let endpoint = runtime::endpoint()?;
    let outboard = match socket.kind {
        Kind::Stream => raw::Socket::tcp(endpoint)?,
        Kind::Datagram => raw::Socket::udp(endpoint)?,
    };
    options::carry_over(fd, socket, &outboard);
    Ok(outboard)
}

fn bind_outboard(fd: c_int, held: &Held, socket: &InetSocket, target: SocketAddr) -> io::Result<()> {
    let outboard = open(fd, socket)?;
    outboard.bind(for_stack(target))?;
    if let Ok(local) = outboard.local_addr() {
        socket.note_bound(local);
    }
    socket.adopt(outboard, Phase::Outboard);
    socket.watchers.move_over(held, false);
    Ok(())
}

/// Binds both sides to the same port.
fn bind_both(fd: c_int, held: &Held, socket: &InetSocket, target: SocketAddr) -> io::Result<()> {
    if target.port() != 0 {
        bind_kernel(fd, socket.family, target)?;
        socket.note_bound(target);
        let outboard = open(fd, socket)?;
        outboard.bind(for_stack(target))?;
        return become_both(held, socket, outboard);
    }
    for _ in 0..PORT_ATTEMPTS {
        let outboard = open(fd, socket)?;
        outboard.bind(for_stack(target))?;
        let port = outboard.local_addr()?.port();
        match bind_kernel(fd, socket.family, SocketAddr::new(target.ip(), port)) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
            Err(error) => return Err(error),
            Ok(()) => return become_both(held, socket, outboard),
        }
    }
    Err(errno::error(libc::EADDRINUSE))
}

/// A stream socket that is bound to the wildcard has the kernel carry it until it listens or connects.
fn become_both(held: &Held, socket: &InetSocket, outboard: raw::Socket) -> io::Result<()> {
    socket.adopt(outboard, Phase::Both);
    socket.watchers.move_over(held, true);
    Ok(())
}

fn bind_kernel(fd: c_int, family: Family, target: SocketAddr) -> io::Result<()> {
    // SAFETY: the address is written and read within its storage.
    let status = unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
        let address = (&raw mut storage).cast::<sockaddr>();
        address_of::write(target, family, address, &mut length)?;
        real::bind(fd, address, length)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn is_v6_only(fd: c_int, family: Family) -> bool {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the value has as many bytes as `length` says.
    let status = unsafe {
        real::getsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, (&raw mut value).cast(), &mut length)
    };
    family == Family::V6 && status == 0 && value != 0
}

/// See listen(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if let Some(held) = table::find(fd)
        && let Some(socket) = held.socket()
        && socket.kind == Kind::Stream
    {
        let _change = socket.lock_change();
        if let Err(error) = listen_outboard(fd, &held, socket, backlog) {
            return errno::fail(errno::of(&error));
        }
        if socket.phase() == Phase::Outboard {
            return 0;
        }
        if socket.phase() == Phase::Both {
            set_kernel_nonblocking(fd);
        }
    }
    // SAFETY: no pointers.
    unsafe { real::listen(fd, backlog) }
}

fn listen_outboard(fd: c_int, held: &Held, socket: &InetSocket, backlog: c_int) -> io::Result<()> {
    if socket.phase() == Phase::Kernel && kernel_name(fd).is_some_and(|name| name.port() == 0) {
        // Not bound: as if to the wildcard and any port.
        let any = wildcard(socket.family, 0);
        if side_of_bind(socket.family, is_v6_only(fd, socket.family), any)? == Side::Both {
            bind_both(fd, held, socket, any)?;
        }
    }
    match socket.outboard() {
        Some(outboard) => outboard.listen(u32::try_from(backlog).unwrap_or(0)),
        None => Ok(()),
    }
}

fn wildcard(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
        Family::V6 => (std::net::Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// The kernel's listener beside one of the stack's is only asked when it has something; should another thread be
/// faster, it must not block.
fn set_kernel_nonblocking(fd: c_int) {
    // SAFETY: no pointers.
    unsafe {
        let flags = real::fcntl(fd, libc::F_GETFL, 0);
        real::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as libc::c_ulong);
    }
}

fn kernel_name(fd: c_int) -> Option<SocketAddr> {
    // SAFETY: the address is written and read within its storage.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
        let address = (&raw mut storage).cast::<sockaddr>();
        if real::getsockname(fd, address, &mut length) != 0 {
            return None;
        }
        address_of::read(address, length)
    }
}

/// See accept(2).
///
/// # Safety
/// As accept(2): `address` null, or with its room in `length`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { accept4(fd, address, length, 0) }
}

/// See accept(2).
///
/// # Safety
/// As [`accept`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let held = table::find(fd);
    let Some((socket, outboard)) = held
        .as_deref()
        .and_then(Description::socket)
        .and_then(|socket| socket.joined().map(|outboard| (socket, outboard)))
    else {
        // SAFETY: the caller's pointers.
        return unsafe { accept_kernel(fd, address, length, flags) };
    };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return errno::fail(libc::EINVAL);
    }
    let deadline = socket.receive_deadline();
    loop {
        match accept_outboard(socket, outboard, flags) {
            Ok((fd, peer)) => {
                let told = match address.is_null() {
                    true => Ok(()),
                    // SAFETY: the caller's pointers.
                    false => unsafe { address_of::write_checked(peer, socket.family, address, length) },
                };
                return match told {
                    Ok(()) => fd,
                    Err(error) => {
                        descriptor::close(fd);
                        errno::fail(errno::of(&error))
                    }
                };
            }
            Err(error) if errno::is_again(&error) => {}
            Err(error) => return errno::fail(errno::of(&error)),
        }
        let both = socket.phase() == Phase::Both;
        if both {
            // SAFETY: the caller's pointers; this listener does not block.
            let accepted = unsafe { accept_kernel(fd, address, length, flags) };
            if accepted >= 0 || errno::get() != libc::EAGAIN {
                return accepted;
            }
        }
        if socket.nonblocking() {
            return errno::fail(libc::EAGAIN);
        }
        let waited = if both {
            wait::for_both(fd, deadline)
        } else {
            wait::for_socket(outboard, Interest::READABLE, deadline)
        };
        if let Err(error) = waited {
            return errno::fail(errno::of(&error));
        }
    }
}

/// # Safety
/// As [`accept`].
unsafe fn accept_kernel(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's pointers.
    let accepted = unsafe { real::accept4(fd, address, length, flags) };
    if accepted >= 0 {
        drop(table::remove(accepted));
    }
    accepted
}

/// Accepts a connection of the stack's. Its descriptor is that of a new kernel socket, made first: where there is none left,
/// the connection stays in the queue.
fn accept_outboard(
    listener: &InetSocket,
    outboard: &raw::Socket,
    flags: c_int,
) -> io::Result<(c_int, SocketAddr)> {
    let fd = match outboard.poll_ready(Interest::READABLE).readable {
        true => new_descriptor(listener, flags)?,
        false => -1,
    };
    let accepted = outboard.accept();
    let (connection, peer) = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            if fd >= 0 {
                // SAFETY: no pointers; it was made above and nobody knows it.
                unsafe { real::close(fd) };
            }
            return Err(error);
        }
    };
    let fd = if fd < 0 { new_descriptor(listener, flags)? } else { fd };
    options::inherit(fd, &connection.options());
    let socket = InetSocket::accepted(listener.family, connection, flags & libc::SOCK_NONBLOCK != 0);
    socket.set_tells_left(listener.tells_left());
    socket.set_tells_copied(listener.tells_copied());
    socket.set_peek_offset(listener.peek_offset());
    socket.timestamping.inherit(&listener.timestamping);
    if listener.ancillary() != 0 {
        socket.change_ancillary(0, listener.ancillary());
        ancillary::set_all(fd, listener.ancillary());
    }
    drop(table::insert(fd, Held::new(Description::Socket(socket))));
    Ok((fd, peer))
}

fn new_descriptor(listener: &InetSocket, flags: c_int) -> io::Result<c_int> {
    // SAFETY: no pointers.
    let fd = unsafe { real::socket(listener.family.domain(), libc::SOCK_STREAM | flags, 0) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// See connect(2).
///
/// # Safety
/// `address` must point to `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    if let Some(held) = table::find(fd)
        && let Some(socket) = held.socket()
    {
        // SAFETY: the caller's pointer.
        match unsafe { address_of::read_checked(address, length) } {
            Some(peer) => match prepare_connect(fd, &held, socket, peer) {
                Ok(Some(outboard)) => return errno::status(connect_outboard(socket, outboard, peer)),
                Ok(None) => {}
                Err(error) => return errno::fail(errno::of(&error)),
            },
            None => {
                // SAFETY: the caller's pointer.
                if let Some(status) = unsafe { disconnect(fd, &held, socket, address, length) } {
                    return errno::status(status);
                }
            }
        }
    }
    // SAFETY: the caller's pointer.
    unsafe { real::connect(fd, address, length) }
}

/// `connect` to an address that is none of the Internet's: only one of no family means something to a socket of the stack's,
/// which it disconnects (connect(2)). `None`: the kernel is to be asked.
///
/// # Safety
/// `address` must be null or point to `length` readable bytes.
unsafe fn disconnect(
    fd: c_int,
    held: &Held,
    socket: &InetSocket,
    address: *const sockaddr,
    length: socklen_t,
) -> Option<io::Result<()>> {
    let outboard = socket.outboard()?;
    if length as usize > size_of::<libc::sockaddr_storage>() {
        return None;
    }
    // SAFETY: the caller's pointer.
    match unsafe { address_of::family_of(address, length) } {
        Some(libc::AF_UNSPEC) if socket.kind == Kind::Datagram => Some(outboard.disconnect()),
        Some(libc::AF_UNSPEC) => Some(disconnect_stream(fd, held, socket, outboard)),
        _ => None, // the kernel's socket is not connected, either: it says what is wrong with this
    }
}

/// The connection is reset, or the listener closed, and the socket is as it was before: bound to what the program bound it to.
fn disconnect_stream(fd: c_int, held: &Held, socket: &InetSocket, outboard: &raw::Socket) -> io::Result<()> {
    let _change = socket.lock_change();
    if !outboard.has_begun() {
        return Ok(());
    }
    outboard.abort();
    if !socket.retire() {
        return Err(errno::error(libc::ENOBUFS));
    }
    let none = sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address lives during the call. A listener of the kernel's beside it listens no more.
    unsafe { real::connect(fd, &raw const none, size_of::<sockaddr>() as socklen_t) };
    let Some(local) = socket.bound() else { return Ok(()) };
    let again = open(fd, socket)?;
    again.bind(for_stack(local))?;
    if for_stack(local).ip().is_unspecified() {
        return become_both(held, socket, again);
    }
    socket.adopt(again, Phase::Outboard);
    socket.watchers.move_over(held, false);
    Ok(())
}

/// Decides who carries the connection: the stack's socket, or none for the kernel.
pub(crate) fn prepare_connect<'a>(
    fd: c_int,
    held: &'a Held,
    socket: &'a InetSocket,
    peer: SocketAddr,
) -> io::Result<Option<&'a raw::Socket>> {
    let _change = socket.lock_change();
    if socket.phase() == Phase::Outboard {
        return Ok(socket.outboard());
    }
    let bound_elsewhere = socket.phase() == Phase::Kernel
        && kernel_name(fd).is_some_and(|name| !address_of::unmapped(name).ip().is_unspecified());
    if bound_elsewhere || side_of_peer(socket.family, peer)? != Side::Outboard {
        socket.set_phase(Phase::Kernel);
        return Ok(None);
    }
    if socket.existing().is_none() {
        let outboard = open(fd, socket)?;
        socket.adopt(outboard, Phase::Outboard);
    }
    socket.set_phase(Phase::Outboard);
    socket.watchers.leave_kernel();
    socket.watchers.move_over(held, false);
    Ok(socket.outboard())
}

fn connect_outboard(socket: &InetSocket, outboard: &raw::Socket, peer: SocketAddr) -> io::Result<()> {
    let deadline = socket.send_deadline();
    match outboard.connect(for_stack(peer)) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) && !socket.nonblocking() => {}
        Err(error) if error.raw_os_error() == Some(libc::EALREADY) && !socket.nonblocking() => {}
        other => return other,
    }
    wait_connected(outboard, deadline)?;
    // Asked again, it tells the outcome.
    match outboard.connect(for_stack(peer)) {
        Err(error) if error.raw_os_error() == Some(libc::EISCONN) => Ok(()),
        other => other,
    }
}

/// Waits for the end of a connection attempt.
pub(crate) fn wait_connected(outboard: &raw::Socket, deadline: Option<Instant>) -> io::Result<()> {
    match wait::for_socket(outboard, Interest::WRITABLE, deadline) {
        Err(error) if errno::is_again(&error) => Err(errno::error(libc::EINPROGRESS)),
        other => other,
    }
}

/// See shutdown(2).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let held = table::find(fd);
    let socket = held.as_deref().and_then(Description::socket);
    let Some(outboard) = socket.and_then(InetSocket::outboard) else {
        // SAFETY: no pointers.
        return unsafe { real::shutdown(fd, how) };
    };
    let ends = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return errno::fail(libc::EINVAL),
    };
    if socket.is_some_and(|socket| socket.phase() == Phase::Both) {
        // SAFETY: no pointers.
        unsafe { real::shutdown(fd, how) };
    }
    errno::status(outboard.shutdown(ends))
}

/// See getsockname(2).
///
/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let held = table::find(fd);
    if let Some(socket) = held.as_deref().and_then(Description::socket)
        && socket.phase() == Phase::Outboard
        && let Some(outboard) = socket.outboard()
    {
        // SAFETY: the caller's pointers.
        return unsafe { name(socket.family, outboard.local_addr(), address, length) };
    }
    // SAFETY: the caller's pointers.
    unsafe { real::getsockname(fd, address, length) }
}

/// See getpeername(2).
///
/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let held = table::find(fd);
    if let Some(socket) = held.as_deref().and_then(Description::socket)
        && let Some(outboard) = socket.outboard()
    {
        // SAFETY: the caller's pointers.
        return unsafe { name(socket.family, outboard.peer_addr(), address, length) };
    }
    // SAFETY: the caller's pointers.
    unsafe { real::getpeername(fd, address, length) }
}

/// # Safety
/// As getsockname(2).
unsafe fn name(
    family: Family,
    value: io::Result<SocketAddr>,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    errno::status(
        value.and_then(|value| unsafe { address_of::write_checked(value, family, address, length) }),
    )
}

/// The stack's side of a datagram socket that the kernel alone carried so far. As with every first datagram, the socket
/// gets a port if it has none; both sides have the same one.
pub(crate) fn open_for_datagrams<'a>(
    fd: c_int,
    held: &'a Held,
    socket: &'a InetSocket,
) -> io::Result<&'a raw::Socket> {
    if let Some(outboard) = socket.outboard() {
        return Ok(outboard);
    }
    let _change = socket.lock_change();
    if socket.existing().is_none() {
        match kernel_name(fd).map_or(0, |name| name.port()) {
            0 => bind_both(fd, held, socket, wildcard(socket.family, 0))?,
            port => {
                let outboard = open(fd, socket)?;
                // Another program of the stack may have the port; then the stack chooses one when the datagram goes out.
                let _ = outboard.bind(for_stack(wildcard(socket.family, port)));
                become_both(held, socket, outboard)?;
            }
        }
    }
    socket.set_phase(Phase::Both);
    socket.existing().ok_or_else(|| errno::error(libc::EBADF))
}
