//! A copy of this machine's root, in which packages are tried (`machine.sh`). The tests of `bindings` have it as well.

use std::path::Path;

/// Returns the reason why this machine cannot try packages, if there is one.
pub(crate) fn missing() -> Option<&'static str> {
    if !Path::new("/usr/bin/dpkg-deb").is_file() {
        return Some("needs dpkg-deb, as on Debian");
    }
    if !rustix::process::getuid().is_root() {
        return Some("needs root, for a mount namespace");
    }
    let systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    (!systems.contains("\toverlay\n")).then_some("needs a kernel with overlay file systems")
}
