//! Intakes driven with datagrams in virtual time.

mod formats;

use super::*;
use crate::{Loss, Notice, Reason, SeriesHandle};
use core::net::IpAddr;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_samples::client;
use sheaf_samples::wire::remote_write;
use std::collections::{BTreeMap, BTreeSet};

const LINES: Protocol = Protocol::Lines(Precision::Ms);
const START_MS: i64 = 1_700_000_000_000;

fn peer(stream: u64) -> Peer {
    Peer {
        address: IpAddr::from([10, 0, 0, 1]),
        stream,
    }
}

/// An intake, the names of its series, and what it gave out.
struct Farm {
    intake: Intake,
    now_ms: i64,
    names: BTreeMap<SeriesHandle, Labels>,
    taken: Vec<(String, Sample)>,
    notices: Vec<Notice>,
    ended: usize,
}

impl Farm {
    fn new(config: IntakeConfig) -> Self {
        Self {
            intake: Intake::new(config),
            now_ms: START_MS,
            names: BTreeMap::new(),
            taken: Vec::new(),
            notices: Vec::new(),
            ended: 0,
        }
    }

    fn send(&mut self, peer: Peer, text: &str) {
        self.send_as(peer, LINES, text.as_bytes());
    }

    fn send_as(&mut self, peer: Peer, protocol: Protocol, bytes: &[u8]) {
        let mut out = Batch::default();
        self.intake
            .handle_datagram(self.now_ms, peer, protocol, bytes, &mut out);
        self.keep(out);
    }

    /// Lets `seconds` pass, with a tick in each.
    fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now_ms += 1000;
            let mut out = Batch::default();
            self.intake.handle_tick(self.now_ms, &mut out);
            self.keep(out);
        }
    }

    fn keep(&mut self, out: Batch) {
        for (handle, labels) in out.series {
            let before = self.names.insert(handle, labels);
            assert_eq!(before, None, "a handle is given out once");
        }
        for (handle, sample) in out.samples {
            self.taken.push((self.names[&handle].to_string(), sample));
        }
        for handle in out.ended {
            assert!(self.names.remove(&handle).is_some(), "it was open");
            self.ended += 1;
        }
        self.notices.extend(out.notices);
        check_sum(&self.intake);
    }

    fn stats(&self, source: &str) -> SourceStats {
        let stats = self.intake.sources().find(|one| one.0 == source);
        stats.map(|one| one.1.clone()).unwrap_or_default()
    }

    fn taken(&self) -> Vec<&str> {
        self.taken.iter().map(|one| one.0.as_str()).collect()
    }
}

/// Samples in = taken + refused + bad, for each source and in total.
#[track_caller]
fn check_sum(intake: &Intake) {
    for (name, stats) in intake.sources().chain([("total", &intake.total())]) {
        let sum = stats.taken + stats.refused_total() + stats.bad_total();
        assert_eq!(stats.samples, sum, "{name}: {stats:?}");
    }
}

#[test]
fn a_line_becomes_samples_of_its_series_and_source() {
    let mut farm = Farm::new(IntakeConfig::default());
    farm.send(
        peer(1),
        "cpu,host=a idle=1.5,user=2i\nmem,host=b value=3 1700000000007\nup value=t\n",
    );
    let expected = [
        r#"cpu_idle{host="a"}"#,
        r#"cpu_user{host="a"}"#,
        r#"mem{host="b"}"#,
        "up",
    ];
    assert_eq!(farm.taken(), expected);
    assert_eq!(
        farm.taken[0].1,
        Sample {
            at_ms: START_MS,
            value: 1.5
        }
    );
    assert_eq!(
        farm.taken[2].1,
        Sample {
            at_ms: START_MS + 7,
            value: 3.0
        }
    );
    assert_eq!(farm.taken[3].1.value, 1.0);
    assert_eq!(
        (
            farm.stats("a").taken,
            farm.stats("b").taken,
            farm.stats("10.0.0.1").taken
        ),
        (2, 1, 1)
    );
    assert_eq!(farm.stats("b").clock_offset_ms, Some(7));
    assert_eq!(farm.intake.total().datagrams, 1);
}

