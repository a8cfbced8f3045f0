//! Memory for the files of a trial, held from one trial to the next.
//!
//! The hypervisor of a virtual machine takes free memory away (free page reporting, ballooning), and the first touch of a
//! page that it has to give back costs a hundred times what writing the page costs: 4 s for a GByte of file where 0.2 s
//! would do, charged to whichever program writes at that moment. So memory for files is never left free for long. A file of
//! zeros holds it; during a trial that file gives up as much as the trial's files take, a little ahead of them, and when
//! they are removed it takes the same pages back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// What is given back and forth at once.
const PIECE: u64 = 4 << 20;
/// What is free ahead of the files that are being written: as much as a fast link fills in some [`TURN`]s. What was freed last is
/// taken first, so the rest of it lies free as long as the trial lasts, and what lies free for a second is taken away: of 32
/// MiB next to nothing, of 128 MiB most.
const AHEAD: u64 = 32 << 20;
/// How often it is looked how far the files have come.
const TURN: Duration = Duration::from_millis(2);

/// A file that holds memory.
#[derive(Debug)]
pub(crate) struct Reserve {
    file: File,
    length: u64,
    /// What its file system holds while there are no files of a trial.
    ceiling: u64,
}

impl Reserve {
    /// Holds memory for `bytes` of files in `folder`'s file system.
    pub(crate) fn create(folder: &Path, bytes: u64) -> Result<Self> {
        let path = folder.join("reserve");
        let file = File::options().create_new(true).read(true).write(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let mut reserve = Self { file, length: 0, ceiling: u64::MAX };
        let end = bytes.next_multiple_of(PIECE) + AHEAD;
        while reserve.length < end {
            reserve.grow().context("there is not memory enough for the files")?;
        }
        reserve.ceiling = reserve.used()?;
        Ok(reserve)
    }

    /// Lets what `body` has a program write on these processors (none: any) have the memory. To be followed by
    /// [`take_back`](Self::take_back) of every file.
    ///
    /// It is given up on the same processors: what a processor frees waits in a list of its own, and another one would be
    /// given memory that the hypervisor has.
    pub(crate) fn lend<T>(&mut self, writers: &[usize], body: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_over = &AtomicBool::new(false);
        let (say_ready, ready) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let follower = scope.spawn(move || {
                if !writers.is_empty() {
                    lab::cpu::pin(writers)?;
                }
                self.give_up()?;
                let _ = say_ready.send(());
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(TURN);
                    self.give_up()?;
                }
                Ok(())
            });
            // An error: the follower has failed, which is told below.
            let _ = ready.recv();
            let value = body();
            is_over.store(true, Ordering::Relaxed);
            match follower.join() {
                Ok(followed) => value.and_then(|value| followed.map(|()| value)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Removes a file and holds its memory again.
    pub(crate) fn take_back(&mut self, path: &Path) -> Result<()> {
        let file = File::options().write(true).open(path).with_context(|| path.display().to_string())?;
        let mut left = file.metadata()?.len();
        while left > 0 {
            left = left.saturating_sub(PIECE);
            file.set_len(left)?;
            while self.used()? + PIECE <= self.ceiling {
                self.grow()?;
            }
        }
        std::fs::remove_file(path)?;
        Ok(())
    }

    /// Gives up so much that there is room ahead, as long as it has something.
    fn give_up(&mut self) -> Result<()> {
        let excess = (self.used()? + AHEAD).saturating_sub(self.ceiling);
        if excess > 0 && self.length > 0 {
            self.length = self.length.saturating_sub(excess.next_multiple_of(PIECE));
            self.file.set_len(self.length)?;
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<()> {
        static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];
        self.file.write_all_at(&ZEROS, self.length)?;
        self.length += PIECE;
        Ok(())
    }

    /// Bytes that the file system holds.
    fn used(&self) -> Result<u64> {
        let told = rustix::fs::fstatvfs(&self.file)?;
        Ok((told.f_blocks - told.f_bfree) * told.f_frsize)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    lab::lab_test! {
        fn memory_that_is_lent_comes_back(lab) {
            let mut reserve = Reserve::create(lab.directory(), 3 * PIECE)?;
            let full = reserve.length;
            let path = lab.file("written");
            reserve.lend(&[0], || Ok(std::fs::write(&path, vec![1; 2 * PIECE as usize])?))?;
            reserve.give_up()?;
            ensure!(reserve.length + AHEAD + 2 * PIECE <= full + PIECE, "{} of {full} are held", reserve.length);
            ensure!(reserve.length > 0, "no more than is needed is given up");
            reserve.take_back(&path)?;
            ensure!(!path.exists() && reserve.used()? + PIECE > reserve.ceiling, "all is held again");
            Ok(())
        }
    }
}
