//! Errors of a farm file, with their places.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong: where, what was found, what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file; `None` for a configuration that was made without one.
    pub file: Option<PathBuf>,
    /// The line in it, from 1; `None` if the file does not have the key.
    pub line: Option<usize>,
    /// The key, such as `flp.rate_hz`; empty if it is about the file as a whole.
    pub key: String,
    /// Value found.
    pub found: String,
    /// Value expected.
    pub expected: String,
    /// The other key of a rule about two. If only this one stands in the file, the line is its.
    pub(crate) other_key: Option<String>,
}

impl ConfigError {
    /// Returns an error about `key`, without its file and line.
    pub fn new(
        key: impl Into<String>,
        found: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            file: None,
            line: None,
            key: key.into(),
            found: found.to_string(),
            expected: expected.into(),
            other_key: None,
        }
    }

    /// Whether `other` is about the same key, or one within it.
    pub(crate) fn is_about(&self, other: &Self) -> bool {
        let rest = other.key.strip_prefix(&self.key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
        }
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if self.file.is_some() || self.line.is_some() {
            write!(f, " ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl std::error::Error for ConfigError {}

/// Everything that is wrong with a farm file, by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    /// One error a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
