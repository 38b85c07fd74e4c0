//! Farms that own readouts feed, over Unix sockets, with TF ids of their own.

use crate::harness::{PATIENCE, Running, farm_turn, free_address, sheaf, start_icn, write};
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FLPS: usize = 2;
/// Time from one TF to the next.
const PERIOD: Duration = Duration::from_millis(2);

/// A readout that gives the FLP at a socket one STF a period, until it is dropped.
struct Readout {
    next: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Readout {
    /// Starts a readout whose counter begins at `first`.
    fn start(socket: PathBuf, first: u64) -> Self {
        let (next, is_over) = (
            Arc::new(AtomicU64::new(first)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counter, over) = (next.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            let since = Instant::now();
            let mut stream = loop {
                match UnixStream::connect(&socket) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(since.elapsed() < PATIENCE, "{socket:?}: {error}"),
                }
                std::thread::yield_now();
            };
            while !over.load(Ordering::Relaxed) {
                let tf = counter.fetch_add(1, Ordering::Relaxed);
                // The FLP ends with the run.
                if stream.write_all(&record(tf)).is_err() {
                    return;
                }
                pace();
            }
        });
        Self {
            next,
            is_over,
            thread: Some(thread),
        }
    }

    /// Sets the counter, and returns the value that it had.
    fn jump(&self, to: impl Fn(u64) -> u64) -> u64 {
        let jump = |tf| Some(to(tf));
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, jump)
            .expect("every value jumps")
    }
}

impl Drop for Readout {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the rate of a readout; no test waits for it"
)]
fn pace() {
    std::thread::sleep(PERIOD);
}

