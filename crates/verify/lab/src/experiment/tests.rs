//! Files that are sound, and files that are not.

use super::*;

const BASE: &str = "
name = 'x'
question = 'does it hold?'
[base]
topology = 'pi-cluster'
flps = 1
epns = 6
rate_hz = 200.0
duration_s = 30.0
policy = 'round-robin'
[[point]]
label = '#4'
bytes = 58000
published_loss_percent = 0.0
[[point]]
label = '#11'
flps = 2
epns = 5
bytes = 29000
published_loss_percent = 0.51
[matrix]
mode = ['sheaf', 'legacy']
[scenario]
hold_bytes = 16777216
";

fn lines(text: &str) -> Vec<String> {
    let trials = Experiment::parse(text, "x").unwrap().trials().unwrap();
    trials.iter().map(Trial::line).collect()
}

fn refusal(text: &str) -> String {
    Experiment::parse(text, "x.toml").unwrap_err().to_string()
}

#[test]
fn every_point_is_combined_with_the_matrix() {
    let lines = lines(BASE);
    let legacy = "counting-builder+cutoff-1000ms+no-removal";
    assert_eq!(
        lines,
        [
            "#4: 1 FLP, 6 EPN, 200 Hz, 58000 B, round-robin, sheaf on pi-cluster, 30 s".to_owned(),
            format!("#4: 1 FLP, 6 EPN, 200 Hz, 58000 B, round-robin, {legacy} on pi-cluster, 30 s"),
            "#11: 2 FLP, 5 EPN, 200 Hz, 29000 B, round-robin, sheaf on pi-cluster, 30 s".to_owned(),
            format!(
                "#11: 2 FLP, 5 EPN, 200 Hz, 29000 B, round-robin, {legacy} on pi-cluster, 30 s"
            ),
        ]
    );
    let trials = Experiment::parse(BASE, "x").unwrap().trials().unwrap();
    assert_eq!(trials[2].id, "003-sheaf-live-2x5-200hz-29000b");
    assert_eq!(trials[2].scenario.published_loss_percent, Some(0.51));
}

