//! The Helm chart of a farm: rendered, held against the published schemas of Kubernetes, and its farm file checked.

use crate::harness::{Running, sheaf, write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the chart.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/helm/sheaf");
/// The first and the last version of Kubernetes of which the schemas are there.
const KUBERNETES: [&str; 2] = ["1.28", "1.37"];

/// Returns the folder with `helm` and `kubernetes-validate`; or says why there is none, and `None`.
fn tools(test: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let place = cache.map(|cache| cache.join("sheaf/helm"));
    let is_there = |place: &PathBuf| {
        place.join("bin/helm").is_file() && place.join("bin/kubernetes-validate").is_file()
    };
    let place = place.filter(is_there);
    if place.is_none() {
        eprintln!("{test} skipped: needs Helm and schemas of Kubernetes (scripts/setup.sh helm)");
    }
    place.map(|place| place.join("bin"))
}

fn helm(tools: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(tools.join("helm"));
    command.args(words);
    Running::of(command)
}

fn render(tools: &Path, sets: &[&str]) -> String {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let words = [
        "template",
        "north",
        CHART,
        "--namespace",
        "daq",
        "--kube-version",
        "1.28.0",
    ];
    let words: Vec<&str> = words.into_iter().chain(sets).collect();
    helm(tools, &words).end().ok(&words)
}

/// Returns the farm file in rendered manifests.
fn farm_file(rendered: &str) -> String {
    let (_, rest) = rendered
        .split_once("  farm.toml: |\n")
        .expect("a farm file");
    let lines = rest
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.trim().to_owned() + "\n").collect()
}

#[test]
fn manifests_are_those_of_the_published_schemas_and_the_farm_file_is_valid() {
    let test = "manifests_are_those_of_the_published_schemas_and_the_farm_file_is_valid";
    let Some(tools) = tools(test) else { return };
    let words = ["lint", "--strict", CHART, "--set", "security.insecure=true"];
    helm(&tools, &words).end().ok(&words);
    let folder = tempfile::tempdir().unwrap();
    let secret = folder
        .path()
        .join("certificates")
        .to_str()
        .unwrap()
        .to_owned();
    sheaf(&["cert", "init", "--dir", &secret]).ok(&["cert", "init"]);
    let issue = ["cert", "issue", "--dir", &secret];
    let nodes = ["icn:0", "flp:0", "epn:0", "operator:0"];
    sheaf(&[&issue[..], &nodes].concat()).ok(&issue);
    for sets in [
        &["security.insecure=true"][..],
        &[
            "security.secret=farm-certificates",
            "icn.replicas=1",
            "epn.replicas=40",
        ],
        &[
            "security.insecure=true",
            "settings.icn.delivery=at-least-once",
            "settings.run.timeframes=1000",
        ],
        &[
            "security.insecure=true",
            "podLabels.team=daq",
            "icn.storage.className=fast",
        ],
    ] {
        let rendered = render(&tools, sets);
        let manifests = write(folder.path(), "manifests.yaml", &rendered);
        for version in KUBERNETES {
            let mut command = Command::new(tools.join("kubernetes-validate"));
            command.args(["--strict", "-k", version, &manifests]);
            let ended = Running::of(command).end();
            assert!(
                ended.status.success(),
                "{version} {sets:?}: {:#?}\n{}",
                ended.stdout,
                ended.stderr
            );
        }
        // The Secret is mounted in a pod; here it is a folder.
        let text = farm_file(&rendered).replace("/etc/sheaf/certificates", &secret);
        let farm = write(folder.path(), "farm.toml", &text);
        sheaf(&["config", "check", &farm]).ok(&["config", "check"]);
    }
}

#[test]
fn each_node_has_a_stable_name_probes_and_a_budget() {
    let Some(tools) = tools("each_node_has_a_stable_name_probes_and_a_budget") else {
        return;
    };
    let rendered = render(&tools, &["security.insecure=true"]);
    for (what, count) in [
        ("kind: StatefulSet", 3),
        ("clusterIP: None", 3),
        ("kind: PodDisruptionBudget", 3),
        ("maxUnavailable: 1", 3),
        ("path: /readyz", 3),
        ("path: /healthz", 6),
        ("terminationGracePeriodSeconds: 60", 3),
        ("runAsNonRoot: true", 3),
        ("volumeClaimTemplates:", 1),
    ] {
        assert_eq!(rendered.matches(what).count(), count, "{what}");
    }
    // What a node listens at is what the farm file says of it.
    let farm = farm_file(&rendered);
    for icn in 0..3 {
        let address = format!("\"north-icn-{icn}.north-icn.daq.svc:7000\"");
        assert!(farm.contains(&address), "{address} is not in:\n{farm}");
    }
    assert!(rendered.contains("--listen=$(SHEAF_POD).north-icn.daq.svc:7000"));
    assert!(
        farm.contains("listen = \"north-epn-{epn}.north-epn.daq.svc:7100\""),
        "{farm}"
    );
}

#[test]
fn values_that_make_no_farm_are_refused() {
    let Some(tools) = tools("values_that_make_no_farm_are_refused") else {
        return;
    };
    for (set, expected) in [
        (
            "epn.replicas=3",
            "found no security.secret, expected the name of a Secret",
        ),
        (
            "security.insecure=true,security.secret=x",
            "expected one of them",
        ),
        ("security.insecure=true,icn.replicas=2", "icn.replicas"),
        ("security.insecure=true,flps.replicas=2", "flps"),
    ] {
        let words = [
            "template",
            "north",
            CHART,
            "--kube-version",
            "1.28.0",
            "--set",
            set,
        ];
        let ended = helm(&tools, &words).end();
        assert_eq!(ended.status.code(), Some(1), "{set}");
        assert!(ended.stderr.contains(expected), "{set}: {}", ended.stderr);
    }
    let words = [
        "template",
        "north",
        CHART,
        "--kube-version",
        "1.27.0",
        "--set",
        "security.insecure=true",
    ];
    let ended = helm(&tools, &words).end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains(">=1.28.0-0"), "{}", ended.stderr);
}
