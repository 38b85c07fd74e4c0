//! From text to values, with all that does not fit, not only the first.
//!
//! serde stops at the first error, and behind a `kind` it forgets where that was. So the culprit is found by
//! trial: the key without which the error is gone. It is noted, taken out, and the rest is read again.

use super::FarmConfig;
use super::renamed;
use crate::check::ConfigError;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// The line of every key of a farm file.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<String, usize>);

impl Lines {
    fn new(text: &str, document: &DeTable<'_>) -> Self {
        let mut lines = Self::default();
        for (path, offset) in offsets(document) {
            lines.0.insert(path, line_of(text, offset));
        }
        lines
    }

    /// The line that `error` is about.
    pub(super) fn of(&self, error: &ConfigError) -> Option<usize> {
        let exact = |key: &str| self.0.get(key).copied();
        exact(&error.key)
            .or_else(|| exact(error.other_key.as_deref()?))
            .or_else(|| self.around(&error.key))
    }

    /// The line of the innermost table or list around `key` that stands in the file.
    fn around(&self, mut key: &str) -> Option<usize> {
        loop {
            if let Some(line) = self.0.get(key) {
                return Some(*line);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Where every key and every entry of a list begins.
fn offsets(document: &DeTable<'_>) -> Vec<(String, usize)> {
    let mut offsets = Vec::new();
    for path in paths(document) {
        let Some((key_offset, value)) = find(document, &path) else {
            continue;
        };
        let name = path.join(".");
        if let DeValue::Array(entries) = value.get_ref() {
            for (index, entry) in entries.iter().enumerate() {
                offsets.push((format!("{name}[{index}]"), entry.span().start));
            }
        }
        offsets.push((name, key_offset));
    }
    offsets
}

/// The path of every key, what is within a table before the table.
fn paths(document: &DeTable<'_>) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (key, value) in document {
        let name = key.get_ref().to_string();
        if let DeValue::Table(table) = value.get_ref() {
            for mut path in paths(table) {
                path.insert(0, name.clone());
                found.push(path);
            }
        }
        found.push(vec![name]);
    }
    found
}

/// Where the key at `path` begins, and its value.
fn find<'a, 'i>(
    document: &'a DeTable<'i>,
    path: &[String],
) -> Option<(usize, &'a Spanned<DeValue<'i>>)> {
    let (name, rest) = path.split_first()?;
    let (key, value) = document.get_key_value(name.as_str())?;
    match (rest, value.get_ref()) {
        ([], _) => Some((key.span().start, value)),
        (_, DeValue::Table(table)) => find(table, rest),
        _ => None,
    }
}

fn remove(document: &mut DeTable<'_>, path: &[String]) {
    match path {
        [] => document.clear(),
        [name] => {
            document.remove(name.as_str());
        }
        [name, rest @ ..] => {
            let value = document.get_mut(name.as_str()).map(Spanned::get_mut);
            if let Some(DeValue::Table(table)) = value {
                remove(table, rest);
            }
        }
    }
}

/// Reads `text`. The configuration has the default of every key that does not fit.
///
/// # Errors
///
/// What is not TOML.
pub(super) fn read(text: &str) -> Result<(FarmConfig, Lines, Vec<ConfigError>), Vec<ConfigError>> {
    let (mut document, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return Err(syntax
            .iter()
            .map(|error| explain_syntax(text, error))
            .collect());
    }
    let lines = Lines::new(text, document.get_ref());
    let mut errors = Vec::new();
    loop {
        match parse(document.clone()) {
            Ok(config) => return Ok((config, lines, errors)),
            Err(message) => {
                let path = culprit(&document, &message);
                let mut error = explain(&path, &message);
                error.line = lines.of(&error);
                errors.push(error);
                remove(document.get_mut(), &path);
                // Without its `kind` a table says nothing more.
                if missing_key(parse(document.clone()).err().as_deref())
                    == path.last().map(String::as_str)
                    && let Some((_, table)) = path.split_last()
                {
                    remove(document.get_mut(), table);
                }
            }
        }
    }
}

fn parse(document: Spanned<DeTable<'_>>) -> Result<FarmConfig, String> {
    FarmConfig::deserialize(Deserializer::from(document))
        .map_err(|error| error.message().to_owned())
}

/// The key without which `message` does not come: the innermost one, and if the message names one, that.
fn culprit(document: &Spanned<DeTable<'_>>, message: &str) -> Vec<String> {
    let is_gone_without = |path: &Vec<String>| {
        let mut rest = document.clone();
        remove(rest.get_mut(), path);
        let after = parse(rest).err();
        // A key that is needed makes a new error when it goes; that does not make it guilty of the old one.
        let is_needed = missing_key(after.as_deref()) == path.last().map(String::as_str);
        after.as_deref() != Some(message) && (!is_needed || message.starts_with("unknown variant"))
    };
    let named = quoted(message).next().unwrap_or_default();
    let is_named = |path: &Vec<String>| {
        if message.starts_with("unknown field") {
            path.last().is_some_and(|name| name == named)
        } else if message.starts_with("unknown variant") {
            let value = find(document.get_ref(), path).map(|(_, value)| value.get_ref());
            matches!(value, Some(DeValue::String(text)) if text == named)
        } else {
            true
        }
    };
    let paths = paths(document.get_ref());
    let mut candidates = paths.into_iter().filter(|path| is_named(path));
    candidates.find(is_gone_without).unwrap_or_default()
}

/// The key that `message` misses.
fn missing_key(message: Option<&str>) -> Option<&str> {
    quoted(message?.strip_prefix("missing field ")?).next()
}

/// Returns the text in backticks.
fn quoted(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

/// Returns the keys that `message` knows, if it is about an unknown one.
pub(super) fn known_keys_of(message: &str) -> Vec<String> {
    let known = message.strip_prefix("unknown field ").unwrap_or_default();
    quoted(known).skip(1).map(str::to_owned).collect()
}

/// Returns the names that `message` knows, if it is about an unknown one.
pub(super) fn known_names(message: &str) -> Vec<String> {
    let known = message.strip_prefix("unknown variant ").unwrap_or_default();
    quoted(known).skip(1).map(str::to_owned).collect()
}

fn explain_syntax(text: &str, error: &toml::de::Error) -> ConfigError {
    let message = error.message();
    let (found, expected) = message
        .split_once(", expected ")
        .unwrap_or((message, "TOML"));
    let mut explained = ConfigError::new("", found, expected);
    explained.line = error.span().map(|span| line_of(text, span.start));
    explained
}

/// A message of serde in words of this crate.
fn explain(path: &[String], message: &str) -> ConfigError {
    let key = path.join(".");
    if let Some(rest) = message.strip_prefix("unknown field ") {
        if let Some(present) = renamed::present_name(&key) {
            let expected = format!("the present one: {key} is now {present}");
            return ConfigError::new(key, "a former name", expected);
        }
        return ConfigError::new(key, "an unknown key", known_keys(rest));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let (found, known) = rest.split_once(", expected ").unwrap_or((rest, "another"));
        let found = quoted(found).next().unwrap_or(found);
        return ConfigError::new(key, format!("\"{found}\""), list(quoted(known)));
    }
    if let Some(missing) = missing_key(Some(message)) {
        return ConfigError::new(key, format!("no `{missing}`"), "one: it has no default");
    }
    let (found, expected) = message
        .split_once(", expected ")
        .unwrap_or((message, "another value"));
    let found = found
        .strip_prefix("invalid type: ")
        .or_else(|| found.strip_prefix("invalid value: "))
        .unwrap_or(found)
        .replace('`', "");
    ConfigError::new(key, found, expected_in_words(expected))
}

fn expected_in_words(expected: &str) -> String {
    match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on that fits its type",
        "a nonzero u32" | "a nonzero u64" => "a whole number from 1 on that fits its type",
        "f64" => "a number",
        "path string" => "a path in quotes",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged") => {
            "a table"
        }
        _ => expected,
    }
    .to_owned()
}

/// The keys that serde's message offers, the nearest one first.
fn known_keys(rest: &str) -> String {
    let mut words = quoted(rest);
    let found = words.next().unwrap_or_default();
    let known: Vec<&str> = words.collect();
    let nearest = known.iter().min_by_key(|known| distance(found, known));
    match nearest {
        None => "no keys here".to_owned(),
        Some(nearest) if distance(found, nearest) <= (found.len() / 3).max(1) => {
            format!("{nearest} (the nearest known key)")
        }
        Some(_) => list(known.into_iter()),
    }
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.as_slice() {
        [one] => (*one).to_owned(),
        _ => format!("one of {}", words.join(", ")),
    }
}

/// How many letters have to be put in, taken out or replaced to make `b` of `a` (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    /// `expected` are the errors of the farm file `text`, one a line.
    fn check(text: &str, expected: &str) {
        let errors = FarmConfig::parse_for(text, Path::new("f"), &[]).unwrap_err();
        assert_eq!(errors.to_string(), expected);
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        check(
            "[flp]\nrate_hzz = 3.0\n[rum]\nflps = 1\n[transport]\nxylophone = 1\n",
            "f:2: flp.rate_hzz: found an unknown key, expected rate_hz (the nearest known key)\n\
             f:3: rum: found an unknown key, expected run (the nearest known key)\n\
             f:6: transport.xylophone: found an unknown key, expected one of congestion, socket_buffer_bytes, \
             huge_pages, shared_memory, zero_copy, kernel_tls, connections_max, connections_per_address_max",
        );
    }

    #[test]
    fn keys_of_another_kind_are_unknown() {
        check(
            "[flp.source]\nkind = \"generator\"\nfiles = []\nseeed = 1\n[epn.sink]\nkind = \"discard\"\npath = \"x\"\n",
            "f:3: flp.source.files: found an unknown key, expected one of sizes, bytes_mean, \
             sine_period_tfs, sine_amplitude, lognormal_sigma, trace_bytes, seed, pool_bytes\n\
             f:4: flp.source.seeed: found an unknown key, expected seed (the nearest known key)\n\
             f:7: epn.sink.path: found an unknown key, expected no keys here",
        );
    }

    #[test]
    fn kinds_and_names_are_answered_with_the_known_ones() {
        check(
            "[flp]\nwhen_full = \"drop-oldest\"\n[flp.source]\nfiles = []\nkind = \"rdh\"\n",
            "f:2: flp.when_full: found \"drop-oldest\", expected one of block, drop-newest\n\
             f:5: flp.source.kind: found \"rdh\", expected one of replay, file, generator, km3net, xtc2, \
             stf-file, tf-file, stdin, unix, tcp, zmq, program",
        );
        check(
            "[epn.sink]\npath = \"x\"\n",
            "f:1: epn.sink: found no `kind`, expected one: it has no default",
        );
    }

    #[test]
    fn values_of_another_type_are_named_all_at_once() {
        check(
            "[run]\nflps = -1\nepns = \"five\"\n[flp]\nrate_hz = true\nsource = 3\n[epn.build]\n\
             capacity_bytes = 1.5\n[transport]\nhuge_pages = 1\n",
            "f:2: run.flps: found integer -1, expected a whole number from 0 on that fits its type\n\
             f:3: run.epns: found string \"five\", expected a whole number from 0 on that fits its type\n\
             f:5: flp.rate_hz: found boolean true, expected a number\n\
             f:6: flp.source: found integer 3, expected a table\n\
             f:8: epn.build.capacity_bytes: found floating point 1.5, expected a whole number from 0 on \
             that fits its type\n\
             f:10: transport.huge_pages: found integer 1, expected true or false",
        );
        check(
            "[flp.source]\nkind = \"replay\"\norbits_per_tf = 0\nfirst_orbit = \"x\"\n",
            "f:3: flp.source.orbits_per_tf: found integer 0, expected a whole number from 1 on that fits \
             its type\n\
             f:4: flp.source.first_orbit: found string \"x\", expected a whole number from 0 on that fits \
             its type",
        );
    }

    #[test]
    fn what_is_not_toml_is_named_with_its_line() {
        check(
            "[run]\nflps = \n",
            "f:2: found string values must be quoted, expected literal string",
        );
        check(
            "a = 1\n\na = 2\n",
            "f:3: found duplicate key, expected TOML",
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(
            text in "([\\[a-z_.=\" 0-9\\]\\n-]|\\[flp\\]\\n|kind = |\\[epn.sink\\]|rate_hz = |flp.){0,40}"
        ) {
            let _ = FarmConfig::parse_for(&text, Path::new("f"), &[]);
        }

        #[test]
        fn the_distance_is_one_for_one_letter(word in "[a-z]{1,12}", at in 0_usize..12) {
            let at = at % word.len();
            let longer = format!("{}_{}", &word[..at], &word[at..]);
            prop_assert_eq!(distance(&word, &word), 0);
            prop_assert_eq!(distance(&word, &longer), 1);
            prop_assert_eq!(distance(&longer, &word), 1);
        }
    }
}
