use super::*;
use crate::scenario::{Fault, FaultKind, Mode, Rack};

/// Returns the points of a file, checked.
fn points(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let points = ExperimentFile::parse(text)?.points(Path::new(""), POINTS_MAX)?;
    points.iter().try_for_each(Scenario::check)?;
    Ok(points)
}

fn error_of(text: &str) -> String {
    points(text).expect_err(text).to_string()
}

#[test]
fn an_empty_file_is_the_default_scenario() {
    assert_eq!(points("").unwrap(), [Scenario::default()]);
}

#[test]
fn a_scenario_comes_back_as_it_was_written() {
    let mut scenario = Scenario {
        mode: Mode::Legacy,
        ..Scenario::default()
    };
    scenario.network.racks.push(Rack {
        flps: 1,
        epns: 2,
        uplink_mbit_s: 100.0,
    });
    scenario.faults.push(Fault {
        at_s: 1.0,
        within_s: 0.0,
        kind: FaultKind::Hang,
        flp: None,
        epn: Some(1),
        for_s: Some(0.5),
        factor: None,
    });
    let text = toml::to_string(&scenario).unwrap();
    assert_eq!(points(&text).unwrap(), [scenario]);
}

#[test]
fn a_matrix_is_the_product_of_its_lists() {
    let text =
        "flps = 3\n[matrix]\nepns = [1, 2]\npolicy = [\"random\", \"modulo\", \"round-robin\"]\n";
    let points = points(text).unwrap();
    let found: Vec<(u32, u32, &str)> = points
        .iter()
        .map(|point| (point.flps, point.epns, point.policy.as_str()))
        .collect();
    assert_eq!(found.len(), 6);
    assert_eq!(found[0], (3, 1, "random"));
    assert_eq!(found[5], (3, 2, "round-robin"));
}

#[test]
fn whatever_is_wrong_with_a_scenario_is_named_with_its_key_and_what_is_accepted() {
    for (text, parts) in [
        ("flsp = 2", &["unknown field `flsp`", "flps"][..]),
        ("[network]\nnic = 3", &["unknown field `nic`", "flp_mbit_s"]),
        ("mode = \"old\"", &["unknown variant `old`", "legacy"]),
        ("push = \"pull\"", &["unknown variant `pull`", "granted"]),
        (
            "reaction = \"hope\"",
            &["unknown variant `hope`", "reinitialise"],
        ),
        ("policy = \"best\"", &["policy:", "best", "round-robin"]),
        ("flps = 0", &["flps: found 0, expected 1 to"]),
        ("rate_hz = -1", &["rate_hz: found -1, expected more than 0"]),
        (
            "rate_hz = nan",
            &["rate_hz: found NaN, expected more than 0"],
        ),
        (
            "[size]\nbytes = 0",
            &["size.bytes: found 0, expected 1 byte"],
        ),
        (
            "[size]\nmodel = \"trace\"",
            &["size.trace: found \"\", expected a file"],
        ),
        (
            "[processing]\ndistribution = \"trace\"",
            &["processing.trace: found \"\", expected a file"],
        ),
        (
            "[size.beam]\npedestal = 2",
            &["size.beam.pedestal: found 2, expected 0 to 1"],
        ),
        (
            "[size.beam]\ngap_s = 2",
            &["size.beam.gap_s: found 2, expected 0 without size.beam.fill_s"],
        ),
        ("[matrix]\nflps = [1, 0]", &["flps: found 0, expected 1 to"]),
        ("[matrix]\nsize = [1]", &["invalid type: integer `1`"]),
        ("[matrix]\nspeed = [1]", &["unknown field `speed`", "bytes"]),
        ("[matrix]\nfarm.stale = [1]", &["unknown field `stale`"]),
        (
            "[matrix]\nfarm.tick_ms = 3",
            &["matrix.farm.tick_ms: found 3, expected a list of values"],
        ),
        (
            "load = 0.9",
            &["load: found 0.9, expected a processing.ms above 0"],
        ),
        (
            "[[network.racks]]\nepns = 9\nuplink_mbit_s = 1",
            &["racks: EPNs: found 9, expected at most 4"],
        ),
        (
            "[[groups]]\nepns = 9",
            &["groups: EPNs: found 9, expected at most 4"],
        ),
        (
            "[registry]\nsuspect_ms = 10",
            &["suspect_ms: found 10, expected more than registry.pulse_ms"],
        ),
        (
            "[[faults]]\nat_s = 1\nkind = \"crash\"",
            &["faults[0].kind: found neither, expected an flp or an epn"],
        ),
        (
            "[[faults]]\nat_s = 1\nkind = \"crash\"\nepn = 4",
            &["faults[0].epn: found 4, expected 0 to 3"],
        ),
        (
            "[[faults]]\nat_s = 1\nkind = \"hang\"\nepn = 1",
            &["faults[0].for_s: found none, expected how long"],
        ),
        (
            "[[faults]]\nat_s = 1\nkind = \"slow\"\nepn = 1",
            &["faults[0].factor: found none, expected a factor"],
        ),
        (
            "[[faults]]\nat_s = 1\nkind = \"burn\"\nepn = 1",
            &["unknown variant `burn`", "partition"],
        ),
    ] {
        let error = error_of(text);
        for part in parts {
            assert!(error.contains(part), "{text}\n→ {error}\nlacks {part}");
        }
    }
}