#[test]
fn orders_of_tags_are_one_series() {
    let mut farm = Farm::new(IntakeConfig::default());
    for _ in 0..2 {
        farm.send(peer(1), "m,a=1,b=2 value=1\nm,b=2,a=1 value=2");
    }
    assert_eq!(farm.names.len(), 1);
    assert_eq!(
        farm.taken,
        vec![farm.taken[0].clone(); 4]
            .into_iter()
            .zip([1.0, 2.0, 1.0, 2.0])
            .map(|((name, sample), value)| (name, Sample { value, ..sample }))
            .collect::<Vec<_>>()
    );
    // Not one key for each of the orders that a sender can make up.
    let tags = ["a=1", "b=2", "c=3", "d=4", "e=5"];
    for turn in 0..120 {
        let mut tags = tags.to_vec();
        let mut rest = turn;
        for left in (1..=tags.len()).rev() {
            tags[..left].swap(rest % left, left - 1);
            rest /= left;
        }
        farm.send(peer(1), &format!("n,{} value=1", tags.join(",")));
    }
    assert_eq!((farm.names.len(), farm.taken.len()), (2, 124));
    assert!(farm.intake.sizes()[2] <= 10);
}

#[test]
fn bad_lines_are_counted_by_source_and_code_and_the_good_ones_stay() {
    let mut farm = Farm::new(IntakeConfig::default());
    farm.send(
        peer(1),
        "junk\nm,host=a value=1\nm,host=a value=x\nm,host=a t=\"text\",value=2\nm,x value=1\n",
    );
    assert_eq!(farm.taken.len(), 2);
    let bad: Vec<_> = farm.stats("a").bad.into_iter().collect();
    let codes = [
        Code::TextValue,
        Code::BadSeries,
        Code::NoFields,
        Code::BadField,
    ];
    assert_eq!(bad, codes.map(|code| (code, 1)));
    farm.send(peer(1), "junk");
    assert_eq!(farm.stats("10.0.0.1").bad_total(), 1);
}

#[test]
fn times_too_far_are_refused_and_open_no_series() {
    let mut farm = Farm::new(IntakeConfig::default());
    let [old, new] = [START_MS - 86_400_001, START_MS + 600_001];
    farm.send(
        peer(1),
        &format!(
            "m,host=a value=1 {old}\nm,host=a value=1 {new}\nm,host=a value=1 {}",
            i64::MIN
        ),
    );
    assert_eq!(farm.names.len(), 0);
    farm.send(
        peer(1),
        &format!("m,host=a value=1 {}\nm,host=a value=1 {old}", old + 1),
    );
    assert_eq!(farm.taken.len(), 1);
    let total = farm.intake.total();
    assert_eq!(
        total.refused,
        [(Reason::TooOld, 3), (Reason::TooNew, 1)].into()
    );
    // A series that is known names its source.
    assert_eq!(farm.stats("a").refused_total(), 1);
}

