//! Files that people write: experiments, topologies, inventories. What can be wrong with any of them.

use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a file cannot be used. Nothing has been made of it.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is no TOML, or has keys that such a file has not.
    #[error("{file}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// Message of the parser, with the line.
        message: String,
    },
    /// A value makes no sense.
    #[error("{file}: {key}: found {found}, expected {expected}")]
    Value {
        /// The file, or what it calls itself.
        file: String,
        /// Where it stands.
        key: String,
        /// Value found.
        found: String,
        /// Values expected.
        expected: String,
    },
}

impl InputError {
    /// Returns [`InputError::Value`]: the value of `key` makes no sense.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are formatted alike, and the caller needs the value no longer"
    )]
    pub fn value(
        file: &str,
        key: impl ToString,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        Self::Value {
            file: file.to_owned(),
            key: key.to_string(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// The text of a file.
///
/// # Errors
///
/// [`InputError::Read`].
pub fn read(path: &Path) -> Result<String, InputError> {
    std::fs::read_to_string(path).map_err(|source| InputError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Parses the text of a file; `file` is for messages.
///
/// # Errors
///
/// [`InputError::Parse`].
pub fn parse<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, InputError> {
    toml::from_str(text).map_err(|error| InputError::Parse {
        file: file.to_owned(),
        message: error.to_string().trim().to_owned(),
    })
}