#[test]
fn a_quick_one_runs_every_point_once_for_five_seconds() {
    let text = BASE.replace("[matrix]", "[matrix]\nduration_s = [30.0, 300.0]");
    assert_eq!(lines(&text).len(), 8);
    let quick = Experiment::parse(&text, "x").unwrap().quick();
    let trials = quick.trials().unwrap();
    assert_eq!(
        (quick.iterations, trials.len()),
        (1, 4),
        "two lengths became one"
    );
    assert!(
        trials
            .iter()
            .all(|trial| trial.scenario.duration_s == QUICK_S)
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_its_key_and_what_is_accepted() {
    for (from, to, told) in [
        (
            "epns = 6",
            "epns = 7",
            "x: epns: found 7, expected at most 6 on topology pi-cluster",
        ),
        (
            "'round-robin'",
            "'fairest'",
            "policy `fairest`, expected one of fixed, random, round-robin",
        ),
        (
            "'round-robin'",
            "'maglev'",
            "policy: found \"maglev\", expected in mode legacy one of: fixed, round-robin",
        ),
        (
            "'pi-cluster'",
            "'moon'",
            "topology \"moon\" does not exist, expected a file or one of: pi-cluster",
        ),
        (
            "topology = 'pi-cluster'",
            "",
            "x: topology: found none, expected the name of a topology",
        ),
        (
            "'legacy'",
            "'modern'",
            "unknown variant `modern`, expected `sheaf` or `legacy`",
        ),
        (
            "flps = 1",
            "flps = 1\nspeed = 9",
            "unknown field `speed`, expected one of",
        ),
        (
            "flps = 1",
            "flps = 1\nack = 'processed'",
            "x: ack: found processed, expected built for live points without processing.ms",
        ),
        (
            "mode = ['sheaf', 'legacy']",
            "mode = ['legacy']\nack = ['processed']",
            "ack: found processed, expected built in mode legacy",
        ),
        (
            "mode = ['sheaf', 'legacy']",
            "mode = ['legacy']\nlegacy.zookeeper_tick_ms = [5]",
            "legacy.zookeeper_tick_ms: found 5, expected 0 in live points",
        ),
        (
            "flps = 1",
            "flps = 1\npublished_sd = 1.0",
            "published_runs: found 1, expected 2 or more, if published_sd is said",
        ),
        (
            "flps = 1",
            "flps = 1\nprocessing = { ms = 1.0 }",
            "x: processing.ms: found 1, expected 0 for live points in mode legacy",
        ),
        ("rate_hz = 200.0", "rate_hz = 0.0", "rate_hz: found 0"),
        (
            "name = 'x'",
            "name = 'X/y'",
            "name: found \"X/y\", expected lower-case letters",
        ),
        (
            "name = 'x'",
            "name = 'x'\niterations = 0",
            "iterations: found 0, expected at least 1",
        ),
        (
            "[matrix]",
            "[chaos]\nevery_s = 1.0\naway_s = 2.0\n[matrix]",
            "away_s shorter than every_s",
        ),
        (
            "[matrix]",
            "[[fault]]\nat_s = 1.0\nkind = 'slow'\nepn = 0\nfactor = 2.0\n[matrix]",
            "fault.kind: found slow, expected crash, hang, slow-nic, partition or leave for live points",
        ),
    ] {
        let text = BASE.replacen(from, to, 1);
        assert_ne!(text, BASE, "{from}");
        let told_now = refusal(&text);
        assert!(told_now.contains(told), "{to}: {told_now}");
    }
}

#[test]
fn a_matrix_beyond_reason_is_refused() {
    let many: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let text = format!(
        "name = 'x'\nquestion = '?'\n[base]\nsource = 'sim'\n[matrix]\nbytes = [{0}]\nepns = [{0}]",
        many.join(", ")
    );
    assert_eq!(
        refusal(&text),
        "x: matrix: found 40000, expected at most 2000 points"
    );
}

#[test]
fn chaos_kills_by_the_seed_and_everybody_is_back_in_the_end() {
    let text = "name = 'x'\nquestion = '?'\n[base]\nsource = 'sim'\nepns = 5\nduration_s = 60.0\n\
                [chaos]\nevery_s = 4.0\naway_s = 1.0";
    let faults = |text: &str| {
        Experiment::parse(text, "x")
            .unwrap()
            .trials()
            .unwrap()
            .remove(0)
            .scenario
            .faults
    };
    let first = faults(text);
    assert_eq!(first, faults(text));
    assert_ne!(first, faults(&format!("seed = 2\n{text}")));
    assert_eq!(first.len(), 14);
    assert!(
        first
            .iter()
            .all(|fault| fault.epn.is_some_and(|epn| epn < 5) && fault.at_s + 1.0 < 59.0)
    );
}

#[test]
fn every_experiment_that_comes_along_is_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments");
    let mut found = 0;
    for folder in [folder.clone(), folder.join("scenarios")] {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "toml") {
                continue;
            }
            let experiment = Experiment::read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                path.file_stem().unwrap().to_str(),
                Some(experiment.name.as_str())
            );
            experiment.clone().quick().trials().unwrap();
            let simulated = Experiment::read_for_simulator(&path).unwrap();
            assert_eq!(simulated, experiment, "both commands read the same");
            found += 1;
        }
    }
    assert!(found > 15, "{found} in {}", folder.display());
}

#[test]
fn every_point_of_the_calibration_is_measured_and_simulated_on_the_same_wires() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments/calibration.toml");
    let trials = Experiment::read(&path).unwrap().trials().unwrap();
    assert!(trials.len() >= 20 && trials.len().is_multiple_of(2));
    for pair in trials.chunks(2) {
        assert_eq!((pair[0].source, pair[1].source), (Kind::Live, Kind::Sim));
        assert_eq!(pair[0].venue, pair[1].venue);
        let (live, simulated) = (&pair[0].scenario, &pair[1].scenario);
        assert_eq!(pair[0].label, pair[1].label);
        assert_eq!(
            (&live.size, &live.faults),
            (&simulated.size, &simulated.faults)
        );
        assert!(simulated.network.burst_bytes > 0 && simulated.farm.paced);
    }
}

