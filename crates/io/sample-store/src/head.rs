//! The part of a store in memory: series, samples that are not yet in a chunk, chunks that are not yet in tables.

use crate::config::Config;
use crate::index::Index;
use crate::level::Kind;
use crate::log::Group;
use crate::store::{Appended, SeriesId, Verdict};
use sheaf_samples::{Bucket, Labels, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a store takes no samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The last commit found the disk full.
    Full,
    /// The last commit failed otherwise.
    Failed,
}

/// Limits by which samples of any series are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Clock of the last maintenance.
    pub(crate) clock_ms: Option<i64>,
    /// Latest time of all samples.
    pub(crate) newest_ms: i64,
    /// Samples before it were dropped.
    pub(crate) dropped_to_ms: i64,
}

impl Limits {
    /// Judges a sample at `at_ms` of a series whose latest one is at `last_ms`, `i64::MIN` without any.
    pub(crate) fn judge(&self, config: &Config, last_ms: i64, at_ms: i64) -> Verdict {
        let clock_ms = self.clock_ms.unwrap_or(i64::MAX);
        let is_future = at_ms > clock_ms.saturating_add(config.future_ms);
        let kept_from_ms = self.newest_ms.saturating_sub(config.raw_ms);
        if is_future || at_ms.unsigned_abs() > TIME_MAX {
            Verdict::Future
        } else if at_ms < last_ms.saturating_sub(config.late_ms) {
            Verdict::Late
        } else if at_ms < self.dropped_to_ms || at_ms < kept_from_ms {
            Verdict::Expired
        } else {
            Verdict::Accepted
        }
    }
}

/// Times beyond this, in ms from 1970 in either direction, are no times: 35,000 years.
const TIME_MAX: u64 = 1 << 50;

/// One series in memory.
#[derive(Debug)]
pub(crate) struct SeriesHead {
    /// Samples that are in no chunk, sorted, times unique.
    pub(crate) samples: Vec<Sample>,
    /// Earliest and latest time ever.
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    /// Latest time in a chunk.
    pub(crate) sealed_to_ms: i64,
    /// Clock when the oldest of `samples` came.
    pub(crate) since_ms: i64,
    /// End of the minute of the latest sample, and the group in which the first sample of that minute came.
    minute_end_ms: i64,
    minute_group: u64,
}

impl SeriesHead {
    fn new() -> Self {
        Self {
            samples: Vec::new(),
            first_ms: i64::MAX,
            last_ms: i64::MIN,
            sealed_to_ms: i64::MIN,
            since_ms: 0,
            minute_end_ms: i64::MIN,
            minute_group: 0,
        }
    }
}

/// How far a series is sealed, as a record of its own: last group whose samples are in chunks, earliest time, latest
/// time in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) through_group: u64,
    pub(crate) first_ms: i64,
    pub(crate) sealed_to_ms: i64,
}

impl Seal {
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.through_group.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_ms.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sealed_to_ms.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().expect("8 of 24 bytes");
        Some(Self {
            through_group: u64::from_le_bytes(word(0)),
            first_ms: i64::from_le_bytes(word(8)),
            sealed_to_ms: i64::from_le_bytes(word(16)),
        })
    }
}

/// Records that are not yet in tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) rows: BTreeMap<(Kind, u32, i64), Arc<[u8]>>,
    pub(crate) seals: BTreeMap<u32, Seal>,
    partitions: BTreeSet<(Kind, i64)>,
    pub(crate) bytes: u64,
}

impl Pending {
    pub(crate) fn insert(&mut self, kind: Kind, series: u32, start_ms: i64, frame: Arc<[u8]>) {
        // About what a node of the map takes.
        let size = |frame: &[u8]| frame.len() as u64 + 64;
        self.bytes += size(&frame);
        self.partitions.insert((kind, kind.partition(start_ms)));
        if let Some(old) = self.rows.insert((kind, series, start_ms), frame) {
            self.bytes -= size(&old);
        }
    }

    /// Numbers of the partitions of `kind` that have rows.
    pub(crate) fn partitions(&self, kind: Kind) -> impl Iterator<Item = i64> {
        let range = self.partitions.range((kind, i64::MIN)..=(kind, i64::MAX));
        range.map(|pair| pair.1)
    }

