//! Registrations of the keys of a farm file: one row a key, from which the checks of ranges, `config/example.toml` and
//! the reference page follow.
//!
//! The default of a key is that of its type; the names that it may have are those that its type can be read from.

mod example;
mod table;

pub use example::{comment, example};
pub(super) use table::RATE_HZ_MAX;
pub use table::TABLES;

use super::FarmConfig;
use super::read::{known_keys_of, known_names};
use crate::check::Check;
use serde::Deserialize as _;
use std::fmt;

/// Table of a farm file.
#[derive(Debug)]
pub struct Table {
    /// Name, such as `icn.liveness`.
    pub name: &'static str,
    /// Lines of the description.
    pub about: &'static [&'static str],
    /// Keys, in the order of the example.
    pub keys: &'static [Key],
}

/// Key of a farm file.
#[derive(Debug)]
pub struct Key {
    /// Name with its table, such as `icn.liveness.pulse_ms`.
    pub path: &'static str,
    /// Unit, such as `ms`; empty if it has none.
    pub unit: &'static str,
    /// Lines of the description.
    pub about: &'static [&'static str],
    /// Value that the example shows, in TOML, of a key without a default.
    pub sample: Option<&'static str>,
    /// Nodes that take another value at SIGHUP: `the ICN` or `all nodes`; `None` if the key needs a restart.
    pub live: Option<&'static str>,
    range: Option<Range>,
    number: Option<fn(&FarmConfig) -> Number>,
}

/// Range of a key whose value is a number.
#[derive(Clone, Copy, Debug)]
enum Range {
    Whole(u64, u64, &'static str),
    Real(f64, f64, &'static str),
}

/// Value of a key.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(u64),
    Real(f64),
}

/// Upper bound of a range that has none.
const MAX: u64 = u64::MAX;

impl Range {
    /// Makes a range of whole numbers; `suffix` is the unit, and what else an error message says.
    const fn whole(least: u64, most: u64, suffix: &'static str) -> Self {
        Self::Whole(least, most, suffix)
    }

    /// Makes a range of real numbers, as an error message says it.
    const fn real(least: f64, most: f64, words: &'static str) -> Self {
        Self::Real(least, most, words)
    }

    fn contains(self, number: Number) -> bool {
        match (self, number) {
            (Self::Whole(least, most, _), Number::Whole(found)) => (least..=most).contains(&found),
            (Self::Real(least, most, _), Number::Real(found)) => (least..=most).contains(&found),
            (Self::Whole(..), Number::Real(_)) | (Self::Real(..), Number::Whole(_)) => false,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(least, MAX, suffix) => write!(f, "at least {least}{suffix}"),
            Self::Whole(least, most, suffix) => write!(f, "{least} to {most}{suffix}"),
            Self::Real(_, _, words) => f.write_str(words),
        }
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number}"),
        }
    }
}

/// Defines [`TABLES`]: a block a table, and in it a row a key: description, name, unit; then, where there is one, the
/// `sample` of a key without a default, the range, and who takes another value while it runs.
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        table $table:tt {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $unit:literal
                    $(, sample $sample:literal)?
                    $(, whole($($whole:expr),+))?
                    $(, real($($real:expr),+))?
                    $(, live $live:literal)?;
            )+
        }
    )+) => {
        /// Tables of a farm file with their keys, in the order of `config/example.toml`.
        pub const TABLES: &[Table] = &[
            $(Table {
                name: keys!(@path $table),
                about: &[$($about),+],
                keys: &[$(Key {
                    path: keys!(@path $table $key),
                    unit: $unit,
                    about: &[$($doc),+],
                    sample: keys!(@option $($sample)?),
                    live: keys!(@option $($live)?),
                    range: keys!(@option $(Range::whole($($whole),+))? $(Range::real($($real),+))?),
                    number: keys!(@number $table $key $(($($whole),+))? $(($($real),+))?),
                }),+],
            },)+
        ];
    };
    (@path [$first:ident $(. $rest:ident)*] $($key:ident)?) => {
        concat!(stringify!($first) $(, ".", stringify!($rest))* $(, ".", stringify!($key))?)
    };
    (@option) => { None };
    (@option $some:expr) => { Some($some) };
    (@number $table:tt $key:ident) => { None };
    (@number [$($table:tt)+] $key:ident $range:tt) => { Some(|farm| farm.$($table)+.$key.into()) };
}

use keys;

impl Key {
    /// Returns the description in one line.
    #[must_use]
    pub fn description(&self) -> String {
        let about = in_one_line(self.about);
        match self.live {
            Some(who) => format!("{about} Can change at run time: SIGHUP to {who}."),
            None => about,
        }
    }

    /// Returns the range as error messages say it; `None` if any value of the type will do.
    #[must_use]
    pub fn range(&self) -> Option<String> {
        self.range.map(|range| range.to_string())
    }

