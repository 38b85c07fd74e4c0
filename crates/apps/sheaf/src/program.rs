//! Version, commit, protocol and features of this program.

use sheaf_node::role::Build;
use sheaf_protocol::Prefix;
use sheaf_protocol::version::MINOR;
use std::sync::LazyLock;

/// This program, as its version, its pages and its metrics tell it.
pub(crate) const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("SHEAF_COMMIT"),
};

/// Features of this build that can be left out.
const FEATURES: [(&str, bool); 4] = [
    ("tui", cfg!(feature = "tui")),
    ("monitor", cfg!(feature = "monitor")),
    ("zookeeper", cfg!(feature = "zookeeper")),
    ("lab", cfg!(feature = "lab")),
];

/// Returns what `--version` prints behind the name; nodes understand each other if the numbers before the dots of their
/// protocols are the same.
pub(crate) fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let Build { version, commit } = BUILD;
        let features = FEATURES.into_iter().filter(|(_, is_on)| *is_on);
        let features: Vec<_> = features.map(|(name, _)| name).collect();
        let features = match features.is_empty() {
            true => "none".to_owned(),
            false => features.join(" "),
        };
        let protocol = format!("{}.{MINOR}", Prefix::VERSION);
        format!("{version} ({commit})\nprotocol {protocol}\nfeatures {features}")
    });
    &TEXT
}
