//! Which samples an intake takes, refuses or cannot read, and what it counts for each source.

use super::super::client::{Item, Parcel};
use super::super::names::{Metric, SeriesName, source};
use sheaf_intake::{IntakeConfig, Reason};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Time between two looks of the intake for cut-offs that are over, in ms.
const LOOK_MS: i64 = 1000;

/// Fate of an item at the intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Taken,
    Bad,
    Refused(&'static str),
}

/// Series, time and value; nothing of it counts for an item that is bad.
pub(super) type Content = (SeriesName, i64, i64);

/// Accounting of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::monitor) struct SourceCounts {
    pub(in crate::monitor) taken: u64,
    pub(in crate::monitor) bad: u64,
    pub(in crate::monitor) refused: BTreeMap<&'static str, u64>,
    /// Samples that the client's counts say were sent, and those that arrived in that time.
    pub(in crate::monitor) sent: u64,
    pub(in crate::monitor) arrived: u64,
}

impl SourceCounts {
    fn samples(&self) -> u64 {
        self.taken + self.bad + self.refused.values().sum::<u64>()
    }
}

#[derive(Debug)]
struct Source {
    counts: SourceCounts,
    /// Thousandths of new series that are left.
    left: u64,
    refilled_ms: i64,
    series: u32,
    cut_until_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct Link {
    arrived: u64,
    reports: bool,
}

/// One life of an intake.
#[derive(Debug)]
pub(in crate::monitor) struct IntakeModel {
    config: IntakeConfig,
    sources: BTreeMap<String, Source>,
    series: BTreeMap<SeriesName, String>,
    links: BTreeMap<(IpAddr, u64, String), Link>,
    /// Last count of each client that was not overtaken: value and time.
    counts: BTreeMap<SeriesName, (i64, i64)>,
    /// Samples that came in, of all sources.
    pub(in crate::monitor) samples: u64,
    /// Time of the last look for cut-offs that are over.
    looked_ms: Option<i64>,
}

impl IntakeModel {
    pub(super) fn new(config: IntakeConfig) -> Self {
        Self {
            config,
            sources: BTreeMap::new(),
            series: BTreeMap::new(),
            links: BTreeMap::new(),
            counts: BTreeMap::new(),
            samples: 0,
            looked_ms: None,
        }
    }

    pub(super) fn die(&mut self) {
        *self = Self::new(self.config.clone());
    }

    /// The intake looks once a second for cut-offs that are over, and when the clock is behind the last look. A
    /// cut-off that it has ended does not go on when the clock steps back.
    pub(super) fn tick(&mut self, now_ms: i64) {
        let is_early = |last_ms| (last_ms..last_ms + LOOK_MS).contains(&now_ms);
        if self.looked_ms.is_some_and(is_early) {
            return;
        }
        self.looked_ms = Some(now_ms);
        let cut_off_ms = i64::from(self.config.cut_off_s) * 1000;
        for source in self.sources.values_mut() {
            if !is_cut_off(source, now_ms, cut_off_ms) {
                source.cut_until_ms = None;
            }
        }
    }

    /// Accounting of every source.
    pub(in crate::monitor) fn sources(&self) -> impl Iterator<Item = (&str, &SourceCounts)> {
        let sources = self.sources.iter();
        sources.map(|(name, source)| (name.as_str(), &source.counts))
    }

    fn source(&mut self, name: &str, now_ms: i64) -> &mut Source {
        let left = u64::from(self.config.new_series_burst) * 1000;
        self.sources
            .entry(name.to_owned())
            .or_insert_with(|| Source {
                counts: SourceCounts::default(),
                left,
                refilled_ms: now_ms,
                series: 0,
                cut_until_ms: None,
            })
    }

