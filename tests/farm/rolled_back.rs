//! An old copy of the verdict log is put back while the ICN is down: the next ICN refuses it, and decides nothing
//! twice.

use crate::harness::{Ended, Running, farm_turn, free_address, sheaf, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A farm of one ICN, two FLPs and two EPNs, whose ICN dies and comes back.
struct Farm {
    folder: tempfile::TempDir,
    /// Copies of the verdict log.
    copies: tempfile::TempDir,
    config: String,
    icn: Option<Running>,
    nodes: Vec<Running>,
}

impl Farm {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[run]\nflps = 2\nepns = 2\n[icn]\naddress = \"{}\"\n\
             [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
             [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
             [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
            free_address()
        );
        let config = write(folder.path(), "farm.toml", &text);
        let node = |role: &str, index: &str| {
            let events = folder.path().join(format!("{role}-{index}.events"));
            let events = events.to_str().unwrap();
            Running::start(&[
                "run", role, "--config", &config, "--index", index, "--events", events,
            ])
        };
        let nodes = vec![
            node("flp", "0"),
            node("flp", "1"),
            node("epn", "0"),
            node("epn", "1"),
        ];
        let icn = Some(start_icn(folder.path(), &config, &[]));
        Self {
            folder,
            copies: tempfile::tempdir().unwrap(),
            config,
            icn,
            nodes,
        }
    }

    /// The folder of the verdict log.
    fn ledger(&self) -> PathBuf {
        self.folder.path().join("farm.state/icn-0")
    }

    fn copy_ledger(&self, name: &str) -> PathBuf {
        let copy = self.copies.path().join(name);
        copy_folder(&self.ledger(), &copy);
        copy
    }

    fn put_back(&self, copy: &Path) {
        std::fs::remove_dir_all(self.ledger()).unwrap();
        copy_folder(copy, &self.ledger());
    }

    fn icn(&self) -> &Running {
        self.icn.as_ref().expect("it was started")
    }

    /// Waits for the end of the ICN.
    fn end(&mut self) -> Ended {
        self.icn.take().expect("it was started").end()
    }

    fn kill(&mut self) {
        self.icn().signal(Signal::KILL);
        self.end();
    }

    /// Starts the ICN again.
    fn start_again(&mut self) {
        self.icn = Some(start_icn(self.folder.path(), &self.config, &[]));
    }

    /// Waits until `more` TFs are complete than were.
    fn await_complete(&self, before: u64, more: u64) -> u64 {
        loop {
            let line = self.icn().await_line("\"books\"");
            let status: Value = serde_json::from_str(&line).unwrap();
            let complete = status["books"]["complete"].as_u64().unwrap();
            if complete >= before + more {
                assert_eq!(
                    status["books"]["dropped"],
                    serde_json::json!({}),
                    "{status:#}"
                );
                return complete;
            }
        }
    }

    /// Puts `latest` back, and runs the farm to its end.
    fn go_on(mut self, latest: &Path, complete: u64) {
        self.put_back(latest);
        self.start_again();
        self.await_complete(complete, 50);
        let stopped = sheaf(&["ctl", "stop", "--config", &self.config]);
        assert!(stopped.status.success(), "{}", stopped.stderr);
        for node in self.icn.into_iter().chain(self.nodes) {
            let ended = node.end();
            assert!(ended.status.success(), "{}", ended.stderr);
        }
        // Every TF has one fate, in the logs of all lives of the ICN and of all nodes.
        let words = ["data", "verify", self.folder.path().to_str().unwrap()];
        sheaf(&words).ok(&words);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[track_caller]
fn assert_refused(ended: &Ended, found: &str) {
    assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
    for expected in [
        "The verdict log was rolled back",
        "the verdict log is older than the farm",
        "Put the latest copy in its place",
        found,
    ] {
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[test]
fn an_old_copy_of_the_same_run_is_refused_and_the_latest_goes_on() {
    let _turn = farm_turn();
    let mut farm = Farm::start();
    let complete = farm.await_complete(0, 50);
    // Files at rest, as a backup of a snapshot has them.
    farm.icn().signal(Signal::STOP);
    let old = farm.copy_ledger("old");
    farm.icn().signal(Signal::CONT);
    let complete = farm.await_complete(complete, 150);
    farm.kill();
    let latest = farm.copy_ledger("latest");
    farm.put_back(&old);
    // It ends by itself, and so does each further one: the term that a start takes does not make the copy newer.
    for _ in 0..2 {
        farm.start_again();
        assert_refused(&farm.end(), "decided TFs, expected at least");
    }
    farm.go_on(&latest, complete);
}

#[test]
fn a_copy_of_a_term_before_the_last_is_refused_by_its_term() {
    let _turn = farm_turn();
    let mut farm = Farm::start();
    let complete = farm.await_complete(0, 50);
    farm.kill();
    let old = farm.copy_ledger("old");
    farm.start_again();
    let complete = farm.await_complete(complete, 50);
    farm.kill();
    let latest = farm.copy_ledger("latest");
    farm.put_back(&old);
    farm.start_again();
    assert_refused(&farm.end(), "term 2, expected one above the term 2");
    farm.go_on(&latest, complete);
}

/// Writes the farm file of three ICNs, two FLPs and two EPNs.
fn majority_file(folder: &Path) -> String {
    let addresses = [(); 3].map(|()| free_address());
    let text = format!(
        "[run]\nflps = 2\nepns = 2\n[icn]\naddresses = {addresses:?}\n\
         [icn.ledger]\nbackend = \"majority\"\ndirectory = \"{}/verdicts-{{icn}}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        folder.display()
    );
    write(folder, "farm.toml", &text)
}

/// Waits until one of `icns` leads and at least `goal` TFs are complete; nothing was dropped.
fn await_leader(icns: &[Running], goal: u64) -> u64 {
    loop {
        for icn in icns {
            let line = icn.await_line("\"ledger\"");
            let status: Value = serde_json::from_str(&line).unwrap();
            let complete = status["books"]["complete"].as_u64().unwrap();
            if status["ledger"]["office"] == "leader" && complete >= goal {
                assert_eq!(
                    status["books"]["dropped"],
                    serde_json::json!({}),
                    "{status:#}"
                );
                return complete;
            }
        }
    }
}

#[test]
fn old_copies_on_two_of_three_icns_are_refused_and_the_latest_go_on() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let copies = tempfile::tempdir().unwrap();
    let config = majority_file(folder);
    let start = |role: &str, index: u16| {
        let status: &[&str] = if role == "icn" {
            &["--status-ms", "50"]
        } else {
            &[]
        };
        start(folder, &config, role, index, status)
    };
    let nodes = [("flp", 0), ("flp", 1), ("epn", 0), ("epn", 1)];
    let nodes = nodes.map(|(role, index)| start(role, index));
    let mut icns: Vec<Running> = (0..3).map(|index| start("icn", index)).collect();
    let ledger = |index: usize| folder.join(format!("verdicts-{index}"));
    let copy = |name: &str| {
        let target = copies.path().join(name);
        (0..3).for_each(|index| copy_folder(&ledger(index), &target.join(index.to_string())));
        target
    };
    let put_back = |from: &Path, index: usize| {
        std::fs::remove_dir_all(ledger(index)).unwrap();
        copy_folder(&from.join(index.to_string()), &ledger(index));
    };

    let complete = await_leader(&icns, 50);
    // Files at rest, as a backup of a snapshot has them.
    icns.iter().for_each(|icn| icn.signal(Signal::STOP));
    let old = copy("old");
    icns.iter().for_each(|icn| icn.signal(Signal::CONT));
    let complete = await_leader(&icns, complete + 150);
    for icn in icns.drain(..) {
        icn.signal(Signal::KILL);
        icn.end();
    }
    let latest = copy("latest");

    // The two with old copies are a majority: one of them leads, and learns from the nodes that its log is old.
    (0..2).for_each(|index| put_back(&old, index));
    let deceived = [start("icn", 0), start("icn", 1)];
    let pids = deceived.each_ref().map(Running::pid);
    let (sender, ends) = std::sync::mpsc::sync_channel(2);
    for (index, icn) in deceived.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send((index, icn.end())));
    }
    let (first, ended) = ends.recv().unwrap();
    assert_refused(&ended, "found");
    // The other one is no majority.
    rustix::process::kill_process(pids[1 - first], Signal::KILL).unwrap();
    ends.recv().unwrap();
    (0..2).for_each(|index| put_back(&latest, index));
    icns.extend((0..3).map(|index| start("icn", index)));
    await_leader(&icns, complete + 50);
    let stopped = sheaf(&["ctl", "stop", "--config", &config]);
    assert!(stopped.status.success(), "{}", stopped.stderr);
    for node in icns.into_iter().chain(nodes) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let words = ["data", "verify", folder.to_str().unwrap()];
    sheaf(&words).ok(&words);
}
