//! Records of one series in a store: on disk, in flight, and in memory.
//!
//! A record may be in memory, waiting for its table or being written, and in a table; the newest version counts.

use crate::chunk;
use crate::head::Pending;
use crate::level::{self, Kind};
use crate::record::payload;
use crate::store::StoreError;
use crate::tables::{Tables, damaged, key};
use fjall::Slice;
use sheaf_samples::{Bucket, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Bytes of a record, from memory or from a table.
pub(crate) enum Frame {
    Memory(Arc<[u8]>),
    Table(Slice),
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Table(bytes) => bytes,
        }
    }
}

/// Records of memory, the newest first, above those of tables.
pub(crate) struct Layers<'a> {
    memory: [Option<&'a Pending>; 2],
    tables: &'a Tables,
}

impl<'a> Layers<'a> {
    pub(crate) fn new(
        pending: &'a Pending,
        flushing: Option<&'a Pending>,
        tables: &'a Tables,
    ) -> Self {
        Self {
            memory: [Some(pending), flushing],
            tables,
        }
    }

    fn memory(&self) -> impl DoubleEndedIterator<Item = &'a Pending> {
        self.memory.into_iter().flatten()
    }

    /// Numbers of the partitions of `kind` that have records from `from_ms` to `to_ms`.
    fn partitions(&self, kind: Kind, from_ms: i64, to_ms: i64) -> BTreeSet<i64> {
        let range = kind.partition(from_ms)..=kind.partition(to_ms);
        let mut partitions = self.tables.partitions(kind);
        for pending in self.memory() {
            partitions.extend(pending.partitions(kind));
        }
        partitions.retain(|number| range.contains(number));
        partitions
    }

    /// The record of `kind` that begins at `start_ms`.
    fn get(&self, kind: Kind, series: u32, start_ms: i64) -> Result<Option<Frame>, StoreError> {
        for pending in self.memory() {
            if let Some(frame) = pending.rows.get(&(kind, series, start_ms)) {
                return Ok(Some(Frame::Memory(Arc::clone(frame))));
            }
        }
        Ok(self.tables.get(kind, series, start_ms)?.map(Frame::Table))
    }

    /// The latest record of `kind` that begins at `at_ms` or before it, in the partition of `at_ms`.
    pub(crate) fn before(
        &self,
        kind: Kind,
        series: u32,
        at_ms: i64,
    ) -> Result<Option<(i64, Frame)>, StoreError> {
        let begin_ms = kind.partition(at_ms) * kind.partition_ms();
        let mut found: Option<(i64, Frame)> = None;
        for pending in self.memory() {
            let range = (kind, series, begin_ms)..=(kind, series, at_ms);
            if let Some((&(_, _, start_ms), frame)) = pending.rows.range(range).next_back()
                && found.as_ref().is_none_or(|found| found.0 < start_ms)
            {
                found = Some((start_ms, Frame::Memory(Arc::clone(frame))));
            }
        }
        match self.tables.before(kind, series, at_ms)? {
            Some((start_ms, frame)) if found.as_ref().is_none_or(|found| found.0 < start_ms) => {
                Ok(Some((start_ms, Frame::Table(frame))))
            }
            _ => Ok(found),
        }
    }

    /// Records of `kind` that begin within `starts`, which lie in one partition, by their starts.
    pub(crate) fn range(
        &self,
        kind: Kind,
        series: u32,
        starts: RangeInclusive<i64>,
    ) -> Result<BTreeMap<i64, Frame>, StoreError> {
        if starts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (from_ms, to_ms) = (*starts.start(), *starts.end());
        let rows = self.tables.range(kind, series, starts)?.into_iter();
        let mut rows: BTreeMap<i64, Frame> = rows
            .map(|(start_ms, frame)| (start_ms, Frame::Table(frame)))
            .collect();
        for pending in self.memory().rev() {
            let range = (kind, series, from_ms)..=(kind, series, to_ms);
            for (&(_, _, start_ms), frame) in pending.rows.range(range) {
                rows.insert(start_ms, Frame::Memory(Arc::clone(frame)));
            }
        }
        Ok(rows)
    }

    /// Appends the samples in chunks from `from_ms` to `to_ms`, both included, to `out`, sorted.
    pub(crate) fn samples(
        &self,
        series: u32,
        from_ms: i64,
        to_ms: i64,
        out: &mut Vec<Sample>,
    ) -> Result<(), StoreError> {
        let mut decode = |start_ms: i64, frame: &Frame| {
            read_chunk(series, start_ms, frame.as_ref(), from_ms, to_ms, out)
        };
        for number in self.partitions(Kind::Raw, from_ms, to_ms) {
            let (begin_ms, end_ms) = bounds(Kind::Raw, number, from_ms, to_ms);
            if let Some((start_ms, frame)) = self.before(Kind::Raw, series, begin_ms)? {
                decode(start_ms, &frame)?;
            }
            // Of one start at most, `before` has it.
            let rest = begin_ms.saturating_add(1)..=end_ms;
            for (start_ms, frame) in self.range(Kind::Raw, series, rest)? {
                decode(start_ms, &frame)?;
            }
        }
        Ok(())
    }

    /// Returns the buckets in records of `kind` that begin from `from_ms` to `to_ms`, both included, sorted.
    pub(crate) fn buckets(
        &self,
        kind: Kind,
        series: u32,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Bucket>, StoreError> {
        let mut out = Vec::new();
        for number in self.partitions(kind, from_ms, to_ms) {
            let (begin_ms, end_ms) = bounds(kind, number, from_ms, to_ms);
            let (first, last) = (kind.span(begin_ms), kind.span(end_ms));
            if first == last {
                if let Some(frame) = self.get(kind, series, first)? {
                    out.append(&mut read_buckets(kind, series, first, frame.as_ref())?);
                }
                continue;
            }
            for (start_ms, frame) in self.range(kind, series, first..=last)? {
                out.append(&mut read_buckets(kind, series, start_ms, frame.as_ref())?);
            }
        }
        out.retain(|bucket| (from_ms..=to_ms).contains(&bucket.start_ms));
        Ok(out)
    }

    /// Returns the buckets of one record, none if there is no such record.
    pub(crate) fn span(
        &self,
        kind: Kind,
        series: u32,
        start_ms: i64,
    ) -> Result<Vec<Bucket>, StoreError> {
        match self.get(kind, series, start_ms)? {
            Some(frame) => read_buckets(kind, series, start_ms, frame.as_ref()),
            None => Ok(Vec::new()),
        }
    }
}

