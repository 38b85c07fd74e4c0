//! The job of examples/slurm, on a cluster of Slurm of its own.

use crate::harness::{PROGRAM, Running, farm_turn, free_address};
use std::path::Path;
use std::process::Command;

/// Root of the repository.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Returns the reason why this machine has no cluster, if there is one.
fn missing() -> Option<&'static str> {
    let has = |path: &str| Path::new(path).is_file();
    let daemons = [
        "/usr/sbin/slurmctld",
        "/usr/sbin/slurmd",
        "/usr/sbin/munged",
        "/usr/bin/sbatch",
    ];
    if !daemons.into_iter().all(has) {
        return Some("needs slurmctld, slurmd, slurm-client and munge, as on Debian");
    }
    (!rustix::process::getuid().is_root()).then_some("needs root, for its daemons")
}

#[test]
fn a_job_of_slurm_is_a_farm_that_drains_before_its_time_limit() {
    if let Some(why) = missing() {
        eprintln!("a_job_of_slurm_is_a_farm_that_drains_before_its_time_limit skipped: {why}");
        return;
    }
    let _turn = farm_turn();
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(format!("{REPOSITORY}/tests/farm/slurm.sh"));
    command.arg(PROGRAM).arg(folder.path()).arg(port);
    let told = Running::of(command).end().ok(&["slurm.sh"]);
    let held = told.lines().filter(|line| line.starts_with("held: "));
    assert_eq!(held.count(), 3, "{told}");
}
