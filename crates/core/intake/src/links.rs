//! Samples lost on the way: counters of the clients beside what arrived over each link.
//!
//! A client sends how many samples it has sent so far ([`sheaf_samples::client::SENT`]). The growth of that count
//! between two reports is what should have arrived over the same link in the same time. A link is a stream of one
//! sender and one source, so samples of programs that report nothing do not fill the gap.
//! See `docs/adr/2026-11-25-loss-by-sent-counters.md`.

use crate::loss::Loss;
use crate::peer::Peer;
use crate::sources::SourceRef;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sheaf_protect::protect;
use sheaf_samples::Sample;
use std::collections::BTreeMap;

/// Value of a counter that was reported last.
#[derive(Clone, Copy, Debug)]
struct Report {
    value: f64,
    at_ms: i64,
}

impl Report {
    /// Growth of the counter up to `sample`, which becomes the last report; none if it is older than that.
    ///
    /// Only time tells a report that was overtaken from a restart: both have a smaller value.
    fn growth(&mut self, sample: Sample) -> Option<u64> {
        let is_equal = sample.at_ms == self.at_ms && sample.value <= self.value;
        if protect!(ReportOrder, when sample.at_ms < self.at_ms || is_equal) {
            return None;
        }
        let growth = if sample.value >= self.value {
            sample.value - self.value
        } else {
            // A restart: all of the new count is new.
            sample.value
        };
        *self = Self {
            value: sample.value,
            at_ms: sample.at_ms,
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count: finite and not negative; what is no count becomes 0"
        )]
        Some(growth.max(0.0) as u64)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// Samples since the last report over the link.
    arrived: u64,
    reports: bool,
    seen_s: i64,
}

/// Links and counters of all sources.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: IndexMap<(Peer, SourceRef), Link, FxBuildHasher>,
    /// By place of the counter's series.
    counters: BTreeMap<u32, Report>,
    next_link: usize,
}

impl Links {
    /// Counts samples that arrived. A link beyond `links_max` is not counted.
    pub(crate) fn arrived(
        &mut self,
        peer: Peer,
        source: SourceRef,
        count: u64,
        now_s: i64,
        links_max: usize,
    ) {
        let key = (peer, source);
        let has_room = self.links.len() < links_max;
        let link = match self.links.get_mut(&key) {
            Some(link) => link,
            None if has_room => self.links.entry(key).or_default(),
            None => return,
        };
        link.arrived += count;
        link.seen_s = now_s;
    }

    /// Takes the count of sent samples that `sample` of the series at `slot` reports, after the samples of its datagram
    /// were counted.
    pub(crate) fn sent(
        &mut self,
        slot: u32,
        peer: Peer,
        source: SourceRef,
        sample: Sample,
        loss: &mut Loss,
    ) {
        let Some(link) = self.links.get_mut(&(peer, source)) else {
            return;
        };
        let Some(report) = self.counters.get_mut(&slot) else {
            self.counters.insert(slot, Report::of(sample));
            // What came before the first report belongs to the base, unless another client of the link reports.
            if protect!(LossBase, when !link.reports) {
                link.arrived = 0;
                link.reports = true;
            }
            return;
        };
        link.reports = true;
        let Some(growth) = report.growth(sample) else {
            return;
        };
        loss.sent += growth;
        loss.arrived += std::mem::take(&mut link.arrived);
    }

    /// Takes the count of dropped samples that `sample` of the series at `slot` reports.
    pub(crate) fn dropped(&mut self, slot: u32, sample: Sample, loss: &mut Loss) {
        match self.counters.get_mut(&slot) {
            Some(report) => loss.dropped += report.growth(sample).unwrap_or(0),
            None => {
                self.counters.insert(slot, Report::of(sample));
            }
        }
    }

    /// Forgets the counter of a series that ended.
    pub(crate) fn end(&mut self, slot: u32) {
        self.counters.remove(&slot);
    }

    /// Looks at `share` of the links, a part of 1000, and forgets those without samples since `before_s`.
    pub(crate) fn sweep(&mut self, share: u64, before_s: i64) {
        let length = self.links.len();
        let part = usize::try_from(length as u64 * share.min(1000) / 1000).unwrap_or(length);
        for _ in 0..=part {
            match self.links.get_index(self.next_link) {
                None => self.next_link = 0,
                Some((_, link)) if link.seen_s < before_s => {
                    self.links.swap_remove_index(self.next_link);
                }
                Some(_) => self.next_link += 1,
            }
        }
    }

    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }
}

impl Report {
    fn of(sample: Sample) -> Self {
        Self {
            value: sample.value,
            at_ms: sample.at_ms,
        }
    }
}
