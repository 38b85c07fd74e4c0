//! Certificates: which peers are admitted, which are refused, and which messages a user sees.

use crate::guest::{self, Guest};
use crate::harness::{Running, demo, farm_turn, free_address, sheaf, write};
use serde_json::Value;
use sheaf_transport::contract::check_kernel_tls;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Runs `sheaf` with `line`, and expects it to succeed.
#[track_caller]
fn run(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ended = sheaf(&words);
    assert!(ended.status.success(), "{line}: {}", ended.stderr);
    ended.stdout
}

/// Runs `sheaf` with `line`, and expects this status and these words on the standard error.
#[track_caller]
fn check_refused(line: &str, status: i32, expected: &[&str]) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ended = sheaf(&words);
    assert_eq!(
        ended.status.code(),
        Some(status),
        "{line}: {}",
        ended.stderr
    );
    for words in expected {
        assert!(
            ended.stderr.contains(words),
            "{words:?} is not in {}",
            ended.stderr
        );
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.stderr
}

/// A farm of two FLPs and two EPNs with certificates in `folder`/certs.
fn farm_file(folder: &Path, icn: &str) -> String {
    farm_with(folder, icn, "")
}

/// The same with more lines in `[transport]`.
fn farm_with(folder: &Path, icn: &str, transport: &str) -> String {
    let text = format!(
        "[run]\nflps = 2\nepns = 2\ntimeframes = 50\n\
         [icn]\naddress = \"{icn}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 500.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [transport]\ncongestion = \"\"\nhuge_pages = false\n{transport}\
         [security]\ndirectory = \"{}/certs\"\n",
        folder.display()
    );
    write(folder, "farm.toml", &text)
}

fn issue(folder: &Path, nodes: &str) {
    run(&format!(
        "cert issue {nodes} --dir {}/certs",
        folder.display()
    ));
}

fn init(folder: &Path) {
    run(&format!(
        "cert init --farm north --dir {}/certs",
        folder.display()
    ));
}

#[test]
fn a_farm_with_certificates_delivers_every_tf() {
    let _turn = farm_turn();
    let words = " records of TLS sessions";
    for log in logs_of_a_farm("kernel_tls = \"off\"\n") {
        assert!(
            log.contains(&format!("The node protects the{words}")),
            "{log}"
        );
    }
}

/// Runs in the guest of `the_kernel_protects_records_in_a_guest`, and on any machine whose kernel can.
#[test]
#[ignore = "needs Linux 6.14 or later with TLS (modprobe tls)"]
fn the_kernel_protects_records() {
    let _turn = farm_turn();
    check_kernel_tls();
    let transport = "kernel_tls = \"on\"\nshared_memory = false\n";
    for log in logs_of_a_farm(transport) {
        let words = "The kernel protects the records of TLS sessions";
        assert!(log.contains(words), "{log}");
    }
}

#[test]
fn the_kernel_protects_records_in_a_guest() {
    let test = "the_kernel_protects_records_in_a_guest";
    Guest::run_or_skip(&guest::LATER, test, "security::the_kernel_protects_records");
}

/// Runs a farm with certificates and more lines in `[transport]`, which has to deliver every TF. Returns the logs of
/// EPNs and FLPs.
fn logs_of_a_farm(transport: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let config = farm_with(folder.path(), &free_address(), transport);
    init(folder.path());
    issue(folder.path(), "icn:0 flp:0 flp:1 epn:0 epn:1");
    let start =
        |words: &[&str]| Running::start(&[&["run"][..], words, &["--config", &config]].concat());
    let icn = start(&["icn", "--status-ms", "100"]);
    let others = [
        start(&["epn", "--index", "0"]),
        start(&["epn", "--index", "1"]),
        start(&["flp", "--index", "0"]),
        start(&["flp", "--index", "1"]),
    ];
    let mut logs = Vec::new();
    for node in others {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        let level = |line: &str| line.contains(" ERROR ") || line.contains(" WARN ");
        assert!(!ended.stderr.lines().any(level), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("identity=sheaf://north/"),
            "{}",
            ended.stderr
        );
        logs.push(ended.stderr);
    }
    let ended = icn.end();
    let last = ended
        .stdout
        .iter()
        .rfind(|line| line.contains("\"books\""))
        .unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["security"], "tls", "{last:#}");
    assert_eq!(last["books"]["complete"], 50, "{last:#}");
    assert_eq!(last["books"]["balanced"], true, "{last:#}");
    logs
}

