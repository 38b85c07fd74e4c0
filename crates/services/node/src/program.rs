//! Program that a process runs.

/// Program that a process runs, as its page and its metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Version of the release.
    pub version: &'static str,
    /// Commit of the sources; `unknown` where they were no checkout.
    pub commit: &'static str,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: "unknown",
        }
    }
}
