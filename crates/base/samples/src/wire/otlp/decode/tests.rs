//! Requests of every kind of metric, field by field.

use super::super::encode;
use super::*;
use crate::{Sample, is_stale};
use proptest::prelude::*;

/// A field of bytes.
fn bytes(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number << 3 | 2));
    varint(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn whole(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number << 3));
    varint(&mut out, value);
    out
}

fn fixed(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
    out
}

fn double(number: u32, value: f64) -> Vec<u8> {
    fixed(number, value.to_bits())
}

fn attribute(number: u32, key: &str, value: &str) -> Vec<u8> {
    let value = bytes(2, &bytes(1, value.as_bytes()));
    bytes(number, &[bytes(1, key.as_bytes()), value].concat())
}

/// A metric of the kind `data` with the unit `unit`.
fn metric(name: &str, unit: &str, data: u32, content: &[Vec<u8>]) -> Vec<u8> {
    let texts = [bytes(1, name.as_bytes()), bytes(3, unit.as_bytes())].concat();
    bytes(2, &[texts, bytes(data, &content.concat())].concat())
}

fn request(metrics: &[Vec<u8>]) -> Vec<u8> {
    bytes(1, &bytes(2, &metrics.concat()))
}

fn all(message: &[u8]) -> Vec<String> {
    let limits = Limits {
        attributes_max: 4,
        buckets_max: 8,
    };
    let mut all = Vec::new();
    decode(message, limits, &mut |record| {
        all.push(match record {
            Ok(Record::Point(point)) => {
                let value = if is_stale(point.value) {
                    "stale".to_owned()
                } else {
                    point.value.to_string()
                };
                let at_ms = point
                    .at_ms
                    .map(|at_ms| format!(" @{at_ms}"))
                    .unwrap_or_default();
                let delta = if point.is_delta { " delta" } else { "" };
                format!("{} {value}{at_ms}{delta}", point.labels)
            }
            Ok(Record::Metadata(metadata)) => format!("# {} {:?}", metadata.family, metadata.kind),
            Err(fault) => fault.code.to_string(),
        });
    });
    all
}

#[test]
fn numbers_are_gauges_and_sums() {
    let at = fixed(3, 1_700_000_000_123_456_789);
    let one = bytes(
        1,
        &[double(4, 1.5), at.clone(), attribute(7, "cpu.id", "3")].concat(),
    );
    let two = bytes(1, &fixed(6, (-7_i64).cast_unsigned()));
    let stale = bytes(1, &whole(8, 1));
    let metrics = [
        metric("temp", "Cel", 5, &[one.clone(), two.clone(), stale]),
        metric("io", "By", 7, &[one.clone(), whole(2, 2), whole(3, 1)]),
        metric("queue", "", 7, &[two.clone(), whole(2, 1)]),
        metric("odd", "", 7, std::slice::from_ref(&two)),
        metric("", "", 5, &[two]),
        metric("none", "", 99, &[]),
    ];
    let expected = [
        r#"temp_celsius{cpu_id="3"} 1.5 @1700000000123"#,
        "temp_celsius -7",
        "temp_celsius stale",
        "# temp_celsius Gauge",
        r#"io_bytes_total{cpu_id="3"} 1.5 @1700000000123"#,
        "# io_bytes_total Counter",
        "queue -7 delta",
        "# queue Gauge",
        "unsupported",
        "bad-series",
        "unsupported",
    ];
    assert_eq!(all(&request(&metrics)), expected);
}

#[test]
fn histograms_are_classic_buckets() {
    let packed = |number, values: &[u64]| {
        let values: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        bytes(number, &values)
    };
    let bounds = packed(7, &[0.5_f64.to_bits(), 2.0_f64.to_bits()]);
    let counts = packed(6, &[3, 0, 4]);
    let point = |parts: &[Vec<u8>]| bytes(1, &parts.concat());
    let good = point(&[fixed(4, 7), double(5, 9.5), counts.clone(), bounds.clone()]);
    let bare = point(&[fixed(4, 7)]);
    let uneven = point(&[fixed(4, 7), counts]);
    let long = point(&[packed(6, &[0; 9])]);
    let metrics = [metric(
        "lat",
        "s",
        9,
        &[good, bare, uneven, long, whole(2, 1)],
    )];
    let expected = [
        r#"lat_seconds_bucket{le="0.5"} 3 delta"#,
        r#"lat_seconds_bucket{le="2"} 3 delta"#,
        r#"lat_seconds_bucket{le="+Inf"} 7 delta"#,
        "lat_seconds_sum 9.5 delta",
        "lat_seconds_count 7 delta",
        r#"lat_seconds_bucket{le="+Inf"} 7 delta"#,
        "lat_seconds_count 7 delta",
        "bad-message",
        "too-big",
        "# lat_seconds Histogram",
    ];
    assert_eq!(all(&request(&metrics)), expected);
}

