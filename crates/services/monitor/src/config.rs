//! Configuration: the `[monitor]` table of a farm file.

mod forward;
mod inlets;
mod peers;
mod security;

pub use forward::{ForwardConfig, ForwardKind, Mechanism};
pub use inlets::{CollectdConfig, ScrapeConfig};
pub use peers::PeerConfig;
pub use security::SecurityConfig;
pub(crate) use security::is_set;

use crate::alarms::AlarmsSettings;
pub use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use sheaf_intake::IntakeConfig;
use sheaf_processing::ProcessingConfig;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The `[monitor]` table: where samples come in, where they are kept, how questions are asked.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorConfig {
    /// Address of HTTP: writing, queries, pages.
    pub http: String,
    /// UDP addresses of line protocol.
    pub udp: Vec<String>,
    /// Unix datagram sockets of line protocol.
    pub unix: Vec<PathBuf>,
    /// TCP addresses of line protocol.
    pub tcp: Vec<String>,
    /// UDP addresses of StatsD.
    pub statsd: Vec<String>,
    /// Threads that receive datagrams, each with a socket of its own at every UDP address.
    pub receivers: u32,
    /// Receive buffer asked for each socket of datagrams, in bytes.
    pub receive_buffer_bytes: u32,
    /// Folder of the store; empty: samples are kept in memory and end with the process.
    pub data: PathBuf,
    /// Period of commits, in ms: what was taken is on disk that much later.
    pub commit_ms: u64,
    /// Samples that may wait for the store; with more nothing is received.
    pub queue_samples_max: u32,
    /// Connections of HTTP and TCP at a time.
    pub connections_max: u32,
    /// Bytes of a request at most, as sent.
    pub request_bytes_max: u32,
    /// Live streams at a time.
    pub live_max: u32,
    /// Packets of collectd.
    pub collectd: CollectdConfig,
    /// Pages with metrics that are read.
    pub scrape: Vec<ScrapeConfig>,
    /// Engines that get what the collector takes.
    pub forward: Vec<ForwardConfig>,
    /// Collectors side by side, whose sources answer to questions here as well.
    pub peer: Vec<PeerConfig>,
    /// URL of an engine that answers the queries of the Prometheus API; empty: the own store does.
    pub query_from: String,
    /// Rights of clients, and what travels in the clear.
    pub security: SecurityConfig,
    /// Bounds of each source.
    pub intake: IntakeConfig,
    /// Operators between intake and store.
    pub processing: ProcessingConfig,
    /// How long what is kept.
    pub store: StoreConfig,
    /// Rules, routes and orders of alarms.
    pub alarms: AlarmsSettings,
}

/// The `[monitor.store]` table: retention by level and bounds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Days that samples are kept.
    pub raw_days: u32,
    /// Days that buckets of 10 s are kept.
    pub ten_seconds_days: u32,
    /// Days that buckets of 1 min are kept.
    pub minute_days: u32,
    /// Days that buckets of 1 h are kept.
    pub hour_days: u32,
    /// Series at most.
    pub series_max: u32,
    /// MiB that stay free on the disk; below, intake is refused.
    pub reserve_mib: u32,
    /// Whether the oldest samples go when the disk is full, so that new ones are taken.
    pub drop_oldest_when_full: bool,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            http: "127.0.0.1:9470".to_owned(),
            udp: vec!["127.0.0.1:8089".to_owned()],
            unix: Vec::new(),
            tcp: Vec::new(),
            statsd: Vec::new(),
            receivers: 1,
            receive_buffer_bytes: 8 << 20,
            data: PathBuf::from("monitor"),
            commit_ms: 100,
            queue_samples_max: 1_000_000,
            connections_max: 512,
            request_bytes_max: 32 << 20,
            live_max: 64,
            collectd: CollectdConfig::default(),
            scrape: Vec::new(),
            forward: Vec::new(),
            peer: Vec::new(),
            query_from: String::new(),
            security: SecurityConfig::default(),
            intake: IntakeConfig::default(),
            processing: ProcessingConfig::default(),
            store: StoreConfig::default(),
            alarms: AlarmsSettings::default(),
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            raw_days: 7,
            ten_seconds_days: 30,
            minute_days: 90,
            hour_days: 5 * 365,
            series_max: 1_000_000,
            reserve_mib: 256,
            drop_oldest_when_full: false,
        }
    }
}

