//! The inputs that are kept: interesting ones, and every one that ever broke something (`crash-…`).

use std::io;
use std::path::{Path, PathBuf};

/// The folder of a target's inputs.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The inputs of a target with their files' names, sorted by name.
///
/// # Errors
/// The folder cannot be read.
pub fn load(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder(target))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

/// Keeps an input that broke something, under a name that follows from its bytes. The file's path.
///
/// # Errors
/// The file cannot be written.
pub fn keep_crash(target: &str, input: &[u8]) -> io::Result<PathBuf> {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    std::fs::create_dir_all(folder(target))?;
    let path = folder(target).join(format!("crash-{hash:016x}"));
    std::fs::write(&path, input)?;
    Ok(path)
}
