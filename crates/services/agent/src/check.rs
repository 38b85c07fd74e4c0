//! Mistakes in a configuration, all at once.

use crate::config::AgentConfig;
use crate::sensor::SENSORS;
use sheaf_metrics::check_uris;
use std::collections::BTreeSet;
use std::fmt;

impl AgentConfig {
    /// Watched processes at most.
    const WATCHED_MAX: usize = 256;

    /// Returns everything that makes no sense.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let lists = [
            ("to", &self.to[..], false),
            ("collectors", &self.collectors[..], true),
        ];
        check_uris(&lists, |key, text, expected| {
            found.push(Problem::new(key, text, expected));
        });
        let known: Vec<&str> = SENSORS.iter().map(|kind| kind.name).collect();
        for (at, name) in self.sensors.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let expected = format!("one of {}", known.join(", "));
                found.push(Problem::new(
                    &format!("sensors[{at}]"),
                    format!("{name:?}"),
                    &expected,
                ));
            }
        }
        if !(10..=3_600_000).contains(&self.interval_ms) {
            found.push(Problem::new(
                "interval_ms",
                self.interval_ms,
                "10 to 3600000",
            ));
        }
        if !(self.cpu_share_max > 0.0 && self.cpu_share_max <= 1.0) {
            found.push(Problem::new(
                "cpu_share_max",
                self.cpu_share_max,
                "more than 0, up to 1",
            ));
        }
        if self.cgroups_max > 1024 {
            found.push(Problem::new("cgroups_max", self.cgroups_max, "0 to 1024"));
        }
        for name in self.labels.keys() {
            let taken = ["host", "role", "process"];
            let is_word = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if !is_word || taken.contains(&name.as_str()) {
                let expected = "a word of a-z, 0-9 and _, other than host, role and process";
                found.push(Problem::new("labels", format!("{name:?}"), expected));
            }
        }
        found.extend(self.problems_of_watch());
        found
    }

    fn problems_of_watch(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if self.watch.len() > Self::WATCHED_MAX {
            let expected = format!("up to {} tables", Self::WATCHED_MAX);
            found.push(Problem::new("watch", self.watch.len(), &expected));
        }
        let mut names = BTreeSet::new();
        for (at, one) in self.watch.iter().enumerate() {
            let key = |name: &str| format!("watch[{at}].{name}");
            if one.name.is_empty() || !names.insert(&one.name) {
                found.push(Problem::new(
                    &key("name"),
                    format!("{:?}", one.name),
                    "a name of its own",
                ));
            }
            let ways = [&one.pid_file, &one.program, &one.command];
            let ways = ways.into_iter().filter(|way| !way.is_empty()).count();
            if ways != 1 {
                let text = format!("{ways} of pid_file, program and command");
                found.push(Problem::new(&key("program"), text, "exactly one of them"));
            }
        }
        found
    }
}

/// One thing that makes no sense in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `agent.interval_ms`.
    pub key: String,
    /// Value found.
    pub found: String,
    /// Value expected.
    pub expected: String,
}

impl Problem {
    fn new(key: &str, found: impl fmt::Display, expected: &str) -> Self {
        Self {
            key: format!("agent.{key}"),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: found {}, expected {}",
            self.key, self.found, self.expected
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> AgentConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_defaults_are_in_order() {
        assert_eq!(AgentConfig::default().problems(), []);
        assert_eq!(read(""), AgentConfig::default());
        let config =
            read("sensors = [\"cpu\"]\n[[watch]]\nname = \"a\"\npid_file = \"/run/a.pid\"");
        assert_eq!(config.problems(), []);
        assert!(config.has("cpu") && !config.has("memory"));
    }

    #[test]
    fn all_problems_come_at_once_by_key() {
        let config = read(
            "to = [\"influx://h:1\", \"stdout://\", \"stdout://?verbosity=prod\"]\nsensors = [\"cpus\"]\ninterval_ms = 1\n\
             cpu_share_max = 0.0\ncgroups_max = 5000\nlabels = { host = \"h\", rack = \"3\" }\n\
             [[watch]]\nname = \"a\"\n[[watch]]\nname = \"a\"\nprogram = \"b\"\ncommand = \"c\"",
        );
        let keys: Vec<String> = config
            .problems()
            .into_iter()
            .map(|problem| problem.key)
            .collect();
        let expected = [
            "agent.to[0]",
            "agent.to[2]",
            "agent.sensors[0]",
            "agent.interval_ms",
            "agent.cpu_share_max",
            "agent.cgroups_max",
            "agent.labels",
            "agent.watch[0].program",
            "agent.watch[1].name",
            "agent.watch[1].program",
        ];
        assert_eq!(keys, expected);
    }
}
