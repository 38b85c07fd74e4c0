//! How a demo ends: Ctrl-C, a second Ctrl-C, its own death.

use crate::harness::{DemoDir, Running, farm_turn};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

#[test]
fn control_c_in_the_middle_drains_and_sums_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let _turn = farm_turn();
        let dir = DemoDir::new();
        let demo = Running::start(&dir.words("--rate 200 --orbits-per-tf 8"));
        assert!(
            demo.await_line("sheaf demo:")
                .contains("ends with q or Ctrl-C")
        );
        demo.await_line("TF/s");
        demo.signal(signal);
        let ended = demo.end();
        let stdout = ended.stdout.join("\n");
        assert!(ended.status.success(), "{stdout}\n{}", ended.stderr);
        assert!(stdout.contains("ended by user"), "{stdout}");
        let summary = dir.summary();
        summary.assert_nothing_lost();
        assert_eq!(summary.0["ended_by"], "user");
    }
}

#[test]
fn control_c_at_once_waits_for_the_start_and_ends_in_order() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words("--orbits-per-tf 2"));
    demo.await_line("sheaf demo:");
    demo.signal(Signal::INT);
    let ended = demo.end();
    assert!(
        ended.status.success(),
        "{:?}\n{}",
        ended.stdout,
        ended.stderr
    );
    dir.summary().assert_nothing_lost();
}

#[test]
fn no_node_outlives_a_demo_that_is_killed() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words("--orbits-per-tf 2"));
    demo.await_line("announced");
    let children = children_of(demo.pid());
    assert_eq!(children.len(), 1 + 3 + 5);
    demo.signal(Signal::KILL);
    children.iter().for_each(await_end);
}

fn await_end(child: &OwnedFd) {
    let poll = PollFd::new(child, PollFlags::IN);
    let bound = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = rustix::event::poll(&mut [poll], Some(&bound)).unwrap();
    assert_eq!(ready, 1, "a node lives on");
}

/// Handles of the processes whose parent is `parent`; readable when they end.
fn children_of(parent: Pid) -> Vec<OwnedFd> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let name = entry.unwrap().file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        if fields.split(' ').nth(1) == Some(&parent.as_raw_pid().to_string()) {
            let pid = Pid::from_raw(pid).unwrap();
            children.push(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        }
    }
    children
}

#[test]
fn a_second_control_c_ends_at_once() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words("--orbits-per-tf 8"));
    demo.await_line("announced");
    let children = children_of(demo.pid());
    // Two signals of one kind would be taken for one.
    demo.signal(Signal::INT);
    demo.signal(Signal::TERM);
    let ended = demo.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("asked to end a second time"),
        "{}",
        ended.stderr
    );
    children.iter().for_each(await_end);
}
