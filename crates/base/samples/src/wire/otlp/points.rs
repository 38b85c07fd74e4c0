//! Points of metrics: which series and values does each become?

use super::attributes::{self, Attributes};
use super::{Limits, Point};
use crate::wire::protobuf::{Span, Wire, varint};
use crate::wire::{Code, Fault};
use crate::{Labels, NAME, STALE};
use std::collections::BTreeMap;

/// Message that the points of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Number,
    Histogram,
    Exponential,
    Summary,
}

/// Properties that all points of a metric share.
pub(super) struct Metric<'a> {
    pub(super) name: &'a str,
    pub(super) base: &'a BTreeMap<String, String>,
    pub(super) shape: Shape,
    pub(super) is_delta: bool,
    pub(super) limits: Limits,
}

/// Fields of a point, whatever its shape.
#[derive(Default)]
struct Fields {
    attributes: Attributes,
    at_ms: Option<i64>,
    is_absent: bool,
    value: f64,
    count: u64,
    sum: Option<f64>,
    counts: Vec<u64>,
    bounds: Vec<f64>,
    quantiles: Vec<(f64, f64)>,
    scale: i32,
    zero_count: u64,
    zero_threshold: f64,
    positive: (i32, Vec<u64>),
    negative: (i32, Vec<u64>),
}

impl Metric<'_> {
    /// Gives the series and values of the point in `span` to `sink`; none, if it is bad.
    pub(super) fn point(&self, span: Span<'_>, sink: &mut dyn FnMut(Point)) -> Result<(), Fault> {
        let fields = self.fields(span)?;
        let values = match self.shape {
            Shape::Number => vec![("", None, fields.value)],
            Shape::Histogram => fields
                .histogram()
                .ok_or_else(|| span.fault(Code::BadMessage))?,
            Shape::Exponential => fields
                .exponential()
                .ok_or_else(|| span.fault(Code::Unsupported))?,
            Shape::Summary => fields.summary(),
        };
        let mut labels = self.base.clone();
        let mut own = BTreeMap::new();
        attributes::add_labels(&mut own, &fields.attributes, "");
        // The labels of the resource and scope name the series of a source: a point cannot change them.
        own.retain(|name, _| !labels.contains_key(name));
        labels.extend(own);
        let mut points = Vec::with_capacity(values.len());
        for (suffix, label, value) in values {
            let mut labels = labels.clone();
            labels.insert(NAME.to_owned(), format!("{}{suffix}", self.name));
            if let Some((name, value)) = label {
                labels.insert(name.to_owned(), value);
            }
            let labels = Labels::new(&labels).map_err(|_| span.fault(Code::BadLabels))?;
            let value = if fields.is_absent { STALE } else { value };
            points.push(Point {
                labels,
                value,
                at_ms: fields.at_ms,
                is_delta: self.is_delta && !fields.is_absent,
            });
        }
        points.into_iter().for_each(sink);
        Ok(())
    }

    fn fields(&self, span: Span<'_>) -> Result<Fields, Fault> {
        let mut all = Fields::default();
        let max = self.limits.buckets_max;
        let attributes = match self.shape {
            Shape::Number | Shape::Summary => 7,
            Shape::Histogram => 9,
            Shape::Exponential => 1,
        };
        for field in span.fields() {
            let (number, wire) = field?;
            let bad = || span.fault(Code::BadMessage);
            let content = || wire.bytes().ok_or_else(bad);
            let double = || wire.double().ok_or_else(bad);
            let whole = || wire.fixed64().ok_or_else(bad);
            match (self.shape, number) {
                (_, number) if number == attributes => {
                    attributes::add(&mut all.attributes, content()?, self.limits.attributes_max)?;
                }
                (_, 3) => {
                    let time = whole()?;
                    let at_ms = i64::try_from(time / 1_000_000).expect("2^64 ns are below 2^63 ms");
                    all.at_ms = (time > 0).then_some(at_ms);
                }
                (Shape::Number | Shape::Summary, 8)
                | (Shape::Histogram | Shape::Exponential, 10) => {
                    all.is_absent = wire.varint().ok_or_else(bad)? & 1 != 0;
                }
                (Shape::Number, 4) => all.value = double()?,
                #[expect(clippy::cast_precision_loss, reason = "a sample is an f64")]
                (Shape::Number, 6) => all.value = whole()?.cast_signed() as f64,
                (Shape::Number, _) => {}
                (_, 4) => all.count = whole()?,
                (_, 5) => all.sum = Some(double()?),
                (Shape::Histogram, 6) => fixed(&mut all.counts, wire, span, max, |bits| bits)?,
                (Shape::Histogram, 7) => fixed(&mut all.bounds, wire, span, max, f64::from_bits)?,
                (Shape::Summary, 6) => {
                    if all.quantiles.len() >= max {
                        return Err(span.fault(Code::TooBig));
                    }
                    all.quantiles.push(quantile(content()?)?);
                }
                (Shape::Exponential, 6) => all.scale = zigzag(wire.varint().ok_or_else(bad)?),
                (Shape::Exponential, 7) => all.zero_count = whole()?,
                (Shape::Exponential, 8) => all.positive = buckets(content()?, max)?,
                (Shape::Exponential, 9) => all.negative = buckets(content()?, max)?,
                (Shape::Exponential, 14) => all.zero_threshold = double()?,
                _ => {}
            }
        }
        Ok(all)
    }
}

/// Suffix of the name, a label more, and the value.
type Values = Vec<(&'static str, Option<(&'static str, String)>, f64)>;