impl StoreConfig {
    /// Returns the settings of the store.
    #[must_use]
    pub fn settings(&self) -> sheaf_sample_store::Config {
        let days = |days: u32| i64::from(days) * 86_400_000;
        sheaf_sample_store::Config {
            series_max: self.series_max,
            raw_ms: days(self.raw_days),
            ten_seconds_ms: days(self.ten_seconds_days),
            minute_ms: days(self.minute_days),
            hour_ms: days(self.hour_days),
            reserve_bytes: u64::from(self.reserve_mib) << 20,
            ..sheaf_sample_store::Config::default()
        }
    }
}

impl MonitorConfig {
    /// Returns everything that makes no sense.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let of = Problem::of;
        self.security.check(&mut found);
        for (key, list) in [
            ("http", std::slice::from_ref(&self.http)),
            ("tcp", &self.tcp[..]),
        ] {
            for text in list {
                self.security.check_stream(key, text, &mut found);
            }
        }
        let collectd = &self.collectd;
        let is_signed = collectd.require_signature && is_set(&collectd.auth_file);
        let datagrams = [
            ("udp", &self.udp, false),
            ("statsd", &self.statsd, false),
            ("collectd.udp", &collectd.udp, is_signed),
        ];
        for (key, list, is_proven) in datagrams {
            for text in list {
                self.security
                    .check_datagrams(key, text, is_proven, &mut found);
            }
        }
        collectd.check(&mut found);
        for job in &self.scrape {
            job.check(&self.security, &mut found);
        }
        let mut names = BTreeSet::new();
        for forward in &self.forward {
            forward.check(&self.data, &self.security, &mut found);
            if !names.insert(&forward.name) {
                found.push(of("forward.name", &forward.name, "a name of its own"));
            }
        }
        let mut urls = BTreeSet::new();
        for peer in &self.peer {
            peer.check(&self.security, &mut found);
            if !urls.insert(&peer.url) {
                found.push(of("peer.url", &peer.url, "each collector once"));
            }
        }
        if !self.query_from.is_empty() {
            let none = std::path::Path::new("");
            self.security
                .check_url("query_from", &self.query_from, none, &mut found);
        }
        let ranges = [
            ("receivers", u64::from(self.receivers), 1, 64),
            ("commit_ms", self.commit_ms, 10, 10_000),
            (
                "queue_samples_max",
                u64::from(self.queue_samples_max),
                1_000,
                u64::from(u32::MAX),
            ),
            (
                "connections_max",
                u64::from(self.connections_max),
                1,
                65_536,
            ),
            ("live_max", u64::from(self.live_max), 1, 10_000),
            (
                "request_bytes_max",
                u64::from(self.request_bytes_max),
                1_024,
                1 << 30,
            ),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                found.push(of(key, &value, &format!("{least} to {most}")));
            }
        }
        let role = sheaf_processing::Role::Whole;
        if let Err(errors) = sheaf_processing::Pipeline::new(&self.processing, role) {
            found.push(of(
                "processing",
                &errors,
                "operators as in docs/reference/processing.md",
            ));
        }
        found.extend(self.alarms.problems());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_order() {
        assert_eq!(MonitorConfig::default().problems(), []);
        let config: MonitorConfig =
            toml::from_str("receivers = 2\n[intake]\nseries_max = 5").unwrap();
        assert_eq!((config.receivers, config.intake.series_max), (2, 5));
    }

    #[test]
    fn all_problems_come_at_once_by_key() {
        let config = MonitorConfig {
            http: "0.0.0.0:80".to_owned(),
            udp: vec!["nowhere".to_owned()],
            receivers: 0,
            ..MonitorConfig::default()
        };
        let found = config.problems();
        assert_eq!(found.len(), 3, "{found:#?}");
        let keys: Vec<&str> = found.iter().map(|problem| &*problem.key).collect();
        assert_eq!(keys, ["monitor.http", "monitor.udp", "monitor.receivers"]);
        let open = MonitorConfig {
            http: "0.0.0.0:80".to_owned(),
            security: SecurityConfig {
                insecure: true,
                ..SecurityConfig::default()
            },
            ..MonitorConfig::default()
        };
        assert!(open.problems().is_empty());
        let peer = |url: &str| PeerConfig {
            url: url.to_owned(),
            ..PeerConfig::default()
        };
        let beside = MonitorConfig {
            peer: [
                "http://127.0.0.1:1",
                "http://10.0.0.1:1",
                "x",
                "http://127.0.0.1:1",
            ]
            .map(peer)
            .to_vec(),
            ..MonitorConfig::default()
        };
        let found = beside.problems();
        let keys: Vec<&str> = found.iter().map(|problem| &*problem.key).collect();
        assert_eq!(keys, ["monitor.peer.url"; 3], "{found:#?}");
    }
}
