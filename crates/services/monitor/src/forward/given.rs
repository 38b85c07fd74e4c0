//! End of an attempt to send a request that is not repeated.

/// Samples that the engine refuses for ever, and why; the engine has all others of the request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) refused: u64,
    pub(super) reason: String,
}
