//! How do samples leave memory?
//!
//! Sealing takes the oldest samples of a series, makes chunks of them, and brings the records of buckets that they
//! belong to up to date. A cut at the end of a minute is preferred: buckets then follow from the sealed samples alone.
//! Late samples go into the chunk that covers their time.

use crate::chunk;
use crate::config::Config;
use crate::head::{Head, SeriesHead};
use crate::layers::{Layers, read_chunk};
use crate::level::{self, Kind, fold, replace};
use crate::record::frame;
use crate::store::StoreError;
use crate::tables::{Tables, key};
use sheaf_protect::protect;
use sheaf_samples::{Bucket, Sample};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many samples of a series are due to become a chunk.
///
/// The first chunks of series are of different lengths, by the number of the series, so that series that began together
/// are not due together.
pub(crate) fn due(config: &Config, id: u32, series: &SeriesHead, clock_ms: i64) -> usize {
    let count = series.samples.len();
    let Some(last) = series.samples.last() else {
        return 0;
    };
    let is_first = series.sealed_to_ms == i64::MIN;
    // Half to the whole, spread evenly over consecutive numbers.
    let spread = u64::from(id.wrapping_mul(0x9e37_79b1) >> 16);
    let part = |whole: u64| {
        if is_first {
            whole / 2 + whole / 2 * spread / 0x1_0000
        } else {
            whole
        }
    };
    let age_ms = clock_ms.saturating_sub(series.since_ms);
    let age_max_ms = part(config.seal_age_ms.unsigned_abs()).cast_signed();
    let is_old = age_ms >= age_max_ms;
    if (count as u64) < part(config.seal_samples as u64) && !is_old {
        return 0;
    }
    let minute_ms = Bucket::start(last.at_ms, Kind::Minute.level_ms());
    if is_old && clock_ms.saturating_sub(minute_ms) >= Kind::Minute.level_ms() {
        return count;
    }
    for level_ms in [Kind::Minute.level_ms(), Kind::TenSeconds.level_ms()] {
        let cut_ms = Bucket::start(last.at_ms, level_ms);
        let sealed = series.samples.partition_point(|one| one.at_ms < cut_ms);
        if sealed >= count / 2 {
            return sealed;
        }
    }
    count
}

/// Seals the first `count` samples of a series.
pub(crate) fn seal(
    head: &mut Head,
    tables: &Tables,
    id: u32,
    count: usize,
) -> Result<(), StoreError> {
    let series = head.of(id);
    let sealed_to_ms = series.sealed_to_ms;
    let samples = series.samples[..count].to_vec();
    let late = samples.partition_point(|one| one.at_ms <= sealed_to_ms);
    let (late, fresh) = samples.split_at(late);
    insert_late(head, tables, id, late)?;
    insert_chunks(head, id, fresh);
    for kind in [Kind::TenSeconds, Kind::Minute, Kind::Hour] {
        let summed = protect!(BucketsRefreshed, &samples[..], else fresh);
        refresh(head, tables, kind, id, summed, sealed_to_ms)?;
    }
    head.remove_sealed(id, count);
    Ok(())
}

/// Makes chunks of samples of one series that no chunk covers.
fn insert_chunks(head: &mut Head, id: u32, samples: &[Sample]) {
    let day = |sample: &Sample| Kind::Raw.partition(sample.at_ms);
    for samples in samples.chunk_by(|left, right| day(left) == day(right)) {
        for samples in samples.chunks(chunk::SAMPLES_MAX) {
            let start_ms = samples[0].at_ms;
            let bytes = frame(&key(id, start_ms), &chunk::encode(samples));
            head.pending.insert(Kind::Raw, id, start_ms, bytes.into());
        }
    }
}

fn insert_late(
    head: &mut Head,
    tables: &Tables,
    id: u32,
    late: &[Sample],
) -> Result<(), StoreError> {
    let mut rest = late;
    while let Some(first) = rest.first() {
        let flushing = head.flushing.clone();
        let layers = Layers::new(&head.pending, flushing.as_deref(), tables);
        let covering = layers.before(Kind::Raw, id, first.at_ms)?;
        // The chunk takes what lies before the next one, so chunks do not overlap.
        let last_of_day = (Kind::Raw.partition(first.at_ms) + 1) * Kind::Raw.partition_ms() - 1;
        let behind = layers.range(Kind::Raw, id, first.at_ms + 1..=last_of_day)?;
        let end_ms = behind
            .first_key_value()
            .map_or(last_of_day + 1, |pair| *pair.0);
        let count = rest.partition_point(|one| one.at_ms < end_ms);
        let (now, later) = rest.split_at(count);
        let mut samples = Vec::new();
        if let Some((start_ms, frame)) = protect!(LateMerged, covering, else None) {
            read_chunk(
                id,
                start_ms,
                frame.as_ref(),
                i64::MIN,
                i64::MAX,
                &mut samples,
            )?;
        }
        insert_chunks(head, id, &overlay(samples, now));
        rest = later;
    }
    Ok(())
}

