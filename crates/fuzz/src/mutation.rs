//! New inputs from old ones, repeatable from a seed.

use base::{Rng, SeededRng};

/// Values at the edges of the fields that inputs are made of.
const EDGES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, 0x10];

/// The input number `index` of the sequence that follows from `seed`: a member of `corpus` changed in a few places, two of
/// them spliced, or bytes from nowhere. At most `longest` bytes.
pub fn make(seed: u64, index: u64, corpus: &[Vec<u8>], longest: usize) -> Vec<u8> {
    let mut rng = SeededRng::new(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = if corpus.is_empty() || rng.below(4) == 0 {
        random(&mut rng, longest)
    } else {
        pick(&mut rng, corpus).to_vec()
    };
    if !corpus.is_empty() && rng.below(4) == 0 {
        splice(&mut rng, &mut bytes, pick_any(corpus, index));
    }
    for _ in 0..1 + rng.below(8) {
        mutate(&mut rng, &mut bytes);
    }
    bytes.truncate(longest);
    bytes
}

fn random(rng: &mut SeededRng, longest: usize) -> Vec<u8> {
    let len = rng.below(longest as u64 + 1);
    // Small numbers choose often-used acts, so half of the inputs are made of them.
    let mask = if rng.below(2) == 0 { 0xff } else { 0x1f };
    (0..len).map(|_| rng.next_u64() as u8 & mask).collect()
}

fn pick<'a>(rng: &mut SeededRng, corpus: &'a [Vec<u8>]) -> &'a [u8] {
    &corpus[rng.below(corpus.len() as u64) as usize]
}

fn pick_any(corpus: &[Vec<u8>], index: u64) -> &[u8] {
    &corpus[(index % corpus.len() as u64) as usize]
}

/// The beginning of one and the end of the other.
fn splice(rng: &mut SeededRng, bytes: &mut Vec<u8>, other: &[u8]) {
    let keep = rng.below(bytes.len() as u64 + 1) as usize;
    let from = rng.below(other.len() as u64 + 1) as usize;
    bytes.truncate(keep);
    bytes.extend_from_slice(&other[from..]);
}

fn mutate(rng: &mut SeededRng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let count = (1 + rng.below(8) as usize).min(bytes.len() - at);
    match rng.below(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 if at < bytes.len() => bytes[at] = EDGES[rng.below(8) as usize],
        2 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(rng.below(9) as u8).wrapping_sub(4),
        3 => drop(bytes.drain(at..at + count)),
        4 => {
            let piece = bytes[at..at + count].to_vec();
            let to = rng.below(bytes.len() as u64 + 1) as usize;
            drop(bytes.splice(to..to, piece));
        }
        _ => bytes.insert(at, rng.next_u64() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_follows_from_seed_and_index_and_is_bounded() {
        let corpus = [vec![1; 50], vec![2; 3], Vec::new()];
        let inputs: Vec<_> = (0..500).map(|index| make(7, index, &corpus, 60)).collect();
        assert!(inputs.iter().all(|input| input.len() <= 60));
        assert_eq!(inputs[99], make(7, 99, &corpus, 60));
        let different = inputs.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert!(different > 400, "{different}");
        assert_ne!(inputs[99], make(8, 99, &corpus, 60));
    }
}
