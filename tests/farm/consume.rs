//! Consumers that look at TFs in the memory of an EPN: after the death of any process no TF is taken twice and no byte
//! differs.

use crate::harness::{DemoDir, Running, Summary, farm_turn, sheaf, start, start_icn, write};
use crate::streams::json_of;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

/// A consumer that writes down what it gets.
fn consumer(socket: &Path, log: &Path, words: &[&str]) -> Running {
    let mut all = vec![
        "data",
        "consume",
        socket.to_str().unwrap(),
        "--wait",
        "60s",
        "--log",
    ];
    all.push(log.to_str().unwrap());
    all.extend(words);
    Running::start(&all)
}

/// The TFs in a log, none of them twice, all of them whole.
fn tfs(log: &Path) -> BTreeSet<u64> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut tfs = BTreeSet::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["faults"], Value::Array(vec![]), "{line}");
        assert!(tfs.insert(line["tf"].as_u64().unwrap()), "twice: {line}");
    }
    tfs
}

/// TFs that consumers took from one life of an EPN.
fn taken(events: &Path) -> BTreeSet<u64> {
    let text = std::fs::read_to_string(events).unwrap();
    let mut tfs = BTreeSet::new();
    // The last line of a life that was killed may be cut.
    let lines = text.lines().map(serde_json::from_str::<Value>);
    for line in lines.filter_map(Result::ok) {
        if line["event"] == "delivered" {
            tfs.insert(line["tf"].as_u64().unwrap());
        }
    }
    tfs
}

fn end(dir: &DemoDir, demo: Running) -> Summary {
    let ended = demo.end();
    let stdout = ended.stdout.join("\n");
    assert!(ended.status.success(), "{stdout}\n{}", ended.stderr);
    let summary = dir.summary();
    summary.assert_sound();
    summary
}

#[test]
fn consumers_share_an_epn_and_one_that_is_killed_takes_only_its_own_with_it() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = format!(
        "--flps 2 --epns 1 --rate 200 --source generator --stf-bytes 100000 --duration 6s --sink shm:{}",
        at("s").display()
    );
    let demo = Running::start(&dir.words(&line));
    let killed = consumer(&at("s"), &at("killed"), &["--no-check"]);
    killed.await_line("TF/s");
    let lasting = consumer(&at("s"), &at("lasting"), &[]);
    lasting.await_line("TF/s");
    killed.await_line("TF/s");
    killed.signal(Signal::KILL);
    killed.end();
    let summary = end(&dir, demo);
    summary.assert_nothing_lost();
    let ended = lasting.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let had = tfs(&at("lasting"));
    let complete = summary.count("complete");
    assert!(
        had.len() as u64 > complete / 3 && (had.len() as u64) < complete,
        "{} of {complete}",
        had.len()
    );
    // When there was no other any more it got each one.
    assert!(
        (complete - 100..complete).all(|tf| had.contains(&tf)),
        "{had:?}"
    );
}

#[test]
fn an_epn_that_is_killed_leaves_its_consumer_whole_and_comes_back_to_it() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Digests are computed of what lies in memory of FLPs, by chance at the moment in which the EPN dies too. That such
    // memory stays lent then is shown by the tests of `crates/io/transport/src/handover`, not here.
    let line = format!(
        "--flps 2 --epns 2 --rate 200 --source generator --stf-bytes 300000 --duration 4s --sink shm:{} \
         --kill epn:0@1s --start epn:0@1500ms --kill epn:0@2500ms --start epn:0@3s",
        at("{epn}").display()
    );
    let demo = Running::start(&dir.words(&line));
    let consumers =
        ["0", "1"].map(|epn| consumer(&at(epn), &at(&format!("log{epn}")), &["--again"]));
    let summary = end(&dir, demo);
    summary.assert_nothing_lost();
    let mut had = BTreeSet::new();
    for (epn, consumer) in consumers.into_iter().enumerate() {
        consumer.signal(Signal::TERM);
        let ended = consumer.end();
        assert!(
            ended.status.success(),
            "{:?}\n{}",
            ended.stdout,
            ended.stderr
        );
        for tf in tfs(&at(&format!("log{epn}"))) {
            assert!(had.insert(tf), "TF {tf} was had at both EPNs");
        }
    }
    let of_first = tfs(&at("log0"));
    let lives = ["epn-0.events", "epn-0.life-2.events", "epn-0.life-3.events"];
    let served = lives.map(|life| taken(&dir.out().join(life)).intersection(&of_first).count());
    let lives = served.iter().filter(|tfs| **tfs > 0).count();
    assert!(lives >= 2, "the consumer had {served:?} TFs of each life");
    let (complete, abandoned) = (summary.count("complete"), summary.count("abandoned"));
    let missing: Vec<u64> = (0..complete).filter(|tf| !had.contains(tf)).collect();
    assert!(
        missing.len() as u64 <= abandoned,
        "{missing:?} are missing, {abandoned} are abandoned"
    );
}

