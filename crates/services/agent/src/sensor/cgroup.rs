//! Control groups, version 2.

use super::{Kind, Missing, Opened, Place, ReadError, Rescan, Sensor};
use crate::config::AgentConfig;
use crate::file::{KeptFile, names};
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{cgroup_cpu, cgroup_io, flat, number};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CPU: Metric = Metric::counter(
    "machine_cgroup_cpu_seconds_total",
    "Processor time of a control group, in seconds.",
)
.labels(&["cgroup", "state"]);
const HELD: Metric = Metric::counter(
    "machine_cgroup_throttled_seconds_total",
    "Time in which a control group was held back by its bound of processor time, in seconds.",
)
.labels(&["cgroup"])
.advice("growing: CPUQuota of the unit is too small");
const MEMORY: Metric = Metric::gauge(
    "machine_cgroup_memory_bytes",
    "Memory of a control group, caches included, in bytes.",
)
.labels(&["cgroup"]);
const KILLS: Metric = Metric::counter(
    "machine_cgroup_oom_kills_total",
    "Processes of a control group killed for want of memory.",
)
.labels(&["cgroup"])
.advice("**alarm**: MemoryMax of the unit is too small, or a program leaks");
const IO: Metric = Metric::counter(
    "machine_cgroup_io_bytes_total",
    "Bytes that a control group read from disks or wrote to them.",
)
.labels(&["cgroup", "operation"]);
const TASKS: Metric = Metric::gauge(
    "machine_cgroup_tasks",
    "Processes and threads of a control group.",
)
.labels(&["cgroup"]);

/// Levels below the root: slices, and the services in them.
const DEPTH: usize = 2;

pub(super) const KIND: Kind = Kind {
    name: "cgroup",
    help: "Processor time, memory, disks and tasks of control groups (version 2), two levels deep.",
    metrics: &[CPU, HELD, MEMORY, KILLS, IO, TASKS],
    open,
};

#[derive(Debug)]
struct Groups {
    root: PathBuf,
    most: usize,
    /// By name, such as `system.slice/sheaf-icn.service`.
    groups: BTreeMap<String, Group>,
    rescan: Rescan,
}

#[derive(Debug)]
struct Group {
    cpu: Option<KeptFile>,
    memory: Option<KeptFile>,
    events: Option<KeptFile>,
    io: Option<KeptFile>,
    tasks: Option<KeptFile>,
}

fn open(place: &Place, config: &AgentConfig) -> Opened {
    let root = place.path("sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        return Err(Missing::Nothing(
            "found no cgroup.controllers below /sys/fs/cgroup: version 1, or none",
        ));
    }
    let mut groups = Groups {
        root,
        most: config.cgroups_max as usize,
        groups: BTreeMap::new(),
        rescan: Rescan::default(),
    };
    groups.scan();
    Ok(Box::new(groups))
}

impl Groups {
    /// Opens groups that are new, and closes those that are gone.
    fn scan(&mut self) {
        let mut found = Vec::new();
        let mut level = vec![String::new()];
        for _ in 0..DEPTH {
            let mut next = Vec::new();
            for parent in &level {
                let folder = self.root.join(parent);
                for name in names(&folder, |_| true) {
                    if folder.join(&name).join("cgroup.procs").exists() {
                        next.push(if parent.is_empty() {
                            name
                        } else {
                            format!("{parent}/{name}")
                        });
                    }
                }
            }
            found.extend(next.iter().cloned());
            level = next;
        }
        found.truncate(self.most);
        self.groups.retain(|name, _| found.contains(name));
        for name in found {
            let folder = self.root.join(&name);
            self.groups
                .entry(name)
                .or_insert_with(|| Group::open(&folder));
        }
    }
}

impl Group {
    fn open(folder: &Path) -> Self {
        let file = |name| KeptFile::open(folder.join(name)).ok();
        Self {
            cpu: file("cpu.stat"),
            memory: file("memory.current"),
            events: file("memory.events"),
            io: file("io.stat"),
            tasks: file("pids.current"),
        }
    }

    /// Reads the group. One that was removed meanwhile has no values: its files give errors.
    fn read(&mut self, name: &str, sheet: &mut Sheet) {
        let text = |file: &mut Option<KeptFile>| {
            let text = file.as_mut()?.read().ok()?;
            Some(text.into_owned())
        };
        if let Some(Ok(cpu)) = text(&mut self.cpu).map(|text| cgroup_cpu(&text)) {
            sheet.count(&CPU, &[name, "user"], cpu.user_ns);
            sheet.count(&CPU, &[name, "system"], cpu.system_ns);
            if let Some(ns) = cpu.throttled_ns {
                sheet.count(&HELD, &[name], ns);
            }
        }
        for (metric, file) in [(&MEMORY, &mut self.memory), (&TASKS, &mut self.tasks)] {
            if let Some(Ok(value)) = text(file).map(|text| number("memory.current", &text)) {
                sheet.level(metric, &[name], value as f64);
            }
        }
        if let Some(text) = text(&mut self.events) {
            let kills = flat(&text)
                .into_iter()
                .find(|(name, _)| *name == "oom_kill");
            if let Some((_, kills)) = kills {
                sheet.count(&KILLS, &[name], kills);
            }
        }
        if let Some(io) = text(&mut self.io).map(|text| cgroup_io(&text)) {
            sheet.count(&IO, &[name, "read"], io.read_bytes);
            sheet.count(&IO, &[name, "write"], io.write_bytes);
        }
    }
}

impl Sensor for Groups {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        if self.rescan.is_due() {
            self.scan();
        }
        for (name, group) in &mut self.groups {
            group.read(name, sheet);
        }
        Ok(())
    }
}
