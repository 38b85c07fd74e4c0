//! Kinds of servers that a director stands in front of: what is rendered for them, and how they are checked.
//!
//! All kinds are rows of one table ([`backends`]). A service names its kind by `backend = "…"`; that picks the check
//! of its servers, and what [`Backend::render`] makes of its configuration for one of them.

mod gridftp;
mod nginx;
mod own;
mod xrootd;

use crate::error::GatewayError;
use serde::Serialize;
use sheaf_serve::{HealthKind, ServerConfig, ServiceConfig};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Row of the table of kinds.
#[derive(Debug, Serialize)]
pub struct Backend {
    /// Name in configurations.
    pub name: &'static str,
    /// One line of help.
    pub summary: &'static str,
    /// Port that its clients expect.
    pub port: u16,
    /// Further ports that it needs.
    pub further_ports: &'static str,
    /// Packages of Debian with its programs, and with those of its clients.
    pub packages: &'static [&'static str],
    /// Load of its own that it can report, beside that of its machine and its connections, which agents report.
    pub load: &'static str,
    /// Way of its bytes to the client, and whether direct return fits it.
    pub data: &'static str,
    #[serde(skip)]
    probe: fn() -> HealthKind,
    #[serde(skip)]
    check: fn(&ServiceConfig) -> Result<(), GatewayError>,
    #[serde(skip)]
    render: fn(&Site<'_>) -> Rendered,
}

/// Configuration of one server, made of that of the director.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rendered {
    /// Kind of the server.
    pub backend: &'static str,
    /// Name of the service.
    pub service: String,
    /// Name of the server.
    pub server: String,
    /// Files.
    pub files: Vec<RenderedFile>,
    /// Commands that make the folders of its state, before the first start.
    pub prepare: Vec<String>,
    /// Commands that run the server, one for each of its programs, in the foreground.
    pub commands: Vec<String>,
    /// Commands of clients, as examples.
    pub clients: Vec<String>,
    /// Remarks on what is to be there beside the files.
    pub notes: Vec<String>,
}

/// File of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RenderedFile {
    /// Path.
    pub path: String,
    /// Text.
    pub text: String,
}

/// Folders of the servers of a director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Folder of the configuration.
    pub config: PathBuf,
    /// Folder of the state: sockets, ids of processes, logs.
    pub state: PathBuf,
}

impl Default for Folders {
    fn default() -> Self {
        Self {
            config: "/etc/sheaf".into(),
            state: "/run/sheaf".into(),
        }
    }
}

/// Server of a service, and where its files lie.
pub(super) struct Site<'a> {
    service: &'a ServiceConfig,
    server: &'a ServerConfig,
    /// Whether packets reach the server with the virtual address.
    is_direct_return: bool,
    config: &'a str,
    state: &'a str,
}

impl Site<'_> {
    /// Returns the path of a file of the configuration.
    fn path(&self, name: &str) -> String {
        self.within(self.config, name)
    }

    /// Returns the path of a file or a folder of the state.
    fn state(&self, name: &str) -> String {
        self.within(self.state, name)
    }

    fn within(&self, folder: &str, name: &str) -> String {
        let folder = folder.trim_end_matches('/');
        format!("{folder}/{}-{}-{name}", self.service.name, self.server.name)
    }

    fn port(&self) -> u16 {
        self.server.port.unwrap_or(self.service.port)
    }

    /// Returns the addresses to listen on: the virtual ones for packets of clients, and the server's own for checks.
    fn addresses(&self) -> Vec<IpAddr> {
        let own = self.server.addresses.iter().copied();
        let virtual_ones = self.service.addresses.iter().copied();
        let virtual_ones = virtual_ones.filter(|_| self.is_direct_return);
        virtual_ones.chain(own).collect()
    }

    /// Returns address and port of the service as a URL has them, without the port if it is `usual`.
    fn authority(&self, usual: u16) -> String {
        let address = match self.service.addresses.first() {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            Some(IpAddr::V4(address)) => address.to_string(),
            None => String::new(),
        };
        match self.service.port {
            port if port == usual => address,
            port => format!("{address}:{port}"),
        }
    }

    /// Returns the first line of a file, a comment.
    fn head(&self, what: &str) -> String {
        let (server, service) = (&self.server.name, &self.service.name);
        format!("# Server {server} of service {service}: {what}. Made by `sheaf serve backend`.\n")
    }

    fn rendered(&self, backend: &'static str) -> Rendered {
        let mut notes = Vec::new();
        if self.is_direct_return {
            let addresses: Vec<String> = self
                .service
                .addresses
                .iter()
                .map(IpAddr::to_string)
                .collect();
            let addresses = addresses.join(" and ");
            notes.push(format!(
                "{addresses} on lo of the server, which does not answer for it: see docs/how-to/serve.md"
            ));
        }
        Rendered {
            backend,
            service: self.service.name.clone(),
            server: self.server.name.clone(),
            notes,
            ..Rendered::default()
        }
    }
}