#[test]
fn records_tell_who_waited_and_what_died_with_an_epn_before_its_consumer_had_finished() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A TF each 10 ms at each EPN, and 20 ms of work on each: consumers are never idle.
    let line = format!(
        "--flps 2 --epns 2 --policy round-robin --rate 200 --source generator --stf-bytes 20000 --duration 2s \
         --sink shm:{} --kill epn:1@1s",
        at("{epn}").display()
    );
    let demo = Running::start(&dir.words(&line));
    let consumers =
        ["0", "1"].map(|epn| consumer(&at(epn), &at(&format!("log{epn}")), &["--work", "20ms"]));
    let summary = end(&dir, demo);
    for consumer in consumers {
        consumer.end();
    }
    let died = summary.count("died_unprocessed");
    assert!(died >= 1, "{:#}", summary.0);
    let (out, rows) = (dir.out(), at("tfs.csv"));
    let words = [
        "data",
        "records",
        out.to_str().unwrap(),
        "--out",
        rows.to_str().unwrap(),
        "--json",
        "-",
    ];
    let report: Value =
        serde_json::from_str(&sheaf(&words).ok(&words)).expect("the result is JSON");
    assert_eq!(report["tfs"], summary.count("announced"));
    assert_eq!(report["fates"]["died-unprocessed"], died);
    // The consumer of EPN 0 is the slower the longer it has more to do than it can.
    let wait = &report["wait_us"];
    assert!(wait["p99"].as_f64() > Some(100_000.0), "{report:#}");
    assert!(wait["p50"].as_f64() < wait["p99"].as_f64(), "{report:#}");
    let turnaround = &report["turnaround_us"];
    assert!(turnaround["p50"].as_f64() > Some(20_000.0), "{report:#}");
    let text = std::fs::read_to_string(&rows).unwrap();
    assert_eq!(text.lines().count() as u64, 1 + summary.count("announced"));
    let dead = text
        .lines()
        .filter(|row| row.ends_with(",died-unprocessed"));
    assert_eq!(dead.count() as u64, died);
    let verified = sheaf(&["data", "verify", out.to_str().unwrap(), "--allow-abandoned"]);
    let told = format!("had not finished with {died} TFs of EPNs that died");
    assert!(
        verified.stdout.join("\n").contains(&told),
        "{:?}",
        verified.stdout
    );
}

#[test]
fn at_ack_level_processed_neither_a_killed_epn_nor_a_killed_consumer_costs_a_tf() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The consumer of EPN 1 always has a TF, and so has the one that is killed.
    let line = format!(
        "--flps 2 --epns 2 --policy round-robin --rate 100 --source generator --stf-bytes 20000 --duration 4s \
         --ack processed --sink shm:{} --kill epn:1@2s",
        at("{epn}").display()
    );
    let demo = Running::start(&dir.words(&line));
    let killed = consumer(&at("0"), &at("killed"), &["--work", "60s"]);
    let of_dead = consumer(&at("1"), &at("dead"), &["--work", "30ms"]);
    // The only consumer of EPN 0 has a TF when the log of EPN 0 says so.
    let events = dir.out().join("epn-0.events");
    let is_held =
        || std::fs::read_to_string(&events).is_ok_and(|log| log.contains("\"held\":true"));
    while !is_held() {
        demo.await_that("a line a second", |_| true);
    }
    let lasting = consumer(&at("0"), &at("lasting"), &["--work", "2ms"]);
    killed.signal(Signal::KILL);
    let summary = end(&dir, demo);
    for consumer in [killed, of_dead, lasting] {
        consumer.end();
    }
    summary.assert_nothing_lost();
    let count = |name: &str| summary.count(name);
    assert_eq!(
        (
            count("died_unprocessed"),
            count("unprocessed"),
            count("abandoned")
        ),
        (0, 0, 0),
        "{:#}",
        summary.0
    );
    assert!(count("redelivered") >= 1, "{:#}", summary.0);
    // Each TF was finished by a consumer, and the one that had a TF for a minute has none to its name.
    let mut finished = BTreeSet::new();
    let mut taken_again = 0;
    for epn in 0..2 {
        let log = std::fs::read_to_string(dir.out().join(format!("epn-{epn}.events"))).unwrap();
        for line in log.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue; // cut by the kill
            };
            match line["event"].as_str() {
                Some("freed") => drop(finished.insert(line["tf"].as_u64().unwrap())),
                Some("taken-again") => taken_again += 1,
                _ => {}
            }
        }
    }
    assert_eq!(finished.len() as u64, count("announced"));
    assert_eq!(taken_again, 1);
}

/// Makes a pipe with a name, and opens it for reading. Its writer stops when it is full.
fn pipe(path: &Path) -> File {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("this test needs mkfifo").success());
    // Also without a writer it opens at once.
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = flags.try_into().unwrap();
    let reader = OpenOptions::new().read(true).custom_flags(flags).open(path);
    reader.unwrap()
}

