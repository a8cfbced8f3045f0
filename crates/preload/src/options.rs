//! Socket options: always set on the kernel's socket, which judges and remembers them; those that mean something to
//! the stack are passed on as well. What would change the path of data behind the stack's back is refused as by a
//! kernel that does not know it.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use libc::{linger, socklen_t, timeval};
use outboard::raw::{MtuDiscovery, Options, Socket, SocketOption};

use crate::description::{Description, InetSocket, Kind, Phase};
use crate::timestamping::{KEY_BY_WRITTEN, SO_TIMESTAMPING_NEW};
use crate::{ancillary, errno, info, memory, real, sockaddr as address_of, table, transfer};

/// Options that a socket of the stack must not accept: data would go another way than the program then believes.
const REFUSED: [(c_int, c_int); 6] = [
    (libc::SOL_TCP, libc::TCP_ULP),
    (libc::SOL_TCP, libc::TCP_REPAIR),
    (libc::SOL_TCP, libc::TCP_MD5SIG),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_KEY),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_NO_COOKIE),
    (libc::SOL_IP, libc::IP_TRANSPARENT),
];

/// Options that a socket may have before it becomes the stack's; they are read back from the kernel's socket then.
const CARRIED: [(c_int, c_int); 22] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_TCP, libc::TCP_NODELAY),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL),
    (libc::SOL_TCP, libc::TCP_KEEPCNT),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT),
    (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::SOL_TCP, libc::TCP_FASTOPEN),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::SOL_IP, libc::IP_TTL),
    (libc::SOL_IP, libc::IP_TOS),
    (libc::SOL_IP, libc::IP_MTU_DISCOVER),
    (libc::SOL_IP, libc::IP_RECVERR),
    (libc::SOL_UDP, libc::UDP_GRO),
];

/// Options that are kept as they were set before a socket becomes the stack's: the kernel's socket does not give them back,
/// or not as they were set.
const REMEMBERED: [(c_int, c_int); 10] = [
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_TCP, libc::TCP_CORK),
    (libc::SOL_TCP, libc::TCP_QUICKACK),
    (libc::SOL_TCP, libc::TCP_MAXSEG),
    (libc::SOL_TCP, libc::TCP_SYNCNT),
    (libc::SOL_TCP, libc::TCP_LINGER2),
];

/// The longest that `TCP_LINGER2` may be (Linux: `TCP_FIN_TIMEOUT_MAX`).
const LONGEST_LINGER2: Duration = Duration::from_secs(120);

/// Room for the longest of the values above.
const LONGEST: usize = 16;

/// See setsockopt(2).
///
/// # Safety
/// `value` must point to `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let held = table::find(fd);
    let socket = held.as_deref().and_then(Description::socket);
    if socket.is_some_and(|socket| socket.phase() == Phase::Outboard) && REFUSED.contains(&(level, name)) {
        return errno::fail(libc::ENOPROTOOPT);
    }
    if let Some(outboard) = socket.and_then(InetSocket::outboard)
        && is_too_late(outboard, level, name)
    {
        return errno::fail(libc::EINVAL);
    }
    if let (Some(socket), (libc::SOL_TCP, libc::TCP_CONGESTION), false) =
        (socket, (level, name), value.is_null())
        && socket.kind == Kind::Stream
        && length > 0
    {
        // SAFETY: the caller's pointer.
        let first = unsafe { memory::fetch(value.cast::<u8>()) };
        if let Err(error) = first {
            return errno::fail(errno::of(&error));
        }
        let length_read = (length as usize).min(info::NAME_LENGTH);
        // SAFETY: the caller's pointer.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length_read) };
        // SAFETY: the caller's pointer.
        return info::set_congestion(socket, bytes, || unsafe {
            real::setsockopt(fd, level, name, value, length)
        });
    }
    // SAFETY: the caller's pointer.
    let status = match socket.and_then(|socket| connected_stamps(socket, level, name, length)) {
        // SAFETY: the caller's pointer, and as many bytes as `length` says.
        Some(()) => unsafe { set_stamps(fd, name, value, length) },
        // SAFETY: the caller's pointer.
        None => unsafe { real::setsockopt(fd, level, name, value, length) },
    };
    if status == 0
        && let Some(socket) = socket
        && !value.is_null()
    {
        let length = (length as usize).min(LONGEST);
        // SAFETY: the kernel has read these bytes.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length) };
        socket.note_tuned();
        // A socket that is disconnected gets another of the stack's.
        if REMEMBERED.contains(&(level, name)) {
            socket.remember(level, name, bytes);
        }
        if let Err(error) = pass_on(socket, socket.outboard(), level, name, bytes) {
            return errno::fail(errno::of(&error));
        }
    }
    status
}

