//! Units that `scale` knows.

/// A unit of a quantity.
#[derive(Debug, PartialEq)]
pub(super) struct Unit {
    /// Measured quantity; only units of one quantity convert into each other.
    pub(super) quantity: &'static str,
    /// Short and long form, in lower case as in names of metrics.
    pub(super) names: [&'static str; 2],
    /// Base units that this one is.
    factor: f64,
    /// Zero of this unit, in base units.
    zero: f64,
}

const fn unit(
    quantity: &'static str,
    short: &'static str,
    long: &'static str,
    factor: f64,
) -> Unit {
    Unit {
        quantity,
        names: [short, long],
        factor,
        zero: 0.0,
    }
}

const UNITS: &[Unit] = &[
    unit("time", "ns", "nanoseconds", 1e-9),
    unit("time", "us", "microseconds", 1e-6),
    unit("time", "ms", "milliseconds", 1e-3),
    unit("time", "s", "seconds", 1.0),
    unit("time", "min", "minutes", 60.0),
    unit("time", "h", "hours", 3600.0),
    unit("size", "bit", "bits", 0.125),
    unit("size", "b", "bytes", 1.0),
    unit("size", "kb", "kilobytes", 1e3),
    unit("size", "mb", "megabytes", 1e6),
    unit("size", "gb", "gigabytes", 1e9),
    unit("size", "kib", "kibibytes", 1024.0),
    unit("size", "mib", "mebibytes", 1_048_576.0),
    unit("size", "gib", "gibibytes", 1_073_741_824.0),
    unit("frequency", "hz", "hertz", 1.0),
    unit("frequency", "khz", "kilohertz", 1e3),
    unit("frequency", "mhz", "megahertz", 1e6),
    unit("frequency", "ghz", "gigahertz", 1e9),
    unit("part", "ratio", "ratio", 1.0),
    unit("part", "pct", "percent", 0.01),
    unit("temperature", "k", "kelvin", 1.0),
    Unit {
        quantity: "temperature",
        names: ["c", "celsius"],
        factor: 1.0,
        zero: 273.15,
    },
    Unit {
        quantity: "temperature",
        names: ["f", "fahrenheit"],
        factor: 5.0 / 9.0,
        zero: 459.67 * 5.0 / 9.0,
    },
];

impl Unit {
    /// Unit of this short or long form.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        UNITS.iter().find(|unit| unit.names.contains(&name))
    }

    /// Lists all forms.
    pub(super) fn names() -> String {
        let names = UNITS.iter().map(|unit| unit.names.join(" or "));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Factor and offset that turn this unit into `to`, if both measure the same.
    pub(super) fn conversion(&self, to: &Self) -> Option<(f64, f64)> {
        (self.quantity == to.quantity).then(|| {
            (
                ratio(self.factor, to.factor),
                (self.zero - to.zero) / to.factor,
            )
        })
    }

    /// Returns `name` with the last word that is this unit replaced by `to`, in the same form.
    pub(super) fn renamed(&self, to: &Self, name: &str) -> Option<String> {
        let mut words: Vec<&str> = name.split('_').collect();
        let place = words.iter().rposition(|word| self.names.contains(word))?;
        let is_long = words[place] == self.names[1];
        words[place] = to.names[usize::from(is_long)];
        Some(words.join("_"))
    }
}

/// Quotient that is exact where the factors are powers of ten: 1e-3 has no exact `f64`, 1e3 has.
fn ratio(from: f64, to: f64) -> f64 {
    let quotient = from / to;
    let (rounded, inverse) = (quotient.round(), (1.0 / quotient).round());
    if (quotient - rounded).abs() < 1e-9 * quotient {
        rounded
    } else if (1.0 / quotient - inverse).abs() < 1e-9 / quotient {
        1.0 / inverse
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_unique_and_conversions_come_back() {
        for (place, unit) in UNITS.iter().enumerate() {
            for name in unit.names {
                assert_eq!(Unit::find(name), Some(&UNITS[place]), "{name}");
            }
            for to in UNITS.iter().filter(|to| to.quantity == unit.quantity) {
                let (factor, offset) = unit.conversion(to).unwrap();
                let (back, minus) = to.conversion(unit).unwrap();
                let there = 7.0 * factor + offset;
                assert!((there * back + minus - 7.0).abs() < 1e-9, "{unit:?} {to:?}");
            }
        }
    }

    #[test]
    fn known_conversions() {
        let convert = |value: f64, from, to| {
            let (factor, offset) = Unit::find(from)
                .unwrap()
                .conversion(Unit::find(to).unwrap())
                .unwrap();
            value * factor + offset
        };
        assert_eq!(convert(2500.0, "ms", "s"), 2.5);
        assert_eq!(convert(3.0, "s", "ns"), 3e9);
        assert_eq!(convert(64.0, "bits", "bytes"), 8.0);
        assert!((convert(100.0, "celsius", "fahrenheit") - 212.0).abs() < 1e-9);
        assert_eq!(convert(50.0, "percent", "ratio"), 0.5);
    }
}
