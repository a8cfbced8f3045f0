use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use channel::control::sys::{Received, receive, send};
use channel::layout::MAX_FILES;

use super::*;

/// The application's side of a desk.
struct Lender {
    desk: Arc<Desk>,
    answers: Arc<Answers>,
    socket: OwnedFd,
}

impl Lender {
    fn new() -> Self {
        let answers = Answers::new().unwrap();
        let (desk, socket) = Desk::open(&answers).unwrap();
        Self { desk, answers, socket }
    }

    /// The clerk's errno, 0 if it takes the file.
    fn lend(&self, file: u16, descriptor: impl AsFd) -> u32 {
        let message = FileMessage { file, errno: 0 }.encode();
        send(&self.socket, &message, &[descriptor.as_fd()]).unwrap();
        let mut buffer = [0; 64];
        let Received::Message(length, _) = receive(&self.socket, &mut buffer).unwrap() else {
            panic!("the clerk hung up");
        };
        let answer = FileMessage::decode(&buffer[..length]).unwrap();
        assert_eq!(answer.file, file);
        answer.errno
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < limit, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn file() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 4096]).unwrap();
    file
}

#[test]
fn only_regular_files_that_were_opened_for_reading_are_taken() {
    let lender = Lender::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("write-only");
    let write_only = File::create(&path).unwrap();
    let (pipe, _other) = std::io::pipe().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(lender.lend(0, &write_only), libc::EBADF as u32);
    assert_eq!(lender.lend(0, &pipe), libc::EINVAL as u32);
    assert_eq!(lender.lend(0, &socket), libc::EINVAL as u32);
    assert_eq!(lender.lend(0, File::open(directory.path()).unwrap()), libc::EINVAL as u32);
    assert_eq!(lender.lend(0, File::open("/dev/zero").unwrap()), libc::EINVAL as u32);
    assert_eq!(lender.lend(0, File::open("/proc/self/maps").unwrap()), libc::EOPNOTSUPP as u32);
    assert!(lender.desk.file(0).is_none());
    assert_eq!(lender.lend(0, file()), 0);
    assert!(lender.desk.file(0).is_some());
}

#[test]
fn a_number_is_given_once_at_a_time_and_within_the_table() {
    let lender = Lender::new();
    assert_eq!(lender.lend(3, file()), 0);
    assert_eq!(lender.lend(3, file()), libc::EBUSY as u32);
    assert_eq!(lender.lend(MAX_FILES, file()), libc::EINVAL as u32);
    lender.desk.return_file(3);
    assert!(lender.desk.file(3).is_none());
    assert_eq!(lender.lend(3, file()), 0);
}

#[test]
fn nonsense_ends_the_conversation_and_the_end_of_the_application_the_clerk() {
    let lender = Lender::new();
    assert_eq!(lender.lend(1, file()), 0);
    let in_use = lender.desk.file(1).unwrap();
    send(&lender.socket, b"no file at all", &[]).unwrap();
    let mut buffer = [0; 64];
    assert!(matches!(receive(&lender.socket, &mut buffer), Ok(Received::HungUp)));
    lender.desk.end();
    assert!(lender.desk.file(1).is_none());
    // It stays for as long as something of its files is in use.
    assert_eq!(lender.answers.clerks.load(Ordering::Relaxed), 1);
    drop(in_use);
    lender.wait_until("the clerk's end", |lender| lender.answers.clerks.load(Ordering::Relaxed) == 0);
}
