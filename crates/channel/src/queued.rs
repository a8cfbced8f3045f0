//! An entry of a socket's queue of errors in the words of F's header, where the FEP puts the one that was asked for.

use core::net::{IpAddr, Ipv4Addr};

use base::Instant;
use stack::{ErrorOrigin, MAX_QUEUED_PAYLOAD, QueuedError};

use crate::record::{address_from_words, address_words};

/// Words before the payload.
pub(crate) const HEAD_WORDS: usize = 9;
/// Bytes of all of it.
pub(crate) const SIZE: usize = HEAD_WORDS * 8 + MAX_QUEUED_PAYLOAD;

const HAS_OFFENDER: u64 = 1 << 56;
const HAS_TIME: u64 = 1 << 57;

/// What stands before the payload.
pub(crate) fn encode(error: &QueuedError) -> [u64; HEAD_WORDS] {
    let octets = |ip: Ipv4Addr| u64::from(u32::from_ne_bytes(ip.octets()));
    let mut flags = 0;
    if error.offender.is_some() {
        flags |= HAS_OFFENDER;
    }
    if error.at.is_some() {
        flags |= HAS_TIME;
    }
    let [first, second, third] = address_words(error.destination);
    [
        u64::from(error.errno.cast_unsigned()) | u64::from(error.info) << 32,
        u64::from(error.data)
            | u64::from(error.origin.number()) << 32
            | u64::from(error.kind) << 40
            | u64::from(error.code) << 48
            | flags,
        octets(error.offender.unwrap_or(Ipv4Addr::UNSPECIFIED)) | octets(error.local) << 32,
        u64::from(error.ttl) | u64::from(error.tos) << 8,
        first,
        second,
        third,
        error.at.map_or(0, Instant::as_nanos),
        error.payload.len().min(MAX_QUEUED_PAYLOAD) as u64,
    ]
}

/// The bytes of payload that belong to a head; never more than there is room for.
pub(crate) fn payload_len(words: [u64; HEAD_WORDS]) -> usize {
    usize::try_from(words[HEAD_WORDS - 1]).unwrap_or(MAX_QUEUED_PAYLOAD).min(MAX_QUEUED_PAYLOAD)
}

/// The entry of a head and its payload; `None`: it makes no sense.
pub(crate) fn decode(words: [u64; HEAD_WORDS], payload: Vec<u8>) -> Option<QueuedError> {
    let address = |word: u32| Ipv4Addr::from(word.to_ne_bytes());
    let destination = address_from_words([words[4], words[5], words[6]]);
    Some(QueuedError {
        errno: (words[0] as u32).cast_signed(),
        info: (words[0] >> 32) as u32,
        data: words[1] as u32,
        origin: ErrorOrigin::from_number((words[1] >> 32) as u8)?,
        kind: (words[1] >> 40) as u8,
        code: (words[1] >> 48) as u8,
        offender: (words[1] & HAS_OFFENDER != 0).then(|| address(words[2] as u32)),
        local: address((words[2] >> 32) as u32),
        ttl: words[3] as u8,
        tos: (words[3] >> 8) as u8,
        destination: destination.filter(|to| matches!(to.ip(), IpAddr::V4(_))),
        at: (words[1] & HAS_TIME != 0).then(|| Instant::from_nanos(words[7])),
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_survives_its_words() {
        let error = QueuedError {
            errno: 111,
            origin: ErrorOrigin::Icmp,
            kind: 3,
            code: 255,
            info: u32::MAX,
            data: 7,
            offender: Some(Ipv4Addr::new(10, 0, 0, 1)),
            local: Ipv4Addr::new(10, 0, 0, 2),
            ttl: 64,
            tos: 0xc0,
            destination: Some("192.0.2.1:80".parse().unwrap()),
            at: Some(Instant::from_nanos(5)),
            payload: vec![1, 2, 3],
        };
        let other = QueuedError {
            offender: None,
            destination: None,
            at: None,
            origin: ErrorOrigin::Local,
            payload: vec![9; MAX_QUEUED_PAYLOAD],
            ..error.clone()
        };
        for error in [error, other] {
            let words = encode(&error);
            assert_eq!(payload_len(words), error.payload.len());
            assert_eq!(decode(words, error.payload.clone()), Some(error));
        }
    }

    proptest! {
        #[test]
        fn no_words_ask_for_more_than_there_is(words: [u64; HEAD_WORDS]) {
            let length = payload_len(words);
            prop_assert!(length <= MAX_QUEUED_PAYLOAD);
            if let Some(error) = decode(words, vec![0; length]) {
                prop_assert_eq!(error.payload.len(), length);
            }
        }
    }
}