    /// Returns the default, as TOML; `None` if the key has none.
    #[must_use]
    pub fn default_value(&self) -> Option<toml::Value> {
        let farm = toml::Value::try_from(FarmConfig::default()).ok()?;
        let found = self
            .path
            .split('.')
            .try_fold(&farm, |table, key| table.get(key));
        found.cloned().or_else(|| {
            // A list that is left out when it is empty.
            let is_list = self.sample.is_some_and(|sample| sample.starts_with('['));
            is_list.then(|| toml::Value::Array(Vec::new()))
        })
    }

    /// Returns the names that the value may be, if it is one of several.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let kind = ["flp.source.", "epn.sink."]
            .into_iter()
            .filter(|table| self.path.starts_with(table) && !self.path.ends_with(".kind"))
            .map(|table| (format!("{table}kind"), "replay"));
        names_of(self.path, kind.collect())
    }

    fn check(&self, farm: &FarmConfig, check: &mut Check) {
        if let (Some(range), Some(number)) = (self.range, self.number) {
            let found = number(farm);
            check.that(range.contains(found), self.path, found, range.to_string());
        }
    }
}

/// Checks the ranges of all keys.
pub(super) fn check_ranges(farm: &FarmConfig, check: &mut Check) {
    let keys = TABLES.iter().flat_map(|table| table.keys);
    keys.for_each(|key| key.check(farm, check));
}

/// Key of a kind of source or sink.
#[derive(Clone, Debug, PartialEq)]
pub struct KindKey {
    /// Name in the table.
    pub name: String,
    /// Default; `None` if the key has none.
    pub default: Option<toml::Value>,
    /// Names that the value may be, if it is one of several.
    pub names: Vec<String>,
}

/// Returns the keys of `table` (`flp.source` or `epn.sink`) with this kind. `defaults` is the table with all defaults.
#[must_use]
pub fn keys_of_kind(table: &str, kind: &str, defaults: &toml::Table) -> Vec<KindKey> {
    let refused = parse(&[(format!("{table}.kind"), kind), (format!("{table}.?"), "")]);
    let keys = refused.err().map(|message| known_keys_of(&message));
    let keys = keys.unwrap_or_default().into_iter();
    keys.map(|name| KindKey {
        names: names_of(
            &format!("{table}.{name}"),
            vec![(format!("{table}.kind"), kind)],
        ),
        default: defaults.get(&name).cloned(),
        name,
    })
    .collect()
}

/// Names that the key at `path` may be, beside these other keys.
fn names_of(path: &str, mut beside: Vec<(String, &str)>) -> Vec<String> {
    beside.push((path.to_owned(), "?"));
    let refused = parse(&beside).err().unwrap_or_default();
    known_names(&refused)
}

/// Reads a farm file of these keys, which are texts; gives the message if it cannot be read.
fn parse(keys: &[(String, &str)]) -> Result<(), String> {
    let mut farm = toml::Table::new();
    for (path, value) in keys {
        let mut names: Vec<&str> = path.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut table = &mut farm;
        for name in names {
            let inner = table
                .entry(name)
                .or_insert_with(|| toml::Table::new().into());
            let toml::Value::Table(inner) = inner else {
                return Ok(());
            };
            table = inner;
        }
        table.insert(last.to_owned(), (*value).into());
    }
    FarmConfig::deserialize(toml::Value::Table(farm))
        .map(drop)
        .map_err(|error| error.message().to_owned())
}

fn in_one_line(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> &'static Key {
        let mut keys = TABLES.iter().flat_map(|table| table.keys);
        keys.find(|key| key.path == path).unwrap()
    }

    #[test]
    fn a_default_stands_in_its_range() {
        let mut check = Check::default();
        check_ranges(&FarmConfig::default(), &mut check);
        assert_eq!(check.errors, []);
    }

    #[test]
    fn names_are_those_that_the_type_has() {
        assert_eq!(key("flp.when_full").names(), ["block", "drop-newest"]);
        assert_eq!(key("icn.scheduler.incomplete").names(), ["never", "allow"]);
        assert_eq!(key("run.flps").names(), Vec::<String>::new());
        assert_eq!(
            key("epn.sink.kind").names().len(),
            crate::sink::SinkConfig::KINDS.len()
        );
    }

    #[test]
    fn keys_of_a_kind_have_their_defaults() {
        let defaults = toml::toml! { share = "equipment" };
        let keys = keys_of_kind("flp.source", "stf-file", &defaults);
        let found: Vec<_> = keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(found, ["files", "share", "payload", "first_counter"]);
        assert_eq!(keys[1].names, ["equipment", "files"]);
        assert_eq!(keys[1].default, Some("equipment".into()));
        assert_eq!(keys_of_kind("flp.source", "stdin", &defaults), []);
    }

    #[test]
    fn the_largest_stf_is_the_largest_body_of_a_frame() {
        let limits = sheaf_protocol::Limits::default();
        let expected = format!("1 to {} bytes", limits.body_bytes_max);
        let range = key("icn.scheduler.stf_bytes_max").range().unwrap();
        assert!(range.starts_with(&expected), "{range}");
    }
}
