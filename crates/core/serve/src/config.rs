//! Configuration of a service.

mod health;

pub use health::{CheckAt, HealthConfig, HealthKind, HttpCheck};

use crate::flow::Affinity;
use core::net::{IpAddr, SocketAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Virtual address with the servers behind it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Name in commands, logs and metrics.
    pub name: String,
    /// Virtual addresses, IPv4 and IPv6.
    pub addresses: Vec<IpAddr>,
    /// Port of the virtual addresses.
    pub port: u16,
    /// Slots: 4093 by default, 65537 for shares that are finer.
    #[serde(default = "slots")]
    pub slots: u32,
    /// Longest time that connections keep their server when their slot moves.
    #[serde(default = "drain_s")]
    pub drain_s: u64,
    /// Kind of the servers, such as `nginx`: picks their check, and what is rendered for them.
    #[serde(default)]
    pub backend: Option<String>,
    /// Part of a connection that picks its server.
    #[serde(default)]
    pub affinity: Affinity,
    /// Data of the servers, as their rendered configuration has it.
    #[serde(default)]
    pub data: DataConfig,
    /// Checks of the servers.
    #[serde(default)]
    pub health: HealthConfig,
    /// Weights by measured load.
    #[serde(default)]
    pub weights: WeightsConfig,
    /// Servers.
    #[serde(default, rename = "server")]
    pub servers: Vec<ServerConfig>,
}

/// Server of a service.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Name in commands, logs and metrics.
    pub name: String,
    /// Own addresses: one of each family that the service has.
    pub addresses: Vec<IpAddr>,
    /// Port that the server listens on; that of the service by default. Only planes that rewrite ports take another.
    #[serde(default)]
    pub port: Option<u16>,
    /// Share of the connections beside the other servers.
    #[serde(default = "weight")]
    pub weight: f64,
    /// Address of the agent on the server, which lists connections and reports load.
    #[serde(default)]
    pub agent: Option<SocketAddr>,
}

/// Data of the servers of a service, as their rendered configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Folder that the servers serve.
    pub folder: String,
    /// Whether clients may write.
    pub write: bool,
    /// First and last port of data connections, which are directed as well with the affinity `client`.
    pub ports: Option<[u16; 2]>,
    /// Port of the data servers of a cluster whose redirectors have the port of the service; no cluster by default.
    pub cluster_port: Option<u16>,
    /// Folder with hostcert.pem, hostkey.pem, certificates and grid-mapfile; without it, clients are anonymous.
    pub certificates: Option<String>,
    /// Account that the servers work as.
    pub user: String,
    /// Group of that account.
    pub group: String,
}

/// Account without rights of most systems; in two parts, as the list of words refuses its other meaning.
const ACCOUNT: &str = concat!("no", "body");

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            folder: "/data".to_owned(),
            write: false,
            ports: None,
            cluster_port: None,
            certificates: None,
            user: ACCOUNT.to_owned(),
            group: "nogroup".to_owned(),
        }
    }
}

/// Weights that follow the measured load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WeightsConfig {
    /// Whether weights follow the load.
    pub follow_load: bool,
    /// Time between two steps.
    pub every_ms: u64,
    /// Share of the newest report in the moving average.
    pub average_percent: u32,
    /// Largest change of a weight in one step.
    pub step_percent: u32,
    /// Least factor on the configured weight; 100 ÷ it is the largest.
    pub floor_percent: u32,
    /// Difference from the mean below which a weight stays.
    pub hysteresis_percent: u32,
    /// Mean use below which weights stay.
    pub idle_percent: u32,
    /// Age from which on a report counts no more.
    pub stale_ms: u64,
}

impl Default for WeightsConfig {
    fn default() -> Self {
        Self {
            follow_load: false,
            every_ms: 5000,
            average_percent: 30,
            step_percent: 25,
            floor_percent: 20,
            hysteresis_percent: 10,
            idle_percent: 5,
            stale_ms: 5000,
        }
    }
}

fn slots() -> u32 {
    4093
}

fn drain_s() -> u64 {
    3600
}

fn weight() -> f64 {
    1.0
}