#[test]
fn a_former_key_is_refused_with_its_present_name() {
    for (table, former, present) in [
        ("farm", "stale_ms", "stf_timeout_ms"),
        ("registry", "grace_ms", "flp_grace_ms"),
        ("registry", "dead_ms", "epn_grace_ms"),
    ] {
        let error = error_of(&format!("[{table}]\n{former} = 3000\n"));
        let ending = format!("{table}.{former} is now {table}.{present}");
        assert!(error.ends_with(&ending), "{error}");
        points(&format!("[{table}]\n{present} = 3000\n")).unwrap();
    }
}

#[test]
fn a_matrix_without_end_is_refused() {
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let list = many.join(", ");
    let text = format!("[matrix]\nflps = [{list}]\nepns = [{list}]\n");
    assert!(error_of(&text).contains("matrix: found 10201, expected at most 10000 points"));
}

#[test]
fn a_fault_may_name_an_epn_that_joined_before_it() {
    let text =
        "[[faults]]\nat_s = 1\nkind = \"join\"\n[[faults]]\nat_s = 2\nkind = \"leave\"\nepn = 4\n";
    assert_eq!(points(text).unwrap().len(), 1);
}

#[test]
fn layers_replace_the_keys_that_they_say_and_no_others() {
    let text = "
        flps = 3
        bytes = 1000
        [size]
        model = 'tpc'
        [network]
        flp_mbit_s = 100.0
        epn_mbit_s = 200.0
        [[point]]
        label = 'a'
        [[point]]
        label = 'b'
        bytes = 2000
        network = { flp_mbit_s = 10.0 }
        [[variant]]
        label = 'sine'
        size.model = 'sine'
        [matrix]
        suspect_ms = [300, 600]";
    let points = points(text).unwrap();
    let found: Vec<(&str, u64, f64, u64)> = points
        .iter()
        .map(|point| {
            let (size, network) = (&point.size, &point.network);
            assert_eq!((point.flps, network.epn_mbit_s), (3, 200.0));
            assert_eq!(size.model, crate::scenario::SizeModel::Sine);
            let suspect_ms = point.registry.suspect_ms;
            (
                point.label.as_str(),
                size.bytes,
                network.flp_mbit_s,
                suspect_ms,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a sine", 1000, 100.0, 300),
            ("a sine", 1000, 100.0, 600),
            ("b sine", 2000, 10.0, 300),
            ("b sine", 2000, 10.0, 600),
        ]
    );
}

#[test]
fn base_and_scenario_say_the_same_as_the_top_of_a_file() {
    let former = "
        name = 'x'
        seed = 4
        [base]
        bytes = 3000
        suspect_ms = 700
        processing_ms = 2.0
        [scenario]
        hold_bytes = 17
        seed = 9
        name = 'not looked at'
        [scenario.size]
        model = 'random'
        bytes = 1
        [[fault]]
        at_s = 1.0
        kind = 'crash'
        epn = 0";
    let present = "
        name = 'x'
        seed = 4
        hold_bytes = 17
        bytes = 3000
        suspect_ms = 700
        processing_ms = 2.0
        size.model = 'random'
        [[faults]]
        at_s = 1.0
        kind = 'crash'
        epn = 0";
    let found = points(former).unwrap();
    assert_eq!(found, points(present).unwrap());
    assert_eq!((found[0].seed, found[0].size.bytes), (4, 3000));
    let is_former = |text| ExperimentFile::parse(text).unwrap().has_former_tables;
    assert!(is_former(former) && !is_former(present));
}

#[test]
fn what_stands_in_the_wrong_place_or_twice_is_refused() {
    for (text, told) in [
        (
            "[[point]]\nseed = 1",
            "seed: found it in [point], expected it at the top",
        ),
        ("[base]\niterations = 1", "iterations: found it in [base]"),
        (
            "bytes = 1\nsize.bytes = 2",
            "bytes: found size.bytes, too, expected one",
        ),
        (
            "fault = []\nfaults = []",
            "fault: found faults, too, expected one of the two",
        ),
        (
            "point = 3",
            "point: found integer, expected a list of tables",
        ),
        ("[[base]]", "base: found array, expected a table"),
        ("size = 3\nbytes = 4", "invalid type: integer `3`"),
        ("flps = 1\n[[point]]\nspeed = 9", "at line 3, column 1"),
        ("[size]\nkind = 9", "at line 2, column 1"),
        ("bytes = 'x'", "at line 1, column 9"),
        ("[matrix]\nbytes = ['x']", "at line 2, column 10"),
    ] {
        let error = error_of(text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn a_file_without_a_name_or_a_question_is_told_so_if_they_are_needed() {
    let told = |text: &str| {
        let file = ExperimentFile::parse(text).unwrap();
        file.check_named().map_err(|error| error.to_string())
    };
    assert!(
        told("flps = 2")
            .unwrap_err()
            .contains("missing field `name`")
    );
    assert!(
        told("name = 'x'")
            .unwrap_err()
            .contains("missing field `question`")
    );
    assert_eq!(told("name = 'x'\nquestion = '?'"), Ok(()));
}
