//! The `[metrics]` table.

use crate::check::Check;
use serde::{Deserialize, Serialize};
use sheaf_metrics::{Backend, Policy, PolicyError, Verbosity, check_uris};
use std::time::Duration;

/// The `[metrics]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Back ends that all nodes send their metrics to, as URIs; none for pages alone.
    pub backends: Vec<String>,
    /// Collectors side by side, as URIs: each node sends to one of them, chosen by the policy `maglev`, and to another
    /// one while that does not take anything. The same list at all nodes.
    pub collectors: Vec<String>,
    /// Time between two samples, in ms.
    pub interval_ms: u64,
    /// Verbosity of back ends whose URI does not state one.
    pub verbosity: String,
    /// Verbosity of metrics by their names: `PATTERN=VERBOSITY` each.
    pub policy: Vec<String>,
    /// Name of the farm, a label of all that is sent; empty for none.
    pub farm: String,
    /// Share of a core that reporting takes at most.
    pub cpu_share_max: f64,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            backends: Vec::new(),
            collectors: Vec::new(),
            interval_ms: 1000,
            verbosity: Verbosity::default().name().to_owned(),
            policy: Vec::new(),
            farm: String::new(),
            cpu_share_max: 0.01,
        }
    }
}

impl MetricsConfig {
    /// Returns the time between two samples.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Returns the back ends. Those that [`check`](Self::check) refuses are left out.
    pub(crate) fn backends(&self) -> Vec<Backend> {
        let uris = self.backends.iter();
        uris.filter_map(|uri| uri.parse().ok()).collect()
    }

    /// Returns the collectors. Those that [`check`](Self::check) refuses are left out.
    pub(crate) fn collectors(&self) -> Vec<Backend> {
        let uris = self.collectors.iter();
        uris.filter_map(|uri| uri.parse().ok()).collect()
    }

    /// Returns the verbosity of back ends.
    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity.parse().unwrap_or_default()
    }

    /// Returns the verbosity of metrics. Without a rule that [`check`](Self::check) refuses.
    pub(crate) fn policy(&self) -> Policy {
        let rules = self.policy.iter().filter_map(|rule| self::rule(rule));
        Policy::new(rules).unwrap_or_default()
    }

    pub(super) fn check(&self, check: &mut Check) {
        let lists = [
            ("metrics.backends", &self.backends[..], false),
            ("metrics.collectors", &self.collectors[..], true),
        ];
        check_uris(&lists, |key, found, expected| {
            check.fail(key, found, expected);
        });
        check.that(
            self.verbosity.parse::<Verbosity>().is_ok(),
            "metrics.verbosity",
            format!("\"{}\"", self.verbosity),
            "prod, info or debug",
        );
        for (at, text) in self.policy.iter().enumerate() {
            let expected = match rule(text) {
                None => "PATTERN=prod, PATTERN=info or PATTERN=debug".to_owned(),
                Some(rule) => match Policy::new([rule]) {
                    Ok(_) => continue,
                    Err(PolicyError { reason, .. }) => format!("a regular expression: {reason}"),
                },
            };
            check.fail(
                &format!("metrics.policy[{at}]"),
                format!("\"{text}\""),
                expected,
            );
        }
    }
}

/// Takes a rule apart: a pattern, which may hold `=`, and a verbosity.
fn rule(text: &str) -> Option<(&str, Verbosity)> {
    let (pattern, verbosity) = text.rsplit_once('=')?;
    let is_pattern = !pattern.is_empty();
    is_pattern.then_some((pattern, verbosity.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and texts of what is wrong.
    fn found(config: &MetricsConfig) -> Vec<String> {
        let mut check = Check::default();
        config.check(&mut check);
        check.errors.iter().map(ToString::to_string).collect()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_table_without_mistakes_has_none() {
        let config = MetricsConfig {
            backends: texts(&["influxdb-udp://127.0.0.1:8089", "stdout://?verbosity=debug"]),
            policy: texts(&["^transport_=debug", "^build_tf=prod"]),
            verbosity: "prod".to_owned(),
            ..MetricsConfig::default()
        };
        assert_eq!(found(&config), Vec::<String>::new());
        assert_eq!(config.backends().len(), 2);
        assert_eq!(config.verbosity(), Verbosity::Prod);
        assert_eq!(found(&MetricsConfig::default()), Vec::<String>::new());
    }

    #[test]
    fn every_mistake_is_named_by_its_place() {
        let config = MetricsConfig {
            backends: texts(&[
                "stdout://",
                "influx://h:1",
                "stdout://?verbosity=prod",
                "influxdb-udp://h",
            ]),
            collectors: texts(&["influxdb-tcp://a:1", "stdout://", "none://"]),
            verbosity: "loud".to_owned(),
            policy: texts(&["^a", "b(=prod", "=prod", "c=loud"]),
            ..MetricsConfig::default()
        };
        let found = found(&config);
        let expected = [
            ("metrics.backends[1]", "one of influxdb-udp"),
            ("metrics.backends[2]", "each back end once"),
            ("metrics.backends[3]", "HOST:PORT"),
            ("metrics.collectors[1]", "each back end once"),
            ("metrics.collectors[2]", "samples are sent to"),
            ("metrics.verbosity", "prod, info or debug"),
            ("metrics.policy[0]", "PATTERN=prod"),
            ("metrics.policy[1]", "a regular expression: unclosed group"),
            ("metrics.policy[2]", "PATTERN=prod"),
            ("metrics.policy[3]", "PATTERN=prod"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (error, (key, text)) in found.iter().zip(expected) {
            assert!(error.contains(key) && error.contains(text), "{error}");
        }
    }
}