#[test]
fn a_demo_with_tls_loses_nothing_when_an_epn_dies() {
    let summary = demo("--rate 200 --orbits-per-tf 8 --duration 2s --kill epn:2@500ms --tls");
    summary.assert_nothing_lost();
    assert_eq!(summary.0["security"], "tls");
}

#[test]
fn stfs_in_the_clear_are_asked_for_and_shown() {
    let summary = demo("--rate 100 --orbits-per-tf 8 --duration 1s --tls=crc-only");
    summary.assert_nothing_lost();
    assert_eq!(summary.0["security"], "crc-only");
    let warnings = summary.0["warnings"].to_string();
    assert!(warnings.contains("crc-only"), "{warnings}");
}

#[test]
fn off_loopback_a_node_without_certificates_says_what_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let epn = write(folder.path(), "epn.toml", "[epn]\nlisten = \"0.0.0.0:0\"\n");
    let said = check_refused(
        &format!("run epn --config {epn} --index 3"),
        2,
        &["epn:3 listens at 0.0.0.0:0, which is not loopback, and has no certificates"],
    );
    // What is said to be added is good as it stands.
    let lines = "[security]\ndirectory = \"certs\"\n";
    assert!(said.contains(lines), "{said}");
    let text = format!("{}{lines}", fs::read_to_string(&epn).unwrap());
    let with = write(folder.path(), "with.toml", &text);
    assert!(
        sheaf(&["config", "check", "--role", "none", &with])
            .status
            .success()
    );
    assert!(said.contains("[security]\ninsecure = true"), "{said}");
    assert!(
        said.contains("sheaf cert issue epn:3 --dir certs"),
        "{said}"
    );
    let icn = write(
        folder.path(),
        "icn.toml",
        "[icn]\naddress = \"10.0.0.1:7000\"\n[flp.source]\nkind = \"generator\"\n",
    );
    for (line, does) in [
        ("icn", "icn:0 listens at 10.0.0.1:7000"),
        ("flp --index 1", "flp:1 connects to 10.0.0.1:7000"),
        ("epn --index 1", "epn:1 connects to 10.0.0.1:7000"),
        (
            "icn --listen 127.0.0.1:0 --metrics 0.0.0.0:0",
            "icn:0 serves metrics at 0.0.0.0:0",
        ),
    ] {
        check_refused(
            &format!("run {line} --config {icn}"),
            2,
            &[does, "[security]"],
        );
    }
}

#[test]
fn insecure_must_be_said_and_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[icn]\naddress = \"0.0.0.0:1\"\n[security]\ninsecure = true\n";
    let config = write(folder.path(), "farm.toml", text);
    let words = [
        "run",
        "icn",
        "--config",
        &config,
        "--listen",
        "0.0.0.0:0",
        "--status-ms",
        "50",
    ];
    let icn = Running::start(&words);
    icn.await_line("listening");
    let status = icn.await_line("\"security\"");
    assert!(status.contains("\"security\":\"insecure\""), "{status}");
    icn.signal(rustix::process::Signal::TERM);
    let ended = icn.end();
    assert!(
        ended.stderr.contains(" WARN ") && ended.stderr.contains("insecure = true"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_certificate_of_another_node_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    init(folder.path());
    issue(folder.path(), "flp:3");
    let certs = folder.path().join("certs");
    for suffix in ["pem", "key"] {
        let (from, to) = (format!("flp-3.{suffix}"), format!("flp-1.{suffix}"));
        fs::rename(certs.join(from), certs.join(to)).unwrap();
    }
    let config = farm_file(folder.path(), "127.0.0.1:7000");
    let file = certs.join("flp-1.pem").display().to_string();
    check_refused(
        &format!("run flp --config {config} --index 1"),
        2,
        &[
            &file,
            "(O=north, CN=flp:3) is for sheaf://north/flp/3, expected flp:1",
        ],
    );
}

#[test]
fn what_is_wrong_with_a_certificate_is_named_with_file_subject_and_date() {
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "127.0.0.1:7000");
    let line = format!("run flp --config {config} --index 0");
    check_refused(
        &line,
        2,
        &["cannot read the CA certificate", "ca.pem: No such file"],
    );
    init(folder.path());
    check_refused(
        &line,
        2,
        &["cannot read the certificate", "flp-0.pem: No such file"],
    );

    let certs = folder.path().join("certs");
    let now = sheaf_auth::Moment::now();
    let validity = sheaf_auth::Validity {
        not_before: now.plus_days(-9),
        not_after: now.plus_days(-2),
    };
    let node = sheaf_auth::parse_node("flp:0").unwrap();
    let authority = sheaf_auth::Authority::load(&certs).unwrap();
    let files = sheaf_auth::CertFiles::in_directory(&certs, node);
    authority
        .issue(node, validity)
        .unwrap()
        .save(&files, false)
        .unwrap();
    let date = format!(
        "flp-0.pem (O=north, CN=flp:0) expired at {}",
        validity.not_after
    );
    check_refused(&line, 2, &[&date]);
    let shown = run(&format!("cert show {}", files.certificate.display()));
    assert!(
        shown.iter().any(|line| line.contains("EXPIRED")),
        "{shown:#?}"
    );

    run(&format!(
        "cert issue flp:0 --dir {} --force",
        certs.display()
    ));
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o640)).unwrap();
    check_refused(
        &line,
        2,
        &["flp-0.key can be read by others: found mode 0640, expected 0600"],
    );
}

