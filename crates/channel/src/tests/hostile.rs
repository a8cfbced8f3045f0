//! An application that writes whatever it likes into its segment.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Rng, SeededRng};
use rustix::io::pwrite;
use stack::{DatagramBuffer, DatagramMeta};
use tcp::{ReceiveBuffer, SendBuffer};

use super::{LIMITS, World, bytes};
use crate::app::{ReceiveStream, SendStream};
use crate::fep::{AppChannel, DatagramRings, StreamRings};
use crate::layout::{Layout, PAGE, RingLocation, header_a, record_a};
use crate::{Command, Offence, State};

/// A worker's loop over one application, as far as this crate goes.
struct Victim {
    fep: AppChannel,
    streams: BTreeMap<u32, StreamRings>,
    datagrams: BTreeMap<u32, DatagramRings>,
    /// Commands taken.
    taken: u64,
}

impl Victim {
    fn new() -> Self {
        let fep = AppChannel::create(&LIMITS).unwrap();
        Self { fep, streams: BTreeMap::new(), datagrams: BTreeMap::new(), taken: 0 }
    }

    /// One turn of the loop: everything that a worker does for an application.
    fn turn(&mut self) -> Result<(), Offence> {
        for _ in 0..200 {
            let Some(command) = self.fep.poll_command()? else { break };
            self.taken += 1;
            self.apply(command)?;
        }
        for (&socket, stream) in &mut self.streams {
            let consumed = stream.poll_consumed()?;
            let _ = stream.place(consumed, &[7; 3000]);
            stream.publish_received(consumed + 1000);
            let queued = stream.queued();
            for piece in stream.peek(queued.saturating_sub(100), 100) {
                assert!(piece.len() <= 100);
            }
            stream.publish_acked(queued);
            stream.notify_consumed_at(consumed + 500)?;
            stream.release_idle();
            self.fep.notify(socket);
        }
        let meta = DatagramMeta {
            remote: "10.0.0.1:1".parse().unwrap(),
            local: "10.0.0.2:2".parse().unwrap(),
            ttl: 1,
            tos: 0,
            segment: 0,
        };
        for (&socket, rings) in &mut self.datagrams {
            let _ = rings.push(base::Instant::ZERO, &meta, &[9; 700]);
            // More than these cannot be queued at a time, whatever the records say.
            for _ in 0..1 << 20 {
                let Some((_, payload)) = rings.front() else { break };
                assert!(payload[0].len() + payload[1].len() <= 65_535);
                rings.pop();
            }
            rings.publish();
            rings.release_idle();
            self.fep.notify(socket);
        }
        if let Some(socket) = self.fep.allocate_socket() {
            self.fep.accepted(0, socket);
            self.fep.release_socket(socket);
        }
        self.fep.flush_events()?;
        self.fep.prepare_sleep()?;
        self.fep.end_sleep();
        Ok(())
    }

