//! Share of the processors that others took while something was timed.
//!
//! A bound on a time says something about a farm only if the farm had the processors. The kernel counts what the whole
//! machine did and what this process and its ended children did; the rest, and what the hypervisor took (steal), is
//! interference. See proc(5), `/proc/stat` and `/proc/self/stat`.

use crate::IoError;
use std::fs;
use std::time::Instant;

/// Ticks a second of both files: `USER_HZ`, 100 on every architecture that Linux runs on today.
const TICKS_PER_S: f64 = 100.0;

/// Counters at the begin of a measurement.
#[derive(Debug)]
pub struct Interference {
    since: Instant,
    cpus: f64,
    all: Ticks,
    user: Ticks,
    steal: Ticks,
    pressure_ns: Option<u64>,
}

/// Ticks of the whole machine, and those of this process with its awaited children among them.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    machine: u64,
    own: u64,
}

impl Interference {
    /// Begins a measurement.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read or is not as proc(5) says.
    pub fn begin() -> Result<Self, IoError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            since: Instant::now(),
            cpus: cpus as f64,
            all: now(busy, own)?,
            user: now(busy_user, own_user)?,
            steal: now(steal, |_| Some(0))?,
            pressure_ns: pressure_ns(),
        })
    }

    /// Share of all processors, 0 to 1, that others took since the begin. Children count as own once they were awaited,
    /// so this is asked after they have ended.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin).
    pub fn share(&self) -> Result<f64, IoError> {
        Ok(self.share_of(self.all, now(busy, own)?))
    }

    /// As [`share`](Self::share), of time in user mode alone: work of the kernel for the network, which it books on no
    /// process or on any, does not count as that of others.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin).
    pub fn user_share(&self) -> Result<f64, IoError> {
        Ok(self.share_of(self.user, now(busy_user, own_user)?))
    }

    /// Share of all processors that the hypervisor took since the begin.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin).
    pub fn steal_share(&self) -> Result<f64, IoError> {
        Ok(self.share_of(self.steal, now(steal, |_| Some(0))?))
    }

    /// Share of the time since the begin, 0 to 1, in which some task waited for a processor; `None` if the kernel does
    /// not tell. Source: `/proc/pressure/cpu`, line `some`.
    #[must_use]
    pub fn pressure_share(&self) -> Option<f64> {
        let waited_ns = pressure_ns()?.saturating_sub(self.pressure_ns?);
        let elapsed_ns = self.since.elapsed().as_secs_f64() * 1e9;
        Some((waited_ns as f64 / elapsed_ns.max(1.0)).min(1.0))
    }

    fn share_of(&self, before: Ticks, now: Ticks) -> f64 {
        let foreign = (now.machine - before.machine).saturating_sub(now.own - before.own);
        let all = self.since.elapsed().as_secs_f64() * self.cpus * TICKS_PER_S;
        (foreign as f64 / all.max(1.0)).min(1.0)
    }
}

/// Time for which the processors of the machine were busy since it was started, steal included, in s.
///
/// # Errors
///
/// As of [`Interference::begin`].
pub fn busy_s() -> Result<f64, IoError> {
    now(busy, own).map(|ticks| ticks.machine as f64 / TICKS_PER_S)
}

/// Ticks that `machine` and `own` find in their files.
fn now(machine: fn(&str) -> Option<u64>, own: fn(&str) -> Option<u64>) -> Result<Ticks, IoError> {
    let read = |path: &'static str, ticks: fn(&str) -> Option<u64>| {
        let damaged = || std::io::Error::other("not as proc(5) says");
        fs::read_to_string(path)
            .and_then(|text| ticks(&text).ok_or_else(damaged))
            .map_err(IoError::of(format!("read {path}")))
    };
    Ok(Ticks {
        machine: read("/proc/stat", machine)?,
        own: read("/proc/self/stat", own)?,
    })
}

/// User, nice, system, irq, softirq and steal.
fn busy(stat: &str) -> Option<u64> {
    sum(
        stat.lines().next()?.strip_prefix("cpu ")?,
        &[0, 1, 2, 5, 6, 7],
    )
}

/// Steal.
fn steal(stat: &str) -> Option<u64> {
    sum(stat.lines().next()?.strip_prefix("cpu ")?, &[7])
}

/// Time for which some task has waited for a processor since the machine was started, in ns.
fn pressure_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let lines = sheaf_sensors::pressure(&text).ok()?;
    let some = lines.into_iter().find(|(kind, _)| *kind == "some");
    some.map(|(_, pressure)| pressure.total_ns)
}

/// Fields `utime`, `stime`, `cutime` and `cstime`, counted from behind the name, which may hold anything.
fn own(stat: &str) -> Option<u64> {
    sum(stat.rsplit_once(')')?.1, &[11, 12, 13, 14])
}

/// User and nice.
fn busy_user(stat: &str) -> Option<u64> {
    sum(stat.lines().next()?.strip_prefix("cpu ")?, &[0, 1])
}

/// Fields `utime` and `cutime`.
fn own_user(stat: &str) -> Option<u64> {
    sum(stat.rsplit_once(')')?.1, &[11, 13])
}

fn sum(fields: &str, places: &[usize]) -> Option<u64> {
    let fields: Vec<&str> = fields.split_whitespace().collect();
    places
        .iter()
        .map(|&place| fields.get(place)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_proc() {
        let stat = "cpu  1 2 4 1000 1000 8 16 32 0 0\ncpu0 1";
        assert_eq!(busy(stat), Some(63));
        let own_stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 200 400 800 20 0";
        assert_eq!(own(own_stat), Some(1500));
        assert_eq!((busy_user(stat), own_user(own_stat)), (Some(3), Some(500)));
        assert_eq!((busy("intr 5"), own("7 (a")), (None, None));
        assert_eq!(steal(stat), Some(32));
    }

    #[test]
    fn shares_lie_between_nothing_and_everything() {
        let interference = Interference::begin().unwrap();
        for share in [
            interference.share(),
            interference.user_share(),
            interference.steal_share(),
        ] {
            let share = share.unwrap();
            assert!((0.0..=1.0).contains(&share), "{share}");
        }
    }
}
