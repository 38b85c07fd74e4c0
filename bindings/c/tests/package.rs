//! The Debian packages of the library: made, installed, compiled against, removed.

use crate::installed::{HERE, run};
use crate::machine::missing;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the packages in `folder`, and returns them.
fn make(folder: &Path) -> Vec<PathBuf> {
    let me = std::env::current_exe().expect("this program");
    let built = me.parent().expect("the folder of dependencies");
    let mut command = Command::new(format!("{HERE}/../../scripts/deb-c.sh"));
    command.arg(built).arg(folder);
    // Half a minute less for each package.
    let told = run(command.env("SHEAF_DEB_COMPRESSION", "none"));
    told.lines().map(PathBuf::from).collect()
}

#[test]
fn the_packages_are_what_a_program_needs_and_leave_nothing_behind() {
    if let Some(why) = missing() {
        eprintln!("the_packages_are_what_a_program_needs_and_leave_nothing_behind skipped: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let packages = make(folder.path());
    let names = packages.iter().map(|path| path.file_name());
    let names: Vec<_> = names
        .map(|name| name.expect("a file").to_string_lossy())
        .collect();
    assert!(
        names[0].starts_with("libsheaf1_") && names[1].starts_with("libsheaf-dev_"),
        "{names:?}"
    );
    let place = folder.path().join("machine");
    std::fs::create_dir(&place).expect("a folder");
    let mut command = Command::new("unshare");
    command.arg("-m").arg(format!("{HERE}/tests/package.sh"));
    let told = run(command.arg(&place).args(&packages));
    let held = told.lines().filter(|line| line.starts_with("held: "));
    assert_eq!(held.count(), 4, "{told}");
}
