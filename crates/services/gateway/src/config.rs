//! Configuration of a director, in TOML.

use crate::backend::backend;
use crate::error::GatewayError;
use crate::expect::Expect;
use crate::failover::FailoverConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sheaf_planes::{BpfConfig, PlaneConfig, Registration, planes};
use sheaf_serve::{Affinity, CheckAt, ServiceConfig, check_services};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Port of a director for orders and its state.
const PORT: u16 = 7400;

/// Services of a director, and the director itself.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// The director.
    #[serde(default)]
    pub director: DirectorConfig,
    /// Directors that stand in for each other; one alone by default.
    #[serde(default)]
    pub failover: Option<FailoverConfig>,
    /// Expectations of `doctor` on a service beyond what directors need, by its name.
    #[serde(default)]
    pub expect: BTreeMap<String, Expect>,
    /// Services.
    #[serde(default, rename = "service")]
    pub services: Vec<ServiceConfig>,
}

/// The director itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DirectorConfig {
    /// Name in its state and logs.
    pub name: String,
    /// Name of the plane: `nft`, `nft-nat`, `tc`, `ipvs`, `haproxy` or `userspace`.
    pub plane: String,
    /// Network interface at which packets of clients come in, which `nft` and `tc` need.
    pub interface: String,
    /// Address of HTTP for orders and the state. A program that reaches it can give orders.
    pub listen: SocketAddr,
    /// Fate of the plane when the director stops.
    pub on_stop: OnStop,
    /// File in which drains, weights and further servers outlive the director; none by default.
    pub state: Option<PathBuf>,
    /// Folder of what a plane leaves running or noted, such as HAProxy; `/run/sheaf/NAME` by default.
    pub folder: Option<PathBuf>,
    /// Options of the plane `tc`.
    pub bpf: BpfConfig,
}

/// Fate of the plane when the director stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnStop {
    /// The kernel goes on with the table as it is.
    #[default]
    Keep,
    /// The table is removed: no new connection comes through.
    Undo,
}

impl Default for DirectorConfig {
    fn default() -> Self {
        Self {
            name: "director".to_owned(),
            plane: planes()[0].name.to_owned(),
            interface: String::new(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            on_stop: OnStop::Keep,
            state: None,
            folder: None,
            bpf: BpfConfig::default(),
        }
    }
}

impl GatewayConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    ///
    /// What cannot be read, or the first fault.
    pub fn load(path: &Path) -> Result<Self, GatewayError> {
        let text = std::fs::read_to_string(path).map_err(|error| GatewayError::Read {
            path: path.to_owned(),
            error,
        })?;
        let config: Self = toml::from_str(&text).map_err(|error| GatewayError::Parse {
            path: path.to_owned(),
            text: error.to_string(),
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), GatewayError> {
        check_services(&self.services)?;
        let plane = planes().iter().find(|row| row.name == self.director.plane);
        for service in &self.services {
            let is_by_client = service.affinity == Affinity::Client;
            if is_by_client && plane.is_some_and(|plane| !plane.keeps_clients) {
                return Err(GatewayError::Unfit {
                    service: service.name.clone(),
                    key: "affinity",
                    found: "\"client\"".to_owned(),
                    expected: "\"connection\", or one of the planes nft, tc and userspace",
                });
            }
            let is_virtual = service.health.at == CheckAt::Virtual;
            if is_virtual && plane.is_some_and(|plane| !plane.is_direct_return) {
                return Err(GatewayError::Unfit {
                    service: service.name.clone(),
                    key: "health.at",
                    found: "\"virtual\"".to_owned(),
                    expected: "\"server\", or a plane with direct return, where servers have the virtual addresses",
                });
            }
            if let Some(name) = &service.backend {
                backend(name)?.check(service)?;
            }
        }
        let director = &self.director;
        sheaf_planes::named(&director.plane, &self.plane())?;
        let needs_interface = self.row().is_some_and(|row| row.needs_interface);
        if director.interface.is_empty() && needs_interface {
            return Err(GatewayError::Key {
                key: "interface",
                found: String::new(),
                expected: format!(
                    "the name of a network interface, which plane {:?} needs",
                    director.plane
                ),
            });
        }
        if let Some(failover) = &self.failover {
            failover.check(&self.services)?;
            let (own, _) = failover.split(&director.name)?;
            let is_all = director.listen.ip().is_unspecified();
            if director.listen.port() != own.http.port()
                || !(is_all || director.listen.ip() == own.http.ip())
            {
                return Err(GatewayError::Key {
                    key: "listen",
                    found: director.listen.to_string(),
                    expected: format!(
                        "{}, as other directors ask there, or all addresses",
                        own.http
                    ),
                });
            }
        }
        for (name, expect) in &self.expect {
            let mut all = self.services.iter();
            if !all.any(|service| service.name == *name) {
                return Err(GatewayError::NoService {
                    found: name.clone(),
                    expected: self.names(),
                });
            }
            expect.check(name)?;
        }
        Ok(())
    }

    /// Returns the address for the agent of this machine: the first `agent` of a server whose address is here.
    ///
    /// # Errors
    ///
    /// [`GatewayError::NoAgentHere`] if there is none.
    pub fn agent_here(&self) -> Result<SocketAddr, GatewayError> {
        let servers = self.services.iter().flat_map(|service| &service.servers);
        let all: Vec<SocketAddr> = servers.filter_map(|server| server.agent).collect();
        // An address that is not of this machine cannot be bound.
        let mut here = all
            .iter()
            .filter(|agent| UdpSocket::bind((agent.ip(), 0)).is_ok());
        let found = here.next().copied();
        found.ok_or(GatewayError::NoAgentHere { expected: all })
    }

    /// Names of the services.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.services.iter().map(|service| service.name.clone());
        names.collect()
    }

    /// Whether packets reach the servers as clients sent them, and answers go past the director.
    #[must_use]
    pub fn is_direct_return(&self) -> bool {
        self.row().is_some_and(|row| row.is_direct_return)
    }

    /// Whether the plane lists connections of clients, so that drains need no agents.
    #[must_use]
    pub fn lists_connections(&self) -> bool {
        self.row().is_some_and(|row| row.lists_connections)
    }

    /// Whether connections go to the servers of their slots in the plane.
    #[must_use]
    pub fn follows_slots(&self) -> bool {
        self.row().is_some_and(|row| row.follows_slots)
    }

    fn row(&self) -> Option<&'static Registration> {
        let mut rows = planes().iter();
        rows.find(|row| row.name == self.director.plane)
    }

    /// Options of the plane.
    #[must_use]
    pub fn plane(&self) -> PlaneConfig {
        let longest = self.services.iter().map(|service| service.drain_s).max();
        PlaneConfig {
            interface: self.director.interface.clone(),
            fresh_s: longest.unwrap_or(3600) + 60,
            folder: self.director.folder.clone().unwrap_or_else(|| {
                let name = &self.director.name;
                Path::new("/run/sheaf").join(name)
            }),
            bpf: self.director.bpf.clone(),
        }
    }
}
