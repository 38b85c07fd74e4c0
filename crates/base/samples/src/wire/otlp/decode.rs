//! Requests read: resources, scopes, metrics.

use super::attributes::{self, Attributes};
use super::names::name;
use super::points::{Metric, Shape};
use super::{Limits, Point, Record};
use crate::wire::protobuf::Span;
use crate::wire::{Code, Fault, Kind, Metadata};
use crate::{Labels, NAME};
use std::collections::BTreeMap;

/// Gives the records of `message`, a request, to `sink`, and what is wrong with the others.
///
/// A bad point, metric, scope or resource does not end the others.
pub fn decode(message: &[u8], limits: Limits, sink: &mut dyn FnMut(Result<Record, Fault>)) {
    each(Span::of(message), 1, sink, |span, sink| {
        resource(span, limits, sink)
    });
}

type Sink<'s> = &'s mut dyn FnMut(Result<Record, Fault>);

/// Calls `take` with every field `number` of `span`, a message in it, and gives its faults to `sink`.
fn each(
    span: Span<'_>,
    number: u32,
    sink: Sink<'_>,
    mut take: impl FnMut(Span<'_>, Sink<'_>) -> Result<(), Fault>,
) {
    for field in span.fields() {
        let result = match field {
            Ok((found, wire)) if found == number => match wire.bytes() {
                Some(content) => take(content, &mut *sink),
                None => Err(span.fault(Code::BadMessage)),
            },
            Ok(_) => Ok(()),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = result {
            sink(Err(fault));
        }
    }
}

/// Attributes in the fields `number` of a message.
fn attributes_of(span: Span<'_>, number: u32, limits: Limits) -> Result<Attributes, Fault> {
    let mut all = Attributes::new();
    for field in span.fields() {
        let (found, wire) = field?;
        if found == number {
            let content = wire.bytes().ok_or_else(|| span.fault(Code::BadMessage))?;
            attributes::add(&mut all, content, limits.attributes_max)?;
        }
    }
    Ok(all)
}

/// First field `number` of a message that holds bytes.
fn part(span: Span<'_>, number: u32) -> Result<Option<Span<'_>>, Fault> {
    for field in span.fields() {
        let (found, wire) = field?;
        if found == number {
            return Ok(wire.bytes());
        }
    }
    Ok(None)
}

fn resource(span: Span<'_>, limits: Limits, sink: Sink<'_>) -> Result<(), Fault> {
    let attributes = match part(span, 1)? {
        Some(resource) => attributes_of(resource, 1, limits)?,
        None => Attributes::new(),
    };
    let mut base = BTreeMap::new();
    let mut others = attributes.clone();
    let mut take = |key: &str| others.remove(key).filter(|value| !value.is_empty());
    let namespace = take("service.namespace");
    if let Some(service) = take("service.name") {
        let job = namespace.map_or_else(|| service.clone(), |space| format!("{space}/{service}"));
        base.insert("job".to_owned(), job);
    }
    if let Some(instance) = take("service.instance.id") {
        base.insert("instance".to_owned(), instance);
    }
    if let Some(host) = attributes.get("host.name") {
        base.insert("host".to_owned(), host.clone());
    }
    let mut latest_ms = None;
    let mut watch = |record: Result<Record, Fault>| {
        if let Ok(Record::Point(point)) = &record {
            latest_ms = latest_ms.max(point.at_ms);
        }
        sink(record);
    };
    each(span, 2, &mut watch, |span, sink| {
        scope(span, &base, limits, sink)
    });
    // Without a job or an instance no series could be joined with it.
    if !others.is_empty() && (base.contains_key("job") || base.contains_key("instance")) {
        let mut labels = base.clone();
        attributes::add_labels(&mut labels, &others, "");
        labels.insert(NAME.to_owned(), "target_info".to_owned());
        let labels = Labels::new(&labels).map_err(|_| span.fault(Code::BadLabels))?;
        sink(Ok(Record::Point(Point {
            labels,
            value: 1.0,
            at_ms: latest_ms,
            is_delta: false,
        })));
    }
    Ok(())
}

fn scope(
    span: Span<'_>,
    base: &BTreeMap<String, String>,
    limits: Limits,
    sink: Sink<'_>,
) -> Result<(), Fault> {
    let mut base = base.clone();
    if let Some(scope) = part(span, 1)? {
        for (number, label) in [(1, "otel_scope_name"), (2, "otel_scope_version")] {
            if let Some(text) = part(scope, number)? {
                base.insert(label.to_owned(), text.text()?.to_owned());
            }
        }
        let attributes = attributes_of(scope, 3, limits)?;
        attributes::add_labels(&mut base, &attributes, "otel_scope_");
    }
    each(span, 2, sink, |span, sink| {
        metric(span, &base, limits, sink)
    });
    Ok(())
}

fn metric(
    span: Span<'_>,
    base: &BTreeMap<String, String>,
    limits: Limits,
    sink: Sink<'_>,
) -> Result<(), Fault> {
    let bad = || span.fault(Code::BadMessage);
    let (mut texts, mut data) = ([""; 3], None);
    for field in span.fields() {
        let (number, wire) = field?;
        let content = || wire.bytes().ok_or_else(bad);
        match number {
            1..=3 => texts[number as usize - 1] = content()?.text()?,
            5 | 7 | 9 | 10 | 11 => data = Some((number, content()?)),
            _ => {}
        }
    }
    let [raw, help, unit] = texts;
    if raw.is_empty() {
        return Err(span.fault(Code::BadSeries));
    }
    // A metric without data is none, and a kind of a later version is not known.
    let (number, data) = data.ok_or_else(|| span.fault(Code::Unsupported))?;
    // The temporality stands behind the points.
    let (mut temporality, mut is_monotonic) = (0, false);
    for field in data.fields() {
        let (number, wire) = field?;
        match number {
            2 => temporality = wire.varint().ok_or_else(bad)?,
            3 => is_monotonic = wire.varint().ok_or_else(bad)? != 0,
            _ => {}
        }
    }
    let (shape, kind) = match number {
        5 => (Shape::Number, Kind::Gauge),
        7 if is_monotonic => (Shape::Number, Kind::Counter),
        7 => (Shape::Number, Kind::Gauge),
        9 => (Shape::Histogram, Kind::Histogram),
        10 => (Shape::Exponential, Kind::Histogram),
        _ => (Shape::Summary, Kind::Summary),
    };
    let is_delta = match (number, temporality) {
        (5 | 11, _) | (_, 2) => false,
        (7 | 9, 1) => true,
        _ => return Err(span.fault(Code::Unsupported)),
    };
    let family = name(raw, unit, kind == Kind::Counter, number == 5);
    let metric = Metric {
        name: &family,
        base,
        shape,
        is_delta,
        limits,
    };
    each(data, 1, sink, |span, sink| {
        metric.point(span, &mut |point| sink(Ok(Record::Point(point))))
    });
    sink(Ok(Record::Metadata(Metadata {
        family,
        kind,
        help: help.to_owned(),
        unit: unit.to_owned(),
    })));
    Ok(())
}

#[cfg(test)]
mod tests;
