//! TF files of DataDistribution as the source of one FLP: its share of the equipment, or whole files.

use crate::cut::Share;
use crate::source::{Made, Slots, StfSource};
use bytes::Bytes;
use sheaf_formats::stf_file::{Equipment, FileTf, FileTfs};
use sheaf_formats::{Findings, join};
use sheaf_protocol::{PayloadFormat, TfId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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

/// The place of a file, and pieces of it.
type Place = (usize, Vec<Range<usize>>);

/// STFs of TF files.
#[derive(Clone, Debug)]
pub struct StfFile {
    inputs: Vec<Bytes>,
    /// Place of the file, and the pieces in it.
    stfs: BTreeMap<u64, Vec<Place>>,
    tfs: u64,
    bytes_max: u64,
    format: PayloadFormat,
    repeated: u64,
}

impl StfFile {
    /// Takes its share of `inputs`, the bytes of the files. The findings are those of each file.
    ///
    /// TFs that are cut or contradict themselves are left out; of those with the same run and counter the first counts.
    /// With [`Equipments::All`] only the run of the first TF is taken, since counters restart with every run.
    #[must_use]
    pub fn new(inputs: Vec<Bytes>, equipments: Equipments) -> (Self, Vec<Findings>) {
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
        let run = all.first().map(|(run, ..)| *run);
        all.sort_by_key(|(run, counter, file, _)| (*run, *counter, *file));
        let numbered = numbered(&all, run, equipments);
        let mine = mine(&all, equipments);
        let mut source = Self {
            inputs,
            stfs: BTreeMap::new(),
            tfs: numbered
                .iter()
                .flatten()
                .max()
                .map_or(0, |last| last.saturating_add(1)),
            bytes_max: 0,
            format: format_of(&mine),
            repeated,
        };
        for (number, (_, _, file, tf)) in numbered.into_iter().zip(&all) {
            let Some(number) = number else { continue };
            let mut pieces = Vec::new();
            for block in &tf.blocks {
                if mine.contains(&block.header.equipment) && !block.payload.is_empty() {
                    join(&mut pieces, block.payload.clone());
                }
            }
            if !pieces.is_empty() {
                source.stfs.entry(number).or_default().push((*file, pieces));
            }
        }
        let sizes = source.stfs.values().map(|pieces| bytes_of(pieces));
        source.bytes_max = sizes.max().unwrap_or(0) as u64;
        (source, findings_of_all)
    }

    /// Returns the number of TFs, empty ones included.
    #[must_use]
    pub fn tfs(&self) -> u64 {
        self.tfs
    }

    /// Returns the number of TFs that have data of this FLP.
    #[must_use]
    pub fn tfs_with_data(&self) -> usize {
        self.stfs.len()
    }

    /// Returns the number of TFs that stand a second time in a file and are left out.
    #[must_use]
    pub fn tfs_repeated(&self) -> u64 {
        self.repeated
    }
}

/// A TF, with run, counter and file.
type Found = (u32, u32, usize, FileTf);

/// Returns the TF in Sheaf's numbering of each one of `all`, which are sorted.
fn numbered(all: &[Found], run: Option<u32>, equipments: Equipments) -> Vec<Option<u64>> {
    let mut rank = 0;
    let mut before = None;
    let number = |(of_run, counter, _, _): &Found| match equipments {
        Equipments::All { first_counter } => {
            let since = counter.checked_sub(first_counter)?;
            (Some(*of_run) == run).then_some(u64::from(since))
        }
        Equipments::Dealt(_) => {
            let key = Some((*of_run, *counter));
            if before.is_some() && before != key {
                rank += 1;
            }
            before = key;
            Some(rank)
        }
    };
    all.iter().map(number).collect()
}

/// Returns the equipment of one FLP.
fn mine(all: &[Found], equipments: Equipments) -> BTreeSet<Equipment> {
    let blocks = all.iter().flat_map(|(_, _, _, tf)| &tf.blocks);
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

/// Returns the format of STFs of `equipment`: opaque if it is not all the same.
fn format_of(equipment: &BTreeSet<Equipment>) -> PayloadFormat {
    let mut formats = equipment.iter().map(Equipment::format);
    let first = formats.next().unwrap_or_default();
    if formats.all(|format| format == first) {
        first
    } else {
        PayloadFormat::Opaque
    }
}

fn bytes_of(pieces: &[(usize, Vec<Range<usize>>)]) -> usize {
    let of_file = |(_, pieces): &(usize, Vec<Range<usize>>)| sheaf_formats::bytes_of(pieces);
    pieces.iter().map(of_file).sum()
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
        let Some(pieces) = self.stfs.get(&tf.0) else {
            return Made::Payload(Bytes::new());
        };
        if let [(file, of_file)] = pieces.as_slice()
            && let [whole] = of_file.as_slice()
        {
            return Made::Payload(self.inputs[*file].slice(whole.clone()));
        }
        Made::from_slot(slots.fill(bytes_of(pieces), &mut |payload| {
            let mut at = 0;
            for (file, ranges) in pieces {
                for range in ranges {
                    let bytes = &self.inputs[*file][range.clone()];
                    payload[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests;
