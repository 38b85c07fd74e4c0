//! YAML as a tree that knows its lines.
//!
//! Deserialising by serde ends at the first error. A tree lets a reader name everything that is wrong in a file at
//! once, with lines. The parser gives events; this module bounds what is made of them: size, depth, and the nodes that
//! aliases repeat.

use crate::finding::Collector;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::{BTreeMap, BTreeSet};

/// Largest file, in bytes.
const BYTES_MAX: usize = 4 << 20;
/// Deepest nesting.
const DEPTH_MAX: usize = 32;
/// Most nodes of a file, repeats by aliases included.
const NODES_MAX: usize = 200_000;

/// A value, and the line where it begins (from 1).
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A scalar; `is_plain` if it stands without quotes, so that `true` or `5` may be more than text.
    Text {
        text: String,
        is_plain: bool,
    },
    List(Vec<Node>),
    /// Pairs in the order of the file, each key once, with the line of the key.
    Map(Vec<(String, usize, Node)>),
}

impl Node {
    fn size(&self) -> usize {
        1 + match &self.kind {
            Kind::Text { .. } => 0,
            Kind::List(items) => items.iter().map(Self::size).sum(),
            Kind::Map(pairs) => pairs.iter().map(|pair| 1 + pair.2.size()).sum(),
        }
    }

    /// Short description for findings.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Text {
                text,
                is_plain: true,
            } if text.is_empty() => "nothing".to_owned(),
            Kind::Text { text, .. } => format!("{:?}", text.chars().take(60).collect::<String>()),
            Kind::List(items) => format!("a list of {}", items.len()),
            Kind::Map(pairs) => format!("a table of {} keys", pairs.len()),
        }
    }

    /// Returns whether the value is left out (`key:`) or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Text { text, is_plain: true } if text.is_empty() || text == "~" || text == "null")
    }
}

/// A collection that is still open.
struct Open {
    line: usize,
    anchor: usize,
    kind: Kind,
    /// Key whose value comes next.
    key: Option<(String, usize)>,
    keys: BTreeSet<String>,
}

/// Returns the one document of `text`; `None`, with a finding, if it is no YAML or beyond a bound.
pub(crate) fn parse(text: &str, out: &mut Collector<'_>) -> Option<Node> {
    if text.len() > BYTES_MAX {
        out.add(
            1,
            format!("{} bytes", text.len()),
            format!("{BYTES_MAX} at most"),
        );
        return None;
    }
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: BTreeMap<usize, Node> = BTreeMap::new();
    let mut nodes = 0;
    let mut root = None;
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                out.add(error.marker().line(), error.info(), "YAML");
                return None;
            }
        };
        let line = span.start.line();
        let (anchor, node) = match event {
            Event::Scalar(value, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let text = value.into_owned();
                (
                    anchor,
                    Node {
                        line,
                        kind: Kind::Text { text, is_plain },
                    },
                )
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() >= DEPTH_MAX {
                    out.add(line, format!("more than {DEPTH_MAX} levels"), "fewer");
                    return None;
                }
                let kind = match event {
                    Event::SequenceStart(..) => Kind::List(Vec::new()),
                    _ => Kind::Map(Vec::new()),
                };
                open.push(Open {
                    line,
                    anchor,
                    kind,
                    key: None,
                    keys: BTreeSet::new(),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open {
                    line, anchor, kind, ..
                }) = open.pop()
                else {
                    continue;
                };
                (anchor, Node { line, kind })
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    out.add(line, "an alias inside of what it names", "an anchor above");
                    return None;
                };
                (0, node.clone())
            }
            Event::DocumentStart(_) if root.is_some() => {
                out.add(line, "a second document", "one document a file");
                return None;
            }
            _ => continue,
        };
        nodes += node.size();
        if nodes > NODES_MAX {
            out.add(line, format!("more than {NODES_MAX} values"), "fewer");
            return None;
        }
        if anchor > 0 {
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            Some(parent) => parent.push(node, out),
            None => root = Some(node),
        }
    }
    root
}

impl Open {
    fn push(&mut self, node: Node, out: &mut Collector<'_>) {
        match (&mut self.kind, self.key.take()) {
            (Kind::Map(pairs), Some((key, line))) => {
                if self.keys.insert(key.clone()) {
                    pairs.push((key, line, node));
                } else {
                    out.add(line, format!("key {key:?} twice"), "each key once");
                }
            }
            (Kind::Map(_), None) => {
                let line = node.line;
                let Kind::Text { text, .. } = node.kind else {
                    out.add(line, format!("{} as key", node.describe()), "a text");
                    self.key = Some((String::new(), line));
                    return;
                };
                self.key = Some((text, line));
            }
            (Kind::List(items), _) => items.push(node),
            (Kind::Text { .. }, _) => unreachable!("only collections are open"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Node, String> {
        let mut out = Collector::new("a.yml");
        let node = parse(text, &mut out);
        match out.finish(()) {
            Ok(()) => Ok(node.expect("a node or a finding")),
            Err(findings) => Err(findings.to_string()),
        }
    }

    #[test]
    fn values_know_their_lines() {
        let root = parsed("groups:\n- name: a\n  rules: []\n").unwrap();
        let Kind::Map(pairs) = &root.kind else {
            panic!("{root:?}")
        };
        let Kind::List(groups) = &pairs[0].2.kind else {
            panic!("{root:?}")
        };
        let Kind::Map(group) = &groups[0].kind else {
            panic!("{root:?}")
        };
        let places: Vec<_> = group
            .iter()
            .map(|one| (one.0.as_str(), one.1, one.2.line))
            .collect();
        assert_eq!(places, [("name", 2, 2), ("rules", 3, 3)]);
    }

    #[test]
    fn damage_is_named_with_its_line() {
        assert_eq!(
            parsed("a: 1\na: 2\n").unwrap_err(),
            "a.yml:2: key \"a\" twice, expected each key once"
        );
        assert!(parsed("a: [1\nb: }").unwrap_err().starts_with("a.yml:"));
        assert_eq!(
            parsed("a: 1\n---\nb: 1\n").unwrap_err(),
            "a.yml:2: a second document, expected one document a file"
        );
        assert!(
            parsed(&"[".repeat(40))
                .unwrap_err()
                .contains("more than 32 levels")
        );
    }

    #[test]
    fn aliases_cannot_multiply_a_file() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{below}]\n");
        }
        assert!(
            parsed(&text)
                .unwrap_err()
                .contains("more than 200000 values")
        );
    }
}
