//! Programs of the machine that planes use.

use crate::error::PlaneError;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Program with the package of Debian that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const NFT: Tool = Tool {
    name: "nft",
    package: "nftables",
};
pub(crate) const IP: Tool = Tool {
    name: "ip",
    package: "iproute2",
};

pub(crate) const HAPROXY: Tool = Tool {
    name: "haproxy",
    package: "haproxy",
};

pub(crate) const MODPROBE: Tool = Tool {
    name: "modprobe",
    package: "kmod",
};

impl Tool {
    /// Runs the program with `words`, and with `input` to read. Returns what it prints.
    pub(crate) fn run(self, words: &[&str], input: &str) -> Result<String, PlaneError> {
        let missing = |error| PlaneError::Missing {
            tool: self.name,
            package: self.package,
            error,
        };
        let mut child = Command::new(self.name)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(missing)?;
        // Nothing is printed before all is read: the pipes do not block each other.
        let written = child
            .stdin
            .take()
            .map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output().map_err(missing)?;
        if !output.status.success() {
            return Err(PlaneError::Refused {
                tool: self.name,
                text: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        written.map_err(missing)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the program and reads what it prints as JSON.
    pub(crate) fn json(self, words: &[&str]) -> Result<serde_json::Value, PlaneError> {
        let text = self.run(words, "")?;
        if text.trim().is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| PlaneError::Output {
            tool: self.name,
            text: error.to_string(),
        })
    }
}
