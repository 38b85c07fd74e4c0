//! The Debian package: made, installed, used, upgraded and removed.

use crate::harness::{PROGRAM, Running, farm_turn};
use crate::machine::missing;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root of the repository.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

fn make(folder: &Path, revision: &str) -> PathBuf {
    let mut command = Command::new(format!("{REPOSITORY}/scripts/deb.sh"));
    command.arg(PROGRAM).arg(folder).arg(revision);
    // Half a minute less for each package.
    command.env("SHEAF_DEB_COMPRESSION", "none");
    let told = Running::of(command).end().ok(&["deb.sh", revision]);
    PathBuf::from(told.trim())
}

#[test]
fn the_package_lives_on_a_machine_and_leaves_it_as_it_was() {
    if let Some(why) = missing() {
        eprintln!("the_package_lives_on_a_machine_and_leaves_it_as_it_was skipped: {why}");
        return;
    }
    let _turn = farm_turn();
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = ["1", "2"].map(|revision| make(folder.path(), revision));
    let place = folder.path().join("machine");
    std::fs::create_dir(&place).expect("a folder");
    let mut command = Command::new("unshare");
    command
        .arg("-m")
        .arg(format!("{REPOSITORY}/tests/farm/package.sh"));
    command.args([&first, &second, &place]);
    let told = Running::of(command).end().ok(&["package.sh"]);
    let held = told.lines().filter(|line| line.starts_with("held: "));
    assert_eq!(held.count(), 5, "{told}");
}

#[test]
fn equal_inputs_give_equal_packages() {
    if !Path::new("/usr/bin/dpkg-deb").is_file() {
        eprintln!("equal_inputs_give_equal_packages skipped: needs dpkg-deb, as on Debian");
        return;
    }
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [one, other] = folders.each_ref().map(|folder| {
        let package = make(folder.path(), "1");
        std::fs::read(package).expect("a package")
    });
    assert!(one == other, "{} and {} bytes", one.len(), other.len());
}
