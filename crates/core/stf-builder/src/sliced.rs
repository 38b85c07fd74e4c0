//! Files whose bytes are cut into TFs: the common part of the file sources.

use crate::source::{Made, Payload, Slots};
use bytes::Bytes;
use sheaf_formats::{bytes_of, join};
use sheaf_protocol::{TfId, copy_digested};
use std::collections::BTreeMap;
use std::ops::Range;

/// The input, and the places of the pieces of each TF in it. A TF without pieces is an empty STF.
#[derive(Clone, Debug)]
pub(crate) struct Sliced {
    input: Bytes,
    stfs: BTreeMap<u64, Vec<Range<usize>>>,
    bytes_max: u64,
}

impl Sliced {
    /// Takes `pieces` of `input`, each with the number of its TF, in the order in which an STF has them.
    pub(crate) fn new(input: Bytes, pieces: impl IntoIterator<Item = (u64, Range<usize>)>) -> Self {
        let mut stfs: BTreeMap<u64, Vec<Range<usize>>> = BTreeMap::new();
        for (tf, piece) in pieces {
            join(stfs.entry(tf).or_default(), piece);
        }
        let sizes = stfs.values().map(|pieces| bytes_of(pieces));
        let bytes_max = sizes.max().unwrap_or(0) as u64;
        Self {
            input,
            stfs,
            bytes_max,
        }
    }

    /// Returns the number of TFs, empty ones included.
    pub(crate) fn tfs(&self) -> u64 {
        let last = self.stfs.last_key_value();
        last.map_or(0, |(last, _)| last.saturating_add(1))
    }

    /// Returns the number of TFs that have pieces.
    pub(crate) fn tfs_with_data(&self) -> usize {
        self.stfs.len()
    }

    /// Returns the bytes of the largest STF.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the pieces of `tf`, one behind the other. A single piece is shared, not copied.
    pub(crate) fn make(&self, tf: TfId, slots: &mut dyn Slots) -> Made {
        if tf.0 >= self.tfs() {
            return Made::End;
        }
        let pieces = self.stfs.get(&tf.0).map_or(&[][..], Vec::as_slice);
        match pieces {
            [] => Made::empty(),
            [whole] => Made::Payload(Payload::of(self.input.slice(whole.clone()))),
            _ => Made::in_slot(slots, bytes_of(pieces), |place| {
                copy_digested(place, pieces.iter().map(|piece| &self.input[piece.clone()]))
            }),
        }
    }
}
