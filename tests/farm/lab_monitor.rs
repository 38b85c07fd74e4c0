//! `sheaf lab monitor`: every part works on small input, the page follows from the report, and a scenario that does
//! something else is found.

use crate::harness::{farm_turn, sheaf, write};
use serde_json::Value;

const FIGURES: [(&str, &str, &[&str]); 12] = [
    (
        "scenarios",
        "pass-through",
        &["points_per_s", "points_per_s_1", "cpu_s_per_million"],
    ),
    (
        "scenarios",
        "pass-through, one a datagram",
        &["points_per_s"],
    ),
    ("scenarios", "edit", &["points_per_s", "cpu_s_per_million"]),
    (
        "scenarios",
        "suppress",
        &["points_per_s", "cpu_s_per_million"],
    ),
    (
        "scenarios",
        "average",
        &["points_per_s", "cpu_s_per_million"],
    ),
    (
        "sources",
        "600 kHz from 100,000 sources",
        &[
            "stored_percent",
            "averaged_percent",
            "points_per_s",
            "cpu_s_per_million",
            "rss_mib_max",
        ],
    ),
    ("storage", "UDP, 2 streams", &["points_per_s"]),
    (
        "storage",
        "HTTP, 2 streams",
        &["points_per_s", "cpu_s_per_million", "bytes_per_point"],
    ),
    (
        "latency",
        "loaded",
        &["visible_ms_p99", "alarm_ms_p99", "display_ms_p99"],
    ),
    (
        "melk",
        "agent beside a busy farm",
        &[
            "cpu_percent",
            "intervals_due",
            "intervals_lost",
            "samples_lost_percent",
        ],
    ),
    (
        "melk",
        "dips that follow the temperature",
        &["correlation", "dip_percent"],
    ),
    (
        "melk",
        "dips of another cause",
        &["correlation", "dip_percent"],
    ),
];

#[test]
fn every_part_of_the_monitoring_experiments_works_on_small_input() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, page, again) = (path("a.json"), path("a.md"), path("b.md"));
    let words = ["lab", "monitor", "--quick", "--server", "sheaf"];
    let files = ["--json", &json, "--page", &page];
    let ended = sheaf(&[&words[..], &files].concat());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(ended.status.success(), "{report:#}\n{}", ended.stderr);
    let rows = report["rows"].as_array().unwrap();
    for (part, case, figures) in FIGURES {
        let mut found = rows.iter().filter(|row| row["case"] == case);
        let row = found.find(|row| row["part"] == part);
        let row = row.unwrap_or_else(|| panic!("{part}, {case}: {report:#}"));
        for figure in figures {
            let spread = &row["figures"][figure];
            assert!(spread["median"].is_f64(), "{figure}: {row:#}");
            assert!(spread["n"].as_u64() > Some(0), "{figure}: {row:#}");
        }
    }
    let checks = report["checks"].as_array().unwrap();
    // Four scenarios, the sources, the agent, the correlation.
    assert_eq!(checks.len(), 7, "{report:#}");
    assert_eq!(report["is_quick"], true);

    sheaf(&["lab", "monitor", "--read", &json, "--page", &again]).ok(&["--read"]);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&page), read(&again));
    assert!(read(&page).contains("[a.json](a.json)"));
}

#[test]
fn a_scenario_that_does_something_else_fails_its_check() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let average = "[[monitor.processing.operator]]\nkind = \"window\"\nfunctions = [\"max\"]\nlength_ms = 1000\n\
                   output = \"{name}_avg\"\n";
    let suppress = write(folder.path(), "suppress.toml", "");
    let average = write(folder.path(), "average.toml", average);
    let (suppress, average) = (format!("suppress={suppress}"), format!("average={average}"));
    let words = [
        "lab", "monitor", "--quick", "--server", "sheaf", "--json", "-",
    ];
    let part = [
        "--part",
        "scenarios",
        "--processing",
        &suppress,
        "--processing",
        &average,
    ];
    let ended = sheaf(&[&words[..], &part].concat());
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap();
    let problems = |scenario: &str| -> Vec<String> {
        let mut checks = report["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["what"].as_str().unwrap().starts_with(scenario));
        serde_json::from_value(check.unwrap()["problems"].clone()).unwrap()
    };
    for scenario in ["pass-through", "edit"] {
        assert_eq!(problems(scenario), Vec::<String>::new(), "{report:#}");
    }
    assert!(
        problems("suppress")[0].contains("samples, expected"),
        "{report:#}"
    );
    assert!(
        problems("average")[0].contains("an average is"),
        "{report:#}"
    );
}

#[test]
fn wrong_uses_of_the_monitoring_experiments_are_refused() {
    for (words, expected) in [
        (
            &["--processing", "filter=x"][..],
            "found `filter`, expected one of: pass-through",
        ),
        (
            &["--processing", "edit=/no/such/file"],
            "cannot read /no/such/file",
        ),
        (&["--read", "/no/such/file"], "cannot read /no/such/file"),
        (&["--part", "sauces"], "sauces"),
    ] {
        let ended = sheaf(&[&["lab", "monitor"], words].concat());
        assert_eq!(ended.status.code(), Some(2), "{words:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(expected),
            "{words:?}: {}",
            ended.stderr
        );
    }
}
