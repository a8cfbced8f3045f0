//! Where a FEP is found: its name, its control socket, its run-time directory.

use std::path::{Path, PathBuf};

/// The name of a FEP that was given none.
pub const DEFAULT_NAME: &str = "default";
/// The environment variable that overrides where the control socket is.
pub const SOCKET_VARIABLE: &str = "OUTBOARD_SOCKET";
/// Longest name: it must fit into the path of a Unix socket (108 bytes) with its directory.
const MAX_NAME: usize = 40;

/// Whether a FEP may be called this: it becomes part of a file's name.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(format!(
            "{name:?} is not a name of letters, digits, '-', '_' and '.', {MAX_NAME} at most"
        ));
    }
    Ok(())
}

/// The directory of sockets and logs: `/run/outboard` for root, else below `XDG_RUNTIME_DIR`.
pub fn run_directory() -> PathBuf {
    let root = rustix::process::geteuid().is_root();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !root && Path::new(path).is_absolute()) {
        Some(path) => Path::new(&path).join("outboard"),
        None => PathBuf::from("/run/outboard"),
    }
}

/// The control socket of the FEP of this name, the environment not considered.
pub fn socket_path(name: &str) -> PathBuf {
    run_directory().join(format!("{name}.sock"))
}

/// The control socket to use: the path given, else `OUTBOARD_SOCKET`, else the one that follows from the name.
pub fn find_socket(path: Option<&Path>, name: Option<&str>) -> PathBuf {
    if let Some(path) = path {
        return path.to_owned();
    }
    match (name, std::env::var_os(SOCKET_VARIABLE)) {
        (None, Some(path)) if !path.is_empty() => PathBuf::from(path),
        _ => socket_path(name.unwrap_or(DEFAULT_NAME)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_directory() {
        assert!(check_name("default").is_ok());
        for bad in ["", "..", "a/b", "a b", &"x".repeat(41)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_given_wins_over_a_name() {
        assert_eq!(find_socket(Some(Path::new("/tmp/x")), Some("y")), PathBuf::from("/tmp/x"));
        assert!(find_socket(None, Some("y")).ends_with("y.sock"));
    }
}