/// Whether this sets `SO_TIMESTAMPING` of a connection of the stack's. The kernel's socket, which judges the flags, is not
/// connected: it would refuse keys.
fn connected_stamps(socket: &InetSocket, level: c_int, name: c_int, length: socklen_t) -> Option<()> {
    let names = [libc::SO_TIMESTAMPING, SO_TIMESTAMPING_NEW];
    let is_long = length as usize >= size_of::<c_int>();
    let concerns = level == libc::SOL_SOCKET && names.contains(&name) && is_long;
    let outboard = socket.outboard().filter(|_| concerns && socket.kind == Kind::Stream)?;
    (!outboard.is_listening() && outboard.has_begun()).then_some(())
}

/// Has the kernel's socket judge the flags without those of keys.
///
/// # Safety
/// As [`setsockopt`]; `length` is at least that of an `int`.
unsafe fn set_stamps(fd: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int {
    // `struct so_timestamping`, or the flags alone.
    let mut judged = [0u32; 2];
    let length = (length as usize).min(size_of_val(&judged));
    // SAFETY: the caller's pointer.
    if let Err(error) = unsafe { memory::fetch(value.cast::<u32>()) } {
        return errno::fail(errno::of(&error));
    }
    // SAFETY: as many bytes are there as the caller says, and there is room for these.
    unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), judged.as_mut_ptr().cast::<u8>(), length) };
    if judged[0] & libc::SOF_TIMESTAMPING_OPT_ID != 0 {
        judged[0] &= !(libc::SOF_TIMESTAMPING_OPT_ID | KEY_BY_WRITTEN);
    }
    // SAFETY: the value is as long as said.
    unsafe { real::setsockopt(fd, libc::SOL_SOCKET, name, judged.as_ptr().cast(), length as socklen_t) }
}

/// Linux: these are decided before a socket connects, and the second before it listens.
fn is_too_late(outboard: &Socket, level: c_int, name: c_int) -> bool {
    level == libc::SOL_TCP
        && match name {
            libc::TCP_FASTOPEN => !outboard.is_listening() && outboard.has_begun(),
            libc::TCP_FASTOPEN_CONNECT => outboard.has_begun(),
            _ => false,
        }
}

/// Level, name and value of an option.
type Value = (c_int, c_int, Vec<u8>);

/// What sockets have to begin with in this process and the stack's have not, by their kind: the system's own defaults.
static FRESH: [OnceLock<Vec<Value>>; 2] = [const { OnceLock::new() }; 2];

/// Gives the stack's socket the options that the kernel's has.
pub(crate) fn carry_over(fd: c_int, socket: &InetSocket, outboard: &Socket) {
    // What the stack refuses here it would have refused from the program: the kernel's answer stands.
    let give = |(level, name, bytes): &Value| drop(pass_on(socket, Some(outboard), *level, *name, bytes));
    if socket.is_tuned() {
        carried_of(fd, socket.kind).iter().for_each(give);
    } else {
        // A connection of a few packets would feel the system calls.
        let differs = |value: &Value| {
            let before = outboard.options();
            give(value);
            outboard.options() != before
        };
        let fresh = &FRESH[usize::from(socket.kind == Kind::Datagram)];
        let fresh = fresh.get_or_init(|| carried_of(fd, socket.kind).into_iter().filter(differs).collect());
        fresh.iter().for_each(give);
    }
    socket.all_remembered().iter().for_each(give);
}

/// The kernel's socket behind a connection that was accepted answers for what it has from its listener.
pub(crate) fn inherit(fd: c_int, options: &Options) {
    let (manner, queues) = (c_int::from(options.mtu_discovery as u8), c_int::from(options.queue_errors));
    let usual = c_int::from(MtuDiscovery::default() as u8);
    for (name, value, usual) in [(libc::IP_MTU_DISCOVER, manner, usual), (libc::IP_RECVERR, queues, 0)] {
        if value != usual {
            let length = size_of::<c_int>() as socklen_t;
            // SAFETY: the value is as long as said. The kernel refuses neither.
            unsafe { real::setsockopt(fd, libc::SOL_IP, name, (&raw const value).cast(), length) };
        }
    }
}

