//! Every format through an intake.

use super::*;
use sheaf_samples::wire::collectd::{self, Types};
use sheaf_samples::wire::{Kind, otlp};

#[test]
fn a_scrape_has_the_labels_of_its_target() {
    let mut farm = Farm::new(IntakeConfig::default());
    let text = "# HELP a Help.\n# TYPE a gauge\na{job=\"x\",b=\"1\"} 2\nbad\na 3 1700000000005\n";
    let (mut out, mut seen) = (Batch::default(), Vec::new());
    let target = [("job", "farm"), ("instance", "node1")];
    let format = Format::Text;
    farm.intake.handle_scrape(
        START_MS,
        peer(1),
        format,
        &target,
        text.as_bytes(),
        &mut seen,
        &mut out,
    );
    farm.keep(out);
    // The second has a time of its own, so its absence would say nothing.
    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
    assert_eq!(
        seen,
        [r#"a{b="1", exported_job="x", instance="node1", job="farm"}"#]
    );
    let expected = [
        r#"a{b="1", exported_job="x", instance="node1", job="farm"}"#,
        r#"a{instance="node1", job="farm"}"#,
    ];
    assert_eq!(farm.taken(), expected);
    assert_eq!(farm.taken[1].1.at_ms, START_MS + 5);
    assert_eq!(farm.intake.total().bad, [(Code::BadNumber, 1)].into());
    let metadata: Vec<_> = farm
        .intake
        .metadata()
        .map(|one| (one.kind, one.help.as_str()))
        .collect();
    assert_eq!(metadata, [(Kind::Gauge, "Help.")]);
}

/// A sum of OTLP named `m` with one point, of delta temporality.
fn delta(value: f64) -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    };
    let point = [&[4 << 3 | 1][..], &value.to_bits().to_le_bytes()].concat();
    let sum = [field(1, &point), vec![2 << 3, 1, 3 << 3, 1]].concat();
    let metric = [field(1, b"m"), field(7, &sum)].concat();
    field(1, &field(2, &field(2, &metric)))
}

#[test]
fn deltas_are_added_up_and_cumulative_points_are_not() {
    let mut farm = Farm::new(IntakeConfig {
        series_idle_s: 100,
        ..IntakeConfig::default()
    });
    for value in [2.0, 3.0] {
        farm.send_as(peer(1), Protocol::Otlp, &delta(value));
    }
    let labels = Labels::new([("__name__", "n"), ("host", "a")]).unwrap();
    let samples = [Sample {
        at_ms: START_MS,
        value: 7.0,
    }];
    let body = otlp::encode(
        &[("service.name", "x")],
        [(&labels, Kind::Gauge, &samples[..])],
    );
    farm.send_as(peer(1), Protocol::Otlp, &body);
    farm.send_as(peer(1), Protocol::Otlp, &body);
    let values: Vec<f64> = farm.taken.iter().map(|one| one.1.value).collect();
    assert_eq!(values, [2.0, 5.0, 7.0, 7.0]);
    assert_eq!(farm.taken()[2], r#"n{host="a", job="x"}"#);
    // A series that ended begins again.
    farm.pass(300);
    farm.send_as(peer(1), Protocol::Otlp, &delta(4.0));
    assert_eq!(farm.taken.last().unwrap().1.value, 4.0);
}

#[test]
fn collectd_has_types_and_signatures() {
    let mut farm = Farm::new(IntakeConfig::default());
    let names = collectd::Names {
        host: "a",
        plugin: "interface",
        plugin_instance: "eth0",
        kind: "if_octets",
        type_instance: "",
    };
    let values = [collectd::Value::Derive(1), collectd::Value::Derive(2)];
    let mut packet = Vec::new();
    collectd::write(&mut packet, names, START_MS, 1_000, &values).unwrap();
    farm.send_as(peer(1), Protocol::Collectd, &packet);
    let types = Types::parse("if_octets rx:DERIVE:0:U, tx:DERIVE:0:U").0;
    let verify = |user: &str, _: &[u8], mac: &[u8]| user == "me" && mac == [7; 32];
    farm.intake
        .set_collectd(types, Some(Box::new(verify)), true);
    farm.send_as(peer(1), Protocol::Collectd, &packet);
    let signed = |mac: u8| [&[2, 0, 0, 38], &[mac; 32][..], b"me", &packet].concat();
    farm.send_as(peer(1), Protocol::Collectd, &signed(8));
    farm.send_as(peer(1), Protocol::Collectd, &signed(7));
    let name = |source| {
        format!(
            r#"collectd_interface_if_octets_{source}_total{{host="a", plugin_instance="eth0"}}"#
        )
    };
    assert_eq!(farm.taken(), ["0", "1", "rx", "tx"].map(name));
    let bad = [(Code::Unsigned, 1), (Code::BadSignature, 1)];
    assert_eq!(farm.intake.total().bad, bad.into());
}

#[test]
fn events_are_summed_up_and_bounded_like_samples() {
    let mut farm = Farm::new(IntakeConfig {
        series_per_source_max: 7,
        ..IntakeConfig::default()
    });
    let send =
        |farm: &mut Farm, text: &str| farm.send_as(peer(1), Protocol::StatsD, text.as_bytes());
    farm.pass(1);
    send(
        &mut farm,
        "hits:1|c\nhits:2|c|@0.5\nlat:3|ms|#host:a\nlat:5|ms|#host:a\nbad\nx:1|c|#a:1,a:2",
    );
    assert_eq!(farm.taken.len(), 0);
    farm.pass(1);
    let values: Vec<String> = farm
        .taken
        .iter()
        .map(|one| format!("{} {}", one.0, one.1.value))
        .collect();
    let expected = [
        "hits 5",
        r#"lat{host="a", quantile="0.5"} 3"#,
        r#"lat{host="a", quantile="0.9"} 5"#,
        r#"lat{host="a", quantile="0.99"} 5"#,
        r#"lat_count{host="a"} 2"#,
        r#"lat_sum{host="a"} 8"#,
    ];
    assert_eq!(values, expected);
    assert_eq!(
        (farm.stats("a").taken, farm.stats("10.0.0.1").taken),
        (2, 2)
    );
    assert_eq!(farm.stats("10.0.0.1").bad_total(), 2);
    // An observation takes five series, and the source has room for two more.
    send(&mut farm, "more:1|h|#host:a");
    assert_eq!(farm.stats("a").refused, [(Reason::SeriesLimit, 1)].into());
    farm.pass(3_600);
    farm.pass(90);
    assert_eq!(farm.names.len(), 0);
    let before = farm.taken.len();
    farm.pass(90);
    assert_eq!(farm.taken.len(), before);
}

proptest! {
    #[test]
    fn samples_in_are_taken_refused_or_bad_in_any_format(
        inputs in proptest::collection::vec((0..6_usize, proptest::collection::vec(any::<u8>(), 0..40)), 0..30),
    ) {
        let mut farm = Farm::new(IntakeConfig::default());
        let protocols = [
            LINES, Protocol::RemoteWrite, Protocol::Exposition(Format::OpenMetrics), Protocol::Otlp,
            Protocol::Collectd, Protocol::StatsD,
        ];
        for (at, mut bytes) in inputs {
            if at == 5 {
                bytes.extend_from_slice(b"\na:1|c\na:1|h");
            }
            if at == 3 {
                bytes.extend(delta(1.0));
            }
            // `keep` asserts the sum.
            farm.send_as(peer(at as u64), protocols[at], &bytes);
        }
    }
}
