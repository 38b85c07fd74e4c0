//! The lines of JSON that the process of a node writes to its standard output, and its supervisor reads.

use crate::status::FarmStatus;
use serde::{Deserialize, Serialize};

/// Line on the standard output of the process of a node (`docs/reference/status.md`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// First of the ICN and of an EPN.
    Listening {
        /// The actual address.
        listening: String,
        /// Such as `icn:0`.
        node: String,
    },
    /// Last of every role.
    Exit {
        /// How it ended.
        exit: Exit,
    },
    /// In between, of the ICN.
    Status(Box<FarmStatus>),
}

/// End of a node, and what its process had used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Such as `flp:1`.
    pub node: String,
    /// CPU time of all its threads.
    pub cpu_s: f64,
    /// Largest resident memory.
    pub rss_bytes_max: u64,
    /// `dismissed`: the run is over. `shutdown`: it was asked to end. `failed`: see `error`.
    pub reason: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_role_is_read_back_as_what_it_was() {
        let listening = "{\"listening\":\"127.0.0.1:43567\",\"node\":\"icn:0\"}";
        let line = Line::Listening {
            listening: "127.0.0.1:43567".to_owned(),
            node: "icn:0".to_owned(),
        };
        assert_eq!(serde_json::to_string(&line).unwrap(), listening);
        let exit = Exit {
            node: "flp:1".to_owned(),
            cpu_s: 1.5,
            rss_bytes_max: 7,
            reason: "dismissed".to_owned(),
            error: None,
        };
        for line in [line, Line::Exit { exit }, Line::Status(Box::default())] {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
    }
}
