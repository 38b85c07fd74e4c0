//! Configuration of collectors side by side.

use super::security::SecurityConfig;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One `[[monitor.peer]]` table: another collector, whose sources answer to questions here as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeerConfig {
    /// URL of its pages, such as `http://127.0.0.1:9471`.
    pub url: String,
    /// PEM file of the CA of its certificate, for `https`.
    pub ca: PathBuf,
    /// File whose first line is a token with the right to read; empty: none.
    pub token_file: PathBuf,
}

impl PeerConfig {
    /// Adds what makes no sense.
    pub(super) fn check(&self, security: &SecurityConfig, found: &mut Vec<Problem>) {
        security.check_url("peer.url", &self.url, &self.ca, found);
    }

    /// Returns the URL of `path` there.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }
}