#[test]
fn a_node_of_another_farm_is_not_let_in_and_the_farm_goes_on() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let address = free_address();
    let config = farm_file(folder.path(), &address);
    let foreign = farm_file(other.path(), &address);
    init(folder.path());
    init(other.path());
    issue(folder.path(), "icn:0 flp:0 flp:1 epn:0 epn:1");
    issue(other.path(), "flp:1");
    let start = |words: &[&str], config: &str| {
        Running::start(&[&["run"][..], words, &["--config", config]].concat())
    };
    let icn = start(&["icn", "--status-ms", "100"], &config);
    icn.await_line("listening");
    let stranger = start(&["flp", "--index", "1"], &foreign);
    let farm = [
        start(&["epn", "--index", "0"], &config),
        start(&["epn", "--index", "1"], &config),
        start(&["flp", "--index", "0"], &config),
        start(&["flp", "--index", "1"], &config),
    ];
    for node in farm {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let ended = icn.end();
    let last = ended
        .stdout
        .iter()
        .rfind(|line| line.contains("\"books\""))
        .unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["books"]["complete"], 50, "{last:#}");
    stranger.signal(rustix::process::Signal::TERM);
    let said = stranger.end().stderr;
    assert!(said.contains("not signed by the CA of this farm"), "{said}");
}

#[test]
fn certificates_are_made_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/here").display().to_string();
    run(&format!("cert init --farm north --dir {dir}"));
    let mode = |name: &str| {
        let path = Path::new(&dir).join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    let said = run(&format!(
        "cert issue epn:3 icn:0 --days 7 --dir {dir} --json"
    ))
    .join("\n");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said[0]["role"], "epn", "{said:#}");
    assert_eq!(said[0]["index"], 3, "{said:#}");
    assert_eq!(said[0]["farm"], "north", "{said:#}");
    assert_eq!(said[0]["names"][0], "sheaf://north/epn/3", "{said:#}");
    assert_eq!(said[0]["holds"], true, "{said:#}");
    assert_eq!(said[1]["subject"], "O=north, CN=icn:0", "{said:#}");
    assert_eq!(
        [
            mode(""),
            mode("ca.key"),
            mode("epn-3.key"),
            mode("epn-3.pem")
        ],
        [0o700, 0o600, 0o600, 0o644]
    );
    let shown = run(&format!("cert show {dir}/epn-3.pem {dir}/ca.pem")).join("\n");
    for words in [
        "subject      O=north, CN=epn:3",
        "role         epn",
        "index        3",
        "name         sheaf://north/epn/3",
        "(holds now)",
        "role         ca",
        "sha256       ",
    ] {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    let again = format!("cert issue epn:3 --dir {dir}");
    check_refused(
        &again,
        1,
        &["epn-3.pem is there already; --force replaces it"],
    );
    check_refused(
        &format!("cert init --dir {dir}"),
        1,
        &["ca.pem is there already"],
    );
    run(&format!("{again} --force"));
    check_refused(
        &format!("cert issue epn --dir {dir}"),
        2,
        &["expected ROLE:INDEX, such as epn:3"],
    );
    check_refused(
        &format!("cert init --farm A --dir {dir}"),
        2,
        &["--farm", "expected 1 to 63 of"],
    );
    check_refused(
        "cert issue epn:3 --dir /nowhere",
        1,
        &["sheaf cert init makes one", "/nowhere/ca.pem"],
    );
    check_refused(
        "cert show /nowhere.pem",
        1,
        &["/nowhere.pem", "No such file"],
    );
    check_refused(
        &format!("cert show {dir}/ca.key"),
        1,
        &["is no certificate: found no PEM block"],
    );
}
