//! Attributes as labels.

use crate::wire::names::label_name;
use crate::wire::protobuf::Span;
use crate::wire::{Code, Fault};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Lists and maps within each other at most; deeper ones are left out.
const DEPTH_MAX: usize = 8;

/// Name and value of attributes, by name.
pub(super) type Attributes = BTreeMap<String, String>;

/// Adds the attribute in `span`, a `KeyValue`.
pub(super) fn add(all: &mut Attributes, span: Span<'_>, max: usize) -> Result<(), Fault> {
    if all.len() >= max {
        return Err(span.fault(Code::TooBig));
    }
    let (key, value) = key_value(span, DEPTH_MAX)?;
    all.insert(key.to_owned(), value);
    Ok(())
}

/// Adds attributes to labels. Attributes whose names become equal share a label, values joined by `;` in the order of
/// the original names.
pub(super) fn add_labels(
    labels: &mut BTreeMap<String, String>,
    attributes: &Attributes,
    prefix: &str,
) {
    let mut added: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in attributes {
        let name = label_name(key);
        let joined = added.entry(format!("{prefix}{name}")).or_default();
        if !joined.is_empty() {
            joined.push(';');
        }
        joined.push_str(value);
    }
    for (name, value) in added {
        labels.entry(name).or_insert(value);
    }
}

fn key_value(span: Span<'_>, depth: usize) -> Result<(&str, String), Fault> {
    let (mut key, mut value) = ("", String::new());
    for field in span.fields() {
        let (number, wire) = field?;
        let content = || wire.bytes().ok_or_else(|| span.fault(Code::BadMessage));
        match number {
            1 => key = content()?.text()?,
            2 => {
                value.clear();
                any_value(&mut value, content()?, false, depth)?;
            }
            _ => {}
        }
    }
    Ok((key, value))
}

/// Appends a value as text; within a list or map as JSON.
fn any_value(out: &mut String, span: Span<'_>, is_inner: bool, depth: usize) -> Result<(), Fault> {
    if depth == 0 {
        return Ok(());
    }
    for field in span.fields() {
        let (number, wire) = field?;
        let bad = || span.fault(Code::BadMessage);
        let content = || wire.bytes().ok_or_else(bad);
        let written = match number {
            1 if is_inner => write!(out, "{:?}", content()?.text()?),
            1 => {
                out.push_str(content()?.text()?);
                Ok(())
            }
            2 => write!(out, "{}", wire.varint().ok_or_else(bad)? != 0),
            3 => write!(out, "{}", wire.varint().ok_or_else(bad)?.cast_signed()),
            4 => write!(out, "{}", wire.double().ok_or_else(bad)?),
            5 | 6 => {
                let [open, close] = if number == 5 { ['[', ']'] } else { ['{', '}'] };
                out.push(open);
                let mut comma = "";
                for item in content()?.fields() {
                    let (_, item) = item?;
                    let item = item.bytes().ok_or_else(bad)?;
                    out.push_str(std::mem::replace(&mut comma, ","));
                    if number == 5 {
                        any_value(out, item, true, depth - 1)?;
                    } else {
                        let (key, value) = key_value(item, depth - 1)?;
                        write!(out, "{key:?}:{value:?}").expect("a String takes all");
                    }
                }
                out.push(close);
                Ok(())
            }
            7 => content()?
                .bytes
                .iter()
                .try_for_each(|byte| write!(out, "{byte:02x}")),
            _ => Ok(()),
        };
        written.expect("a String takes all");
    }
    Ok(())
}
