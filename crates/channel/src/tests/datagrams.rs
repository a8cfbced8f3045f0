use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use base::Instant;
use proptest::prelude::*;
use stack::{DatagramBuffer, DatagramMeta, Full};

use super::{LIMITS, bytes};
use crate::app::{DatagramManner, ReceiveDatagrams, SendDatagrams};
use crate::datagram::NOBODY;
use crate::fep::{AppChannel, DatagramRings};
use crate::{Command, Offence};

fn remote(port: u16) -> SocketAddr {
    SocketAddr::new(if port.is_multiple_of(2) { [10, 0, 0, 1].into() } else { [0x2001; 8].into() }, port)
}

/// When all of them came.
const CAME: Instant = Instant::from_nanos(0x0123_4567_89ab_cdef);

fn meta(port: u16) -> DatagramMeta {
    DatagramMeta { remote: remote(port), local: remote(port.wrapping_add(1)), ttl: 64, tos: 3, segment: 0 }
}

/// Takes the commands of the only socket.
fn work(fep: &mut AppChannel, rings: &mut DatagramRings) -> Result<(), Offence> {
    while let Some(command) = fep.poll_command()? {
        match command {
            Command::AttachSend { location, .. } => rings.attach_send(location)?,
            Command::Send { queued_to, .. } => rings.queue(queued_to)?,
            _ => return Err(Offence::WrongKind),
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Queue(usize),
    Deliver,
    Take(usize),
    Idle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![4 => 0usize..2000, 1 => 0usize..=65_507];
    let step = prop_oneof![
        4 => length.prop_map(Step::Queue),
        2 => Just(Step::Deliver),
        4 => (0usize..3000).prop_map(Step::Take),
        1 => Just(Step::Idle),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn received_datagrams_arrive_whole_and_in_order(steps in steps()) {
        let (fep, app) = crate::pair(&LIMITS).unwrap();
        let mut rings = fep.owner().datagrams();
        rings.assign(0);
        let mut reader = ReceiveDatagrams::new(app, 0);
        let (mut hidden, mut visible) = (VecDeque::new(), VecDeque::new());
        for (port, step) in steps.into_iter().enumerate() {
            match step {
                Step::Queue(len) => {
                    let meta = meta(port as u16);
                    match rings.push(CAME, &meta, &bytes(port as u64, len)) {
                        Ok(()) => hidden.push_back((meta, bytes(port as u64, len))),
                        // The limit is a mebibyte: not before a third of it is full.
                        Err(Full) => prop_assert!(hidden.iter().chain(&visible).map(|(_, data)| data.len() + 56).sum::<usize>() > 300_000),
                    }
                }
                Step::Deliver => {
                    rings.publish();
                    visible.append(&mut hidden);
                }
                Step::Take(room) => {
                    prop_assert_eq!(reader.has_next(), !visible.is_empty());
                    let peeked = reader.next_length().unwrap();
                    let (mut first, mut second) = (vec![0; room / 2], vec![0; room - room / 2]);
                    let got = reader.receive(&mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)]).unwrap();
                    let expected = visible.pop_front();
                    prop_assert_eq!(got.map(|got| got.length), peeked);
                    prop_assert_eq!(got.is_some(), expected.is_some());
                    if let (Some(got), Some((meta, data))) = (got, expected) {
                        prop_assert_eq!((got.remote, got.local, got.ttl, got.tos), (meta.remote, meta.local, 64, 3));
                        prop_assert_eq!(got.arrival_ns, CAME.as_nanos());
                        prop_assert_eq!((got.length, got.copied), (data.len(), data.len().min(room)));
                        prop_assert_eq!(&[first, second].concat()[..got.copied], &data[..got.copied]);
                    }
                }
                Step::Idle => {
                    rings.release_idle();
                }
            }
        }
        drop(rings);
        prop_assert_eq!(fep.memory().in_use, 0);
    }

    #[test]
    fn queued_datagrams_are_sent_whole_and_in_order(steps in steps()) {
        let (mut fep, app) = crate::pair(&LIMITS).unwrap();
        let mut rings = fep.owner().datagrams();
        rings.assign(0);
        let mut writer = SendDatagrams::new(app.clone(), 0);
        let (mut hidden, mut visible) = (VecDeque::new(), VecDeque::new());
        for (port, step) in steps.into_iter().enumerate() {
            match step {
                Step::Queue(len) => {
                    let to = (port % 3 != 0).then(|| remote(port as u16));
                    let from = (port % 2 == 0).then(|| remote(port as u16).ip());
                    let data = bytes(port as u64, len);
                    let (first, second) = data.split_at(len / 3);
                    let fits = writer.has_room(len);
                    let manner = DatagramManner { source: from, ..DatagramManner::default() };
                    match writer.send(to, &[IoSlice::new(first), IoSlice::new(second)], &manner) {
                        Ok(count) => {
                            prop_assert_eq!(count, len);
                            hidden.push_back((to, from, data));
                        }
                        Err(error) => {
                            prop_assert_eq!(error.kind(), ErrorKind::WouldBlock);
                            prop_assert!(!fits);
                        }
                    }
                }
                Step::Deliver => {
                    work(&mut fep, &mut rings).unwrap();
                    visible.append(&mut hidden);
                }
                Step::Take(_) => {
                    let expected = visible.pop_front();
                    match (rings.front(), expected) {
                        (Some((meta, payload)), Some((to, from, data))) => {
                            let nobody = NOBODY.ip();
                            prop_assert_eq!(meta.local, SocketAddr::new(from.unwrap_or(nobody), 0));
                            prop_assert_eq!(meta.remote, to.unwrap_or(crate::datagram::NOBODY));
                            prop_assert_eq!(payload.concat(), data);
                        }
                        (front, expected) => prop_assert_eq!(front.is_some(), expected.is_some()),
                    }
                    rings.pop();
                    rings.publish();
                }
                Step::Idle => {
                    writer.release_idle();
                }
            }
        }
        work(&mut fep, &mut rings).unwrap();
        while rings.front().is_some() {
            rings.pop();
        }
        rings.publish();
        prop_assert!(writer.release_idle());
        prop_assert_eq!(app.memory().in_use, 0);
        prop_assert_eq!(fep.poll_command(), Ok(None));
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let (fep, app) = crate::pair(&LIMITS).unwrap();
    let mut writer = SendDatagrams::new(app, 0);
    let error = writer.send(None, &[IoSlice::new(&[0; 65_508])], &DatagramManner::default()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    let mut rings = fep.owner().datagrams();
    assert_eq!(rings.push(CAME, &meta(1), &[0; 65_536]), Err(Full));
}

#[test]
fn a_peeked_datagram_stays() {
    let (fep, app) = crate::pair(&LIMITS).unwrap();
    let mut rings = fep.owner().datagrams();
    rings.assign(0);
    rings.push(CAME, &meta(7), b"").unwrap();
    rings.push(CAME, &meta(8), b"second").unwrap();
    rings.publish();
    let mut reader = ReceiveDatagrams::new(app, 0);
    let mut buffer = [0; 10];
    for peek in [true, true, false] {
        let buffers = &mut [IoSliceMut::new(&mut buffer)];
        let got = if peek { reader.peek(None, buffers) } else { reader.receive(buffers) };
        let got = got.unwrap().unwrap();
        assert_eq!((got.length, got.remote), (0, remote(7)));
    }
    assert_eq!(reader.next_length().unwrap(), Some(6));
}
