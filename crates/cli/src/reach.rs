//! Whether the preload library can reach a program's system calls.
//!
//! The dynamic linker puts the library in front of the C library. A program without a dynamic linker, with another C
//! library, that makes its system calls itself, or that runs with more rights than its caller, is not reached: it would use
//! the kernel's sockets without a word, so `outboard run` says it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{FileHeader64, Machine};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};

/// As many scripts may name each other as their interpreters (execve(2)).
const MAX_INTERPRETERS: usize = 5;
/// What the kernel reads of a script's first line (execve(2)).
const FIRST_LINE: u64 = 256;
/// The name of the note in which the Go tool chain leaves its build identity.
const GO_NOTE: &[u8] = b"Go";

/// Why the preload library does not reach a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no dynamic linker.
    Static,
    /// The dynamic linker is another C library's.
    OtherLibrary(String),
    /// It is for another kind of processor than this command.
    OtherMachine,
    /// It makes its system calls itself.
    Go,
    /// The dynamic linker ignores the caller's libraries where the program gets more rights than the caller has.
    MoreRights,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("is statically linked, so no library can be put in front of it"),
            Self::OtherLibrary(linker) => write!(f, "uses another C library than glibc ({linker})"),
            Self::OtherMachine => f.write_str("is for another kind of processor"),
            Self::Go => f.write_str("is a Go program, which makes its system calls without the C library"),
            Self::MoreRights => f.write_str(
                "is set-user-ID or set-group-ID, so the dynamic linker ignores preloaded libraries",
            ),
        }
    }
}

/// Why the preload library will not reach `program`, looked for as execvp(3) does; `None` if it will, as far as can be
/// told, or if the program cannot be read (then executing it fails, or nothing is known).
pub(crate) fn out_of_reach(program: &Path) -> Option<Reason> {
    let mut path = find(program)?;
    for _ in 0..=MAX_INTERPRETERS {
        if let Some(reason) = more_rights(&path) {
            return Some(reason);
        }
        match interpreter_of_script(&path) {
            Some(interpreter) => path = interpreter,
            None => return inspect(&ReadCache::new(File::open(&path).ok()?)),
        }
    }
    None
}

/// The file that execvp(3) would take.
fn find(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Some(program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Whether the file runs as somebody else (ld.so(8), secure-execution mode).
fn more_rights(path: &Path) -> Option<Reason> {
    let metadata = path.metadata().ok()?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let other_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let other_group = metadata.mode() & libc::S_ISGID != 0 && metadata.gid() != group;
    (other_user || other_group).then_some(Reason::MoreRights)
}

/// The interpreter that a script's first line names.
fn interpreter_of_script(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let name = line.trim_ascii().split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// What an ELF file's headers say; `None` as well for what is no ELF file.
fn inspect<'data>(data: impl ReadRef<'data>) -> Option<Reason> {
    let start = data.read_bytes_at(0, 5).ok()?;
    if !start.starts_with(&object::elf::ELFMAG) {
        return None;
    }
    let Ok(header) = FileHeader64::<Endianness>::parse(data) else {
        return Some(Reason::OtherMachine);
    };
    let endian = header.endian().ok()?;
    if !header.is_little_endian() || header.e_machine(endian) != OWN_MACHINE {
        return Some(Reason::OtherMachine);
    }
    let mut linker = None;
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(path)) = segment.interpreter(endian, data) {
            linker = Some(path);
        }
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == GO_NOTE {
                return Some(Reason::Go);
            }
        }
    }
    let Some(linker) = linker else { return Some(Reason::Static) };
    let linker = String::from_utf8_lossy(linker).into_owned();
    linker.contains("musl").then_some(Reason::OtherLibrary(linker))
}

