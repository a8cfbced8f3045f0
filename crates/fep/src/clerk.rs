//! Lent files: who receives them, reads what must be waited for, and closes them.
//!
//! An application that sends files lends them to the FEP, which then reads them into the application's send rings
//! (`channel::fep::lent`). A descriptor that somebody else made is dangerous to touch: looking at its file system, reading
//! and even closing it may take as long as its maker likes. So every application that lends has a *clerk*, a thread that
//! does all of that. The worker never meets a descriptor before its clerk has found a regular file on a file system
//! of the kernel's own, then only reads what is in memory, and never closes it. A clerk that is stuck harms nobody
//! but its application.
//!
//! The application talks to its clerk over a socket of their own. Its numbers for files are never given twice at a time:
//! a number is free again once the worker has carried out RETURN_FILE, which stands behind every use.

mod sys;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use channel::control::sys::{Received, receive, send};
use channel::control::{FileMessage, MAX_FILE_MESSAGE};
use channel::fep::{LentFile, Reading, TakeBack};
use channel::layout::MAX_FILES;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use stack::SocketId;
use tracing::debug;

/// Clerks at a time, those included that are stuck and whose application has gone.
const MAX_CLERKS: usize = 64;

/// What a clerk's work is for: bytes of this socket.
pub(crate) struct Answer {
    pub(crate) socket: SocketId,
    pub(crate) outcome: io::Result<Vec<u8>>,
}

/// What all clerks of a worker have to tell it.
#[derive(Debug)]
pub(crate) struct Answers {
    list: Mutex<Vec<Answer>>,
    waiting: AtomicBool,
    /// Rung when there is one.
    bell: OwnedFd,
    clerks: AtomicUsize,
}

impl Answers {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            list: Mutex::default(),
            waiting: AtomicBool::new(false),
            bell: new_bell()?,
            clerks: AtomicUsize::new(0),
        }))
    }

    /// Readable, edge by edge, when there is an answer.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// All answers that there are. Costs one load if there is none.
    pub(crate) fn take(&self) -> Vec<Answer> {
        if !self.waiting.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut list = lock(&self.list);
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut list)
    }

    /// Whether there is one.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    fn give(&self, answer: Answer) {
        {
            let mut list = lock(&self.list);
            list.push(answer);
            self.waiting.store(true, Ordering::Relaxed);
        }
        ring(&self.bell);
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Answer").field("socket", &self.socket).finish_non_exhaustive()
    }
}

enum Errand {
    Close(OwnedFd),
    Read(SocketId, Reading),
}

/// What a worker and a clerk have in common: the files of one application, and what the clerk is to do.
pub(crate) struct Desk {
    files: Mutex<[Option<Arc<LentFile>>; MAX_FILES as usize]>,
    errands: Mutex<Vec<Errand>>,
    bell: OwnedFd,
    /// The application has gone.
    over: AtomicBool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Desk").field("over", &self.over).finish_non_exhaustive()
    }
}

impl TakeBack for Desk {
    fn take_back(&self, file: OwnedFd) {
        self.ask(Errand::Close(file));
    }
}

