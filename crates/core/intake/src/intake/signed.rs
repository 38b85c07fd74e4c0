//! Settings with which collectd's packets are read.

use sheaf_samples::wire::collectd::Types;
use std::fmt;

/// Check of a signature of collectd: name of the user, signed bytes, HMAC-SHA-256.
pub type Verify = dyn Fn(&str, &[u8], &[u8]) -> bool + Send;

/// How collectd's packets are read.
#[derive(Default)]
pub(super) struct Collectd {
    pub(super) types: Types,
    pub(super) verify: Option<Box<Verify>>,
    pub(super) is_required: bool,
}

impl fmt::Debug for Collectd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collectd")
            .field("types", &self.types.len())
            .field("verifies", &self.verify.is_some())
            .field("is_required", &self.is_required)
            .finish()
    }
}
