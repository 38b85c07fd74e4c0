//! Figures of the kernel about a process: `/proc`, see proc(5).

use std::fs;

/// Resident memory of the process `pid`, in bytes; `None` if it is not there.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Open file descriptors of the process `pid`; `None` if it is not there.
pub(crate) fn open_files(pid: u32) -> Option<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    Some(entries.flatten().count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_files() {
        let pid = std::process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        assert!(open_files(pid).unwrap() >= 3);
        assert_eq!(open_files(u32::MAX), None);
    }
}
