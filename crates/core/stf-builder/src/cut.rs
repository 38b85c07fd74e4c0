//! Raw data of ALICE as a source: whole heartbeat frames (HBFs), cut by orbit into STFs.

use crate::sliced::Sliced;
use crate::source::{Made, Slots, StfSource};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::{Findings, Hbf, Link, earliest, hbfs};
use sheaf_protocol::{PayloadFormat, TfId};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use thiserror::Error;

/// Share of one FLP in all links: they are dealt out in turn, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: u16,
    of: u16,
}

/// Error for an FLP that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("FLP {index} of {of} does not exist, expected an index below the number of FLPs")]
pub struct ShareError {
    /// The index asked for.
    pub index: u16,
    /// Number of FLPs.
    pub of: u16,
}

impl Share {
    /// All links.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Returns the share of FLP `index` of `of` FLPs.
    ///
    /// # Errors
    ///
    /// [`ShareError`] unless `index` is below `of`.
    pub fn new(index: u16, of: u16) -> Result<Self, ShareError> {
        if index < of {
            Ok(Self { index, of })
        } else {
            Err(ShareError { index, of })
        }
    }

    /// Returns whether the link at `position` of all links is in the share.
    #[must_use]
    pub fn has(self, position: usize) -> bool {
        position % usize::from(self.of) == usize::from(self.index)
    }

    /// Returns the place among all FLPs, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }

    /// Returns the number of FLPs.
    #[must_use]
    pub fn of(self) -> usize {
        usize::from(self.of)
    }
}

/// Configuration of the cut of a recorded run into TFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CutConfig {
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with; by default the first one of the file. FLPs that read different files of a run
    /// need the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_orbit: Option<u32>,
}

impl Default for CutConfig {
    fn default() -> Self {
        Self {
            orbits_per_tf: ORBITS_PER_TF,
            first_orbit: None,
        }
    }
}

/// Orbits of a TF at the LHC since 2025 (2.85 ms); it was 128 before.
pub(crate) const ORBITS_PER_TF: NonZeroU32 = NonZeroU32::new(32).expect("not 0");

/// STFs of a raw file: its HBFs by orbit. An orbit range without data is an empty STF.
#[derive(Clone, Debug)]
pub struct RawFile {
    /// The pages of each TF, by link and then by orbit.
    sliced: Sliced,
    before_first: usize,
}

impl RawFile {
    /// Cuts `input`, the bytes of a raw file, and takes the links of `share`.
    ///
    /// The findings are those of the whole file, whatever the share.
    #[must_use]
    pub fn new(input: Bytes, config: &CutConfig, share: Share) -> (Self, Findings) {
        let (mut hbfs, findings) = hbfs(&input);
        let links: BTreeSet<Link> = hbfs.iter().map(|hbf| hbf.link).collect();
        let mine: BTreeSet<Link> = links
            .into_iter()
            .enumerate()
            .filter(|(at, _)| share.has(*at))
            .map(|(_, l)| l)
            .collect();
        let orbits = hbfs.iter().map(|hbf| hbf.orbit);
        let first = config.first_orbit.or_else(|| earliest(orbits)).unwrap_or(0);
        hbfs.retain(|hbf| mine.contains(&hbf.link));
        // Orbits are serial numbers: the half of the range behind `first` is the future.
        let since_first = |hbf: &Hbf| hbf.orbit.wrapping_sub(first);
        let all = hbfs.len();
        hbfs.retain(|hbf| since_first(hbf) < 1 << 31);
        let before_first = all - hbfs.len();
        hbfs.sort_by_key(|hbf| (hbf.link, since_first(hbf)));
        let pieces = hbfs.iter().flat_map(|hbf| {
            let tf = u64::from(since_first(hbf) / config.orbits_per_tf);
            hbf.pieces.iter().map(move |piece| (tf, piece.clone()))
        });
        let sliced = Sliced::new(input, pieces);
        (
            Self {
                sliced,
                before_first,
            },
            findings,
        )
    }

    /// Returns the number of TFs, empty ones included.
    #[must_use]
    pub fn tfs(&self) -> u64 {
        self.sliced.tfs()
    }

    /// Returns the number of HBFs that lie before the configured first orbit and are in no TF.
    #[must_use]
    pub fn hbfs_before_first(&self) -> usize {
        self.before_first
    }
}

impl StfSource for RawFile {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::RdhPages
    }

    fn bytes_max(&self) -> u64 {
        self.sliced.bytes_max()
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        self.sliced.make(tf, slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::HeapSlots;
    use sheaf_formats::Walker;
    use sheaf_formats::sample::page;

    /// Checks that `pages`, each (orbit, page, last), give STFs of these orbits.
    fn check(pages: &[(u32, u16, bool)], config: CutConfig, expected: &[&[u32]]) {
        let input: Vec<u8> = pages.iter().flat_map(|p| page(p.0, p.1, p.2, 0)).collect();
        let (mut source, _) = RawFile::new(input.into(), &config, Share::ALL);
        let mut stfs = Vec::new();
        while let Made::Payload(stf) = source.make(TfId(stfs.len() as u64), &mut HeapSlots) {
            assert!(stf.len() as u64 <= source.bytes_max());
            stfs.push(
                Walker::new(&stf)
                    .map(|page| page.rdh.orbit)
                    .collect::<Vec<_>>(),
            );
        }
        assert_eq!(stfs, expected);
    }

    fn config(orbits_per_tf: u32, first_orbit: Option<u32>) -> CutConfig {
        CutConfig {
            orbits_per_tf: orbits_per_tf.try_into().unwrap(),
            first_orbit,
        }
    }

    #[test]
    fn orbits_decide_the_tf_and_gaps_are_empty() {
        let hbfs = [(10, 0, true), (11, 0, true), (12, 0, true), (17, 0, true)];
        check(&hbfs, config(2, None), &[&[10, 11], &[12], &[], &[17]]);
        check(&hbfs, config(32, None), &[&[10, 11, 12, 17]]);
        check(&hbfs, config(4, Some(11)), &[&[11, 12], &[17]]);
        check(&[], config(4, None), &[]);
    }

    #[test]
    fn orbits_may_wrap_and_come_out_of_order() {
        let hbfs = [(1, 0, true), (u32::MAX, 0, true), (0, 0, true)];
        check(&hbfs, config(2, None), &[&[u32::MAX, 0], &[1]]);
    }

    #[test]
    fn what_is_not_a_whole_hbf_is_left_out() {
        check(
            &[(5, 0, false), (5, 2, true), (6, 0, true)],
            config(1, Some(5)),
            &[&[], &[6]],
        );
        check(
            &[(5, 1, true), (6, 0, true)],
            config(1, Some(5)),
            &[&[], &[6]],
        );
        check(
            &[(5, 0, false), (6, 1, true), (7, 0, true)],
            config(1, Some(5)),
            &[&[], &[], &[7]],
        );
        check(&[(5, 0, false), (5, 0, true)], config(1, Some(5)), &[&[5]]);
    }

    #[test]
    fn links_are_dealt_out_in_turn() {
        assert!(Share::new(2, 2).is_err());
        let dealt = |index| {
            (0..5)
                .filter(|at| Share::new(index, 2).unwrap().has(*at))
                .collect()
        };
        let dealt: [Vec<usize>; 2] = [dealt(0), dealt(1)];
        assert_eq!(dealt, [vec![0, 2, 4], vec![1, 3]]);
    }
}
