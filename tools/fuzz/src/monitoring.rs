//! Formats of monitoring, and the intake that takes them.

use core::net::IpAddr;
use sheaf_intake::{Batch, Intake, IntakeConfig, Peer, Protocol};
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::wire::line_protocol::{self as lines, Decoder, Precision, Series};
use sheaf_samples::wire::otlp;
use sheaf_samples::wire::{Fault, remote_write as remote, statsd as events};
use sheaf_samples::wire::{collectd as collectd_wire, exposition as text};
use sheaf_samples::{Labels, Sample};

/// Lines of InfluxDB: what can be written reads back.
pub fn line_protocol(bytes: &[u8]) {
    let mut decoder = Decoder::new(Precision::Ms, 1 << 10);
    let mut all = decoder.lines(bytes);
    let mut written = Vec::new();
    let mut expected = Vec::new();
    while let Some(line) = all.next_line() {
        let line = match line {
            Ok(line) => line,
            Err(fault) => {
                inside(fault, bytes);
                continue;
            }
        };
        assert!(line.fields().len() > 0);
        let Ok(series) = Series::parse(line.series) else {
            continue;
        };
        for field in line.fields() {
            let (Ok(labels), Some(value)) = (series.labels(field.name), field.value.number())
            else {
                continue;
            };
            let at_ms = line.at_ms.unwrap_or_default();
            let sample = Sample { at_ms, value };
            if lines::write_sample(&mut written, &labels, sample, Precision::Ms).is_ok() {
                expected.push((labels, sample));
            }
        }
    }
    let mut decoder = Decoder::new(Precision::Ms, 1 << 20);
    let mut all = decoder.lines(&written);
    for (labels, sample) in expected {
        let line = all.next_line().expect("as many lines").expect("good ones");
        let field = line.fields().next().expect("one field");
        let series = Series::parse(line.series).expect("a series");
        assert_eq!(series.labels(field.name), Ok(labels));
        assert_eq!(line.at_ms, Some(sample.at_ms));
        assert_eq!(
            field.value.number().map(f64::to_bits),
            Some(sample.value.to_bits())
        );
    }
    assert!(all.next_line().is_none());
}

/// Remote write, with and without its compression: what is read can be written and read again.
pub fn remote_write(bytes: &[u8]) {
    let limits = remote::Limits {
        message_bytes_max: 1 << 16,
        ..remote::Limits::default()
    };
    if let Ok(message) = remote::decompress(bytes, limits.message_bytes_max) {
        assert!(message.len() <= limits.message_bytes_max);
        for fault in remote::decode(&message, limits).filter_map(Result::err) {
            inside(fault, &message);
        }
    }
    let mut series: Vec<(Labels, Vec<Sample>)> = Vec::new();
    for record in remote::decode(bytes, limits) {
        match record {
            Ok(remote::Record::Series(labels, samples)) => series.push((labels, samples)),
            Ok(remote::Record::Metadata(_)) => {}
            Err(fault) => inside(fault, bytes),
        }
    }
    let pairs = series
        .iter()
        .map(|(labels, samples)| (labels, &samples[..]));
    let message = remote::decompress(&remote::encode(pairs, &[]), usize::MAX).expect("ours");
    let again = remote::decode(&message, limits).map(|record| record.expect("good ones"));
    let bits = |samples: &[Sample]| -> Vec<(i64, u64)> {
        let pair = |sample: &Sample| (sample.at_ms, sample.value.to_bits());
        samples.iter().map(pair).collect()
    };
    let mut count = 0;
    for (record, (labels, samples)) in again.zip(&series) {
        let remote::Record::Series(found, values) = record else {
            panic!("no metadata was written")
        };
        assert_eq!((&found, bits(&values)), (labels, bits(samples)));
        count += 1;
    }
    assert_eq!(count, series.len());
}

/// Text of Prometheus and of OpenMetrics.
pub fn exposition(bytes: &[u8]) {
    for format in [Format::Text, Format::OpenMetrics] {
        for record in text::decode(bytes, format) {
            match record {
                Ok(text::Record::Sample { labels, .. }) => assert!(labels.name().is_some()),
                Ok(_) => {}
                Err(fault) => inside(fault, bytes),
            }
        }
    }
}

/// OpenTelemetry: every point has a name that PromQL takes.
pub fn opentelemetry(bytes: &[u8]) {
    otlp::decode(bytes, otlp::Limits::default(), &mut |record| match record {
        Ok(otlp::Record::Point(point)) => assert!(point.labels.name().is_some()),
        Ok(otlp::Record::Metadata(_)) => {}
        Err(fault) => inside(fault, bytes),
    });
}

/// Packets of collectd.
pub fn collectd(bytes: &[u8]) {
    let verify = |_: &str, signed: &[u8], mac: &[u8]| signed.len() > mac.len();
    for verify in [None, Some(&verify as &collectd_wire::Verify<'_>)] {
        let is_required = verify.is_some();
        let security = collectd_wire::Security {
            verify,
            is_required,
        };
        for list in collectd_wire::decode(bytes, security) {
            match list {
                Ok(list) => {
                    assert!(list.values().len() > 0);
                    for value in list.values() {
                        let _ = list.labels("value", value);
                    }
                }
                Err(fault) => inside(fault, bytes),
            }
        }
    }
}

/// StatsD: what can be written reads back.
pub fn statsd(bytes: &[u8]) {
    for event in events::decode(bytes) {
        let event = match event {
            Ok(event) => event,
            Err(fault) => {
                inside(fault, bytes);
                continue;
            }
        };
        let _ = event.labels();
        let mut written = Vec::new();
        if events::write(&mut written, event.name, event.change, []).is_ok() {
            assert!(events::decode(&written).all(|event| event.is_ok()));
        }
    }
}

/// Datagrams in all formats into one intake: every sample is taken, refused or bad, and no table passes its bound.
pub fn intake(bytes: &[u8]) {
    let mut intake = Intake::new(IntakeConfig {
        sources_max: 4,
        series_max: 16,
        series_per_source_max: 8,
        new_series_burst: 12,
        series_idle_s: 60,
        ..IntakeConfig::default()
    });
    let mut now_ms = 1_700_000_000_000;
    let mut out = Batch::default();
    // Datagrams begin with a byte of length, one of format and sender, and one of seconds to the next.
    let mut rest = bytes;
    while let Some((&[length, kind, seconds], after)) = rest.split_first_chunk() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        let protocol = match kind % 8 {
            0 => Protocol::RemoteWrite,
            1 => Protocol::Exposition(Format::OpenMetrics),
            2 => Protocol::Otlp,
            3 => Protocol::Collectd,
            4 => Protocol::StatsD,
            _ => Protocol::Lines(Precision::Ms),
        };
        let peer = Peer {
            address: IpAddr::from([127, 0, 0, kind >> 6]),
            stream: u64::from(kind >> 3 & 7),
        };
        intake.handle_datagram(now_ms, peer, protocol, datagram, &mut out);
        now_ms += i64::from(seconds) * 1000;
        intake.handle_tick(now_ms, &mut out);
        out.clear();
        let [sources, series, keys, links] = intake.sizes();
        assert!(sources <= 4 && series <= 16 && keys <= 16 * 9 && links <= 8);
        for stats in intake.sources().map(|one| one.1).chain([&intake.total()]) {
            let sum = stats.taken + stats.refused_total() + stats.bad_total();
            assert_eq!(stats.samples, sum);
        }
    }
}

fn inside(fault: Fault, bytes: &[u8]) {
    assert!(fault.offset <= bytes.len(), "{fault}");
}