/// What the kernel's socket says of the options that are carried over.
fn carried_of(fd: c_int, kind: Kind) -> Vec<Value> {
    let other = if kind == Kind::Stream { libc::SOL_UDP } else { libc::SOL_TCP };
    let concerned = CARRIED.into_iter().filter(|(level, _)| *level != other);
    let read = |(level, name): (c_int, c_int)| {
        let mut bytes = vec![0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        // SAFETY: the buffer has as many bytes as `length` says.
        let status = unsafe { real::getsockopt(fd, level, name, bytes.as_mut_ptr().cast(), &mut length) };
        bytes.truncate(length as usize);
        (status == 0).then_some((level, name, bytes))
    };
    concerned.filter_map(read).collect()
}

fn pass_on(
    socket: &InetSocket,
    outboard: Option<&Socket>,
    level: c_int,
    name: c_int,
    bytes: &[u8],
) -> io::Result<()> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => socket.set_receive_timeout(timeout_of(bytes)),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.set_send_timeout(timeout_of(bytes)),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            socket.set_peek_offset(from_bytes::<c_int>(bytes).unwrap_or(-1));
        }
        (libc::SOL_TCP, libc::TCP_INQ) => socket.set_tells_left(bytes.iter().any(|&byte| byte != 0)),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => {
            socket.timestamping.set(socket.kind, outboard, from_bytes::<u32>(bytes).unwrap_or(0));
            let by_new_name = ancillary::new_name(name == SO_TIMESTAMPING_NEW);
            socket.change_ancillary(by_new_name.0, by_new_name.1);
        }
        // What is sent is copied, and that is said.
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => {
            socket.set_tells_copied(bytes.iter().any(|&byte| byte != 0));
        }
        (libc::SOL_UDP, libc::UDP_SEGMENT) => {
            let bytes = from_bytes::<c_int>(bytes).and_then(|bytes| u16::try_from(bytes).ok());
            socket.set_segment(bytes.unwrap_or(0));
        }
        (libc::SOL_UDP, libc::UDP_CORK) if bytes.iter().any(|&byte| byte != 0) => {
            socket.gathering().corked = true;
            socket.set_gathers(true);
        }
        (libc::SOL_UDP, libc::UDP_CORK) => {
            if let Some(outboard) = outboard {
                transfer::uncork(socket, outboard)?;
            }
        }
        _ => {
            if let Some((clears, sets)) = ancillary::change_of(level, name) {
                let on = bytes.iter().any(|&byte| byte != 0);
                socket.change_ancillary(clears, if on { sets } else { 0 });
            }
        }
    }
    // The kernel takes keepalive of any socket; only a connection's means something.
    let concerns = socket.kind == Kind::Stream || (level, name) != (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
    match (outboard, meaning(level, name, bytes).filter(|_| concerns)) {
        (Some(outboard), Some(option)) => outboard.set_option(option),
        _ => Ok(()),
    }
}

/// What an option means to the stack, if anything.
fn meaning(level: c_int, name: c_int, bytes: &[u8]) -> Option<SocketOption> {
    if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) {
        return linger_of(bytes);
    }
    if (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION) {
        return info::congestion_option(bytes);
    }
    let number = match *bytes {
        [a, b, c, d, ..] => c_int::from_ne_bytes([a, b, c, d]),
        [a, ..] => c_int::from(a),
        // Linux: `do_ip_setsockopt`.
        [] if level == libc::SOL_IP => 0,
        [] => return None,
    };
    let count = u32::try_from(number).unwrap_or(0);
    let seconds = Duration::from_secs(u64::from(count));
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => SocketOption::ReuseAddress(number != 0),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT) => SocketOption::ReusePort(number != 0),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => SocketOption::KeepAlive(number != 0),
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => SocketOption::Broadcast(number != 0),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => SocketOption::UrgentInline(number != 0),
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => SocketOption::ReceiveBuffer(count),
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => SocketOption::SendBuffer(count),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => SocketOption::ReceiveLowWater(count),
        (libc::SOL_TCP, libc::TCP_NODELAY) => SocketOption::NoDelay(number != 0),
        (libc::SOL_TCP, libc::TCP_CORK) => SocketOption::Cork(number != 0),
        (libc::SOL_TCP, libc::TCP_QUICKACK) => SocketOption::QuickAck(number != 0),
        (libc::SOL_TCP, libc::TCP_KEEPIDLE) => SocketOption::KeepAliveIdle(seconds),
        (libc::SOL_TCP, libc::TCP_KEEPINTVL) => SocketOption::KeepAliveInterval(seconds),
        (libc::SOL_TCP, libc::TCP_KEEPCNT) => SocketOption::KeepAliveProbes(count),
        (libc::SOL_TCP, libc::TCP_MAXSEG) => SocketOption::MaxSegment(count),
        (libc::SOL_TCP, libc::TCP_SYNCNT) => SocketOption::SynRetries(u8::try_from(number).ok()),
        (libc::SOL_TCP, libc::TCP_LINGER2) => SocketOption::Linger2(match number {
            0 => None,
            // A negative one: not at all.
            number => Some(Duration::from_secs(u64::try_from(number).unwrap_or(0)).min(LONGEST_LINGER2)),
        }),
        (libc::SOL_TCP, libc::TCP_USER_TIMEOUT) => {
            SocketOption::UserTimeout(Duration::from_millis(u64::from(count)))
        }
        (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT) => SocketOption::DeferAccept(seconds),
        // More than an int is no limit.
        (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT) => SocketOption::NotSentLowWater(count),
        (libc::SOL_TCP, libc::TCP_FASTOPEN) => SocketOption::FastOpen(count),
        (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT) => SocketOption::FastOpenConnect(number != 0),
        (libc::SOL_IP, libc::IP_TTL) if number > 0 => SocketOption::Ttl(count),
        (libc::SOL_IP, libc::IP_TOS) => SocketOption::TypeOfService((count & 0xff) as u8),
        (libc::SOL_IP, libc::IP_MTU_DISCOVER) => {
            SocketOption::MtuDiscovery(MtuDiscovery::from_number(u8::try_from(number).ok()?)?)
        }
        (libc::SOL_IP, libc::IP_RECVERR) => SocketOption::QueueErrors(number != 0),
        (libc::SOL_UDP, libc::UDP_GRO) => SocketOption::ReceiveRuns(number != 0),
        _ => return None,
    })
}

