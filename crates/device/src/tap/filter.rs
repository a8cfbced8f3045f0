//! What of a link's noise is dropped before anybody has read it.
//!
//! A storm of ARP requests for others, or of broadcasts to ports where nobody listens, would cost a system call a frame. The
//! kernel can drop such frames where they are sent (`TUNATTACHFILTER`, a classic BPF program), as a network card drops what
//! is for other hardware addresses. What the filter is not sure of, it lets pass:
//!
//! - everything that is for one host, and every protocol but ARP and UDP over IPv4;
//! - ARP but requests; requests for our addresses, requests from somebody who uses one of them (a conflict, RFC 5227), and
//!   announcements (sender and target are one);
//! - UDP as soon as any socket could want it, and fragments.

use std::net::Ipv4Addr;

/// Addresses that a program can name: its jumps are short.
const MOST_ADDRESSES: usize = 32;

/// One instruction, as the kernel takes it (`struct sock_filter`).
pub(super) type Instruction = libc::sock_filter;

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const COPY_TO_X: u16 = 0x07;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_EQUAL_X: u16 = 0x1d;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Bytes of a frame that pass.
const ALL: u32 = u32::MAX;

/// Where in an Ethernet frame the fields lie.
const ETHERTYPE: u32 = 12;
const ARP_OPERATION: u32 = 20;
const ARP_SENDER: u32 = 28;
const ARP_TARGET: u32 = 38;
const IP_FRAGMENT: u32 = 20;
const IP_PROTOCOL: u32 = 23;
/// More fragments, or an offset that is not zero.
const IS_FRAGMENT: u32 = 0x3fff;

/// A jump's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    Pass,
    Arp,
    Udp,
}

/// A program under construction: jumps know where they lead only when all of it is there.
#[derive(Default)]
struct Program {
    code: Vec<(u16, u32, To, To)>,
    arp: usize,
    udp: usize,
}

impl Program {
    fn load(&mut self, how: u16, at: u32) {
        self.code.push((how, at, To::Next, To::Next));
    }

    fn jump(&mut self, how: u16, value: u32, then: To, otherwise: To) {
        self.code.push((how, value, then, otherwise));
    }

    fn finish(self) -> Vec<Instruction> {
        let pass = self.code.len();
        let end = |at: usize, to: To| {
            let place = match to {
                To::Next => at + 1,
                To::Pass => pass,
                To::Arp => self.arp,
                To::Udp => self.udp,
            };
            (place - at - 1) as u8
        };
        let mut instructions: Vec<Instruction> = self
            .code
            .iter()
            .enumerate()
            .map(|(at, &(code, k, then, otherwise))| Instruction {
                code,
                jt: if code & 7 == 5 { end(at, then) } else { 0 },
                jf: if code & 7 == 5 { end(at, otherwise) } else { 0 },
                k,
            })
            .collect();
        instructions.push(Instruction { code: RETURN, jt: 0, jf: 0, k: ALL });
        instructions
    }
}

