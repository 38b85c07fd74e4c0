//! `rename`: other names of metrics and labels, by regular expression.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use regex::Regex;
use sheaf_samples::{Labels, LabelsError, NAME};

pub(super) const OPERATOR: Registration = Registration {
    name: "rename",
    help: "Gives metrics or labels another name. The expression matches the whole name; `$1` or `${word}` in `to` is a group of it.",
    keys: &[
        Key {
            name: "metric",
            form: "regular expression",
            default: "",
            help: "Names of metrics to change; either this or `label`.",
        },
        Key {
            name: "label",
            form: "regular expression",
            default: "",
            help: "Names of labels to change. A label that has the new name already is replaced.",
        },
        Key {
            name: "to",
            form: "text",
            default: "required",
            help: "New name.",
        },
    ],
    changes_labels: true,
    read: |keys, _| {
        let key = match (keys.has("metric"), keys.has("label")) {
            (true, false) => "metric",
            (false, true) => "label",
            (true, true) => {
                keys.wrong("metric", "beside `label`", "one of the two");
                return None;
            }
            (false, false) => {
                keys.wrong("metric", "no value", "either `metric` or `label`");
                return None;
            }
        };
        let (pattern, to) = (keys.text(key), keys.text("to"));
        let pattern = pattern?;
        let regex = regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
            .size_limit(1 << 20)
            .build();
        match regex {
            Ok(regex) => Some(Box::new(Rename {
                is_metric: key == "metric",
                regex,
                to: to?,
            })),
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                keys.wrong(
                    key,
                    format!("{pattern:?}: {}", reason.trim_start_matches("error: ")),
                    "a regular expression",
                );
                None
            }
        }
    },
};

#[derive(Debug)]
struct Rename {
    is_metric: bool,
    regex: Regex,
    to: String,
}

impl Rename {
    fn renamed(&self, name: &str) -> Option<String> {
        let captures = self.regex.captures(name)?;
        let mut new = String::new();
        captures.expand(&self.to, &mut new);
        (!new.is_empty()).then_some(new)
    }
}

impl Operator for Rename {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        if self.is_metric {
            if let Some(new) = series.labels.name().and_then(|name| self.renamed(name)) {
                series.labels = series.labels.with(NAME, &new)?;
            }
            return Ok(Flow::Pass);
        }
        let before: Vec<(String, String)> = series
            .labels
            .iter()
            .filter(|pair| pair.0 != NAME)
            .filter_map(|(name, _)| Some((name.to_owned(), self.renamed(name)?)))
            .collect();
        for (old, new) in before {
            let value = series.labels.get(&old).unwrap_or_default().to_owned();
            let others: Labels = series.labels.filter(|name| name != old);
            series.labels = others.with(&new, &value)?;
        }
        Ok(Flow::Pass)
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::{read, relabelled};

    const SERIES: &[(&str, &str)] = &[
        ("__name__", "o2_flp_rate"),
        ("hostname", "flp1"),
        ("k", "v"),
    ];

    #[test]
    fn metrics_are_renamed_with_groups() {
        let text = "metric = 'o2_(?<role>[a-z]+)_(.*)'\nto = '${role}_input_$2'";
        let found = relabelled("rename", text, SERIES);
        assert_eq!(found, r#"flp_input_rate{hostname="flp1", k="v"}"#);
        let found = relabelled("rename", "metric = 'o2'\nto = 'x'", SERIES);
        assert_eq!(found, r#"o2_flp_rate{hostname="flp1", k="v"}"#, "anchored");
    }

    #[test]
    fn labels_are_renamed_and_replace_others() {
        let found = relabelled("rename", "label = '(host)name'\nto = '$1'", SERIES);
        assert_eq!(found, r#"o2_flp_rate{host="flp1", k="v"}"#);
        let found = relabelled("rename", "label = 'hostname'\nto = 'k'", SERIES);
        assert_eq!(found, r#"o2_flp_rate{k="flp1"}"#);
    }

    #[test]
    fn wrong_expressions_are_named() {
        let error = read("rename", "metric = 'a('\nto = 'b'")
            .unwrap_err()
            .join("");
        assert!(
            error.contains("operator[0].metric") && error.contains("unclosed group"),
            "{error}"
        );
        assert!(read("rename", "to = 'b'").is_err());
        assert!(read("rename", "metric = 'a'\nlabel = 'b'\nto = 'b'").is_err());
    }
}
