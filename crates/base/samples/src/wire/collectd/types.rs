//! `types.db`: which data sources a type has.

use crate::wire::{Code, Fault};
use std::collections::BTreeMap;

/// One data source of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// Name, such as `rx`; `value` for a type with one data source.
    pub name: String,
}

/// Data sources of every type, by name of the type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types(BTreeMap<String, Vec<DataSource>>);

impl Types {
    /// Reads a file in the format of types.db(5): `type name:KIND:min:max, name:KIND:min:max`, one a line. A type that
    /// stands twice has the sources of its last line.
    ///
    /// Returns the types of the good lines, and what is wrong with the others.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<Fault>) {
        let mut types = Self::default();
        let mut faults = Vec::new();
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let bare = line.trim();
            if !bare.is_empty() && !bare.starts_with('#') {
                match entry(bare) {
                    Some((name, sources)) => drop(types.0.insert(name.to_owned(), sources)),
                    None => faults.push(Fault {
                        code: Code::BadField,
                        offset,
                    }),
                }
            }
            offset += line.len();
        }
        (types, faults)
    }

    /// Name of the data source at `index` of a type that has `count` of them. A type that is not known, or has another
    /// number of them, has `value`, or the index if there are several.
    #[must_use]
    pub fn source(&self, kind: &str, index: usize, count: usize) -> String {
        let known = self.0.get(kind).filter(|sources| sources.len() == count);
        match known.and_then(|sources| sources.get(index)) {
            Some(source) => source.name.clone(),
            None if count == 1 => "value".to_owned(),
            None => index.to_string(),
        }
    }

    /// Number of types.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no type is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn entry(line: &str) -> Option<(&str, Vec<DataSource>)> {
    let (name, rest) = line.split_once([' ', '\t'])?;
    // collectd takes spaces alone as well, and its own file has lines without commas.
    let sources = rest
        .split([',', ' ', '\t'])
        .filter(|source| !source.is_empty());
    let sources = sources.map(|source| {
        let mut parts = source.split(':');
        let name = parts.next().filter(|name| !name.is_empty())?;
        let kind = parts.next()?;
        let is_kind = ["COUNTER", "GAUGE", "DERIVE", "ABSOLUTE"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(kind));
        // Bounds are a number or `U`.
        let bounds = parts
            .clone()
            .filter(|bound| *bound == "U" || bound.parse::<f64>().is_ok());
        let is_bounded = bounds.count() == 2 && parts.count() == 2;
        (is_kind && is_bounded).then(|| DataSource {
            name: name.to_owned(),
        })
    });
    let sources: Vec<_> = sources.collect::<Option<_>>()?;
    (!sources.is_empty()).then_some((name, sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_the_names_of_the_file() {
        let text = "# comment\nif_octets\t\trx:DERIVE:0:U, tx:DERIVE:0:U\n\nload shortterm:GAUGE:0:5000,midterm:GAUGE:0:5000,longterm:GAUGE:0:5000\nbad\nworse x:SPEED:0:U\nworst x:GAUGE:0\ngauge value:GAUGE:U:U\n";
        let (types, faults) = Types::parse(text);
        assert_eq!(types.len(), 3);
        let lines: Vec<&str> = faults
            .iter()
            .map(|fault| text[fault.offset..].lines().next().unwrap())
            .collect();
        assert_eq!(lines, ["bad", "worse x:SPEED:0:U", "worst x:GAUGE:0"]);
        assert_eq!(types.source("if_octets", 1, 2), "tx");
        assert_eq!(types.source("gauge", 0, 1), "value");
        assert_eq!(types.source("load", 1, 2), "1");
        assert_eq!(types.source("new", 0, 1), "value");
    }

    #[test]
    fn the_file_of_debian_is_read_whole() {
        let path = "/usr/share/collectd/types.db";
        #[expect(
            clippy::disallowed_methods,
            reason = "the test reads a file of the system"
        )]
        let Ok(text) = std::fs::read_to_string(path) else {
            println!("skipped: the file {path} of collectd is not here");
            return;
        };
        let (types, faults) = Types::parse(&text);
        assert_eq!(faults, []);
        assert!(types.len() > 200, "{}", types.len());
        assert_eq!(types.source("if_packets", 0, 2), "rx");
    }
}
