//! Path of a sample through the tables: series, source, bounds, accounting.

use super::signed::Collectd;
use crate::events::Events;
use crate::links::Links;
use crate::names::Names;
use crate::peer::Peer;
use crate::series::{Key, Kind, SeriesTable, Slot};
use crate::source::SourceStats;
use crate::sources::{SourceRef, Sources};
use crate::{Batch, IntakeConfig, Outcome, Reason, SeriesHandle};
use sheaf_protect::protect;
use sheaf_samples::wire::Code;
use sheaf_samples::wire::line_protocol::Series;
use sheaf_samples::{Labels, Sample, client};
use std::collections::BTreeMap;

/// Milliseconds in which every series is looked at once for its end.
const ROUND_MS: i64 = 60_000;

/// State of the datagram in hand.
pub(super) struct Visit {
    pub(super) now_ms: i64,
    peer: Peer,
    /// Source of the last samples, and how many there were since it changed.
    source: Option<SourceRef>,
    taken: u64,
    /// Source of the first sample.
    first: Option<SourceRef>,
    /// Time of the last sample that has one.
    at_ms: Option<i64>,
    refused: u64,
    /// Samples that were in the batch before.
    before: usize,
}

impl Visit {
    pub(super) fn new(now_ms: i64, peer: Peer, out: &Batch) -> Self {
        Self {
            refused: 0,
            before: out.samples.len(),
            now_ms,
            peer,
            source: None,
            taken: 0,
            first: None,
            at_ms: None,
        }
    }
}

/// Series of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) handle: SeriesHandle,
    source: SourceRef,
    kind: Kind,
}

impl Known {
    fn of(handle: SeriesHandle, slot: &Slot) -> Self {
        Self {
            handle,
            source: slot.source,
            kind: slot.kind,
        }
    }
}

/// All of an intake but the decoder, which lends out lines meanwhile.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) config: IntakeConfig,
    pub(super) series: SeriesTable,
    pub(super) sources: Sources,
    pub(super) links: Links,
    /// Accounting of what no source could be named for.
    pub(super) unnamed: SourceStats,
    pub(super) kernel_drops: u64,
    pub(super) names: Names,
    /// Sums of the series that came as growth, by place.
    totals: BTreeMap<u32, f64>,
    pub(super) events: Events,
    pub(super) collectd: Collectd,
    swept_ms: Option<i64>,
    /// Faults without a source, and reports of clients, of the datagram in hand.
    pub(super) faults: Vec<Code>,
    reports: Vec<(Known, Sample)>,
}

