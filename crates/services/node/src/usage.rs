//! Use of the machine by this process, and its program: the metrics that every program of a Prometheus site has.

use crate::program::Build;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use sheaf_metrics::{Metric, Registry, Row};
use std::io;

/// Ticks a second of times in `/proc`, which Linux fixes for programs whatever its own clock does.
const TICKS_PER_S: u64 = 100;
const NS_PER_S: u64 = 1_000_000_000;

const BUILD_INFO: Metric = Metric::gauge(
    "sheaf_build_info",
    "Program of this process; the value is always 1.",
)
.labels(&["version", "commit"])
.advice("nodes of one farm have the same; `unknown`: built outside of a checkout, without `SHEAF_COMMIT`");

/// Metrics of a process.
const OF_PROCESS: &[Row<Usage>] = &[
    Row::counter(
        "process_cpu_seconds_total",
        "Processor time of this process, in seconds.",
        "its rate is the number of cores in use",
        |usage| usage.cpu_ns,
    ),
    Row::gauge(
        "process_resident_memory_bytes",
        "Resident memory of this process, in bytes.",
        "above the budget in the log: report it",
        |usage| usage.resident_bytes,
    ),
    Row::gauge(
        "process_virtual_memory_bytes",
        "Virtual memory of this process, in bytes.",
        "",
        |usage| usage.virtual_bytes,
    ),
    Row::gauge(
        "process_open_fds",
        "Open file descriptors of this process.",
        "near `process_max_fds`: connections are refused",
        |usage| usage.open_files,
    ),
    Row::gauge(
        "process_max_fds",
        "File descriptors that this process may open.",
        "",
        |usage| usage.files_max,
    ),
    Row::gauge(
        "process_start_time_seconds",
        "Start of this process, in seconds since 1970-01-01 00:00 UTC.",
        "changes: the process was started again",
        |usage| usage.start_ns,
    ),
];

/// Use of the machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_ns: u64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_files: u64,
    files_max: u64,
    start_ns: u64,
}

/// Lists the metrics of a process.
pub(crate) fn metrics() -> impl Iterator<Item = Metric> {
    let rows = OF_PROCESS.iter().map(|row| row.metric);
    std::iter::once(BUILD_INFO).chain(rows)
}

/// Publishes the program.
pub(crate) fn export_build(registry: &Registry, build: Build) {
    let labels = [("commit", build.commit), ("version", build.version)];
    let gauge = registry.gauge(BUILD_INFO.name, BUILD_INFO.help, &labels);
    gauge.set(1);
}

/// Brings the metrics of this process up to date. Without `/proc` there are none.
pub(crate) fn export(registry: &Registry) {
    if let Ok(usage) = Usage::read() {
        registry.export(OF_PROCESS, &usage);
    }
}

impl Usage {
    fn read() -> io::Result<Self> {
        let read = std::fs::read_to_string::<&str>;
        let damaged = |file: &'static str| {
            move || {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{file} is not as expected"),
                )
            }
        };
        let status = read("/proc/self/status")?;
        let ticks =
            start_ticks(&read("/proc/self/stat")?).ok_or_else(damaged("/proc/self/stat"))?;
        let boot_s = boot_time(&read("/proc/stat")?).ok_or_else(damaged("/proc/stat"))?;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ns = cpu.tv_sec.unsigned_abs() * NS_PER_S + cpu.tv_nsec.unsigned_abs();
        // One of them reads the folder.
        let open_files = std::fs::read_dir("/proc/self/fd")?
            .count()
            .saturating_sub(1);
        Ok(Self {
            cpu_ns,
            resident_bytes: kib(&status, "VmRSS:").unwrap_or_default(),
            virtual_bytes: kib(&status, "VmSize:").unwrap_or_default(),
            open_files: open_files as u64,
            files_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            start_ns: boot_s * NS_PER_S + ticks * (NS_PER_S / TICKS_PER_S),
        })
    }
}

/// Returns a size of `/proc/self/status` in bytes.
fn kib(status: &str, key: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns when the process began, in ticks since the machine was booted: field 22 of `/proc/self/stat`. The name in
/// field 2 may hold spaces and brackets.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// Returns when the machine was booted, in seconds since 1970.
fn boot_time(stat: &str) -> Option<u64> {
    let rest = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    rest.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let status = "Name:\tsheaf\nVmSize:\t  231232 kB\nVmRSS:\t    4096 kB\n";
        assert_eq!(kib(status, "VmRSS:"), Some(4096 * 1024));
        assert_eq!(kib(status, "VmHWM:"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8123 2 3";
        assert_eq!(start_ticks(stat), Some(8123));
        assert_eq!(start_ticks("7 (a"), None);
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1790000000\n"),
            Some(1_790_000_000)
        );
    }

    #[test]
    fn this_process_uses_what_any_process_uses() {
        let usage = Usage::read().unwrap();
        assert!(usage.cpu_ns > 0, "{usage:?}");
        assert!(usage.resident_bytes > 1 << 16, "{usage:?}");
        assert!(usage.virtual_bytes > usage.resident_bytes, "{usage:?}");
        assert!(
            (3..=usage.files_max).contains(&usage.open_files),
            "{usage:?}"
        );
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        // A tick is 10 ms, and the time of the boot is rounded to a second.
        assert!(usage.start_ns / NS_PER_S <= now.as_secs() + 2, "{usage:?}");
        assert!(usage.start_ns / NS_PER_S > 1_500_000_000, "{usage:?}");
    }
}
