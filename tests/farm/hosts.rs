//! `sheaf lab hosts` and `sheaf lab run --hosts`, against machines that are reached by a real `ssh`.

use crate::harness::{farm_turn, write};
use crate::stand::Stand;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Two FLPs and two EPNs; one of these is killed and comes again.
const EXPERIMENT: &str = "
name = 'small'
question = 'does it run elsewhere?'
iterations = 1
[base]
flps = 2
epns = 2
rate_hz = 100.0
bytes = 20000
duration_s = 3.0
[live]
window_percent = 100.0
[[fault]]
kind = 'crash'
epn = 1
at_s = 0.3
for_s = 0.2
";

const FARM: &str = "
[security]
insecure = true
[run]
flps = 2
epns = 2
[flp]
when_full = 'drop-newest'
[flp.source]
kind = 'generator'
bytes_mean = 20000
pool_bytes = 1048576
[epn.sink]
kind = 'verify'
[transport]
huge_pages = false
";

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_host_that_cannot_be_used_is_refused_with_the_reason() {
    let Some(stand) = Stand::make("a_host_that_cannot_be_used_is_refused_with_the_reason") else {
        return;
    };
    let disk = stand.disk("b");
    fs::create_dir_all(disk.join("taken/of-others")).unwrap();
    fs::create_dir_all(disk.join("old")).unwrap();
    fs::write(disk.join("old/.sheaf-lab"), "").unwrap();
    fs::write(disk.join("old/sheaf"), "of last year").unwrap();
    let folder = |name: &str| format!("b-disk/{name}'");
    let b = stand.address("b");
    for (order, from, to, told) in [
        (
            "check",
            "",
            String::new(),
            "binary: found none, expected SHA-256".to_owned(),
        ),
        (
            "check",
            "b-disk/lab'",
            folder("old"),
            "binary: found SHA-256".to_owned(),
        ),
        (
            "push",
            "'user'",
            "'stranger'".to_owned(),
            format!("host a: {}:2222 refuses the key", stand.address("a")),
        ),
        (
            "push",
            &format!("{b}:2222"),
            format!("{b}:2223"),
            format!("host b: cannot be reached at {b}:2223: ssh: connect"),
        ),
        (
            "push",
            "= 'known_hosts'",
            "= 'user.pub'".to_owned(),
            "its host key: found \"Host key verif".to_owned(),
        ),
        (
            "push",
            "b-disk/lab'",
            folder("taken"),
            "found a folder that holds something else".to_owned(),
        ),
        (
            "push",
            "b-disk/lab'",
            folder("no/such"),
            "found nothing, nor a folder that it could be made in".to_owned(),
        ),
        (
            "push",
            "b-disk/lab'",
            folder("taken/of-others/../x"),
            "host b: folder: found".to_owned(),
        ),
        (
            "push",
            "b-disk/lab'",
            folder("small/lab"),
            "no space in".to_owned(),
        ),
    ] {
        let inventory = stand.inventory(|text| text.replace(from, &to));
        let ended = stand.sheaf(&["lab", "hosts", order, &inventory]);
        let said = format!("{}\n{}", ended.stdout.join("\n"), ended.stderr);
        assert!(
            !ended.status.success() && said.contains(&told),
            "{told}: {said}"
        );
    }
    let inventory = stand.inventory(|text| text);
    // The case without space may have brought it to the other one.
    let pushed = stand.sheaf_ok(&["lab", "hosts", "push", &inventory]);
    assert!(pushed.contains("b: has got "), "{pushed}");
    let ready = stand.sheaf_ok(&["lab", "hosts", "check", &inventory]);
    assert_eq!(ready.matches(" ready: ").count(), 2, "{ready}");
    let again = stand.sheaf_ok(&["lab", "hosts", "push", &inventory]);
    assert_eq!(again.matches("has it already").count(), 2, "{again}");
    assert!(disk.join("taken/of-others").is_dir());
}

