//! Machines that slow themselves down: the firmware of a Raspberry Pi, thermal throttling of x86.

use super::{Kind, Missing, Opened, Place, ReadError, Sensor, with};
use crate::file::{KeptFile, is_numbered, names, number_of};
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{THROTTLES, number, throttles};

const THROTTLED: Metric = Metric::gauge("machine_throttled", "1 while a board slows down for a reason, else 0.")
    .labels(&["reason"])
    .advice("`under_voltage`: the power supply. `clock_capped`, `throttled`, `soft_temperature`: the cooling");
const THROTTLED_BEFORE: Metric = Metric::gauge(
    "machine_throttled_since_start",
    "1 if a board has slowed down for a reason since it started, else 0.",
)
.labels(&["reason"]);
const EVENTS: Metric = Metric::counter(
    "machine_cpu_throttles_total",
    "Times that a core was slowed down because of its temperature.",
)
.labels(&["core"])
.advice("growing: the cooling");

/// Where the kernels of a Raspberry Pi say so.
const FIRMWARE: &str = "sys/devices/platform/soc/soc:firmware/get_throttled";

pub(super) const KIND: Kind = Kind {
    name: "throttle",
    help: "Whether and why a small ARM board slows down; thermal throttling of x86 cores.",
    metrics: &[THROTTLED, THROTTLED_BEFORE, EVENTS],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Throttle {
    firmware: Option<KeptFile>,
    cores: Vec<(String, KeptFile)>,
}

fn open(place: &Place) -> Opened {
    let firmware = place.open(FIRMWARE).ok();
    let root = place.path("sys/devices/system/cpu");
    let core = |name: String| {
        let number = number_of(&name, "cpu")?;
        let file = KeptFile::open(root.join(name).join("thermal_throttle/core_throttle_count"));
        Some((number.to_string(), file.ok()?))
    };
    let cores = names(&root, |name| is_numbered(name, "cpu"));
    let cores: Vec<_> = cores.into_iter().filter_map(core).collect();
    if firmware.is_none() && cores.is_empty() {
        return Err(Missing::Nothing(
            "found neither a firmware that says so nor thermal_throttle of a core",
        ));
    }
    Ok(Box::new(Throttle { firmware, cores }))
}

impl Sensor for Throttle {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        if let Some(file) = &mut self.firmware {
            let found = with(file, throttles)?;
            for (reason, [now, before]) in THROTTLES.iter().zip(found) {
                sheet.level(&THROTTLED, &[reason], f64::from(u8::from(now)));
                sheet.level(&THROTTLED_BEFORE, &[reason], f64::from(u8::from(before)));
            }
        }
        for (core, file) in &mut self.cores {
            // A core that is offline counts nothing.
            if let Ok(text) = file.read()
                && let Ok(count) = number("core_throttle_count", &text)
            {
                sheet.count(&EVENTS, &[core], count);
            }
        }
        Ok(())
    }
}
