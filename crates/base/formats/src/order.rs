//! Order of the pages of each link: HBFs that open, continue and close, counters, orbits.
//!
//! A link is named by (CRU, data path, link): that is the stream that the CRU cuts into pages. The FEE id is
//! not used, because what it means is each detector's choice, and several links may share one.
//!
//! # Packet counters
//!
//! Recorded data count in two ways. Test stands count the packets of each link: +1 from page to page. A CRU
//! at the experiment counts over *all links of a data path* and the file has them sorted by link, often not
//! all of them: link 0 of `12_links_2hbf.raw` has 2, 10, 16, 20, 28, 34. There a step other than +1 says nothing
//! about losses. So the steps between pages of the same or consecutive orbits are collected for each data path:
//! where at least two in three are +1, each link counts for itself and the other steps are faults. The first
//! [`SETTLED_AFTER`] steps decide. A lost page inside an HBF is seen by its page number either way.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::rdh::{Link, Rdh};
use std::collections::BTreeMap;

/// Steps of a data path after which its way of counting is settled.
const SETTLED_AFTER: u32 = 64;

/// State of all links of an input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    links: Vec<LinkOrder>,
    index: BTreeMap<Link, usize>,
    /// The link of the last page: most pages come in runs of the same link.
    last: usize,
    paths: BTreeMap<(u16, u8), Packets>,
}

/// State of one link.
#[derive(Clone, Debug)]
struct LinkOrder {
    link: Link,
    packet_counter: u8,
    orbit: u32,
    open: Option<Open>,
    /// Orbit and TF bit of the HBF that opened last.
    hbf: Option<(u32, bool)>,
}

/// An HBF whose stop bit has not come yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    offset: usize,
    orbit: u32,
    page_next: u16,
}

impl Order {
    /// Checks the header of the page at `offset`.
    pub(crate) fn take(&mut self, offset: usize, rdh: &Rdh, findings: &mut Findings) {
        let at = self.position(rdh);
        let link = &mut self.links[at];
        let step = PageStep {
            link: link.link,
            offset,
            before: link.packet_counter,
            found: rdh.packet_counter,
        };
        // Where orbits are left out, so are their packets: the gap of orbits is noted, that is enough.
        let follows = rdh.orbit == link.orbit || rdh.orbit == link.orbit.wrapping_add(1);
        let known = link.hbf.is_some();
        link.packet_counter = rdh.packet_counter;
        link.orbit = rdh.orbit;
        link.hbf_page(offset, rdh, findings);
        if known && follows {
            self.paths
                .entry((rdh.link.cru, rdh.link.dw))
                .or_default()
                .take(step, findings);
        }
    }

    /// Returns the place of the link of `rdh` in the list, to which a new one is added.
    fn position(&mut self, rdh: &Rdh) -> usize {
        if self
            .links
            .get(self.last)
            .is_none_or(|link| link.link != rdh.link)
        {
            let links = &mut self.links;
            self.last = *self.index.entry(rdh.link).or_insert_with(|| {
                links.push(LinkOrder {
                    link: rdh.link,
                    packet_counter: rdh.packet_counter,
                    orbit: rdh.orbit,
                    open: None,
                    hbf: None,
                });
                links.len() - 1
            });
        }
        self.last
    }

    /// Ends the input: open HBFs stay open, steps that were held back are decided.
    pub(crate) fn finish(&mut self, findings: &mut Findings) {
        for link in &self.links {
            if let Some(open) = link.open {
                findings.fault(open.offset, FaultKind::UnclosedHbf, || {
                    format!(
                        "HBF of orbit {} on {} is not closed: the input ends after its page {}",
                        open.orbit,
                        link.link,
                        open.page_next.wrapping_sub(1)
                    )
                });
            }
        }
        for packets in self.paths.values_mut() {
            packets.settle(findings);
        }
    }
}

impl LinkOrder {
    fn hbf_page(&mut self, offset: usize, rdh: &Rdh, findings: &mut Findings) {
        if rdh.opens_hbf() {
            self.opening_page(offset, rdh, findings);
        } else {
            self.following_page(offset, rdh, findings);
        }
        self.open = (!rdh.closes_hbf()).then(|| Open {
            offset: self.open.map_or(offset, |open| open.offset),
            orbit: rdh.orbit,
            page_next: rdh.pages_counter.wrapping_add(1),
        });
    }

