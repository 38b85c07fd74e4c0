//! Clocks of cores.

use super::{Kind, Missing, Opened, Place, ReadError, Rescan, Sensor, with};
use crate::file::{KeptFile, is_numbered, names, number_of};
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{clocks, number};

const HERTZ: Metric = Metric::gauge("machine_cpu_clock_hertz", "Clock of a core, in hertz.")
    .labels(&["core"])
    .advice("low under load: governor, temperature or power supply, see `machine_throttled`");

pub(super) const KIND: Kind = Kind {
    name: "clock",
    help: "Clocks of cores.",
    metrics: &[HERTZ],
    open: |place, _| open(place),
};

#[derive(Debug)]
enum Clocks {
    /// A file a core, in kHz.
    Scaled(Place, Vec<(String, KeptFile)>, Rescan),
    /// `/proc/cpuinfo`, where no driver scales the clock.
    Info(KeptFile),
}

fn open(place: &Place) -> Opened {
    let files = scaled(place);
    if !files.is_empty() {
        return Ok(Box::new(Clocks::Scaled(
            place.clone(),
            files,
            Rescan::default(),
        )));
    }
    let mut file = place.open("proc/cpuinfo")?;
    match with(&mut file, |text| Ok(clocks(text))) {
        Ok(found) if !found.is_empty() => Ok(Box::new(Clocks::Info(file))),
        _ => Err(Missing::Nothing(
            "found neither cpufreq below /sys nor a clock in /proc/cpuinfo",
        )),
    }
}

fn scaled(place: &Place) -> Vec<(String, KeptFile)> {
    let root = place.path("sys/devices/system/cpu");
    let cores = names(&root, |name| is_numbered(name, "cpu")).into_iter();
    let file = |name: String| {
        let core = number_of(&name, "cpu")?;
        let file = KeptFile::open(root.join(name).join("cpufreq/scaling_cur_freq"));
        Some((core.to_string(), file.ok()?))
    };
    cores.filter_map(file).collect()
}

impl Sensor for Clocks {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        match self {
            Self::Info(file) => {
                for clock in with(file, |text| Ok(clocks(text)))? {
                    sheet.level(&HERTZ, &[&clock.core.to_string()], clock.hertz);
                }
            }
            Self::Scaled(place, files, rescan) => {
                if rescan.is_due() {
                    *files = scaled(place);
                }
                for (core, file) in files {
                    // A core that is offline has no clock.
                    if let Ok(text) = file.read()
                        && let Ok(kilo) = number("scaling_cur_freq", &text)
                    {
                        sheet.level(&HERTZ, &[core], kilo as f64 * 1000.0);
                    }
                }
            }
        }
        Ok(())
    }
}
