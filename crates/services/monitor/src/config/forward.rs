//! Configuration of forwarders: engines that get what the collector takes.

use super::security::{SecurityConfig, is_set};
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One `[[monitor.forward]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardConfig {
    /// Name in metrics and of the folder of the spool. If it is one of `monitor.processing.destinations`, the operator
    /// `route` says which samples go there; else all do.
    pub name: String,
    /// Protocol of the engine.
    pub kind: ForwardKind,
    /// URL that requests are sent to.
    pub url: String,
    /// PEM file of the CA of the engine, for `https`.
    pub ca: PathBuf,
    /// File whose first line is the token; empty: none.
    pub token_file: PathBuf,
    /// Folder of the spool; empty: `forward/NAME` below `monitor.data`.
    pub spool: PathBuf,
    /// MiB of the spool at most; beyond it the oldest samples are dropped and counted.
    pub spool_mib: u32,
    /// Samples of a request at most.
    pub request_samples_max: u32,
    /// Longest pause between two attempts, in ms; the first is 100 ms, and each is twice the one before.
    pub retry_ms_max: u64,
}

/// Protocol of a forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardKind {
    /// Prometheus remote write 1.0: VictoriaMetrics, Prometheus, Mimir, Thanos, another collector.
    #[default]
    RemoteWrite,
    /// InfluxDB line protocol, version 1 or 2.
    Influxdb,
    /// OTLP over HTTP, as protobuf.
    Otlp,
}

impl Default for ForwardConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: ForwardKind::default(),
            url: String::new(),
            ca: PathBuf::new(),
            token_file: PathBuf::new(),
            spool: PathBuf::new(),
            spool_mib: 1024,
            request_samples_max: 10_000,
            retry_ms_max: 10_000,
        }
    }
}

impl ForwardConfig {
    /// Adds what makes no sense; `data` is the folder of the store.
    pub(super) fn check(&self, data: &Path, security: &SecurityConfig, found: &mut Vec<Problem>) {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(is_name) {
            let expected = "a name of letters, digits, `-` and `_`";
            found.push(Problem::of("forward.name", &self.name, expected));
        }
        security.check_url("forward.url", &self.url, &self.ca, found);
        if !is_set(&self.spool) && !is_set(data) {
            let expected = "a folder, since monitor.data is none";
            found.push(Problem::of("forward.spool", &"none", expected));
        }
        let ranges = [
            ("spool_mib", u64::from(self.spool_mib), 1, 1 << 20),
            (
                "request_samples_max",
                u64::from(self.request_samples_max),
                1,
                100_000,
            ),
            ("retry_ms_max", self.retry_ms_max, 100, 600_000),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let key = format!("forward.{key}");
                found.push(Problem::of(&key, &value, &format!("{least} to {most}")));
            }
        }
    }

    /// Returns the folder of the spool.
    pub(crate) fn folder(&self, data: &Path) -> PathBuf {
        if is_set(&self.spool) {
            self.spool.clone()
        } else {
            data.join("forward").join(&self.name)
        }
    }
}
