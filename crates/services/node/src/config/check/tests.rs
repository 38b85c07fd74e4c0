//! Bad farm files and what is said of them.

use crate::config::FarmConfig;
use sheaf_protocol::Role;
use std::path::Path;

/// `expected` are the errors of the farm file `text`, one a line; none if it is good.
fn check(text: &str, expected: &str) {
    let found = match FarmConfig::parse_for(text, Path::new("f"), &[]) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    };
    assert_eq!(found, expected, "{text}");
}

#[test]
fn the_run_needs_nodes_and_an_end_that_is_one() {
    check(
        "[run]\nflps = 0\nepns = 65536\nduration_s = nan\n",
        "f:2: run.flps: found 0, expected 1 to 65535\n\
         f:2: transport.connections_max: found 4096, expected at least 65536, the nodes that connect to one\n\
         f:3: run.epns: found 65536, expected 1 to 65535\n\
         f:4: run.duration_s: found NaN, expected seconds from 0 (no end) to 1e9",
    );
    check("[run]\nduration_s = 10\ntimeframes = 5\n", "");
    check(
        "[run]\nduration_s = -1.5\n",
        "f:2: run.duration_s: found -1.5, expected seconds from 0 (no end) to 1e9",
    );
}

#[test]
fn addresses_have_a_host_and_a_port() {
    check(
        "[icn]\naddress = \"7000\"\nmetrics = \"a b:1\"\n[epn]\nlisten = \"[::1\"\nadvertise = \"x:99999\"\n",
        "f:2: icn.address: found \"7000\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH\n\
         f:3: icn.metrics: found \"a b:1\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100\n\
         f:5: epn.listen: found \"[::1\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH\n\
         f:6: epn.advertise: found \"x:99999\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH",
    );
    check(
        "icn.address = \"icn:0\"\n",
        "f:1: icn.address: found \"icn:0\", expected a port other than 0: nodes look for the ICN there",
    );
}

#[test]
fn an_unknown_policy_is_answered_with_the_known_ones_at_an_icn_alone() {
    let text = "[icn.scheduler]\npolicy = \"fastest\"\n";
    check(text, "");
    let found = FarmConfig::parse_for(text, Path::new("f"), &[Role::Icn]);
    assert_eq!(
        found.expect_err("no such policy").to_string(),
        "f:2: icn.scheduler.policy: found \"fastest\", expected one of fixed, random, round-robin, modulo, \
         first-fit, least-loaded, power-of-two, weighted, earliest-finish, calendar, maglev, join-idle-queue, \
         power-of-two-memory, or fixed:TARGET with the number of a target",
    );
}

#[test]
fn an_unknown_reaction_is_answered_with_the_known_ones() {
    check(
        "[icn.scheduler]\nreaction = \"Whitelist\"\n",
        "f:2: icn.scheduler.reaction: found \"Whitelist\", expected one of whitelist, blacklist, reinitialise, none",
    );
    check(
        "[icn.scheduler]\nreaction = \"none\"\nreset_ms = 60000\n",
        "",
    );
}

#[test]
fn a_quorum_is_within_the_run_if_it_counts() {
    let quorum = |rule| format!("[icn.scheduler]\nincomplete = \"{rule}\"\nquorum_stfs_min = 4\n");
    check(&quorum("never"), "");
    check(
        &quorum("allow"),
        "f:3: icn.scheduler.quorum_stfs_min: found 4, expected 1 to run.flps, which is 3",
    );
}

#[test]
fn deadlines_leave_time_for_those_before() {
    check(
        "[icn.liveness]\npulse_ms = 100\nepn_grace_ms = 0\n[icn.scheduler]\ntf_deadline_ms = 3000\n\
         unreachable_timeout_ms = 4000\nrepeat_ms = 0\n",
        "f:2: icn.liveness.suspect_ms: found 100 ms, expected more than icn.liveness.pulse_ms, which is \
         100 ms\n\
         f:3: icn.liveness.epn_grace_ms: found 0 ms, expected more than icn.liveness.suspect_ms, which is 100 ms\n\
         f:5: epn.build.stf_timeout_ms: found 2000 ms, expected more than icn.scheduler.tf_deadline_ms, which is \
         3000 ms\n\
         f:7: icn.scheduler.repeat_ms: found 0, expected at least 1 ms",
    );
    check(
        "[icn.scheduler]\ntf_deadline_ms = 3000\nunreachable_timeout_ms = 3000\n[epn.build]\nstf_timeout_ms = 2000\n",
        "f:3: icn.scheduler.unreachable_timeout_ms: found 3000 ms, expected more than \
         icn.scheduler.tf_deadline_ms, which is 3000 ms\n\
         f:5: epn.build.stf_timeout_ms: found 2000 ms, expected more than icn.scheduler.tf_deadline_ms, which is \
         3000 ms",
    );
}

