//! Slot of one TF in building.

use sheaf_protocol::{Attempt, FlpId, Part, Source, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The sources whose STFs make a TF whole, by FLP id.
pub(crate) type Roster = Arc<[Source]>;

/// Parts of one TF that are here, and the knowledge about the others.
#[derive(Debug)]
pub(crate) struct Slot<P> {
    /// The latest assignment known; zero before any.
    pub(crate) attempt: Attempt,
    /// The roster, known from the first assignment on.
    pub(crate) roster: Option<Roster>,
    /// The parts, in order of arrival.
    pub(crate) parts: Vec<Part<P>>,
    /// FLPs that will never have a part.
    pub(crate) absent: BTreeSet<FlpId>,
    /// When the first byte came, or the first assignment.
    pub(crate) first_at: Timestamp,
    /// When the wait for missing parts began: the first byte, or the latest assignment.
    pub(crate) waits_since: Timestamp,
    /// When the last byte of the last part came.
    pub(crate) last_at: Timestamp,
    /// When the slot was last reported, and the missing FLPs of that report.
    pub(crate) reported: Option<(Timestamp, Vec<FlpId>)>,
    /// Number of changes of `parts`, by which a stored copy is compared with the parts that are here.
    pub(crate) changes: u32,
    /// Ack level `stored`: state of the copy on the disk.
    pub(crate) stored: Stored,
}

/// State of a slot as it is written: the number of changes of its parts, and the missing FLPs.
pub(crate) type Snapshot = (u32, Vec<FlpId>);

/// Copy of a slot on the disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Stored {
    /// There is none.
    #[default]
    No,
    /// The snapshot is being written.
    Busy(Snapshot),
    /// The snapshot is on the disk.
    Done(Snapshot),
}

impl Stored {
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl<P> Slot<P> {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            attempt: Attempt(0),
            roster: None,
            parts: Vec::new(),
            absent: BTreeSet::new(),
            first_at: now,
            waits_since: now,
            last_at: now,
            reported: None,
            changes: 0,
            stored: Stored::No,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    pub(crate) fn part(&self, source: Source) -> Option<&Part<P>> {
        self.parts.iter().find(|part| part.source == source)
    }

    /// Returns the FLPs of the roster without a part; `None` while the roster is unknown.
    pub(crate) fn missing(&self) -> Option<Vec<FlpId>> {
        let roster = self.roster.as_ref()?;
        let without_part = roster.iter().filter(|source| self.part(**source).is_none());
        Some(without_part.map(|source| source.flp).collect())
    }

    /// Returns whether nothing more can come: every source of the roster has its part here or never will. At most
    /// `gone_max` sources are gone.
    pub(crate) fn is_settled(&self, gone_max: usize, is_gone: impl Fn(Source) -> bool) -> bool {
        self.roster.as_ref().is_some_and(|roster| {
            // Counting is enough for most STFs; to look for each source would take the square of their number.
            let accounted_max = self.parts.len() + self.absent.len() + gone_max;
            accounted_max >= roster.len()
                && roster.iter().all(|source| {
                    self.part(*source).is_some()
                        || self.absent.contains(&source.flp)
                        || is_gone(*source)
                })
        })
    }

    /// Removes the parts that are not of the roster; returns their number and bytes.
    pub(crate) fn drop_strangers(&mut self) -> (u64, u64) {
        let Some(roster) = self.roster.clone() else {
            return (0, 0);
        };
        let (stfs, bytes) = (self.parts.len() as u64, self.bytes());
        self.parts.retain(|part| roster.contains(&part.source));
        self.changes += u32::from(self.parts.len() as u64 != stfs);
        (stfs - self.parts.len() as u64, bytes - self.bytes())
    }
}
