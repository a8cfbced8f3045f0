//! The control socket's place in the file system.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use channel::control::sys::refuse_descriptors;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Connections that wait while the worker is busy or being restarted.
const BACKLOG: i32 = 512;
/// Permissions of the directory of control sockets: everybody may look, only the owner may add.
const DIRECTORY_MODE: u32 = 0o755;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another FEP answers there.
    #[error("a FEP already runs at {path}: stop it with `outboard down`, or give this one another --name", path = .0.display())]
    InUse(PathBuf),
    /// Something that is no socket has the name.
    #[error("{path} exists and is not a socket: remove it, or give another --socket", path = .0.display())]
    NotASocket(PathBuf),
    /// The operating system refused.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        error: io::Error,
    },
}

/// Makes the control socket, with its directory; removes one that a dead FEP left behind.
pub fn open_listener(path: &Path, mode: u32) -> Result<OwnedFd, ListenError> {
    let failed = |what, error: io::Error| ListenError::System { what, path: path.to_owned(), error };
    make_directory(path)?;
    remove_stale(path)?;
    let listener = seqpacket_socket().map_err(|error| failed("make a socket for", error.into()))?;
    let address = SocketAddrUnix::new(path).map_err(|error| failed("name", error.into()))?;
    bind(&listener, &address).map_err(|error| failed("bind", error.into()))?;
    // Older kernels cannot; there, what is sent is closed on arrival.
    refuse_descriptors(&listener).map_err(|error| failed("prepare", error))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| failed("set the permissions of", error))?;
    listen(&listener, BACKLOG).map_err(|error| failed("listen on", error.into()))?;
    Ok(listener)
}

/// Connects to the control socket at `path`.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn seqpacket_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn make_directory(path: &Path) -> Result<(), ListenError> {
    let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).map_err(|error| {
        ListenError::System { what: "make the directory", path: directory.to_owned(), error }
    })
}

/// Removes the socket file of a FEP that is gone. A live one is left alone: it is found by connecting.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |what, error: io::Error| ListenError::System { what, path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match connect_to(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| failed("remove the stale socket", error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("connect to", error)),
        Ok(_) => Err(ListenError::InUse(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deeper/x.sock");
        let first = open_listener(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(open_listener(&path, 0o600), Err(ListenError::InUse(_))));
        drop(first);
        open_listener(&path, 0o600).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        fs::write(&path, "x").unwrap();
        assert!(matches!(open_listener(&path, 0o600), Err(ListenError::NotASocket(_))));
        assert!(path.exists());
    }
}
