//! Loads: how many clients ask for what, from where, how fast and for how long.

use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use url::Url;

/// Reasons why a URL is no target.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The text is no URL.
    #[error("found URL {text:?}, expected one such as http://HOST/OBJECT: {source}")]
    Url {
        /// Text that was given.
        text: String,
        /// Reason.
        source: url::ParseError,
    },
    /// Another protocol.
    #[error("found URL {text:?} with the scheme {scheme:?}, expected http or https")]
    Scheme {
        /// Text that was given.
        text: String,
        /// Scheme of it.
        scheme: String,
    },
    /// The name of the host has no address.
    #[error("found no address for {host}: {source}")]
    Address {
        /// Host and port.
        host: String,
        /// Answer of the operating system.
        source: std::io::Error,
    },
}

/// Object that clients ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Target {
    /// Address that clients connect to.
    pub address: SocketAddr,
    /// Value of the field `Host`.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// Whether connections are encrypted.
    #[serde(default)]
    pub is_tls: bool,
}

impl Target {
    /// Reads the URL `text` and looks up the address of its host; the first one is used, as most clients do.
    ///
    /// # Errors
    ///
    /// All of [`TargetError`].
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let url = Url::parse(text).map_err(|source| TargetError::Url {
            text: text.to_owned(),
            source,
        })?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(TargetError::Scheme {
                text: text.to_owned(),
                scheme: url.scheme().to_owned(),
            });
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let no_address = |source| TargetError::Address {
            host: format!("{host}:{port}"),
            source,
        };
        let none = || std::io::Error::other("the name has none");
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (bare, port).to_socket_addrs().map_err(no_address)?;
        let address = addresses.next().ok_or_else(none).map_err(no_address)?;
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        let query = url
            .query()
            .map_or(String::new(), |query| format!("?{query}"));
        Ok(Self {
            address,
            host: format!("{host}{port}"),
            path: format!("{}{query}", url.path()),
            is_tls: url.scheme() == "https",
        })
    }

    /// Name of the host without its port, as certificates have it.
    pub(crate) fn name(&self) -> &str {
        let name = match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next(),
            None => self.host.split(':').next(),
        };
        name.unwrap_or_default()
    }
}

/// Whom clients trust.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// Servers whose certificate an authority of this PEM file signed; `None`: one of the system.
    Authorities(Option<PathBuf>),
    /// Any server.
    Any,
}

/// Method of all requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Whole objects, or ranges of them.
    Get,
    /// Heads alone.
    Head,
    /// Uploads: each client has an object of its own, whose name is that of the target, a dot and its number.
    Put,
}

impl Method {
    /// Name in a request.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
        }
    }
}

/// One load.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Load {
    /// Objects, asked for in turn.
    pub targets: Vec<Target>,
    /// Target of the first transfer.
    pub first_target: usize,
    /// Clients.
    pub clients: u32,
    /// Number of the first client, for names of uploads.
    pub first_client: u32,
    /// Method.
    pub method: Method,
    /// Further fields of each request, as `Name: value`.
    pub fields: Vec<String>,
    /// Field of answers that names the server.
    pub server_header: String,
    /// Bytes of an object: those of an upload; of a download, what is expected, if it is known.
    pub object_bytes: Option<u64>,
    /// Bytes of a range: each request asks for one at a random place; `None`: whole objects.
    pub range_bytes: Option<u64>,
    /// Whom clients of encrypted targets trust.
    pub tls: Tls,
    /// Whether a connection is used again; else each transfer has one of its own.
    pub keeps_alive: bool,
    /// Mean pause of a client after a transfer; each is between half and one and a half of it.
    pub think: Duration,
    /// Time over which the clients begin.
    pub ramp: Duration,
    /// Time after the ramp before the measured window.
    pub warm_up: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Most bytes a second of a client.
    pub rate_bytes_per_s: Option<u64>,
    /// Size of the receive buffer of a connection; `None`: as the kernel tunes it.
    pub receive_buffer_bytes: Option<u32>,
    /// Longest time for a connection.
    pub connect_timeout: Duration,
    /// Longest time without a byte.
    pub idle_timeout: Duration,
    /// Seed of pauses and ranges.
    pub seed: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            first_target: 0,
            clients: 1,
            first_client: 0,
            method: Method::Get,
            fields: Vec::new(),
            server_header: "x-served-by".to_owned(),
            object_bytes: None,
            range_bytes: None,
            tls: Tls::Authorities(None),
            keeps_alive: false,
            think: Duration::ZERO,
            ramp: Duration::ZERO,
            warm_up: Duration::ZERO,
            window: Duration::from_secs(10),
            rate_bytes_per_s: None,
            receive_buffer_bytes: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            seed: 1,
        }
    }
}

