//! Pressure stalls.

use super::{Kind, Missing, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::pressure;

const SECONDS: Metric = Metric::counter(
    "machine_pressure_seconds_total",
    "Time in which some or all tasks waited for a resource, in seconds.",
)
.labels(&["resource", "tasks"])
.advice("`rate(…)` is the share of time lost: `cpu`, `memory` or `io` is too small, and which one");
const RATIO: Metric = Metric::gauge(
    "machine_pressure_ratio",
    "Share of the last 10 s in which some or all tasks waited for a resource.",
)
.labels(&["resource", "tasks"]);

pub(super) const KIND: Kind = Kind {
    name: "pressure",
    help: "Time in which tasks waited for CPU, memory, disks or interrupts (PSI).",
    metrics: &[SECONDS, RATIO],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Stalls(Vec<(&'static str, KeptFile)>);

fn open(place: &Place) -> Opened {
    let mut files = Vec::new();
    for resource in ["cpu", "memory", "io", "irq"] {
        match place.open(&format!("proc/pressure/{resource}")) {
            Ok(mut file) => {
                // A kernel started without `psi=1` has the files and refuses to read them.
                if file.read().is_ok() {
                    files.push((resource, file));
                }
            }
            Err(missing) if resource == "cpu" => return Err(missing),
            Err(_) => {}
        }
    }
    if files.is_empty() {
        return Err(Missing::Nothing(
            "the kernel does not measure pressure: start it with psi=1",
        ));
    }
    Ok(Box::new(Stalls(files)))
}

impl Sensor for Stalls {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        for (resource, file) in &mut self.0 {
            with(file, |text| {
                for (tasks, found) in pressure(text)? {
                    sheet.count(&SECONDS, &[resource, tasks], found.total_ns);
                    sheet.level(&RATIO, &[resource, tasks], found.ratio_10s);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
