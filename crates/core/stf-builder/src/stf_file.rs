//! TF files of DataDistribution as the source of one FLP: its share of the equipment, or whole files.

use crate::cut::Share;
use crate::source::{Made, Payload, Slots, StfSource};
use bytes::Bytes;
use sheaf_formats::Findings;
use sheaf_formats::stf_file::{Block, Equipment, Excerpt, FileTf, FileTfs, NotPages, pages_of};
use sheaf_protocol::{PayloadFormat, TfId, copy_digested};
use std::collections::{BTreeMap, BTreeSet};

/// Choice of the blocks that an FLP takes from its files, and numbering of TFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equipments {
    /// Every FLP reads all files; their equipment is dealt out in the order of its names. TF n is the n-th of all
    /// files, by run and counter: TFs that the files lack leave no gap.
    Dealt(Share),
    /// The FLP has files of its own, and takes all of them. TF n has the counter n above the first: FLPs whose files
    /// lack different TFs still join the right ones.
    All {
        /// The counter that is TF 0, the same for all FLPs.
        first_counter: u32,
    },
}

/// Content of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payloads {
    /// Blocks with their O2 headers: nothing of the file is lost.
    Blocks,
    /// RDH pages one behind the other: what stands in the headers is lost, and other blocks have no place.
    Pages,
}

/// A TF of one of the files, with its number.
type Found = (u64, usize, FileTf);

/// STFs of TF files.
#[derive(Clone, Debug)]
pub struct StfFile {
    inputs: Vec<Bytes>,
    stfs: BTreeMap<u64, Excerpt>,
    tfs: u64,
    bytes_max: u64,
    format: PayloadFormat,
    repeated: u64,
    refused: Option<NotPages>,
}

impl StfFile {
    /// Takes its share of `inputs`, the bytes of the files. The findings are those of each file.
    ///
    /// TFs that are cut or contradict themselves are left out; of those with the same run and counter the first counts.
    /// With [`Equipments::All`] only the run of the first TF is taken, since counters restart with every run.
    #[must_use]
    pub fn new(
        inputs: Vec<Bytes>,
        equipments: Equipments,
        payloads: Payloads,
    ) -> (Self, Vec<Findings>) {
        let mut all = Vec::new();
        let mut findings_of_all = Vec::with_capacity(inputs.len());
        let mut repeated = 0;
        let mut seen = BTreeSet::new();
        for (file, input) in inputs.iter().enumerate() {
            let mut findings = Findings::default();
            let mut tfs = FileTfs::new(input);
            let mut place: u32 = 0;
            while let Some(tf) = tfs.next_good(&mut findings) {
                place = place.saturating_add(1);
                // Headers of the first versions have no counter: then the place in the file has to do.
                let counter = match tf.counter() {
                    0 => place,
                    counter => counter,
                };
                // Files of several EPNs, or of STFs, may each have a part of a TF: only one file's is taken twice.
                if seen.insert((file, tf.run(), counter)) {
                    all.push((tf.run(), counter, file, tf));
                } else {
                    repeated += 1;
                }
            }
            findings.sort();
            findings_of_all.push(findings);
        }
        let numbered = numbered(all, equipments);
        let mine = mine(&numbered, equipments);
        let format = match payloads {
            Payloads::Blocks => PayloadFormat::O2Blocks,
            Payloads::Pages => PayloadFormat::RdhPages,
        };
        let mut source = Self {
            inputs,
            stfs: BTreeMap::new(),
            tfs: numbered
                .last()
                .map_or(0, |(last, ..)| last.saturating_add(1)),
            bytes_max: 0,
            format,
            repeated,
            refused: None,
        };
        for of_tf in numbered.chunk_by(|(a, ..), (b, ..)| a == b) {
            let Some((number, ..)) = of_tf.first() else {
                continue;
            };
            let stf = match payloads {
                Payloads::Blocks => source.blocks(of_tf, &mine),
                Payloads::Pages => source.pages(of_tf, &mine),
            };
            source.bytes_max = source.bytes_max.max(stf.bytes() as u64);
            source.stfs.insert(*number, stf);
        }
        (source, findings_of_all)
    }

