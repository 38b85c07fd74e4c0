//! Periodic work on a store: sealing, writing tables, deriving coarser levels, dropping what is old.
//!
//! All of it happens in calls of the driver, in bounded steps; a step that fails leaves everything as it was and is
//! repeated at the next call.

use crate::disk::Disk;
use crate::head::{Head, Pending};
use crate::layers::Layers;
use crate::level::{Kind, fold, merge};
use crate::seal::{due, record, seal};
use crate::store::StoreError;
use crate::tables::WRITING;
use sheaf_protect::protect;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

/// Calls in which each series is looked at once.
const SWEEP_CALLS: usize = 32;
/// Samples that one call seals at most, per ms since the call before: four times the rate of the largest farm, and at
/// least and at most so many.
const SEALED_PER_MS: i64 = 2_500;
const SEALED_MIN: i64 = 150_000;
const SEALED_MAX: i64 = 3_000_000;
/// Bytes from which on a file of the log is closed when tables were written.
const LOG_FILE_MIN: u64 = 64 << 10;
/// Samples or buckets that one call reads to derive a level.
const DERIVED_MAX: usize = 300_000;

/// Progress of upkeep between calls.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    next_series: usize,
    last_ms: Option<i64>,
    unflushed_since_ms: Option<i64>,
    deriving: Option<Deriving>,
}

/// A partition of which a coarser level is being derived.
#[derive(Clone, Copy, Debug)]
struct Deriving {
    from: Kind,
    partition: i64,
    next_series: u32,
}

/// The level that is derived when a partition of `kind` is over.
fn coarser(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Raw => Some(Kind::TenSeconds),
        Kind::Minute => Some(Kind::Hour),
        Kind::TenSeconds | Kind::Hour => None,
    }
}

