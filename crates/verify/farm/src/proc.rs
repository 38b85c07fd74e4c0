//! Figures of the kernel about this machine and its processes: `/proc`, see proc(5).

use serde::{Deserialize, Serialize};
use std::fs;

/// Ticks a second of the times in `/proc/PID/stat`: 100 on every machine that Sheaf runs on.
const TICKS_PER_S: f64 = 100.0;

/// Facts of the machine that a report was taken on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// CPUs that this process may use.
    pub cores: usize,
    /// Model of the first one.
    pub cpu: String,
    /// Release of the kernel.
    pub kernel: String,
    /// All memory.
    pub memory_bytes: u64,
}

/// CPU time and memory that a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time of all its threads.
    pub cpu_s: f64,
    /// Largest resident memory so far.
    pub rss_bytes_max: u64,
}

impl Machine {
    /// Returns the facts of this machine. What cannot be found out is empty.
    #[must_use]
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.map(|rest| rest.trim_start_matches([' ', '\t', ':']));
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: model.unwrap_or_default().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: field_bytes(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        }
    }
}

/// Returns the memory that processes can have without swapping.
#[must_use]
pub fn memory_available_bytes() -> Option<u64> {
    field_bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Returns what the process `pid` has used; `None` if there is no such process.
#[must_use]
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(Usage {
        cpu_s: cpu_s(&stat)?,
        rss_bytes_max: field_bytes(&status, "VmHWM:")?,
    })
}

/// Returns the resident memory of the process `pid`, in bytes; `None` if there is no such process.
#[must_use]
pub fn rss_bytes(pid: u32) -> Option<u64> {
    field_bytes(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        "VmRSS:",
    )
}

/// Returns how many file descriptors the process `pid` has open; `None` if there is no such process.
#[must_use]
pub fn open_files(pid: u32) -> Option<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    Some(entries.flatten().count() as u64)
}

/// A field such as `VmHWM:    1234 kB`.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// User and system time. The name of the process, in brackets, may contain anything, brackets too.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok().map(f64::from);
    Some((ticks()? + ticks()?) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_process_name() {
        let stat = "7 (a) b) c) R 1 7 7 0 -1 0 5 0 0 0 250 50 0 0 20 0 1 0 99";
        assert_eq!(cpu_s(stat), Some(3.0));
        assert_eq!(cpu_s("7 (a"), None);
        assert_eq!(cpu_s("7 (a) R 1 2"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "VmPeak:\t  9 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(field_bytes(text, "VmHWM:"), Some(2 << 20));
        assert_eq!(field_bytes(text, "VmRSS:"), None);
        assert_eq!(field_bytes("VmHWM: many kB", "VmHWM:"), None);
    }

    #[test]
    fn this_process_has_used_memory() {
        let used = usage(std::process::id()).unwrap();
        assert!(
            used.rss_bytes_max > 100_000 && used.cpu_s >= 0.0,
            "{used:?}"
        );
        assert!(memory_available_bytes().unwrap() > 0);
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_bytes > 0, "{machine:?}");
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let pid = std::process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        assert!(open_files(pid).unwrap() >= 3);
        assert_eq!(open_files(u32::MAX), None);
    }
}
