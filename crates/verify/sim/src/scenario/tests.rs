use super::*;

fn error_of(text: &str) -> String {
    let outcome = ScenarioFile::parse(text).and_then(|file| file.points());
    outcome.expect_err(text).to_string()
}

#[test]
fn an_empty_file_is_the_default_scenario() {
    let file = ScenarioFile::parse("").unwrap();
    assert_eq!(file.points().unwrap(), [Scenario::default()]);
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
        kind: FaultKind::Hang,
        flp: None,
        epn: Some(1),
        for_s: Some(0.5),
        factor: None,
    });
    let text = toml::to_string(&scenario).unwrap();
    assert_eq!(
        ScenarioFile::parse(&text).unwrap().points().unwrap(),
        [scenario]
    );
}

#[test]
fn a_matrix_is_the_product_of_its_lists() {
    let text =
        "flps = 3\n[matrix]\nepns = [1, 2]\npolicy = [\"random\", \"modulo\", \"round-robin\"]\n";
    let points = ScenarioFile::parse(text).unwrap().points().unwrap();
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
        ("[matrix]\nflps = [1, 0]", &["flps: found 0, expected 1 to"]),
        ("[matrix]\nsize = [1]", &["unknown field `size`", "bytes"]),
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
        ScenarioFile::parse(&format!("[{table}]\n{present} = 3000\n")).unwrap();
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
    assert_eq!(
        ScenarioFile::parse(text).unwrap().points().unwrap().len(),
        1
    );
}