#[test]
fn a_file_of_the_simulator_is_simulated_without_saying_so_and_the_lab_asks_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.toml");
    std::fs::write(
        &path,
        "flps = 3\n[size]\nmodel = 'trace'\ntrace = 'sizes.txt'\n\
         [processing]\nms = 5.0\ndistribution = 'trace'\ntrace = 'times.txt'",
    )
    .unwrap();
    let sizes = folder.path().join("sizes.txt");
    std::fs::write(&sizes, "# bytes\n10\n20 B\n").unwrap();
    let told = Experiment::read_for_simulator(&path)
        .unwrap_err()
        .to_string();
    let expected =
        "size.trace: found sizes.txt: `20 B` in line 3, expected one size in bytes a line";
    assert!(told.contains(expected), "{told}");
    std::fs::write(&sizes, "# bytes\n10\n20\n").unwrap();
    let times = folder.path().join("times.txt");
    std::fs::write(&times, "10\nx\n").unwrap();
    let told = Experiment::read_for_simulator(&path).and_then(|read| read.trials().map(drop));
    let told = told.unwrap_err().to_string();
    let expected =
        "processing.trace: found times.txt: `x` in line 2, expected one time above 0 a line";
    assert!(told.contains(expected), "{told}");
    std::fs::write(&times, "10\n30\n").unwrap();
    let experiment = Experiment::read_for_simulator(&path).unwrap();
    let trials = experiment.trials().unwrap();
    assert_eq!((trials.len(), trials[0].source), (1, Kind::Sim));
    assert_eq!(trials[0].scenario.size.trace_bytes, [10, 20]);
    let times = &trials[0].scenario.processing.trace_times;
    assert_eq!(times[..], [0.5, 1.5]);
    assert_eq!(
        (experiment.name.as_str(), experiment.iterations),
        ("scenario", 1)
    );
    let told = Experiment::read(&path).unwrap_err().to_string();
    assert!(told.contains("missing field `name`"), "{told}");
    let told = refusal("name = 'x'\nquestion = '?'\nflps = 3");
    assert!(
        told.contains("found none, expected the name of a topology"),
        "{told}"
    );
}

const WRITERS: &str = "
name = 'x'
question = 'how fast?'
[writing]
mix = 'sfo-2015'
block_s = 1.5
[[variant]]
source = 'live'
duration_s = 6.0
[[variant]]
source = 'sim'
duration_s = 45.0
drift = 0.25
[matrix]
workers = [2, 4]
assignment = ['joint-2', 'striped']
";

#[test]
fn writers_are_points_of_the_same_schema_and_need_no_topology() {
    let trials = Experiment::parse(WRITERS, "x").unwrap().trials().unwrap();
    let ids: Vec<&str> = trials.iter().map(|trial| trial.id.as_str()).collect();
    assert_eq!(ids.len(), 8);
    assert_eq!(ids[0], "001-writers-live-sfo-2015-2w-joint-2");
    assert_eq!(ids[7], "008-writers-sim-sfo-2015-4w-striped");
    assert_eq!(
        trials[7].line(),
        "sfo-2015, drift 0.25, 4 workers: striped, 615 MB/s a worker, simulated, 45 s"
    );
    assert!(trials.iter().all(|trial| trial.venue.is_none()));
    let quick = Experiment::parse(WRITERS, "x").unwrap().quick();
    assert!(quick.points.iter().all(|point| point.duration_s == 3.0));
}

#[test]
fn writers_that_make_no_sense_are_refused_with_their_key_and_what_is_accepted() {
    for (from, to, told) in [
        (
            "'striped'",
            "'fastest'",
            "writing.assignment: found assignment `fastest`, expected one of joint-1, joint-2",
        ),
        (
            "'sfo-2015'",
            "'sfo-1999'",
            "writing.mix: found mix `sfo-1999`, expected one of sfo-2016, sfo-2015, flat",
        ),
        (
            "[2, 4]",
            "[0]",
            "writing.workers: found 0, expected 1 to 64",
        ),
        ("1.5", "0.0", "writing.block_s: found 0, expected 0.1 to 60"),
        ("0.25", "-1.0", "writing.drift: found -1, expected 0 to 3"),
        (
            "1.5",
            "1.5\nwriters = 20",
            "source: found \"live\", expected \"sim\" for several writers",
        ),
        (
            "[writing]",
            "topology = 'pi-cluster'\n[writing]",
            "topology: found pi-cluster, expected none in points with [writing]",
        ),
        (
            "[writing]",
            "mode = 'legacy'\n[writing]",
            "mode: found legacy, expected sheaf in points with [writing]",
        ),
        (
            "[writing]",
            "[[faults]]\nat_s = 1.0\nkind = 'crash'\nepn = 0\n[writing]",
            "faults: found 1, expected none in points with [writing]",
        ),
        ("mix =", "mixture =", "unknown field `mixture`"),
        ("mix = 'sfo-2015'", "trace = 'none.csv'", "none.csv"),
    ] {
        let error = refusal(&WRITERS.replace(from, to));
        assert!(error.contains(told), "{to}: {error}");
    }
}

