//! Typed values out of a tree of YAML, with a finding for each that does not fit.

use crate::duration;
use crate::finding::Collector;
use crate::yaml::{Kind, Node};
use std::fmt::Display;
use std::str::FromStr;

/// Keys of one table, taken one by one; what is left over is a finding.
pub(crate) struct Fields<'n> {
    /// Line of the table.
    pub(crate) line: usize,
    pairs: &'n [(String, usize, Node)],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Returns the keys of `node`, or adds a finding that `expected` was expected.
    pub(crate) fn of(node: &'n Node, expected: &str, out: &mut Collector<'_>) -> Option<Self> {
        let Kind::Map(pairs) = &node.kind else {
            out.add(node.line, node.describe(), expected);
            return None;
        };
        Some(Self {
            line: node.line,
            pairs,
            known: Vec::new(),
        })
    }

    /// Value of `key`; a value that is left out counts as absent.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.known.push(key);
        let pair = self.pairs.iter().find(|pair| pair.0 == key)?;
        (!pair.2.is_null()).then_some(&pair.2)
    }

    pub(crate) fn text(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<String> {
        text(self.take(key)?, key, out)
    }

    /// Text that has to be there.
    pub(crate) fn required(
        &mut self,
        key: &'static str,
        out: &mut Collector<'_>,
    ) -> Option<String> {
        let Some(node) = self.take(key) else {
            out.add(
                self.line,
                format!("no key {key:?}"),
                format!("a text under {key:?}"),
            );
            return None;
        };
        text(node, key, out)
    }

    pub(crate) fn duration(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<i64> {
        let node = self.take(key)?;
        let found = match &node.kind {
            Kind::Text { text, .. } => duration::parse(text),
            _ => None,
        };
        if found.is_none() {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                "a duration such as 5m or 1h30m",
            );
        }
        found
    }

    pub(crate) fn flag(&mut self, key: &'static str, out: &mut Collector<'_>) -> Option<bool> {
        let node = self.take(key)?;
        match &node.kind {
            Kind::Text {
                text,
                is_plain: true,
            } if text == "true" => Some(true),
            Kind::Text {
                text,
                is_plain: true,
            } if text == "false" => Some(false),
            _ => {
                out.add(
                    node.line,
                    format!("{} under {key:?}", node.describe()),
                    "true or false",
                );
                None
            }
        }
    }

    /// A number from `min` to `max`.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        range: (f64, f64),
        out: &mut Collector<'_>,
    ) -> Option<f64> {
        self.within(key, range, "a number", out)
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn count(
        &mut self,
        key: &'static str,
        range: (u32, u32),
        out: &mut Collector<'_>,
    ) -> Option<u32> {
        self.within(key, range, "a whole number", out)
    }

    fn within<N: FromStr + PartialOrd + Display>(
        &mut self,
        key: &'static str,
        (min, max): (N, N),
        what: &str,
        out: &mut Collector<'_>,
    ) -> Option<N> {
        let node = self.take(key)?;
        let found = match &node.kind {
            Kind::Text {
                text,
                is_plain: true,
            } => text.parse().ok(),
            _ => None,
        };
        let found = found.filter(|number| (&min..=&max).contains(&number));
        if found.is_none() {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                format!("{what} from {min} to {max}"),
            );
        }
        found
    }

    pub(crate) fn list(&mut self, key: &'static str, out: &mut Collector<'_>) -> &'n [Node] {
        let Some(node) = self.take(key) else {
            return &[];
        };
        let Kind::List(items) = &node.kind else {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                "a list",
            );
            return &[];
        };
        items
    }

    /// Texts of a list.
    pub(crate) fn texts(
        &mut self,
        key: &'static str,
        out: &mut Collector<'_>,
    ) -> Vec<(usize, String)> {
        let mut texts = Vec::new();
        for node in self.list(key, out) {
            texts.extend(text(node, key, out).map(|text| (node.line, text)));
        }
        texts
    }

    /// Pairs of name and text with their lines.
    pub(crate) fn table(
        &mut self,
        key: &'static str,
        out: &mut Collector<'_>,
    ) -> Vec<(&'n str, usize, String)> {
        let Some(node) = self.take(key) else {
            return Vec::new();
        };
        let Kind::Map(pairs) = &node.kind else {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                "a table of names and texts",
            );
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, line, node) in pairs {
            found.extend(text(node, name, out).map(|text| (name.as_str(), *line, text)));
        }
        found
    }

    /// One of `names`, by its index.
    pub(crate) fn choice(
        &mut self,
        key: &'static str,
        names: &[&str],
        out: &mut Collector<'_>,
    ) -> Option<usize> {
        let node = self.take(key)?;
        let found = match &node.kind {
            Kind::Text { text, .. } => names.iter().position(|name| name == text),
            _ => None,
        };
        if found.is_none() {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                format!("one of {}", names.join(", ")),
            );
        }
        found
    }

    /// Adds a finding for each key that was not asked for.
    pub(crate) fn finish(self, out: &mut Collector<'_>) {
        for (key, line, _) in self.pairs {
            if !self.known.contains(&key.as_str()) {
                out.add(
                    *line,
                    format!("key {key:?}"),
                    format!("one of {}", self.known.join(", ")),
                );
            }
        }
    }
}

fn text(node: &Node, key: &str, out: &mut Collector<'_>) -> Option<String> {
    match &node.kind {
        Kind::Text { text, .. } => Some(text.clone()),
        _ => {
            out.add(
                node.line,
                format!("{} under {key:?}", node.describe()),
                "a text",
            );
            None
        }
    }
}
