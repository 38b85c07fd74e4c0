//! Heartbeat frames (HBFs) of raw data: which pages make a whole one.
//!
//! Only whole HBFs are found: pages 0, 1, 2, … of one orbit, the last with its stop bit. Other pages are left out and
//! listed in the [`Findings`].

use crate::fault::Findings;
use crate::pieces::{bytes_of, join};
use crate::rdh::{Link, Rdh};
use crate::walk::{Page, Walker};
use std::collections::BTreeMap;
use std::ops::Range;

/// One heartbeat frame: the data of one link in one orbit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hbf {
    /// The link.
    pub link: Link,
    /// The orbit.
    pub orbit: u32,
    /// Place of its pages in the input, in order; neighbours are joined.
    pub pieces: Vec<Range<usize>>,
}

impl Hbf {
    /// Returns the bytes of its pages, with headers and padding.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes_of(&self.pieces)
    }
}

/// Finds all whole HBFs of `input`, in the order in which they close, and the faults of the rest.
#[must_use]
pub fn hbfs(input: &[u8]) -> (Vec<Hbf>, Findings) {
    let mut whole = Vec::new();
    let mut open: BTreeMap<Link, (Hbf, u16)> = BTreeMap::new();
    let mut walker = Walker::new(input);
    for page in walker.by_ref() {
        let link = page.rdh.link;
        let Some((hbf, pages)) = grown(open.remove(&link), &page) else {
            continue;
        };
        if page.rdh.closes_hbf() {
            whole.push(hbf);
        } else {
            open.insert(link, (hbf, pages));
        }
    }
    (whole, walker.finish())
}

/// Returns the HBF that `page` begins or continues, and its number of pages modulo 2^16; `None` if it does neither.
fn grown(open: Option<(Hbf, u16)>, page: &Page<'_>) -> Option<(Hbf, u16)> {
    let Rdh {
        link,
        orbit,
        pages_counter,
        ..
    } = page.rdh;
    let end = page.offset + page.bytes.len();
    let (mut hbf, pages) = if page.rdh.opens_hbf() {
        (
            Hbf {
                link,
                orbit,
                pieces: Vec::new(),
            },
            0,
        )
    } else {
        open.filter(|(hbf, pages)| hbf.orbit == orbit && *pages == pages_counter)?
    };
    join(&mut hbf.pieces, page.offset..end);
    Some((hbf, pages.wrapping_add(1)))
}

/// Returns the earliest orbit as a serial number, counted from the first one.
pub fn earliest(mut orbits: impl Iterator<Item = u32>) -> Option<u32> {
    let reference = orbits.next()?;
    let since = |orbit: &u32| orbit.wrapping_sub(reference).cast_signed();
    std::iter::once(reference).chain(orbits).min_by_key(since)
}