    fn blocks(&self, of_tf: &[Found], mine: &BTreeSet<Equipment>) -> Excerpt {
        let tfs: Vec<_> = of_tf
            .iter()
            .map(|(_, file, tf)| (*file, self.inputs[*file].as_ref(), tf))
            .collect();
        Excerpt::new(&tfs, |equipment| mine.contains(equipment))
    }

    /// Returns the pages of a TF; a block of mine that has none is kept as the reason of a refusal.
    fn pages(&mut self, of_tf: &[Found], mine: &BTreeSet<Equipment>) -> Excerpt {
        let mut made = Excerpt::default();
        for (_, file, tf) in of_tf {
            let of_me = |block: &&Block| mine.contains(&block.header.equipment);
            let blocks: Vec<Block> = tf.blocks.iter().filter(of_me).cloned().collect();
            match pages_of(&blocks) {
                Ok(ranges) => {
                    made.blocks += blocks.len();
                    made.pieces
                        .extend(ranges.into_iter().map(|range| (*file, range)));
                }
                Err(refused) => self.refused = self.refused.or(Some(refused)),
            }
        }
        made
    }

    /// Returns the first block that [`Payloads::Pages`] has no place for. Its TF has no pages then.
    #[must_use]
    pub fn refused(&self) -> Option<NotPages> {
        self.refused
    }

    /// Returns the number of TFs, empty ones included.
    #[must_use]
    pub fn tfs(&self) -> u64 {
        self.tfs
    }

    /// Returns the number of TFs that have data of this FLP.
    #[must_use]
    pub fn tfs_with_data(&self) -> usize {
        self.stfs.values().filter(|stf| stf.blocks > 0).count()
    }

    /// Returns the number of TFs that stand a second time in a file and are left out.
    #[must_use]
    pub fn tfs_repeated(&self) -> u64 {
        self.repeated
    }
}

/// Returns `all`, each with run, counter and file, by their number in Sheaf's numbering.
fn numbered(mut all: Vec<(u32, u32, usize, FileTf)>, equipments: Equipments) -> Vec<Found> {
    let run = all.first().map(|(run, ..)| *run);
    all.sort_by_key(|(run, counter, file, _)| (*run, *counter, *file));
    let mut rank = 0;
    let mut before = None;
    let number = |(of_run, counter, file, tf)| match equipments {
        Equipments::All { first_counter } => {
            let since = u32::checked_sub(counter, first_counter)?;
            (Some(of_run) == run).then_some((u64::from(since), file, tf))
        }
        Equipments::Dealt(_) => {
            let key = Some((of_run, counter));
            if before.is_some() && before != key {
                rank += 1;
            }
            before = key;
            Some((rank, file, tf))
        }
    };
    all.into_iter().filter_map(number).collect()
}

/// Returns the equipment of one FLP.
fn mine(all: &[Found], equipments: Equipments) -> BTreeSet<Equipment> {
    let blocks = all.iter().flat_map(|(_, _, tf)| &tf.blocks);
    let names: BTreeSet<Equipment> = blocks.map(|block| block.header.equipment).collect();
    match equipments {
        Equipments::All { .. } => names,
        Equipments::Dealt(share) => {
            let mine = names.into_iter().enumerate();
            mine.filter(|(at, _)| share.has(*at))
                .map(|(_, name)| name)
                .collect()
        }
    }
}

impl StfSource for StfFile {
    fn format(&self) -> PayloadFormat {
        self.format
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        if tf.0 >= self.tfs {
            return Made::End;
        }
        let Some(stf) = self.stfs.get(&tf.0) else {
            return Made::empty();
        };
        match stf.pieces.as_slice() {
            [] if stf.heads.is_empty() => return Made::empty(),
            [(file, whole)] if stf.heads.is_empty() => {
                let whole = self.inputs[*file].slice(whole.clone());
                return Made::Payload(Payload::of(whole));
            }
            _ => {}
        }
        let pieces = stf.pieces.iter();
        let pieces = pieces.map(|(file, range)| &self.inputs[*file][range.clone()]);
        let pieces = std::iter::once(stf.heads.as_slice()).chain(pieces);
        Made::in_slot(slots, stf.bytes(), |place| copy_digested(place, pieces))
    }
}

#[cfg(test)]
mod tests;
