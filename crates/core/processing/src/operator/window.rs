//! `window`: aggregates of samples over time, and across series.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::{Key, Keys};
use crate::pane::Function;
use crate::template::Template;
use sheaf_samples::{Labels, LabelsError, NAME};

/// Longest window, lateness and advance: 31 days.
const MS_MAX: i64 = 31 * 24 * 3_600_000;
/// Most steps that a sliding window consists of.
const STEPS_MAX: i64 = 1000;
const LATE_MS: i64 = 500;
const AHEAD_MS: i64 = 10_000;

pub(super) const OPERATOR: Registration = Registration {
    name: "window",
    help: "Aggregates the samples of each window of time, of one series or across series.",
    keys: &[
        Key {
            name: "functions",
            form: "list of functions",
            default: "required",
            help: "What is computed: sum, avg, min, max, count, last, rate (increase of counters a second) or quantile(Q) with Q from 0 to 1.",
        },
        Key {
            name: "length_ms",
            form: "ms",
            default: "required",
            help: "Length of a window. It ends at a multiple of its step, which belongs to it, and excludes its begin.",
        },
        Key {
            name: "slide_ms",
            form: "ms",
            default: "length_ms",
            help: "Step from one window to the next, a divisor of `length_ms`: shorter than that, windows overlap.",
        },
        Key {
            name: "by",
            form: "list of texts",
            default: "all labels",
            help: "Labels that the series of one group have in common and the result keeps; `[]` makes one group.",
        },
        Key {
            name: "without",
            form: "list of texts",
            default: "no label",
            help: "In place of `by`: labels that the result does not keep.",
        },
        Key {
            name: "output",
            form: "text",
            default: "{name}_{function}",
            help: "Name of the result. Without `{name}`, metrics of different names are aggregated together. Quantiles have a label `quantile` as well.",
        },
        Key {
            name: "consume",
            form: "true or false",
            default: "false",
            help: "Whether samples end here instead of passing on beside the result.",
        },
        Key {
            name: "late_ms",
            form: "ms",
            default: "500",
            help: "How long after its end a window waits for samples, by the collector's clock.",
        },
        Key {
            name: "ahead_ms",
            form: "ms",
            default: "10000",
            help: "How far a sample may be ahead of the collector's clock.",
        },
    ],
    changes_labels: true,
    read: |keys, _| Some(Box::new(read(keys)?)),
};

/// A window and what it computes.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) length_ms: i64,
    pub(crate) slide_ms: i64,
    pub(crate) late_ms: i64,
    pub(crate) ahead_ms: i64,
    pub(crate) functions: Vec<Function>,
    pub(crate) consumes: bool,
    grouping: Grouping,
    output: Template,
}

#[derive(Debug)]
enum Grouping {
    Series,
    By(Vec<String>),
    Without(Vec<String>),
}

fn read(keys: &mut Keys<'_>) -> Option<Window> {
    let length_ms = keys.integer("length_ms", 1..=MS_MAX);
    let slide_ms = keys.integer("slide_ms", 1..=MS_MAX);
    let late_ms = keys.integer("late_ms", 0..=MS_MAX);
    let ahead_ms = keys.integer("ahead_ms", 0..=MS_MAX);
    let consumes = keys.flag("consume", false);
    let functions = functions(keys);
    let (by, without) = (keys.texts("by"), keys.texts("without"));
    if keys.has("by") && keys.has("without") {
        keys.wrong("without", "beside `by`", "one of the two");
    }
    let output = keys.text("output");
    let output = output.unwrap_or_else(|| "{name}_{function}".to_owned());
    let output = match Template::parse(&output, &["name", "function"]) {
        Ok(output) => output,
        Err(found) => {
            keys.wrong(
                "output",
                found,
                "a name, with {name} and {function} if need be",
            );
            return None;
        }
    };
    let functions = functions?;
    let names: Vec<_> = functions.iter().map(|one| one.name()).collect();
    if !output.has("function") && names.iter().any(|name| *name != names[0]) {
        keys.wrong(
            "output",
            "no {function} for several functions",
            "a name for each",
        );
    }
    let length_ms = length_ms?;
    let slide_ms = slide_ms.unwrap_or(length_ms);
    if length_ms % slide_ms != 0 || length_ms / slide_ms > STEPS_MAX {
        let expected = format!(
            "a divisor of {length_ms}, {} at least",
            length_ms / STEPS_MAX
        );
        keys.wrong("slide_ms", slide_ms.to_string(), expected);
        return None;
    }
    Some(Window {
        length_ms,
        slide_ms,
        late_ms: late_ms.unwrap_or(LATE_MS),
        ahead_ms: ahead_ms.unwrap_or(AHEAD_MS),
        functions,
        consumes,
        grouping: match (by, without) {
            (Some(by), _) => Grouping::By(by),
            (None, Some(without)) => Grouping::Without(without),
            (None, None) => Grouping::Series,
        },
        output,
    })
}

