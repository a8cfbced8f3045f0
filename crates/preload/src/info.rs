//! `TCP_INFO` and `TCP_CONGESTION`: what the stack tells of a connection, and which congestion control it uses.

use std::ffi::c_int;
use std::io;

use outboard::raw::{Socket, SocketOption};
use outboard::{CongestionAlgorithm, TcpInfo};

use crate::description::{InetSocket, Phase};
use crate::errno;

/// Linux' longest name of a congestion control, its end included (`TCP_CA_NAME_MAX`).
pub(crate) const NAME_LENGTH: usize = 16;

/// The bytes of `struct tcp_info`.
pub(crate) fn tcp_info(socket: &Socket) -> [u8; TcpInfo::KERNEL_SIZE] {
    // A FEP that is gone has closed the connection.
    let info = socket.info().unwrap_or_else(|_| TcpInfo::of_closed());
    let mut bytes = [0; TcpInfo::KERNEL_SIZE];
    bytes.copy_from_slice(&info.to_bytes()[..TcpInfo::KERNEL_SIZE]);
    bytes
}

/// The congestion control that an option's bytes name.
fn named(bytes: &[u8]) -> Option<CongestionAlgorithm> {
    let name = &bytes[..bytes.len().min(NAME_LENGTH - 1)];
    let name = name.split(|&byte| byte == 0).next()?;
    CongestionAlgorithm::from_name(std::str::from_utf8(name).ok()?)
}

/// Sets `TCP_CONGESTION`; `kernel` sets it on the kernel's socket.
///
/// Who will carry a socket that is neither bound nor connected is not known: then it is enough that one of the two knows the
/// name. A connection of the stack's asks the stack alone.
pub(crate) fn set_congestion(socket: &InetSocket, bytes: &[u8], kernel: impl FnOnce() -> c_int) -> c_int {
    let chosen = named(bytes);
    if socket.phase() == Phase::Outboard {
        return errno::status(choose(socket, chosen));
    }
    let status = kernel();
    let Some(chosen) = chosen else {
        if status == 0 {
            // The kernel knows more of them; the stack's default stands.
            socket.forget(libc::SOL_TCP, libc::TCP_CONGESTION);
        }
        return status;
    };
    socket.remember(libc::SOL_TCP, libc::TCP_CONGESTION, bytes);
    if let Err(error) = choose(socket, Some(chosen)) {
        return errno::fail(errno::of(&error));
    }
    if status < 0 && errno::get() == libc::ENOENT { 0 } else { status }
}

fn choose(socket: &InetSocket, chosen: Option<CongestionAlgorithm>) -> io::Result<()> {
    let chosen = chosen.ok_or_else(|| errno::error(libc::ENOENT))?;
    match socket.outboard() {
        Some(outboard) => outboard.set_option(SocketOption::Congestion(chosen)),
        None => Ok(()),
    }
}

/// What `TCP_CONGESTION` means to the stack, if it knows the name.
pub(crate) fn congestion_option(bytes: &[u8]) -> Option<SocketOption> {
    named(bytes).map(SocketOption::Congestion)
}

/// The name that `TCP_CONGESTION` gives, of a connection of the stack's or of a socket that may become one.
pub(crate) fn congestion_name(socket: &InetSocket) -> Option<[u8; NAME_LENGTH]> {
    let chosen = match socket.outboard().filter(|_| socket.phase() == Phase::Outboard) {
        Some(outboard) => outboard.congestion_control().ok()?,
        None => named(&socket.remembered(libc::SOL_TCP, libc::TCP_CONGESTION)?)?,
    };
    let mut name = [0; NAME_LENGTH];
    let text = chosen.name().as_bytes();
    name[..text.len()].copy_from_slice(text);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_the_kernel_ends_them() {
        assert_eq!(named(b"bbr"), Some(CongestionAlgorithm::Bbr));
        assert_eq!(named(b"reno\0and more"), Some(CongestionAlgorithm::NewReno));
        assert_eq!(named(b"cubic\0"), Some(CongestionAlgorithm::Cubic));
        assert_eq!(named(b"vegas"), None);
        assert_eq!(named(b""), None);
        assert_eq!(named(b"cubiccubiccubiccubic"), None);
    }
}