    pub(super) fn take(&mut self, now_ms: i64, parcel: &Parcel) -> Vec<(Content, Fate)> {
        let address = parcel.peer.address.to_string();
        let mut first: Option<String> = None;
        let mut arrived: BTreeMap<String, u64> = BTreeMap::new();
        let (mut bad, mut reports) = (0, Vec::new());
        let mut fates = Vec::new();
        for item in &parcel.items {
            let Item::Sample {
                series,
                at_ms,
                value,
            } = *item
            else {
                bad += 1;
                let nothing = SeriesName {
                    client: parcel.client,
                    metric: Metric::Gauge,
                    number: 0,
                };
                fates.push(((nothing, 0, 0), Fate::Bad));
                continue;
            };
            let (name, refused) = self.judge(now_ms, series, at_ms);
            // What has no source of its own belongs to that of the first sample, or to the address.
            let name = name
                .or_else(|| first.clone())
                .unwrap_or_else(|| address.clone());
            let counts = &mut self.source(&name, now_ms).counts;
            let fate = match refused {
                Some(reason) => {
                    *counts.refused.entry(reason).or_default() += 1;
                    Fate::Refused(reason)
                }
                None => {
                    counts.taken += 1;
                    if series.metric == Metric::Sent {
                        reports.push((series, name.clone(), at_ms, value));
                    }
                    Fate::Taken
                }
            };
            *arrived.entry(name.clone()).or_default() += 1;
            first.get_or_insert(name);
            fates.push(((series, at_ms, value), fate));
        }
        let first = first.unwrap_or(address);
        self.source(&first, now_ms).counts.bad += bad;
        if bad > 0 {
            *arrived.entry(first).or_default() += bad;
        }
        for (name, count) in arrived {
            self.link(parcel, &name).arrived += count;
        }
        for (series, name, at_ms, value) in reports {
            self.report(parcel, series, &name, at_ms, value);
        }
        self.samples = self.sources.values().map(|one| one.counts.samples()).sum();
        fates
    }

    fn link(&mut self, parcel: &Parcel, name: &str) -> &mut Link {
        let key = (parcel.peer.address, parcel.peer.stream, name.to_owned());
        self.links.entry(key).or_default()
    }

    /// Source of a sample, if it has one, and the reason why it is refused.
    fn judge(
        &mut self,
        now_ms: i64,
        series: SeriesName,
        at_ms: i64,
    ) -> (Option<String>, Option<&'static str>) {
        let known = self.series.get(&series).cloned();
        let ahead_ms = at_ms - now_ms;
        if ahead_ms > i64::from(self.config.future_max_s) * 1000 {
            return (known, Some(Reason::TooNew.name()));
        }
        if ahead_ms < -i64::from(self.config.past_max_s) * 1000 {
            return (known, Some(Reason::TooOld.name()));
        }
        if known.is_some() {
            return (known, None);
        }
        let name = source(series.client);
        let config = self.config.clone();
        let refused = open(self.source(&name, now_ms), now_ms, &config);
        if refused.is_none() {
            self.series.insert(series, name.clone());
        }
        (Some(name), refused.map(Reason::name))
    }

    /// A count of what the client sent came in, behind the samples of its datagram.
    fn report(&mut self, parcel: &Parcel, series: SeriesName, name: &str, at_ms: i64, value: i64) {
        let known = self.counts.get(&series).copied();
        let link = self.link(parcel, name);
        let Some((last, last_ms)) = known else {
            if !link.reports {
                link.arrived = 0;
                link.reports = true;
            }
            self.counts.insert(series, (value, at_ms));
            return;
        };
        link.reports = true;
        if at_ms < last_ms || (at_ms == last_ms && value <= last) {
            return;
        }
        let arrived = std::mem::take(&mut link.arrived);
        let growth = if value >= last { value - last } else { value };
        self.counts.insert(series, (value, at_ms));
        let counts = &mut self.source(name, 0).counts;
        counts.sent += growth.unsigned_abs();
        counts.arrived += arrived;
    }
}

/// Takes one new series out of the budget of `source`.
fn open(source: &mut Source, now_ms: i64, config: &IntakeConfig) -> Option<Reason> {
    let cut_off_ms = i64::from(config.cut_off_s) * 1000;
    if is_cut_off(source, now_ms, cut_off_ms) {
        return Some(Reason::CutOff);
    }
    let elapsed_ms = (now_ms - source.refilled_ms).max(0).unsigned_abs();
    let most = u64::from(config.new_series_burst) * 1000;
    source.left = most.min(source.left + elapsed_ms * u64::from(config.new_series_per_s));
    source.refilled_ms = now_ms;
    let reason = if source.series >= config.series_per_source_max {
        Reason::SeriesLimit
    } else if source.left < 1000 {
        Reason::SeriesRate
    } else {
        source.left -= 1000;
        source.series += 1;
        return None;
    };
    source.cut_until_ms = Some(now_ms + cut_off_ms);
    Some(reason)
}

/// Returns whether the cut-off goes on; one that would end later than if it began now is that of a clock that has
/// stepped back.
fn is_cut_off(source: &Source, now_ms: i64, cut_off_ms: i64) -> bool {
    match source.cut_until_ms {
        Some(until_ms) => now_ms < until_ms && until_ms <= now_ms + cut_off_ms,
        None => false,
    }
}
