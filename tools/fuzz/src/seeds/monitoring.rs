//! One input or two of each format of monitoring, and datagrams for the intake.

use super::{Seed, seed};
use sheaf_samples::wire::statsd::{Change, write as write_event};
use sheaf_samples::wire::{Kind, Metadata, collectd, otlp, remote_write};
use sheaf_samples::{Labels, STALE, Sample};

const LINES: &[u8] = b"cpu,host=a,path=C:\\dir idle=1.5,n=-3i,u=3u,on=t,s=\"a, \\\"b\\\"\" 1700000000000\n\
    # comment\r\na\\ b,c=\\, f\\ g=-1e-5\nm f=\nmonitor_client_samples_sent_total,host=a,process=p value=7u\n";
const TEXT: &[u8] = b"# HELP a_total Help\\n.\n# TYPE a_total counter\n# UNIT a_total s\n\
    a_total{le=\"+Inf\",x=\"\\\"\\\\\"} +Inf 1700000000.5 # {t=\"1\"} 2\nb NaN\n# EOF\n";

pub(super) fn all() -> Vec<Seed> {
    let mut statsd = b"lat:1:2|ms|@0.5|#env:prod,debug|T1700000000|c:x\ng:-3|g\n_sc|a|0\n".to_vec();
    for change in [Change::Count(1.0), Change::Set(-1.0), Change::Member("x")] {
        write_event(&mut statsd, "name", change, [("host", "a")]).expect("plain texts");
    }
    let (plain, message) = write_request();
    let (packet, signed) = packets();
    let otlp = opentelemetry();
    let mut datagrams = Vec::new();
    let kinds = [
        (0, &plain[..]),
        (1, TEXT),
        (2, &otlp),
        (3, &packet),
        (4, &statsd),
        (5, LINES),
        (13, LINES),
    ];
    for (kind, bytes) in kinds {
        let bytes = &bytes[..bytes.len().min(255)];
        let length = u8::try_from(bytes.len()).expect("cut to 255");
        datagrams.extend([length, kind, 30]);
        datagrams.extend_from_slice(bytes);
    }
    vec![
        seed("line_protocol", "lines", LINES),
        seed("remote_write", "request", plain),
        seed("remote_write", "message", message),
        seed("remote_write", "zeros", zeros()),
        seed("exposition", "openmetrics", TEXT),
        seed("opentelemetry", "gauge-and-sum", otlp),
        seed("opentelemetry", "histograms", histograms()),
        seed("collectd", "packet", packet),
        seed("collectd", "signed", signed),
        seed("statsd", "events", statsd),
        seed("intake", "datagrams", datagrams),
    ]
}

fn series() -> (Labels, [Sample; 2]) {
    let labels = Labels::new([("__name__", "up"), ("host", "a")]).expect("two names");
    let sample = |at_ms, value| Sample { at_ms, value };
    let at_ms = 1_700_000_000_000;
    (labels, [sample(at_ms, 1.5), sample(at_ms + 1, STALE)])
}

/// A request of remote write, compressed and not.
fn write_request() -> (Vec<u8>, Vec<u8>) {
    let (labels, samples) = series();
    let metadata = Metadata {
        family: "up".to_owned(),
        kind: Kind::Gauge,
        help: "Help.".to_owned(),
        unit: "s".to_owned(),
    };
    let body = remote_write::encode([(&labels, &samples[..])], &[metadata]);
    let message = remote_write::decompress(&body, 1 << 16).expect("written here");
    (body, message)
}

/// A message of remote write with 0 and -0.
fn zeros() -> Vec<u8> {
    let (labels, [mut first, mut second]) = series();
    (first.value, second.value) = (0.0, -0.0);
    let samples = [first, second];
    let body = remote_write::encode([(&labels, &samples[..])], &[]);
    remote_write::decompress(&body, 1 << 16).expect("written here")
}

/// A packet of collectd, plain and with a signature.
fn packets() -> (Vec<u8>, Vec<u8>) {
    let names = collectd::Names {
        host: "a",
        plugin: "load",
        plugin_instance: "0",
        kind: "load",
        type_instance: "x",
    };
    let values = [
        collectd::Value::Gauge(0.5),
        collectd::Value::Derive(-1),
        collectd::Value::Counter(2),
        collectd::Value::Absolute(3),
    ];
    let mut packet = Vec::new();
    collectd::write(&mut packet, names, 1_700_000_000_000, 10_000, &values).expect("small");
    let signed = [&[2, 0, 0, 38], &[7; 32][..], b"me", &packet].concat();
    (packet, signed)
}

fn opentelemetry() -> Vec<u8> {
    let (labels, samples) = series();
    let resource = [("service.name", "epn"), ("host.name", "a")];
    let kinds = [Kind::Counter, Kind::Gauge];
    otlp::encode(&resource, kinds.map(|kind| (&labels, kind, &samples[..])))
}

/// A histogram, an exponential histogram and a summary.
fn histograms() -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).expect("short");
        [&[number << 3 | 2, length], content].concat()
    };
    let double = |number: u8, value: f64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let fixed = |number: u8, value: u64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let counts = [1_u64, 2].map(u64::to_le_bytes).concat();
    let histogram = [
        fixed(4, 3),
        double(5, 1.0),
        field(6, &counts),
        field(7, &0.5_f64.to_le_bytes()),
    ]
    .concat();
    let side = [vec![8, 2], field(2, &[1, 2, 3])].concat();
    let exponential = [
        fixed(4, 6),
        vec![6 << 3, 2],
        fixed(7, 1),
        field(8, &side),
        field(9, &side),
    ]
    .concat();
    let quantile = field(6, &[double(1, 0.5), double(2, 3.0)].concat());
    let summary = [fixed(4, 2), double(5, 6.0), quantile].concat();
    let metric = |kind: u8, point: &[u8]| {
        let data = [field(1, point), vec![2 << 3, 2]].concat();
        field(
            2,
            &[field(1, b"m"), field(3, b"By/s"), field(kind, &data)].concat(),
        )
    };
    let metrics = [
        metric(9, &histogram),
        metric(10, &exponential),
        metric(11, &summary),
    ]
    .concat();
    // Longer than 127 bytes: the length takes two.
    let long = |number: u8, content: &[u8]| {
        let length = [content.len() as u8 | 0x80, (content.len() >> 7) as u8];
        [&[number << 3 | 2][..], &length, content].concat()
    };
    long(1, &long(2, &metrics))
}