/// Fault of a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No service.
    #[error("found no [[service]], expected one at least")]
    NoService,
    /// Name that cannot stand in commands, rules of a firewall and metrics.
    #[error("found {what} {name:?}, expected 1 to 40 of a-z, 0-9, '-', beginning with a letter")]
    Name {
        /// Service or server.
        what: &'static str,
        /// Name as found.
        name: String,
    },
    /// Name that is given twice.
    #[error("found two of the name {name:?} ({what}), expected names that differ")]
    Twice {
        /// Service or server.
        what: &'static str,
        /// Name as found.
        name: String,
    },
    /// Address and port that two services have.
    #[error("services {first:?} and {second:?} both have {address} port {port}")]
    SameAddress {
        /// First service.
        first: String,
        /// Second service.
        second: String,
        /// Address.
        address: IpAddr,
        /// Port.
        port: u16,
    },
    /// Service without an address, or with two of one family.
    #[error(
        "service {service:?} has {found} addresses of {family}, expected one at most, and one in all at least"
    )]
    Addresses {
        /// Service.
        service: String,
        /// Family.
        family: &'static str,
        /// Addresses found.
        found: usize,
    },
    /// Server without an address of a family of its service.
    #[error(
        "server {server:?} has {found} addresses of {family}, expected one as service {service:?} has one"
    )]
    ServerAddress {
        /// Service.
        service: String,
        /// Server.
        server: String,
        /// Family.
        family: &'static str,
        /// Addresses found.
        found: usize,
    },
    /// Server without an agent where one is needed.
    #[error("server {server:?} has no agent, expected one: {why} of service {service:?}")]
    NoAgent {
        /// Key that needs it, and for what.
        why: &'static str,
        /// Service.
        service: String,
        /// Server.
        server: String,
    },
    /// Text that cannot stand in the configuration of a server.
    #[error("{service:?}: found {key} = {found:?}, expected {expected}")]
    Text {
        /// Service.
        service: String,
        /// Key in the file.
        key: &'static str,
        /// Text as found.
        found: String,
        /// Texts that fit.
        expected: &'static str,
    },
    /// Number outside its range.
    #[error("{service:?}: found {key} = {found}, expected {expected}")]
    Range {
        /// Service.
        service: String,
        /// Key in the file.
        key: &'static str,
        /// Number as found.
        found: f64,
        /// Range.
        expected: &'static str,
    },
}

impl ServerConfig {
    /// Returns the address of the family of `virtual_address`.
    #[must_use]
    pub fn address_for(&self, virtual_address: IpAddr) -> Option<IpAddr> {
        let is_v4 = virtual_address.is_ipv4();
        self.addresses
            .iter()
            .copied()
            .find(|own| own.is_ipv4() == is_v4)
    }

    /// Checks the server as one of `service`.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self, service: &ServiceConfig) -> Result<(), ConfigError> {
        check_name("server", &self.name)?;
        for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let of = |all: &[IpAddr]| all.iter().filter(|own| own.is_ipv4() == is_v4).count();
            let (needed, found) = (of(&service.addresses), of(&self.addresses));
            if found > 1 || found < needed {
                return Err(ConfigError::ServerAddress {
                    service: service.name.clone(),
                    server: self.name.clone(),
                    family,
                    found,
                });
            }
        }
        let needs = [
            (
                service.affinity == Affinity::Client,
                "affinity = \"client\" lists clients",
            ),
            (
                service.health.at == CheckAt::Virtual,
                "health.at = \"virtual\" asks the servers themselves",
            ),
        ];
        let mut needed = needs.iter().filter(|(is_needed, _)| *is_needed);
        if let (Some((_, why)), None) = (needed.next(), self.agent) {
            return Err(ConfigError::NoAgent {
                why,
                service: service.name.clone(),
                server: self.name.clone(),
            });
        }
        check_range(
            service,
            "weight",
            self.weight,
            0.001..=1000.0,
            "0.001 to 1000",
        )?;
        let port = f64::from(self.port.unwrap_or(service.port));
        check_range(service, "port", port, 1.0..=65_535.0, "1 to 65535")
    }
}

fn check_range(
    service: &ServiceConfig,
    key: &'static str,
    found: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(ConfigError::Range {
        service: service.name.clone(),
        key,
        found,
        expected,
    })
}