impl Load {
    /// Spreads the clients over `parts` loads that run at once.
    #[must_use]
    pub fn split(&self, parts: u32) -> Vec<Self> {
        let parts = parts.clamp(1, self.clients.max(1));
        let part = |part| self.clients / parts + u32::from(part < self.clients % parts);
        self.split_by(&(0..parts).map(part).collect::<Vec<u32>>())
    }

    /// Returns loads with these numbers of clients, which run at once.
    #[must_use]
    pub fn split_by(&self, clients: &[u32]) -> Vec<Self> {
        let mut first_client = self.first_client;
        let each = (0..).zip(clients).map(|(part, &clients): (u32, &u32)| {
            let load = Self {
                clients,
                first_client,
                // The clients of all parts together take the targets in turn.
                first_target: self.first_target + first_client as usize,
                seed: self.seed.wrapping_add(part.into()),
                ..self.clone()
            };
            first_client += clients;
            load
        });
        each.collect()
    }

    /// Bytes of the body of an answer of success; `None` if any length is right.
    pub(crate) fn expected_bytes(&self) -> Option<u64> {
        match self.method {
            Method::Get => self.range_bytes.or(self.object_bytes),
            Method::Head => self.object_bytes,
            Method::Put => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_give_address_host_and_path() {
        for (text, address, host, path) in [
            (
                "http://127.0.0.1:8080/a/b?c=d",
                "127.0.0.1:8080",
                "127.0.0.1:8080",
                "/a/b?c=d",
            ),
            ("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/"),
            (
                "http://[fd00:80::11]/x",
                "[fd00:80::11]:80",
                "[fd00:80::11]",
                "/x",
            ),
            ("https://127.0.0.1/", "127.0.0.1:443", "127.0.0.1", "/"),
        ] {
            let target = Target::parse(text).unwrap();
            let expected = Target {
                address: address.parse().unwrap(),
                host: host.to_owned(),
                path: path.to_owned(),
                is_tls: text.starts_with("https"),
            };
            assert_eq!(target, expected);
        }
    }

    #[test]
    fn other_protocols_and_no_urls_are_refused_by_name() {
        for (text, part) in [
            (
                "gsiftp://host/x",
                "with the scheme \"gsiftp\", expected http or https",
            ),
            ("host/x", "found URL \"host/x\""),
        ] {
            let error = Target::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn names_of_certificates_have_no_port_and_no_brackets() {
        for (text, name) in [
            ("https://127.0.0.1:8443/", "127.0.0.1"),
            ("https://[::1]:8443/", "::1"),
            ("https://localhost/", "localhost"),
        ] {
            assert_eq!(Target::parse(text).unwrap().name(), name);
        }
    }

    #[test]
    fn parts_have_all_clients_and_go_on_with_the_targets() {
        let load = Load {
            clients: 8,
            ..Load::default()
        };
        let parts: Vec<(u32, u32, usize)> = load
            .split(3)
            .iter()
            .map(|part| (part.clients, part.first_client, part.first_target))
            .collect();
        assert_eq!(parts, [(3, 0, 0), (3, 3, 3), (2, 6, 6)]);
        assert_eq!(load.split(0).len(), 1);
        assert_eq!(load.split(99).len(), 8);
    }
}
