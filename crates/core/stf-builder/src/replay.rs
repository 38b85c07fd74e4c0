//! Recorded data as an endless stream: real pages, re-stamped with consecutive orbits, counters and TF bits.
//!
//! The HBFs of each link of a [`Template`] are repeated, from the start with every TF, so all TFs have one shape and
//! the one image of it that [`Replay`] holds. Making an STF is one copy of that image and the writing of two fields per
//! page. Payloads are real, so an EPN can check page by page what it receives.
//!
//! | field | in the stream |
//! | --- | --- |
//! | orbit | `first_orbit + tf * orbits_per_tf + n`, wraps after 4.5 days |
//! | packet counter | goes on from TF to TF, for each link by itself, modulo 256 |
//! | trigger word | [`RUN_START`] in the first orbit of TF 0, [`TF_START`] in that of later TFs, [`HBF`] else |
//! | CRU id | as recorded; raised where links are repeated because there are more FLPs than links |
//! | all else | as recorded |
//!
//! [`RUN_START`]: trigger::RUN_START
//! [`TF_START`]: trigger::TF_START
//! [`HBF`]: trigger::HBF

use crate::cut::{ORBITS_PER_TF, Share};
use crate::source::{Made, Slots, StfSource};
use serde::{Deserialize, Serialize};
use sheaf_formats::{Findings, Link, Pages, Rdh, Stamp, hbfs, trigger};
use sheaf_protocol::{DIGEST_PIECE_BYTES, Digest, PayloadFormat, TfId};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use thiserror::Error;

/// Configuration of the stamps. All FLPs of a run have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayConfig {
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with.
    pub first_orbit: u32,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            orbits_per_tf: ORBITS_PER_TF,
            first_orbit: 0,
        }
    }
}

/// Reason why recorded data cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// No link of the input has a whole HBF.
    #[error("no whole HBF in the recorded data, expected at least one")]
    NoHbf,
    /// Repeated links need CRU ids of their own, and there are only 4096.
    #[error("{flps} FLPs repeat the recorded links {copies} times, but CRU ids end at 4095")]
    CruIds {
        /// FLPs asked for.
        flps: usize,
        /// How often the links would be repeated.
        copies: usize,
    },
    /// One STF would be too large for any node.
    #[error(
        "an STF of {orbits} orbits has {bytes} bytes, at most {} are supported",
        Replay::BYTES_MAX
    )]
    TooLarge {
        /// Orbits of one TF.
        orbits: u32,
        /// Bytes of one STF.
        bytes: u64,
    },
}

/// Recorded HBFs to be repeated, for each link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    links: BTreeMap<Link, Vec<Vec<u8>>>,
}

impl Template {
    /// Takes all whole HBFs of the raw files in `inputs`. Returns the findings of each as well.
    ///
    /// # Errors
    ///
    /// [`NoHbf`](ReplayError::NoHbf) if there are none.
    pub fn from_pages(inputs: &[&[u8]]) -> Result<(Self, Vec<Findings>), ReplayError> {
        let mut template = Self::default();
        let mut findings = Vec::with_capacity(inputs.len());
        for input in inputs {
            let (hbfs, found) = hbfs(input);
            findings.push(found);
            for hbf in hbfs {
                let pages = hbf
                    .pieces
                    .iter()
                    .map(|piece| &input[piece.clone()])
                    .collect::<Vec<_>>();
                template
                    .links
                    .entry(hbf.link)
                    .or_default()
                    .push(pages.concat());
            }
        }
        if template.links.is_empty() {
            Err(ReplayError::NoHbf)
        } else {
            Ok((template, findings))
        }
    }