/// All kinds.
#[must_use]
pub fn backends() -> &'static [Backend] {
    &[
        own::BACKEND,
        nginx::BACKEND,
        xrootd::BACKEND,
        gridftp::BACKEND,
    ]
}

/// Returns the kind with this name.
///
/// # Errors
///
/// [`GatewayError::Backend`].
pub fn backend(name: &str) -> Result<&'static Backend, GatewayError> {
    let mut all = backends().iter();
    all.find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<&str> = backends().iter().map(|row| row.name).collect();
        GatewayError::Backend {
            found: name.to_owned(),
            expected: names.join(", "),
        }
    })
}

impl Backend {
    /// Returns the check of a server unless the configuration has another.
    #[must_use]
    pub fn probe(&self) -> HealthKind {
        (self.probe)()
    }

    /// Makes the configuration of a server of `service`, with files in `folders`. With direct return packets reach the
    /// server with the virtual address.
    ///
    /// # Errors
    ///
    /// A folder that cannot stand in the configuration, or a service that does not fit the kind.
    pub fn render(
        &self,
        service: &ServiceConfig,
        server: &ServerConfig,
        is_direct_return: bool,
        folders: &Folders,
    ) -> Result<Rendered, GatewayError> {
        self.check(service)?;
        Ok((self.render)(&Site {
            service,
            server,
            is_direct_return,
            config: words(&folders.config)?,
            state: words(&folders.state)?,
        }))
    }

    /// Checks that a service fits the kind.
    ///
    /// # Errors
    ///
    /// The first key that does not.
    pub fn check(&self, service: &ServiceConfig) -> Result<(), GatewayError> {
        (self.check)(service)
    }
}

/// Returns the check of the servers of a service: that of its configuration, or that of its kind.
#[must_use]
pub(crate) fn health_kind(service: &ServiceConfig) -> HealthKind {
    let of_kind = || {
        let name = service.backend.as_deref()?;
        backend(name).ok().map(Backend::probe)
    };
    let own = service.health.kind.clone();
    own.or_else(of_kind).unwrap_or_default()
}

/// Returns a folder as text that needs no quotes.
fn words(folder: &Path) -> Result<&str, GatewayError> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let text = folder.to_str().unwrap_or_default();
    if text.starts_with('/') && text.chars().all(is_good) {
        return Ok(text);
    }
    Err(GatewayError::Folder(folder.to_owned()))
}

/// Refuses keys that a kind without a cluster, data ports and certificates does not have.
fn check_plain(service: &ServiceConfig) -> Result<(), GatewayError> {
    no_cluster(service)?;
    no_certificates(service)?;
    no_ports(service)
}

fn no_certificates(service: &ServiceConfig) -> Result<(), GatewayError> {
    match &service.data.certificates {
        None => Ok(()),
        Some(folder) => Err(GatewayError::Unfit {
            service: service.name.clone(),
            key: "data.certificates",
            found: format!("{folder:?}"),
            expected: "none, as it is for gridftp alone",
        }),
    }
}

fn no_ports(service: &ServiceConfig) -> Result<(), GatewayError> {
    match service.data.ports {
        None => Ok(()),
        Some(ports) => Err(GatewayError::Unfit {
            service: service.name.clone(),
            key: "data.ports",
            found: format!("{ports:?}"),
            expected: "none, as this backend has no data ports",
        }),
    }
}

fn no_cluster(service: &ServiceConfig) -> Result<(), GatewayError> {
    match service.data.cluster_port {
        None => Ok(()),
        Some(port) => Err(GatewayError::Unfit {
            service: service.name.clone(),
            key: "data.cluster_port",
            found: port.to_string(),
            expected: "none, as xrootd alone has clusters",
        }),
    }
}

#[cfg(test)]
mod tests;
