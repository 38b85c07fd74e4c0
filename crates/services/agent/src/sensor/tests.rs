//! The sensors over machines made of files: what is there, what is not, and what comes and goes.

use crate::{Agent, AgentConfig, Value, WatchConfig};
use sheaf_metrics::Registry;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use tempfile::TempDir;

/// A machine of files, and an agent on it.
struct Machine {
    folder: TempDir,
    registry: Arc<Registry>,
    agent: Agent,
}

impl Machine {
    fn new(files: &[(&str, &str)], sensors: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            put(folder.path(), path, text);
        }
        let config = AgentConfig {
            root: folder.path().to_owned(),
            sensors: sensors.iter().map(|name| (*name).to_owned()).collect(),
            ..AgentConfig::default()
        };
        let registry = Arc::new(Registry::default());
        let mut agent = Agent::open(&config, registry.clone());
        agent.read();
        Self {
            folder,
            registry,
            agent,
        }
    }

    /// Replaces the text of a file, which stays the same file, and reads all sensors.
    fn then(&mut self, path: &str, text: &str) -> &mut Self {
        put(self.folder.path(), path, text);
        self.agent.read();
        self
    }

    /// Compares the values of `name`, by the values of their labels, with `expected`.
    #[track_caller]
    fn has(&mut self, name: &str, expected: &[(&[&str], f64)]) -> &mut Self {
        let found = values(&self.agent, name);
        let expected: Vec<(Vec<String>, f64)> = expected
            .iter()
            .map(|(labels, value)| {
                (
                    labels.iter().map(|label| (*label).to_owned()).collect(),
                    *value,
                )
            })
            .collect();
        assert_eq!(found, expected, "{name}");
        self
    }

    #[track_caller]
    fn says(&self, line: &str) {
        let mut text = String::new();
        self.registry.encode(&mut text);
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn values(agent: &Agent, name: &str) -> Vec<(Vec<String>, f64)> {
    let all = agent.values().into_iter();
    let named = all.filter(|value| value.name == name);
    named
        .map(|Value { labels, value, .. }| (labels.into_values().collect(), value))
        .collect()
}

#[test]
fn an_arm_board_without_cpufreq_has_a_temperature_and_says_why_it_is_slow() {
    let files = [
        ("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 108.00\n"),
        ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "67145\n"),
        (
            "sys/devices/platform/soc/soc:firmware/get_throttled",
            "50005\n",
        ),
    ];
    let mut board = Machine::new(&files, &["clock", "temperature", "throttle"]);
    assert_eq!(board.agent.sensors(), ["temperature", "throttle"]);
    board.has(
        "machine_temperature_celsius",
        &[(&["cpu-thermal", "thermal_zone0"], 67.145)],
    );
    board.has(
        "machine_throttled",
        &[
            (&["clock_capped"], 0.0),
            (&["soft_temperature"], 0.0),
            (&["throttled"], 1.0),
            (&["under_voltage"], 1.0),
        ],
    );
    board.says("agent_sensor_up{sensor=\"clock\"} 0");
    board.says("agent_sensor_up{sensor=\"throttle\"} 1");
}

#[test]
fn a_zone_that_is_a_chip_as_well_is_read_once_and_equal_chips_are_told_apart() {
    let files = [
        ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "50000\n"),
        ("sys/class/hwmon/hwmon0/name", "cpu_thermal\n"),
        ("sys/class/hwmon/hwmon0/temp1_input", "50000\n"),
        ("sys/class/hwmon/hwmon1/name", "nvme\n"),
        ("sys/class/hwmon/hwmon1/temp1_input", "30000\n"),
        ("sys/class/hwmon/hwmon1/temp1_label", "Composite\n"),
        ("sys/class/hwmon/hwmon2/name", "nvme\n"),
        ("sys/class/hwmon/hwmon2/temp1_input", "-31500\n"),
        ("sys/class/hwmon/hwmon2/temp1_label", "Composite\n"),
    ];
    Machine::new(&files, &["temperature"]).has(
        "machine_temperature_celsius",
        &[
            (&["cpu_thermal", "temp1"], 50.0),
            (&["nvme", "Composite"], 30.0),
            (&["nvme_2", "Composite"], -31.5),
        ],
    );
}

