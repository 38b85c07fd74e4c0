//! Builds the crate again when its pages change.

use std::path::Path;

fn main() {
    // Cargo takes a path that does not exist for changed in every build; the folder above exists.
    let pages = Path::new("../../../web");
    let dist = pages.join("dist");
    let watched = if dist.exists() { dist.as_path() } else { pages };
    println!("cargo::rerun-if-changed={}", watched.display());
}
