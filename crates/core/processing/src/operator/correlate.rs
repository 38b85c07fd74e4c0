//! `correlate`: series from an expression over all others.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use sheaf_query::{Answer, Memory, Options, Query, Source, Value};
use sheaf_samples::LabelsError;

const INTERVAL_MS: i64 = 1000;
const DAY_MS: i64 = 86_400_000;

pub(super) const OPERATOR: Registration = Registration {
    name: "correlate",
    help: "Evaluates an expression over the live head of all series at regular times; each series of the result becomes one. Input series pass unchanged.",
    keys: &[
        Key {
            name: "expr",
            form: "PromQL",
            default: "required",
            help: "Expression whose value is a vector or a number.",
        },
        Key {
            name: "output",
            form: "text",
            default: "required",
            help: "Name of the result; its other labels are those of the expression.",
        },
        Key {
            name: "interval_ms",
            form: "ms",
            default: "1000",
            help: "Time between evaluations, at multiples of it. Those that the collector missed are left out.",
        },
        Key {
            name: "lookback_ms",
            form: "ms",
            default: "300000",
            help: "How old the last sample of a series may be.",
        },
    ],
    changes_labels: false,
    read: |keys, _| {
        let (expr, output) = (keys.text("expr"), keys.text("output"));
        let interval_ms = keys.integer("interval_ms", 10..=DAY_MS);
        let mut options = Options::default();
        if let Some(lookback_ms) = keys.integer("lookback_ms", 1..=DAY_MS) {
            options.lookback_ms = lookback_ms;
        }
        if keys.has("select") {
            keys.wrong(
                "select",
                "beside `expr`",
                "no selector: it stands in the expression",
            );
        }
        if output.as_ref().is_some_and(String::is_empty) {
            keys.wrong("output", "an empty name", "a name");
        }
        let expr = expr?;
        let expected = "an expression with a vector or a number as value";
        let query = match Query::parse(&expr, &options) {
            Ok(query) => query,
            Err(error) => {
                keys.wrong("expr", format!("{expr:?}: {error}"), expected);
                return None;
            }
        };
        // An empty store tells the type of the value; other errors depend on the samples.
        let answer = query.instant(&Memory::new(), 0, &options);
        let kind = answer.map(|answer| answer.value.kind());
        if let Ok(kind @ ("matrix" | "string")) = kind {
            keys.wrong("expr", format!("{expr:?}, a {kind}"), expected);
            return None;
        }
        Some(Box::new(Correlate {
            query,
            options,
            output: output?,
            interval_ms: interval_ms.unwrap_or(INTERVAL_MS),
        }))
    },
};

/// An expression and when it is evaluated.
#[derive(Debug)]
pub(crate) struct Correlate {
    query: Query,
    options: Options,
    pub(crate) output: String,
    pub(crate) interval_ms: i64,
}

impl Correlate {
    /// Value of the expression at `at_ms`.
    ///
    /// # Errors
    ///
    /// In words, if it has none.
    pub(crate) fn evaluate(&self, source: &dyn Source, at_ms: i64) -> Result<Value, String> {
        let answer = self.query.instant(source, at_ms, &self.options);
        answer
            .map(|Answer { value, .. }| value)
            .map_err(|error| error.to_string())
    }
}

impl Operator for Correlate {
    fn apply(&self, _: &mut Draft) -> Result<Flow, LabelsError> {
        Ok(Flow::Pass)
    }

    fn correlation(&self) -> Option<&Correlate> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::read;

    #[test]
    fn expressions_have_a_vector_or_a_number_as_value() {
        let error = |expr: &str| {
            let text = format!("expr = '{expr}'\noutput = 'y'");
            read("correlate", &text).err().map(|errors| errors.join(""))
        };
        assert_eq!(error("sum by (host) (rate(x[5s])) / 2"), None);
        assert_eq!(error("time()"), None);
        assert!(error("x[5m]").unwrap().contains("a matrix, expected"));
        assert!(error("sum(").unwrap().contains("operator[0].expr"));
        assert_eq!(
            read("correlate", "interval_ms = 0").unwrap_err().len(),
            1 + 2
        );
    }
}
