//! The `[security]` table: what a node proves itself with, and what travels in the clear.

use crate::check::path_for;
use serde::{Deserialize, Serialize};
use sheaf_auth::CertFiles;
use sheaf_protocol::NodeId;
use std::path::{Path, PathBuf};

/// The `[security]` table of a farm file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Where `sheaf cert` has put `ca.pem` and, for each node on the machine, certificate and key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The certificate of the node, if it is not where `directory` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Private key, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The certificate of the CA, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Whether STFs are encrypted on their way from FLP to EPN.
    pub bulk: BulkConfig,
    /// How the pages of the processes are served.
    pub page: PageConfig,
    /// Whether nodes may talk in the clear off loopback.
    pub insecure: bool,
}

/// Encryption of the page of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageConfig {
    /// In the clear, for any client.
    #[default]
    Plain,
    /// TLS 1.3, for clients with a certificate of the farm.
    Tls,
}

/// Encryption of STFs where everything else is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BulkConfig {
    /// Encrypted, from an authenticated FLP.
    #[default]
    Encrypted,
    /// In the clear, with a CRC-32C against accidents; the sender is not authenticated.
    CrcOnly,
}

impl SecurityConfig {
    /// Whether connections are TLS.
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        self.directory.is_some() || self.certificate.is_some()
    }

    /// The files of `node`; `None` without certificates. In all paths `{icn}`, `{flp}` and `{epn}` stand for the index.
    #[must_use]
    pub fn files(&self, node: NodeId) -> Option<CertFiles> {
        if !self.has_certificates() {
            return None;
        }
        let directory = self.directory.as_deref().unwrap_or(Path::new("."));
        let usual = CertFiles::in_directory(&path_for(directory, node), node);
        let given = |path: &Option<PathBuf>| path.as_deref().map(|path| path_for(path, node));
        Some(CertFiles {
            certificate: given(&self.certificate).unwrap_or(usual.certificate),
            key: given(&self.key).unwrap_or(usual.key),
            ca: given(&self.ca).unwrap_or(usual.ca),
        })
    }

    /// Returns the missing keys of the three files.
    pub(super) fn missing_key(&self) -> Option<&'static str> {
        if self.directory.is_some() {
            return None;
        }
        let keys = [
            ("certificate", &self.certificate),
            ("key", &self.key),
            ("ca", &self.ca),
        ];
        let is_any = keys.iter().any(|(_, path)| path.is_some());
        let missing = keys.into_iter().find(|(_, path)| path.is_none());
        missing.filter(|_| is_any).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FarmConfig;
    use sheaf_protocol::{EpnId, FlpId};

    #[test]
    fn the_files_of_a_node_are_found() {
        let config = SecurityConfig::default();
        assert_eq!(config.files(EpnId(3).into()), None);
        let config = SecurityConfig {
            directory: Some("certs".into()),
            ..config
        };
        let files = config.files(EpnId(3).into()).unwrap();
        assert_eq!(files.certificate, Path::new("certs/epn-3.pem"));
        assert_eq!(files.key, Path::new("certs/epn-3.key"));
        assert_eq!(files.ca, Path::new("certs/ca.pem"));
        let config = SecurityConfig {
            key: Some("/run/keys/{flp}.key".into()),
            ..config
        };
        let files = config.files(FlpId(2).into()).unwrap();
        assert_eq!(files.key, Path::new("/run/keys/2.key"));
        assert_eq!(files.ca, Path::new("certs/ca.pem"));
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let text = format!("[security]\n{text}");
        let found = match FarmConfig::parse_for(&text, Path::new("f"), &[]) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        check("directory = \"certs\"\nbulk = \"crc-only\"\n", "");
        check("insecure = true\n", "");
        check(
            "certificate = \"a\"\nkey = \"b\"\n",
            "f:1: security.ca: found none, expected all of certificate, key and ca, or a directory",
        );
        check(
            "directory = \"certs\"\ninsecure = true\n",
            "f:3: security.insecure: found true, expected false where there are certificates: all is encrypted then",
        );
        check("directory = \"certs\"\npage = \"tls\"\n", "");
        check(
            "page = \"tls\"\n",
            "f:2: security.page: found \"tls\", expected certificates: without them there is no TLS",
        );
        check(
            "bulk = \"crc-only\"\n",
            "f:2: security.bulk: found \"crc-only\", expected certificates: without them nothing is encrypted at all",
        );
    }
}
