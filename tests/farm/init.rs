//! `sheaf init`: a new farm that is started as it says, hosts with certificates, questions on a terminal.

use crate::harness::{PROGRAM, Running, farm_turn, free_address, sheaf};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn path<'a>(folder: &'a Path, name: &str) -> std::borrow::Cow<'a, str> {
    folder.join(name).to_str().expect("UTF-8").to_owned().into()
}

#[test]
fn a_new_farm_is_started_by_its_script_and_loses_nothing() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let place = path(folder.path(), "north");
    let words = [
        "init", &place, "--flps", "2", "--epns", "2", "--yes", "--json",
    ];
    let made: Value = serde_json::from_str(&sheaf(&words).ok(&words)).expect("JSON");
    assert_eq!(made["files"], serde_json::json!(["farm.toml", "start.sh"]));
    let next: Vec<&str> = made["next"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let [doctor, start, top] = next[..] else {
        panic!("{made:#}");
    };
    assert!(
        doctor.starts_with("sheaf doctor --config ") && top.starts_with("sheaf top "),
        "{made:#}"
    );

    // Its port may be another test's.
    let config = path(folder.path(), "north/farm.toml");
    let text = fs::read_to_string(&*config).unwrap();
    assert!(
        text.contains("\n[icn]\n# ") && text.contains("\naddress = \"127.0.0.1:7000\"\n"),
        "{text}"
    );
    fs::write(&*config, text.replace("127.0.0.1:7000", &free_address())).unwrap();
    let words = ["config", "check", &config];
    sheaf(&words).ok(&words);
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("exec {start}"))
        .env("SHEAF", PROGRAM);
    let running = Running::of(command);
    let words = ["status", "--config", &config, "--json"];
    loop {
        let ended = sheaf(&words);
        let status: Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap_or_default();
        if status["status"]["books"]["complete"].as_u64() > Some(100) {
            break;
        }
    }
    running.signal(Signal::TERM);
    let told = running.end().ok(&["start.sh"]);
    assert!(told.contains("announced"), "{told}");
    // Each start has a folder of its own: no logs are replaced.
    let mut logs = fs::read_dir(folder.path().join("north/log")).unwrap();
    let log = logs.next().expect("a folder").unwrap().path();
    assert!(logs.next().is_none());
    let log = log.to_str().expect("UTF-8");
    let words = ["data", "verify", log];
    sheaf(&words).ok(&words);
}

#[test]
fn hosts_have_certificates_and_an_inventory_and_nothing_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = path(folder.path(), "south");
    let words = [
        "init",
        &place,
        "--yes",
        "--name",
        "south",
        "--icn-host",
        "daq0",
        "--flp-hosts",
        "daq1,daq2",
        "--epn-hosts",
        "epn1,epn2,epn3",
        "--source",
        "unix:/run/readout-{flp}.sock",
        "--sink",
        "shm:/run/sheaf/epn-{epn}",
    ];
    let told = sheaf(&words).ok(&words);
    assert!(told.contains("ansible-playbook -i /"), "{told}");
    let inventory = fs::read_to_string(folder.path().join("south/inventory.yml")).unwrap();
    for expected in [
        "\nicn:\n  hosts:\n    \"daq0\": {sheaf_address: \"daq0\"}\nflp:\n",
        "    \"daq2\": {sheaf_address: \"daq2\"}\nepn:\n",
        "      flp: {source: {\"kind\":\"unix\",\"path\":\"/run/readout-{flp}.sock\"}}\n",
    ] {
        assert!(inventory.contains(expected), "{expected}\n{inventory}");
    }
    let certificate = path(folder.path(), "south/certs/epn-2.pem");
    let words = ["cert", "show", &certificate];
    let shown = sheaf(&words).ok(&words);
    assert!(shown.contains("sheaf://south/epn/2"), "{shown}");
    let mut check = Command::new(PROGRAM);
    check.args([
        "config",
        "check",
        &path(folder.path(), "south/farm.toml"),
        "--role",
        "icn",
        "--role",
        "flp",
    ]);
    Running::of(check).end().ok(&["config check"]);

    let again = sheaf(&["init", &place, "--yes"]);
    assert_eq!(again.status.code(), Some(1), "{}", again.stderr);
    assert!(
        again
            .stderr
            .contains("farm.toml, expected none; --force replaces"),
        "{}",
        again.stderr
    );
    let mut files: Vec<_> = fs::read_dir(folder.path().join("south"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(files, ["certs", "farm.toml", "inventory.yml"]);
}

#[test]
fn questions_are_asked_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let place = path(folder.path(), "east");
    // `script` gives it a terminal.
    let mut asked = Command::new("script")
        .args(["-qec", &format!("{PROGRAM} init {place}"), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of bsdutils");
    let mut input = asked.stdin.take().expect("a pipe");
    input
        .write_all(b"none\n4\n\nprogram\n\n")
        .expect("it reads");
    let output = asked.wait_with_output().expect("it ends");
    drop(input);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("found \"none\", expected a number from 1 to 512"),
        "{told}"
    );
    let text = fs::read_to_string(folder.path().join("east/farm.toml")).unwrap();
    for expected in [
        "\nflps = 4\n",
        "\nepns = 3\n",
        "\nkind = \"program\"\n",
        "\nkind = \"verify\"\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}
