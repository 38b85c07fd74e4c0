//! Is everything in a store what was written, and do buckets agree with samples?

use crate::chunk;
use crate::disk::Disk;
use crate::head::Seal;
use crate::layers::{Layers, read_buckets};
use crate::level::{self, Kind, fold, is_same, merge};
use crate::record::payload;
use crate::seal::record;
use crate::store::StoreError;
use crate::tables::unkey;
use sheaf_samples::{Bucket, Labels, Sample};
use std::collections::{BTreeMap, BTreeSet};

/// Most findings that a report names; further ones are counted.
const FINDINGS_MAX: usize = 1000;

/// Findings of a check of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Series read.
    pub series: u64,
    /// Chunks read.
    pub chunks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Records of buckets read.
    pub bucket_records: u64,
    /// Buckets compared with what they sum up.
    pub buckets_compared: u64,
    /// Groups of the head log read.
    pub log_groups: u64,
    /// Bytes of the head log that are no groups.
    pub log_bytes_damaged: u64,
    /// Records that are damaged, with table and key.
    pub damaged: Vec<String>,
    /// Chunks that overlap the one before.
    pub overlapping: Vec<String>,
    /// Records of buckets that are missing or say other than what they sum up.
    pub wrong_buckets: Vec<String>,
    /// Findings beyond those named.
    pub unnamed: u64,
    /// Records of buckets that were written again.
    pub repaired: u64,
}

impl FsckReport {
    /// Returns whether nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let named = [&self.damaged, &self.overlapping, &self.wrong_buckets];
        named.iter().all(|list| list.is_empty()) && self.unnamed + self.log_bytes_damaged == 0
    }
}

fn name(list: &mut Vec<String>, unnamed: &mut u64, finding: String) {
    if list.len() < FINDINGS_MAX {
        list.push(finding);
    } else {
        *unnamed += 1;
    }
}

impl Disk {
    /// Reads every record: checksums, order, and whether buckets are what their samples or minutes make.
    ///
    /// With `is_repairing`, records of buckets that are damaged, wrong or missing are written again, where what they
    /// sum up is there. Everything in memory is sealed first. Queries and appends go on meanwhile.
    ///
    /// # Errors
    ///
    /// If the store cannot be read at all, or has no room.
    pub fn fsck(&self, is_repairing: bool) -> Result<FsckReport, StoreError> {
        let _upkeep = self.lock_upkeep();
        self.seal_all()?;
        let mut report = FsckReport::default();
        let replayed = self.lock_log().verify()?;
        report.log_groups = replayed.groups;
        report.log_bytes_damaged = replayed.bytes_damaged;
        self.check_series(&mut report)?;
        for number in self.tables.partitions(Kind::Raw) {
            self.check_chunks(number, &mut report)?;
        }
        for kind in [Kind::TenSeconds, Kind::Minute, Kind::Hour] {
            for number in self.tables.partitions(kind) {
                self.check_buckets(kind, number, &mut report)?;
            }
        }
        let total = self.read().index.len();
        for id in 0..total {
            for kind in [Kind::TenSeconds, Kind::Minute, Kind::Hour] {
                self.compare(kind, id, is_repairing, &mut report)?;
            }
        }
        if is_repairing {
            self.write_tables()?;
        }
        Ok(report)
    }

    fn check_series(&self, report: &mut FsckReport) -> Result<(), StoreError> {
        let mut expected = 0;
        self.tables.series(|id, payload| {
            report.series += 1;
            let is_good = payload.is_ok_and(|bytes| Labels::from_bytes(bytes).is_ok());
            if !is_good || id != expected {
                let finding = format!("record {id} of series");
                name(&mut report.damaged, &mut report.unnamed, finding);
            }
            expected = id + 1;
        })?;
        self.tables.seals(|id, payload| {
            if payload.ok().and_then(Seal::decode).is_none() {
                let finding = format!("record {id} of seals");
                name(&mut report.damaged, &mut report.unnamed, finding);
            }
        })
    }

