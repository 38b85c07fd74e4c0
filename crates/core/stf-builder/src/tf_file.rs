//! TF files of Sheaf as the source of one FLP: the parts of the FLPs that wrote them, dealt out over those that are
//! there.

use crate::cut::Share;
use crate::source::{Made, Slots, StfSource};
use bytes::Bytes;
use sheaf_protocol::{FlpId, PayloadFormat, RunId, Tf, TfId, copy_digested};
use std::collections::BTreeMap;
use thiserror::Error;

/// Parts with different formats would be one STF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("TF {} has a part of {flp} in the format {found:?}, others of this FLP are in {expected:?}", tf.0)]
pub struct MixedFormats {
    /// The TF.
    pub tf: TfId,
    /// FLP that the part is of.
    pub flp: FlpId,
    /// Format of the part.
    pub found: PayloadFormat,
    /// Format of the parts before.
    pub expected: PayloadFormat,
}

/// Parts of one TF, by the FLP that they are of.
type Parts = BTreeMap<FlpId, Bytes>;

/// STFs of TF files.
///
/// The parts of FLP *n* of the files go to FLP *n* modulo the number of FLPs: of as many FLPs as before each has its
/// own, of fewer ones several, one behind the other. TF *n* is the *n*-th of all files, by run and id: TFs that the
/// files lack leave no gap. A part that is there twice, as after a redelivery, counts once.
#[derive(Clone, Debug)]
pub struct TfFile {
    share: Share,
    found: BTreeMap<(RunId, TfId), Parts>,
    tfs: Vec<Parts>,
    format: Option<PayloadFormat>,
}

impl TfFile {
    /// Creates a source without TFs.
    #[must_use]
    pub fn new(share: Share) -> Self {
        Self {
            share,
            found: BTreeMap::new(),
            tfs: Vec::new(),
            format: None,
        }
    }

    /// Takes the parts of this FLP of a TF, in any order of the TFs.
    ///
    /// # Errors
    ///
    /// [`MixedFormats`]: an STF has one format.
    pub fn add(&mut self, tf: &Tf<Bytes>) -> Result<(), MixedFormats> {
        let parts = self.found.entry((tf.run, tf.tf)).or_default();
        for part in &tf.parts {
            let flp = part.source.flp;
            if !self.share.has(flp.0.into()) {
                continue;
            }
            let expected = *self.format.get_or_insert(part.format);
            if part.format != expected {
                return Err(MixedFormats {
                    tf: tf.tf,
                    flp,
                    found: part.format,
                    expected,
                });
            }
            parts.entry(flp).or_insert_with(|| part.payload.clone());
        }
        Ok(())
    }

    /// Numbers the TFs: all were taken.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.tfs
            .extend(std::mem::take(&mut self.found).into_values());
        self
    }

    /// Returns the number of TFs that have data of this FLP.
    #[must_use]
    pub fn tfs_with_data(&self) -> usize {
        self.tfs.iter().filter(|parts| !parts.is_empty()).count()
    }
}

fn bytes_of(parts: &Parts) -> usize {
    parts.values().map(Bytes::len).sum()
}

impl StfSource for TfFile {
    fn format(&self) -> PayloadFormat {
        self.format.unwrap_or(PayloadFormat::Opaque)
    }

    fn bytes_max(&self) -> u64 {
        self.tfs.iter().map(bytes_of).max().unwrap_or(0) as u64
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        let at = usize::try_from(tf.0).unwrap_or(usize::MAX);
        let Some(parts) = self.tfs.get(at) else {
            return Made::End;
        };
        let bytes = bytes_of(parts);
        if bytes == 0 {
            return Made::empty();
        }
        Made::in_slot(slots, bytes, |place| {
            copy_digested(place, parts.values().map(Bytes::as_ref))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::contract;
    use sheaf_protocol::{Attempt, Incarnation, Part, Source, crc32c};

    fn tf(run: u64, id: u64, parts: &[(u16, &[u8])]) -> Tf<Bytes> {
        let part = |(flp, payload): &(u16, &[u8])| Part {
            source: Source {
                flp: FlpId(*flp),
                incarnation: Incarnation(1),
            },
            format: PayloadFormat::RdhPages,
            digest: crc32c(payload),
            bytes: payload.len() as u64,
            payload: Bytes::copy_from_slice(payload),
        };
        Tf {
            run: RunId(run),
            tf: TfId(id),
            attempt: Attempt(1),
            is_redelivered: false,
            parts: parts.iter().map(part).collect(),
            missing: Vec::new(),
        }
    }

    fn source(index: u16, of: u16, tfs: &[Tf<Bytes>]) -> TfFile {
        let mut source = TfFile::new(Share::new(index, of).expect("below the number"));
        for tf in tfs {
            source.add(tf).expect("one format");
        }
        source.finish()
    }

    fn payloads(source: &mut TfFile) -> Vec<Vec<u8>> {
        let mut payloads = Vec::new();
        while let Made::Payload(payload) =
            source.make(TfId(payloads.len() as u64), &mut crate::HeapSlots)
        {
            payloads.push(payload.to_vec());
        }
        payloads
    }

    #[test]
    fn parts_go_to_the_flp_of_their_number_and_tfs_follow_each_other() {
        let tfs = [
            tf(2, 7, &[(0, b"late")]),
            tf(1, 9, &[(0, b"a"), (1, b"b"), (2, b"c")]),
            tf(1, 3, &[(0, b"d"), (2, b"e")]),
            // The other half of one that was split into streams, and one of its parts again.
            tf(1, 3, &[(0, b"X"), (1, b"f")]),
        ];
        let mut whole = source(0, 3, &tfs);
        contract::check(&mut whole, 5);
        assert_eq!(payloads(&mut whole), [&b"d"[..], b"a", b"late"]);
        assert_eq!((whole.tfs_with_data(), whole.bytes_max()), (3, 4));
        assert_eq!(whole.format(), PayloadFormat::RdhPages);
        assert_eq!(payloads(&mut source(1, 3, &tfs)), [&b"f"[..], b"b", b""]);
        // Two FLPs take the parts of three.
        assert_eq!(
            payloads(&mut source(0, 2, &tfs)),
            [&b"de"[..], b"ac", b"late"]
        );
        assert_eq!(source(3, 4, &tfs).tfs_with_data(), 0);
    }

    #[test]
    fn an_stf_has_one_format() {
        let mut mixed = tf(1, 1, &[(0, b"a"), (2, b"b")]);
        mixed.parts[1].format = PayloadFormat::Opaque;
        let mut source = TfFile::new(Share::new(0, 2).expect("it is there"));
        let refused = source.add(&mixed).expect_err("two formats");
        assert_eq!(
            (refused.flp, refused.found),
            (FlpId(2), PayloadFormat::Opaque)
        );
        let mut other = TfFile::new(Share::new(0, 3).expect("it is there"));
        assert_eq!(other.add(&mixed), Ok(()));
    }
}