    /// Adds what is only in `older`.
    pub(crate) fn add_older(&mut self, older: &Self) {
        for (&(kind, series, start_ms), frame) in &older.rows {
            if !self.rows.contains_key(&(kind, series, start_ms)) {
                self.insert(kind, series, start_ms, Arc::clone(frame));
            }
        }
        for (&series, &seal) in &older.seals {
            self.seals.entry(series).or_insert(seal);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.seals.is_empty()
    }
}

/// Borders between what is kept and what is gone, and between what is derived and what is not, in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borders {
    /// By kind: content before it was dropped.
    dropped_to: [i64; 4],
    /// Buckets of 10 s are in records before it.
    pub(crate) ten_seconds_to: i64,
    /// Buckets of 1 h are in records before it.
    pub(crate) hours_to: i64,
}

impl Borders {
    pub(crate) fn new() -> Self {
        Self {
            dropped_to: [i64::MIN; 4],
            ten_seconds_to: i64::MIN,
            hours_to: i64::MIN,
        }
    }

    pub(crate) fn dropped_to(&self, kind: Kind) -> i64 {
        self.dropped_to[kind as usize]
    }

    pub(crate) fn set_dropped_to(&mut self, kind: Kind, to_ms: i64) {
        self.dropped_to[kind as usize] = to_ms.max(self.dropped_to(kind));
    }

    /// Buckets of `kind` are in records before this time; minutes are as soon as their samples are in chunks.
    pub(crate) fn derived_to(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Raw | Kind::Minute => i64::MAX,
            Kind::TenSeconds => self.ten_seconds_to,
            Kind::Hour => self.hours_to,
        }
    }
}

/// All of a store that is in memory.
pub(crate) struct Head {
    pub(crate) index: Index,
    pub(crate) series: Vec<SeriesHead>,
    /// By series: a lower bound of the groups of its samples; `u64::MAX` without samples.
    oldest_group: Vec<u64>,
    /// Samples that the next commit writes.
    pub(crate) group: Group,
    /// Number of the first group that is not durable.
    pub(crate) next_group: u64,
    /// Clock of the last maintenance.
    pub(crate) clock_ms: Option<i64>,
    /// Latest time of all samples.
    pub(crate) newest_ms: i64,
    pub(crate) pending: Pending,
    pub(crate) flushing: Option<Arc<Pending>>,
    /// Series below this number are in tables.
    pub(crate) written_series: u32,
    pub(crate) samples: u64,
    /// Why no samples are taken, until a commit succeeds.
    pub(crate) stuck: Option<Stuck>,
    pub(crate) appended: Appended,
    pub(crate) borders: Borders,
    /// As in `borders`, with the partitions that are being derived: records of these are kept up to date.
    pub(crate) refreshed: Borders,
}

impl Head {
    pub(crate) fn new(borders: Borders) -> Self {
        Self {
            index: Index::default(),
            series: Vec::new(),
            oldest_group: Vec::new(),
            group: Group::default(),
            next_group: 1,
            clock_ms: None,
            newest_ms: i64::MIN,
            pending: Pending::default(),
            flushing: None,
            written_series: 0,
            samples: 0,
            stuck: None,
            appended: Appended::default(),
            borders,
            refreshed: borders,
        }
    }

    /// Adds a series that the index does not have yet.
    pub(crate) fn add_series(&mut self, labels: Labels) -> u32 {
        self.series.push(SeriesHead::new());
        self.oldest_group.push(u64::MAX);
        self.index.insert(labels)
    }

    /// Adds series without labels up to the number `id`: their records are lost, and samples keep their number.
    pub(crate) fn add_lost_series(&mut self, id: u32) {
        while self.index.len() <= id {
            let number = self.index.len().to_string();
            let pairs = [("__name__", "sheaf_damaged_series"), ("number", &number)];
            self.add_series(Labels::new(pairs).expect("two short labels"));
        }
    }

    pub(crate) fn of(&self, id: u32) -> &SeriesHead {
        &self.series[usize::try_from(id).expect("32 bits fit")]
    }

    pub(crate) fn of_mut(&mut self, id: u32) -> &mut SeriesHead {
        &mut self.series[usize::try_from(id).expect("32 bits fit")]
    }