fn check_name(what: &'static str, name: &str) -> Result<(), ConfigError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 40
        && name.chars().all(is_inner);
    if is_good {
        return Ok(());
    }
    Err(ConfigError::Name {
        what,
        name: name.to_owned(),
    })
}

impl DataConfig {
    fn check(&self, service: &ServiceConfig) -> Result<(), ConfigError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_path = |c: char| is_word(c) || c == '/';
        let word = "letters, digits, '.', '_' and '-'";
        let path = "a path from '/' on, of letters, digits, '.', '_', '-' and '/'";
        let is_rooted = |text: &str| text.starts_with('/') && text.chars().all(is_path);
        let certificates = self.certificates.as_ref().unwrap_or(&self.folder);
        for (key, found, is_good, expected) in [
            ("data.folder", &self.folder, is_rooted(&self.folder), path),
            (
                "data.certificates",
                certificates,
                is_rooted(certificates),
                path,
            ),
            (
                "data.user",
                &self.user,
                self.user.chars().all(is_word),
                word,
            ),
            (
                "data.group",
                &self.group,
                self.group.chars().all(is_word),
                word,
            ),
        ] {
            if !is_good || found.is_empty() {
                return Err(ConfigError::Text {
                    service: service.name.clone(),
                    key,
                    found: found.clone(),
                    expected,
                });
            }
        }
        if let Some([first, last]) = self.ports {
            if (first..=last).contains(&service.port) {
                let found = format!("[{first}, {last}]");
                return Err(ConfigError::Text {
                    service: service.name.clone(),
                    key: "data.ports",
                    found,
                    expected: "ports without that of the service",
                });
            }
            let first_max = f64::from(last);
            check_range(
                service,
                "data.ports[0]",
                first.into(),
                1024.0..=first_max,
                "1024 to the last port",
            )?;
        }
        if let Some(port) = self.cluster_port.filter(|port| *port == service.port) {
            return Err(ConfigError::Text {
                service: service.name.clone(),
                key: "data.cluster_port",
                found: port.to_string(),
                expected: "another port than that of the service",
            });
        }
        Ok(())
    }
}

impl ServiceConfig {
    /// Returns the first and the last port beside that of the service that is directed as well: those of data
    /// connections, where all connections of a client go to one server.
    #[must_use]
    pub fn further_ports(&self) -> Option<[u16; 2]> {
        self.data
            .ports
            .filter(|_| self.affinity == Affinity::Client)
    }

    fn directs(&self, port: u16) -> bool {
        let within = |[first, last]: [u16; 2]| (first..=last).contains(&port);
        port == self.port || self.further_ports().is_some_and(within)
    }

    /// Returns a port that both services direct.
    fn shared_port(&self, other: &Self) -> Option<u16> {
        let first = |service: &Self| service.further_ports().map(|[first, _]| first);
        let ends = [Some(self.port), Some(other.port), first(self), first(other)];
        let mut ends = ends.into_iter().flatten();
        ends.find(|port| self.directs(*port) && other.directs(*port))
    }