fn functions(keys: &mut Keys<'_>) -> Option<Vec<Function>> {
    let texts = keys.texts("functions")?;
    if texts.is_empty() {
        keys.wrong("functions", "an empty list", Function::FORMS);
    }
    let mut functions = Vec::new();
    for text in &texts {
        match Function::parse(text) {
            Some(function) if functions.contains(&function) => {
                keys.wrong("functions", format!("{text:?} twice"), "each once");
            }
            Some(function) => functions.push(function),
            None => keys.wrong("functions", format!("{text:?}"), Function::FORMS),
        }
    }
    (functions.len() == texts.len() && !texts.is_empty()).then_some(functions)
}

impl Window {
    /// Returns whether series share groups by configuration.
    pub(crate) fn is_across(&self) -> bool {
        !matches!(self.grouping, Grouping::Series) || !self.output.has("name")
    }

    /// Labels that stand for the group of a series with `labels`. The name of the metric is among them if the result
    /// is named after it.
    pub(crate) fn group_of(&self, labels: &Labels) -> Labels {
        let is_name_kept = self.output.has("name");
        labels.filter(|label| {
            if label == NAME {
                return is_name_kept;
            }
            let is_in = |list: &Vec<String>| list.iter().any(|one| one == label);
            match &self.grouping {
                Grouping::Series => true,
                Grouping::By(by) => is_in(by),
                Grouping::Without(without) => !is_in(without),
            }
        })
    }

    /// Labels of the result of `function` for the group `group`.
    pub(crate) fn output_of(
        &self,
        group: &Labels,
        function: Function,
    ) -> Result<Labels, LabelsError> {
        let words = [
            ("name", group.name().unwrap_or_default()),
            ("function", function.name()),
        ];
        let labels = group.with(NAME, &self.output.fill(&words))?;
        match function {
            Function::Quantile(q) => labels.with("quantile", &q.to_string()),
            _ => Ok(labels),
        }
    }
}

impl Operator for Window {
    fn apply(&self, _: &mut Draft) -> Result<Flow, LabelsError> {
        Ok(Flow::Window)
    }

    fn window(&self) -> Option<&Window> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::tests::read as read_operator;

    fn group(text: &str) -> String {
        let text = format!("length_ms = 1000\nfunctions = ['sum', 'quantile(0.5)']\n{text}");
        let operator = read_operator("window", &text).unwrap();
        let window = operator.window().unwrap();
        let labels = Labels::new([(NAME, "rate"), ("host", "a"), ("detector", "TPC")]).unwrap();
        let group = window.group_of(&labels);
        let outputs = window
            .functions
            .iter()
            .map(|one| window.output_of(&group, *one));
        let outputs: Vec<_> = outputs.map(|it| it.unwrap().to_string()).collect();
        format!("{} {}", outputs.join(" "), window.is_across())
    }

    #[test]
    fn results_keep_the_labels_of_their_group() {
        assert_eq!(
            group("by = ['detector']"),
            r#"rate_sum{detector="TPC"} rate_quantile{detector="TPC", quantile="0.5"} true"#
        );
        assert_eq!(
            group("without = ['host']\noutput = 'all:{function}'"),
            r#"all:sum{detector="TPC"} all:quantile{detector="TPC", quantile="0.5"} true"#
        );
        assert_eq!(
            group("by = []"),
            r#"rate_sum rate_quantile{quantile="0.5"} true"#
        );
        let found = group("");
        assert!(
            found.starts_with(r#"rate_sum{detector="TPC", host="a"} "#) && found.ends_with("false")
        );
    }

    #[test]
    fn wrong_windows_are_refused() {
        let errors = |text: &str| read_operator("window", text).unwrap_err().join("\n");
        assert!(
            errors("length_ms = 1000\nfunctions = ['sum', 'mean']")
                .contains(r#""mean", expected sum"#)
        );
        assert!(
            errors("length_ms = 1000\nslide_ms = 300\nfunctions = ['sum']")
                .contains("a divisor of 1000")
        );
        assert!(
            errors("length_ms = 2000\nslide_ms = 1\nfunctions = ['sum']").contains("2 at least")
        );
        assert!(
            errors("length_ms = 1\nfunctions = ['sum', 'avg']\noutput = 'x'")
                .contains("no {function}")
        );
        assert!(
            errors("length_ms = 1\nfunctions = ['sum']\nby = []\nwithout = []")
                .contains("one of the two")
        );
        let all = errors("functions = []\nlate_ms = -1\nconsume = 1\nlength = 5");
        for key in [
            "length:",
            "length_ms:",
            "functions:",
            "late_ms:",
            "consume:",
        ] {
            assert!(all.contains(&format!("operator[0].{key}")), "{all}");
        }
    }
}