    /// Takes the samples of `batch` into memory and into the next group.
    pub(crate) fn append(&mut self, config: &Config, batch: &[(SeriesId, Sample)]) -> Appended {
        let mut appended = Appended::default();
        let mut limits = Limits {
            clock_ms: self.clock_ms,
            newest_ms: self.newest_ms,
            dropped_to_ms: self.borders.dropped_to(Kind::Raw),
        };
        let group = self.next_group;
        for &(SeriesId(id), sample) in batch {
            let Some(series) = usize::try_from(id)
                .ok()
                .and_then(|at| self.series.get_mut(at))
            else {
                appended.unknown += 1;
                continue;
            };
            let at_ms = sample.at_ms;
            let verdict = limits.judge(config, series.last_ms, at_ms);
            appended.count(verdict);
            if verdict != Verdict::Accepted {
                continue;
            }
            limits.newest_ms = limits.newest_ms.max(at_ms);
            let since_ms = self.clock_ms.unwrap_or(at_ms);
            let oldest_group = &mut self.oldest_group[usize::try_from(id).expect("32 bits fit")];
            self.samples += u64::from(push(series, oldest_group, group, since_ms, sample));
            self.group.ids.push(id);
            self.group.times.push(at_ms);
            self.group.values.push(sample.value);
        }
        self.newest_ms = limits.newest_ms;
        self.appended.add(&appended);
        appended
    }

    /// Takes a sample that the log has.
    pub(crate) fn replay(&mut self, id: u32, group: u64, sample: Sample) {
        let Some(series) = usize::try_from(id)
            .ok()
            .and_then(|at| self.series.get_mut(at))
        else {
            return;
        };
        self.newest_ms = self.newest_ms.max(sample.at_ms);
        let oldest_group = &mut self.oldest_group[usize::try_from(id).expect("32 bits fit")];
        self.samples += u64::from(push(series, oldest_group, group, sample.at_ms, sample));
    }

    /// Takes the first `count` samples of a series out of memory: they are in chunks.
    pub(crate) fn remove_sealed(&mut self, id: u32, count: usize) {
        let next_group = self.next_group;
        let clock_ms = self.clock_ms;
        let at = usize::try_from(id).expect("32 bits fit");
        let oldest_group = self.oldest_group[at];
        let series = self.of_mut(id);
        let last = series.samples.get(count.wrapping_sub(1)).copied();
        series.samples.drain(..count);
        if series.samples.is_empty() {
            series.samples = Vec::new();
        }
        if let Some(last) = last {
            series.sealed_to_ms = series.sealed_to_ms.max(last.at_ms);
        }
        if let Some(first) = series.samples.first() {
            series.since_ms = clock_ms.unwrap_or(first.at_ms);
        }
        let (oldest, unsealed_from) = match series.samples.first() {
            None => (u64::MAX, next_group),
            // What is left is of the latest minute, or of a part of it.
            Some(first) if first.at_ms >= series.minute_end_ms - Kind::Minute.level_ms() => {
                (series.minute_group, series.minute_group.min(next_group))
            }
            // Of earlier minutes only the bound of all samples is known: the log repeats sealed ones as well.
            Some(_) => (oldest_group, oldest_group.min(next_group)),
        };
        let seal = Seal {
            through_group: unsealed_from.saturating_sub(1),
            first_ms: series.first_ms,
            sealed_to_ms: series.sealed_to_ms,
        };
        self.oldest_group[at] = oldest;
        self.samples -= count as u64;
        self.pending.seals.insert(id, seal);
    }

    /// Number of the first group of which memory alone has samples; those below are in chunks.
    pub(crate) fn unsealed_from(&self) -> u64 {
        let oldest = self.oldest_group.iter().copied().min();
        oldest.unwrap_or(u64::MAX).min(self.next_group)
    }

    /// Bytes that series and their samples take.
    pub(crate) fn bytes(&self) -> u64 {
        let series = size_of::<SeriesHead>() + size_of::<u64>();
        self.series.len() as u64 * series as u64 + self.samples * size_of::<Sample>() as u64
    }
}

