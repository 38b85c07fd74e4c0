//! Comparison of what the collector says and its store answers with what has to be.

use super::collector::Collector;
use super::model::Model;
use super::model::store::{Found, StoreModel};
use super::names::OutName;
use crate::invariant::{Broken, Invariant};
use sheaf_processing::Fate;
use sheaf_query::{Data, Selection, Source as _};
use sheaf_sample_store::Disk;
use sheaf_samples::{Bucket, Labels, Matcher, Matches, Sample};
use std::collections::BTreeMap;

/// Levels that every store keeps, in ms.
const LEVELS_MS: [i64; 3] = [10_000, 60_000, 3_600_000];

pub(super) fn broken<T>(invariant: Invariant, detail: impl Into<String>) -> Result<T, Broken> {
    Err((invariant, detail.into()))
}

fn select(store: &Disk, bucket_ms: Option<i64>) -> Result<Vec<sheaf_query::Series>, Broken> {
    let matchers = [Matcher::new("__name__", Matches::NotEqual, "").expect("no expression")];
    let selection = Selection {
        matchers: &matchers,
        from_ms: 0,
        to_ms: i64::MAX / 4,
        bucket_ms,
    };
    store.select(&selection).map_err(|error| {
        (
            Invariant::OnlySent,
            format!("the store does not answer: {error}"),
        )
    })
}

/// Names by labels, of every series that the model knows.
fn names(model: &StoreModel) -> BTreeMap<Labels, OutName> {
    let names = model.series.keys();
    names.map(|name| (name.labels(), *name)).collect()
}

/// Returns all that the store has: series that were never sent break a promise.
pub(super) fn found(store: &Disk, model: &StoreModel) -> Result<Found, Broken> {
    let names = names(model);
    let mut found = Found::new();
    for series in select(store, None)? {
        let Some(name) = names.get(&*series.labels) else {
            return broken(
                Invariant::OnlySent,
                format!("{}: a series that was not sent", series.labels),
            );
        };
        let Data::Samples(samples) = series.data else {
            return broken(Invariant::OnlySent, "buckets in place of samples");
        };
        let samples = samples.iter().map(|one| (one.at_ms, one.value));
        found.insert(*name, samples.collect());
    }
    Ok(found)
}

/// Compares samples and levels of the store with those of the model.
pub(super) fn content(store: &Disk, model: &StoreModel) -> Result<(), Broken> {
    let found = found(store, model)?;
    let nothing = BTreeMap::new();
    for (name, expected) in &model.series {
        let found = found.get(name).unwrap_or(&nothing);
        let from_ms = model.dropped_to_ms;
        for (at_ms, value) in found {
            match expected.get(at_ms).map(|entry| entry.value) {
                Some(expected) if expected.to_bits() == value.to_bits() => {}
                other => {
                    return broken(
                        Invariant::OnlySent,
                        format!("{name:?} at {at_ms}: found {value}, expected {other:?}"),
                    );
                }
            }
        }
        for (at_ms, entry) in expected.range(from_ms..) {
            if !found.contains_key(at_ms) {
                return broken(
                    Invariant::Durable,
                    format!("{name:?} at {at_ms}: {} is not there", entry.value),
                );
            }
        }
    }
    LEVELS_MS
        .into_iter()
        .try_for_each(|level_ms| level(store, model, level_ms))
}