    fn opening_page(&mut self, offset: usize, rdh: &Rdh, findings: &mut Findings) {
        if let Some(open) = self.open.take() {
            findings.fault(offset, FaultKind::ReopenedHbf, || {
                format!(
                    "HBF of orbit {} on {} opens while that of orbit {}, from byte {}, is open",
                    rdh.orbit, self.link, open.orbit, open.offset
                )
            });
        }
        if let Some((orbit, starts_tf)) = self.hbf {
            self.note_orbit(offset, orbit, rdh.orbit, findings);
            if starts_tf && rdh.starts_tf() {
                findings.note(offset, NoteKind::TfBitRepeated, || {
                    format!(
                        "orbits {orbit} and {} of {} both begin a TF",
                        rdh.orbit, self.link
                    )
                });
            }
        }
        self.hbf = Some((rdh.orbit, rdh.starts_tf()));
    }

    fn note_orbit(&self, offset: usize, before: u32, found: u32, findings: &mut Findings) {
        let link = self.link;
        match found.wrapping_sub(before) {
            1 => {}
            0 => findings.note(offset, NoteKind::Again, || {
                format!("orbit {found} of {link} comes once more")
            }),
            // Orbits are compared as serial numbers: half of the 32-bit range lies ahead.
            step if step < 1 << 31 => findings.note(offset, NoteKind::Gap, || {
                format!(
                    "orbit {found} of {link} follows orbit {before}: {} missing",
                    step - 1
                )
            }),
            _ => findings.note(offset, NoteKind::Backwards, || {
                format!("orbit {found} of {link} follows the later orbit {before}")
            }),
        }
    }

    fn following_page(&mut self, offset: usize, rdh: &Rdh, findings: &mut Findings) {
        let (link, found) = (self.link, rdh.pages_counter);
        match self.open {
            Some(open) if open.orbit == rdh.orbit => {
                let expected = open.page_next;
                if found != expected {
                    findings.fault(offset, FaultKind::PageGap, || {
                        format!(
                            "page {found} in the HBF of orbit {} on {link}, expected page {expected}",
                            open.orbit
                        )
                    });
                }
            }
            Some(open) => {
                findings.fault(open.offset, FaultKind::UnclosedHbf, || {
                    format!(
                        "HBF of orbit {} on {link} is not closed: a page of orbit {} follows its page {}",
                        open.orbit,
                        rdh.orbit,
                        open.page_next.wrapping_sub(1)
                    )
                });
                self.open = None;
                self.page_without_first(offset, rdh, findings);
            }
            None => self.page_without_first(offset, rdh, findings),
        }
    }

    fn page_without_first(&mut self, offset: usize, rdh: &Rdh, findings: &mut Findings) {
        self.hbf = Some((rdh.orbit, false));
        findings.fault(offset, FaultKind::PageGap, || {
            format!(
                "page {} of orbit {} on {} belongs to no open HBF, expected page 0",
                rdh.pages_counter, rdh.orbit, self.link
            )
        });
    }
}

/// Step from one page of a link to the next.
#[derive(Clone, Copy, Debug)]
struct PageStep {
    link: Link,
    offset: usize,
    before: u8,
    found: u8,
}

impl PageStep {
    fn report(self, findings: &mut Findings) {
        findings.fault(self.offset, FaultKind::PacketGap, || {
            format!(
                "packet counter {} on {}, expected {}",
                self.found,
                self.link,
                self.before.wrapping_add(1)
            )
        });
    }
}

/// Way of counting the packets of one data path.
#[derive(Clone, Debug)]
enum Packets {
    /// Not known yet: the number of steps that were +1, of others, and of those that are faults if each link counts for
    /// itself.
    Open {
        by_one: u32,
        other: u32,
        held: Vec<PageStep>,
    },
    /// Each link counts for itself.
    PerLink,
    /// One counter for all links of the path: steps say nothing.
    Shared,
}

impl Default for Packets {
    fn default() -> Self {
        Self::Open {
            by_one: 0,
            other: 0,
            held: Vec::new(),
        }
    }
}