#[test]
fn a_core_that_is_plugged_in_counts_and_one_that_comes_back_goes_on() {
    let files = [("proc/stat", "cpu0 100 0 0 0\n")];
    let idle = |core: &'static str, value| (vec![core.to_owned(), "user".to_owned()], value);
    let mut machine = Machine::new(&files, &["cpu"]);
    let user = |machine: &Machine| {
        let all = values(&machine.agent, "machine_cpu_seconds_total").into_iter();
        all.filter(|(labels, _)| labels[1] == "user")
            .collect::<Vec<_>>()
    };
    machine.has("machine_cpu_cores_online", &[(&[], 1.0)]);
    machine.then("proc/stat", "cpu0 200 0 0 0\ncpu1 700 0 0 0\n");
    machine.has("machine_cpu_cores_online", &[(&[], 2.0)]);
    assert_eq!(user(&machine), [idle("0", 2.0), idle("1", 7.0)]);
    machine.then("proc/stat", "cpu0 300 0 0 0\n");
    machine.then("proc/stat", "cpu0 400 0 0 0\ncpu1 50 0 0 0\n");
    assert_eq!(user(&machine), [idle("0", 4.0), idle("1", 7.5)]);
}

#[test]
fn a_counter_that_begins_again_or_wraps_goes_on() {
    let line = |bytes: u64| format!("eth0: {bytes} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n");
    let mut machine = Machine::new(&[("proc/net/dev", &line(4_294_967_290))], &["network"]);
    machine.then("proc/net/dev", &line(4));
    let bytes = "machine_network_bytes_total";
    machine.has(
        bytes,
        &[(&["in", "eth0"], 4_294_967_300.0), (&["out", "eth0"], 0.0)],
    );
    machine
        .then("proc/net/dev", &line(1000))
        .then("proc/net/dev", &line(10));
    machine.has(
        bytes,
        &[(&["in", "eth0"], 4_294_968_306.0), (&["out", "eth0"], 0.0)],
    );
}

#[test]
fn a_disk_that_is_gone_has_no_level_and_partitions_are_not_counted() {
    let disks = "8 0 sda 1 0 8 5 1 0 16 5 3 7 9\n8 1 sda1 1 0 8 5 1 0 16 5 0 7 9\n8 16 sdb 1 0 2 5 1 0 2 5 1 7 9\n";
    let files = [
        ("proc/diskstats", disks),
        ("sys/block/sda/size", "1\n"),
        ("sys/block/sdb/size", "1\n"),
    ];
    let mut machine = Machine::new(&files, &["disk"]);
    let in_flight = "machine_disk_operations_in_flight";
    machine.has(in_flight, &[(&["sda"], 3.0), (&["sdb"], 1.0)]);
    machine.then("proc/diskstats", "8 0 sda 1 0 8 5 1 0 16 5 2 7 9\n");
    machine.has(in_flight, &[(&["sda"], 2.0)]);
    let bytes: &[(&[&str], f64)] = &[
        (&["sda", "read"], 4096.0),
        (&["sda", "write"], 8192.0),
        (&["sdb", "read"], 1024.0),
        (&["sdb", "write"], 1024.0),
    ];
    machine.has("machine_disk_bytes_total", bytes);
}

#[test]
fn a_file_that_is_cut_fails_its_sensor_alone_until_it_is_whole_again() {
    let files = [
        ("proc/stat", "cpu0 100 0 0 0\n"),
        ("proc/sys/fs/file-nr", "10\t0\t100\n"),
    ];
    let mut machine = Machine::new(&files, &["cpu", "files"]);
    machine
        .then("proc/stat", "cpu0 100 0")
        .then("proc/sys/fs/file-nr", "11\t0\t100\n");
    machine.has("machine_cpu_cores_online", &[]);
    machine.has("machine_files_open", &[(&[], 11.0)]);
    machine.says("agent_sensor_up{sensor=\"cpu\"} 0");
    machine.says("agent_reads_failed_total{sensor=\"cpu\"} 2");
    machine.then("proc/stat", "cpu0 300 0 0 0\n");
    machine.has("machine_cpu_cores_online", &[(&[], 1.0)]);
    machine.says("agent_sensor_up{sensor=\"cpu\"} 1");
}

