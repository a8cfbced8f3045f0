//! Files that an application lends: the FEP reads them into the application's send rings in its place.
//!
//! The ring is the application's, and so is the room: it says which bytes of which file go where, as it would say SEND after
//! copying them. Everything behind that stays as it is: what is in flight lies in the ring until it is acknowledged,
//! whatever becomes of the file.
//!
//! The worker reads only what is in memory already ([`RWF_NOWAIT`](libc::RWF_NOWAIT)). For the rest it gets a [`Reading`],
//! to be run where waiting harms nobody. Closing a file can take as long as its sender likes too, so it is never closed
//! here either, but given back ([`TakeBack`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Closes files.
pub trait TakeBack: Send + Sync {
    /// The last user of a file is done with it.
    fn take_back(&self, file: OwnedFd);
}

/// A regular file that an application lent.
pub struct LentFile {
    /// Until it is dropped.
    file: Option<File>,
    /// All of it is in memory always: there is no storage to wait for.
    in_memory: bool,
    owner: Arc<dyn TakeBack>,
}

impl LentFile {
    /// A file, to be given back to `owner`. Only one of a file system without storage is `in_memory`.
    pub fn new(file: OwnedFd, in_memory: bool, owner: Arc<dyn TakeBack>) -> Self {
        Self { file: Some(File::from(file)), in_memory, owner }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("taken out by drop alone")
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.owner.take_back(file.into());
        }
    }
}

impl core::fmt::Debug for LentFile {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("LentFile").field(&self.file).finish()
    }
}

/// Bytes of a file that must be waited for.
#[derive(Debug)]
pub struct Reading {
    file: Arc<LentFile>,
    offset: u64,
    len: usize,
}

impl Reading {
    /// Reads them, however long that takes.
    ///
    /// # Errors
    /// As read(2); `UnexpectedEof` if the file has become shorter.
    pub fn run(self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        self.file.file().read_exact_at(&mut bytes, self.offset)?;
        Ok(bytes)
    }
}

/// How far the reading of lent files into a send ring has come.
#[derive(Debug)]
pub enum Filling {
    /// All that was queued is there.
    Done,
    /// Something before it is waited for.
    Behind,
    /// This is to be read; what comes of it goes to [`StreamRings::put`](super::StreamRings::put).
    Wait(Reading),
    /// It cannot be had: the stream ends here.
    Failed,
}

/// Bytes of a file that belong at a place of the stream.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) at: u64,
    pub(super) to: u64,
    pub(super) file: Arc<LentFile>,
    pub(super) offset: u64,
}

impl Fill {
    pub(super) fn len(&self) -> usize {
        (self.to - self.at) as usize
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.at += count as u64;
        self.offset += count as u64;
    }

    pub(super) fn reading(&self) -> Reading {
        Reading { file: Arc::clone(&self.file), offset: self.offset, len: self.len() }
    }
}

/// What is queued and not yet there; nearly always nothing.
pub(super) type Fills = Option<Box<VecDeque<Fill>>>;
