//! Temperatures of chips (hwmon) and of thermal zones.

use super::{Kind, Missing, Opened, Place, ReadError, Rescan, Sensor};
use crate::file::{KeptFile, is_numbered, names, word};
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::signed;

const CELSIUS: Metric = Metric::gauge(
    "machine_temperature_celsius",
    "Temperature that a chip measures, in degrees Celsius.",
)
.labels(&["chip", "place"])
.advice(
    "above about 80: cooling; above the limit of the chip it slows down, see `machine_throttled`",
);

pub(super) const KIND: Kind = Kind {
    name: "temperature",
    help: "Temperatures of chips and thermal zones.",
    metrics: &[CELSIUS],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Temperatures {
    place: Place,
    inputs: Vec<Input>,
    rescan: Rescan,
}

#[derive(Debug)]
struct Input {
    chip: String,
    place: String,
    file: KeptFile,
}

fn open(place: &Place) -> Opened {
    let inputs = inputs(place);
    if inputs.is_empty() {
        return Err(Missing::Nothing(
            "found no temperature below /sys/class/hwmon and /sys/class/thermal",
        ));
    }
    Ok(Box::new(Temperatures {
        place: place.clone(),
        inputs,
        rescan: Rescan::default(),
    }))
}

fn inputs(place: &Place) -> Vec<Input> {
    let mut found: Vec<Input> = Vec::new();
    let mut add = |chip: &str, place: &str, path| {
        // A number distinguishes two chips of one name.
        let taken = |chip: &str| {
            found
                .iter()
                .any(|input| (&*input.chip, &*input.place) == (chip, place))
        };
        let numbered = (2..).map(|number| format!("{chip}_{number}"));
        let chip = std::iter::once(chip.to_owned())
            .chain(numbered)
            .find(|chip| !taken(chip));
        if let (Some(chip), Ok(file)) = (chip, KeptFile::open(path)) {
            let place = place.to_owned();
            found.push(Input { chip, place, file });
        }
    };
    let mut chips = Vec::new();
    let root = place.path("sys/class/hwmon");
    for folder in names(&root, |name| is_numbered(name, "hwmon")) {
        let folder = root.join(folder);
        let chip = word(&folder.join("name"));
        let is_input = |name: &str| {
            let middle = name
                .strip_prefix("temp")
                .and_then(|name| name.strip_suffix("_input"));
            middle.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        for input in names(&folder, is_input) {
            let stem = input.trim_end_matches("_input");
            let label = word(&folder.join(format!("{stem}_label")));
            add(
                &chip,
                if label.is_empty() { stem } else { &label },
                folder.join(&input),
            );
        }
        chips.push(chip.replace('-', "_"));
    }
    let root = place.path("sys/class/thermal");
    for zone in names(&root, |name| is_numbered(name, "thermal_zone")) {
        let kind = word(&root.join(&zone).join("type"));
        // Most zones stand below hwmon as well.
        if !chips.contains(&kind.replace('-', "_")) {
            add(&kind, &zone, root.join(&zone).join("temp"));
        }
    }
    found
}

impl Sensor for Temperatures {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        if self.rescan.is_due() {
            self.inputs = inputs(&self.place);
        }
        for Input { chip, place, file } in &mut self.inputs {
            // A chip that sleeps gives an error: it has no temperature then.
            let Ok(text) = file.read() else {
                continue;
            };
            if let Ok(thousandths) = signed("temp", &text) {
                sheet.level(&CELSIUS, &[chip, place], thousandths as f64 / 1000.0);
            }
        }
        Ok(())
    }
}
