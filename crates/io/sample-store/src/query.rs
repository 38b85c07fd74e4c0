//! Answers of a store on disk to queries.
//!
//! A query copies what memory has of its series under the lock, and reads tables without it. Where chunks and memory
//! have the same time, memory is newer.

use crate::disk::Disk;
use crate::head::{Borders, Head, Pending};
use crate::layers::Layers;
use crate::level::{Kind, fold, merge, replace, windows};
use crate::seal::overlay;
use crate::store::StoreError;
use sheaf_query::{Data, Selection, Series, Source, SourceError};
use sheaf_samples::{Bucket, Labels, Matcher, Sample};
use std::collections::BTreeSet;
use std::sync::Arc;

/// No sample has a time beyond it, in either direction.
const TIME_MAX: i64 = 1 << 50;

/// Part of one series that is in memory.
struct Captured {
    id: u32,
    labels: Arc<Labels>,
    /// Samples from the begin of the selection to the end of its last bucket.
    samples: Vec<Sample>,
    sealed_to_ms: i64,
}

/// Part of a selection that is in memory.
struct Capture {
    series: Vec<Captured>,
    pending: Pending,
    flushing: Option<Arc<Pending>>,
    borders: Borders,
}

impl Capture {
    fn of(head: &Head, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Self {
        let mut capture = Self {
            series: Vec::new(),
            pending: Pending::default(),
            flushing: head.flushing.clone(),
            borders: head.borders,
        };
        for id in head.index.matching(matchers) {
            let series = head.of(id);
            let Some(labels) = head.index.labels(id) else {
                continue;
            };
            if series.first_ms > to_ms || series.last_ms < from_ms {
                continue;
            }
            let begin = series.samples.partition_point(|one| one.at_ms < from_ms);
            let end = series.samples.partition_point(|one| one.at_ms <= to_ms);
            capture.series.push(Captured {
                id,
                labels: Arc::clone(labels),
                samples: series.samples[begin..end].to_vec(),
                sealed_to_ms: series.sealed_to_ms,
            });
            for kind in Kind::ALL {
                let range = (kind, id, i64::MIN)..=(kind, id, i64::MAX);
                for (&(kind, id, start_ms), frame) in head.pending.rows.range(range) {
                    let frame = Arc::clone(frame);
                    capture.pending.insert(kind, id, start_ms, frame);
                }
            }
        }
        capture
    }

    fn layers<'a>(&'a self, disk: &'a Disk) -> Layers<'a> {
        Layers::new(&self.pending, self.flushing.as_deref(), &disk.tables)
    }

    /// All samples of a series from `from_ms` to `to_ms`.
    fn samples(
        layers: &Layers<'_>,
        series: &Captured,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Sample>, StoreError> {
        let mut samples = Vec::new();
        if from_ms <= series.sealed_to_ms {
            layers.samples(
                series.id,
                from_ms,
                to_ms.min(series.sealed_to_ms),
                &mut samples,
            )?;
        }
        let begin = series.samples.partition_point(|one| one.at_ms < from_ms);
        let end = series.samples.partition_point(|one| one.at_ms <= to_ms);
        Ok(overlay(samples, &series.samples[begin..end]))
    }

    /// All samples, and where samples are gone the last one of each bucket of the finest level that is left.
    fn samples_or_lasts(
        &self,
        layers: &Layers<'_>,
        series: &Captured,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Sample>, StoreError> {
        let raw_from_ms = self.borders.dropped_to(Kind::Raw).max(from_ms);
        let mut out = Vec::new();
        let mut end_ms = raw_from_ms.min(to_ms.saturating_add(1));
        let mut parts = Vec::new();
        for kind in [Kind::TenSeconds, Kind::Minute, Kind::Hour] {
            let begin_ms = self.borders.dropped_to(kind).max(from_ms);
            if begin_ms < end_ms {
                parts.push((kind, begin_ms, end_ms - 1));
                end_ms = begin_ms;
            }
        }
        for (kind, begin_ms, last_ms) in parts.into_iter().rev() {
            let first_ms = Bucket::start(begin_ms, kind.level_ms());
            let buckets = layers.buckets(kind, series.id, first_ms, last_ms)?;
            let lasts = buckets.into_iter().map(|bucket| bucket.last);
            out.extend(lasts.filter(|last| (begin_ms..=last_ms).contains(&last.at_ms)));
        }
        if raw_from_ms <= to_ms {
            out.append(&mut Self::samples(layers, series, raw_from_ms, to_ms)?);
        }
        Ok(out)
    }

    /// All buckets of `kind` of a series that begin from `from_ms` to `to_ms`.
    fn buckets(
        &self,
        layers: &Layers<'_>,
        kind: Kind,
        series: &Captured,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Bucket>, StoreError> {
        let border_ms = self.borders.derived_to(kind);
        let level_ms = kind.level_ms();
        // The first bucket that begins within.
        let from_ms = Bucket::start(from_ms + (level_ms - 1), level_ms);
        let mut out = Vec::new();
        if from_ms < border_ms && from_ms <= to_ms {
            let last_ms = to_ms.min(border_ms - 1);
            if from_ms <= series.sealed_to_ms {
                let sealed_ms = last_ms.min(series.sealed_to_ms);
                out = layers.buckets(kind, series.id, from_ms, sealed_ms)?;
            }
            out = self.patched(layers, kind, series, out, from_ms, last_ms)?;
        }
        let begin_ms = from_ms.max(border_ms);
        if begin_ms <= to_ms {
            let end_ms = Bucket::start(to_ms, level_ms) + (level_ms - 1);
            if kind == Kind::Hour {
                let minutes = self.buckets(layers, Kind::Minute, series, begin_ms, end_ms)?;
                out.append(&mut merge(level_ms, &minutes));
            } else {
                let samples = Self::samples(layers, series, begin_ms, end_ms)?;
                fold(level_ms, &samples, &mut out);
            }
        }
        Ok(out)
    }

    /// Replaces the buckets from `from_ms` to `last_ms` of which memory has samples.
    fn patched(
        &self,
        layers: &Layers<'_>,
        kind: Kind,
        series: &Captured,
        out: Vec<Bucket>,
        from_ms: i64,
        last_ms: i64,
    ) -> Result<Vec<Bucket>, StoreError> {
        let level_ms = kind.level_ms();
        let last_ms = Bucket::start(last_ms, level_ms) + (level_ms - 1);
        let end = series.samples.partition_point(|one| one.at_ms <= last_ms);
        let begin = series.samples.partition_point(|one| one.at_ms < from_ms);
        let samples = &series.samples[begin.min(end)..end];
        let windows = windows(level_ms, samples);
        let known = windows.partition_point(|&start_ms| start_ms <= series.sealed_to_ms);
        let mut fresh = Vec::new();
        for &start_ms in &windows[..known] {
            let end_ms = start_ms + (level_ms - 1);
            if kind == Kind::Hour {
                let minutes = self.buckets(layers, Kind::Minute, series, start_ms, end_ms)?;
                fresh.append(&mut merge(level_ms, &minutes));
            } else {
                let samples = Self::samples(layers, series, start_ms, end_ms)?;
                fold(level_ms, &samples, &mut fresh);
            }
        }
        if let Some(&from_ms) = windows.get(known) {
            let begin = samples.partition_point(|one| one.at_ms < from_ms);
            if kind == Kind::Hour {
                let mut minutes = Vec::new();
                fold(Kind::Minute.level_ms(), &samples[begin..], &mut minutes);
                fresh.append(&mut merge(level_ms, &minutes));
            } else {
                fold(level_ms, &samples[begin..], &mut fresh);
            }
        }
        Ok(replace(out, &windows, &fresh))
    }
}

/// The coarsest level whose buckets answer: its length divides `bucket_ms`, and it reaches back to `from_ms`.
fn level(borders: &Borders, bucket_ms: Option<i64>, from_ms: i64) -> Option<Kind> {
    let bucket_ms = bucket_ms.filter(|&bucket_ms| bucket_ms > 0)?;
    let divides = |kind: &Kind| bucket_ms % kind.level_ms() == 0;
    let kind = Kind::LEVELS.into_iter().find(divides)?;
    // Before that only a coarser level is left: its last values are better than nothing.
    (from_ms >= borders.dropped_to(kind) || kind == Kind::Hour).then_some(kind)
}

fn failed(error: &StoreError) -> SourceError {
    SourceError::Failed(error.to_string())
}

impl Disk {
    fn capture(&self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Capture {
        Capture::of(&self.read(), matchers, from_ms, to_ms)
    }

    /// Series that match and have a sample from `from_ms` to `to_ms`.
    fn alive(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError> {
        let (from_ms, to_ms) = clamp(from_ms, to_ms);
        let capture = self.capture(matchers, from_ms, to_ms);
        let layers = capture.layers(self);
        let mut out = Vec::new();
        for series in &capture.series {
            let has_some = !series.samples.is_empty()
                || (from_ms..=to_ms).contains(&series.sealed_to_ms)
                || !capture
                    .samples_or_lasts(&layers, series, from_ms, to_ms)
                    .map_err(|error| failed(&error))?
                    .is_empty();
            if has_some {
                out.push(Arc::clone(&series.labels));
            }
        }
        Ok(out)
    }
}

fn clamp(from_ms: i64, to_ms: i64) -> (i64, i64) {
    let within = |at_ms: i64| at_ms.clamp(-TIME_MAX, TIME_MAX);
    (within(from_ms), within(to_ms))
}

impl Source for Disk {
    fn select(&self, selection: &Selection<'_>) -> Result<Vec<Series>, SourceError> {
        let (from_ms, to_ms) = clamp(selection.from_ms, selection.to_ms);
        if from_ms > to_ms {
            return Ok(Vec::new());
        }
        // Of the bucket at the end all samples are needed.
        let captured_ms = to_ms + selection.bucket_ms.map_or(0, |_| Kind::Hour.level_ms());
        let capture = self.capture(selection.matchers, from_ms, captured_ms);
        let layers = capture.layers(self);
        let level = level(&capture.borders, selection.bucket_ms, from_ms);
        let limit = self.config.select_max;
        let mut found = 0;
        let mut out = Vec::with_capacity(capture.series.len());
        for series in &capture.series {
            let data = match level {
                Some(kind) => Data::Buckets {
                    level_ms: kind.level_ms(),
                    buckets: capture
                        .buckets(&layers, kind, series, from_ms, to_ms)
                        .map_err(|error| failed(&error))?,
                },
                None => Data::Samples(
                    capture
                        .samples_or_lasts(&layers, series, from_ms, to_ms)
                        .map_err(|error| failed(&error))?,
                ),
            };
            let count = match &data {
                Data::Samples(samples) => samples.len(),
                Data::Buckets { buckets, .. } => buckets.len(),
            };
            found += count as u64;
            if found > limit {
                return Err(SourceError::TooMany { found, limit });
            }
            if count > 0 {
                out.push(Series {
                    labels: Arc::clone(&series.labels),
                    data,
                });
            }
        }
        Ok(out)
    }

    fn label_names(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        let series = self.alive(matchers, from_ms, to_ms)?;
        let names = series.iter().flat_map(|labels| labels.iter());
        let names: BTreeSet<&str> = names.map(|pair| pair.0).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        let series = self.alive(matchers, from_ms, to_ms)?;
        let values = series.iter().filter_map(|labels| labels.get(name));
        let values: BTreeSet<&str> = values.collect();
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    fn series(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError> {
        self.alive(matchers, from_ms, to_ms)
    }
}