impl Disk {
    pub(crate) fn lock_upkeep(&self) -> MutexGuard<'_, Upkeep> {
        self.upkeep.lock().expect("no panic while it is held")
    }

    pub(crate) fn keep_up(&self, now_ms: i64) -> Result<(), StoreError> {
        let mut upkeep = self.lock_upkeep();
        self.seal_due(&mut upkeep, now_ms)?;
        let bytes = self.read().pending.bytes;
        let since_ms = match upkeep.unflushed_since_ms {
            Some(since_ms) if bytes > 0 => since_ms,
            _ => now_ms,
        };
        upkeep.unflushed_since_ms = (bytes > 0).then_some(since_ms);
        let age_ms = now_ms.saturating_sub(since_ms);
        if bytes >= self.config.flush_bytes || age_ms >= self.config.flush_age_ms {
            self.write_tables()?;
            upkeep.unflushed_since_ms = None;
        }
        self.derive(&mut upkeep)?;
        self.drop_old()
    }

    /// Seals series that are due, a part of all in each call.
    fn seal_due(&self, upkeep: &mut Upkeep, now_ms: i64) -> Result<(), StoreError> {
        let mut head = self.write();
        head.clock_ms = Some(now_ms);
        // A disk that is full for long must not fill memory with chunks; samples are refused before that.
        if head.pending.bytes > self.config.flush_bytes.saturating_mul(8) {
            return Ok(());
        }
        let elapsed_ms = now_ms.saturating_sub(upkeep.last_ms.unwrap_or(now_ms));
        upkeep.last_ms = Some(now_ms);
        let budget = elapsed_ms.saturating_mul(SEALED_PER_MS);
        let mut budget = budget.clamp(SEALED_MIN, SEALED_MAX);
        let is_tight = head.bytes() > self.config.head_bytes_max / 4 * 3;
        let total = head.series.len();
        let calls = if is_tight { 1 } else { SWEEP_CALLS };
        for _ in 0..total.div_ceil(calls) {
            if budget <= 0 {
                break;
            }
            upkeep.next_series = (upkeep.next_series + 1) % total;
            let id = u32::try_from(upkeep.next_series).expect("series have 32 bits");
            let series = head.of(id);
            let mut count = due(&self.config, id, series, now_ms);
            if is_tight && count == 0 && series.samples.len() >= self.config.seal_samples / 4 {
                count = series.samples.len();
            }
            if count > 0 {
                seal(&mut head, &self.tables, id, count)?;
                self.count_sealed(count);
                budget -= i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
        Ok(())
    }

    fn count_sealed(&self, count: usize) {
        self.chunks_sealed.fetch_add(1, Relaxed);
        self.samples_sealed.fetch_add(count as u64, Relaxed);
    }

    /// Seals all samples and writes all chunks to tables; for snapshots, checks and exports.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is no room; content stays in memory and in the log.
    pub fn flush(&self) -> Result<(), StoreError> {
        let _upkeep = self.lock_upkeep();
        self.seal_all()
    }

    /// As [`flush`](Self::flush), for a caller that has the lock of upkeep.
    pub(crate) fn seal_all(&self) -> Result<(), StoreError> {
        let total = self.read().index.len();
        for id in 0..total {
            let mut head = self.write();
            let count = head.of(id).samples.len();
            if count > 0 {
                seal(&mut head, &self.tables, id, count)?;
                self.count_sealed(count);
            }
            let is_much = head.pending.bytes >= self.config.flush_bytes;
            drop(head);
            if is_much {
                self.write_tables()?;
            }
        }
        self.write_tables()
    }

    /// Merges tables, so that no space is taken by what was replaced.
    ///
    /// # Errors
    ///
    /// If the tables cannot be written.
    pub fn compact(&self) -> Result<(), StoreError> {
        let _upkeep = self.lock_upkeep();
        self.check_space()?;
        self.tables.compact()
    }

    /// Writes what waits to tables, and drops the part of the log that is in tables then.
    pub(crate) fn write_tables(&self) -> Result<(), StoreError> {
        self.check_space()?;
        self.write_tables_now()
    }

    /// As [`write_tables`](Self::write_tables), into the reserve of the disk as well.
    fn write_tables_now(&self) -> Result<(), StoreError> {
        {
            let head = self.read();
            if head.pending.is_empty() && head.written_series == head.index.len() {
                return Ok(());
            }
        }
        // A death between chunks and seals repeats the chunks from the log, which has to have all their samples.
        self.commit_group()?;
        let (pending, series, unsealed_from) = {
            let mut head = self.write();
            let mut pending = std::mem::take(&mut head.pending);
            let borders = head.borders;
            pending.rows.retain(|&(kind, _, start_ms), _| {
                (kind.partition(start_ms) + 1) * kind.partition_ms() > borders.dropped_to(kind)
            });
            let pending = Arc::new(pending);
            head.flushing = Some(Arc::clone(&pending));
            let new = head.written_series..head.index.len();
            let labels = |id| Some((id, Arc::clone(head.index.labels(id)?)));
            let series: Vec<_> = new.filter_map(labels).collect();
            (pending, series, head.unsealed_from())
        };
        let written = self.put_all(&pending, &series);
        let mut head = self.write();
        head.flushing = None;
        if let Err(error) = written {
            head.pending.add_older(&pending);
            return Err(error);
        }
        if let Some((id, _)) = series.last() {
            head.written_series = id + 1;
        }
        drop(head);
        let mut log = self.lock_log();
        log.rotate(LOG_FILE_MIN);
        let dropped_below = protect!(LogUntilSealed, unsealed_from, else log.next());
        log.drop_below(dropped_below)
    }

    /// Series before what refers to them, seals after what they speak of: a crash in between repeats, and loses
    /// nothing.
    fn put_all(
        &self,
        pending: &Pending,
        series: &[(u32, Arc<sheaf_samples::Labels>)],
    ) -> Result<(), StoreError> {
        protect!(SealsLast, else self.tables.put_seals(
            pending.seals.iter().map(|(&id, seal)| (id, seal.encode()))
        )?);
        self.tables.put_mark(WRITING, 1)?;
        self.tables
            .put_series(series.iter().map(|(id, labels)| (*id, labels.as_bytes())))?;
        for kind in Kind::ALL {
            let first = (kind, 0, i64::MIN);
            let rows = pending.rows.range(first..=(kind, u32::MAX, i64::MAX));
            let rows = rows.map(|(&(_, id, start_ms), frame)| (id, start_ms, frame));
            self.tables.put(kind, rows)?;
        }
        let seals = pending.seals.iter();
        self.tables
            .put_seals(seals.map(|(&id, seal)| (id, seal.encode())))?;
        self.tables.put_mark(WRITING, 0)
    }

    /// Time that retention goes by: of a clock that jumps ahead, only as much as samples confirm.
    fn retention_now(head: &Head) -> Option<i64> {
        let clock_ms = head.clock_ms?;
        Some(clock_ms.min(head.newest_ms))
    }

    /// Derives a coarser level of partitions that are over, some series in each call.
    fn derive(&self, upkeep: &mut Upkeep) -> Result<(), StoreError> {
        let mut deriving = match upkeep.deriving {
            Some(deriving) => deriving,
            None => match self.next_to_derive() {
                Some(deriving) => deriving,
                None => return Ok(()),
            },
        };
        let Some(to) = coarser(deriving.from) else {
            return Ok(());
        };
        let begin_ms = deriving.partition * deriving.from.partition_ms();
        let end_ms = begin_ms + deriving.from.partition_ms();
        let mut read = 0;
        let total = self.read().index.len();
        // Late samples of series that are done already bring their records up to date when they are sealed.
        match to {
            Kind::TenSeconds => self.write().refreshed.ten_seconds_to = end_ms,
            _ => self.write().refreshed.hours_to = end_ms,
        }
        while deriving.next_series < total && read < DERIVED_MAX {
            let id = deriving.next_series;
            let head = self.read();
            let layers = Layers::new(&head.pending, head.flushing.as_deref(), &self.tables);
            let mut buckets = Vec::new();
            if to == Kind::Hour {
                let minutes = layers.buckets(Kind::Minute, id, begin_ms, end_ms - 1)?;
                read += minutes.len() + 10;
                buckets = merge(to.level_ms(), &minutes);
            } else {
                let mut samples = Vec::new();
                layers.samples(id, begin_ms, end_ms - 1, &mut samples)?;
                read += samples.len() + 10;
                fold(to.level_ms(), &samples, &mut buckets);
            }
            drop(head);
            let mut head = self.write();
            for buckets in
                buckets.chunk_by(|left, right| to.span(left.start_ms) == to.span(right.start_ms))
            {
                let span_ms = to.span(buckets[0].start_ms);
                let record = record(id, span_ms, buckets);
                head.pending.insert(to, id, span_ms, record);
            }
            let is_much = head.pending.bytes >= self.config.flush_bytes;
            drop(head);
            deriving.next_series += 1;
            if is_much {
                self.write_tables()?;
            }
        }
        upkeep.deriving = Some(deriving);
        if deriving.next_series == total {
            self.write_tables()?;
            self.tables
                .put_mark(&format!("derived.{}", to.name()), end_ms)?;
            let mut head = self.write();
            match to {
                Kind::TenSeconds => head.borders.ten_seconds_to = end_ms,
                _ => head.borders.hours_to = end_ms,
            }
            upkeep.deriving = None;
        }
        Ok(())
    }

    /// The oldest partition that is over and of which the coarser level is not derived.
    fn next_to_derive(&self) -> Option<Deriving> {
        let head = self.read();
        let now_ms = Self::retention_now(&head)?;
        let settle_ms = self.config.late_ms + 2 * self.config.seal_age_ms;
        for from in [Kind::Raw, Kind::Minute] {
            let done_ms = head.borders.derived_to(coarser(from)?);
            let end_ms = |number: i64| (number + 1) * from.partition_ms();
            let is_next = |&number: &i64| end_ms(number) > done_ms;
            // Those that wait for their tables too: the border never comes back to a partition.
            let mut partitions = self.tables.partitions(from);
            partitions.extend(head.pending.partitions(from));
            let oldest = partitions.into_iter().find(is_next);
            if let Some(partition) = oldest
                && end_ms(partition).saturating_add(settle_ms) <= now_ms
            {
                return Some(Deriving {
                    from,
                    partition,
                    next_series: 0,
                });
            }
        }
        None
    }

    /// Drops partitions that are older than their kind is kept.
    fn drop_old(&self) -> Result<(), StoreError> {
        let Some(now_ms) = Self::retention_now(&self.read()) else {
            return Ok(());
        };
        for kind in Kind::ALL {
            let keep_from_ms = now_ms.saturating_sub(self.config.retention_ms(kind));
            for number in self.tables.partitions(kind) {
                let end_ms = (number + 1) * kind.partition_ms();
                if end_ms > keep_from_ms || !self.may_drop(kind, end_ms) {
                    break;
                }
                self.drop_one(kind, number)?;
            }
        }
        Ok(())
    }

    /// Samples and minutes go only after the level above them was derived.
    fn may_drop(&self, kind: Kind, end_ms: i64) -> bool {
        let borders = self.read().borders;
        let is_derived = |to| borders.derived_to(to) >= end_ms;
        protect!(DerivedBeforeDropped, requires coarser(kind).is_none_or(is_derived))
    }

    /// Seals samples before `end_ms`, which are about to go: their buckets can be computed now, and not later. Returns
    /// whether there were some.
    fn seal_before(&self, end_ms: i64) -> Result<bool, StoreError> {
        let mut is_any = false;
        // Not in the head of the loop, which would hold the lock.
        let total = self.read().index.len();
        for id in 0..total {
            let mut head = self.write();
            let samples = &head.of(id).samples;
            let count = samples.partition_point(|one| one.at_ms < end_ms);
            if count > 0 {
                seal(&mut head, &self.tables, id, count)?;
                self.count_sealed(count);
                is_any = true;
            }
        }
        Ok(is_any)
    }

    fn drop_one(&self, kind: Kind, number: i64) -> Result<(), StoreError> {
        let end_ms = (number + 1) * kind.partition_ms();
        if kind == Kind::Raw {
            let is_sealed = self.seal_before(end_ms)?;
            let waits = |head: &Head| head.pending.partitions(kind).any(|one| one <= number);
            let is_waiting = is_sealed || waits(&self.read());
            if is_waiting {
                self.write_tables_now()?;
            }
        }
        // An older partition may have come after one that is dropped already.
        let dropped_to_ms = end_ms.max(self.read().borders.dropped_to(kind));
        self.tables
            .put_mark(&format!("dropped.{}", kind.name()), dropped_to_ms)?;
        let mut head = self.write();
        head.borders.set_dropped_to(kind, end_ms);
        head.refreshed.set_dropped_to(kind, end_ms);
        drop(head);
        self.tables.drop_partition(kind, number)
    }

    /// Drops the oldest day of samples before its time, if it is over and its buckets are derived; for a disk that is
    /// full. Returns the begin of that day.
    ///
    /// # Errors
    ///
    /// If the tables cannot be written.
    pub fn free_oldest_raw(&self) -> Result<Option<i64>, StoreError> {
        let _upkeep = self.lock_upkeep();
        let oldest = self.tables.partitions(Kind::Raw).first().copied();
        let Some(number) = oldest else {
            return Ok(None);
        };
        if !self.may_drop(Kind::Raw, (number + 1) * Kind::Raw.partition_ms()) {
            return Ok(None);
        }
        self.drop_one(Kind::Raw, number)?;
        Ok(Some(number * Kind::Raw.partition_ms()))
    }
}
