//! Cores by state, load, switches.

use super::{Kind, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{CPU_STATES, WhenLower, load, stat};

const SECONDS: Metric = Metric::counter("machine_cpu_seconds_total", "Time of a core in a state, in seconds.")
    .labels(&["core", "state"])
    .advice("`1 - rate(…{state=\"idle\"})` is how busy a core is. `iowait`: disks. `steal`: other virtual machines");
const CORES: Metric = Metric::gauge("machine_cpu_cores_online", "Cores that are online.")
    .advice("fewer than before: a core was taken offline");
const LOAD: Metric = Metric::gauge(
    "machine_load_threads",
    "Threads that run or wait for a disk, on average over a time.",
)
.labels(&["over"]);
const THREADS: Metric = Metric::gauge("machine_threads", "Threads of the machine, by state.")
    .labels(&["state"])
    .advice("`running` above the cores: they are too few. `blocked`: disks");
const SWITCHES: Metric = Metric::counter(
    "machine_context_switches_total",
    "Switches from one thread to another.",
);
const INTERRUPTS: Metric = Metric::counter("machine_interrupts_total", "Interrupts.");
const FORKS: Metric = Metric::counter("machine_forks_total", "Processes and threads begun.");

/// Decrease of a time that is noise: the kernel estimates `idle` and `iowait`, and may take some back.
const NOISE_NS: u64 = 3_000_000_000;

pub(super) const KIND: Kind = Kind {
    name: "cpu",
    help: "Time of cores by state, load, threads, interrupts.",
    metrics: &[SECONDS, CORES, LOAD, THREADS, SWITCHES, INTERRUPTS, FORKS],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Cpu {
    stat: KeptFile,
    load: Option<KeptFile>,
}

fn open(place: &Place) -> Opened {
    Ok(Box::new(Cpu {
        stat: place.open("proc/stat")?,
        load: place.open("proc/loadavg").ok(),
    }))
}

impl Sensor for Cpu {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        let found = with(&mut self.stat, stat)?;
        for core in &found.cores {
            let name = core.core.to_string();
            for (state, ns) in CPU_STATES.iter().zip(core.ns) {
                sheet.count_as(&SECONDS, &[&name, state], ns, 1, WhenLower::Noise(NOISE_NS));
            }
        }
        sheet.level(&CORES, &[], found.cores.len() as f64);
        let counts = [
            (SWITCHES, found.context_switches),
            (INTERRUPTS, found.interrupts),
            (FORKS, found.forks),
        ];
        for (metric, value) in counts {
            if let Some(value) = value {
                sheet.count(&metric, &[], value);
            }
        }
        for (state, value) in [("running", found.running), ("blocked", found.blocked)] {
            if let Some(value) = value {
                sheet.level(&THREADS, &[state], value as f64);
            }
        }
        if let Some(file) = &mut self.load {
            let found = with(file, load)?;
            for (over, value) in ["1m", "5m", "15m"].iter().zip(found.averages) {
                sheet.level(&LOAD, &[over], value);
            }
            sheet.level(&THREADS, &["all"], found.threads as f64);
        }
        Ok(())
    }
}
