//! Walk through raw data page by page, without copying: header, payload, faults.
//!
//! [`Pages`] follows the offsets and looks at one page at a time; [`Walker`] also holds each link to its
//! order: pages numbered from 0, a stop bit at the end of every HBF, orbits and packet counters in sequence.
//! Why an own walker: `docs/adr/2026-11-21-own-rdh-walker.md`.

use crate::fault::{FaultKind, Findings};
use crate::fields::array;
use crate::order::Order;
use crate::rdh::{Rdh, RdhError};
use crate::view::View;

/// One page of raw data, borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Byte of the input where the page begins.
    pub offset: usize,
    /// Header of the page.
    pub rdh: Rdh,
    /// Header, payload and padding: all up to the next page.
    pub bytes: &'a [u8],
    /// Data of the detector, without padding.
    pub payload: &'a [u8],
}

/// Reason why a page could not be read, and whether the walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Header(RdhError),
    /// `memory` below the header size or above the offset to the next page.
    Offset {
        memory: u16,
        next: u16,
    },
    Cut {
        left: usize,
        next: u16,
    },
}

impl Refusal {
    fn kind(self) -> FaultKind {
        match self {
            Self::Header(RdhError::Version { .. }) => FaultKind::BadVersion,
            Self::Header(RdhError::HeaderSize { .. }) => FaultKind::BadHeaderSize,
            Self::Header(RdhError::Truncated { .. }) | Self::Cut { .. } => FaultKind::Truncated,
            Self::Offset { .. } => FaultKind::BadOffset,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::Offset { memory, next } => write!(
                f,
                "RDH states {memory} bytes of memory and {next} to the next page, expected \
                 {} <= memory <= next",
                Rdh::SIZE
            ),
            Self::Cut { left, next } => {
                write!(f, "page is cut: {left} of {next} bytes")
            }
        }
    }
}

/// Pages of an input in their order, each looked at by itself.
#[derive(Clone, Debug)]
pub struct Pages<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Pages<'a> {
    /// Returns the pages in `bytes`, which begins with a page.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next page that can be read. Other bytes are reported to `findings` and passed over by their own
    /// offset if a page begins there; if not, the walk ends.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<Page<'a>> {
        let mut view = self.bytes;
        let page = next_page(&mut view, &mut self.at, findings)?;
        let bytes = self.bytes.get(page.offset..page.offset + page.bytes)?;
        Some(Page {
            offset: page.offset,
            rdh: page.rdh,
            bytes,
            payload: bytes.get(Rdh::SIZE..Rdh::SIZE + page.payload_bytes)?,
        })
    }
}

/// Header and sizes of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageHead {
    pub(crate) offset: usize,
    pub(crate) rdh: Rdh,
    /// Bytes up to the next page.
    pub(crate) bytes: usize,
    /// Bytes of the payload, without padding.
    pub(crate) payload_bytes: usize,
}

/// Returns the next page of `view` from byte `at` on that can be read, and moves `at` behind it.
pub(crate) fn next_page(
    view: &mut impl View,
    at: &mut usize,
    findings: &mut Findings,
) -> Option<PageHead> {
    while *at < view.end() {
        let offset = *at;
        match page_at(view, offset) {
            Ok(page) => {
                *at += page.bytes;
                return Some(page);
            }
            Err(refusal) => {
                let resumed = resume_after(view, offset);
                *at = resumed.unwrap_or(view.end());
                findings.fault(offset, refusal.kind(), || match resumed {
                    Some(at) => format!("{refusal}; the walk goes on at byte {at}"),
                    None => format!("{refusal}; the walk stops here"),
                });
            }
        }
    }
    None
}

fn page_at(view: &mut impl View, offset: usize) -> Result<PageHead, Refusal> {
    let rdh = Rdh::decode(view.at(offset, Rdh::SIZE)).map_err(Refusal::Header)?;
    let (memory, next) = (
        usize::from(rdh.memory_bytes),
        usize::from(rdh.offset_to_next),
    );
    if memory < Rdh::SIZE || next < memory {
        return Err(Refusal::Offset {
            memory: rdh.memory_bytes,
            next: rdh.offset_to_next,
        });
    }
    let left = view.end() - offset;
    if next > left {
        return Err(Refusal::Cut {
            left,
            next: rdh.offset_to_next,
        });
    }
    Ok(PageHead {
        offset,
        rdh,
        bytes: next,
        payload_bytes: memory - Rdh::SIZE,
    })
}