impl Tables {
    /// Returns tables with nothing in them.
    pub(super) fn new(config: IntakeConfig) -> Self {
        Self {
            config,
            series: SeriesTable::default(),
            sources: Sources::default(),
            links: Links::default(),
            unnamed: SourceStats::default(),
            kernel_drops: 0,
            names: Names::default(),
            totals: BTreeMap::new(),
            events: Events::default(),
            collectd: Collectd::default(),
            swept_ms: None,
            faults: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// Takes one field of a line: the hot path.
    #[inline]
    pub(super) fn line(
        &mut self,
        visit: &mut Visit,
        key: &Key<'_>,
        at_ms: Option<i64>,
        value: f64,
        out: &mut Batch,
    ) {
        let known = self.series.of_key(key).map(|(handle, slot)| {
            slot.seen_s = visit.now_ms / 1000;
            Known::of(handle, slot)
        });
        let too_far = self.too_far(visit.now_ms, at_ms);
        match (known, too_far) {
            (Some(known), None)
                if visit.source == Some(known.source) || self.sources.is_alive(known.source) =>
            {
                self.take(visit, known, at_ms, value, out);
            }
            (known, Some(reason)) => {
                let source = known.map(|known| known.source);
                self.refuse(visit, source, reason, out);
            }
            (_, None) => self.new_line(visit, key, at_ms, value, out),
        }
    }

    /// Reason why a time is refused.
    #[inline]
    fn too_far(&self, now_ms: i64, at_ms: Option<i64>) -> Option<Reason> {
        let ahead_ms = protect!(TimeBound, at_ms?.saturating_sub(now_ms), else 0);
        if ahead_ms > i64::from(self.config.future_max_s) * 1000 {
            Some(Reason::TooNew)
        } else if ahead_ms < -i64::from(self.config.past_max_s) * 1000 {
            Some(Reason::TooOld)
        } else {
            None
        }
    }

    /// Takes a field whose key is not known: the slow path.
    fn new_line(
        &mut self,
        visit: &mut Visit,
        key: &Key<'_>,
        at_ms: Option<i64>,
        value: f64,
        out: &mut Batch,
    ) {
        let series = match Series::parse(key.series) {
            Ok(series) => series,
            Err(fault) => return self.faults.push(fault.code),
        };
        let labels = self.config.source_labels.iter();
        let name = labels.filter_map(|label| series.tag(label)).next();
        let source = match self.source(visit, name, out) {
            Ok(source) => source,
            Err(reason) => return self.refuse(visit, None, reason, out),
        };
        if series.tags.len() + 1 > self.config.labels_max as usize {
            return self.refuse(visit, Some(source), Reason::LabelsLimit, out);
        }
        let labels = match series.labels(key.field) {
            Ok(labels) => labels,
            Err(code) => return self.faults.push(code),
        };
        let field = std::str::from_utf8(key.field).unwrap_or_default();
        let origin = (series.measurement.as_ref(), field);
        let name = labels.name().unwrap_or_default().to_owned();
        match self.admit(visit, labels, source, out) {
            Ok(known) => {
                self.series.add_key(key, known.handle);
                self.names.watch(name, origin);
                self.take(visit, known, at_ms, value, out);
            }
            Err(reason) => self.refuse(visit, Some(source), reason, out),
        }
    }

    /// Takes a sample of a series that has its labels with it.
    pub(super) fn labelled(
        &mut self,
        visit: &mut Visit,
        labels: Labels,
        at_ms: Option<i64>,
        value: f64,
        out: &mut Batch,
    ) {
        if let Some(known) = self.known(visit, labels, at_ms, out) {
            self.take(visit, known, at_ms, value, out);
        }
    }

    /// Takes the growth of a series since its sample before; what goes out is the sum of all growth.
    pub(super) fn grown(
        &mut self,
        visit: &mut Visit,
        labels: Labels,
        at_ms: Option<i64>,
        growth: f64,
        out: &mut Batch,
    ) {
        if let Some(known) = self.known(visit, labels, at_ms, out) {
            let total = self.totals.entry(known.handle.slot).or_default();
            *total += growth;
            let value = *total;
            self.take(visit, known, at_ms, value, out);
        }
    }

    /// Series with `labels`, opened if it is new; none if its source may not, or the time is too far, which is counted.
    pub(super) fn known(
        &mut self,
        visit: &mut Visit,
        labels: Labels,
        at_ms: Option<i64>,
        out: &mut Batch,
    ) -> Option<Known> {
        let known = self.series.of_labels(&labels).map(|(handle, slot)| {
            slot.seen_s = visit.now_ms / 1000;
            Known::of(handle, slot)
        });
        let refused = match self.too_far(visit.now_ms, at_ms) {
            Some(reason) => (known.map(|known| known.source), reason),
            None => match known.filter(|known| self.sources.is_alive(known.source)) {
                Some(known) => return Some(known),
                None => match self.new_labelled(visit, labels, out) {
                    Ok(known) => return Some(known),
                    Err(refused) => refused,
                },
            },
        };
        self.refuse(visit, refused.0, refused.1, out);
        None
    }

    fn new_labelled(
        &mut self,
        visit: &Visit,
        labels: Labels,
        out: &mut Batch,
    ) -> Result<Known, (Option<SourceRef>, Reason)> {
        let names = self.config.source_labels.iter();
        let name = names.filter_map(|name| labels.get(name)).next();
        let source = self.source(visit, name, out);
        let source = source.map_err(|reason| (None, reason))?;
        if labels.len() > self.config.labels_max as usize {
            return Err((Some(source), Reason::LabelsLimit));
        }
        let known = self.admit(visit, labels, source, out);
        known.map_err(|reason| (Some(source), reason))
    }

    /// Source of a new series: by `name`, else by the address of the sender.
    fn source(
        &mut self,
        visit: &Visit,
        name: Option<&str>,
        out: &mut Batch,
    ) -> Result<SourceRef, Reason> {
        let address = visit.peer.address;
        let by_address;
        let name = match name {
            Some(name) if name.len() <= self.config.label_bytes_max as usize => name,
            Some(_) => return Err(Reason::LabelTooLong),
            None => {
                by_address = address.to_canonical().to_string();
                &by_address
            }
        };
        self.sources
            .of_name(name, address, visit.now_ms, &self.config, out)
    }

    /// Series with `labels`, opened if it is new and its source may.
    fn admit(
        &mut self,
        visit: &Visit,
        labels: Labels,
        source: SourceRef,
        out: &mut Batch,
    ) -> Result<Known, Reason> {
        let (config, now_ms) = (&self.config, visit.now_ms);
        if let Some((handle, slot)) = self.series.of_labels(&labels) {
            // The source of the series made way for others meanwhile.
            if !self.sources.is_alive(slot.source) {
                self.sources.admit(source, now_ms, config, out)?;
                slot.source = source;
            }
            slot.seen_s = now_ms / 1000;
            return Ok(Known::of(handle, slot));
        }
        let bytes_max = config.label_bytes_max as usize;
        if labels
            .iter()
            .any(|(name, value)| name.len().max(value.len()) > bytes_max)
        {
            return Err(Reason::LabelTooLong);
        }
        if self.series.len() >= config.series_max as usize {
            return Err(Reason::TableFull);
        }
        self.sources.admit(source, now_ms, config, out)?;
        let kind = match labels.name() {
            Some(client::SENT) => Kind::Sent,
            Some(client::DROPPED) => Kind::Dropped,
            _ => Kind::Plain,
        };
        let handle = self
            .series
            .open(labels.clone(), source, now_ms / 1000, kind);
        out.series.push((handle, labels));
        Ok(Known {
            handle,
            source,
            kind,
        })
    }

    #[inline]
    fn take(
        &mut self,
        visit: &mut Visit,
        known: Known,
        at_ms: Option<i64>,
        value: f64,
        out: &mut Batch,
    ) {
        self.count(visit, known);
        visit.at_ms = at_ms.or(visit.at_ms);
        let sample = Sample {
            at_ms: at_ms.unwrap_or(visit.now_ms),
            value,
        };
        out.samples.push((known.handle, sample));
        if known.kind != Kind::Plain {
            self.reports.push((known, sample));
        }
    }

    /// Counts one sample as taken.
    #[inline]
    pub(super) fn count(&mut self, visit: &mut Visit, known: Known) {
        if visit.source != Some(known.source) {
            self.change(visit, known.source);
        }
        visit.taken += 1;
    }

    /// Counts the samples of the source up to here, and goes on with those of `source`.
    fn change(&mut self, visit: &mut Visit, source: SourceRef) {
        self.count_taken(visit);
        visit.source = Some(source);
        visit.at_ms = None;
        visit.first.get_or_insert(source);
    }

    fn count_taken(&mut self, visit: &mut Visit) {
        let count = std::mem::take(&mut visit.taken);
        let (Some(at), true) = (visit.source, count > 0) else {
            return;
        };
        if let Some(source) = self.sources.get(at) {
            source.stats.add_taken(count);
            source.stats.seen_ms = visit.now_ms;
            if let Some(at_ms) = visit.at_ms {
                source.stats.clock_offset_ms = Some(at_ms.saturating_sub(visit.now_ms));
            }
        } else {
            // Made way for another one within the datagram.
            self.unnamed.add_taken(count);
        }
        self.arrived(visit, at, count);
    }

    fn arrived(&mut self, visit: &Visit, source: SourceRef, count: u64) {
        let links_max = self.config.sources_max as usize * 2;
        self.links
            .arrived(visit.peer, source, count, visit.now_ms / 1000, links_max);
    }

    fn refuse(
        &mut self,
        visit: &mut Visit,
        source: Option<SourceRef>,
        reason: Reason,
        out: &mut Batch,
    ) {
        visit.refused += 1;
        let source = source.or(visit.first);
        let at = source.map_or_else(|| self.source(visit, None, out), Ok);
        match at.ok().and_then(|at| Some((at, self.sources.get(at)?))) {
            Some((at, source)) => {
                source.stats.add_refused(reason);
                source.stats.seen_ms = visit.now_ms;
                visit.first.get_or_insert(at);
                self.arrived(visit, at, protect!(RefusedArrived, 1, else 0));
            }
            None => self.unnamed.add_refused(reason),
        }
    }

    /// Counts what a datagram brought, and looks at what its client reports.
    pub(super) fn end(&mut self, mut visit: Visit, bytes: usize, out: &mut Batch) -> Outcome {
        self.count_taken(&mut visit);
        let at = visit
            .first
            .map_or_else(|| self.source(&visit, None, out), Ok);
        let at = at.ok().filter(|&at| self.sources.is_alive(at));
        let stats = match at.and_then(|at| self.sources.get(at)) {
            Some(source) => &mut source.stats,
            None => &mut self.unnamed,
        };
        stats.datagrams += 1;
        stats.bytes += bytes as u64;
        let faults = self.faults.len() as u64;
        let outcome = Outcome {
            taken: (out.samples.len() - visit.before) as u64,
            bad: faults,
            refused: visit.refused,
            first_fault: self.faults.first().copied(),
        };
        for code in self.faults.drain(..) {
            stats.add_bad(code, 1);
        }
        if let Some(at) = at
            && faults > 0
        {
            stats.seen_ms = visit.now_ms;
            self.arrived(&visit, at, faults);
        }
        for (known, sample) in self.reports.drain(..) {
            let (slot, at) = (known.handle.slot, known.source);
            let Some(source) = self.sources.get(at) else {
                continue;
            };
            let loss = &mut source.stats.loss;
            match known.kind {
                Kind::Sent => self.links.sent(slot, visit.peer, at, sample, loss),
                Kind::Dropped => self.links.dropped(slot, sample, loss),
                Kind::Plain => {}
            }
        }
        outcome
    }

    pub(super) fn tick(&mut self, now_ms: i64, out: &mut Batch) {
        let elapsed_ms = now_ms - self.swept_ms.unwrap_or(now_ms);
        self.swept_ms = Some(now_ms);
        let (events, series) = (&mut self.events, &self.series);
        let flush_ms = i64::from(self.config.events_flush_ms);
        events.flush(now_ms, flush_ms, |handle| series.is_open(handle), out);
        let share = u64::try_from(elapsed_ms * 1000 / ROUND_MS).unwrap_or(0);
        let idle_s = i64::from(self.config.series_idle_s);
        let before_s = now_ms / 1000 - idle_s;
        let (sources, links, totals) = (&mut self.sources, &mut self.links, &mut self.totals);
        self.series.sweep(share, before_s, |handle, slot| {
            if let Some(source) = sources.get(slot.source) {
                source.stats.series = source.stats.series.saturating_sub(1);
                source.budget.release();
            }
            links.end(handle.slot);
            totals.remove(&handle.slot);
            out.ended.push(handle);
        });
        self.links.sweep(share, before_s);
        self.sources
            .sweep(now_ms, share, before_s * 1000, &self.config, out);
    }
}