#[test]
fn control_groups_come_and_go_two_levels_deep_and_version_1_is_none() {
    let v1 = Machine::new(&[("sys/fs/cgroup/cpu/cpu.shares", "1024\n")], &["cgroup"]);
    assert!(v1.agent.sensors().is_empty());
    let group = |path: &str, bytes: &'static str| {
        [
            (format!("sys/fs/cgroup/{path}/cgroup.procs"), ""),
            (format!("sys/fs/cgroup/{path}/memory.current"), bytes),
        ]
    };
    let mut files: Vec<(String, &str)> =
        vec![("sys/fs/cgroup/cgroup.controllers".to_owned(), "cpu\n")];
    files.extend(group("a.slice", "30\n"));
    files.extend(group("a.slice/b.service", "20\n"));
    files.extend(group("a.slice/b.service/c", "10\n"));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let mut machine = Machine::new(&files, &["cgroup"]);
    let memory = "machine_cgroup_memory_bytes";
    machine.has(
        memory,
        &[(&["a.slice"], 30.0), (&["a.slice/b.service"], 20.0)],
    );
    std::fs::remove_dir_all(
        machine
            .folder
            .path()
            .join("sys/fs/cgroup/a.slice/b.service"),
    )
    .unwrap();
    for (path, text) in group("d.slice", "5\n") {
        put(machine.folder.path(), &path, text);
    }
    for _ in 0..super::RESCAN_EVERY {
        machine.agent.read();
    }
    machine.has(memory, &[(&["a.slice"], 30.0), (&["d.slice"], 5.0)]);
}

/// A program that waits until it is killed.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(
            Command::new("sleep")
                .arg("86399")
                .spawn()
                .expect("sleep starts"),
        )
    }

    fn end(self) {
        drop(self);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Also when the test fails, so that it does not outlive it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watched_process_is_followed_from_one_life_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let note = |child: &Sleeper| std::fs::write(&pid_file, child.0.id().to_string()).unwrap();
    let watch = |name: &str| WatchConfig {
        name: name.to_owned(),
        ..WatchConfig::default()
    };
    let config = AgentConfig {
        sensors: vec!["process".to_owned()],
        watch: vec![
            WatchConfig {
                pid_file: pid_file.display().to_string(),
                ..watch("named")
            },
            WatchConfig {
                command: "no such command line 86398".to_owned(),
                ..watch("absent")
            },
        ],
        ..AgentConfig::default()
    };
    let mut agent = Agent::open(&config, Arc::default());
    let mut read = || {
        agent.read();
        let value = |name: &str| {
            let all = values(&agent, name).into_iter();
            all.map(|(labels, value)| (labels[0].clone(), value))
                .collect::<Vec<_>>()
        };
        let of = |all: &[(String, f64)], name: &str| {
            all.iter().find(|one| one.0 == name).map(|one| one.1)
        };
        let running = value("machine_process_running");
        assert_eq!(of(&running, "absent"), Some(0.0));
        let restarts = of(&value("machine_process_restarts_total"), "named");
        let resident = of(&value("machine_process_resident_bytes"), "named");
        (
            of(&running, "named").unwrap(),
            restarts.unwrap(),
            resident.is_some(),
        )
    };
    assert_eq!(read(), (0.0, 0.0, false));
    let first = Sleeper::start();
    note(&first);
    assert_eq!(read(), (1.0, 0.0, true));
    let second = Sleeper::start();
    note(&second);
    // Another process took its place, and the first one still runs.
    assert_eq!(read(), (1.0, 1.0, true));
    second.end();
    assert_eq!(read(), (0.0, 1.0, false));
    note(&first);
    assert_eq!(read(), (1.0, 2.0, true));
    first.end();
    assert_eq!(read(), (0.0, 2.0, false));
}

#[test]
fn this_machine_has_the_sensors_that_every_linux_has() {
    let mut agent = Agent::open(&AgentConfig::default(), Arc::default());
    agent.read();
    for name in ["cpu", "memory", "disk", "network", "tcp", "files"] {
        assert!(
            agent.sensors().contains(&name),
            "{name}: {:?}",
            agent.sensors()
        );
    }
    let total = values(&agent, "machine_memory_bytes");
    let total = total
        .iter()
        .find(|(labels, _)| labels[0] == "total")
        .unwrap()
        .1;
    assert!(total > 1e6);
    assert!(!values(&agent, "machine_network_bytes_total").is_empty());
}