#[test]
fn exponential_histograms_are_buckets_at_powers_of_two() {
    // Scale 1: bounds at 2^(n/2). Offset 1: buckets (1.41, 2], (2, 2.83], (2.83, 4].
    let side = |number, offset: u64, counts: &[u8]| {
        bytes(number, &[whole(1, offset), bytes(2, counts)].concat())
    };
    let positive = side(8, 2, &[1, 2, 3]);
    // Offset -1: bucket [-1, -0.71).
    let negative = side(9, 1, &[5]);
    let point = [
        fixed(4, 15),
        double(5, 1.0),
        whole(6, 2),
        fixed(7, 4),
        positive,
        negative,
    ]
    .concat();
    let exponential = |temporality| metric("e", "", 10, &[bytes(1, &point), whole(2, temporality)]);
    let expected = [
        r#"e_bucket{le="-0.5"} 5"#,
        r#"e_bucket{le="0"} 9"#,
        r#"e_bucket{le="2"} 10"#,
        r#"e_bucket{le="4"} 15"#,
        r#"e_bucket{le="+Inf"} 15"#,
        "e_sum 1",
        "e_count 15",
        "# e Histogram",
    ];
    assert_eq!(all(&request(&[exponential(2)])), expected);
    assert_eq!(all(&request(&[exponential(1)])), ["unsupported"]);
}

#[test]
fn summaries_are_quantiles() {
    let quantile = bytes(6, &[double(1, 0.5), double(2, 3.0)].concat());
    let point = bytes(1, &[fixed(4, 2), double(5, 6.0), quantile].concat());
    let expected = [
        r#"s{quantile="0.5"} 3"#,
        "s_sum 6",
        "s_count 2",
        "# s Summary",
    ];
    assert_eq!(all(&request(&[metric("s", "", 11, &[point])])), expected);
}

#[test]
fn resource_and_scope_become_labels() {
    let resource = [
        attribute(1, "service.namespace", "daq"),
        attribute(1, "service.name", "epn"),
        attribute(1, "service.instance.id", "epn-3"),
        attribute(1, "host.name", "node3"),
    ];
    let point = [
        attribute(7, "a.b", "1"),
        attribute(7, "a-b", "2"),
        attribute(7, "job", "mine"),
        double(4, 1.0),
        fixed(3, 5_000_000),
    ];
    let metric = metric("m", "", 5, &[bytes(1, &point.concat())]);
    let scope = [bytes(1, b"lib"), bytes(2, b"1.2"), attribute(3, "x", "y")];
    // The resource stands behind its metrics.
    let scope = [metric, bytes(1, &scope.concat())].concat();
    let message = bytes(
        1,
        &[bytes(2, &scope), bytes(1, &resource.concat())].concat(),
    );
    let expected = [
        r#"m{a_b="2;1", host="node3", instance="epn-3", job="daq/epn", otel_scope_name="lib", otel_scope_version="1.2", otel_scope_x="y"} 1 @5"#,
        "# m Gauge",
        r#"target_info{host="node3", host_name="node3", instance="epn-3", job="daq/epn"} 1 @5"#,
    ];
    assert_eq!(all(&message), expected);
    let many = request(&[super::tests::metric(
        "m",
        "",
        5,
        &[
            bytes(1, &attribute(7, "a", "1").repeat(2)),
            bytes(
                1,
                &["a", "b", "c", "d", "e"]
                    .map(|key| attribute(7, key, "1"))
                    .concat(),
            ),
        ],
    )]);
    assert_eq!(all(&many), [r#"m{a="1"} 0"#, "too-big", "# m Gauge"]);
}

#[test]
fn lists_in_attributes_are_bounded_in_depth() {
    let mut value = bytes(1, b"x");
    for _ in 0..200 {
        value = bytes(5, &bytes(1, &value));
    }
    let deep = bytes(7, &[bytes(1, b"deep"), bytes(2, &value)].concat());
    let list = bytes(
        5,
        &[bytes(1, &bytes(1, b"x")), bytes(1, &whole(3, 4))].concat(),
    );
    let list = bytes(7, &[bytes(1, b"list"), bytes(2, &list)].concat());
    let message = request(&[metric("m", "", 5, &[bytes(1, &[deep, list].concat())])]);
    assert_eq!(
        all(&message)[0],
        r#"m{deep="[[[[[[[[]]]]]]]]", list="[\"x\",4]"} 0"#
    );
}

proptest! {
    #[test]
    fn series_come_back(
        labels in proptest::collection::btree_map("[a-z]{1,6}", ".{1,9}", 0..4),
        value in any::<f64>(),
        at_ms in 1..4_000_000_000_000_i64,
        is_counter in any::<bool>(),
    ) {
        let (name, kind) = if is_counter { ("m_total", Kind::Counter) } else { ("m", Kind::Gauge) };
        let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels = Labels::new(pairs.chain([(NAME, name)])).unwrap();
        let sample = Sample { at_ms, value };
        let message = encode(&[], [(&labels, kind, &[sample][..])]);
        let mut points = Vec::new();
        decode(&message, Limits::default(), &mut |record| {
            if let Ok(Record::Point(point)) = record {
                points.push(point);
            }
        });
        prop_assert_eq!(points.len(), 1);
        prop_assert_eq!((&points[0].labels, points[0].at_ms), (&labels, Some(at_ms)));
        prop_assert!(points[0].value == value || (points[0].value.is_nan() && value.is_nan()));
    }

    #[test]
    fn no_bytes_panic(junk in proptest::collection::vec(any::<u8>(), 0..60), kind in 5..12_u32) {
        let check = |message: &[u8]| {
            let mut is_inside = true;
            decode(message, Limits::default(), &mut |record| {
                is_inside &= record.err().is_none_or(|fault| fault.offset <= message.len());
            });
            assert!(is_inside);
        };
        check(&junk);
        check(&request(&[metric("m", "s", kind, &[bytes(1, &junk), whole(2, 2)])]));
        check(&request(&[metric("m", "s", kind, std::slice::from_ref(&junk))]));
    }
}
