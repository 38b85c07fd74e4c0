//! `scale`: other units.

mod unit;

use super::{Draft, Flow, Operator, Registration, Work};
use crate::keys::Key;
use sheaf_samples::{LabelsError, NAME, Sample, is_stale};
use unit::Unit;

pub(super) const OPERATOR: Registration = Registration {
    name: "scale",
    help: "Converts values: by factor and offset, or from one unit into another, which changes the unit in the name of the metric as well.",
    keys: &[
        Key {
            name: "factor",
            form: "number",
            default: "1",
            help: "Values are multiplied by it.",
        },
        Key {
            name: "offset",
            form: "number",
            default: "0",
            help: "Added after the multiplication.",
        },
        Key {
            name: "from",
            form: "unit",
            default: "",
            help: "Unit of the values; together with `to`, in place of `factor` and `offset`.",
        },
        Key {
            name: "to",
            form: "unit",
            default: "",
            help: "Unit of the result. `latency_ms_max` from ms to s becomes `latency_s_max`.",
        },
    ],
    changes_labels: true,
    read: |keys, _| {
        let by_unit = keys.has("from") || keys.has("to");
        if by_unit && (keys.has("factor") || keys.has("offset")) {
            keys.wrong("from", "beside `factor` or `offset`", "one or the other");
            return None;
        }
        if !by_unit {
            let factor = keys.number("factor", false);
            let offset = keys.number("offset", false);
            let factor = Factor {
                factor: factor.unwrap_or(1.0),
                offset: offset.unwrap_or(0.0),
            };
            return Some(Box::new(Scale {
                factor,
                units: None,
            }));
        }
        let mut read = |key| {
            let Some(text) = keys.text(key) else {
                if !keys.has(key) {
                    keys.wrong(key, "no value", "both `from` and `to`");
                }
                return None;
            };
            let unit = Unit::find(&text);
            if unit.is_none() {
                keys.wrong(
                    key,
                    format!("{text:?}"),
                    format!("one of {}", Unit::names()),
                );
            }
            unit
        };
        let (from, to) = (read("from"), read("to"));
        let (from, to) = (from?, to?);
        let Some((factor, offset)) = from.conversion(to) else {
            let expected = format!("a unit of {}", from.quantity);
            keys.wrong("to", to.names[0], expected);
            return None;
        };
        Some(Box::new(Scale {
            factor: Factor { factor, offset },
            units: Some((from, to)),
        }))
    },
};

#[derive(Debug)]
struct Scale {
    factor: Factor,
    units: Option<(&'static Unit, &'static Unit)>,
}

impl Operator for Scale {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        if let (Some((from, to)), Some(name)) = (self.units, series.labels.name())
            && let Some(name) = from.renamed(to, name)
        {
            series.labels = series.labels.with(NAME, &name)?;
        }
        Ok(Flow::Work(Work::Scale(self.factor)))
    }
}

/// Conversion of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factor {
    factor: f64,
    offset: f64,
}

impl Factor {
    #[inline]
    pub(super) fn apply(self, sample: Sample) -> Sample {
        if is_stale(sample.value) {
            return sample;
        }
        Sample {
            // Not fused: the same on every processor.
            value: sample.value * self.factor + self.offset,
            ..sample
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::tests::{read, relabelled, worked};
    use sheaf_samples::STALE;

    #[test]
    fn values_are_converted() {
        let samples = [(0, 1500.0), (1, 0.0)];
        assert_eq!(
            worked("scale", "from = 'ms'\nto = 's'", &samples),
            ["1.5", "0"]
        );
        assert_eq!(
            worked("scale", "from = 'celsius'\nto = 'kelvin'", &samples),
            ["1773.15", "273.15"]
        );
        assert_eq!(
            worked("scale", "factor = 8\noffset = -1", &samples),
            ["11999", "-1"]
        );
        let stale = Factor {
            factor: 2.0,
            offset: 0.0,
        }
        .apply(Sample {
            at_ms: 0,
            value: STALE,
        });
        assert!(is_stale(stale.value));
    }

    #[test]
    fn the_unit_in_the_name_follows() {
        for (from, to, name, expected) in [
            ("ms", "s", "latency_ms_max", "latency_s_max"),
            ("ms", "s", "latency_milliseconds", "latency_seconds"),
            ("kibibytes", "bytes", "ms_rss_kib_total", "ms_rss_b_total"),
            ("ms", "s", "frames", "frames"),
            ("ms", "s", "ms_of_items", "s_of_items"),
        ] {
            let text = format!("from = '{from}'\nto = '{to}'");
            assert_eq!(relabelled("scale", &text, &[("__name__", name)]), expected);
        }
    }

    #[test]
    fn units_of_different_quantities_are_refused() {
        let error = read("scale", "from = 'ms'\nto = 'bytes'")
            .unwrap_err()
            .join("");
        assert!(
            error.contains("operator[0].to: b, expected a unit of time"),
            "{error}"
        );
        assert!(read("scale", "from = 'ms'").is_err());
        assert!(read("scale", "from = 'ms'\nto = 's'\nfactor = 2").is_err());
        assert_eq!(read("scale", "from = 'x'\nto = 'y'").unwrap_err().len(), 2);
    }
}
