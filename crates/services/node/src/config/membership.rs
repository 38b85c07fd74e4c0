//! The `[membership]` table: where nodes are written down and how that is reached.

use super::FarmConfig;
use super::icn::LedgerBackend;
use crate::check::{Check, path_for};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use sheaf_zookeeper::{Tls, ZooKeeperOptions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The `[membership]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MembershipConfig {
    /// Where nodes are written down.
    pub backend: MembershipBackend,
    /// The `ZooKeeper` servers, HOST:PORT each.
    pub servers: Vec<String>,
    /// The path in `ZooKeeper` that everything of the farm stands under.
    pub root: String,
    /// How long a node that is not heard any more stays written down, in ms.
    pub session_ms: u64,
    /// The name that nodes log in with. What they write is then for this name alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with the password, readable by its owner alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Whether connections to the servers are encrypted.
    pub tls: bool,
    /// The certificates that the servers' are signed with, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate that the node shows to servers, as PEM, if they ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// Where nodes are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MembershipBackend {
    /// The ICN knows them, and they find it by its address.
    #[default]
    Embedded,
    /// In `ZooKeeper`.
    Zookeeper,
}

/// A file for `ZooKeeper` that cannot be used.
#[derive(Debug, Error)]
#[error("membership.{key}: found {path} ({found}), expected {expected}", path = path.display())]
pub struct MembershipFileError {
    /// The key that names it.
    pub key: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Reason of the refusal.
    pub found: String,
    /// Value expected.
    pub expected: &'static str,
}

impl Default for MembershipConfig {
    fn default() -> Self {
        Self {
            backend: MembershipBackend::default(),
            servers: Vec::new(),
            root: "/sheaf".to_owned(),
            session_ms: 1000,
            user: None,
            password_file: None,
            tls: false,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

impl MembershipConfig {
    /// Longest password and certificate file that is read, in bytes.
    const FILE_BYTES_MAX: u64 = 1 << 20;

    /// How `node` reaches `ZooKeeper`; reads the password and the certificates. In paths `{icn}`, `{flp}` and `{epn}`
    /// stand for the index.
    ///
    /// # Errors
    ///
    /// [`MembershipFileError`] names the file that cannot be read, or that others can read.
    pub fn zookeeper(&self, node: NodeId) -> Result<ZooKeeperOptions, MembershipFileError> {
        let read = |key, path: &Option<PathBuf>, is_secret| {
            let path = path.as_deref().map(|path| path_for(path, node));
            path.map(|path| read_file(key, &path, is_secret))
                .transpose()
        };
        let session = Duration::from_millis(self.session_ms);
        let mut options = ZooKeeperOptions::new(self.servers.clone(), session);
        let password = read("password_file", &self.password_file, true)?;
        let password = password.map(|password| password.trim_end_matches(['\r', '\n']).to_owned());
        options.user = self.user.clone().zip(password);
        if self.tls {
            let certificate = read("certificate", &self.certificate, false)?;
            options.tls = Some(Tls {
                ca: read("ca", &self.ca, false)?.unwrap_or_default(),
                identity: certificate.zip(read("key", &self.key, true)?),
            });
        }
        Ok(options)
    }
}

fn read_file(
    key: &'static str,
    path: &Path,
    is_secret: bool,
) -> Result<String, MembershipFileError> {
    let error = |found: String, expected| MembershipFileError {
        key,
        path: path.to_owned(),
        found,
        expected,
    };
    let unreadable = |found: std::io::Error| error(found.to_string(), "a file that can be read");
    let found = std::fs::metadata(path).map_err(unreadable)?;
    let mode = found.permissions().mode() & 0o777;
    if is_secret && mode & 0o077 != 0 {
        let expected = "a file that only its owner can read: chmod 600";
        return Err(error(format!("mode {mode:03o}"), expected));
    }
    if found.len() > MembershipConfig::FILE_BYTES_MAX {
        return Err(error(format!("{} bytes", found.len()), "at most 1 MiB"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

impl FarmConfig {
    pub(super) fn check_membership(&self, check: &mut Check) {
        let membership = &self.membership;
        let is_used = membership.backend == MembershipBackend::Zookeeper;
        check.both(
            is_used || self.icn.ledger.backend != LedgerBackend::Zookeeper,
            "membership.backend",
            "icn.ledger.backend",
            "\"embedded\"",
            "\"zookeeper\", where the verdict log is in ZooKeeper",
        );
        if is_used {
            check.that(
                sheaf_zookeeper::HAS_CLIENT,
                "membership.backend",
                "\"zookeeper\"",
                "\"embedded\": this build has no client for ZooKeeper (cargo feature `zookeeper`)",
            );
            check.that(
                !membership.servers.is_empty(),
                "membership.servers",
                "none",
                "HOST:PORT of at least one ZooKeeper server",
            );
        }
        for (index, server) in membership.servers.iter().enumerate() {
            let key = format!("membership.servers[{index}]");
            check.address(&key, server);
            // As between nodes: in the clear on loopback, or where the configuration allows it.
            check.that(
                membership.tls || self.security.insecure || is_loopback(server),
                &key,
                format!("\"{server}\" without TLS"),
                "membership.tls = true off loopback, or security.insecure = true",
            );
        }
        check.that(
            is_path(&membership.root),
            "membership.root",
            format!("{:?}", membership.root),
            "a path such as /sheaf, of letters, digits, -, _ and single slashes",
        );
        check.that(
            membership.user.is_some() == membership.password_file.is_some(),
            "membership.user",
            if membership.user.is_some() {
                "a name without a password"
            } else {
                "a password without a name"
            },
            "both of user and password_file, or none",
        );
        check.that(
            membership
                .user
                .as_ref()
                .is_none_or(|user| !user.is_empty() && !user.contains(':')),
            "membership.user",
            format!("{:?}", membership.user.as_deref().unwrap_or_default()),
            "a name without a colon",
        );
        check.that(
            membership.certificate.is_some() == membership.key.is_some(),
            "membership.certificate",
            if membership.key.is_some() {
                "a key without a certificate"
            } else {
                "a certificate without a key"
            },
            "both of certificate and key, or none",
        );
        check.that(
            membership.tls == membership.ca.is_some(),
            "membership.ca",
            if membership.tls {
                "none"
            } else {
                "a file without tls = true"
            },
            "the servers' CA exactly where tls = true",
        );
    }
}

fn is_loopback(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Whether ZooKeeper and people read `text` as the same path.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !name.is_empty() && name.bytes().all(allowed)
    };
    text.strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let text = format!("[membership]\n{text}");
        let found = match FarmConfig::parse_for(&text, Path::new("f"), &[]) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[cfg(not(feature = "zookeeper"))]
    #[test]
    fn a_build_without_zookeeper_refuses_it() {
        check(
            "backend = \"zookeeper\"\nservers = [\"127.0.0.1:2181\"]\n",
            "f:1: membership.backend: found \"zookeeper\", expected \"embedded\": this build has no client for ZooKeeper \
             (cargo feature `zookeeper`)",
        );
    }

    #[cfg(feature = "zookeeper")]
    #[test]
    fn what_contradicts_itself_is_refused() {
        check(
            "backend = \"zookeeper\"\nservers = [\"127.0.0.1:2181\", \"localhost:2182\"]\n",
            "",
        );
        check(
            "backend = \"zookeeper\"\n",
            "f:1: membership.servers: found none, expected HOST:PORT of at least one ZooKeeper server",
        );
        check(
            "servers = [\"zk1.farm:2181\"]\n",
            "f:2: membership.servers[0]: found \"zk1.farm:2181\" without TLS, expected membership.tls = true off \
             loopback, or security.insecure = true",
        );
        check(
            "servers = [\"zk1.farm:2181\"]\ntls = true\nca = \"a\"\n[security]\ninsecure = false\n",
            "",
        );
        check(
            "servers = [\"zk1.farm:2181\"]\n[security]\ninsecure = true\n",
            "",
        );
        check(
            "root = \"/a//b\"\nsession_ms = 10\n",
            "f:2: membership.root: found \"/a//b\", expected a path such as /sheaf, of letters, digits, -, _ and \
             single slashes\n\
             f:3: membership.session_ms: found 10, expected 200 to 60000; servers grant no less than two \
             of their ticks",
        );
        check(
            "user = \"farm\"\n",
            "f:2: membership.user: found a name without a password, expected both of user and password_file, or none",
        );
        check(
            "key = \"k\"\ntls = true\n",
            "f:1: membership.certificate: found a key without a certificate, expected both of certificate \
             and key, or none\n\
             f:1: membership.ca: found none, expected the servers' CA exactly where tls = true",
        );
        check(
            "[icn.ledger]\nbackend = \"zookeeper\"\n",
            "f:3: membership.backend: found \"embedded\", expected \"zookeeper\", where the verdict \
             log is in ZooKeeper",
        );
    }

    #[test]
    fn a_password_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("icn-1");
        std::fs::write(&path, "secret\n").unwrap();
        let config = MembershipConfig {
            user: Some("farm".to_owned()),
            password_file: Some(folder.path().join("icn-{icn}")),
            ..MembershipConfig::default()
        };
        let node = NodeId {
            index: 1,
            ..NodeId::ICN
        };
        let set_mode =
            |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set_mode(0o640);
        let error = config.zookeeper(node).unwrap_err().to_string();
        let end = "icn-1 (mode 640), expected a file that only its owner can read: chmod 600";
        assert!(
            error.starts_with("membership.password_file: found /") && error.ends_with(end),
            "{error}"
        );
        set_mode(0o600);
        let options = config.zookeeper(node).unwrap();
        assert_eq!(options.user, Some(("farm".to_owned(), "secret".to_owned())));
        let error = config.zookeeper(NodeId::ICN).unwrap_err().to_string();
        assert!(
            error.ends_with("expected a file that can be read"),
            "{error}"
        );
    }
}
