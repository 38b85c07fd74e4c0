//! `sheaf bench serve` with few clients: on a service that runs, and in namespaces beside `HAProxy`.

use crate::harness::farm_turn;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

const BODY_BYTES: usize = 50_000;

fn sheaf(words: &str) -> Output {
    let _turn = farm_turn();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sheaf"));
    command.args(["bench", "serve", "--quiet", "--rounds", "1", "--json", "-"]);
    command.args(words.split_whitespace()).output().unwrap()
}

/// Runs it; the rows of the report.
fn rows(words: &str) -> Vec<Value> {
    let output = sheaf(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["rows"].as_array().unwrap().clone()
}

/// Starts a server of a body with the name `name`. It ends with the process.
fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream, name));
        }
    });
    address
}

fn answer(mut stream: TcpStream, name: &str) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\nX-Served-By: {name}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).ok()?;
    if !head.starts_with(b"HEAD ") {
        stream.write_all(&[0; BODY_BYTES]).ok()?;
    }
    Some(())
}

#[test]
fn a_service_that_runs_is_loaded_and_its_servers_are_told_apart() {
    let [a, b] = ["a", "b"].map(server);
    let words = format!(
        "--url http://{a}/x --url http://{b}/x --clients 4,8 --duration 500ms --warm-up 0s"
    );
    let rows = rows(&words);
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(
            (&row["failed"], &row["broken"]),
            (&0.into(), &0.into()),
            "{row}"
        );
        assert_eq!(row["object_bytes"], BODY_BYTES, "{row}");
        let count = |key: &str| row[key].as_u64().unwrap();
        assert!(count("finished") > 0, "{row}");
        assert_eq!(count("started"), count("finished") + count("cut"), "{row}");
        let servers = row["servers"].as_array().unwrap();
        let names: Vec<&str> = servers
            .iter()
            .map(|s| s["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"], "{row}");
    }
}

#[test]
fn an_object_that_is_not_there_is_named_before_there_are_clients() {
    for (words, part) in [
        (
            "--url ftp://store/x",
            "with the scheme \"ftp\", expected http or https",
        ),
        (
            "--url http://127.0.0.1:1/x",
            "http://127.0.0.1:1/x does not answer",
        ),
    ] {
        let output = sheaf(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {told}");
        assert!(told.contains(part), "{words}: {told}");
    }
}

/// Whether namespaces, nginx and HAProxy are there; in CI they have to be.
fn can_run(test: &str) -> bool {
    let missing = sheaf_testbed::net::needs().err().map(|why| why.to_string());
    let tools = [("nginx", "nginx-light"), ("haproxy", "haproxy")].into_iter();
    let lacking = tools.filter(|(tool, _)| sheaf_testbed::tool::find(tool).is_none());
    let mut lacking =
        lacking.map(|(tool, package)| format!("needs {tool} (Debian package {package})"));
    let Some(why) = missing.or_else(|| lacking.next()) else {
        return true;
    };
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} must run in CI: {why}"
    );
    println!("{test} skipped: {why}");
    false
}

#[test]
fn planes_are_measured_beside_clients_that_go_to_servers_directly() {
    let test = "planes_are_measured_beside_clients_that_go_to_servers_directly";
    if !can_run(test) {
        return;
    }
    for family in ["", "--ipv6"] {
        let words = format!(
            "--planes direct,haproxy --clients 12 --servers 3 --object-bytes 100000 --duration 500ms \
             --warm-up 100ms --connection-clients 6 {family}"
        );
        let rows = rows(&words);
        let planes: Vec<&str> = rows
            .iter()
            .map(|row| row["plane"].as_str().unwrap())
            .collect();
        assert_eq!(planes, ["direct", "haproxy", "direct", "haproxy"]);
        for row in &rows {
            assert_eq!(row["failures"], serde_json::json!({}), "{row}");
            assert!(row["connections_per_s"].as_f64().unwrap() > 0.0, "{row}");
            let servers = row["servers"].as_array().unwrap();
            let names: Vec<&str> = servers
                .iter()
                .map(|s| s["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, ["s1", "s2", "s3"], "{row}");
        }
        assert!(rows[1]["ratio_to_direct"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn faults_are_felt_as_long_as_they_last_and_a_dead_director_is_not_felt() {
    if !can_run("faults_are_felt_as_long_as_they_last_and_a_dead_director_is_not_felt") {
        return;
    }
    let words = "--faults --planes nft --servers 3 --clients 12 --object-bytes 100000 --duration 6s --warm-up 1s";
    let output = sheaf(words);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|row| row["fault"] == name).unwrap()
    };
    for fault in ["server-killed", "server-cut"] {
        let row = row(fault);
        assert!(row["spread_s"].is_number(), "{row}");
        assert!(
            row["failed_probes"].as_u64() < row["probes"].as_u64(),
            "{row}"
        );
    }
    let row = row("director-killed");
    assert_eq!(
        (&row["failed_probes"], &row["broken"]),
        (&0.into(), &0.into()),
        "{row}"
    );
    assert_eq!(report["changes"][0]["slots"], 4093, "{report}");
}