    fn check_chunks(&self, number: i64, report: &mut FsckReport) -> Result<(), StoreError> {
        let Some(rows) = self.tables.scan(Kind::Raw, number) else {
            return Ok(());
        };
        let mut last: Option<(u32, i64)> = None;
        let mut samples: Vec<Sample> = Vec::new();
        for guard in rows {
            let (key, frame) = match guard.into_inner() {
                Ok(row) => row,
                Err(error) => {
                    let finding = format!("table raw.{number}: {error}");
                    name(&mut report.damaged, &mut report.unnamed, finding);
                    break;
                }
            };
            report.chunks += 1;
            samples.clear();
            let read = payload(&key, &frame).and_then(|payload| {
                chunk::decode(payload, i64::MIN, i64::MAX, &mut samples)?;
                chunk::extent(payload)
            });
            let place = format!("record {:?} of raw.{number}", unkey(&key));
            match (read, unkey(&key)) {
                (Ok(extent), Some((id, start_ms))) if extent.first_ms == start_ms => {
                    report.samples += samples.len() as u64;
                    if last.is_some_and(|last| last.0 == id && last.1 >= start_ms) {
                        name(&mut report.overlapping, &mut report.unnamed, place);
                    }
                    last = Some((id, extent.last_ms));
                }
                _ => name(&mut report.damaged, &mut report.unnamed, place),
            }
        }
        Ok(())
    }

    fn check_buckets(
        &self,
        kind: Kind,
        number: i64,
        report: &mut FsckReport,
    ) -> Result<(), StoreError> {
        let Some(rows) = self.tables.scan(kind, number) else {
            return Ok(());
        };
        for guard in rows {
            let (key, frame) = match guard.into_inner() {
                Ok(row) => row,
                Err(error) => {
                    let finding = format!("table {}.{number}: {error}", kind.name());
                    name(&mut report.damaged, &mut report.unnamed, finding);
                    break;
                }
            };
            report.bucket_records += 1;
            let read = payload(&key, &frame).and_then(|payload| level::decode(kind, payload));
            let is_in_place = |buckets: &[Bucket]| {
                let spans = buckets.iter().map(|one| kind.span(one.start_ms));
                unkey(&key)
                    .is_some_and(|(_, start_ms)| spans.into_iter().all(|one| one == start_ms))
            };
            if !read.is_ok_and(|buckets| is_in_place(&buckets)) {
                let finding = format!("record {:?} of {}.{number}", unkey(&key), kind.name());
                name(&mut report.damaged, &mut report.unnamed, finding);
            }
        }
        Ok(())
    }

    /// Compares the records of one series with what they sum up, as far as that is kept.
    fn compare(
        &self,
        kind: Kind,
        id: u32,
        is_repairing: bool,
        report: &mut FsckReport,
    ) -> Result<(), StoreError> {
        let finer = if kind == Kind::Hour {
            Kind::Minute
        } else {
            Kind::Raw
        };
        for number in self.tables.partitions(finer) {
            let head = self.read();
            let begin_ms = number * finer.partition_ms();
            let end_ms = begin_ms + finer.partition_ms();
            if end_ms > head.borders.derived_to(kind) || begin_ms < head.borders.dropped_to(kind) {
                continue;
            }
            let layers = Layers::new(&head.pending, head.flushing.as_deref(), &self.tables);
            let spans = kind.span(begin_ms)..=end_ms - 1;
            let (Ok(expected), Ok(rows)) = (
                expected(&layers, kind, id, begin_ms, end_ms - 1),
                layers.range(kind, id, spans),
            ) else {
                // Named where the records were read.
                continue;
            };
            let mut wrong: BTreeSet<i64> = BTreeSet::new();
            let mut found: BTreeMap<i64, Bucket> = BTreeMap::new();
            for (span_ms, frame) in rows {
                match read_buckets(kind, id, span_ms, frame.as_ref()) {
                    Ok(buckets) => found.extend(buckets.into_iter().map(|one| (one.start_ms, one))),
                    Err(_) => _ = wrong.insert(span_ms),
                }
            }
            found.retain(|&start_ms, _| start_ms >= begin_ms && start_ms < end_ms);
            for bucket in &expected {
                report.buckets_compared += 1;
                let one = found.remove(&bucket.start_ms);
                if one.is_none_or(|one| !is_same(&one, bucket)) {
                    wrong.insert(kind.span(bucket.start_ms));
                }
            }
            wrong.extend(found.keys().map(|&start_ms| kind.span(start_ms)));
            drop(head);
            for span_ms in wrong {
                let finding = format!("record ({id}, {span_ms}) of {}", kind.name());
                name(&mut report.wrong_buckets, &mut report.unnamed, finding);
                let of_span: Vec<Bucket> = expected
                    .iter()
                    .filter(|one| kind.span(one.start_ms) == span_ms)
                    .copied()
                    .collect();
                // A record that covers more than is there to compare with stays as it is.
                let is_whole = span_ms >= begin_ms && span_ms + kind.span_ms() <= end_ms;
                if is_repairing && is_whole {
                    let record = record(id, span_ms, &of_span);
                    self.write().pending.insert(kind, id, span_ms, record);
                    report.repaired += 1;
                }
            }
        }
        Ok(())
    }
}

