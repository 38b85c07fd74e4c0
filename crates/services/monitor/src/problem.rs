//! One thing that makes no sense in a configuration.

use std::fmt;

/// One thing that makes no sense in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, such as `monitor.http`.
    pub key: String,
    /// Value found.
    pub found: String,
    /// Value expected.
    pub expected: String,
}

impl Problem {
    /// Returns the problem of the key `monitor.KEY`.
    pub(crate) fn of(key: &str, found: &dyn fmt::Display, expected: &str) -> Self {
        Self {
            key: format!("monitor.{key}"),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            found,
            expected,
        } = self;
        write!(f, "{key}: found {found}, expected {expected}")
    }
}
