//! `deploy/ansible`, run by the real `ansible-playbook` against machines that are reached by a real `ssh`.

use crate::harness::{PROGRAM, Running, farm_turn};
use crate::stand::{PORT, Stand};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/ansible")
}

/// The inventory of a farm on both hosts of `stand`.
fn inventory(stand: &Stand) -> String {
    let host = |name: &str| {
        let (address, disk) = (stand.address(name), stand.disk(name));
        format!(
            "{{ansible_host: {address}, sheaf_folder: {}/sheaf}}",
            disk.display()
        )
    };
    let file = |name: &str| stand.file(name).display().to_string();
    format!(
        "all:
  vars:
    ansible_user: root
    ansible_port: {PORT}
    ansible_ssh_private_key_file: {user}
    ansible_ssh_common_args: -o UserKnownHostsFile={known} -o IdentitiesOnly=yes
    ansible_python_interpreter: /usr/bin/python3
    ansible_remote_tmp: {temporary}
    sheaf_supervisor: process
    sheaf_binary: {PROGRAM}
    sheaf_collect_to: {collected}
    sheaf_farm:
      security: {{insecure: true}}
      flp: {{when_full: drop-newest, source: {{kind: generator, bytes_mean: 20000, pool_bytes: 1048576}}}}
      epn: {{sink: {{kind: verify}}}}
      transport: {{huge_pages: false}}
icn: {{hosts: {{a: {a}}}}}
flp: {{hosts: {{a: , b: {b}}}}}
epn: {{hosts: {{a: , b: }}}}
",
        user = file("user"),
        known = file("known_hosts"),
        temporary = file("remote"),
        collected = file("collected"),
        a = host("a"),
        b = host("b"),
    )
}

#[test]
fn playbooks_install_configure_start_stop_and_collect_a_farm() {
    let test = "playbooks_install_configure_start_stop_and_collect_a_farm";
    if !Path::new("/usr/bin/ansible-playbook").is_file() {
        eprintln!("{test} skipped: needs `ansible-playbook` (Debian package ansible-core)");
        return;
    }
    let Some(stand) = Stand::make(test) else {
        return;
    };
    let _turn = farm_turn();
    let file = stand.file("inventory.yml");
    fs::write(&file, inventory(&stand)).unwrap();
    let play = |accounting: &[&str]| {
        let mut command = stand.inside("desk", "/usr/bin/ansible-playbook");
        command.args([Path::new("-i"), &file]).args(accounting);
        command
            .current_dir(folder())
            .env("ANSIBLE_HOME", stand.file("ansible"));
        Running::of(command).end().ok(accounting);
    };
    play(&["install.yml", "configure.yml", "start.yml"]);
    assert_eq!(stand.processes().len(), 5);
    play(&["stop.yml", "collect.yml"]);
    assert_eq!(stand.processes(), []);

    let report = stand.file("verify.json");
    let (collected, json) = (stand.file("collected"), report.to_str().unwrap());
    stand.sheaf_ok(&[
        "data",
        "verify",
        collected.to_str().unwrap(),
        "--json",
        json,
    ]);
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(report["event_logs"], 5, "{report:#}");
    let announced = report["announced"].as_u64().unwrap();
    assert!(
        announced > 0 && report["complete"] == announced,
        "{report:#}"
    );
}