/// Computes the buckets of `kind` from what is finer.
fn expected(
    layers: &Layers<'_>,
    kind: Kind,
    id: u32,
    from_ms: i64,
    to_ms: i64,
) -> Result<Vec<Bucket>, StoreError> {
    if kind == Kind::Hour {
        let minutes = layers.buckets(Kind::Minute, id, from_ms, to_ms)?;
        return Ok(merge(kind.level_ms(), &minutes));
    }
    let mut samples = Vec::new();
    layers.samples(id, from_ms, to_ms, &mut samples)?;
    let mut buckets = Vec::new();
    fold(kind.level_ms(), &samples, &mut buckets);
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::store::Store as _;

    fn disk(dir: &std::path::Path) -> Disk {
        let config = Config {
            reserve_bytes: 0,
            ..Config::default()
        };
        let disk = Disk::open(dir, config).unwrap();
        let id = disk.intern(&Labels::new([("a", "1")]).unwrap()).unwrap();
        let of = |at: i64| Sample {
            at_ms: at * 1000,
            value: 0.25,
        };
        let batch: Vec<_> = (0..10_000).map(|at| (id, of(at))).collect();
        disk.append(&batch).unwrap();
        disk.commit().unwrap();
        disk
    }

    #[test]
    fn a_good_store_is_clean() {
        let dir = tempfile::tempdir().unwrap();
        let report = disk(dir.path()).fsck(false).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((report.series, report.samples), (1, 10_000));
        assert_eq!(report.buckets_compared, 10_000_u64.div_ceil(60));
    }

    #[test]
    fn wrong_and_damaged_buckets_are_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(dir.path());
        disk.flush().unwrap();
        let read = |disk: &Disk| {
            let head = disk.read();
            let layers = Layers::new(&head.pending, None, &disk.tables);
            layers.buckets(Kind::Minute, 0, 0, 10_000_000).unwrap()
        };
        let good = read(&disk);
        let wrong = Bucket {
            sum: 99.0,
            ..good[0]
        };
        let rows = [
            (0, 0, record(0, 0, &[wrong]).to_vec()),
            (0, 3_600_000, b"no record".to_vec()),
        ];
        disk.tables.put(Kind::Minute, rows.into_iter()).unwrap();
        let report = disk.fsck(true).unwrap();
        assert_eq!(report.damaged.len(), 1, "{report:?}");
        assert_eq!((report.wrong_buckets.len(), report.repaired), (2, 2));
        let report = disk.fsck(false).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(read(&disk), good);
    }

    #[test]
    fn damaged_and_overlapping_chunks_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(dir.path());
        disk.flush().unwrap();
        let one = Sample {
            at_ms: 7,
            value: 1.0,
        };
        let overlapping = crate::record::frame(&crate::tables::key(0, 7), &chunk::encode(&[one]));
        let rows = [(0, 7, overlapping), (3, 7, b"no record".to_vec())];
        disk.tables.put(Kind::Raw, rows.into_iter()).unwrap();
        let report = disk.fsck(true).unwrap();
        assert_eq!(
            (report.damaged.len(), report.overlapping.len()),
            (1, 1),
            "{report:?}"
        );
    }
}
