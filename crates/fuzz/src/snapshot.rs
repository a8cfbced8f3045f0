//! The snapshot reader: any bytes are refused, or make a connection that keeps the laws whatever comes.

use tcp::{Connection, RestoreError, Snapshot};

use crate::input::Input;
use crate::middle_box::World;

/// The first byte chooses between a whole snapshot from the input and the change of a few bytes of a true one; the rest is a
/// program for what is restored (see [`middle_box`](crate::middle_box)).
///
/// # Panics
/// If a law is broken.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.byte();
    let mut world = World::open(&mut Input::new(&[choice >> 2, choice, 0, 0, 0, 0]));
    let side = usize::from(choice & 1);
    // Some way into the connection's life.
    let story = [30, 4, 12, 0, 80, 140, 0, 20, 30, 3, 12, 0, 40, 0, 128, 128];
    world.play(&mut Input::new(&story[..input.below(story.len() + 1)]));
    let mut changed = *world.ends[side].conn.snapshot().as_bytes();
    if choice & 2 == 0 {
        for _ in 0..input.below(12) {
            let at = usize::from(input.u16()) % changed.len();
            let value = input.nasty().to_le_bytes();
            let len = [1, 2, 4, 8][input.below(4)].min(changed.len() - at);
            changed[at..at + len].copy_from_slice(&value[..len]);
        }
    } else {
        let taken = input.take(Snapshot::SIZE);
        changed[2..2 + taken.len().saturating_sub(2)].copy_from_slice(taken.get(2..).unwrap_or(&[]));
    }
    let sealed = Snapshot::from_bytes(changed).resealed();
    if sealed.as_bytes() != &changed {
        let refused = Connection::restore(&Snapshot::from_bytes(changed), world.now).err();
        assert_eq!(refused, Some(RestoreError::Checksum), "the checksum is wrong");
    }
    let Ok(conn) = Connection::restore(&sealed, world.now) else { return };
    let again = conn.snapshot();
    assert!(Connection::restore(&again, world.now).is_ok(), "what was restored can be kept: {conn:#?}");
    let end = &mut world.ends[side];
    end.buffer.restart(conn.received_to());
    end.buffer.checks = false;
    world.ends[1 - side].buffer.checks = false;
    world.ends[side].conn = conn;
    (world.may_fail, world.much_to_say) = (true, true);
    world.play(&mut input);
    world.finish();
}
