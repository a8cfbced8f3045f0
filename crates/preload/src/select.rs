//! select and pselect, by way of poll.

use std::ffi::c_int;
use std::io;
use std::time::{Duration, Instant};

use libc::{fd_set, pollfd, sigset_t, timespec, timeval};

use crate::poll::{poll_entries, span_of};
use crate::{errno, real, table};

const READ: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
const EXCEPT: i16 = libc::POLLPRI;
const WORD_BITS: usize = u64::BITS as usize;

/// One of the three sets, as many words as `select` was told.
struct Set<'a>(&'a mut [u64]);

impl Set<'_> {
    /// # Safety
    /// `set` must be null or have room for `count` bits, rounded up to whole words as the kernel reads them.
    unsafe fn new(set: *mut fd_set, count: usize) -> Self {
        if set.is_null() {
            return Self(&mut []);
        }
        // SAFETY: the caller says so; an `fd_set` is made of words of this size and alignment.
        Self(unsafe { std::slice::from_raw_parts_mut(set.cast(), count.div_ceil(WORD_BITS)) })
    }

    fn contains(&self, fd: usize) -> bool {
        self.0.get(fd / WORD_BITS).is_some_and(|word| word >> (fd % WORD_BITS) & 1 != 0)
    }

    fn insert(&mut self, fd: usize) {
        if let Some(word) = self.0.get_mut(fd / WORD_BITS) {
            *word |= 1 << (fd % WORD_BITS);
        }
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

struct Sets<'a> {
    count: usize,
    read: Set<'a>,
    write: Set<'a>,
    except: Set<'a>,
}

impl Sets<'_> {
    /// # Safety
    /// As [`Set::new`], for each of them.
    unsafe fn new(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller says so.
        unsafe {
            Self {
                count,
                read: Set::new(read, count),
                write: Set::new(write, count),
                except: Set::new(except, count),
            }
        }
    }

    fn concerns_us(&self) -> bool {
        (0..self.count).any(|fd| table::contains(fd as c_int) && self.events(fd) != 0)
    }

    fn events(&self, fd: usize) -> i16 {
        let mut events = 0;
        if self.read.contains(fd) {
            events |= READ;
        }
        if self.write.contains(fd) {
            events |= WRITE;
        }
        if self.except.contains(fd) {
            events |= EXCEPT;
        }
        events
    }

    fn wait(&mut self, timeout: Option<Duration>, mask: Option<&sigset_t>) -> io::Result<usize> {
        let mut entries: Vec<pollfd> = (0..self.count)
            .map(|fd| pollfd { fd: fd as c_int, events: self.events(fd), revents: 0 })
            .filter(|entry| entry.events != 0)
            .collect();
        poll_entries(&mut entries, timeout, mask)?;
        if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(errno::error(libc::EBADF));
        }
        let asked: Vec<i16> = entries.iter().map(|entry| entry.events).collect();
        for set in [&mut self.read, &mut self.write, &mut self.except] {
            set.clear();
        }
        let mut count = 0;
        for (entry, asked) in entries.iter().zip(asked) {
            count += self.answer(entry.fd as usize, asked, entry.revents);
        }
        Ok(count)
    }

    /// Sets the bits of one descriptor; how many (select(2), "correspondence between select() and poll()").
    fn answer(&mut self, fd: usize, asked: i16, ready: i16) -> usize {
        let read = asked & READ != 0 && ready & (READ | libc::POLLHUP | libc::POLLERR) != 0;
        let write = asked & WRITE != 0 && ready & (WRITE | libc::POLLERR) != 0;
        let except = asked & EXCEPT != 0 && ready & libc::POLLPRI != 0;
        for (set, ready) in [(&mut self.read, read), (&mut self.write, write), (&mut self.except, except)] {
            if ready {
                set.insert(fd);
            }
        }
        usize::from(read) + usize::from(write) + usize::from(except)
    }
}

/// See select(2). The time that is left is told, as Linux does.
///
/// # Safety
/// As select(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::new(count, read, write, except) };
    if !sets.concerns_us() {
        // SAFETY: the caller's pointers.
        return unsafe { real::select(count, read, write, except, timeout) };
    }
    // SAFETY: the caller's pointer, null or to a time.
    let timeout = unsafe { timeout.as_mut() };
    if timeout.as_deref().is_some_and(|time| time.tv_sec < 0 || time.tv_usec < 0) {
        return errno::fail(libc::EINVAL);
    }
    let span = timeout.as_deref().map(|time| {
        Duration::new(time.tv_sec.max(0) as u64, 0) + Duration::from_micros(time.tv_usec.max(0) as u64)
    });
    let start = Instant::now();
    let outcome = sets.wait(span, None);
    if let (Some(timeout), Some(span)) = (timeout, span) {
        let left = span.saturating_sub(start.elapsed());
        timeout.tv_sec = left.as_secs() as libc::time_t;
        timeout.tv_usec = left.subsec_micros().into();
    }
    errno::count(outcome) as c_int
}

/// See pselect(2).
///
/// # Safety
/// As pselect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::new(count, read, write, except) };
    if !sets.concerns_us() {
        // SAFETY: the caller's pointers.
        return unsafe { real::pselect(count, read, write, except, timeout, mask) };
    }
    // SAFETY: the caller's pointers.
    let (timeout, mask) = unsafe { (timeout.as_ref(), mask.as_ref()) };
    let span = timeout.map(span_of).transpose();
    errno::count(span.and_then(|span| sets.wait(span, mask))) as c_int
}
