//! Version and commit of this program.

use sheaf_node::role::Build;

/// This program, as its version, its pages and its metrics tell it.
pub(crate) const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("SHEAF_COMMIT"),
};