    fn apply(&mut self, command: Command) -> Result<(), Offence> {
        match command {
            Command::OpenTcp { socket, sequence } => {
                self.fep.check_own(socket)?;
                let mut rings = self.fep.owner().stream();
                rings.assign(socket);
                if self.streams.insert(socket, rings).is_some() {
                    return Err(Offence::AlreadyOpen);
                }
                self.fep.publish_state(socket, State::CONNECTED);
                self.fep.answer(socket, sequence, 0);
            }
            Command::OpenUdp { socket, .. } => {
                self.fep.check_own(socket)?;
                let mut rings = self.fep.owner().datagrams();
                rings.assign(socket);
                if self.datagrams.insert(socket, rings).is_some() {
                    return Err(Offence::AlreadyOpen);
                }
            }
            Command::AttachSend { socket, location } => {
                if let Some(stream) = self.streams.get_mut(&socket) {
                    stream.attach_send(location)?;
                }
                if let Some(rings) = self.datagrams.get_mut(&socket) {
                    rings.attach_send(location)?;
                }
            }
            Command::Send { socket, queued_to } => {
                if let Some(stream) = self.streams.get_mut(&socket) {
                    stream.queue(queued_to)?;
                }
                if let Some(rings) = self.datagrams.get_mut(&socket) {
                    rings.queue(queued_to)?;
                }
            }
            Command::Close { socket } | Command::Abort { socket } => {
                let known = self.streams.remove(&socket).is_some() | self.datagrams.remove(&socket).is_some();
                if known {
                    self.fep.release_socket(socket);
                }
            }
            Command::Info { socket, sequence } | Command::Listen { socket, sequence, .. } => {
                self.fep.answer(socket, sequence, libc::EINVAL);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes into segment A as no library would.
struct Attacker {
    layout: Layout,
    rng: SeededRng,
    produced: u32,
    /// Of the sockets it opened: up to where it queued, and whether there is a ring.
    queued: [Option<u64>; 5],
    attached: [bool; 5],
}

impl Attacker {
    fn new(victim: &AppChannel, seed: u64) -> Self {
        let layout = Layout::new(*victim.geometry()).unwrap();
        Self { layout, rng: SeededRng::new(seed), produced: 0, queued: [None; 5], attached: [false; 5] }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    /// A number of a kind that breaks things.
    fn nasty(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(10),
            1 => 1 << self.below(64),
            2 => u64::MAX - self.below(10),
            3 => self.below(1 << 25) & !7,
            4 => u64::from(u32::MAX) + self.below(3),
            _ => self.rng.next_u64(),
        }
    }

    fn spoil(&mut self, a: impl AsFd) {
        match self.below(60) {
            0 => self.noise(a),
            1 => self.record(a),
            2 if self.below(4) == 0 => self.header(a),
            3 => self.area(a),
            _ => self.command(a),
        }
    }

    /// Random bytes anywhere.
    fn noise(&mut self, a: impl AsFd) {
        let mut bytes = vec![0; 1 + self.below(300) as usize];
        bytes.fill_with(|| self.rng.next_u64() as u8);
        let at = match self.below(3) {
            0 => self.below(self.layout.slots as u64),
            1 => self.below(self.layout.send_area as u64),
            _ => self.below(self.layout.a_len as u64 - 300),
        };
        pwrite(a, &bytes, at).unwrap();
    }

    /// A word of a socket's record.
    fn record(&mut self, a: impl AsFd) {
        let socket = self.below(6) as u32;
        let field = self.below(record_a::SIZE as u64) as usize & !3;
        let value = if self.below(4) == 0 { self.nasty() } else { self.below(u64::from(LIMITS.waiters)) };
        put(&a, self.layout.record_a(socket) + field, &value.to_ne_bytes()[..4]);
        if self.below(2) == 0 {
            let slot = self.below(LIMITS.waiters.into()) as u32;
            put(a, self.layout.sleeping(slot), &(value as u32).to_ne_bytes());
        }
    }

    fn header(&mut self, a: impl AsFd) {
        let fields =
            [header_a::MAGIC, header_a::EVENTS_CONSUMED, header_a::WAITERS_USED, header_a::COMMANDS_PRODUCED];
        let field = fields[self.below(4) as usize];
        let value = self.nasty() as u32;
        // A jump of the command index mostly ends it all: not every time.
        if field != header_a::COMMANDS_PRODUCED || self.below(8) == 0 {
            put(a, field, &value.to_ne_bytes());
        }
    }

    /// Something that may be taken for a datagram's record.
    fn area(&mut self, a: impl AsFd) {
        let at = self.layout.send_area as u64 + (self.below(64 << 10) & !7);
        let word = self.below(4000) | self.below(4) << 32 | self.nasty() & !0xffff_ffff & self.nasty();
        put(a, at as usize, &word.to_ne_bytes());
    }

    /// A command that decodes and mostly makes sense, so that the attack goes on for a while.
    fn command(&mut self, a: impl AsFd) {
        let (index, sequence) = (self.below(5) as usize, self.below(3) as u32);
        let (socket, rare) = (index as u32, self.below(400) == 0);
        let command = match self.below(9) {
            _ if self.queued[index].is_none() || self.below(2000) == 0 => {
                self.queued[index] = Some(0);
                if socket < 3 {
                    Command::OpenTcp { socket, sequence }
                } else {
                    Command::OpenUdp { socket, sequence }
                }
            }
            0 | 1 => {
                let page = self.layout.send_area / PAGE + self.below(64) as usize;
                let location = RingLocation::new(page * PAGE, 14 + self.below(6) as u32, 1);
                self.attached[index] = true;
                Command::AttachSend {
                    socket,
                    location: if rare { RingLocation(self.nasty()) } else { location },
                }
            }
            2..=6 if self.attached[index] => {
                let queued_to =
                    self.queued[index].unwrap_or(0) + self.below(20) * crate::datagram::HEADER as u64;
                self.queued[index] = Some(queued_to);
                Command::Send { socket, queued_to: if rare { self.nasty() } else { queued_to } }
            }
            7 if rare => Command::Close { socket },
            _ => Command::Info { socket, sequence },
        };
        let mut words = command.encode();
        if self.below(500) == 0 {
            words[self.below(4) as usize] ^= self.nasty();
        }
        let slot = (self.produced % self.layout.geometry.commands) as usize;
        for (index, word) in words.iter().enumerate() {
            put(&a, self.layout.commands + slot * 32 + index * 8, &word.to_ne_bytes());
        }
        self.produced = self.produced.wrapping_add(1);
        put(a, header_a::COMMANDS_PRODUCED, &self.produced.to_ne_bytes());
    }
}

fn put(a: impl AsFd, offset: usize, bytes: &[u8]) {
    assert_eq!(pwrite(a, bytes, offset as u64), Ok(bytes.len()));
}

/// Says which seed it was, if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

#[test]
fn whatever_is_written_is_a_command_or_an_offence() {
    let mut offences = BTreeMap::<&str, u32>::new();
    let mut taken = 0;
    for seed in 0..400 {
        let _seed = Seed(seed);
        let mut victim = Victim::new();
        let mut attacker = Attacker::new(&victim.fep, seed);
        let a = victim.fep.offer().a.try_clone_to_owned().unwrap();
        for _ in 0..300 {
            for _ in 0..attacker.below(6) {
                attacker.spoil(&a);
            }
            if let Err(offence) = victim.turn() {
                *offences.entry(offence.name()).or_default() += 1;
                victim.fep.close(Some(offence));
                break;
            }
        }
        taken += victim.taken;
        victim.streams.clear();
        victim.datagrams.clear();
        assert_eq!(victim.fep.memory().in_use, 0);
    }
    // The attack goes deep enough: many kinds of offences, after many commands.
    eprintln!("{taken} {offences:?}");
    assert!(taken > 50_000, "{taken} commands");
    assert!(offences.len() >= 9, "{offences:?}");
}

/// The same while another thread writes at the same time, and while another application's bytes go through.
#[test]
fn writing_meanwhile_harms_only_the_writer() {
    let stop = AtomicBool::new(false);
    let mut worlds: Vec<Victim> = (0..4).map(|_| Victim::new()).collect();
    let files: Vec<(OwnedFd, Attacker)> = worlds
        .iter()
        .zip(1000..)
        .map(|(victim, seed)| {
            (victim.fep.offer().a.try_clone_to_owned().unwrap(), Attacker::new(&victim.fep, seed))
        })
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut files = files;
            while !stop.load(Ordering::Relaxed) {
                for (a, attacker) in &mut files {
                    attacker.spoil(&*a);
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        let mut good = World::new();
        let socket = good.open();
        let (mut reader, mut writer) =
            (ReceiveStream::new(good.app.clone(), socket), SendStream::new(good.app.clone(), socket));
        let mut cut_off = 0;
        for turn in 0..3000u64 {
            for victim in &mut worlds {
                if let Err(offence) = victim.turn() {
                    victim.fep.close(Some(offence));
                    cut_off += 1;
                }
            }
            transfer(&mut good, socket, turn * 500, &mut reader, &mut writer);
        }
        assert!(cut_off > 0);
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Five hundred bytes each way.
fn transfer(world: &mut World, socket: u32, at: u64, reader: &mut ReceiveStream, writer: &mut SendStream) {
    let data = bytes(at, 500);
    world.stream(socket).place(at, &data).unwrap();
    world.stream(socket).publish_received(at + 500);
    assert_eq!(reader.slices().concat(), data);
    reader.consume(500).unwrap();
    writer.write(&[std::io::IoSlice::new(&data)]).unwrap();
    assert_eq!(world.work(), Ok(vec![]));
    assert_eq!(world.stream(socket).peek(at, 500).concat(), data);
    world.stream(socket).publish_acked(at + 500);
    assert_eq!(world.stream(socket).poll_consumed(), Ok(at + 500));
}

// --- one by one -------------------------------------------------------------------------------------------------

/// A world with one stream socket and its segment A to write.
fn open() -> (World, u32, OwnedFd, Layout) {
    let mut world = World::new();
    let socket = world.open();
    let a = world.fep.offer().a.try_clone_to_owned().unwrap();
    let layout = Layout::new(*world.fep.geometry()).unwrap();
    (world, socket, a, layout)
}

#[test]
fn index_jumps_are_offences() {
    for (field, value, offence) in [
        (header_a::COMMANDS_PRODUCED, 5000, Offence::CommandIndex),
        (header_a::COMMANDS_PRODUCED, 0, Offence::CommandIndex),
        (header_a::COMMANDS_PRODUCED, u32::MAX, Offence::CommandIndex),
        (header_a::EVENTS_CONSUMED, 2, Offence::EventIndex),
        (header_a::EVENTS_CONSUMED, u32::MAX, Offence::EventIndex),
    ] {
        let (mut world, _, a, _) = open();
        put(&a, field, &value.to_ne_bytes());
        if offence == Offence::EventIndex {
            // Whether this was read decides about its number.
            world.fep.release_socket(40);
            assert_eq!(world.fep.allocate_socket(), Some(32));
        }
        assert_eq!(world.work(), Err(offence), "{field} {value}");
        assert_eq!(world.fep.poll_command(), Err(offence), "it stays so");
    }
}

#[test]
fn a_cursor_that_jumps_is_an_offence() {
    let (mut world, socket, a, layout) = open();
    let place = layout.record_a(socket) + record_a::CONSUMED;
    world.stream(socket).place(0, &[1; 100]).unwrap();
    world.stream(socket).publish_received(100);
    put(&a, place, &50u64.to_ne_bytes());
    assert_eq!(world.stream(socket).poll_consumed(), Ok(50));
    put(&a, place, &49u64.to_ne_bytes());
    assert_eq!(world.stream(socket).poll_consumed(), Err(Offence::ConsumedBackwards));
    put(&a, place, &101u64.to_ne_bytes());
    assert_eq!(world.stream(socket).poll_consumed(), Err(Offence::ConsumedTooFar));
    // Found where it cannot be returned, it is told with the next command.
    assert!(world.stream(socket).place(100, &[1; 5000]).is_err());
    assert_eq!(world.fep.poll_command(), Err(Offence::ConsumedTooFar));
}

#[test]
fn rings_that_are_not_there_are_offences() {
    let (mut world, socket, _, layout) = open();
    let stream = world.stream(socket);
    let area = layout.send_area;
    for location in [
        RingLocation::NONE,
        RingLocation(u64::MAX),
        RingLocation::new(area - PAGE, 12, 0),
        RingLocation::new(layout.a_len - PAGE, 13, 0),
        RingLocation::new(layout.a_len, 12, 0),
        RingLocation::new(area, 11, 0),
        RingLocation::new(area, 25, 0),
        RingLocation::new(area, 255, 0),
    ] {
        assert_eq!(stream.attach_send(location), Err(Offence::BadLocation), "{location:?}");
    }
    assert_eq!(stream.queue(1), Err(Offence::NoRing));
    assert_eq!(stream.attach_send(RingLocation::new(layout.a_len - PAGE, 12, 9)), Ok(()));
    assert_eq!(stream.queue(4097), Err(Offence::QueuedTooFar));
    assert_eq!(stream.queue(u64::MAX), Err(Offence::QueuedTooFar));
    assert_eq!(stream.queue(4096), Ok(()));
    assert_eq!(stream.queue(4095), Err(Offence::QueuedBackwards));
    // The same again, a larger one over it, one that another socket has: nobody else is harmed.
    assert_eq!(stream.attach_send(RingLocation::new(area, 16, 10)), Ok(()));
    assert_eq!(stream.attach_send(RingLocation::new(area, 16, 10)), Ok(()));
    assert_eq!(stream.queue(5000), Ok(()));
    assert_eq!(stream.attach_send(RingLocation::new(area, 12, 11)), Err(Offence::RingTooSmall));
    assert_eq!(stream.peek(0, 5000).concat(), vec![0; 5000]);
}

#[test]
fn datagram_records_that_lie_are_offences() {
    let layout = Layout::new(*World::new().fep.geometry()).unwrap();
    let area = layout.send_area;
    for word in [
        65_535u64,      // as long as any, but not queued
        4096,           // longer than what is queued
        100,            // as well, with its header
        1 << 32,        // a pad over nothing
        8 | 1 << 32,    // a pad that does not end where the ring ends
        4104 | 1 << 32, // a pad beyond it
        0xffff_ffff,
        0xffff_ffff | 1 << 32,
    ] {
        let (mut fep, _app) = crate::pair(&LIMITS).unwrap();
        let mut rings = fep.owner().datagrams();
        rings.attach_send(RingLocation::new(area, 12, 0)).unwrap();
        put(fep.offer().a, area, &word.to_ne_bytes());
        assert_eq!(rings.queue(4), Err(Offence::QueuedBackwards));
        rings.queue(104).unwrap();
        assert!(rings.front().is_none(), "{word:#x}");
        assert!(rings.front().is_none());
        assert_eq!(fep.poll_command(), Err(Offence::BadDatagram));
    }
}

#[test]
fn a_waiter_that_is_not_there_is_an_offence() {
    let (mut world, socket, a, layout) = open();
    let name = LIMITS.waiters + 1;
    put(&a, layout.record_a(socket) + record_a::READER, &name.to_ne_bytes());
    world.fep.notify(socket);
    assert_eq!(world.work(), Err(Offence::BadWaiter));
}

#[test]
fn commands_for_sockets_outside_of_the_table_are_offences() {
    let (mut world, _, a, layout) = open();
    let words = Command::Close { socket: LIMITS.sockets }.encode();
    for (index, word) in words.iter().enumerate() {
        put(&a, layout.commands + 32 + index * 8, &word.to_ne_bytes());
    }
    put(&a, header_a::COMMANDS_PRODUCED, &2u32.to_ne_bytes());
    assert_eq!(world.work(), Err(Offence::BadSocket));
}
