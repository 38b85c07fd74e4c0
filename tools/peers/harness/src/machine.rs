//! Figures of the kernel about the machine: `/proc`, see proc(5).

use std::{fs, io};

/// Ticks a second of the times in `/proc/stat`: 100 on every machine that Sheaf runs on.
const TICKS_PER_S: f64 = 100.0;

/// Returns the time that all CPUs of the machine were not idle since boot, in s, in steps of 10 ms.
///
/// # Errors
///
/// If `/proc/stat` cannot be read or does not begin with the line of all CPUs.
pub fn machine_busy_s() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    busy_ticks(&stat)
        .map(|ticks| ticks as f64 / TICKS_PER_S)
        .ok_or_else(|| {
            io::Error::other("/proc/stat does not begin with the line of all CPUs (proc(5))")
        })
}

/// Sum of user, nice, system, irq, softirq and steal: all but idle and iowait (proc(5), /proc/stat).
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    Some(
        [0, 1, 2, 5, 6, 7]
            .iter()
            .filter_map(|&index| fields.get(index))
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy() {
        assert_eq!(
            busy_ticks("cpu  1 2 4 1000 1000 8 16 32 0 0\ncpu0 1"),
            Some(63)
        );
        assert_eq!(busy_ticks("intr 5"), None);
        assert!(machine_busy_s().unwrap() > 0.0);
    }
}