#[expect(clippy::cast_precision_loss, reason = "a sample is an f64")]
impl Fields {
    /// Classic buckets; none if bounds and counts do not belong together.
    fn histogram(&self) -> Option<Values> {
        let mut values = Values::new();
        let mut below = 0_u64;
        if !self.counts.is_empty() {
            let is_sorted = self.bounds.windows(2).all(|pair| pair[0] < pair[1]);
            if self.counts.len() != self.bounds.len() + 1 || !is_sorted {
                return None;
            }
            for (bound, count) in self.bounds.iter().zip(&self.counts) {
                below = below.saturating_add(*count);
                values.push(("_bucket", Some(("le", bound.to_string())), below as f64));
            }
        }
        self.total(&mut values);
        Some(values)
    }

    /// Classic buckets at powers of two; none for a scale that is not known.
    ///
    /// Bucket `i` of scale `s` ends at `2^((offset + i + 1) / 2^s)`; its count goes to the next power of two.
    fn exponential(&self) -> Option<Values> {
        if !(-11..=20).contains(&self.scale) {
            return None;
        }
        // Power of two at or above (`up`) or at or below the place `index` of the scale.
        let power = |index: i64, up: bool| {
            if self.scale <= 0 {
                return index.saturating_mul(1 << -self.scale);
            }
            let step = 1_i64 << self.scale;
            if up {
                (index + step - 1).div_euclid(step)
            } else {
                index.div_euclid(step)
            }
        };
        let mut counts: Vec<(f64, u64)> = Vec::new();
        for (place, &count) in self.negative.1.iter().enumerate().filter(|one| *one.1 > 0) {
            let index = i64::from(self.negative.0) + place as i64;
            counts.push((-exp2(power(index, false)), count));
        }
        for (place, &count) in self.positive.1.iter().enumerate().filter(|one| *one.1 > 0) {
            let index = i64::from(self.positive.0) + place as i64 + 1;
            counts.push((exp2(power(index, true)), count));
        }
        if self.zero_count > 0 {
            counts.push((self.zero_threshold, self.zero_count));
        }
        counts.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut values = Values::new();
        let mut below = 0_u64;
        for (at, &(bound, count)) in counts.iter().enumerate() {
            below = below.saturating_add(count);
            let is_last = counts.get(at + 1).is_none_or(|next| next.0 != bound);
            if is_last && bound.is_finite() {
                values.push(("_bucket", Some(("le", bound.to_string())), below as f64));
            }
        }
        self.total(&mut values);
        Some(values)
    }

    fn summary(&self) -> Values {
        let quantiles = self.quantiles.iter();
        let mut values: Values = quantiles
            .map(|(quantile, value)| ("", Some(("quantile", quantile.to_string())), *value))
            .collect();
        values.push(("_sum", None, self.sum.unwrap_or(0.0)));
        values.push(("_count", None, self.count as f64));
        values
    }

    fn total(&self, values: &mut Values) {
        let count = self.count as f64;
        values.push(("_bucket", Some(("le", "+Inf".to_owned())), count));
        values.extend(self.sum.map(|sum| ("_sum", None, sum)));
        values.push(("_count", None, count));
    }
}

/// 2 to the power of `power`; infinite or 0 beyond the range.
fn exp2(power: i64) -> f64 {
    let power = i16::try_from(power.clamp(-1100, 1100)).expect("clamped");
    f64::from(power).exp2()
}

/// Adds the values of a repeated fixed64 or double, packed or not.
fn fixed<T>(
    all: &mut Vec<T>,
    wire: Wire<'_>,
    span: Span<'_>,
    max: usize,
    of: impl Fn(u64) -> T,
) -> Result<(), Fault> {
    let one;
    let bytes = match wire {
        Wire::Fixed64(bits) => {
            one = bits.to_le_bytes();
            &one[..]
        }
        Wire::Bytes(content) => content.bytes,
        _ => return Err(span.fault(Code::BadMessage)),
    };
    if bytes.len() % 8 != 0 {
        return Err(span.fault(Code::BadMessage));
    }
    if all.len() + bytes.len() / 8 > max {
        return Err(span.fault(Code::TooBig));
    }
    let bits = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("chunks of 8"));
    all.extend(bytes.chunks_exact(8).map(|chunk| of(bits(chunk))));
    Ok(())
}

/// Offset and counts of one side of an exponential histogram.
fn buckets(span: Span<'_>, max: usize) -> Result<(i32, Vec<u64>), Fault> {
    let (mut offset, mut counts) = (0, Vec::new());
    for field in span.fields() {
        let (number, wire) = field?;
        match (number, wire) {
            (1, Wire::Varint(value)) => offset = zigzag(value),
            (2, Wire::Varint(count)) => counts.push(count),
            (2, Wire::Bytes(content)) => {
                let mut rest = content.bytes;
                while !rest.is_empty() && counts.len() <= max {
                    let (count, length) = varint(rest).map_err(|code| content.fault(code))?;
                    counts.push(count);
                    rest = &rest[length..];
                }
            }
            (1 | 2, _) => return Err(span.fault(Code::BadMessage)),
            _ => {}
        }
        if counts.len() > max {
            return Err(span.fault(Code::TooBig));
        }
    }
    Ok((offset, counts))
}

fn quantile(span: Span<'_>) -> Result<(f64, f64), Fault> {
    let mut pair = (0.0, 0.0);
    for field in span.fields() {
        let (number, wire) = field?;
        let double = || wire.double().ok_or_else(|| span.fault(Code::BadMessage));
        match number {
            1 => pair.0 = double()?,
            2 => pair.1 = double()?,
            _ => {}
        }
    }
    Ok(pair)
}

/// Value of a `sint32`.
fn zigzag(value: u64) -> i32 {
    let value = value & u64::from(u32::MAX);
    let half = i64::try_from(value >> 1).expect("31 bits");
    let whole = if value & 1 == 0 { half } else { -half - 1 };
    i32::try_from(whole).expect("32 bits")
}
