//! What a stage did, as plain counters.

use core::fmt;

/// The counters of one stage. A counter that a stage has no use for stays zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageStats {
    /// Frames that reached the stage.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames that left it towards the next stage.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Frames marked Congestion Experienced.
    pub marked: u64,
    /// Extra copies made.
    pub duplicated: u64,
    /// Frames that others were let overtake.
    pub reordered: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Frames handed back as longer than the MTU.
    pub too_big: u64,
    /// The most bytes that waited at one time.
    pub peak_bytes: u64,
    /// The most frames that waited at one time.
    pub peak_frames: u64,
}

impl StageStats {
    pub(crate) fn count_in(&mut self, len: u32) {
        self.frames_in += 1;
        self.bytes_in += u64::from(len);
    }

    pub(crate) fn count_out(&mut self, len: u32) {
        self.frames_out += 1;
        self.bytes_out += u64::from(len);
    }
}

impl fmt::Display for StageStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in {} ({} B) out {} ({} B)",
            self.frames_in, self.bytes_in, self.frames_out, self.bytes_out
        )?;
        let rest = [
            ("dropped", self.dropped),
            ("marked", self.marked),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("corrupted", self.corrupted),
            ("too-big", self.too_big),
            ("peak-bytes", self.peak_bytes),
            ("peak-frames", self.peak_frames),
        ];
        rest.iter().filter(|(_, count)| *count > 0).try_for_each(|(name, count)| write!(f, " {name} {count}"))
    }
}