fn linger_of(bytes: &[u8]) -> Option<SocketOption> {
    let value: linger = from_bytes(bytes)?;
    let time = Duration::from_secs(u64::try_from(value.l_linger).unwrap_or(0));
    Some(SocketOption::Linger((value.l_onoff != 0).then_some(time)))
}

/// A `timeval` as nanoseconds; zero means none.
fn timeout_of(bytes: &[u8]) -> u64 {
    let Some(time) = from_bytes::<timeval>(bytes) else { return 0 };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(micros * 1_000)
}

/// A plain C structure from its bytes, if there are enough.
fn from_bytes<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, and the structures used here consist of integers only.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// See getsockopt(2).
///
/// # Safety
/// `length` must point to the room that `value` has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let held = table::find(fd);
    if let Some(socket) = held.as_deref().and_then(Description::socket)
        && let Some(outboard) = socket.outboard()
        && !value.is_null()
        && !length.is_null()
    {
        // SAFETY: the caller's pointers.
        match answer(socket, outboard, level, name) {
            // SAFETY: the caller's pointers.
            Some(Ok(answer)) => return unsafe { give(&answer.to_ne_bytes(), value, length) },
            Some(Err(error)) => return errno::fail(errno::of(&error)),
            None => {}
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_PEERNAME) && socket.phase() == Phase::Outboard {
            // SAFETY: the caller's pointers.
            return unsafe { give_peer(socket, outboard, value, length) };
        }
        if level == libc::SOL_SOCKET
            && matches!(name, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW)
            && socket.kind == Kind::Stream
        {
            // `struct so_timestamping`, with no clock of hardware.
            let mut answer = [0; 8];
            answer[..4].copy_from_slice(&socket.timestamping.flags().to_ne_bytes());
            // SAFETY: the caller's pointers.
            return unsafe { give(&answer, value, length) };
        }
        if (level, name) == (libc::SOL_TCP, libc::TCP_INFO) && socket.kind == Kind::Stream {
            // SAFETY: the caller's pointers.
            return unsafe { give(&info::tcp_info(outboard), value, length) };
        }
    }
    if (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION)
        && let Some(socket) = held.as_deref().and_then(Description::socket)
        && !value.is_null()
        && !length.is_null()
        && let Some(chosen) = info::congestion_name(socket)
    {
        // SAFETY: the caller's pointers.
        return unsafe { give(&chosen, value, length) };
    }
    // SAFETY: the caller's pointers.
    unsafe { real::getsockopt(fd, level, name, value, length) }
}

