//! The plane of BPF, as classifier of tc and as XDP.

use super::by_client::contract_by_client;
use super::{CLIENTS, Stage, assert_well, can_run, contract, outlives_its_director};
use crate::guest;
use crate::harness::farm_turn;
use sheaf_testbed::tool;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Whether there are namespaces here and the program of the plane; says what is missing otherwise.
fn can_run_bpf(test: &str) -> bool {
    if !can_run(test) {
        return false;
    }
    let path = guest::bpf_program();
    if path.is_file() {
        return true;
    }
    let why = format!("{} is not there; make bpf builds it", path.display());
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!is_ci, "{test} must run in CI: {why}");
    eprintln!("{test} skipped: {why}");
    false
}

#[test]
fn the_plane_of_tc_breaks_no_connection() {
    if can_run_bpf("the_plane_of_tc_breaks_no_connection") {
        contract("tc", true, true);
    }
}

#[test]
fn the_plane_of_xdp_breaks_no_connection() {
    if can_run_bpf("the_plane_of_xdp_breaks_no_connection") {
        contract("tc/xdp-generic", true, true);
    }
}

/// Runs in the guest of `the_planes_of_bpf_break_no_connection_in_a_guest`.
#[test]
#[ignore = "for an older kernel"]
fn the_planes_of_bpf_break_no_connection() {
    if can_run_bpf("the_planes_of_bpf_break_no_connection") {
        contract("tc", true, true);
        contract("tc/xdp-generic", true, true);
        outlives_its_director("tc", true);
    }
}

/// On Linux 6.1, the oldest that is supported.
#[test]
fn the_planes_of_bpf_break_no_connection_in_a_guest() {
    let test = "the_planes_of_bpf_break_no_connection_in_a_guest";
    if !can_run_bpf(test) {
        return;
    }
    let inside = "serving::bpf::the_planes_of_bpf_break_no_connection";
    guest::Guest::run_or_skip(&guest::RELEASE, test, inside);
}

#[test]
fn the_plane_of_tc_keeps_all_connections_of_a_client_together() {
    if can_run_bpf("the_plane_of_tc_keeps_all_connections_of_a_client_together") {
        contract_by_client("tc", true);
    }
}

#[test]
fn connections_of_tc_outlive_their_director() {
    if can_run_bpf("connections_of_tc_outlive_their_director") {
        outlives_its_director("tc", true);
    }
}

#[test]
fn connections_of_xdp_outlive_their_director() {
    if can_run_bpf("connections_of_xdp_outlive_their_director") {
        outlives_its_director("tc/xdp-generic", true);
    }
}

#[test]
fn the_next_director_moves_the_program_to_another_place() {
    if !can_run_bpf("the_next_director_moves_the_program_to_another_place") {
        return;
    }
    let _turn = farm_turn();
    let mut stage = Stage::new(2, "tc", true);
    let mut held = stage.connect(CLIENTS);
    let director = stage.site.director(0).namespace.clone();
    let is_tc = || {
        let words = ["-n", &director, "filter", "show", "dev", "eth0", "ingress"];
        let filters = tool::run("tc", words).expect("tc lists filters");
        filters.contains("sheaf_files")
    };
    let is_xdp = || {
        let words = ["-n", &director, "link", "show", "dev", "eth0"];
        let link = tool::run("ip", words).expect("ip shows it");
        link.contains("xdpgeneric")
    };
    assert!(is_tc() && !is_xdp());
    stage.director = None; // SIGKILL, as below.
    for (plane, expected) in [("tc/xdp-generic", (false, true)), ("tc", (true, false))] {
        stage.write_config(plane, "", true);
        stage.start_director();
        assert_eq!((is_tc(), is_xdp()), expected, "{plane}");
        assert_well(&mut held);
        stage.director = None;
    }
}

#[test]
fn a_filter_that_was_removed_is_put_back() {
    if !can_run_bpf("a_filter_that_was_removed_is_put_back") {
        return;
    }
    let _turn = farm_turn();
    let stage = Stage::new(2, "tc", true);
    let mut held = stage.connect(CLIENTS);
    let director = &stage.site.director(0).namespace;
    let tc = |words: &[&str]| {
        let namespace = ["-n", director];
        let words = namespace.iter().chain(words).copied();
        tool::run("tc", words.collect::<Vec<_>>()).expect("tc does it")
    };
    tc(&["qdisc", "del", "dev", "eth0", "clsact"]);
    stage.wait(|_| tc(&["filter", "show", "dev", "eth0", "ingress"]).contains("sheaf_files"));
    assert_well(&mut held);
    held.extend(stage.connect(CLIENTS));
    assert_well(&mut held);
}

#[test]
fn what_a_program_needs_is_named() {
    if !can_run_bpf("what_a_program_needs_is_named") {
        return;
    }
    let _turn = farm_turn();
    let stage = Stage::build(1, "tc", false);
    let path = stage.folder.path().join("gateway.toml");
    let text = std::fs::read_to_string(&path).expect("it was written");
    // A card whose driver has no XDP, and that knows the server.
    let (director, server) = (&stage.site.director(0).namespace, stage.site.server(0));
    let (address, mac) = (server.v4.to_string(), server.mac.to_string());
    for words in [
        "link add br9 type bridge".to_owned(),
        "link set br9 up".to_owned(),
        format!("neigh add {address} lladdr {mac} dev br9"),
    ] {
        let all = ["-n", director].into_iter().chain(words.split(' '));
        tool::run("ip", all).expect("ip does it");
    }
    let [mode, card] = ["bpf = { mode = \"tc\" }", "interface = \"eth0\""];
    let missing = [(mode, "bpf = { program = \"/nonexistent.o\" }"); 2];
    let no_card = [(card, "interface = \"eth9\""); 2];
    let no_xdp = [
        (mode, "bpf = { mode = \"xdp\" }"),
        (card, "interface = \"br9\""),
    ];
    for (changes, expected) in [
        (missing, "found no BPF program at /nonexistent.o; make bpf"),
        (no_card, "found no interface"),
        (no_xdp, "the driver of br9 refused XDP"),
    ] {
        let mut text = text.clone();
        for (before, after) in changes {
            text = text.replace(before, after);
        }
        std::fs::write(&path, text).expect("it is written");
        let mut director = stage.director_command();
        let output = director.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut director = super::Ending(output.spawn().expect("the program starts"));
        let log = BufReader::new(director.0.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(expected)), "{expected}");
    }
}