#[test]
fn a_source_that_explodes_is_cut_off_and_named_and_recovers() {
    let config = IntakeConfig {
        new_series_burst: 10,
        new_series_per_s: 2,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    farm.send(peer(1), "calm,host=good value=1");
    for series in 0..100 {
        farm.send(peer(2), &format!("bomb,host=bad,id={series} value=1"));
        farm.send(peer(1), "calm,host=good value=1");
        farm.send(peer(1), &format!("new{},host=good value=1", series % 3));
    }
    let bad = farm.stats("bad");
    assert_eq!((bad.taken, bad.cut_offs), (10, 1));
    assert_eq!(
        bad.refused,
        [(Reason::SeriesRate, 1), (Reason::CutOff, 89)].into()
    );
    let until_ms = START_MS + 60_000;
    let source = || "bad".to_owned();
    let notice = Notice::CutOff {
        source: source(),
        reason: Reason::SeriesRate,
        until_ms,
    };
    assert_eq!(farm.notices, [notice]);
    // Others have lost nothing, and the known series of the source go on.
    assert_eq!(
        (farm.stats("good").taken, farm.stats("good").refused_total()),
        (201, 0)
    );
    farm.send(peer(2), "bomb,host=bad,id=3 value=1");
    assert_eq!(farm.stats("bad").taken, 11);
    farm.pass(59);
    farm.send(peer(2), "bomb,host=bad,id=new value=1");
    assert_eq!(farm.stats("bad").taken, 11);
    farm.pass(1);
    assert_eq!(farm.notices[1], Notice::Restored { source: source() });
    farm.send(peer(2), "bomb,host=bad,id=new value=1");
    assert_eq!(farm.stats("bad").taken, 12);
}

#[test]
fn a_clock_that_steps_back_does_not_make_a_cut_off_longer() {
    let config = IntakeConfig {
        new_series_burst: 1,
        new_series_per_s: 1,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    farm.send(peer(1), "a,host=bad value=1\nb,host=bad value=1");
    assert_eq!(farm.stats("bad").cut_offs, 1);
    farm.now_ms -= 3_600_000;
    farm.pass(1);
    let source = "bad".to_owned();
    assert_eq!(farm.notices[1], Notice::Restored { source });
    farm.pass(1);
    let at_ms = farm.now_ms;
    farm.send(peer(1), &format!("b,host=bad value=1 {at_ms}"));
    assert_eq!(farm.stats("bad").taken, 1, "nothing is refilled yet");
    farm.pass(61);
    farm.send(peer(1), &format!("b,host=bad value=1 {}", at_ms + 61_000));
    assert_eq!(farm.stats("bad").taken, 2);
}

#[test]
fn series_of_a_source_and_of_all_are_bounded_and_idle_ones_make_room() {
    let config = IntakeConfig {
        series_per_source_max: 3,
        series_max: 5,
        series_idle_s: 120,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    let send = |farm: &mut Farm, host: &str, series: i32| {
        farm.send(peer(1), &format!("m{series},host={host} value=1"));
    };
    (0..5).for_each(|series| send(&mut farm, "a", series));
    (0..5).for_each(|series| send(&mut farm, "b", series));
    assert_eq!(
        farm.stats("a").refused,
        [(Reason::SeriesLimit, 1), (Reason::CutOff, 1)].into()
    );
    assert_eq!(farm.stats("b").refused, [(Reason::TableFull, 3)].into());
    assert_eq!((farm.stats("a").series, farm.stats("b").series), (3, 2));
    // One series stays in use.
    for _ in 0..8 {
        farm.pass(30);
        send(&mut farm, "a", 0);
    }
    assert_eq!((farm.ended, farm.names.len()), (4, 1));
    assert_eq!(farm.intake.sizes(), [1, 1, 1, 1]);
    let before = farm.taken.len();
    (0..4).for_each(|series| send(&mut farm, "b", series));
    assert_eq!(farm.taken.len(), before + 3);
    assert_eq!(farm.intake.total().series, 4);
}

#[test]
fn labels_are_bounded() {
    let config = IntakeConfig {
        labels_max: 3,
        label_bytes_max: 8,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    farm.send(peer(1), "m,host=a,b=1 value=1\nm,host=a,b=1,c=1 value=1\nm,host=a,b=123456789 value=1\nm,host=123456789 value=1");
    assert_eq!(farm.taken(), [r#"m{b="1", host="a"}"#]);
    let refused = [(Reason::LabelsLimit, 1), (Reason::LabelTooLong, 2)];
    assert_eq!(farm.intake.total().refused, refused.into());
}

#[test]
fn sources_are_bounded_and_an_idle_one_makes_way() {
    let config = IntakeConfig {
        sources_max: 3,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    let send = |farm: &mut Farm, host: &str| farm.send(peer(1), &format!("m,host={host} value=1"));
    for host in ["a", "b", "c", "d"] {
        send(&mut farm, host);
    }
    assert_eq!(
        farm.intake.total().refused,
        [(Reason::SourceLimit, 1)].into()
    );
    farm.pass(30);
    for host in ["a", "b"] {
        send(&mut farm, host);
    }
    farm.pass(31);
    send(&mut farm, "d");
    assert_eq!(
        farm.notices,
        [Notice::Evicted {
            source: "c".to_owned()
        }]
    );
    assert_eq!(farm.intake.evicted(), 1);
    let names: BTreeSet<&str> = farm.intake.sources().map(|one| one.0).collect();
    assert_eq!(names, ["a", "b", "d"].into());
    // Its accounting is not gone with it, and its series has its source again when it comes back.
    assert_eq!(farm.intake.total().taken, 6);
    farm.pass(61);
    let before = farm.names.len();
    send(&mut farm, "c");
    assert_eq!(
        (
            farm.names.len(),
            farm.stats("c").taken,
            farm.stats("c").series
        ),
        (before, 1, 1)
    );
}

#[test]
fn one_address_cannot_name_all_sources() {
    let config = IntakeConfig {
        sources_per_address_max: 2,
        ..IntakeConfig::default()
    };
    let mut farm = Farm::new(config);
    (0..5).for_each(|host| farm.send(peer(1), &format!("m,host={host} value=1")));
    let other = Peer {
        address: IpAddr::from([10, 0, 0, 2]),
        stream: 1,
    };
    farm.send(other, "m,host=x value=1");
    assert_eq!(
        farm.intake.total().refused,
        [(Reason::SourceLimit, 3)].into()
    );
    assert_eq!(farm.stats("x").taken, 1);
}

#[test]
fn names_that_become_equal_are_listed() {
    let mut farm = Farm::new(IntakeConfig::default());
    farm.send(
        peer(1),
        "disk.free value=1\ndisk-free value=2\ndisk free=3\ndisk.free,host=a value=1",
    );
    let pair = |left: &str, right: &str| (left.to_owned(), right.to_owned());
    let collision = |second| Collision {
        name: "disk_free".to_owned(),
        first: pair("disk.free", "value"),
        second,
    };
    let expected = [pair("disk-free", "value"), pair("disk", "free")].map(collision);
    assert_eq!(farm.intake.collisions(), expected);
}

#[test]
fn remote_write_has_series_descriptions_and_bounds() {
    let mut farm = Farm::new(IntakeConfig::default());
    let labels = Labels::new([("__name__", "up"), ("host", "a")]).unwrap();
    let sample = |at_ms| Sample { at_ms, value: 1.0 };
    let metadata = Metadata {
        family: "up".to_owned(),
        ..Metadata::default()
    };
    let samples = [sample(START_MS), sample(START_MS + 5), sample(0)];
    let body = remote_write::encode([(&labels, &samples[..])], std::slice::from_ref(&metadata));
    farm.send_as(peer(1), Protocol::RemoteWrite, &body);
    farm.send_as(peer(1), Protocol::RemoteWrite, b"junk");
    // The same series as a line.
    farm.send(peer(1), "up,host=a value=2");
    assert_eq!((farm.names.len(), farm.taken.len()), (1, 3));
    assert_eq!(farm.stats("a").refused, [(Reason::TooOld, 1)].into());
    assert_eq!(farm.intake.total().bad, [(Code::BadCompression, 1)].into());
    assert_eq!(farm.intake.metadata().collect::<Vec<_>>(), [&metadata]);
}

/// A client that packs 10 samples a datagram and reports in the last one of each flush.
struct Client {
    host: String,
    stream: u64,
    sent: u64,
    dropped: u64,
}

impl Client {
    fn new(host: &str, stream: u64) -> Self {
        Self {
            host: host.to_owned(),
            stream,
            sent: 0,
            dropped: 0,
        }
    }

    /// Datagrams of one flush.
    fn flush(&mut self, now_ms: i64, samples: u64) -> Vec<String> {
        let host = &self.host;
        let mut lines: Vec<String> = (0..samples - 2)
            .map(|index| format!("m{},host={host} value={index} {now_ms}\n", index % 50))
            .collect();
        self.sent += samples;
        let reports = [(client::SENT, self.sent), (client::DROPPED, self.dropped)];
        lines.extend(reports.map(|(name, value)| {
            let (process, backend) = (client::PROCESS, client::BACKEND);
            format!("{name},{backend}=udp,host={host},{process}=p value={value}u {now_ms}\n")
        }));
        lines.chunks(10).map(<[String]>::concat).collect()
    }
}

/// Way that loses and delays datagrams; counts the samples that it lost.
struct Way {
    rng: Xoshiro256PlusPlus,
    loss: f64,
    reorder: f64,
    lost: u64,
    late: Vec<(Peer, String)>,
}

impl Way {
    fn new(seed: u64, loss: f64, reorder: f64) -> Self {
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            loss,
            reorder,
            lost: 0,
            late: Vec::new(),
        }
    }

    fn carry(&mut self, farm: &mut Farm, peer: Peer, datagrams: Vec<String>) {
        for datagram in datagrams {
            if self.rng.random_bool(self.loss) {
                self.lost += datagram.lines().count() as u64;
            } else if self.rng.random_bool(self.reorder) {
                self.late.push((peer, datagram));
            } else {
                farm.send(peer, &datagram);
                // What was late comes behind the next one.
                for (peer, datagram) in std::mem::take(&mut self.late) {
                    farm.send(peer, &datagram);
                }
            }
        }
    }
}

/// Asserts that the loss of `host` is `lost` to a thousandth of what was sent.
#[track_caller]
fn check_loss(farm: &Farm, host: &str, lost: u64, note: &str) {
    let loss = farm.stats(host).loss;
    let error = loss.lost().abs_diff(lost) as f64 / loss.sent.max(1) as f64;
    assert!(error <= 0.001, "{note}: {loss:?}, {lost} were lost");
    assert!(loss.sent > 0, "{note}");
}

#[test]
fn a_loss_of_one_percent_is_seen_as_such_within_two_seconds() {
    for seed in 1..=20 {
        let mut farm = Farm::new(IntakeConfig::default());
        let mut clients = [Client::new("a", 1), Client::new("b", 2)];
        let mut ways = [Way::new(seed, 0.01, 0.02), Way::new(seed, 0.0, 0.02)];
        // Lost up to the latest report that arrived, and its count and tick.
        let mut lost = [0; 2];
        let mut reports: [Option<(u64, i64)>; 2] = [None; 2];
        let mut base = [0; 2];
        for tick in 0..100 {
            farm.now_ms += 100;
            for (at, (client, way)) in clients.iter_mut().zip(&mut ways).enumerate() {
                let datagrams = client.flush(farm.now_ms, 1_000);
                way.carry(&mut farm, peer(client.stream), datagrams);
                let sent = farm.stats(&client.host).loss.sent;
                if sent == 0 {
                    // The first report is the base: what was lost before it is not known.
                    base[at] = way.lost;
                }
                if reports[at].is_none_or(|report| report.0 != sent) {
                    reports[at] = Some((sent, tick));
                    lost[at] = way.lost - base[at];
                }
                let age = tick - reports[at].expect("set above").1;
                assert!(
                    age <= 20,
                    "seed {seed}, tick {tick}: no number for {age} ticks"
                );
                if tick > 20 {
                    let note = format!("seed {seed}, tick {tick}");
                    check_loss(&farm, &client.host, lost[at], &note);
                }
            }
            // Beside them a program that reports nothing, over a link of its own.
            farm.send(peer(3), "other,host=a value=1");
        }
        assert!(
            ways[0].lost > 500,
            "seed {seed}: the way lost {}",
            ways[0].lost
        );
    }
}

fn loss(sent: u64, arrived: u64, dropped: u64) -> Loss {
    Loss {
        sent,
        arrived,
        dropped,
    }
}

#[test]
fn restarts_of_client_and_collector_are_no_loss() {
    let mut farm = Farm::new(IntakeConfig::default());
    let mut way = Way::new(1, 0.0, 0.0);
    let mut client = Client::new("a", 1);
    let run = |farm: &mut Farm, client: &mut Client, way: &mut Way| {
        for _ in 0..20 {
            farm.now_ms += 100;
            let datagrams = client.flush(farm.now_ms, 100);
            way.carry(farm, peer(client.stream), datagrams);
        }
    };
    run(&mut farm, &mut client, &mut way);
    assert_eq!(farm.stats("a").loss, loss(1_900, 1_900, 0));
    // The client begins again, at another port.
    client = Client::new("a", 7);
    run(&mut farm, &mut client, &mut way);
    assert_eq!(farm.stats("a").loss, loss(3_900, 3_900, 0));
    // The same port, and samples that it dropped itself.
    client = Client::new("a", 7);
    run(&mut farm, &mut client, &mut way);
    client.dropped = 12;
    run(&mut farm, &mut client, &mut way);
    assert_eq!(farm.stats("a").loss, loss(7_900, 7_900, 12));
    // The collector begins again: the first report is its base.
    farm.intake = Intake::new(IntakeConfig::default());
    farm.names.clear();
    run(&mut farm, &mut client, &mut way);
    assert_eq!(farm.stats("a").loss, loss(1_900, 1_900, 0));
}

#[test]
fn a_report_that_was_overtaken_is_no_restart() {
    let mut farm = Farm::new(IntakeConfig::default());
    let report = |farm: &mut Farm, value: u64, at: i64| {
        let name = client::SENT;
        farm.send(
            peer(1),
            &format!("{name},host=a,process=p value={value}u {}", START_MS + at),
        );
    };
    report(&mut farm, 100, 0);
    report(&mut farm, 102, 200);
    report(&mut farm, 101, 100);
    report(&mut farm, 103, 300);
    assert_eq!(farm.stats("a").loss, loss(3, 3, 0));
}

#[test]
fn two_clients_behind_one_relay_do_not_hide_the_loss_of_one() {
    let mut farm = Farm::new(IntakeConfig::default());
    let mut clients = [Client::new("a", 1), Client::new("b", 1)];
    let mut ways = [Way::new(5, 0.05, 0.0), Way::new(6, 0.0, 0.0)];
    for _ in 0..60 {
        farm.now_ms += 100;
        for (client, way) in clients.iter_mut().zip(&mut ways) {
            let datagrams = client.flush(farm.now_ms, 200);
            way.carry(&mut farm, peer(1), datagrams);
        }
    }
    let (a, b) = (farm.stats("a").loss, farm.stats("b").loss);
    assert_eq!(b.lost(), 0);
    assert!(
        a.lost().abs_diff(ways[0].lost) <= 40,
        "{a:?}, {} were lost",
        ways[0].lost
    );
}

/// Lines of a few sources, good and bad.
fn datagram() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => ("[a-c]{1,2}", "[a-e]", 0..9_i64, -1..2_i64).prop_map(|(name, host, id, days)| {
            let at_ms = START_MS + days * 100_000_000;
            format!("{name},host={host},id={id} value=1,text=\"x\" {at_ms}")
        }),
        2 => "[a-c]{1,2},id=[0-9]{1,3} value=[0-9]{1,3}i",
        1 => "[ -~]{0,20}",
    ];
    proptest::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn samples_in_are_taken_refused_or_bad(
        datagrams in proptest::collection::vec((datagram(), 0..4_u64, 0..90_i64), 1..40),
    ) {
        let mut farm = Farm::new(IntakeConfig {
            sources_max: 4,
            sources_per_address_max: 3,
            series_max: 40,
            series_per_source_max: 10,
            new_series_burst: 8,
            new_series_per_s: 1,
            series_idle_s: 100,
            ..IntakeConfig::default()
        });
        for (text, stream, seconds) in datagrams {
            farm.send(peer(stream), &text);
            farm.pass(seconds);
            let [sources, series, keys, _] = farm.intake.sizes();
            prop_assert!(sources <= 4 && series <= 40 && keys <= 40 * 9);
            prop_assert_eq!(series, farm.names.len());
        }
        prop_assert_eq!(farm.intake.total().taken, farm.taken.len() as u64);
    }
}
