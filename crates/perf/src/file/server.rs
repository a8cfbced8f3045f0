//! The FTP servers: unmodified programs of the system, and how they are started.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lab::Spawn;

use crate::site::{Site, Subject};

/// Where servers answer.
pub(super) const PORT: u16 = 2121;

/// An unmodified FTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FtpServer {
    /// pyftpdlib, as Debian has it: one process, in Python.
    Pyftpdlib,
    /// vsftpd: a process for each session, in C.
    Vsftpd,
}

impl FtpServer {
    /// Its name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pyftpdlib => "pyftpdlib",
            Self::Vsftpd => "vsftpd",
        }
    }

    /// Whether it can run on a subject; an error says why not, and what to do instead.
    pub fn check(self, subject: Subject) -> Result<(), String> {
        if (self, subject) == (Self::Vsftpd, Subject::Host) {
            return Err(
                "vsftpd makes a process for each session, and under `host` the stack is in the process of the server: its \
                 children cannot use it; leave `host` out (--on kernel,fep), or measure pyftpdlib (--server pyftpdlib)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether sessions are processes of their own, which end with them.
    pub(super) fn forks(self) -> bool {
        self == Self::Vsftpd
    }

    /// What it says that it is, if it does.
    pub(super) fn version(self) -> Option<String> {
        let output = match self {
            Self::Pyftpdlib => {
                let program = "import pyftpdlib; print(pyftpdlib.__ver__)";
                Command::new(python_with_pyftpdlib().ok()?).args(["-c", program]).output().ok()?
            }
            // It writes to its standard input, where an inetd has put a connection.
            Self::Vsftpd => {
                let vsftpd = find_vsftpd().ok()?;
                Command::new("sh").args(["-c", "exec \"$0\" -v 0>&1"]).arg(vsftpd).output().ok()?
            }
        };
        let text = String::from_utf8(output.stdout).ok()?;
        let version = text.split_whitespace().last()?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    }

    /// The server on a site, to be started. It offers what lies in `root`, and takes files into `uploads` below that.
    pub(super) fn spawn(self, site: &Site, root: &Path, uploads: &Path) -> Result<Spawn> {
        match self {
            Self::Pyftpdlib => pyftpdlib(site, root),
            Self::Vsftpd => vsftpd(site, root, uploads),
        }
    }
}

fn pyftpdlib(site: &Site, root: &Path) -> Result<Spawn> {
    let mut spawn = site.application(&python_with_pyftpdlib()?)?;
    spawn
        .args(["-m", "pyftpdlib", "--write", "--interface"])
        .arg(site.address().to_string())
        .arg("--port")
        .arg(PORT.to_string())
        .arg("--directory")
        .arg(root);
    Ok(spawn)
}

/// An interpreter that has pyftpdlib: Debian's own, or another that is first in the path.
fn python_with_pyftpdlib() -> Result<String> {
    for python in ["/usr/bin/python3", "python3"] {
        let found = Command::new(python).args(["-c", "import pyftpdlib"]).output();
        if found.is_ok_and(|output| output.status.success()) {
            return Ok(python.to_owned());
        }
    }
    bail!("no Python with pyftpdlib: install the Debian package python3-pyftpdlib")
}

fn vsftpd(site: &Site, root: &Path, uploads: &Path) -> Result<Spawn> {
    let program = find_vsftpd()?;
    // Sessions are another user's, who must come to the files and write beside them, whatever the mask of this process.
    for (folder, mode) in [(site.directory(), 0o755), (root, 0o755), (uploads, 0o777)] {
        set_mode(folder, mode)?;
    }
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            set_mode(&entry.path(), 0o644)?;
        }
    }
    let configuration = site.directory().join("vsftpd.conf");
    std::fs::write(&configuration, vsftpd_configuration(site, root))?;
    let mut spawn = site.application(program.to_str().context("the path of vsftpd")?)?;
    spawn.arg(&configuration);
    Ok(spawn)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// As a site would have it that serves everybody: sessions without a name, each one process, in a root folder of its own. Its
/// namespaces and its filter of system calls are switched off: programs on a FEP share memory with it, and every subject is
/// to run the same.
fn vsftpd_configuration(site: &Site, root: &Path) -> String {
    let user = session_user();
    let (user, as_launched) = (user.as_deref().unwrap_or("root"), user.is_none());
    let yes_or_no = |is_so: bool| if is_so { "YES" } else { "NO" };
    let (address, root) = (site.address(), root.display());
    format!(
        "listen=YES\nbackground=NO\nlisten_address={address}\nlisten_port={PORT}\n\
         anonymous_enable=YES\nno_anon_password=YES\nanon_root={root}\nsecure_chroot_dir={root}\n\
         ftp_username={user}\nnopriv_user={user}\nrun_as_launching_user={}\nallow_writeable_chroot=YES\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
         one_process_model=YES\nisolate=NO\nisolate_network=NO\nseccomp_sandbox=NO\n\
         connect_from_port_20=NO\nxferlog_enable=NO\n",
        yes_or_no(as_launched),
    )
}

/// A user without rights whose home folder is there, as vsftpd wants it. None where this process could not become it: in a
/// user namespace that knows only one.
fn session_user() -> Option<String> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    choose_user(&users, &map, |home| Path::new(home).is_dir()).map(str::to_owned)
}

fn choose_user<'a>(users: &'a str, map: &str, is_there: impl Fn(&str) -> bool) -> Option<&'a str> {
    let is_mapped = |id: u64| {
        map.lines().any(|line| {
            let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
            matches!(fields[..], [first, _, count] if id >= first && id - first < count)
        })
    };
    let find = |wanted: &str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, _, _, home, ..] = fields[..] else { return None };
            (name == wanted && is_mapped(id.parse().ok()?) && is_there(home)).then_some(name)
        })
    };
    ["ftp", "nobody", "backup", "daemon", "mail"].into_iter().find_map(find)
}

/// The system's vsftpd, or the one that `scripts/install-packages` has unpacked below the folder of this build.
fn find_vsftpd() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let executable = std::env::current_exe().context("where is this program?")?;
    let built = executable.ancestors().skip(1).take(3).map(|folder| folder.join("packages/vsftpd/usr/sbin"));
    let mut candidates = std::env::split_paths(&path).chain(usual).chain(built);
    candidates.find_map(|folder| Some(folder.join("vsftpd")).filter(|path| path.is_file())).context(
        "no vsftpd: `scripts/install-packages demo` unpacks Debian's below target/packages without installing it; or put one \
         into the PATH",
    )
}

#[cfg(test)]
mod tests {
    use super::choose_user;

    #[test]
    fn sessions_get_a_user_that_this_process_can_become() {
        let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n\
                     daemon:x:1:1::/usr/sbin:/bin/false\nbackup:x:34:34:backup:/var/backups:/bin/false\n";
        let is_there = |home: &str| home != "/nonexistent";
        assert_eq!(choose_user(users, "         0          0 4294967295\n", is_there), Some("backup"));
        assert_eq!(choose_user(users, "0 0 4294967295", |_| true), Some("nobody"));
        assert_eq!(choose_user(users, "0 1000 1\n1 100000 10\n", is_there), Some("daemon"));
        assert_eq!(choose_user(users, "0 1000 1", is_there), None);
        assert_eq!(choose_user("", "0 0 4294967295", is_there), None);
    }
}