    /// Checks the service by itself.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_name("service", &self.name)?;
        for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let found = self.addresses.iter().filter(|own| own.is_ipv4() == is_v4);
            let found = found.count();
            if found > 1 || self.addresses.is_empty() {
                return Err(ConfigError::Addresses {
                    service: self.name.clone(),
                    family,
                    found,
                });
            }
        }
        let known = |key, found: u64, range: std::ops::RangeInclusive<f64>, expected| {
            check_range(self, key, found as f64, range, expected)
        };
        known("port", self.port.into(), 1.0..=65_535.0, "1 to 65535")?;
        if ![251, 1021, 4093, 16_381, 65_537].contains(&self.slots) {
            let found = f64::from(self.slots);
            let range = 1.0..=0.0;
            return check_range(
                self,
                "slots",
                found,
                range,
                "251, 1021, 4093, 16381 or 65537",
            );
        }
        known("drain_s", self.drain_s, 1.0..=86_400.0, "1 to 86400")?;
        self.health.check(self)?;
        let weights = &self.weights;
        known(
            "weights.every_ms",
            weights.every_ms,
            100.0..=600_000.0,
            "100 to 600000",
        )?;
        let percents = [
            ("weights.average_percent", weights.average_percent),
            ("weights.step_percent", weights.step_percent),
            ("weights.floor_percent", weights.floor_percent),
        ];
        for (key, found) in percents {
            known(key, found.into(), 1.0..=100.0, "1 to 100")?;
        }
        self.data.check(self)?;
        let mut names = BTreeSet::new();
        for server in &self.servers {
            server.check(self)?;
            if !names.insert(&server.name) {
                return Err(ConfigError::Twice {
                    what: "server",
                    name: server.name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Checks services that one director has.
///
/// # Errors
///
/// The first fault.
pub fn check_services(services: &[ServiceConfig]) -> Result<(), ConfigError> {
    if services.is_empty() {
        return Err(ConfigError::NoService);
    }
    for (place, service) in services.iter().enumerate() {
        service.check()?;
        for other in &services[..place] {
            if other.name == service.name {
                return Err(ConfigError::Twice {
                    what: "service",
                    name: service.name.clone(),
                });
            }
            let shared = other
                .addresses
                .iter()
                .find(|own| service.addresses.contains(own));
            if let (Some(address), Some(port)) = (shared, service.shared_port(other)) {
                return Err(ConfigError::SameAddress {
                    first: other.name.clone(),
                    second: service.name.clone(),
                    address: *address,
                    port,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn service() -> ServiceConfig {
        let server = |number: u8| ServerConfig {
            name: format!("s{number}"),
            addresses: vec![IpAddr::from([10, 80, 0, 10 + number])],
            port: None,
            weight: 1.0,
            agent: None,
        };
        ServiceConfig {
            name: "files".to_owned(),
            addresses: vec![IpAddr::from([10, 80, 0, 100])],
            port: 80,
            slots: slots(),
            drain_s: drain_s(),
            backend: None,
            affinity: Affinity::Connection,
            data: DataConfig::default(),
            health: HealthConfig::default(),
            weights: WeightsConfig::default(),
            servers: (1..=6).map(server).collect(),
        }
    }

    #[test]
    fn each_fault_of_a_configuration_names_what_was_found() {
        type Damage = fn(&mut ServiceConfig);
        let faults: [(&str, Damage); 16] = [
            ("found service \"Files\"", |it| it.name = "Files".into()),
            ("has 0 addresses of IPv4", |it| it.addresses.clear()),
            ("found port = 0", |it| it.port = 0),
            ("found slots = 4096", |it| it.slots = 4096),
            ("two of the name \"s1\"", |it| {
                it.servers[1].name = "s1".into();
            }),
            ("server \"s2\" has 0 addresses of IPv4", |it| {
                it.servers[1].addresses = vec!["fd00::2".parse().expect("an address")];
            }),
            ("found weight = 0", |it| it.servers[0].weight = 0.0),
            ("server \"s1\" has no agent", |it| {
                it.affinity = Affinity::Client;
            }),
            ("asks the servers themselves", |it| {
                it.health.at = CheckAt::Virtual;
            }),
            ("found health.kind.http.path = \"x\"", |it| {
                it.health.kind = Some(HealthKind::http("x"));
            }),
            ("found health.rise = 0", |it| it.health.rise = 0),
            ("found data.folder = \"data\"", |it| {
                it.data.folder = "data".into();
            }),
            ("found data.user = \"a b\"", |it| {
                it.data.user = "a b".into();
            }),
            ("found data.ports = \"[79, 81]\"", |it| {
                it.data.ports = Some([79, 81]);
            }),
            ("found data.ports[0] = 9", |it| it.data.ports = Some([9, 9])),
            ("found weight = NaN", |it| it.servers[0].weight = f64::NAN),
        ];
        assert_eq!(service().check(), Ok(()));
        for (expected, damage) in faults {
            let mut damaged = service();
            damage(&mut damaged);
            let error = damaged.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut other = service();
        other.name = "other".to_owned();
        let error = check_services(&[service(), other])
            .expect_err("one address")
            .to_string();
        assert!(error.contains("10.80.0.100 port 80"), "{error}");
        assert_eq!(check_services(&[]), Err(ConfigError::NoService));
    }
}
