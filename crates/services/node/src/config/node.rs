//! The `[node]` table: the processes of the nodes.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sheaf_protocol::Role;
use sheaf_transport::LOOPS_MAX;
use std::fmt;
use std::str::FromStr;
use std::thread::available_parallelism;

/// Most threads that `auto` stands for: more than that a card does not fill.
const AUTO_MAX: usize = 8;

/// The `[node]` table of a farm file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Threads that move the STFs of an FLP, an EPN or a writer.
    pub threads: Threads,
}

impl NodeConfig {
    /// Returns the event loops for data that a node of `role` has beside its own thread: none if that thread does all.
    #[must_use]
    pub fn loops(&self, role: Role) -> usize {
        // The others have control messages only.
        let moves_data = matches!(role, Role::Flp | Role::Epn | Role::Writer);
        match self.threads {
            _ if !moves_data => 0,
            Threads::Auto => {
                let cpus = available_parallelism().map_or(1, usize::from);
                Threads::loops_of((cpus - 1).min(AUTO_MAX))
            }
            Threads::Count(threads) => Threads::loops_of(threads.into()),
        }
    }
}

/// Number of threads that move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One less than the process has processors, 8 at most.
    Auto,
    /// Fixed number; with 1 the thread of the node moves data beside all else.
    Count(u8),
}

impl Threads {
    /// Most threads of a node.
    pub const MAX: u8 = LOOPS_MAX as u8;

    fn loops_of(threads: usize) -> usize {
        match threads {
            0 | 1 => 0,
            more => more,
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.parse().ok();
        let count = count.filter(|count| (1..=Self::MAX).contains(count));
        let threads = match text {
            "auto" => Some(Self::Auto),
            _ => count.map(Self::Count),
        };
        threads.ok_or_else(|| format!("found `{text}`, expected 1 to {} or auto", Self::MAX))
    }
}

impl Serialize for Threads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u8(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl Visitor<'_> for Word {
            type Value = Threads;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "1 to {} or \"auto\"", Threads::MAX)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Threads, E> {
                let count = u8::try_from(number).ok();
                let count = count.filter(|count| (1..=Threads::MAX).contains(count));
                let count =
                    count.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self));
                count.map(Threads::Count)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Threads, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Threads, E> {
                match word {
                    "auto" => Ok(Threads::Auto),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }

        deserializer.deserialize_any(Word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FarmConfig;
    use std::path::Path;

    fn read(value: &str) -> Result<NodeConfig, String> {
        let text = format!("[node]\nthreads = {value}\n");
        let config = FarmConfig::parse_for(&text, Path::new("f"), &[]);
        config
            .map(|config| config.node)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn threads_are_a_number_or_as_many_as_there_are() {
        let loops = |value: &str, role| read(value).unwrap().loops(role);
        assert_eq!(NodeConfig::default().loops(Role::Epn), 0);
        assert_eq!(loops("1", Role::Flp), 0);
        assert_eq!(loops("2", Role::Epn), 2);
        assert_eq!(loops("64", Role::Writer), 64);
        assert_eq!(loops("8", Role::Icn), 0, "it has no data");
        assert!(loops("\"auto\"", Role::Flp) <= AUTO_MAX);
        assert_ne!(
            loops("\"auto\"", Role::Flp),
            1,
            "a loop alone takes a hand-over for nothing"
        );
        for (value, found) in [
            ("0", "integer 0"),
            ("65", "integer 65"),
            ("\"all\"", "\"all\""),
        ] {
            let error = read(value).unwrap_err();
            assert!(
                error.contains("1 to 64 or \"auto\"") && error.contains(found),
                "{value}: {error}"
            );
        }
    }

    #[test]
    fn threads_are_written_as_they_are_read() {
        for value in ["1", "7", "\"auto\""] {
            let config = read(value).unwrap();
            assert_eq!(value.trim_matches('"').parse(), Ok(config.threads));
            assert_eq!(config.threads.to_string(), value.trim_matches('"'));
            let text = toml::to_string(&config).unwrap();
            assert_eq!(text, format!("threads = {value}\n"));
        }
        let error = "0".parse::<Threads>().unwrap_err();
        assert_eq!(error, "found `0`, expected 1 to 64 or auto");
    }
}
