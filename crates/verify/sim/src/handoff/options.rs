//! Everything that a seed of the family `handoff` stands for.

use crate::dice::Dice;
use sheaf_placement::policy;

/// Fault of a node, or of the way between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffFault {
    /// A writer dies, and starts again after so many ms.
    WriterDies(u16, u64),
    /// A writer does nothing for so many ms.
    WriterHangs(u16, u64),
    /// The disks of a writer take nothing for so many ms, and it says so.
    WriterFull(u16, u64),
    /// The catalogue of a writer cannot be written for so many ms.
    CatalogueFails(u16, u64),
    /// A writer that is in the middle of a TF dies.
    WriterDiesWriting(u16, u64),
    /// An EPN dies, and starts again after so many ms.
    EpnDies(u16, u64),
    /// The stream of an EPN to a writer closes.
    Cut(u16, u16),
}

/// All that is drawn from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoffOptions {
    /// The seed.
    pub seed: u64,
    /// Writers.
    pub writers: u16,
    /// EPNs.
    pub epns: u16,
    /// Streams of each TF in the files.
    pub streams: u8,
    /// TFs of each EPN.
    pub tfs: u64,
    /// Time between two TFs of an EPN, in ms.
    pub every_ms: u64,
    /// Policy that chooses writers.
    pub policy: &'static str,
    /// TFs that may be with a writer.
    pub window_tfs: u32,
    /// Silence after which a writer counts as hanging, in ms.
    pub silence_ms: u64,
    /// Longest time of a message on its way, in ms.
    pub delay_ms: u64,
    /// Longest time in which a writer writes a TF, in ms.
    pub write_ms: u64,
    /// Whether TFs are stored before they are committed.
    pub stores: bool,
    /// Of TFs that are stored, those in a hundred that are committed.
    pub committed_percent: u64,
    /// Faults by the time, in ms, at which they begin.
    pub faults: Vec<(u64, HandoffFault)>,
}

impl HandoffOptions {
    /// Draws the options of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6861_6e64_6f66_6600);
        let dice = &mut dice;
        let writers = dice.pick(&[1, 2, 2, 3, 4]);
        let epns = dice.pick(&[1, 1, 2, 3]);
        let tfs = dice.range(5, 60);
        let every_ms = dice.range(1, 40);
        let stores = dice.chance(40);
        let span_ms = tfs * every_ms + 1_000;
        let count = dice.range(0, 8);
        let mut faults: Vec<(u64, HandoffFault)> = (0..count)
            .map(|_| {
                let writer = u16::try_from(dice.range(0, u64::from(writers) - 1)).unwrap_or(0);
                let epn = u16::try_from(dice.range(0, u64::from(epns) - 1)).unwrap_or(0);
                let ms = dice.range(1, 2_500);
                let fault = match dice.range(0, 9) {
                    0 | 1 => HandoffFault::WriterDies(writer, ms),
                    2 | 3 => HandoffFault::WriterDiesWriting(writer, ms),
                    4 => HandoffFault::WriterHangs(writer, ms),
                    5 => HandoffFault::WriterFull(writer, ms),
                    6 => HandoffFault::CatalogueFails(writer, ms),
                    7 => HandoffFault::EpnDies(epn, ms),
                    _ => HandoffFault::Cut(epn, writer),
                };
                (dice.range(0, span_ms), fault)
            })
            .collect();
        faults.sort_unstable_by_key(|(at, _)| *at);
        Self {
            seed,
            writers,
            epns,
            streams: dice.pick(&[1, 1, 2, 3]),
            tfs,
            every_ms,
            policy: dice.pick(policy::NAMES),
            window_tfs: dice.pick(&[1, 2, 8, 64]),
            silence_ms: dice.range(100, 1_000),
            delay_ms: dice.pick(&[0, 1, 5, 60]),
            write_ms: dice.pick(&[0, 2, 20, 200]),
            stores,
            committed_percent: dice.pick(&[100, 90, 50]),
            faults,
        }
    }

    /// Returns the ms within which all faults have ended.
    #[must_use]
    pub fn calm_ms(&self) -> u64 {
        let end = |(at, fault): &(u64, HandoffFault)| {
            at + match fault {
                HandoffFault::WriterDies(_, ms)
                | HandoffFault::WriterDiesWriting(_, ms)
                | HandoffFault::WriterHangs(_, ms)
                | HandoffFault::WriterFull(_, ms)
                | HandoffFault::CatalogueFails(_, ms)
                | HandoffFault::EpnDies(_, ms) => *ms,
                HandoffFault::Cut(..) => 0,
            }
        };
        let last = self.faults.iter().map(end).max().unwrap_or(0);
        last.max(self.tfs * self.every_ms)
    }
}