    /// Returns the recorded links.
    pub fn links(&self) -> impl ExactSizeIterator<Item = Link> + '_ {
        self.links.keys().copied()
    }

    /// Returns the links that `share` replays, each with the CRU id that it gets, and its recorded HBFs.
    ///
    /// With more FLPs than links, the links are dealt out once more, and again, as those of further CRUs.
    fn dealt(&self, share: Share) -> Result<Vec<Dealt<'_>>, ReplayError> {
        let recorded = self.links.len();
        let crus = || self.links.keys().map(|link| usize::from(link.cru));
        let (lowest, highest) = (crus().min().unwrap_or(0), crus().max().unwrap_or(0));
        let copies = share.of().div_ceil(recorded);
        if highest + (copies - 1) * (highest - lowest + 1) > 0xfff {
            return Err(ReplayError::CruIds {
                flps: share.of(),
                copies,
            });
        }
        let copy = share.index() / recorded;
        let mine = |at: usize| {
            if copies == 1 {
                share.has(at)
            } else {
                at == share.index() % recorded
            }
        };
        let raised = |link: &Link| {
            let cru = usize::from(link.cru) + copy * (highest - lowest + 1);
            Link {
                cru: u16::try_from(cru).expect("checked to be at most 12 bits"),
                ..*link
            }
        };
        let dealt = self.links.iter().enumerate().filter(|(at, _)| mine(*at));
        Ok(dealt
            .map(|(_, (link, hbfs))| Dealt {
                link: raised(link),
                hbfs,
            })
            .collect())
    }
}

/// One link as an FLP replays it.
struct Dealt<'a> {
    /// Name of the link in the stream.
    link: Link,
    /// Recorded data, HBF by HBF.
    hbfs: &'a [Vec<u8>],
}

/// Endless stream of one FLP.
#[derive(Clone, Debug)]
pub struct Replay {
    config: ReplayConfig,
    /// An STF with all that does not change from TF to TF.
    image: Vec<u8>,
    links: Vec<LinkPages>,
}

/// Stamps of one link's pages.
#[derive(Clone, Debug)]
struct LinkPages {
    /// Pages of one TF, modulo 256: the packet counter starts higher by this number in the next TF.
    packets_per_tf: u8,
    pages: Vec<PageStamp>,
}

#[derive(Clone, Copy, Debug)]
struct PageStamp {
    /// Byte of the image where the header begins.
    at: u32,
    /// Orbits since the TF began.
    orbit: u32,
    /// Pages of the link since the TF began, modulo 256.
    packet: u8,
}

impl Replay {
    /// Upper bound of an STF in bytes: 1 GiB, a hundred times what an FLP makes of 128 orbits.
    pub const BYTES_MAX: u64 = 1 << 30;