impl Packets {
    fn take(&mut self, step: PageStep, findings: &mut Findings) {
        let size = step.found.wrapping_sub(step.before);
        match self {
            Self::PerLink if size != 1 => step.report(findings),
            Self::PerLink | Self::Shared => {}
            Self::Open {
                by_one,
                other,
                held,
            } => {
                match size {
                    1 => *by_one += 1,
                    // The same number again is a fault in one way of counting, a rare chance in the other: no evidence.
                    0 => held.push(step),
                    _ => {
                        *other += 1;
                        held.push(step);
                    }
                }
                if *by_one + *other >= SETTLED_AFTER || held.len() >= SETTLED_AFTER as usize {
                    self.settle(findings);
                }
            }
        }
    }

    fn settle(&mut self, findings: &mut Findings) {
        let Self::Open {
            by_one,
            other,
            held,
        } = self
        else {
            return;
        };
        if *by_one >= 2 * *other {
            held.iter().for_each(|step| step.report(findings));
            *self = Self::PerLink;
        } else {
            *self = Self::Shared;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::page;
    use crate::walk::Walker;

    fn check(pages: &[(u32, u16, bool, u8)], expected: &[&str]) {
        let input: Vec<u8> = pages
            .iter()
            .flat_map(|p| page(p.0, p.1, p.2, p.3))
            .collect();
        let findings = Walker::new(&input).finish();
        let faults = findings
            .faults
            .iter()
            .map(|f| format!("{} {}", f.offset / 80, f.kind.name()));
        let notes = findings
            .notes
            .iter()
            .map(|n| format!("{} {}", n.offset / 80, n.kind.name()));
        assert_eq!(faults.chain(notes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_missing_page_is_a_page_gap() {
        check(&[(5, 0, false, 0), (5, 2, true, 2)], &["1 page-gap"]);
        check(&[(5, 1, true, 0), (6, 0, true, 1)], &["0 page-gap"]);
        check(&[(5, 0, true, 0), (5, 1, true, 1)], &["1 page-gap"]);
    }

    #[test]
    fn an_hbf_without_a_stop_bit_is_unclosed_or_reopened() {
        check(&[(5, 0, false, 0), (5, 1, false, 1)], &["0 unclosed-hbf"]);
        check(&[(5, 0, false, 0), (6, 0, true, 1)], &["1 reopened-hbf"]);
        check(
            &[(5, 0, false, 0), (6, 1, true, 1)],
            &["0 unclosed-hbf", "1 page-gap"],
        );
    }

    #[test]
    fn orbits_out_of_step_are_notes() {
        check(&[(5, 0, true, 0), (7, 0, true, 9)], &["1 gap"]);
        check(&[(5, 0, true, 0), (4, 0, true, 1)], &["1 backwards"]);
        check(&[(5, 0, true, 0), (5, 0, true, 1)], &["1 again"]);
        check(&[(u32::MAX, 0, true, 255), (0, 0, true, 0)], &[]);
    }

    #[test]
    fn a_packet_gap_is_a_fault_where_each_link_counts_for_itself() {
        check(
            &[
                (5, 0, true, 0),
                (6, 0, true, 1),
                (7, 0, true, 2),
                (8, 0, true, 4),
            ],
            &["3 packet-gap"],
        );
        check(&[(5, 0, true, 7), (6, 0, true, 7)], &["1 packet-gap"]);
        // One counter for all links of the data path, of which only this one is in the input.
        check(
            &[
                (5, 0, false, 0),
                (5, 1, true, 11),
                (6, 0, false, 17),
                (6, 1, true, 18),
            ],
            &[],
        );
    }

    #[test]
    fn the_way_of_counting_is_settled_for_long_inputs() {
        let mut pages: Vec<_> = (0..200).map(|i| (i, 0, true, (i % 256) as u8)).collect();
        pages[150].3 = 0;
        check(&pages, &["150 packet-gap", "151 packet-gap"]);
        let shared: Vec<_> = (0..200)
            .map(|i| (i, 0, true, (i * 3 % 256) as u8))
            .collect();
        check(&shared, &[]);
    }
}
