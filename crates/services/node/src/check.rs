//! Checks of values in a farm file: the collector of errors, addresses, paths, and what has to be on the machine.
//!
//! Each table of a farm file checks its own values with these; [`crate::config`] checks them together.

mod address;
mod error;

pub(crate) use address::path_for;
pub use address::{NODE_ADDRESS, for_index, is_address, is_node_address};
pub use error::{ConfigError, ConfigErrors};

use sheaf_transport::unix::PATH_BYTES_MAX as SOCKET_PATH_BYTES_MAX;
use std::path::Path;

/// Form of an address, for messages.
pub(crate) const ADDRESS: &str = "HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100";

/// Collector of what is wrong with a farm file.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) errors: Vec<ConfigError>,
}

impl Check {
    pub(crate) fn that(
        &mut self,
        is_good: bool,
        key: &str,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) {
        if !is_good {
            self.fail(key, found, expected);
        }
    }

    /// A rule about `key` and `other_key`.
    pub(crate) fn both(
        &mut self,
        is_good: bool,
        key: &str,
        other_key: &str,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) {
        if !is_good {
            let mut error = ConfigError::new(key, found, expected);
            error.other_key = Some(other_key.to_owned());
            self.errors.push(error);
        }
    }

    pub(crate) fn fail(
        &mut self,
        key: &str,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) {
        self.errors.push(ConfigError::new(key, found, expected));
    }

    pub(crate) fn address(&mut self, key: &str, text: &str) {
        self.that(is_address(text), key, format!("\"{text}\""), ADDRESS);
    }

    pub(crate) fn optional_address(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.address(key, text);
        }
    }

    /// A path of a Unix socket.
    pub(crate) fn socket_path(&mut self, key: &str, path: &Path) {
        let bytes = path.as_os_str().len();
        self.that(
            (1..=SOCKET_PATH_BYTES_MAX).contains(&bytes),
            key,
            format!("a path of {bytes} bytes"),
            format!("1 to {SOCKET_PATH_BYTES_MAX} bytes, as many as a Unix socket address holds"),
        );
    }
}

/// Looks for the folder of the socket at `path`, which `key` names.
pub(crate) fn check_socket(key: &str, path: &Path) -> Option<ConfigError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => check_directory(key, parent),
        _ => None,
    }
}

/// Looks for the folder at `path`, which `key` names.
pub(crate) fn check_directory(key: &str, path: &Path) -> Option<ConfigError> {
    let found = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return None,
        Ok(_) => format!("{} (not a directory)", path.display()),
        Err(error) => format!("{} ({error})", path.display()),
    };
    Some(ConfigError::new(key, found, "a directory that is there"))
}
