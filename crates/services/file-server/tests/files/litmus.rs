//! The conformance suite of WebDAV: Debian's package litmus.
//!
//! All tests pass. It warns that locks (class 2) are not offered, and that a property that is not there is left out of
//! an answer in place of having status 404 in it, as `dav-server` does it.

use crate::client::Site;
use std::process::Command;

#[test]
fn litmus_finds_no_fault() {
    if Command::new("litmus").arg("--version").output().is_err() {
        let told = "skipped: litmus is not installed; apt-get install litmus";
        assert!(std::env::var_os("CI").is_none(), "{told}");
        println!("{told}");
        return;
    }
    let site = Site::start(|config| config.is_writable = true);
    // It writes a log where it runs.
    let place = tempfile::tempdir().expect("a folder");
    let output = Command::new("litmus")
        .arg(site.url(""))
        .env("TESTS", "basic copymove props http")
        .current_dir(place.path())
        .output()
        .expect("litmus runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "litmus failed: {text}");
    for suite in ["basic", "copymove", "props", "http"] {
        let line = format!("<- summary for `{suite}'");
        let summary = text.lines().find(|found| found.starts_with(&line));
        let summary = summary.unwrap_or_else(|| panic!("{suite} did not run: {text}"));
        assert!(summary.ends_with("100.0%"), "{summary}");
    }
}