/// What the stack knows better than the kernel's socket.
fn answer(socket: &InetSocket, outboard: &Socket, level: c_int, name: c_int) -> Option<io::Result<c_int>> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let taken = outboard.take_error();
            Some(taken.map(|error| error.as_ref().map_or(0, errno::of)))
        }
        // One that is switched off the kernel's socket has as well, if its kernel knows the option.
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF)
            if socket.peek_offset() != -1 && !socket.was_kernel_peeked() =>
        {
            Some(Ok(socket.peek_offset()))
        }
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) if socket.phase() == Phase::Outboard => {
            Some(Ok(c_int::from(outboard.is_listening())))
        }
        (libc::SOL_TCP, libc::TCP_MAXSEG) => {
            outboard.segment_size().map(|size| Ok(c_int::try_from(size).unwrap_or(c_int::MAX)))
        }
        (libc::SOL_TCP, libc::TCP_INQ) if socket.kind == Kind::Stream => Some(Ok(socket.tells_left().into())),
        (libc::SOL_IP, libc::IP_MTU) | (libc::SOL_IPV6, libc::IPV6_MTU)
            if socket.kind == Kind::Stream && socket.phase() == Phase::Outboard =>
        {
            Some(path_mtu(outboard))
        }
        // One without a peer on this side may have one with the kernel.
        (libc::SOL_IP, libc::IP_MTU) if socket.kind == Kind::Datagram && outboard.peer_addr().is_ok() => {
            Some(outboard.path_mtu().map(|mtu| c_int::try_from(mtu).unwrap_or(c_int::MAX)))
        }
        // A connection that was accepted has its listener's, which its kernel socket knows nothing of.
        _ if socket.kind == Kind::Stream && socket.phase() == Phase::Outboard => {
            stream_option(&outboard.options(), level, name).map(Ok)
        }
        _ => None,
    }
}

/// What the path of a connection takes.
fn path_mtu(outboard: &Socket) -> io::Result<c_int> {
    if outboard.peer_addr().is_err() {
        return Err(errno::error(libc::ENOTCONN));
    }
    Ok(c_int::try_from(outboard.info()?.pmtu).unwrap_or(c_int::MAX))
}

fn stream_option(options: &Options, level: c_int, name: c_int) -> Option<c_int> {
    let seconds = |time: Duration| c_int::try_from(time.as_secs()).unwrap_or(c_int::MAX);
    Some(match (level, name) {
        (libc::SOL_TCP, libc::TCP_NODELAY) => options.nodelay.into(),
        (libc::SOL_TCP, libc::TCP_CORK) => options.cork.into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keepalive.into(),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_address.into(),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.urgent_inline.into(),
        (libc::SOL_TCP, libc::TCP_KEEPIDLE) => seconds(options.keepalive_idle),
        (libc::SOL_TCP, libc::TCP_KEEPINTVL) => seconds(options.keepalive_interval),
        (libc::SOL_TCP, libc::TCP_KEEPCNT) => c_int::try_from(options.keepalive_probes).unwrap_or(c_int::MAX),
        (libc::SOL_TCP, libc::TCP_SYNCNT) => options.syn_retries?.into(),
        (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT) if options.not_sent_low_water > 0 => {
            c_int::try_from(options.not_sent_low_water).ok()?
        }
        (libc::SOL_TCP, libc::TCP_LINGER2) => {
            options.linger2.map(|time| if time.is_zero() { -1 } else { seconds(time) })?
        }
        _ => return None,
    })
}

/// `SO_PEERNAME`: getpeername(2) by another door, which takes no more room than there is name.
///
/// # Safety
/// As [`give`].
unsafe fn give_peer(
    socket: &InetSocket,
    outboard: &Socket,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let name = outboard.peer_addr().and_then(|peer| {
        let name = address_of::bytes(peer, socket.family);
        // SAFETY: the caller's pointer.
        let room = unsafe { memory::fetch(length)? };
        if room as usize > name.len() { Err(errno::error(libc::EINVAL)) } else { Ok(name) }
    });
    match name {
        // SAFETY: the caller's pointers.
        Ok(name) => unsafe { give(&name, value, length) },
        Err(error) => errno::fail(errno::of(&error)),
    }
}

/// # Safety
/// `length` must point to the room that `value` has.
unsafe fn give(bytes: &[u8], value: *mut c_void, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's pointers.
    let given = unsafe {
        memory::fetch(length).and_then(|room| {
            let room = usize::try_from(room.cast_signed()).map_err(|_| errno::error(libc::EINVAL))?;
            let room = room.min(bytes.len());
            if room > 0 {
                memory::store(&bytes[..room], value)?;
            }
            memory::store(&(room as socklen_t).to_ne_bytes(), length.cast())
        })
    };
    errno::status(given)
}