/// The processor that this command is for.
#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: Machine = object::elf::EM_X86_64;
/// The processor that this command is for.
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: Machine = object::elf::EM_AARCH64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use object::elf::{FileFlags, OsAbi, ProgramFlags};
    use object::write::elf::{FileHeader as Header, ProgramHeader as Segment, Writer};

    /// An ELF file of headers only.
    fn elf(machine: Machine, linker: Option<&[u8]>, note: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
        let segments = u32::from(linker.is_some()) + u32::from(note.is_some());
        writer.reserve_file_header();
        writer.reserve_program_headers(segments);
        let linker_at = writer.reserve(linker.map_or(0, |name| name.len() as u64), 1);
        let note_at = writer.reserve(note.map_or(0, |name| 12 + name.len().next_multiple_of(4) as u64), 4);
        let header = Header {
            os_abi: OsAbi(0),
            abi_version: 0,
            e_type: object::elf::ET_DYN,
            e_machine: machine,
            e_entry: 0,
            e_flags: FileFlags(0),
        };
        writer.write_file_header(&header).expect("a header");
        let segment = |p_type, p_offset, size: usize| Segment {
            p_type,
            p_flags: ProgramFlags(0),
            p_offset,
            p_vaddr: 0,
            p_paddr: 0,
            p_filesz: size as u64,
            p_memsz: size as u64,
            p_align: 4,
        };
        writer.write_align_program_headers();
        if let Some(linker) = linker {
            writer.write_program_header(&segment(object::elf::PT_INTERP, linker_at, linker.len()));
        }
        if let Some(name) = note {
            let size = 12 + name.len().next_multiple_of(4);
            writer.write_program_header(&segment(object::elf::PT_NOTE, note_at, size));
        }
        writer.write(linker.unwrap_or_default());
        if let Some(name) = note {
            writer.write_align(4);
            for word in [name.len() as u32, 0, 4] {
                writer.write(&word.to_le_bytes());
            }
            writer.write(name);
            writer.write_align(4);
        }
        bytes
    }

    #[test]
    fn programs_that_no_library_reaches() {
        const GLIBC: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
        const MUSL: &[u8] = b"/lib/ld-musl-x86_64.so.1\0";
        let told = |bytes: Vec<u8>| inspect(bytes.as_slice());
        assert_eq!(told(elf(OWN_MACHINE, Some(GLIBC), None)), None);
        assert_eq!(told(elf(OWN_MACHINE, Some(GLIBC), Some(b"GNU\0"))), None);
        assert_eq!(told(elf(OWN_MACHINE, Some(GLIBC), Some(b"Go\0"))), Some(Reason::Go));
        assert_eq!(told(elf(OWN_MACHINE, None, None)), Some(Reason::Static));
        assert_eq!(told(elf(object::elf::EM_SPARCV9, Some(GLIBC), None)), Some(Reason::OtherMachine));
        assert_eq!(
            told(elf(OWN_MACHINE, Some(MUSL), None)),
            Some(Reason::OtherLibrary("/lib/ld-musl-x86_64.so.1".to_owned()))
        );
        assert_eq!(told(b"not a program".to_vec()), None);
        let whole = elf(OWN_MACHINE, Some(GLIBC), Some(b"GNU\0"));
        for length in 0..whole.len() {
            let _ = told(whole[..length].to_vec());
        }
    }

    #[test]
    fn a_script_is_as_reachable_as_its_interpreter() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("a file");
            path
        };
        let program = write("program", &elf(OWN_MACHINE, None, None));
        let script = write("script", format!("#! {} -x\nrest", program.display()).as_bytes());
        let outer = write("outer", format!("#!{}", script.display()).as_bytes());
        assert_eq!(out_of_reach(&outer), Some(Reason::Static));
        let circle = folder.path().join("circle");
        write("circle", format!("#!{}\n", circle.display()).as_bytes());
        assert_eq!(out_of_reach(&circle), None);
        assert_eq!(out_of_reach(Path::new("/nonexistent")), None);
        assert_eq!(out_of_reach(Path::new("sh")), None);
    }
}