#[test]
fn recorded_streams_are_read_from_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    let text = WRITERS.replace("mix = 'sfo-2015'", "trace = 'run.csv'");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("run.csv"), "0,a,10\n1,b,20\n").unwrap();
    let trials = Experiment::read(&path).unwrap().trials().unwrap();
    assert_eq!(trials[0].id, "001-writers-live-trace-2w-joint-2");
    let writing = trials[0].scenario.writing.as_ref().unwrap();
    assert_eq!(writing.recorded.records.len(), 2);
    std::fs::write(folder.path().join("run.csv"), "0,a\n").unwrap();
    let told = Experiment::read(&path).unwrap_err().to_string();
    assert!(
        told.contains("writing.trace: found run.csv: line 1: found `0,a`"),
        "{told}"
    );
}

#[test]
fn the_layout_of_before_the_one_schema_gives_the_same_points() {
    let (head, rest) = BASE.split_once("[base]").unwrap();
    let (middle, end) = rest.split_once("[scenario]").unwrap();
    let present = format!("{head}{end}{middle}");
    let former = Experiment::parse(BASE, "x").unwrap();
    assert_eq!(Experiment::parse(&present, "x").unwrap(), former);
    assert_eq!(former.iterations, 3);
}

const SERVERS: &str = "
name = 'x'
question = 'how much?'
duration_s = 60.0
point = [
    { clients = 1000 },
    { clients = 5000, serving.client_mbit = 0.0 },
    { serving.method = 'put', serving.engine = 'sheaf', serving.fault = 'server-killed' },
]
[serving]
object_bytes = 200000
[matrix]
plane = ['direct', 'nft']
";

#[test]
fn servers_are_points_of_the_same_schema_and_need_no_topology() {
    let experiment = Experiment::parse(SERVERS, "x").unwrap();
    let trials = experiment.trials().unwrap();
    let ids: Vec<&str> = trials.iter().map(|trial| trial.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "001-servers-direct-1000-20mbit",
            "002-servers-nft-1000-20mbit",
            "003-servers-direct-5000-free",
            "004-servers-nft-5000-free",
            "005-servers-direct-1000-20mbit-put-server-killed",
            "006-servers-nft-1000-20mbit-put-server-killed",
        ]
    );
    assert_eq!(
        trials[3].line(),
        "5000 clients, hosts without cables: nft, 6 servers (nginx), 50 hosts, objects of 200000 B, 1:50, 60 s"
    );
    assert!(trials.iter().all(|trial| trial.venue.is_none()));
    let quick = experiment.quick();
    assert!(quick.points.iter().all(|point| point.duration_s == QUICK_S));
}

#[test]
fn servers_that_make_no_sense_are_refused_with_their_key_and_what_is_accepted() {
    for (from, to, told) in [
        (
            "'nft'",
            "'ether'",
            "serving.plane: found \"ether\", expected one of: direct, haproxy, nft, nft-nat, ipvs",
        ),
        (
            "engine = 'sheaf'",
            "engine = 'apache'",
            "serving.engine: found \"apache\", expected one of: nginx, sheaf",
        ),
        (
            "engine = 'sheaf'",
            "engine = 'nginx'",
            "serving.engine: found \"nginx\", expected \"sheaf\" for uploads",
        ),
        (
            "'server-killed'",
            "'moon'",
            "unknown variant `moon`, expected one of `server-killed`",
        ),
        (
            "clients = 1000",
            "clients = 0",
            "serving.clients: found 0, expected 1 to 100000",
        ),
        ("60.0", "0.0", "duration_s: found 0, expected 0.5 to 3600"),
        (
            "[serving]",
            "topology = 'pi-cluster'\n[serving]",
            "topology: found pi-cluster, expected none in points with [serving]",
        ),
        (
            "[serving]",
            "source = 'sim'\n[serving]",
            "source: found \"sim\", expected \"live\" in points with [serving]",
        ),
        (
            "[serving]",
            "[[faults]]\nat_s = 1.0\nkind = 'crash'\nepn = 0\n[serving]",
            "faults: found 1, expected none in points with [serving]",
        ),
        (
            "[serving]",
            "[writing]\nmix = 'flat'\n[serving]",
            "writing: found a table, expected none in points with [serving]",
        ),
        ("object_bytes =", "object =", "unknown field `object`"),
    ] {
        let text = SERVERS.replacen(from, to, 1);
        assert_ne!(text, SERVERS, "{from}");
        let error = refusal(&text);
        assert!(error.contains(told), "{to}: {error}");
    }
}
