//! Wrong uses of the program: each ends at once with a status of its own and a text that names what was found and
//! expected. No case starts a node.

use crate::harness::{PROGRAM, Running, write};
use std::process::Command;

/// Command line, exit status, and a part of the standard error. `good.toml`, `bad.toml`, `empty.raw` and `text.raw` lie
/// in the working directory.
const CASES: &[(&str, i32, &str)] = &[
    ("frobnicate", 2, "unrecognized subcommand 'frobnicate'"),
    (
        "demo --flps",
        2,
        "a value is required for '--flps <N>' but none was supplied",
    ),
    ("demo --flps 0", 2, "0 is not in 1..=512"),
    ("demo --flps x", 2, "invalid digit found in string"),
    ("demo --flps 513", 2, "513 is not in 1..=512"),
    (
        "init new --yes --source nosuch",
        2,
        "found source \"nosuch\", expected one of replay, file, generator",
    ),
    (
        "init new --yes --sink file",
        2,
        "sink: found `file`, expected one of discard",
    ),
    ("init new --yes --name A_B", 2, "--name: "),
    ("init new --icn-host a", 2, "--flp-hosts"),
    ("init good.toml --yes", 1, "cannot make good.toml"),
    (
        "doctor --config nosuch.toml",
        2,
        "nosuch.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    ("doctor --config bad.toml", 2, "bad.toml:"),
    (
        "doctor --role nosuch",
        2,
        "[possible values: icn, flp, epn, writer]",
    ),
    (
        "doctor --timeout 5",
        2,
        "found `5`, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    (
        "doctor --list --here",
        2,
        "the argument '--list' cannot be used with '--here'",
    ),
    ("demo --epns 0", 2, "0 is not in 1..=512"),
    (
        "demo --rate 0",
        2,
        "found `0`, expected lhc, max or a number above 0, at most 1000000",
    ),
    (
        "demo --rate fast",
        2,
        "found `fast`, expected lhc, max or a number above 0, at most 1000000",
    ),
    (
        "demo --duration 5",
        2,
        "found `5`, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    ("demo --duration -1s", 2, "unexpected argument '-1' found"),
    (
        "demo --duration 1parsec",
        2,
        "found `1parsec`, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    (
        "demo --policy nosuch",
        2,
        "policy `nosuch`, expected one of fixed, random, round-robin, modulo, first-fit, least-load",
    ),
    (
        "demo --sink nowhere",
        2,
        "found `nowhere`, expected one of discard, verify, file:DIRECTORY, stf-file:DIRECTORY, streams:DIRECTORY, unix",
    ),
    (
        "demo --sink file:",
        2,
        "found `file:`, expected one of discard, verify, file:DIRECTORY, stf-file:DIRECTORY, streams:DIRECTORY, unix:P",
    ),
    (
        "demo --source /nonexistent.raw",
        2,
        "cannot read --source /nonexistent.raw: No such file or directory (os error 2)",
    ),
    ("demo --source empty.raw", 2, "--source empty.raw is empty"),
    (
        "demo --source text.raw",
        2,
        "--source text.raw: no known format: the file starts with [68, 65, 6c, 6c, 6f, 0a]",
    ),
    (
        "demo --kill epn:9@1s",
        2,
        "there is no epn:9: the farm has epn:0 to epn:4 (--epns)",
    ),
    (
        "demo --kill flp",
        2,
        "found `flp`, expected NODE@TIME, such as epn:2@3s",
    ),
    (
        "demo --kill epn:1",
        2,
        "found `epn:1`, expected NODE@TIME, such as epn:2@3s",
    ),
    (
        "demo --kill epn:1@",
        2,
        "found ``, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    (
        "demo --pause flp:0@1s",
        2,
        "found `flp:0@1s`, expected NODE@TIME+SPAN, such as epn:0@2s+1s",
    ),
    (
        "demo --icns 2",
        2,
        "--icns 2: expected 1 or an odd number from 3 on: most of them have to agree",
    ),
    ("demo --icns 0", 2, "0 is not in 1..=9"),
    (
        "demo --weight epn:1",
        2,
        "unexpected argument '--weight' found",
    ),
    (
        "demo --paced --rate max",
        2,
        "--paced needs a --rate: a number or lhc, not max",
    ),
    (
        "demo --ack stored",
        2,
        "--ack stored needs --sink file:DIR, or --writers: nothing else stores",
    ),
    (
        "demo --tls nonsense",
        2,
        "unexpected argument 'nonsense' found",
    ),
    (
        "demo --membership etcd",
        2,
        "invalid value 'etcd' for '--membership <embedded|zookeeper>'",
    ),
    (
        "demo --reaction nosuch",
        2,
        "reaction `nosuch`, expected one of whitelist, blacklist, reinitialise, none",
    ),
    (
        "demo --incomplete maybe",
        2,
        "found `maybe`, expected never or allow",
    ),
    ("demo --timeframes -3", 2, "unexpected argument '-3' found"),
    ("demo --memory 1", 2, "1 is not in 8..=65536"),
    ("demo --stf-bytes 0", 2, "0 is not in 1..=268435456"),
    ("demo --push sometimes", 2, "expected eager or granted"),
    (
        "demo --json /nonexistent/x.json",
        2,
        "cannot write --json /nonexistent/x.json: No such file or directory (os error 2)",
    ),
    (
        "demo --keep /proc/nope",
        2,
        "cannot make /proc/nope: No such file or directory (os error 2)",
    ),
    ("run flp", 2, "--config <FILE>"),
    ("run flp --config good.toml", 2, "--index <N>"),
    (
        "run flp --config nowhere.toml --index 0",
        2,
        "nowhere.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    (
        "run flp --config good.toml --index 2",
        2,
        "good.toml: flp.source.files[0]: found testdata/alice-its-rdh7/12_links_2hbf.raw (No such f",
    ),
    (
        "run flp --config good.toml --index 99999",
        2,
        "99999 is not in 0..=65535",
    ),
    (
        "run flp --config bad.toml --index 0",
        2,
        "bad.toml: flp.source.files[0]: found testdata/alice-its-rdh7/12_links_2hbf.raw (No such fi",
    ),
    ("run epn --config good.toml", 2, "--index <N>"),
    (
        "run epn --config good.toml --index 0 --listen 7000",
        2,
        "found `7000`, expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH",
    ),
    (
        "run icn --config good.toml --listen nohost",
        2,
        "found `nohost`, expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH",
    ),
    (
        "run icn --config good.toml --cpus 9999",
        2,
        "found `9999`, expected CPUs from 0 to 1023, such as 2 or 0-3,8",
    ),
    (
        "run icn --config good.toml --cpus x",
        2,
        "found `x`, expected CPUs from 0 to 1023, such as 2 or 0-3,8",
    ),
    (
        "run epn --config good.toml --index 0 --data-cpus 1-0",
        2,
        "found `1-0`, expected CPUs from 0 to 1023, such as 2 or 0-3,8",
    ),
    (
        "run epn --config good.toml --index 0 --data-cpus 1023",
        2,
        "--data-cpus 1023: this process may use 0",
    ),
    (
        "run icn --config good.toml --data-cpus 0",
        1,
        "CPUs for threads of data (--data-cpus) were given, and this node has none",
    ),
    (
        "run icn --config good.toml --log-format xml",
        2,
        "invalid value 'xml' for '--log-format <LOG_FORMAT>'",
    ),
    ("ctl stop", 2, "--config <FILE>"),
    (
        "ctl stop --config nowhere.toml",
        2,
        "nowhere.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    (
        "ctl stop --icn 127.0.0.1",
        2,
        "found `127.0.0.1`, expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH",
    ),
    (
        "ctl stop --config good.toml --timeout 0",
        2,
        "found `0`, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    (
        "ctl stop --config good.toml --timeout soon",
        2,
        "found `soon`, expected a number and ms, s, m or h, such as 10s or 500ms",
    ),
    (
        "ctl stop --config good.toml --no-wait --allow-abandoned",
        2,
        "the argument '--no-wait' cannot be used with '--allow-abandoned'",
    ),
    ("ctl drain", 2, "--config <FILE>"),
    (
        "ctl drain flp:0 --config good.toml",
        2,
        "found `flp:0`, expected epn:N, such as epn:3",
    ),
    (
        "ctl drain epn --config good.toml",
        2,
        "found `epn`, expected epn:N, such as epn:3",
    ),
    (
        "ctl set epn:0 --config good.toml",
        2,
        "<--weight <W>|--enabled <true|false>>",
    ),
    (
        "ctl set epn:0 --config good.toml --weight 0",
        2,
        "found `0`, expected 0.001 to 1000",
    ),
    (
        "ctl set epn:0 --config good.toml --weight many",
        2,
        "found `many`, expected 0.001 to 1000",
    ),
    (
        "ctl set epn:0 --config good.toml --enabled perhaps",
        2,
        "invalid value 'perhaps' for '--enabled <true|false>'",
    ),
    ("status", 2, "--config <FILE>"),
    (
        "status --config nowhere.toml",
        2,
        "nowhere.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    ("top", 2, "--config <FILE>"),
    (
        "top --config bad.toml",
        2,
        "bad.toml:1: adress: found an unknown key, expected one of run, icn, flp, epn, writer, nod",
    ),
    ("config check", 2, "<FILE>"),
    (
        "config check nowhere.toml",
        1,
        "nowhere.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    (
        "config check bad.toml",
        1,
        "bad.toml: flp.source.files[0]: found testdata/alice-its-rdh7/12_links_2hbf.raw (No such fi",
    ),
    (
        "config check good.toml --role gpu",
        2,
        "invalid value 'gpu' for '--role <ROLE>'",
    ),
    (
        "config show nowhere.toml",
        1,
        "nowhere.toml: found No such file or directory (os error 2), expected a readable farm file",
    ),
    ("data inspect", 2, "<FILE>..."),
    (
        "data inspect /nonexistent.raw",
        2,
        "cannot read /nonexistent.raw: No such file or directory (os error 2)",
    ),
    (
        "data inspect empty.raw",
        2,
        "cannot read empty.raw: the file is empty",
    ),
    (
        "data inspect text.raw",
        2,
        "cannot inspect text.raw: no known format: the file starts with [68, 65, 6c, 6c, 6f, 0a] (\"",
    ),
    (
        "data inspect text.raw --format jpeg",
        2,
        "invalid value 'jpeg' for '--format <FORMAT>'",
    ),
    (
        "data convert text.raw",
        2,
        "2 values required by '<INPUT... OUTPUT> <INPUT... OUTPUT>...'; only 1 was provided",
    ),
    (
        "data convert text.raw --to pdf --out x",
        2,
        "2 values required by '<INPUT... OUTPUT> <INPUT... OUTPUT>...'; only 1 was provided",
    ),
    (
        "data convert /nonexistent --to tf --out x",
        2,
        "2 values required by '<INPUT... OUTPUT> <INPUT... OUTPUT>...'; only 1 was provided",
    ),
    ("data verify", 2, "<RUN_DIR>"),
    (
        "data verify /nonexistent",
        2,
        "cannot read /nonexistent: No such file or directory (os error 2)",
    ),
    (
        "data verify .",
        2,
        ". holds no event log, expected files such as icn-0.events (sheaf demo leaves them with --k",
    ),
    (
        "data verify . --sink /nonexistent",
        2,
        ". holds no event log, expected files such as icn-0.events (sheaf demo leaves them with --k",
    ),
    ("data consume", 2, "<PATH>"),
    (
        "cert issue gpu:0 --dir x",
        2,
        "found \"gpu:0\", expected ROLE:INDEX, such as epn:3; roles are icn, flp, epn and operator",
    ),
    (
        "cert issue flp:0 --dir /nonexistent",
        1,
        "cannot use the CA; sheaf cert init makes one: cannot read the CA certificate /nonexistent/",
    ),
    (
        "sim run /nonexistent.toml",
        2,
        "cannot read /nonexistent.toml: No such file or directory (os error 2)",
    ),
    (
        "sim run nosuchscenario",
        2,
        "cannot read nosuchscenario: No such file or directory (os error 2)",
    ),
    ("sim torture --one x", 2, "invalid digit found in string"),
    (
        "sim torture --seeds -1",
        2,
        "unexpected argument '-1' found",
    ),
    (
        "lab run /nonexistent.toml",
        2,
        "cannot read /nonexistent.toml: No such file or directory (os error 2)",
    ),
    (
        "bench farm --shape 3by5",
        2,
        "found `3by5`, expected FLPs x EPNs, 1 to 64 each, such as 3x5",
    ),
    ("bench farm --stf-bytes 0", 2, "0 is not in 1..=67108864"),
    (
        "bench transport --sizes a,b",
        2,
        "found `a`, expected bytes, 16 to 268435456",
    ),
    (
        "bench transport --shapes 0-0",
        2,
        "found `0-0`, expected senders-receivers, 1 to 1024 each, such as 1-64",
    ),
    (
        "bench transport --transports carrier-pigeon",
        2,
        "found `carrier-pigeon`, expected one of plain-tcp, sheaf, sheaf-shm, sheaf-tls, sheaf-unix, ",
    ),
    ("completions", 2, "<SHELL>"),
    (
        "manual run icm",
        2,
        "found \"icm\" behind run, expected one of: icn flp epn writer bridge",
    ),
    (
        "completions klingon",
        2,
        "invalid value 'klingon' for '<SHELL>'",
    ),
    ("reference", 2, "<PAGE>"),
    (
        "run icn --config good.toml --index 4",
        2,
        "--index 4: the farm file has 1 (icn.addresses), expected 0 to 0",
    ),
    (
        "data verify . --ledger /nonexistent",
        2,
        "cannot read --ledger /nonexistent: No such file or directory (os error 2)",
    ),
];

#[test]
fn every_wrong_use_names_what_was_found_and_expected() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "good.toml", "[run]\nflps = 2\n");
    write(folder.path(), "bad.toml", "adress = 1\n");
    write(folder.path(), "empty.raw", "");
    write(folder.path(), "text.raw", "hello\n");
    let mut wrong = Vec::new();
    for (line, status, expected) in CASES {
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).current_dir(folder.path());
        let ended = Running::of(command).end();
        // Paths are printed as the system resolves them, and long lines are broken at spaces.
        let found = ended
            .stderr
            .replace(&format!("{}/", folder.path().display()), "");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if ended.status.code() != Some(*status) || !words(&found).contains(&words(expected)) {
            wrong.push(format!("{line}: {:?}: {found}", ended.status.code()));
        }
        assert!(!found.contains("panicked"), "{line}: {found}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(CASES.len() > 90);
}
