//! `/proc/stat` and `/proc/cpuinfo`: times of cores by state, and their clocks.

use crate::TICK_NS;
use crate::error::ParseError;
use crate::line::{lines, numbers, pair};

/// States that a core is in, in the order of [`CoreTimes::ns`]. Time of guests is part of `user` and `nice`.
pub const CPU_STATES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];

/// Times of one core since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTimes {
    /// Number of the core.
    pub core: u32,
    /// Time in each of [`CPU_STATES`], in ns.
    pub ns: [u64; CPU_STATES.len()],
}

/// Contents of `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Cores that are online, in the order of the file.
    pub cores: Vec<CoreTimes>,
    /// Switches from one thread to another.
    pub context_switches: Option<u64>,
    /// Interrupts.
    pub interrupts: Option<u64>,
    /// Processes and threads begun.
    pub forks: Option<u64>,
    /// Threads that run or could.
    pub running: Option<u64>,
    /// Threads that wait for a disk.
    pub blocked: Option<u64>,
}

/// Reads `/proc/stat`. A core that is offline has no line, and states that an old kernel lacks are 0.
///
/// # Errors
///
/// [`ParseError`] if there is no core in it.
pub fn stat(text: &str) -> Result<Stat, ParseError> {
    let mut stat = Stat::default();
    for line in lines(text) {
        if let Some(core) = core(line) {
            stat.cores.push(core);
            continue;
        }
        let Some((name, value)) = pair(line) else {
            continue;
        };
        match name {
            "ctxt" => stat.context_switches = Some(value),
            "intr" => stat.interrupts = Some(value),
            "processes" => stat.forks = Some(value),
            "procs_running" => stat.running = Some(value),
            "procs_blocked" => stat.blocked = Some(value),
            _ => {}
        }
    }
    if stat.cores.is_empty() {
        return Err(ParseError::new(
            "/proc/stat",
            text,
            "lines such as \"cpu0 1 2 3 4\"",
        ));
    }
    Ok(stat)
}

fn core(line: &str) -> Option<CoreTimes> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let core = words.next()?.parse().ok()?;
    let mut ns = [0; CPU_STATES.len()];
    let mut found = 0;
    for (place, ticks) in ns.iter_mut().zip(numbers(words)) {
        *place = ticks.saturating_mul(TICK_NS);
        found += 1;
    }
    (found >= 4).then_some(CoreTimes { core, ns })
}

/// Clock of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Number of the core.
    pub core: u32,
    /// Frequency.
    pub hertz: f64,
}

/// Reads the clocks of `/proc/cpuinfo`. Machines other than x86 show none there.
#[must_use]
pub fn clocks(text: &str) -> Vec<Clock> {
    let mut core = None;
    let mut found = Vec::new();
    for line in lines(text) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.trim() {
            "processor" => core = value.trim().parse().ok(),
            "cpu MHz" => {
                if let (Some(core), Ok(mega)) = (core, value.trim().parse::<f64>()) {
                    found.push(Clock {
                        core,
                        hertz: mega * 1e6,
                    });
                }
            }
            _ => {}
        }
    }
    found
}
