//! Files of random bytes, and the proof that they arrived.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base::{Rng, SeededRng};
use sha2::{Digest, Sha256};

const CHUNK: usize = 1 << 20;

/// A SHA-256 digest.
pub type Hash = [u8; 32];

/// Writes a file of `size` random bytes that follow from `seed`, and gives its hash.
pub fn create(path: &Path, size: u64, seed: u64) -> Result<Hash> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    let mut random = SeededRng::new(seed);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut left = size;
    while left > 0 {
        let count = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        for word in buffer.chunks_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
        }
        hasher.update(&buffer[..count]);
        file.write_all(&buffer[..count]).with_context(|| path.display().to_string())?;
        left -= count as u64;
    }
    Ok(hasher.finalize().into())
}

/// The hash of a file.
pub fn hash(path: &Path) -> Result<Hash> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..count]);
    }
}

/// Checks that a folder holds `count` files, each of the content expected; which they are. Files are hashed on several
/// threads.
pub fn verify(folder: &Path, count: u64, expected: &Hash) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        paths.push(entry?.path());
    }
    ensure!(paths.len() as u64 == count, "{} of {count} files have arrived", paths.len());
    let threads = lab::cpu::processors();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let mine = paths.iter().skip(number).step_by(threads);
                scope.spawn(move || mine.map(|path| check(path, expected)).collect::<Result<Vec<_>>>())
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result.map(drop),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(paths)
}

fn check(path: &Path, expected: &Hash) -> Result<()> {
    ensure!(hash(path)? == *expected, "{} is not what was sent (SHA-256 differs)", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_in_one_bit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let expected = create(&path, 2 * CHUNK as u64 + 5, 1).unwrap();
        assert_eq!(hash(&path).unwrap(), expected);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[CHUNK] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(verify(folder.path(), 1, &expected).is_err());
        bytes[CHUNK] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(verify(folder.path(), 2, &expected).is_err());
        assert_eq!(verify(folder.path(), 1, &expected).unwrap(), [path]);
    }
}