/// The part of a partition from `from_ms` to `to_ms`, both included.
fn bounds(kind: Kind, number: i64, from_ms: i64, to_ms: i64) -> (i64, i64) {
    let begin_ms = number * kind.partition_ms();
    let last_ms = begin_ms + (kind.partition_ms() - 1);
    (from_ms.max(begin_ms), to_ms.min(last_ms))
}

/// Appends the samples of the chunk `frame` from `from_ms` to `to_ms` to `out`.
pub(crate) fn read_chunk(
    series: u32,
    start_ms: i64,
    frame: &[u8],
    from_ms: i64,
    to_ms: i64,
    out: &mut Vec<Sample>,
) -> Result<(), StoreError> {
    payload(&key(series, start_ms), frame)
        .and_then(|payload| chunk::decode(payload, from_ms, to_ms, out))
        .map_err(|damage| damaged("raw", &format!("{series} at {start_ms}"), damage))
}

/// Returns the buckets of the record `frame`.
pub(crate) fn read_buckets(
    kind: Kind,
    series: u32,
    start_ms: i64,
    frame: &[u8],
) -> Result<Vec<Bucket>, StoreError> {
    payload(&key(series, start_ms), frame)
        .and_then(|payload| level::decode(kind, payload))
        .map_err(|damage| damaged(kind.name(), &format!("{series} at {start_ms}"), damage))
}
