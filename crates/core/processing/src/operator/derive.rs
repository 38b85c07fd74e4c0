//! `derive`: rate or increment of counters.

use super::{Draft, Flow, Operator, Registration, Work};
use crate::keys::Key;
use crate::stats::Fate;
use crate::template::Template;
use sheaf_samples::{LabelsError, Sample, is_stale};

pub(super) const OPERATOR: Registration = Registration {
    name: "derive",
    help: "Replaces a counter by its increment between two samples, or by that a second. A value below the one before is a counter that began again at 0.",
    keys: &[
        Key {
            name: "function",
            form: "rate or increment",
            default: "required",
            help: "What becomes of the counter.",
        },
        Key {
            name: "output",
            form: "text",
            default: "{name}_{function}",
            help: "Name of the result.",
        },
    ],
    changes_labels: true,
    read: |keys, _| {
        let function = keys.text("function");
        let output = keys.text("output");
        let function = function?;
        let is_rate = match function.as_str() {
            "rate" => true,
            "increment" => false,
            other => {
                keys.wrong("function", format!("{other:?}"), "rate or increment");
                return None;
            }
        };
        let output = output.unwrap_or_else(|| "{name}_{function}".to_owned());
        let output = output.replace("{function}", &function);
        match Template::parse(&output, &["name"]) {
            Ok(output) => Some(Box::new(Derive { is_rate, output })),
            Err(found) => {
                keys.wrong(
                    "output",
                    found,
                    "a name, with {name} and {function} if need be",
                );
                None
            }
        }
    },
};

#[derive(Debug)]
struct Derive {
    is_rate: bool,
    output: Template,
}

impl Operator for Derive {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        series.labels = self.output.rename(&series.labels)?;
        Ok(Flow::Work(Work::Derive(Derivation {
            is_rate: self.is_rate,
            last: None,
        })))
    }
}

/// Increment of a counter from `last` to `value`.
pub(crate) fn increment(last: f64, value: f64) -> f64 {
    if value < last { value } else { value - last }
}

/// Derivation of one series.
#[derive(Clone, Debug)]
pub(crate) struct Derivation {
    is_rate: bool,
    last: Option<Sample>,
}

impl Derivation {
    #[inline]
    pub(super) fn take(&mut self, sample: Sample) -> Result<Sample, Fate> {
        if is_stale(sample.value) {
            self.last = None;
            return Ok(sample);
        }
        let Some(last) = self.last else {
            self.last = Some(sample);
            return Err(Fate::Suppressed);
        };
        let ms = sample.at_ms.saturating_sub(last.at_ms);
        if ms <= 0 {
            return Err(Fate::Late);
        }
        self.last = Some(sample);
        let increment = increment(last.value, sample.value);
        let value = if self.is_rate {
            increment * 1000.0 / ms as f64
        } else {
            increment
        };
        Ok(Sample { value, ..sample })
    }

    pub(super) fn resume(&mut self, old: &Self) {
        self.last = old.last;
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::{read, relabelled, worked};
    use sheaf_samples::STALE;

    #[test]
    fn counters_are_derived_with_resets() {
        let samples = [
            (0, 10.0),
            (1000, 12.0),
            (1500, 13.0),
            (2500, 4.0),
            (3500, 4.0),
        ];
        let found = worked("derive", "function = 'increment'", &samples).join(" ");
        assert_eq!(found, "suppressed 2 1 4 0");
        let found = worked("derive", "function = 'rate'", &samples).join(" ");
        assert_eq!(found, "suppressed 2 2 4 0");
    }

    #[test]
    fn repeated_and_overtaken_samples_are_late() {
        let samples = [
            (1000, 1.0),
            (1000, 1.0),
            (500, 0.5),
            (2000, 3.0),
            (2001, STALE),
            (3000, 5.0),
        ];
        let found = worked("derive", "function = 'rate'", &samples).join(" ");
        assert_eq!(found, "suppressed late late 2 NaN suppressed");
    }

    #[test]
    fn the_result_has_a_name_of_its_own() {
        let series = [("__name__", "bytes"), ("a", "1")];
        assert_eq!(
            relabelled("derive", "function = 'rate'", &series),
            r#"bytes_rate{a="1"}"#
        );
        let text = "function = 'increment'\noutput = 'd_{name}'";
        assert_eq!(relabelled("derive", text, &series), r#"d_bytes{a="1"}"#);
        assert!(read("derive", "function = 'mean'").is_err());
        assert!(read("derive", "function = 'rate'\noutput = '{host}'").is_err());
    }
}
