//! Configuration of who may send, ask and order, and what travels in the clear.

use crate::client::read_url;
use crate::problem::Problem;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The `[monitor.security]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// PEM file of the certificates of this server, the own one first; with it TCP and HTTP are TLS 1.3.
    pub certificate: PathBuf,
    /// PEM file of the private key, which only its owner can read.
    pub key: PathBuf,
    /// PEM file of a CA: a client with a certificate of it needs no token.
    pub client_ca: PathBuf,
    /// File of bearer tokens, one a line, which only its owner can read.
    pub tokens: PathBuf,
    /// Networks such as `10.0.0.0/8` that UDP is taken from; empty: from all.
    pub allow: Vec<String>,
    /// Whether peers on other machines may do everything without authentication and in the clear.
    pub insecure: bool,
}

impl SecurityConfig {
    /// Returns whether TCP and HTTP are TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        is_set(&self.certificate)
    }

    /// Returns whether a client of TCP and HTTP has to prove that it may.
    #[must_use]
    pub fn has_proof(&self) -> bool {
        is_set(&self.tokens) || is_set(&self.client_ca)
    }

    /// Returns the networks that UDP is taken from; those that are none are left out.
    #[must_use]
    pub fn networks(&self) -> Vec<IpNet> {
        self.allow
            .iter()
            .filter_map(|text| read_network(text))
            .collect()
    }

    /// Adds what makes no sense in the table itself.
    pub(super) fn check(&self, found: &mut Vec<Problem>) {
        for text in &self.allow {
            if read_network(text).is_none() {
                found.push(Problem::of(
                    "security.allow",
                    &text,
                    "networks such as 10.0.0.0/8, or addresses",
                ));
            }
        }
        if is_set(&self.certificate) != is_set(&self.key) {
            let text = "one of certificate and key";
            found.push(Problem::of("security", &text, "both or none"));
        }
        if is_set(&self.client_ca) && !self.has_tls() {
            let text = "client_ca without a certificate";
            found.push(Problem::of(
                "security",
                &text,
                "certificate and key as well",
            ));
        }
    }

    /// Adds what makes no sense of an address of TCP or HTTP.
    pub(super) fn check_stream(&self, key: &str, text: &str, found: &mut Vec<Problem>) {
        let Some(address) = self.check_address(key, text, found) else {
            return;
        };
        if !self.is_open_to_others(address) || (self.has_tls() && self.has_proof()) {
            return;
        }
        found.push(Problem::of(
            key,
            &text,
            "an address of this machine such as 127.0.0.1; or certificate, key and one of tokens and client_ca in \
             monitor.security; or monitor.security.insecure = true: every peer that reaches it could write and read \
             all samples",
        ));
    }

    /// Adds what makes no sense of an address of UDP. `is_proven`: every packet has a signature.
    pub(super) fn check_datagrams(
        &self,
        key: &str,
        text: &str,
        is_proven: bool,
        found: &mut Vec<Problem>,
    ) {
        let Some(address) = self.check_address(key, text, found) else {
            return;
        };
        if !self.is_open_to_others(address) || is_proven || !self.allow.is_empty() {
            return;
        }
        found.push(Problem::of(
            key,
            &text,
            "an address of this machine such as 127.0.0.1; or monitor.security.allow with the networks of the senders; \
             or monitor.security.insecure = true: every peer that reaches it could write samples",
        ));
    }

    /// Adds what makes no sense of a URL that the collector asks.
    pub(super) fn check_url(&self, key: &str, url: &str, ca: &Path, found: &mut Vec<Problem>) {
        let Some((uri, is_tls)) = read_url(url) else {
            found.push(Problem::of(
                key,
                &url,
                "a URL such as http://127.0.0.1:8428/api/v1/write",
            ));
            return;
        };
        let is_here = is_here(uri.host().unwrap_or_default());
        if is_tls && !is_set(ca) {
            found.push(Problem::of(
                key,
                &url,
                "the key ca as well, since this is https",
            ));
        } else if !is_tls && !is_here && !self.insecure {
            found.push(Problem::of(
                key,
                &url,
                "https and the key ca, or monitor.security.insecure = true: every host on the way could read and \
                 change what is sent",
            ));
        }
    }

    /// Adds what makes no sense of an address of a broker of Kafka.
    pub(super) fn check_broker(
        &self,
        key: &str,
        text: &str,
        is_tls: bool,
        found: &mut Vec<Problem>,
    ) {
        let parts = text.rsplit_once(':').filter(|(host, port)| {
            let is_one = !host.is_empty() && !host.contains(['/', '@', ' ', ',']);
            is_one && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        let Some((host, _)) = parts else {
            let expected = "a host and a port such as 127.0.0.1:9092";
            return found.push(Problem::of(key, &text, expected));
        };
        if is_tls && host.contains(':') {
            // The library takes what is in front of the first colon as the name in the certificate.
            let expected = "a name or an IPv4 address, since ca makes this TLS";
            found.push(Problem::of(key, &text, expected));
        } else if !is_tls && !is_here(host) && !self.insecure {
            found.push(Problem::of(
                key,
                &text,
                "the key ca, which makes this TLS, or monitor.security.insecure = true: every host on the way could \
                 read and change what is sent",
            ));
        }
    }

    fn check_address(&self, key: &str, text: &str, found: &mut Vec<Problem>) -> Option<SocketAddr> {
        let address = text.parse();
        if address.is_err() {
            found.push(Problem::of(
                key,
                &text,
                "an address and port such as 127.0.0.1:8089",
            ));
        }
        address.ok()
    }

    fn is_open_to_others(&self, address: SocketAddr) -> bool {
        !self.insecure && !address.ip().to_canonical().is_loopback()
    }
}

/// Returns whether a host of a URL is this machine, as far as its name says.
fn is_here(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let ip = host.parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Returns whether a path is given.
pub(crate) fn is_set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

fn read_network(text: &str) -> Option<IpNet> {
    let of_one = |text: &str| text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(|| of_one(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &str, expected: &[&str]) {
        let config: SecurityConfig = toml::from_str(table).unwrap();
        let mut found = Vec::new();
        config.check(&mut found);
        config.check_stream("http", "10.0.0.1:9470", &mut found);
        config.check_datagrams("udp", "[::]:8089", false, &mut found);
        config.check_stream("tcp", "127.0.0.1:1", &mut found);
        config.check_url("forward.url", "http://10.0.0.2/", Path::new(""), &mut found);
        let keys: Vec<&str> = found
            .iter()
            .map(|one| &one.key["monitor.".len()..])
            .collect();
        assert_eq!(keys, expected, "{found:#?}");
    }

    #[test]
    fn open_addresses_need_proof_or_a_word() {
        check("", &["http", "udp", "forward.url"]);
        check("insecure = true", &[]);
        // A token in the clear is read by every host on the way.
        check("tokens = 't'", &["http", "udp", "forward.url"]);
        check(
            "certificate = 'c'\nkey = 'k'",
            &["http", "udp", "forward.url"],
        );
        check(
            "certificate = 'c'\nkey = 'k'\ntokens = 't'\nallow = ['10.0.0.0/8', '::1']",
            &["forward.url"],
        );
        check(
            "certificate = 'c'\nclient_ca = 'a'\nallow = ['ten']",
            &["security.allow", "security", "forward.url"],
        );
    }
}
