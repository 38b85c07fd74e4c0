//! Operators: what may be done with a series and its samples.
//!
//! An operator is one file and one row of [`TABLE`]. Everything that follows from the labels of a series is decided
//! once, when the series is registered (`Operator::apply`); what looks at each sample is a `Work` that the series
//! keeps, with its state.

pub mod correlate;
pub mod derive;
pub mod discard;
pub mod drop;
pub mod enrich;
pub mod keep;
pub mod on_change;
pub mod rename;
pub mod route;
pub mod scale;
pub mod set;
pub mod window;

use crate::keys::{Key, Keys};
use crate::output::Destinations;
use crate::stats::Fate;
use crate::table::Table;
use sheaf_samples::{Labels, LabelsError, Sample};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Registration of an operator: configuration, error texts and the reference page derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// Value of the key `kind`.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub help: &'static str,
    /// Keys beside those of [`COMMON`].
    pub keys: &'static [Key],
    /// Whether labels of series change, so that two input series can become one.
    pub(crate) changes_labels: bool,
    pub(crate) read: fn(&mut Keys<'_>, &Names<'_>) -> Option<Box<dyn Operator>>,
}

/// Table of all operators.
pub const TABLE: &[Registration] = &[
    keep::OPERATOR,
    discard::OPERATOR,
    rename::OPERATOR,
    set::OPERATOR,
    drop::OPERATOR,
    enrich::OPERATOR,
    scale::OPERATOR,
    on_change::OPERATOR,
    derive::OPERATOR,
    window::OPERATOR,
    correlate::OPERATOR,
    route::OPERATOR,
];

/// Keys that every operator has.
pub const COMMON: &[Key] = &[
    Key {
        name: "kind",
        form: "text",
        default: "required",
        help: "Name of the operator.",
    },
    Key {
        name: "id",
        form: "text",
        default: "kind and number",
        help: "Name of this operator in counts and errors; unique. State survives a reload by it.",
    },
    Key {
        name: "select",
        form: "vector selector",
        default: "every series",
        help: "Series that the operator works on, as a vector selector of PromQL; others pass unchanged.",
    },
];

/// Names that operators may refer to while they are read.
pub(crate) struct Names<'a> {
    /// Destinations of the configuration, in order.
    pub(crate) destinations: &'a [String],
    /// Tables by name.
    pub(crate) tables: &'a BTreeMap<String, Table>,
}

/// A configured operator.
pub(crate) trait Operator: Debug + Send {
    /// Changes what is known of a series before the next operator sees it, and says what to do with its samples.
    ///
    /// # Errors
    ///
    /// If the new labels cannot be: the series is refused.
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError>;

    /// Whether the operator sees series that `select` does not select as well.
    fn sees_all(&self) -> bool {
        false
    }

    /// Name of the table that the operator reads.
    fn table(&self) -> Option<&str> {
        None
    }

    /// Takes the rows of its table.
    ///
    /// # Errors
    ///
    /// Name of the column that is missing; nothing has changed.
    fn load(&mut self, _: &Table) -> Result<(), String> {
        Ok(())
    }

    /// The window, if the operator is one.
    fn window(&self) -> Option<&window::Window> {
        None
    }

    /// The correlation, if the operator is one.
    fn correlation(&self) -> Option<&correlate::Correlate> {
        None
    }
}

/// A series on its way through the operators at its registration.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) labels: Labels,
    pub(crate) destinations: Destinations,
    /// Set if the table of `enrich` has no row for the series.
    pub(crate) is_unmatched: bool,
}

/// Treatment of the samples of a series by an operator.
#[derive(Debug)]
pub(crate) enum Flow {
    /// Nothing: they pass.
    Pass,
    /// None passes.
    Discard,
    /// Each is worked on.
    Work(Work),
    /// Each is added to the window of the operator.
    Window,
}

/// State of one operator for one series, and what the operator does with a sample.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Scale(scale::Factor),
    OnChange(on_change::Suppression),
    Derive(derive::Derivation),
}

impl Work {
    /// Returns the sample that passes, or the reason why none does.
    #[inline]
    pub(crate) fn take(&mut self, sample: Sample) -> Result<Sample, Fate> {
        match self {
            Self::Scale(factor) => Ok(factor.apply(sample)),
            Self::OnChange(suppression) => suppression.take(sample),
            Self::Derive(derivation) => derivation.take(sample),
        }
    }

    /// Takes over what `old`, the state of the same operator, knows of the series.
    pub(crate) fn resume(&mut self, old: Self) {
        match (self, old) {
            (Self::OnChange(new), Self::OnChange(old)) => new.resume(&old),
            (Self::Derive(new), Self::Derive(old)) => new.resume(&old),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the operator of kind `kind` that the TOML `text` configures, or what is wrong with it.
    pub(super) fn read(kind: &str, text: &str) -> Result<Box<dyn Operator>, Vec<String>> {
        let table = toml::from_str(text).unwrap();
        let registration = TABLE.iter().find(|one| one.name == kind).unwrap();
        let mut errors = Vec::new();
        let destinations = ["raw", "live", "alarms"].map(str::to_owned);
        let names = Names {
            destinations: &destinations,
            tables: &BTreeMap::from([("hosts".to_owned(), Table::default())]),
        };
        let rows = [COMMON, registration.keys];
        let mut keys = Keys::new("operator[0]".to_owned(), &table, &rows[1..], &mut errors);
        let operator = (registration.read)(&mut keys, &names);
        if errors.is_empty() {
            Ok(operator.expect("no error was named"))
        } else {
            Err(errors.iter().map(ToString::to_string).collect())
        }
    }

    pub(super) fn draft(labels: &[(&str, &str)]) -> Draft {
        Draft {
            labels: Labels::new(labels.iter().copied()).unwrap(),
            destinations: Destinations::ALL,
            is_unmatched: false,
        }
    }

    /// Labels of the series `labels` behind the operator.
    pub(super) fn relabelled(kind: &str, text: &str, labels: &[(&str, &str)]) -> String {
        let mut draft = draft(labels);
        read(kind, text).unwrap().apply(&mut draft).unwrap();
        draft.labels.to_string()
    }

    /// Results of the operator for `(at_ms, value)` of one series: values, or fates.
    pub(super) fn worked(kind: &str, text: &str, samples: &[(i64, f64)]) -> Vec<String> {
        let mut draft = draft(&[("__name__", "x")]);
        let flow = read(kind, text).unwrap().apply(&mut draft).unwrap();
        let Flow::Work(mut work) = flow else {
            panic!("{kind} looks at no sample: {flow:?}")
        };
        let taken = |&(at_ms, value)| match work.take(Sample { at_ms, value }) {
            Ok(sample) => format!("{}", sample.value),
            Err(fate) => fate.name().to_owned(),
        };
        samples.iter().map(taken).collect()
    }

    #[test]
    fn names_and_keys_are_unique_and_described() {
        for (place, one) in TABLE.iter().enumerate() {
            assert!(TABLE[..place].iter().all(|other| other.name != one.name));
            assert!(one.help.ends_with('.'), "{}", one.name);
            let mut names: Vec<_> = COMMON.iter().chain(one.keys).map(|key| key.name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", one.name);
            for key in COMMON.iter().chain(one.keys) {
                assert!(key.help.ends_with('.'), "{}.{}", one.name, key.name);
            }
        }
    }
}