/// Inserts a sample in the order of time; of two at one time the later stays. Returns whether there is one more.
fn push(
    series: &mut SeriesHead,
    oldest_group: &mut u64,
    group: u64,
    since_ms: i64,
    sample: Sample,
) -> bool {
    let at_ms = sample.at_ms;
    if series.samples.is_empty() {
        series.since_ms = since_ms;
        *oldest_group = group;
    }
    series.first_ms = series.first_ms.min(at_ms);
    series.last_ms = series.last_ms.max(at_ms);
    if at_ms >= series.minute_end_ms {
        let length = Kind::Minute.level_ms();
        series.minute_end_ms = Bucket::start(at_ms, length) + length;
        series.minute_group = group;
    }
    match series.samples.last() {
        Some(last) if last.at_ms >= at_ms => {
            let at = series.samples.partition_point(|one| one.at_ms < at_ms);
            if series.samples[at].at_ms == at_ms {
                series.samples[at] = sample;
                return false;
            }
            series.samples.insert(at, sample);
        }
        _ => series.samples.push(sample),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let mut head = Head::new(Borders::new());
        head.add_series(Labels::new([("a", "1")]).unwrap());
        head.clock_ms = Some(100_000_000);
        head
    }

    fn check(head: &mut Head, at_ms: i64, expected: &str) {
        let config = Config::default();
        let sample = Sample { at_ms, value: 1.0 };
        let found = head.append(&config, &[(SeriesId(0), sample)]);
        let name = match found {
            Appended { accepted: 1, .. } => "accepted",
            Appended { late: 1, .. } => "late",
            Appended { expired: 1, .. } => "expired",
            Appended { future: 1, .. } => "future",
            _ => "unknown",
        };
        assert_eq!(name, expected, "at {at_ms}");
    }

    #[test]
    fn samples_are_refused_for_a_reason() {
        let mut head = head();
        check(&mut head, 100_000_000, "accepted");
        check(&mut head, 100_000_000 - 3_600_000, "accepted");
        check(&mut head, 100_000_000 - 3_600_001, "late");
        check(&mut head, 100_600_000, "accepted");
        check(&mut head, 100_600_001, "future");
        check(&mut head, i64::MIN, "future");
        head.clock_ms = None;
        check(&mut head, i64::MAX, "future");
        head.newest_ms = 100_700_000 + Config::default().raw_ms;
        check(&mut head, 100_699_999, "expired");
        check(&mut head, 100_700_000, "accepted");
        let sample = Sample {
            at_ms: 0,
            value: 0.0,
        };
        let found = head.append(&Config::default(), &[(SeriesId(1), sample)]);
        assert_eq!(found.unknown, 1);
        assert_eq!((head.appended.accepted, head.appended.refused()), (4, 6));
    }

    #[test]
    fn groups_are_held_as_long_as_samples_need_them() {
        let mut head = head();
        check(&mut head, 60_000, "accepted");
        head.next_group = 5;
        check(&mut head, 120_000, "accepted");
        head.next_group = 9;
        check(&mut head, 121_000, "accepted");
        assert_eq!(head.unsealed_from(), 1);
        head.remove_sealed(0, 1);
        assert_eq!(head.unsealed_from(), 5);
        assert_eq!(head.of(0).sealed_to_ms, 60_000);
        head.remove_sealed(0, 2);
        assert_eq!((head.unsealed_from(), head.samples), (9, 0));
    }

    /// Samples before midnight are sealed alone when their day goes. Found by `sheaf sim torture --kind monitor`, seeds
    /// 198 and 254: the samples of the minutes after it were lost with the next death.
    #[test]
    fn groups_of_minutes_before_the_latest_are_held_as_well() {
        let mut head = head();
        for (group, at_ms) in [(2, 60_000), (3, 120_000), (4, 180_000)] {
            head.next_group = group;
            check(&mut head, at_ms, "accepted");
        }
        head.next_group = 5;
        head.remove_sealed(0, 1);
        assert!(head.unsealed_from() <= 3, "{}", head.unsealed_from());
        assert!(head.pending.seals[&0].through_group < 3);
        head.remove_sealed(0, 1);
        assert_eq!(head.unsealed_from(), 4);
    }

    #[test]
    fn seals_come_back() {
        let seal = Seal {
            through_group: 7,
            first_ms: -3,
            sealed_to_ms: i64::MAX,
        };
        assert_eq!(Seal::decode(&seal.encode()), Some(seal));
        assert_eq!(Seal::decode(&[0; 23]), None);
    }
}
