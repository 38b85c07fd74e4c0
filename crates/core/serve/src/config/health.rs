//! Configuration of the checks of servers.

use super::{ConfigError, ServiceConfig, check_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes that a check reads.
const BYTES_MAX: u32 = 1 << 20;

/// Kind of a check of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum HealthKind {
    /// A connection that is accepted.
    #[default]
    Tcp,
    /// An answer to `GET` of the first bytes of a file.
    Http(HttpCheck),
    /// A welcome and a login of FTP, as GridFTP servers give them.
    Gridftp,
    /// The handshake of XRootD.
    Xrootd,
    /// A program that ends with 0; it gets name and address of the server as arguments.
    Script {
        /// Path of the program.
        program: String,
    },
}

/// Check by HTTP: a range of a file, and its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// Path with its leading slash.
    pub path: String,
    /// Bytes asked for from the begin of the file, as a range.
    #[serde(default = "one")]
    pub bytes: u32,
    /// Adler-32 of these bytes in eight hexadecimal digits, as of `xrdadler32`; not compared by default.
    #[serde(default)]
    pub adler32: Option<String>,
}

/// Place of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckAt {
    /// The director asks the server at its own address.
    #[default]
    Server,
    /// Beside that, the agent on the server asks it at the virtual addresses, as clients do: one that does not listen
    /// there, or has them not, is down. For planes with direct return.
    Virtual,
}

/// Checks of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Kind of the check: that of the backend by default, and `tcp` without one.
    pub kind: Option<HealthKind>,
    /// Place of the check.
    pub at: CheckAt,
    /// Time between two checks of a server.
    pub every_ms: u64,
    /// Longest time of a check.
    pub timeout_ms: u64,
    /// Good checks in a row that bring a server up.
    pub rise: u32,
    /// Failed checks in a row that take a server down.
    pub fall: u32,
    /// Time over which the weight of a server that came up grows to its full.
    pub slow_start_s: u64,
    /// Span in which six changes hold a server down, and which it has to be well for after that.
    pub flap_s: u64,
}

fn one() -> u32 {
    1
}

impl HealthKind {
    /// Returns the check that asks for the first byte of `path`.
    #[must_use]
    pub fn http(path: &str) -> Self {
        Self::Http(HttpCheck {
            path: path.to_owned(),
            bytes: one(),
            adler32: None,
        })
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            kind: None,
            at: CheckAt::Server,
            every_ms: 250,
            timeout_ms: 250,
            rise: 2,
            fall: 2,
            slow_start_s: 0,
            flap_s: 60,
        }
    }
}

impl HealthConfig {
    /// Checks the configuration as that of `service`.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub(super) fn check(&self, service: &ServiceConfig) -> Result<(), ConfigError> {
        for (key, found, max, expected) in [
            ("health.every_ms", self.every_ms, 600_000, "10 to 600000"),
            (
                "health.timeout_ms",
                self.timeout_ms,
                600_000,
                "10 to 600000",
            ),
            ("health.rise", self.rise.into(), 100, "1 to 100"),
            ("health.fall", self.fall.into(), 100, "1 to 100"),
        ] {
            let least = if max == 100 { 1.0 } else { 10.0 };
            check_range(service, key, found as f64, least..=f64::from(max), expected)?;
        }
        let text = |key, found: &str, expected| {
            Err(ConfigError::Text {
                service: service.name.clone(),
                key,
                found: found.to_owned(),
                expected,
            })
        };
        match &self.kind {
            Some(HealthKind::Script { program }) if self.at == CheckAt::Virtual => text(
                "health.kind.script.program",
                program,
                "another kind, as agents start no programs for health.at = \"virtual\"",
            ),
            Some(HealthKind::Http(http)) => {
                if !http.path.starts_with('/') {
                    return text("health.kind.http.path", &http.path, "a path from '/' on");
                }
                let bytes = f64::from(http.bytes);
                let max = f64::from(BYTES_MAX);
                check_range(
                    service,
                    "health.kind.http.bytes",
                    bytes,
                    1.0..=max,
                    "1 to 1048576",
                )?;
                let is_sum =
                    |sum: &str| sum.len() == 8 && sum.chars().all(|c| c.is_ascii_hexdigit());
                match &http.adler32 {
                    Some(sum) if !is_sum(sum) => {
                        text("health.kind.http.adler32", sum, "eight hexadecimal digits")
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