/// Compares the buckets of one level with those that the samples of the model make.
fn level(store: &Disk, model: &StoreModel, level_ms: i64) -> Result<(), Broken> {
    let names = names(model);
    let mut found: BTreeMap<OutName, Vec<Bucket>> = BTreeMap::new();
    for series in select(store, Some(level_ms))? {
        let (Some(name), Data::Buckets { buckets, .. }) = (names.get(&*series.labels), series.data)
        else {
            return broken(Invariant::Levels, format!("{}: no buckets", series.labels));
        };
        found.insert(*name, buckets);
    }
    for (name, samples) in &model.series {
        let found = found.remove(name).unwrap_or_default();
        let mut expected: Vec<Bucket> = Vec::new();
        for (&at_ms, entry) in samples {
            let sample = Sample {
                at_ms,
                value: entry.value,
            };
            let start_ms = at_ms.div_euclid(level_ms) * level_ms;
            match expected.last_mut().filter(|last| last.start_ms == start_ms) {
                Some(last) => {
                    last.count += 1;
                    last.sum += sample.value;
                    last.min = last.min.min(sample.value);
                    last.max = last.max.max(sample.value);
                    last.last = sample;
                }
                None => expected.push(Bucket::of(start_ms, sample)),
            }
        }
        if found != expected {
            let differs = |pair: &(&Bucket, &Bucket)| pair.0 != pair.1;
            let first = found.iter().zip(&expected).find(differs);
            let detail = format!(
                "{name:?}, level of {level_ms} ms: {} buckets, expected {}; first difference {first:?}",
                found.len(),
                expected.len()
            );
            return broken(Invariant::Levels, detail);
        }
    }
    Ok(())
}

/// Reads every record of the store.
pub(super) fn fsck(store: &Disk) -> Result<(), Broken> {
    match store.fsck(false) {
        Ok(report) if report.is_clean() => Ok(()),
        Ok(report) => broken(Invariant::Fsck, format!("{report:?}")),
        Err(error) => broken(Invariant::Fsck, format!("cannot be checked: {error}")),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(
    invariant: Invariant,
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), Broken> {
    if found == expected {
        return Ok(());
    }
    broken(
        invariant,
        format!("{what}: found {found:?}, expected {expected:?}"),
    )
}

/// Compares the accounting of a life of the collector with what it should have counted.
pub(super) fn accounting(collector: &Collector, model: &Model) -> Result<(), Broken> {
    let intake = collector.shard.intake();
    let mut expected: BTreeMap<&str, _> = model.intake.sources().collect();
    for (name, stats) in intake.sources() {
        let Some(counts) = expected.remove(name) else {
            return broken(
                Invariant::Accounting,
                format!("source {name:?} sent nothing"),
            );
        };
        let refused = stats.refused.iter();
        let refused: BTreeMap<&str, u64> = refused
            .map(|(reason, count)| (reason.name(), *count))
            .collect();
        let of = Invariant::Accounting;
        equal(of, &format!("{name} taken"), &stats.taken, &counts.taken)?;
        equal(of, &format!("{name} bad"), &stats.bad_total(), &counts.bad)?;
        equal(of, &format!("{name} refused"), &refused, &counts.refused)?;
        let of = Invariant::LossBySource;
        equal(of, &format!("{name} sent"), &stats.loss.sent, &counts.sent)?;
        equal(
            of,
            &format!("{name} arrived"),
            &stats.loss.arrived,
            &counts.arrived,
        )?;
    }
    if let Some((name, _)) = expected.pop_first() {
        return broken(
            Invariant::Accounting,
            format!("source {name:?} is not known"),
        );
    }
    let of = Invariant::Accounting;
    equal(
        of,
        "samples",
        &intake.total().samples,
        &model.intake.samples,
    )?;
    let stats = collector.shard.pipeline().stats();
    if !stats.is_balanced() {
        return broken(of, format!("operators do not add up: {stats:?}"));
    }
    let operators = &model.operators;
    for (fate, expected) in [
        (Fate::Suppressed, operators.suppressed),
        (Fate::Discarded, operators.discarded),
        (Fate::Late, operators.late),
        (Fate::Ahead, operators.ahead),
        (Fate::Aggregated, operators.aggregated),
        (Fate::Refused, 0),
    ] {
        equal(of, fate.name(), &stats.ended(fate), &expected)?;
    }
    equal(of, "series not stored", &collector.ears.not_stored, &0)
}