#[test]
fn what_is_stored_is_not_delivered_again() {
    let sink = "[epn.sink]\nkind = \"file\"\ndirectory = \"/tmp\"\n";
    let again =
        |ack| format!("[icn]\ndelivery = \"at-least-once\"\n[epn]\nack = \"{ack}\"\n{sink}");
    check(&again("built"), "");
    check(
        &again("stored"),
        "f:2: icn.delivery: found \"at-least-once\", expected \"at-most-once\" with epn.ack = \"stored\": the next life \
         of an EPN publishes its TFs, and none is built again",
    );
    check(
        "[icn]\ndelivery = \"exactly-once\"\n",
        "f:2: icn.delivery: found \"exactly-once\", expected one of at-most-once, at-least-once",
    );
}

#[test]
fn what_is_processed_needs_a_sink_that_sees_the_end_and_delivery_at_least_once() {
    let farm = |delivery, sink| {
        format!(
            "[icn]\ndelivery = \"{delivery}\"\n[epn]\nack = \"processed\"\n[epn.sink]\nkind = \"{sink}\"\n\
             path = \"/tmp/s\"\n"
        )
    };
    check(&farm("at-least-once", "shm"), "");
    check(
        &farm("at-most-once", "shm"),
        "f:2: icn.delivery: found \"at-most-once\", expected \"at-least-once\" with epn.ack = \"processed\": a TF whose \
         EPN dies is built again",
    );
    check(
        &farm("at-least-once", "unix"),
        "f:4: epn.ack: found \"processed\", expected \"built\" for epn.sink.kind = \"unix\": the sink shm alone knows \
         when a consumer has finished",
    );
}

#[test]
fn rates_and_weights_are_numbers_above_zero() {
    check(
        "[flp]\nrate_hz = -100.0\n[epn]\nweight = 0\nqueue_tfs = 0\n",
        "f:2: flp.rate_hz: found -100, expected a rate above 0, up to 1e6 Hz, or 0 for as fast as possible\n\
         f:4: epn.weight: found 0, expected a weight from 0.001 to 1000\n\
         f:5: epn.queue_tfs: found 0, expected at least 1 TF",
    );
    check(
        "[flp]\nrate_hz = nan\n[epn]\nweight = inf\n",
        "f:2: flp.rate_hz: found NaN, expected a rate above 0, up to 1e6 Hz, or 0 for as fast as possible\n\
         f:4: epn.weight: found inf, expected a weight from 0.001 to 1000",
    );
    let paced = "[icn.scheduler]\nmode = \"paced\"\npaced_rate_hz = 0.0\n";
    check(
        paced,
        "f:3: icn.scheduler.paced_rate_hz: found 0, expected a rate above 0, up to 1e6 Hz",
    );
    check("[flp]\nrate_hz = 0\n", "");
}

#[test]
fn the_hold_outlasts_the_failure_of_an_epn() {
    check(
        "[flp]\nrate_hz = 10000\n",
        "f:2: flp.hold_stfs_max: found 4096, expected at least 5000, the STFs of 500 ms \
         (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms) at 10000 Hz",
    );
    check(
        "[flp]\nhold_bytes = 70000000\n[flp.source]\nkind = \"generator\"\nbytes_mean = 2000000\n",
        "f:2: flp.hold_bytes: found 70000000, expected at least 100000000, the STFs of 500 ms \
         (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms) at 100 Hz, 2000000 bytes each",
    );
    check("[flp]\nrate_hz = 10000\nsource.kind = \"stdin\"\n", "");
    check(
        "[flp]\nrate_hz = 10000\n[icn.scheduler]\nmode = \"paced\"\n",
        "",
    );
}