/// Whether a process waits for a reader of a pipe, as the kernel says.
fn waits_for_reader(process: &Running) -> bool {
    let path = format!("/proc/{}/wchan", process.pid().as_raw_nonzero());
    let place = std::fs::read_to_string(path);
    place.is_ok_and(|place| place.contains("pipe_write"))
}

/// Ids of the TFs in the files of a stream.
fn tfs_of(files: &str, stream: &str) -> BTreeSet<u64> {
    let mut tfs = BTreeSet::new();
    for row in json_of(&["files", "list", files, "--stream", stream, "--json"]) {
        let text = |key: &str| row[key].as_str().unwrap();
        let path = Path::new(text("directory")).join(text("file"));
        for tf in json_of(&["files", "read", path.to_str().unwrap(), "--json"]) {
            assert!(tfs.insert(tf["tf"].as_u64().unwrap()), "twice: {tf}");
        }
    }
    tfs
}

#[test]
fn a_filter_decides_what_is_written_and_what_it_had_when_it_died_is_kept() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let (at, files) = (folder.path(), folder.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let (place, socket) = (at.display(), at.join("consumers"));
    let text = format!(
        "[run]\nflps = 2\nepns = 1\ntimeframes = 2000\n\
         [icn]\naddress = \"unix:{place}/icn.sock\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 2000\n\
         [epn]\nlisten = \"unix:{place}/epn.sock\"\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [epn.sink]\nkind = \"shm\"\npath = {socket:?}\nreclaim_ms = 100\n\
         [epn.sink.write]\ndirectory = {files:?}\nfree_min_mib = 0\n\
         [[epn.sink.write.stream]]\nname = \"physics\"\ntags = [\"physics\"]\n\
         [[epn.sink.write.stream]]\nname = \"made\"\nproduct = true\n\
         [[epn.sink.write.stream]]\nname = \"debug\"\ntags = [\"unanswered\"]\n"
    );
    let config = write(at, "farm.toml", &text);
    let icn = start_icn(at, &config, &[]);
    let epn = start(at, &config, "epn", 0, &[]);
    let flps = [0, 1].map(|flp| start(at, &config, "flp", flp, &[]));
    // Stops with a TF in its hands when its log takes no more.
    let log = at.join("log");
    let _reader = pipe(&log);
    let stuck = consumer(&socket, &log, &[]);
    while !waits_for_reader(&stuck) {
        icn.await_line("\"books\"");
    }
    let filter = consumer(
        &socket,
        &at.join("filtered"),
        &["--tag", "jet,physics", "--tag-every", "10", "--product"],
    );
    filter.await_line("TF/s");
    stuck.signal(Signal::KILL);
    stuck.end();
    for node in [icn, epn, filter].into_iter().chain(flps) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let files = files.to_str().unwrap();
    let had = tfs(&at.join("filtered"));
    let tagged: BTreeSet<u64> = had.iter().copied().filter(|tf| tf % 10 == 0).collect();
    assert!(tagged.len() >= 10, "{had:?}");
    assert_eq!(tfs_of(files, "physics"), tagged);
    assert_eq!(tfs_of(files, "made"), tagged);
    let debug = tfs_of(files, "debug");
    assert_eq!(debug.len(), 1, "{debug:?}");
    assert!(debug.is_disjoint(&had), "it went to no other");
    // What the filter made of a TF is its line of JSON.
    let row = &json_of(&["files", "list", files, "--stream", "made", "--json"])[0];
    let path = Path::new(row["directory"].as_str().unwrap()).join(row["file"].as_str().unwrap());
    let bytes = std::fs::read(path).unwrap();
    let line = String::from_utf8_lossy(&bytes);
    let first = tagged.first().unwrap();
    assert!(line.contains(&format!("\"tf\":{first},")), "{line}");
    // Streams leave TFs out on purpose; what they have is whole, and a product is no TF.
    let verified = sheaf(&["data", "verify", at.to_str().unwrap(), "--sink", files]);
    let text = verified.stdout.join("\n");
    assert!(
        !text.contains("damaged") && !text.contains("65535"),
        "{text}"
    );
}

#[test]
fn what_is_no_epn_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "file", "no socket");
    let absent = folder.path().join("absent").display().to_string();
    for (path, expected) in [
        (&absent, "No such file or directory"),
        (&file, "Connection refused"),
    ] {
        let ended = sheaf(&["data", "consume", path, "--wait", "0s"]);
        assert_eq!(ended.status.code(), Some(2));
        let told = format!("sheaf: cannot take from {path}: {expected}");
        assert!(ended.stderr.starts_with(&told), "{}", ended.stderr);
    }
    let ended = sheaf(&["data", "consume", &absent, "--log", "/nowhere/log"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr.contains("cannot write --log /nowhere/log"),
        "{}",
        ended.stderr
    );
}
