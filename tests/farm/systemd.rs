//! The units in `deploy/systemd`: they say what they mean, start what there is, and let it do nothing else.

use crate::harness::{PATIENCE, PROGRAM, Running, farm_turn, free_address, sheaf, write};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every key that a unit of ours may have, by section. A key that systemd does not know it only warns about.
const KEYS: [(&str, &[&str]); 3] = [
    (
        "Unit",
        &[
            "Description",
            "Documentation",
            "Wants",
            "After",
            "StartLimitIntervalSec",
            "StartLimitBurst",
        ],
    ),
    (
        "Service",
        &[
            "Type",
            "NotifyAccess",
            "WatchdogSec",
            "ExecStart",
            "KillSignal",
            "TimeoutStopSec",
            "Restart",
            "RestartSec",
            "RestartPreventExitStatus",
            "StateDirectory",
            "StateDirectoryMode",
            "WorkingDirectory",
            "LimitNOFILE",
            "LimitCORE",
            "OOMScoreAdjust",
            "DynamicUser",
            "UMask",
            "NoNewPrivileges",
            "CapabilityBoundingSet",
            "AmbientCapabilities",
            "KeyringMode",
            "ProtectSystem",
            "ProtectHome",
            "ProtectProc",
            "ProcSubset",
            "ProtectClock",
            "ProtectHostname",
            "ProtectKernelLogs",
            "ProtectKernelModules",
            "ProtectKernelTunables",
            "ProtectControlGroups",
            "PrivateDevices",
            "DevicePolicy",
            "PrivateTmp",
            "PrivateMounts",
            "PrivateUsers",
            "PrivateIPC",
            "RemoveIPC",
            "RestrictNamespaces",
            "RestrictRealtime",
            "RestrictSUIDSGID",
            "LockPersonality",
            "MemoryDenyWriteExecute",
            "NoExecPaths",
            "ExecPaths",
            "SystemCallArchitectures",
            "SystemCallErrorNumber",
            "SystemCallFilter",
            "RestrictAddressFamilies",
            "IPAddressDeny",
            "IPAddressAllow",
        ],
    ),
    ("Install", &["WantedBy"]),
];

/// Lines that each unit must have.
const MUST: [(&str, &str); 14] = [
    ("DynamicUser", "yes"),
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateDevices", "yes"),
    ("PrivateTmp", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("RestrictNamespaces", "yes"),
    ("SystemCallArchitectures", "native"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
    ("IPAddressDeny", "any"),
    ("IPAddressAllow", "localhost"),
];

/// Lines of [`MUST`] that differ in a unit: what its program does with the network of the machine.
const BUT: [(&str, &str, &str); 4] = [
    (
        "sheaf-director.service",
        "CapabilityBoundingSet",
        "CAP_NET_ADMIN",
    ),
    (
        "sheaf-director.service",
        "AmbientCapabilities",
        "CAP_NET_ADMIN",
    ),
    (
        "sheaf-director.service",
        "RestrictAddressFamilies",
        "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ),
    (
        "sheaf-serve-agent.service",
        "RestrictAddressFamilies",
        "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/systemd")
}

fn units() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut units: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    units.sort();
    let names: Vec<_> = units
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "sheaf-agent.service",
            "sheaf-director.service",
            "sheaf-epn@.service",
            "sheaf-flp@.service",
            "sheaf-icn.service",
            "sheaf-serve-agent.service",
            "sheaf-writer@.service"
        ]
    );
    units
}

/// The values of each key, in order.
fn parse(path: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut known: Option<&[&str]> = None;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let at = format!("{}: {line}", path.display());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let keys = KEYS.iter().find(|(name, _)| *name == section);
            known = Some(keys.unwrap_or_else(|| panic!("{at}: no such section")).1);
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .unwrap_or_else(|| panic!("{at}: no key"));
        assert!(
            known.is_some_and(|keys| keys.contains(&key)),
            "{at}: no such key"
        );
        found
            .entry(key.to_owned())
            .or_default()
            .push(value.to_owned());
    }
    found
}

#[test]
fn every_unit_has_known_keys_and_is_hardened() {
    for path in units() {
        let found = parse(&path);
        let name = path.file_name().unwrap().to_str().unwrap();
        for (key, value) in MUST {
            let mut but = BUT.iter();
            let but = but.find(|(unit, other, _)| *unit == name && *other == key);
            let value = but.map_or(value, |(.., value)| value);
            assert_eq!(
                found.get(key).map(Vec::as_slice),
                Some(&[value.to_owned()][..]),
                "{} {key}",
                path.display()
            );
        }
    }
}

#[test]
fn every_unit_starts_a_command_that_there_is() {
    for path in units() {
        let words = parse(&path).remove("ExecStart").unwrap().remove(0);
        let words: Vec<String> = words
            .split(' ')
            .map(|word| word.replace("%i", "3"))
            .collect();
        assert_eq!(words[0], "/usr/bin/sheaf");
        let at = words
            .iter()
            .position(|word| word.starts_with("/etc/sheaf/"))
            .unwrap();
        let is_known = ["/etc/sheaf/farm.toml", "/etc/sheaf/gateway.toml"];
        assert!(is_known.contains(&words[at].as_str()), "{words:?}");
        // The command line is understood when all that is wrong is its file, which is not there.
        let mut words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        words[at - 1] = "/no/such/farm.toml";
        let ended = sheaf(&words);
        assert_eq!(ended.status.code(), Some(2), "{words:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("/no/such/farm.toml"),
            "{words:?}: {}",
            ended.stderr
        );
        assert!(
            !ended.stderr.contains("Usage"),
            "{words:?}: {}",
            ended.stderr
        );
    }
}