/// Returns the samples of both, sorted; at equal times those of `newer`. Both are sorted.
pub(crate) fn overlay(older: Vec<Sample>, newer: &[Sample]) -> Vec<Sample> {
    let is_behind = match (older.last(), newer.first()) {
        (Some(last), Some(first)) => last.at_ms < first.at_ms,
        _ => true,
    };
    let mut out = older;
    if is_behind {
        out.extend_from_slice(newer);
        return out;
    }
    let times: BTreeSet<i64> = newer.iter().map(|one| one.at_ms).collect();
    out.retain(|one| !times.contains(&one.at_ms));
    out.extend_from_slice(newer);
    out.sort_by_key(|one| one.at_ms);
    out
}

/// Brings the records of `kind` up to date with `samples`, which are in chunks now; before, chunks reached to
/// `sealed_to_ms`.
fn refresh(
    head: &mut Head,
    tables: &Tables,
    kind: Kind,
    id: u32,
    samples: &[Sample],
    sealed_to_ms: i64,
) -> Result<(), StoreError> {
    let border_ms = head.refreshed.derived_to(kind);
    let level_ms = kind.level_ms();
    let mut windows = level::windows(level_ms, samples);
    windows.retain(|&start_ms| start_ms < border_ms);
    if windows.is_empty() {
        return Ok(());
    }
    let flushing = head.flushing.clone();
    let layers = Layers::new(&head.pending, flushing.as_deref(), tables);
    let mut buckets = Vec::new();
    let known = windows.partition_point(|&start_ms| kind == Kind::Hour || start_ms <= sealed_to_ms);
    for &start_ms in &windows[..known] {
        buckets.extend(recompute(&layers, kind, id, start_ms)?);
    }
    if let Some(&from_ms) = windows.get(known) {
        let begin = samples.partition_point(|one| one.at_ms < from_ms);
        let end = samples.partition_point(|one| one.at_ms < border_ms);
        fold(level_ms, &samples[begin..end], &mut buckets);
    }
    let mut records = Vec::new();
    for windows in windows.chunk_by(|&left, &right| kind.span(left) == kind.span(right)) {
        let span_ms = kind.span(windows[0]);
        let begin = buckets.partition_point(|one| one.start_ms < span_ms);
        let end = buckets.partition_point(|one| kind.span(one.start_ms) <= span_ms);
        let old = layers.span(kind, id, span_ms)?;
        if old.is_empty() && begin == end {
            continue;
        }
        records.push((span_ms, replace(old, windows, &buckets[begin..end])));
    }
    for (span_ms, buckets) in records {
        head.pending
            .insert(kind, id, span_ms, record(id, span_ms, &buckets));
    }
    Ok(())
}

/// Returns the record of `buckets` under its key.
pub(crate) fn record(id: u32, span_ms: i64, buckets: &[Bucket]) -> Arc<[u8]> {
    frame(&key(id, span_ms), &level::encode(buckets)).into()
}

/// Computes the bucket of `kind` at `start_ms` from what is finer: none if there is no sample that counts.
pub(crate) fn recompute(
    layers: &Layers<'_>,
    kind: Kind,
    id: u32,
    start_ms: i64,
) -> Result<Option<Bucket>, StoreError> {
    let last_ms = start_ms + (kind.level_ms() - 1);
    if kind == Kind::Hour {
        let minutes = layers.buckets(Kind::Minute, id, start_ms, last_ms)?;
        return Ok(level::merge(kind.level_ms(), &minutes).pop());
    }
    let mut samples = Vec::new();
    layers.samples(id, start_ms, last_ms, &mut samples)?;
    let mut buckets = Vec::new();
    fold(kind.level_ms(), &samples, &mut buckets);
    Ok(buckets.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: &[i64], value: f64) -> Vec<Sample> {
        let of = |&at_ms: &i64| Sample { at_ms, value };
        times.iter().map(of).collect()
    }

    #[test]
    fn the_newer_of_two_samples_at_one_time_stays() {
        let older = samples(&[1, 2, 3], 1.0);
        let newer = samples(&[2, 4], 2.0);
        let both = overlay(older, &newer);
        let found: Vec<(i64, f64)> = both.iter().map(|one| (one.at_ms, one.value)).collect();
        assert_eq!(found, [(1, 1.0), (2, 2.0), (3, 1.0), (4, 2.0)]);
    }
}
