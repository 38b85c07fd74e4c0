//! Functions that rewrite labels.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, Steps};
use crate::rows::{Merge, Row, merged};
use sheaf_samples::Labels;
use std::sync::Arc;

/// Returns whether `name` can name a label: letters, digits and underscores, no digit in front.
pub(crate) fn is_label(name: &str) -> bool {
    let is_letter = |one: char| one == '_' || one.is_ascii_alphabetic();
    name.starts_with(is_letter)
        && name
            .chars()
            .all(|one| is_letter(one) || one.is_ascii_digit())
}

/// Returns `labels` with `name` set to `value`, which takes the label away if it is empty.
pub(crate) fn set(labels: &Labels, name: &str, value: &str) -> Result<Arc<Labels>, Error> {
    let set = labels.with(name, value);
    set.map(Arc::new)
        .map_err(|error| Error::Execution(error.to_string()))
}

pub(crate) fn replace(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let mut texts = call.args[1..]
        .iter()
        .map(|arg| evaluator.text(arg, steps))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter();
    let mut next = || texts.next().unwrap_or_default();
    let (target, replacement, source, pattern) = (next(), next(), next(), next());
    let regex = regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
        .size_limit(1 << 20)
        .build()
        .map_err(|_| {
            let text = format!("invalid regular expression in label_replace(): {pattern}");
            Error::Execution(text)
        })?;
    if !is_label(&target) {
        let text = format!("invalid destination label name in label_replace(): {target}");
        return Err(Error::Execution(text));
    }
    relabelled(evaluator, call, steps, |row| {
        let value = row.labels.get(&source).unwrap_or_default();
        let Some(captures) = regex.captures(value) else {
            return Ok(None);
        };
        let mut text = String::new();
        captures.expand(&replacement, &mut text);
        set(&row.labels, &target, &text).map(Some)
    })
}

pub(crate) fn join(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let texts = call.args[1..]
        .iter()
        .map(|arg| evaluator.text(arg, steps))
        .collect::<Result<Vec<_>, _>>()?;
    let (target, separator, sources) = (&texts[0], &texts[1], &texts[2..]);
    if let Some(source) = sources.iter().find(|source| !is_label(source)) {
        let text = format!("invalid source label name in label_join(): {source}");
        return Err(Error::Execution(text));
    }
    if !is_label(target) {
        let text = format!("invalid destination label name in label_join(): {target}");
        return Err(Error::Execution(text));
    }
    relabelled(evaluator, call, steps, |row| {
        let values: Vec<&str> = sources
            .iter()
            .map(|source| row.labels.get(source).unwrap_or_default())
            .collect();
        set(&row.labels, target, &values.join(separator)).map(Some)
    })
}

fn relabelled(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
    relabel: impl Fn(&Row) -> Result<Option<Arc<Labels>>, Error>,
) -> Result<Out, Error> {
    let mut rows = evaluator.vector(&call.args[0], steps)?;
    for row in &mut rows {
        if let Some(labels) = relabel(row)? {
            row.labels = labels;
        }
    }
    merged(rows, Merge::Disjoint).map(Out::Vector)
}