    /// Returns the stream that the FLP of `share` makes of `template`.
    ///
    /// # Errors
    ///
    /// [`CruIds`](ReplayError::CruIds) if there are more FLPs than links can be repeated for,
    /// [`TooLarge`](ReplayError::TooLarge) if one STF is larger than [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn new(
        template: &Template,
        config: ReplayConfig,
        share: Share,
    ) -> Result<Self, ReplayError> {
        let dealt = template.dealt(share)?;
        let orbits = config.orbits_per_tf.get();
        let bytes = dealt
            .iter()
            .map(|dealt| bytes_of_orbits(dealt.hbfs, orbits))
            .sum();
        if bytes > Self::BYTES_MAX {
            return Err(ReplayError::TooLarge { orbits, bytes });
        }
        let mut replay = Self {
            config,
            image: Vec::with_capacity(usize::try_from(bytes).expect("at most 1 GiB")),
            links: Vec::with_capacity(dealt.len()),
        };
        for Dealt { link, hbfs } in dealt {
            let mut pages = Vec::new();
            for (orbit, hbf) in (0..orbits).zip(hbfs.iter().cycle()) {
                replay.append(link, orbit, hbf, &mut pages);
            }
            replay.links.push(LinkPages {
                packets_per_tf: low_byte(pages.len() as u64),
                pages,
            });
        }
        Ok(replay)
    }

    /// Appends an HBF to the image and its pages to the list of stamps.
    fn append(&mut self, link: Link, orbit: u32, hbf: &[u8], pages: &mut Vec<PageStamp>) {
        let start = self.image.len();
        self.image.extend_from_slice(hbf);
        let word = if orbit == 0 {
            trigger::TF_START
        } else {
            trigger::HBF
        };
        let mut walk = Pages::new(hbf);
        let mut findings = Findings::default();
        while let Some(page) = walk.next_good(&mut findings) {
            let at = start + page.offset;
            let mut stamp = Stamp::at(&mut self.image, at).expect("a header was read there");
            stamp.trigger(word);
            stamp.cru_and_dw(link.cru, link.dw);
            pages.push(PageStamp {
                at: u32::try_from(at).expect("at most 1 GiB"),
                orbit,
                packet: low_byte(pages.len() as u64),
            });
        }
    }

    /// Returns the orbit that `tf` begins with.
    #[must_use]
    pub fn orbit(&self, tf: TfId) -> u32 {
        let orbits =
            tf.0.wrapping_mul(u64::from(self.config.orbits_per_tf.get()));
        self.config.first_orbit.wrapping_add(orbits as u32) // orbits wrap at 2^32 on purpose
    }

    /// Writes the STF of `tf` to `payload`, which is as long as the image, and returns its CRC-32C, which is taken
    /// while the pages are in the cache.
    fn write(&self, tf: TfId, payload: &mut [u8]) -> u32 {
        let first_orbit = self.orbit(tf);
        let mut digest = Digest::default();
        let (mut copied, mut digested) = (0, 0);
        for link in &self.links {
            let first_packet = link.packets_per_tf.wrapping_mul(low_byte(tf.0));
            // Pages lie in the image as they stand here: all that is in front of one is stamped.
            for page in &link.pages {
                let at = page.at as usize;
                if at + Rdh::SIZE > copied {
                    let end = self.image.len().min(at + DIGEST_PIECE_BYTES);
                    payload[copied..end].copy_from_slice(&self.image[copied..end]);
                    copied = end;
                    digest.update(&payload[digested..at]);
                    digested = at;
                }
                let mut stamp = Stamp::at(payload, at).expect("as in the image");
                stamp.orbit(first_orbit.wrapping_add(page.orbit));
                stamp.packet_counter(first_packet.wrapping_add(page.packet));
                if page.orbit == 0 && tf.0 == 0 {
                    stamp.trigger(trigger::RUN_START);
                }
            }
        }
        payload[copied..].copy_from_slice(&self.image[copied..]);
        digest.update(&payload[digested..]);
        digest.value()
    }
}

impl StfSource for Replay {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::RdhPages
    }

    fn bytes_max(&self) -> u64 {
        self.image.len() as u64
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        let image_bytes = self.image.len();
        Made::in_slot(slots, image_bytes, |payload| self.write(tf, payload))
    }
}

/// Returns the bytes of `orbits` HBFs, taken from `hbfs` in turn.
fn bytes_of_orbits(hbfs: &[Vec<u8>], orbits: u32) -> u64 {
    let recorded = hbfs.len() as u64;
    let (rounds, rest) = (u64::from(orbits) / recorded, u64::from(orbits) % recorded);
    (0..)
        .zip(hbfs)
        .map(|(i, hbf)| hbf.len() as u64 * (rounds + u64::from(i < rest)))
        .sum()
}