/// Whether a program is there. Continuous integration must have it: `scripts/setup.sh` installs it.
fn has(program: &str, word: &str) -> bool {
    let has = Command::new(program)
        .arg(word)
        .output()
        .is_ok_and(|out| out.status.success());
    assert!(
        has || std::env::var_os("CI").is_none(),
        "{program} is not installed"
    );
    if !has {
        println!("skipped: {program} is not installed");
    }
    has
}

#[test]
fn the_exposure_of_every_unit_is_at_most_1_5() {
    if !has("systemd-analyze", "--version") {
        return;
    }
    for path in units() {
        let out = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let last = text
            .lines()
            .rfind(|line| line.contains("Overall exposure"))
            .unwrap_or_else(|| {
                panic!(
                    "{}: {text}{}",
                    path.display(),
                    String::from_utf8_lossy(&out.stderr)
                )
            });
        let words = last.split_whitespace();
        let exposure: f64 = words
            .filter_map(|word| word.parse().ok())
            .next_back()
            .unwrap();
        assert!(exposure <= 1.5, "{last}");
    }
}

/// The names of the system calls of a filter such as `@system-service`, as this machine's systemd knows them.
fn calls_of(filter: &str) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for word in filter.split_whitespace() {
        if !word.starts_with('@') {
            calls.insert(word.to_owned());
            continue;
        }
        let out = Command::new("systemd-analyze")
            .args(["syscall-filter", "--no-pager", word])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        for line in text.lines().skip(1).map(str::trim) {
            if line.starts_with('@') {
                calls.extend(calls_of(line));
            } else if !line.is_empty() && !line.starts_with('#') {
                calls.insert(line.to_owned());
            }
        }
    }
    calls
}

/// A whole run under strace: what the nodes ask of the kernel is what their units let through.
#[test]
fn the_system_call_filter_lets_through_what_a_node_needs() {
    if !has("systemd-analyze", "--version") || !has("strace", "-V") {
        return;
    }
    let filters = parse(&folder().join("sheaf-icn.service"))
        .remove("SystemCallFilter")
        .unwrap();
    let (mut allowed, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for filter in &filters {
        match filter.strip_prefix('~') {
            Some(rest) => denied.extend(calls_of(rest)),
            None => allowed.extend(calls_of(filter)),
        }
    }
    assert!(
        allowed.contains("epoll_wait") && denied.contains("mlock"),
        "{allowed:?} {denied:?}"
    );
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\ntimeframes = 40\n[icn]\naddress = \"{}\"\nmetrics = \"127.0.0.1:0\"\n\
         [flp]\nrate_hz = 200.0\nstf_bytes_max = 1048576\n[flp.source]\nkind = \"generator\"\n\
         bytes_mean = 10000\n[epn]\nack = \"stored\"\n[epn.build]\ncapacity_bytes = 16777216\n\
         [epn.sink]\nkind = \"file\"\ndirectory = \"{}\"\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address(),
        store.display()
    );
    let config = write(folder.path(), "farm.toml", &text);
    let traces: Vec<PathBuf> = ["icn", "flp", "epn"]
        .map(|role| folder.path().join(role))
        .into();
    let mut nodes: Vec<_> = traces
        .iter()
        .map(|trace| {
            let role = trace.file_name().unwrap().to_str().unwrap();
            let mut command = Command::new("strace");
            command
                .args(["-f", "-qq", "-o"])
                .arg(trace)
                .arg("--")
                .arg(env!("CARGO_BIN_EXE_sheaf"));
            command.args(["run", role, "--config", &config]);
            if role != "icn" {
                command.args(["--index", "0"]);
            }
            command
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            command.spawn().expect("strace starts")
        })
        .collect();
    for node in &mut nodes {
        assert!(node.wait().expect("it is our child").success());
    }
    for trace in traces {
        let text = std::fs::read_to_string(&trace).unwrap();
        for line in text.lines() {
            let call = line
                .split_once(' ')
                .map_or(line, |(_, rest)| rest.trim_start());
            let Some((name, _)) = call.split_once('(') else {
                continue;
            };
            let is_name = name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            // The call that starts the program is systemd's own.
            if is_name && name != "execve" {
                assert!(
                    allowed.contains(name) && !denied.contains(name),
                    "{}: {line}",
                    trace.display()
                );
            }
            // And nothing that is written can be executed.
            assert!(
                !(line.contains("PROT_WRITE") && line.contains("PROT_EXEC")),
                "{}: {line}",
                trace.display()
            );
        }
    }
}

/// The protocol of `sd_notify(3)`: a socket of the test takes the place of the manager.
#[test]
fn a_service_manager_learns_of_start_state_life_and_end() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let text = format!(
        "[icn]\naddress = \"{}\"\n[icn.ledger]\nbackend = \"memory\"\n",
        free_address()
    );
    let config = write(folder.path(), "farm.toml", &text);
    let mut command = Command::new(PROGRAM);
    command
        .args(["run", "icn", "--config", &config])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000");
    let node = Running::of(command);
    let await_line = |expected: &str| {
        let mut buffer = [0; 4096];
        loop {
            let bytes = manager.recv(&mut buffer).expect(expected);
            let text = std::str::from_utf8(&buffer[..bytes]).unwrap();
            if text.lines().any(|line| line.starts_with(expected)) {
                return;
            }
        }
    };
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        await_line(expected);
    }
    node.signal(Signal::TERM);
    await_line("STOPPING=1");
    assert!(node.end().status.success());
}
