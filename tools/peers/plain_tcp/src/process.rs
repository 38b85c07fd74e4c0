//! Figures of the kernel about this process: CPU, memory, pinning.

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::str::FromStr;

/// The CPU of each side; none leaves the choice to the kernel.
///
/// Unpinned pairs sometimes land on one CPU and then run at half their speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin(pub(crate) Option<[usize; 2]>);

impl FromStr for Pin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self(None));
        }
        let parsed = text
            .split_once(',')
            .and_then(|(sender, receiver)| Some([sender.parse().ok()?, receiver.parse().ok()?]));
        let Some(cpus) = parsed else {
            bail!("found \"{text}\", expected two CPU numbers such as \"0,1\", or \"none\"");
        };
        Ok(Self(Some(cpus)))
    }
}

impl Pin {
    /// Holds the CPUs against those that this process may use, before anything is started.
    pub(crate) fn check(self) -> Result<()> {
        let allowed = sched_getaffinity(None).context("cannot read the CPU affinity")?;
        for cpu in self.0.into_iter().flatten() {
            ensure!(
                cpu < CpuSet::MAX_CPU && allowed.is_set(cpu),
                "--pin names CPU {cpu}, which this process may not use; \
                 `taskset -cp $$` shows those it may, `--pin none` leaves the choice to the kernel"
            );
        }
        Ok(())
    }
}

/// Pins the calling thread to `cpu`, which [`Pin::check`] has seen.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot pin to CPU {cpu}"))
}

/// User and system time of this process so far, in s.
pub(crate) fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Highest resident memory of this process so far, in bytes.
pub(crate) fn rss_bytes_max() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    kib_field(&status, "VmHWM:").context("/proc/self/status has no VmHWM")
}

/// Bytes of this process that lie on huge pages; none if the kernel does not tell.
pub(crate) fn huge_page_bytes() -> Option<u64> {
    kib_field(
        &std::fs::read_to_string("/proc/self/smaps_rollup").ok()?,
        "AnonHugePages:",
    )
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value
        .trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_two_numbers_or_none() {
        assert_eq!("0,1".parse::<Pin>().unwrap(), Pin(Some([0, 1])));
        assert_eq!("none".parse::<Pin>().unwrap(), Pin(None));
        for wrong in ["", "0", "0,", "a,b", "0,1,2", "-1,0"] {
            let error = wrong.parse::<Pin>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("found \"{wrong}\", expected two CPU")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        for cpu in [CpuSet::MAX_CPU - 1, usize::MAX] {
            let error = Pin(Some([cpu, 0])).check().unwrap_err().to_string();
            assert!(error.contains(&format!("CPU {cpu},")), "{error}");
        }
    }

    #[test]
    fn fields_of_proc_are_read() {
        assert_eq!(
            kib_field("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n", "VmHWM:"),
            Some(12 * 1024)
        );
        assert_eq!(kib_field("VmPeak:\t 9 kB\n", "VmHWM:"), None);
        assert!(rss_bytes_max().unwrap() > 0);
        assert!(cpu_s() > 0.0);
    }
}