/// Returns `value` modulo 256.
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{HeapSlots, contract};
    use bytes::Bytes;
    use proptest::prelude::*;
    use sheaf_formats::Walker;
    use sheaf_formats::sample::page;

    fn make(replay: &mut Replay, tf: u64) -> Bytes {
        match replay.make(TfId(tf), &mut HeapSlots) {
            Made::Payload(payload) => payload.bytes,
            other => panic!("a replay is endless, got {other:?}"),
        }
    }

    /// Returns HBFs of one link with the given numbers of pages.
    fn recorded(pages: &[u16]) -> Template {
        let hbf = |(orbit, pages): (u32, &u16)| {
            (0..*pages)
                .flat_map(|n| page(orbit, n, n + 1 == *pages, 0))
                .collect::<Vec<u8>>()
        };
        let input: Vec<u8> = (0..).zip(pages).flat_map(hbf).collect();
        Template::from_pages(&[&input]).unwrap().0
    }

    fn config(orbits_per_tf: u32, first_orbit: u32) -> ReplayConfig {
        ReplayConfig {
            orbits_per_tf: orbits_per_tf.try_into().unwrap(),
            first_orbit,
        }
    }

    #[test]
    fn the_first_orbit_of_a_tf_has_the_tf_bit_and_the_run_starts_once() {
        let mut replay = Replay::new(&recorded(&[1, 2]), config(2, 100), Share::ALL).unwrap();
        let words = |stf: Bytes| {
            Walker::new(&stf)
                .map(|page| (page.rdh.orbit, page.rdh.trigger))
                .collect::<Vec<_>>()
        };
        let (run, tf, hbf) = (0x6a03, 0x6803, 0x6003);
        assert_eq!(
            words(make(&mut replay, 0)),
            [(100, run), (101, hbf), (101, hbf)]
        );
        assert_eq!(
            words(make(&mut replay, 1)),
            [(102, tf), (103, hbf), (103, hbf)]
        );
    }

    #[test]
    fn the_digest_of_a_large_stf_is_that_of_its_stamped_pages() {
        // Pages of 80 bytes: pieces of 256 KiB end in headers and between them.
        let mut replay = Replay::new(&recorded(&[1, 2]), config(8000, 7), Share::ALL).unwrap();
        assert!(replay.bytes_max() > 3 * DIGEST_PIECE_BYTES as u64);
        contract::check(&mut replay, 3);
    }

    #[test]
    fn more_flps_than_links_repeat_them_as_further_crus() {
        let template = recorded(&[1]);
        let links = |index| {
            let share = Share::new(index, 3).unwrap();
            let mut replay = Replay::new(&template, config(1, 0), share).unwrap();
            Walker::new(&make(&mut replay, 0))
                .map(|p| p.rdh.link.cru)
                .collect::<Vec<_>>()
        };
        assert_eq!([links(0), links(1), links(2)], [[1], [2], [3]]);
        let share = Share::new(0, 5000).unwrap();
        assert_eq!(
            Replay::new(&template, config(1, 0), share)
                .unwrap_err()
                .to_string(),
            "5000 FLPs repeat the recorded links 5000 times, but CRU ids end at 4095"
        );
    }

    #[test]
    fn nothing_to_replay_and_too_much_of_it_are_refused() {
        assert_eq!(
            Template::from_pages(&[b"no pages"]).unwrap_err(),
            ReplayError::NoHbf
        );
        let huge = Replay::new(&recorded(&[1]), config(u32::MAX, 0), Share::ALL).unwrap_err();
        assert_eq!(
            huge,
            ReplayError::TooLarge {
                orbits: u32::MAX,
                bytes: 80 * u64::from(u32::MAX)
            }
        );
    }

    proptest! {
        #[test]
        fn consecutive_tfs_are_one_faultless_stream(
            pages in prop::collection::vec(1_u16..5, 1..6),
            orbits in 1_u32..40, first_orbit in any::<u32>(), tf in any::<u32>(),
        ) {
            let mut replay = Replay::new(&recorded(&pages), config(orbits, first_orbit), Share::ALL).unwrap();
            let tfs = u64::from(tf)..u64::from(tf) + 5;
            let stream: Vec<u8> = tfs.flat_map(|tf| make(&mut replay, tf)).collect();
            let findings = Walker::new(&stream).finish();
            prop_assert_eq!(&findings.faults, &[]);
            // With one orbit a TF, every HBF begins one.
            prop_assert!(orbits == 1 || findings.notes.is_empty(), "{:?}", findings.notes);
            prop_assert_eq!(make(&mut replay, u64::from(tf)), &stream[..stream.len() / 5]);
        }
    }
}
