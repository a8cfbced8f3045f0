//! Lending files to the FEP, so that it reads what is to be sent.
//!
//! A file is lent over a socket to the FEP's clerk; until the clerk has taken it, and if it does not, its bytes are copied
//! as ever. Nothing here waits, but for the first file of all, when the FEP is asked for the socket, and who asks to wait
//! ([`LentFile::wait`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use channel::Command;
use channel::control::sys::{Received, receive, send};
use channel::control::{FileMessage, MAX_FILE_MESSAGE};
use channel::layout::MAX_FILES;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::Endpoint;
use crate::endpoint::lock;

const ASKED: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;

/// A file that this process lends, or tries to. Dropping it ends that.
pub struct LentFile {
    endpoint: Endpoint,
    number: u16,
    answer: AtomicU8,
}

/// What an endpoint keeps of the files that it lends.
#[derive(Debug, Default)]
pub(crate) struct Lender(Mutex<Link>);

#[derive(Debug, Default)]
enum Link {
    #[default]
    NotAsked,
    /// The stack takes no files.
    None,
    Open(Box<Open>),
}

#[derive(Debug)]
struct Open {
    socket: OwnedFd,
    numbers: [Number; MAX_FILES as usize],
    /// Where the search for a free number begins: one that was used just now may not be free on the other side.
    next: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Number {
    #[default]
    Free,
    /// The clerk has not answered; whether the file is still wanted.
    Asked {
        wanted: bool,
    },
    Taken,
    Refused,
}

impl Lender {
    /// The descriptor that a forked child must close.
    pub(crate) fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        match self.0.try_lock().as_deref() {
            Ok(Link::Open(open)) => Some(std::os::fd::AsRawFd::as_raw_fd(&open.socket)),
            Ok(Link::NotAsked | Link::None) | Err(_) => None,
        }
    }
}

impl Endpoint {
    /// Begins to lend a regular file that is open for reading. `None`: the stack takes none, or has as many as it takes.
    pub fn lend(&self, file: BorrowedFd<'_>) -> Option<LentFile> {
        let mut link = lock(&self.lender().0);
        if let Link::NotAsked = *link {
            *link = match self.channel().open_lender().and_then(Open::new) {
                Ok(open) => Link::Open(Box::new(open)),
                Err(_) => Link::None,
            };
        }
        let Link::Open(open) = &mut *link else { return None };
        open.hear(self);
        let number = open.ask(file)?;
        Some(LentFile { endpoint: self.clone(), number, answer: AtomicU8::new(ASKED) })
    }
}

impl LentFile {
    /// The file's number, once the FEP has taken it.
    pub(super) fn number(&self) -> Option<u16> {
        if self.answer.load(Ordering::Relaxed) == ASKED {
            self.look();
        }
        (self.answer.load(Ordering::Relaxed) == TAKEN).then_some(self.number)
    }

    /// Waits until the clerk has answered, but no longer than `patience`.
    pub fn wait(&self, patience: Duration) {
        self.look();
        if self.answer.load(Ordering::Relaxed) != ASKED {
            return;
        }
        // Without the lock: others may lend meanwhile, and hear the answer.
        let socket = match &*lock(&self.endpoint.lender().0) {
            Link::Open(open) => open.socket.try_clone(),
            Link::NotAsked | Link::None => return,
        };
        let Ok(socket) = socket else { return };
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        // Whatever comes of it: without an answer the file's bytes are copied.
        let _ = rustix::event::poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&patience));
        self.look();
    }

    /// Whether the FEP does not take it.
    pub fn is_refused(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == REFUSED
    }

    fn look(&self) {
        if let Link::Open(open) = &mut *lock(&self.endpoint.lender().0) {
            open.hear(&self.endpoint);
            let answer = match open.numbers[usize::from(self.number)] {
                Number::Taken => TAKEN,
                Number::Asked { .. } => ASKED,
                Number::Refused | Number::Free => REFUSED,
            };
            self.answer.store(answer, Ordering::Relaxed);
        }
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        if let Link::Open(open) = &mut *lock(&self.endpoint.lender().0) {
            let number = &mut open.numbers[usize::from(self.number)];
            *number = match *number {
                Number::Asked { .. } => Number::Asked { wanted: false },
                Number::Taken => {
                    give_back(&self.endpoint, self.number);
                    Number::Free
                }
                Number::Free | Number::Refused => Number::Free,
            };
        }
    }
}

impl Open {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, numbers: [Number::Free; MAX_FILES as usize], next: 0 })
    }

    fn ask(&mut self, file: BorrowedFd<'_>) -> Option<u16> {
        let count = self.numbers.len();
        let free = (0..count).map(|step| (self.next + step) % count);
        let index = free.into_iter().find(|index| self.numbers[*index] == Number::Free)?;
        let message = FileMessage { file: index as u16, errno: 0 };
        send(&self.socket, &message.encode(), &[file]).ok()?;
        self.next = index + 1;
        self.numbers[index] = Number::Asked { wanted: true };
        Some(index as u16)
    }

    /// Takes the clerk's answers.
    fn hear(&mut self, endpoint: &Endpoint) {
        let mut buffer = [0; MAX_FILE_MESSAGE];
        while let Ok(Received::Message(length, _)) = receive(&self.socket, &mut buffer) {
            let Some(answer) = FileMessage::decode(&buffer[..length]) else { return };
            let Some(number) = self.numbers.get_mut(usize::from(answer.file)) else { return };
            *number = match (*number, answer.errno) {
                (Number::Asked { wanted: true }, 0) => Number::Taken,
                (Number::Asked { wanted: true }, _) => Number::Refused,
                (Number::Asked { wanted: false }, 0) => {
                    give_back(endpoint, answer.file);
                    Number::Free
                }
                (Number::Asked { wanted: false }, _) => Number::Free,
                (other, _) => other,
            };
        }
    }
}

/// Said behind every use of the number. If the channel is closed, so is the file.
fn give_back(endpoint: &Endpoint, file: u16) {
    let _ = endpoint.channel().post(&Command::ReturnFile { file });
}
