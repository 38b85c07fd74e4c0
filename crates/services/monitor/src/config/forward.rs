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
    /// URL that requests are sent to; none for `kafka`.
    pub url: String,
    /// Addresses such as `127.0.0.1:9092` that a cluster of Kafka is found by; only for `kafka`.
    pub brokers: Vec<String>,
    /// Topic of Kafka; it has to exist.
    pub topic: String,
    /// Name that the collector proves itself by at a broker of Kafka; empty: none. Its password is in `token_file`.
    pub user: String,
    /// How name and password are proven to a broker.
    pub mechanism: Mechanism,
    /// PEM file of the CA of the engine, for `https`; with it connections to brokers of Kafka are TLS.
    pub ca: PathBuf,
    /// File whose first line is the token, or the password of `user`; empty: none.
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
    /// A topic of Kafka, a JSON object a sample.
    Kafka,
}

/// Mechanism of SASL, by which a client of Kafka proves itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Mechanism {
    /// The password itself is sent.
    #[serde(rename = "plain")]
    Plain,
    /// SCRAM with SHA-256 (RFC 7677).
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[default]
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Longest name of a topic.
const TOPIC_BYTES_MAX: usize = 249;

impl Default for ForwardConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: ForwardKind::default(),
            url: String::new(),
            brokers: Vec::new(),
            topic: String::new(),
            user: String::new(),
            mechanism: Mechanism::default(),
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
        if self.kind == ForwardKind::Kafka {
            self.check_kafka(security, found);
        } else {
            security.check_url("forward.url", &self.url, &self.ca, found);
            let of_kafka = [
                ("brokers", self.brokers.join(",")),
                ("topic", self.topic.clone()),
                ("user", self.user.clone()),
            ];
            for (key, value) in of_kafka.iter().filter(|one| !one.1.is_empty()) {
                let expected = "none, since only kind = \"kafka\" has it";
                found.push(Problem::of(&format!("forward.{key}"), value, expected));
            }
        }
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

    fn check_kafka(&self, security: &SecurityConfig, found: &mut Vec<Problem>) {
        if !self.url.is_empty() {
            let expected = "none, since kind = \"kafka\" has brokers and topic";
            found.push(Problem::of("forward.url", &self.url, expected));
        }
        if self.brokers.is_empty() {
            let expected = "addresses such as 127.0.0.1:9092";
            found.push(Problem::of("forward.brokers", &"none", expected));
        }
        for broker in &self.brokers {
            security.check_broker("forward.brokers", broker, is_set(&self.ca), found);
        }
        let is_of_topics = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_topic = (1..=TOPIC_BYTES_MAX).contains(&self.topic.len())
            && self.topic.bytes().all(is_of_topics)
            && ![".", ".."].contains(&&*self.topic);
        if !is_topic {
            let expected = "the name of a topic: up to 249 letters, digits, `.`, `_` and `-`";
            found.push(Problem::of("forward.topic", &self.topic, expected));
        }
        if self.user.is_empty() == is_set(&self.token_file) {
            let text = "one of user and token_file";
            found.push(Problem::of("forward", &text, "both or none"));
        }
    }

    /// Returns where it sends to, as a text for messages.
    pub(crate) fn place(&self) -> String {
        match self.kind {
            ForwardKind::Kafka => format!("{}/{}", self.brokers.join(","), self.topic),
            _ => self.url.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonitorConfig;

    #[track_caller]
    fn check(table: &str, expected: &[&str]) {
        let text = format!("[[forward]]\nname = 'bus'\n{table}");
        let config: MonitorConfig = toml::from_str(&text).unwrap();
        let found: Vec<String> = config.problems().iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{table}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}; expected {expected}");
        }
    }

    #[test]
    fn kafka_needs_brokers_and_a_topic_and_says_which() {
        let check = |table: &str, expected| check(&format!("kind = 'kafka'\n{table}"), expected);
        check(
            "brokers = ['127.0.0.1:9092', 'localhost:1', '[::1]:9092']\ntopic = 'farm.v1'",
            &[],
        );
        check("", &["brokers: found none", "the name of a topic"]);
        check(
            "url = 'http://127.0.0.1/'\nbrokers = ['127.0.0.1']\ntopic = 'a b'",
            &["has brokers and topic", "a host and a port", "found a b"],
        );
        check(
            "brokers = ['localhost:0', 'http://a:1', ':1', 'a,b:1']\ntopic = '..'",
            &["localhost:0", "http://a:1", "found :1", "a,b:1", "found .."],
        );
        let long = "t".repeat(250);
        check(
            &format!("brokers = ['localhost:1']\ntopic = '{long}'"),
            &["up to 249 letters"],
        );
    }

    #[test]
    fn kafka_off_this_machine_needs_tls_and_a_user_a_password() {
        let check = |table: &str, expected| {
            check(&format!("kind = 'kafka'\ntopic = 't'\n{table}"), expected);
        };
        check("brokers = ['bus1:9092']", &["the key ca, which makes"]);
        check("brokers = ['bus1:9093']\nca = 'ca.pem'", &[]);
        check(
            "brokers = ['[fd00::1]:9093']\nca = 'ca.pem'",
            &["a name or an IPv4 address"],
        );
        let here = "brokers = ['localhost:9092']";
        check(&format!("{here}\nuser = 'u'"), &["both or none"]);
        check(&format!("{here}\ntoken_file = 'p'"), &["both or none"]);
        check(&format!("{here}\nuser = 'u'\ntoken_file = 'p'"), &[]);
    }

    #[test]
    fn other_kinds_have_no_keys_of_kafka() {
        check(
            "url = 'http://127.0.0.1/'\nbrokers = ['a:1']\ntopic = 't'\nuser = 'u'",
            &["forward.brokers: found a:1", "found t", "found u"],
        );
    }

    #[test]
    fn mechanisms_have_the_names_of_sasl_and_others_are_refused() {
        for (text, mechanism) in [
            ("plain", Mechanism::Plain),
            ("scram-sha-256", Mechanism::ScramSha256),
            ("scram-sha-512", Mechanism::ScramSha512),
        ] {
            let config: ForwardConfig = toml::from_str(&format!("mechanism = '{text}'")).unwrap();
            assert_eq!(config.mechanism, mechanism);
        }
        let wrong = toml::from_str::<ForwardConfig>("mechanism = 'gssapi'").unwrap_err();
        assert!(wrong.to_string().contains("scram-sha-512"), "{wrong}");
    }
}
