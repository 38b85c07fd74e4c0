//! Short names of commands, which stay beside the commands' own.

/// Short name, and the command that it is. An option at the end takes the first argument; help has none.
pub(crate) const SHORT: &[(&str, &str)] = &[
    ("read", "files read"),
    ("write fsck", "files check"),
    ("write replay", "sim write --trace"),
];