impl Desk {
    /// Starts a clerk; its desk, and the application's end of the socket to it.
    ///
    /// # Errors
    /// There are too many, or the operating system refuses.
    pub(crate) fn open(answers: &Arc<Answers>) -> io::Result<(Arc<Self>, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let desk = Arc::new(Self {
            files: Mutex::default(),
            errands: Mutex::default(),
            bell: new_bell()?,
            over: AtomicBool::new(false),
        });
        if answers.clerks.fetch_add(1, Ordering::Relaxed) >= MAX_CLERKS {
            answers.clerks.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other("too many applications lend files"));
        }
        let clerk =
            Clerk { desk: Arc::clone(&desk), answers: Arc::clone(answers), socket: Some(ours), open: 0 };
        let started = std::thread::Builder::new().name("clerk".to_owned()).spawn(move || clerk.run());
        match started {
            Ok(_) => Ok((desk, theirs)),
            Err(error) => {
                answers.clerks.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// The file of this number.
    pub(crate) fn file(&self, number: u16) -> Option<Arc<LentFile>> {
        lock(&self.files).get(usize::from(number)).cloned().flatten()
    }

    /// The application uses the number no more.
    pub(crate) fn return_file(&self, number: u16) {
        let file = lock(&self.files).get_mut(usize::from(number)).and_then(Option::take);
        // Without the lock: the last one goes back to the desk.
        drop(file);
    }

    /// Has bytes read that the worker would have to wait for.
    pub(crate) fn read(&self, socket: SocketId, reading: Reading) {
        self.ask(Errand::Read(socket, reading));
    }

    /// The application has gone: its files are closed once nothing is read from them any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        let files = std::mem::take(&mut *lock(&self.files));
        drop(files);
        ring(&self.bell);
    }

    fn ask(&self, errand: Errand) {
        lock(&self.errands).push(errand);
        ring(&self.bell);
    }
}

/// The thread's own.
struct Clerk {
    desk: Arc<Desk>,
    answers: Arc<Answers>,
    /// To the application; none once it has hung up or talked nonsense.
    socket: Option<OwnedFd>,
    /// Files taken and not closed yet.
    open: usize,
}

impl Clerk {
    fn run(mut self) {
        loop {
            let errands = std::mem::take(&mut *lock(&self.desk.errands));
            for errand in errands {
                self.carry_out(errand);
            }
            let over = self.desk.over.load(Ordering::Acquire);
            if over {
                self.socket = None;
            }
            if over && self.open == 0 {
                break;
            }
            self.wait();
        }
        self.answers.clerks.fetch_sub(1, Ordering::Relaxed);
    }

    fn carry_out(&mut self, errand: Errand) {
        match errand {
            Errand::Close(file) => {
                drop(file);
                self.open -= 1;
            }
            Errand::Read(socket, reading) => {
                self.answers.give(Answer { socket, outcome: reading.run() });
            }
        }
    }

    /// Sleeps until there is something to do, and hears the application.
    fn wait(&mut self) {
        let mut entries = vec![PollFd::new(&self.desk.bell, PollFlags::IN)];
        entries.extend(self.socket.as_ref().map(|socket| PollFd::new(socket, PollFlags::IN)));
        if poll(&mut entries, None).is_err() {
            return;
        }
        let [rung, spoken] =
            [0, 1].map(|index| entries.get(index).is_some_and(|it| !it.revents().is_empty()));
        if rung {
            // Takes the ring off; the bell does not block.
            let _ = rustix::io::read(&self.desk.bell, &mut [0u8; 8]);
        }
        if spoken && let Some(socket) = self.socket.take() {
            // Kept only as long as what comes makes sense.
            self.socket = self.hear(&socket).then_some(socket);
        }
    }

    /// Takes a message; whether the application is still there and its messages make sense.
    fn hear(&mut self, socket: &OwnedFd) -> bool {
        let mut buffer = [0; MAX_FILE_MESSAGE];
        let Ok(Received::Message(length, descriptors)) = receive(socket, &mut buffer) else { return false };
        let (Some(message), Ok([file])) =
            (FileMessage::decode(&buffer[..length]), <[OwnedFd; 1]>::try_from(descriptors))
        else {
            return false;
        };
        let errno = self.take(message.file, file).err().unwrap_or(0);
        let answer = FileMessage { file: message.file, errno: errno.unsigned_abs() };
        send(socket, &answer.encode(), &[]).is_ok()
    }

    /// Takes a file in under a number, or closes it and says why.
    fn take(&mut self, number: u16, file: OwnedFd) -> Result<(), i32> {
        let in_memory = sys::check(file.as_fd()).map_err(|error| {
            debug!("a lent file is not taken: {error}");
            error.raw_os_error().unwrap_or(libc::EINVAL)
        })?;
        if usize::from(number) >= usize::from(MAX_FILES) {
            return Err(libc::EINVAL);
        }
        let owner: Arc<dyn TakeBack> = self.desk.clone();
        let mut files = lock(&self.desk.files);
        let place = &mut files[usize::from(number)];
        // After the end nothing is taken in: nobody would give it back.
        if place.is_some() || self.desk.over.load(Ordering::Acquire) {
            return Err(libc::EBUSY);
        }
        *place = Some(Arc::new(LentFile::new(file, in_memory, owner)));
        self.open += 1;
        Ok(())
    }
}

fn new_bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(bell: &OwnedFd) {
    // A counter that is full rings already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
