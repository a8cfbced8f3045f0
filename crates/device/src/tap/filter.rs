//! Which of a link's noise the kernel drops before anybody has read it: a classic BPF program, run by whoever sends
//! (`TUNATTACHFILTER`), as a network card drops what is for other hardware addresses.
//!
//! A frame for one host always passes. Of those to all or to a group it drops what the stack would do nothing with but count:
//!
//! - protocols that the stack does not speak: everything but ARP and IPv4;
//! - ARP requests that are neither for us, nor from somebody who uses our address (RFC 5227), nor announcements, nor news of a
//!   neighbour: RFC 826 has every packet of one that we know update what we know;
//! - IPv4 to multicast groups, of which the stack joins none;
//! - UDP to ports where no socket takes it. Fragments and packets with options pass: their ports are elsewhere.
//!
//! `tests::nothing_is_dropped_that_the_stack_would_do_anything_with` holds this against the stack.

use wire::ethernet::EthernetAddress;

use crate::Wanted;

/// One instruction, as the kernel takes it (`struct sock_filter`).
pub(super) type Instruction = libc::sock_filter;

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const COPY_TO_X: u16 = 0x07;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_EQUAL_X: u16 = 0x1d;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// So many bytes of a frame pass: all of them.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// Where in an Ethernet frame the fields lie.
const ETHERTYPE: u32 = 12;
const ARP_OPERATION: u32 = 20;
const ARP_SENDER_HARDWARE: u32 = 22;
const ARP_SENDER: u32 = 28;
const ARP_TARGET: u32 = 38;
const IP_FIRST: u32 = 14;
const IP_FRAGMENT: u32 = 20;
const IP_PROTOCOL: u32 = 23;
const IP_DESTINATION: u32 = 30;
const UDP_PORT: u32 = 36;

const GROUP_BIT: u32 = 1;
const TYPE_ARP: u32 = 0x0806;
const TYPE_IPV4: u32 = 0x0800;
const REQUEST: u32 = 1;
const NO_OPTIONS: u32 = 0x45;
const UDP: u32 = 17;
/// More fragments, or an offset that is not zero.
const IS_FRAGMENT: u32 = 0x3fff;

/// The program for what is wanted.
pub(super) fn program(wanted: &Wanted) -> Vec<Instruction> {
    let arp = of_arp(wanted);
    let mut program = vec![
        load(LOAD_BYTE, 0),
        jump(JUMP_IF_ANY_BIT, GROUP_BIT, 1, 0),
        end(PASS),
        load(LOAD_HALF, ETHERTYPE),
        jump(JUMP_IF_EQUAL, TYPE_ARP, 2, 0),
        jump(JUMP_IF_EQUAL, TYPE_IPV4, 2, 0),
        end(DROP),
        // Over the next.
        load(JUMP, 1),
        load(JUMP, arp.len() as u32),
    ];
    program.extend(arp);
    program.extend(of_ipv4(wanted));
    program
}

fn of_arp(wanted: &Wanted) -> Vec<Instruction> {
    let Some(neighbours) = &wanted.neighbours else { return vec![end(PASS)] };
    let mut program = vec![load(LOAD_HALF, ARP_OPERATION), jump(JUMP_IF_EQUAL, REQUEST, 1, 0), end(PASS)];
    for field in [ARP_TARGET, ARP_SENDER] {
        program.push(load(LOAD_WORD, field));
        for address in &wanted.addresses {
            program.extend([jump(JUMP_IF_EQUAL, u32::from(*address), 0, 1), end(PASS)]);
        }
    }
    program.extend([
        load(COPY_TO_X, 0),
        load(LOAD_WORD, ARP_TARGET),
        jump(JUMP_IF_EQUAL_X, 0, 0, 1),
        end(PASS),
        load(LOAD_WORD, ARP_SENDER),
    ]);
    for (address, hardware) in neighbours {
        let address = u32::from(*address);
        match hardware {
            None => program.extend([jump(JUMP_IF_EQUAL, address, 0, 1), end(PASS)]),
            Some(EthernetAddress([a, b, c, d, e, f])) => program.extend([
                jump(JUMP_IF_EQUAL, address, 0, 6),
                load(LOAD_WORD, ARP_SENDER_HARDWARE + 2),
                jump(JUMP_IF_EQUAL, u32::from_be_bytes([*c, *d, *e, *f]), 0, 2),
                load(LOAD_HALF, ARP_SENDER_HARDWARE),
                jump(JUMP_IF_EQUAL, u32::from_be_bytes([0, 0, *a, *b]), 1, 0),
                end(PASS),
                // We know that already.
                end(DROP),
            ]),
        }
    }
    program.push(end(DROP));
    program
}

fn of_ipv4(wanted: &Wanted) -> Vec<Instruction> {
    let mut program = vec![
        load(LOAD_WORD, IP_DESTINATION),
        load(AND, 0xf000_0000),
        jump(JUMP_IF_EQUAL, 0xe000_0000, 0, 1),
        end(DROP),
    ];
    let Some(ports) = &wanted.broadcast_ports else {
        program.push(end(PASS));
        return program;
    };
    program.extend([
        load(LOAD_BYTE, IP_PROTOCOL),
        jump(JUMP_IF_EQUAL, UDP, 1, 0),
        end(PASS),
        load(LOAD_BYTE, IP_FIRST),
        jump(JUMP_IF_EQUAL, NO_OPTIONS, 1, 0),
        end(PASS),
        load(LOAD_HALF, IP_FRAGMENT),
        jump(JUMP_IF_ANY_BIT, IS_FRAGMENT, 0, 1),
        end(PASS),
        load(LOAD_HALF, UDP_PORT),
    ]);
    for port in ports {
        program.extend([jump(JUMP_IF_EQUAL, u32::from(*port), 0, 1), end(PASS)]);
    }
    program.push(end(DROP));
    program
}

fn load(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn end(k: u32) -> Instruction {
    Instruction { code: RETURN, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests;
