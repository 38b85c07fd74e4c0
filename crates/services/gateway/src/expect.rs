//! Expectations of `doctor` on a service beyond what directors need: tables `[expect.SERVICE]`.

use crate::error::GatewayError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Expectations of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// First and last port on which servers take data connections, such as those of GridFTP.
    pub data_ports: Option<[u16; 2]>,
    /// Certificate that servers show to clients.
    pub certificate: Option<ExpectCertificate>,
}

/// Certificate of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExpectCertificate {
    /// Names by which clients reach the service; its virtual addresses by default.
    pub names: Vec<String>,
    /// File on the servers, in PEM; by default the certificate is asked for by a handshake of TLS.
    pub file: Option<PathBuf>,
}

impl Expect {
    pub(crate) fn check(&self, service: &str) -> Result<(), GatewayError> {
        match self.data_ports {
            Some([first, last]) if first == 0 || first > last => Err(GatewayError::Expect {
                service: service.to_owned(),
                key: "data_ports",
                found: format!("[{first}, {last}]"),
                expected: "first and last port, from 1 to 65535",
            }),
            _ => Ok(()),
        }
    }
}