/// Returns a record of the feed with 500 bytes.
fn record(tf: u64) -> Vec<u8> {
    let payload = [tf as u8; 500];
    let mut bytes = b"STFF\x01\0\0\0".to_vec();
    bytes.extend(tf.to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// A farm of two FLPs, each with a readout, and one EPN.
struct Farm {
    config: String,
    folder: tempfile::TempDir,
    icn: Running,
    others: Vec<Running>,
    readouts: Vec<Readout>,
}

impl Farm {
    fn start(ledger: &str, firsts: [u64; FLPS]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let text = format!(
            "[run]\nflps = {FLPS}\nepns = 1\n\
             [icn]\naddress = \"{}\"\n{ledger}\n\
             [flp]\nhold_bytes = 16777216\nstf_bytes_max = 1048576\n\
             [flp.source]\nkind = \"unix\"\npath = \"{at}/readout-{{flp}}.sock\"\n\
             [epn.sink]\nkind = \"verify\"\n\
             [epn.build]\ncapacity_bytes = 16777216\n\
             [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
            free_address()
        );
        let config = write(folder.path(), "farm.toml", &text);
        let icn = icn(&config, folder.path());
        let node = |role: &str, index: usize| {
            let events = folder.path().join(format!("{role}-{index}.events"));
            let index = index.to_string();
            let events = events.to_str().unwrap();
            Running::start(&[
                "run", role, "--config", &config, "--index", &index, "--events", events,
            ])
        };
        let mut others = vec![node("epn", 0)];
        others.extend((0..FLPS).map(|index| node("flp", index)));
        let socket = |index| folder.path().join(format!("readout-{index}.sock"));
        let readouts = firsts.into_iter().enumerate();
        let readouts = readouts.map(|(index, first)| Readout::start(socket(index), first));
        let readouts = readouts.collect();
        Self {
            config,
            icn,
            others,
            readouts,
            folder,
        }
    }

    /// Waits for a status that `is_it`.
    #[track_caller]
    fn await_status(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let status = serde_json::from_str(&self.icn.await_line("\"books\"")).unwrap();
            if is_it(&status) {
                return status;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {status:#}");
        }
    }

    /// Stops the run, and returns what the nodes logged, the ICN first.
    #[track_caller]
    fn stop(self) -> (tempfile::TempDir, Vec<String>) {
        let stopped = sheaf(&["ctl", "stop", "--config", &self.config]);
        assert!(stopped.status.success(), "{}", stopped.stderr);
        let mut logs = Vec::new();
        for node in [self.icn].into_iter().chain(self.others) {
            let ended = node.end();
            assert!(ended.status.success(), "{}", ended.stderr);
            logs.push(ended.stderr);
        }
        drop(self.readouts);
        (self.folder, logs)
    }
}

fn icn(config: &str, folder: &Path) -> Running {
    let icn = start_icn(folder, config, &[]);
    icn.await_line("listening");
    icn
}

fn count(status: &Value, field: &str) -> u64 {
    status["books"][field].as_u64().unwrap()
}

fn flps(status: &Value) -> impl Iterator<Item = &Value> {
    status["flps"].as_array().unwrap().iter()
}

#[test]
fn a_run_begins_at_the_readouts_counters_and_follows_their_jumps() {
    let _turn = farm_turn();
    let farm = Farm::start("", [1_000_000, 1_000_007]);
    let status = farm.await_status("a run", |status| count(status, "complete") >= 100);
    assert_eq!(status["first_tf"], 1_000_007, "{status:#}");
    assert_eq!(
        status["books"]["dropped"],
        serde_json::json!({}),
        "{status:#}"
    );

    // An STF that comes again is refused, and nothing else happens.
    farm.readouts[0].jump(|tf| tf - 10);
    let refused = |status: &Value| {
        flps(status).next().unwrap()["refused_stfs"]
            .as_u64()
            .unwrap()
    };
    // The seven before the first TF of the run, and these.
    let status = farm.await_status("refused STFs", |status| {
        refused(status) >= 17 && flps(status).all(|flp| flp["counter"] == "in-step")
    });
    assert_eq!(refused(&status), 17, "{status:#}");

    // One counter that jumps is ahead of the run; the run follows when all have jumped.
    farm.readouts[0].jump(|_| 5_000_000);
    let is_ahead = |status: &Value| flps(status).next().unwrap()["counter"] == "ahead";
    farm.await_status("a counter that is ahead", is_ahead);
    farm.readouts[1].jump(|_| 5_000_100);
    let before = farm.await_status("counters in step", |status| {
        flps(status).all(|flp| flp["counter"] == "in-step")
    });
    let goal = count(&before, "complete") + 100;
    let status = farm.await_status("TFs after the jump", |status| {
        count(status, "complete") >= goal
    });
    let existed = count(&status, "announced");
    assert!(existed < 500_000, "TFs that never existed: {status:#}");

    let (folder, logs) = farm.stop();
    let flp0 = &logs[2];
    for expected in ["TF ids went back", "TF ids jumped by more than 65536"] {
        assert!(flp0.contains(expected), "{expected}: {flp0}");
    }
    let at = folder.path().to_str().unwrap();
    let ledger = folder.path().join("farm.state/icn-0");
    let ledger = ledger.to_str().unwrap();
    let verified = sheaf(&["data", "verify", at, "--ledger", ledger, "--json", "-"]);
    let report: Value = serde_json::from_str(&verified.ok(&["data", "verify"])).unwrap();
    let refused = report["sources"]["flp:0"]["refused"].as_u64().unwrap();
    assert!(refused > 17, "{report:#}");
}

#[test]
fn a_new_run_goes_on_at_the_readouts_counters() {
    let _turn = farm_turn();
    let mut farm = Farm::start("[icn.ledger]\nbackend = \"memory\"", [70_000, 70_000]);
    let status = farm.await_status("a run", |status| count(status, "complete") >= 50);
    assert_eq!(status["first_tf"], 70_000, "{status:#}");
    // A ledger in memory: the run ends with its ICN.
    farm.icn.kill();
    farm.icn = icn(&farm.config, farm.folder.path());
    let again = farm.await_status("a second run", |status| count(status, "complete") >= 50);
    assert_ne!(again["run"], status["run"]);
    assert!(again["first_tf"].as_u64().unwrap() > 70_050, "{again:#}");
    assert_eq!(
        again["books"]["dropped"],
        serde_json::json!({}),
        "{again:#}"
    );
    farm.stop();
}

#[test]
fn a_lone_icn_that_is_killed_goes_on_with_its_run_by_default() {
    let _turn = farm_turn();
    let mut farm = Farm::start("", [0, 0]);
    let status = farm.await_status("a run", |status| count(status, "complete") >= 50);
    farm.icn.kill();
    farm.icn = icn(&farm.config, farm.folder.path());
    let goal = count(&status, "complete") + 50;
    let again = farm.await_status("the same run", |status| count(status, "complete") >= goal);
    assert_eq!(again["run"], status["run"]);
    assert_eq!(
        again["books"]["dropped"],
        serde_json::json!({}),
        "{again:#}"
    );
    farm.stop();
}