/// The program for a host with these addresses; `udp`: some socket may want broadcasts. `None`: too many addresses.
pub(super) fn program(addresses: &[Ipv4Addr], udp: bool) -> Option<Vec<Instruction>> {
    if addresses.len() > MOST_ADDRESSES {
        return None;
    }
    let mut program = Program::default();
    program.load(LOAD_BYTE, 0);
    program.jump(JUMP_IF_ANY_BIT, 1, To::Next, To::Pass);
    program.load(LOAD_HALF, ETHERTYPE);
    program.jump(JUMP_IF_EQUAL, 0x0806, To::Arp, To::Next);
    program.jump(JUMP_IF_EQUAL, 0x0800, if udp { To::Pass } else { To::Udp }, To::Pass);

    program.arp = program.code.len();
    program.load(LOAD_HALF, ARP_OPERATION);
    program.jump(JUMP_IF_EQUAL, 1, To::Next, To::Pass);
    for field in [ARP_TARGET, ARP_SENDER] {
        program.load(LOAD_WORD, field);
        for address in addresses {
            program.jump(JUMP_IF_EQUAL, u32::from(*address), To::Pass, To::Next);
        }
    }
    program.load(COPY_TO_X, 0);
    program.load(LOAD_WORD, ARP_TARGET);
    program.jump(JUMP_IF_EQUAL_X, 0, To::Pass, To::Next);
    program.load(RETURN, 0);

    program.udp = program.code.len();
    program.load(LOAD_BYTE, IP_PROTOCOL);
    program.jump(JUMP_IF_EQUAL, 17, To::Next, To::Pass);
    program.load(LOAD_HALF, IP_FRAGMENT);
    program.jump(JUMP_IF_ANY_BIT, IS_FRAGMENT, To::Pass, To::Next);
    program.load(RETURN, 0);
    Some(program.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

    /// What the kernel would do with it.
    fn passes(program: &[Instruction], frame: &[u8]) -> bool {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let field = |width: usize| {
                let bytes = frame.get(k as usize..k as usize + width)?;
                Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
            };
            let jump = |is: bool| usize::from(if is { jt } else { jf });
            match code {
                LOAD_BYTE | LOAD_HALF | LOAD_WORD => {
                    let width = [(LOAD_BYTE, 1), (LOAD_HALF, 2), (LOAD_WORD, 4)];
                    match field(width.iter().find(|one| one.0 == code).unwrap().1) {
                        Some(value) => a = value,
                        None => return false,
                    }
                }
                COPY_TO_X => x = a,
                JUMP_IF_EQUAL => at += jump(a == k),
                JUMP_IF_EQUAL_X => at += jump(a == x),
                JUMP_IF_ANY_BIT => at += jump(a & k != 0),
                RETURN => return k > 0,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn arp(operation: u16, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4]);
        frame.extend(operation.to_be_bytes());
        frame.extend([2, 0, 0, 0, 0, 9]);
        frame.extend(sender.octets());
        frame.extend([0; 6]);
        frame.extend(target.octets());
        frame
    }

    fn ip(first_byte: u8, protocol: u8, fragment: u16) -> Vec<u8> {
        let mut frame = vec![first_byte; 6];
        frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x00, 0x45, 0, 0, 28, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol]);
        frame.extend([0; 26]);
        frame
    }

    #[test]
    fn noise_is_dropped_and_what_concerns_us_passes() {
        let program = program(&[Ipv4Addr::new(10, 0, 0, 3), OWN], false).unwrap();
        let cases = [
            ("a request for another", arp(1, SENDER, OTHER), false),
            ("a request for us", arp(1, SENDER, OWN), true),
            ("somebody who uses our address", arp(1, OWN, OTHER), true),
            ("an announcement", arp(1, SENDER, SENDER), true),
            ("a broadcast reply", arp(2, SENDER, OTHER), true),
            ("a broadcast datagram", ip(0xff, 17, 0x4000), false),
            ("a fragment of one", ip(0xff, 17, 0x2000), true),
            ("another protocol", ip(0xff, 1, 0), true),
            ("a datagram for one host", ip(0x02, 17, 0), true),
        ];
        for (name, frame, expected) in cases {
            assert_eq!(passes(&program, &frame), expected, "{name}");
        }
    }

    #[test]
    fn datagrams_pass_once_a_socket_may_want_them() {
        let program = program(&[OWN], true).unwrap();
        assert!(passes(&program, &ip(0xff, 17, 0)) && !passes(&program, &arp(1, SENDER, OTHER)));
    }

    #[test]
    fn so_many_addresses_that_jumps_would_be_too_long_mean_no_filter() {
        let many: Vec<Ipv4Addr> = (0..=32).map(|last| Ipv4Addr::new(10, 0, 1, last)).collect();
        assert!(program(&many, false).is_none());
        let most = program(&many[..32], false).unwrap();
        assert!(passes(&most, &arp(1, SENDER, many[31])) && !passes(&most, &arp(1, SENDER, many[32])));
    }
}