#[test]
fn memory_holds_what_passes_through_it() {
    check(
        "[flp]\nhold_bytes = 1000\nstf_bytes_max = 1001\n[epn.build]\ncapacity_bytes = 1000\n",
        "f:2: flp.hold_bytes: found 1000, expected room for one STF, flp.stf_bytes_max of 1001 bytes\n\
         f:5: epn.build.capacity_bytes: found 1000, expected room for one STF, flp.stf_bytes_max of 1001 bytes",
    );
    check(
        "[icn.scheduler]\nstf_bytes_max = 1000000\n",
        "f:2: flp.stf_bytes_max: found 67108864, expected 1 to icn.scheduler.stf_bytes_max, which is 1000000 \
         bytes",
    );
    check(
        "[icn.scheduler]\nmode = \"paced\"\ntf_bytes_max = 300000000\n",
        "f:3: epn.build.capacity_bytes: found 268435456, expected room for one TF, \
         icn.scheduler.tf_bytes_max of 300000000 bytes",
    );
    check(
        "run.flps = 300\n[flp.source]\nkind = \"generator\"\n",
        "f:1: epn.build.capacity_bytes: found 268435456, expected room for one TF, 300 STFs of 1048576 bytes",
    );
}

#[test]
fn sources_and_sinks_have_what_they_need() {
    check(
        "[flp.source]\nkind = \"generator\"\npool_bytes = 10\n",
        "f:3: flp.source.pool_bytes: found 10, expected at least 1048576, the bytes of the largest payload",
    );
    check(
        "[flp.source]\nkind = \"file\"\n",
        "f:1: flp.source.files: found no file, expected at least one file",
    );
    check(
        "[flp.source]\nkind = \"xtc2\"\nfiles = [\"a\", \"b\"]\n",
        "f:3: flp.source.files: found 2 files, expected at least one for each of 3 FLPs (run.flps)",
    );
    check(
        "[flp.source]\nkind = \"tcp\"\nlisten = \"localhost\"\n[epn.sink]\nkind = \"unix\"\n",
        "f:3: flp.source.listen: found \"localhost\", expected HOST:PORT, such as 10.0.0.7:7100 or \
         [::1]:7100\n\
         f:4: epn.sink.path: found a path of 0 bytes, expected 1 to 107 bytes, as many as a Unix socket \
         address holds",
    );
    check(
        "[flp.source]\nkind = \"tcp\"\nlisten = \"[::1]:710{flp}\"\n",
        "",
    );
    check(
        "[flp.source]\nkind = \"zmq\"\nendpoint = \"tcp://*:0\"\nmethod = \"connect\"\ntopic = \"a\"\npeers_max = 0\n\
         [epn.sink]\nkind = \"zmq\"\nendpoint = \"127.0.0.1:1\"\nstall_ms = 0\n",
        "f:3: flp.source.endpoint: found \"tcp://*:0\", expected tcp://HOST:PORT or ipc://PATH, such as \
         tcp://127.0.0.1:5555\n\
         f:5: flp.source.topic: found \"a\", expected none with pattern = \"pull\"\n\
         f:6: flp.source.peers_max: found 0, expected 1 to 1024\n\
         f:9: epn.sink.endpoint: found \"127.0.0.1:1\", expected tcp://HOST:PORT or ipc://PATH, such as \
         tcp://127.0.0.1:5555\n\
         f:10: epn.sink.stall_ms: found 0, expected at least 1 ms",
    );
    check(
        "[flp.source]\nkind = \"zmq\"\nendpoint = \"tcp://*:560{flp}\"\n[epn.sink]\nkind = \"zmq\"\n\
         endpoint = \"ipc:///run/epn{epn}\"\nmethod = \"connect\"\n",
        "",
    );
    check(
        "epn.sink.kind = \"file\"\n",
        "f:1: epn.sink.directory: found none, expected a directory that is there",
    );
    check(
        "[transport]\ncongestion = \"a;b\"\nsocket_buffer_bytes = 1\n",
        "f:2: transport.congestion: found \"a;b\", expected the kernel's name of a congestion control, up to \
         15 letters, or none\n\
         f:3: transport.socket_buffer_bytes: found 1, expected 4096 to 1073741824 bytes",
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let errors = FarmConfig::load(Path::new("no/farm.toml")).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "no/farm.toml: found No such file or directory (os error 2), expected a readable farm file"
    );
}