/// Returns where the page behind the unreadable one at `offset` begins, if its offset field can be trusted: it must
/// lead to the end of the input or to bytes that look like a header.
fn resume_after(view: &mut impl View, offset: usize) -> Option<usize> {
    let step = usize::from(u16::from_le_bytes(array(view.at(offset, 10), 8)?));
    let next = offset + step;
    let usable =
        step >= Rdh::SIZE && (next == view.end() || Rdh::is_at_start_of(view.at(next, Rdh::SIZE)));
    usable.then_some(next)
}

/// Pages of an input, with the order of every link checked on the way.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    pages: Pages<'a>,
    order: Order,
    findings: Findings,
}

impl<'a> Walker<'a> {
    /// Walks `bytes`, which begins with a page.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            pages: Pages::new(bytes),
            order: Order::default(),
            findings: Findings::default(),
        }
    }

    /// Walks to the end if need be and returns the findings, by offset.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        self.by_ref().for_each(drop);
        self.order.finish(&mut self.findings);
        self.findings.sort();
        self.findings
    }
}

impl<'a> Iterator for Walker<'a> {
    type Item = Page<'a>;

    fn next(&mut self) -> Option<Page<'a>> {
        let page = self.pages.next_good(&mut self.findings)?;
        self.order.take(page.offset, &page.rdh, &mut self.findings);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::page;

    fn check(input: &[u8], pages: usize, faults: &[&str]) {
        let mut walker = Walker::new(input);
        assert_eq!(walker.by_ref().count(), pages);
        let found: Vec<String> = walker
            .finish()
            .faults
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, faults);
    }

    /// Returns HBFs of two pages, from orbit 5.
    fn good(hbfs: u32) -> Vec<u8> {
        (0..hbfs)
            .flat_map(|i| {
                let packet = u8::try_from(i * 2 % 256).expect("below 256");
                [
                    page(5 + i, 0, false, packet),
                    page(5 + i, 1, true, packet.wrapping_add(1)),
                ]
                .concat()
            })
            .collect()
    }

    #[test]
    fn a_good_input_has_no_faults() {
        check(&[], 0, &[]);
        check(&good(300), 600, &[]);
    }

    #[test]
    fn a_fault_is_named_and_the_good_part_kept() {
        let mut version = good(2);
        version[80] = 4;
        check(
            &version,
            3,
            &[
                "byte 80: bad-version: RDH has version 4, expected 6 or 7; the walk goes on at byte 160",
                "byte 160: reopened-hbf: HBF of orbit 6 on link 1.0.2 opens while that of orbit 5, from \
                 byte 0, is open",
            ],
        );
        let mut size = good(1);
        size[81] = 128;
        check(
            &size,
            1,
            &[
                "byte 0: unclosed-hbf: HBF of orbit 5 on link 1.0.2 is not closed: the input ends after \
                 its page 0",
                "byte 80: bad-header-size: RDH states a header size of 128, expected 64; the walk goes on \
                 at byte 160",
            ],
        );
        let mut offset = good(1);
        offset[88] = 7;
        check(
            &offset,
            1,
            &[
                "byte 0: unclosed-hbf: HBF of orbit 5 on link 1.0.2 is not closed: the input ends after \
                 its page 0",
                "byte 80: bad-offset: RDH states 80 bytes of memory and 7 to the next page, expected 64 \
                 <= memory <= next; the walk stops here",
            ],
        );
        check(
            &good(2)[..319],
            3,
            &[
                "byte 160: unclosed-hbf: HBF of orbit 6 on link 1.0.2 is not closed: the input ends \
                 after its page 0",
                "byte 240: truncated: page is cut: 79 of 80 bytes; the walk stops here",
            ],
        );
        check(
            &good(2)[..170],
            2,
            &["byte 160: truncated: RDH is cut: 10 of 64 bytes; the walk stops here"],
        );
    }

    #[test]
    fn a_clean_end_of_the_unreadable_page_is_believed() {
        let mut size = good(2);
        size[321 - 80] = 9;
        assert_eq!(resume_after(&mut size.as_slice(), 240), Some(320));
        assert_eq!(resume_after(&mut size.as_slice(), 300), None);
    }
}
