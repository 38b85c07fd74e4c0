//! The error of all parsers.

use thiserror::Error;

/// Text of a file that is not as the kernel writes it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}: found {found:?}, expected {expected}")]
pub struct ParseError {
    /// The file, such as `/proc/stat`.
    pub file: &'static str,
    /// Start of the text found.
    pub found: String,
    /// Text expected.
    pub expected: &'static str,
}

impl ParseError {
    /// Characters of the text that are kept.
    const FOUND_MAX: usize = 60;

    pub(crate) fn new(file: &'static str, found: &str, expected: &'static str) -> Self {
        let found = found.chars().take(Self::FOUND_MAX).collect();
        Self {
            file,
            found,
            expected,
        }
    }
}