#[test]
fn an_experiment_runs_on_hosts_and_leaves_no_process_however_it_ends() {
    let test = "an_experiment_runs_on_hosts_and_leaves_no_process_however_it_ends";
    let Some(stand) = Stand::make(test) else {
        return;
    };
    let _turn = farm_turn();
    stand.furnish();
    let inventory = stand.inventory(|text| text);
    let file = stand.file("small.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let (file, out) = (file.to_str().unwrap(), stand.file("out"));
    let words = |out: &'static str| {
        let out = stand.file(out).to_str().unwrap().to_owned();
        ["lab", "run", file, "--hosts", &inventory, "--out", &out].map(str::to_owned)
    };
    let long: Vec<String> = words("long")
        .into_iter()
        .chain(["--duration", "60s"].map(str::to_owned))
        .collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let last_node = stand.disk("a").join("lab/run/epn-1.events");
    for signal in [Signal::INT, Signal::KILL] {
        let running = stand.start(&long);
        stand.await_file(&last_node);
        assert!(!stand.processes().is_empty());
        running.signal(signal);
        let ended = running.end();
        if signal == Signal::INT {
            assert_eq!(ended.status.code(), Some(130), "{}", ended.stderr);
            assert_eq!(stand.processes(), [], "nothing is left when it has ended");
            assert!(!last_node.exists());
        }
        stand.await_no_process();
        let _ = fs::remove_file(&last_node);
    }

    let short = words("out");
    let short: Vec<&str> = short.iter().map(String::as_str).collect();
    stand.sheaf_ok(&short);
    assert_eq!(stand.processes(), []);
    let run = read_json(&out.join("runs/001-sheaf-live-2x2-100hz-20000b-001-1.json"));
    for (field, expected) in [
        ("announced", 300),
        ("faults", 1),
        ("mixed_target", 0),
        ("delivered_twice", 0),
    ] {
        assert_eq!(run[field], expected, "{field}: {run:#}");
    }
    assert_eq!(run["problems"], serde_json::json!([]), "{run:#}");
    // TFs delivered by an EPN that was killed before it reported them count as lost, and no others do.
    let causes = run["lost_by"].as_object().unwrap();
    assert!(causes.keys().all(|cause| cause == "abandoned"), "{run:#}");
    let card = read_json(&out.join("experiment.json"));
    let provenance = &card["provenance"];
    assert!(
        provenance["hosts"]
            .as_str()
            .unwrap()
            .starts_with("stand: a 10."),
        "{card:#}"
    );
    for host in ["host a", "host b"] {
        assert!(
            provenance[host].as_str().unwrap().contains("Linux"),
            "{card:#}"
        );
    }
    assert!(out.join("raw.csv").is_file() && out.join("report.html").is_file());
    for host in ["a", "b"] {
        assert!(!stand.disk(host).join("lab/run").exists());
    }
}

#[test]
fn a_farm_on_hosts_is_started_stopped_fetched_and_removed() {
    let Some(stand) = Stand::make("a_farm_on_hosts_is_started_stopped_fetched_and_removed") else {
        return;
    };
    let _turn = farm_turn();
    stand.furnish();
    let inventory = stand.inventory(|text| text);
    let farm = write(stand.file("").as_path(), "farm.toml", FARM);
    let hosts = |order: &str, words: &[&str]| {
        let words = [&["lab", "hosts", order, &inventory], words].concat();
        stand.sheaf(&words)
    };
    let ok = |order: &str, words: &[&str]| {
        let ended = hosts(order, words);
        assert!(ended.status.success(), "{order}: {}", ended.stderr);
        ended.stdout.join("\n")
    };
    let bad = write(
        stand.file("").as_path(),
        "bad.toml",
        &FARM.replace("epns = 2", "epns = 9"),
    );
    let refused = hosts("start", &["--config", &bad]);
    assert!(
        refused
            .stderr
            .contains("epns: found 9, expected at most 3 on hosts stand"),
        "{}",
        refused.stderr
    );

    let started = ok("start", &["--config", &farm]);
    assert_eq!(started.lines().count(), 5, "{started}");
    assert_eq!(stand.processes().len(), 5);
    let busy = hosts("start", &["--config", &farm]);
    assert!(
        busy.stderr.contains("processes of") && busy.stderr.contains("at work, expected none"),
        "{}",
        busy.stderr
    );
    assert_eq!(ok("stop", &[]), "5 processes have ended");
    assert_eq!(stand.processes(), []);

    let unfetched = hosts("start", &["--config", &farm]);
    assert!(
        unfetched
            .stderr
            .contains("there are files of an earlier farm"),
        "{}",
        unfetched.stderr
    );
    let out = stand.file("fetched");
    let out = out.to_str().unwrap();
    ok("collect", &["--out", out]);
    let report = stand.file("verify.json");
    stand.sheaf_ok(&[
        "data",
        "verify",
        out,
        "--allow-abandoned",
        "--json",
        report.to_str().unwrap(),
    ]);
    let report = read_json(&report);
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(report["event_logs"], 5, "{report:#}");
    assert!(
        report["announced"].as_u64().unwrap() > 0 && report["announced"] == report["complete"],
        "{report:#}"
    );
    assert!(Path::new(out).join("hosts.json").is_file());
    assert_eq!(
        hosts("collect", &["--out", out]).status.code(),
        Some(2),
        "nothing is overwritten"
    );

    // What runs when it is purged is killed.
    ok("start", &["--config", &farm]);
    let purged = ok("purge", &[]);
    assert_eq!(stand.processes(), []);
    assert!(
        purged.contains("a: removed, 3 processes killed"),
        "{purged}"
    );
    for host in ["a", "b"] {
        assert!(!stand.disk(host).join("lab").exists());
    }
}
