//! Configuration of what comes in beside line protocol: collectd, and targets that are scraped.

use super::security::{SecurityConfig, is_set};
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The `[monitor.collectd]` table: packets of collectd's network plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectdConfig {
    /// UDP addresses.
    pub udp: Vec<String>,
    /// Files with the names of data sources; one that is not there is passed over.
    pub types_db: Vec<PathBuf>,
    /// File with a line `user: password` for each user that signs; empty: signatures are not checked.
    pub auth_file: PathBuf,
    /// Whether packets without a signature are refused.
    pub require_signature: bool,
}

impl Default for CollectdConfig {
    fn default() -> Self {
        Self {
            udp: Vec::new(),
            types_db: vec![PathBuf::from("/usr/share/collectd/types.db")],
            auth_file: PathBuf::new(),
            require_signature: false,
        }
    }
}

/// One `[[monitor.scrape]]` table: pages with metrics that the collector reads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScrapeConfig {
    /// Label `job` of all series.
    pub job: String,
    /// Addresses such as `127.0.0.1:9100`: the label `instance`.
    pub targets: Vec<String>,
    /// Path of the page.
    pub path: String,
    /// Period, in ms.
    pub interval_ms: u64,
    /// Longest time of a scrape, in ms.
    pub timeout_ms: u64,
    /// Further labels of all series.
    pub labels: BTreeMap<String, String>,
    /// PEM file of the CA of the targets, which are read over TLS then; empty: HTTP.
    pub ca: PathBuf,
    /// File whose first line is the bearer token; empty: none.
    pub token_file: PathBuf,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            job: String::new(),
            targets: Vec::new(),
            path: "/metrics".to_owned(),
            interval_ms: 15_000,
            timeout_ms: 10_000,
            labels: BTreeMap::new(),
            ca: PathBuf::new(),
            token_file: PathBuf::new(),
        }
    }
}

impl CollectdConfig {
    /// Adds what makes no sense.
    pub(super) fn check(&self, found: &mut Vec<Problem>) {
        if self.require_signature && !is_set(&self.auth_file) {
            let expected = "auth_file as well, with a line `user: password` for each user";
            found.push(Problem::of("collectd.require_signature", &"true", expected));
        }
    }
}

impl ScrapeConfig {
    /// Adds what makes no sense.
    pub(super) fn check(&self, security: &SecurityConfig, found: &mut Vec<Problem>) {
        if self.job.is_empty() {
            found.push(Problem::of("scrape.job", &"none", "a name of the job"));
        }
        if self.targets.is_empty() {
            found.push(Problem::of(
                "scrape.targets",
                &"none",
                "addresses such as 127.0.0.1:9100",
            ));
        }
        if !self.path.starts_with('/') {
            found.push(Problem::of(
                "scrape.path",
                &self.path,
                "a path such as /metrics",
            ));
        }
        for target in &self.targets {
            let url = self.url(target);
            security.check_url("scrape.targets", &url, &self.ca, found);
        }
        for (key, value) in [
            ("interval_ms", self.interval_ms),
            ("timeout_ms", self.timeout_ms),
        ] {
            if !(50..=3_600_000).contains(&value) {
                let key = format!("scrape.{key}");
                found.push(Problem::of(&key, &value, "50 to 3600000"));
            }
        }
        if self.timeout_ms > self.interval_ms {
            let value = self.timeout_ms.to_string();
            found.push(Problem::of(
                "scrape.timeout_ms",
                &value,
                "interval_ms at most",
            ));
        }
        let is_name = sheaf_samples::wire::names::is_label_name;
        for name in self.labels.keys().filter(|name| !is_name(name)) {
            found.push(Problem::of(
                "scrape.labels",
                name,
                "names of letters, digits and `_`",
            ));
        }
    }

    /// Returns the URL of a target.
    pub(crate) fn url(&self, target: &str) -> String {
        let scheme = if is_set(&self.ca) { "https" } else { "http" };
        format!("{scheme}://{target}{}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_names_all_that_is_wrong_with_it() {
        let config: ScrapeConfig = toml::from_str(
            "targets = ['10.0.0.1:9']\npath = 'x'\ninterval_ms = 1\nlabels = { 'a-b' = 'c' }",
        )
        .unwrap();
        let mut found = Vec::new();
        config.check(&SecurityConfig::default(), &mut found);
        let keys: Vec<&str> = found.iter().map(|one| &*one.key).collect();
        let expected = [
            "job",
            "path",
            "targets",
            "interval_ms",
            "timeout_ms",
            "labels",
        ];
        assert_eq!(keys, expected.map(|key| format!("monitor.scrape.{key}")));
    }
}
