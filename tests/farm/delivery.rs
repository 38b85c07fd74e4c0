//! `icn.delivery`: what becomes of TFs whose EPN is killed between their commit and its acknowledgement.
//!
//! EPN 0 reaches the ICN through a relay. The relay freezes, the consumer of EPN 0 takes some more TFs and then none,
//! and the EPN is killed: the consumer has TFs that the ICN knows nothing of, and lacks others that are committed.

use crate::harness::{PATIENCE, farm_turn, free_address, sheaf, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;
use sheaf_formats::tf_file::read_tf_file;
use sheaf_testbed::relay::{Relay, Tamper};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// More than a socket holds, so that an EPN has TFs that its consumer does not read.
const STF_BYTES: u64 = 300_000;
/// TFs that the consumer takes and the ICN knows nothing of.
const UNKNOWN: usize = 3;
const TIMEFRAMES: u64 = 150;

/// State of a consumer.
#[derive(Default)]
struct Taken {
    /// Ids of the TFs that it has, and whether they are marked.
    tfs: Vec<(u64, bool)>,
    /// Number of TFs that it takes; `None` for all.
    limit: Option<usize>,
}

/// A program that takes the TFs of one EPN.
struct Consumer {
    taken: Arc<(Mutex<Taken>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Consumer {
    fn start(socket: PathBuf) -> Self {
        let taken = Arc::<(Mutex<Taken>, Condvar)>::default();
        let shared = taken.clone();
        let thread = std::thread::spawn(move || {
            let since = Instant::now();
            let mut stream = loop {
                match UnixStream::connect(&socket) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(since.elapsed() < PATIENCE, "{socket:?}: {error}"),
                }
                std::thread::yield_now();
            };
            let (state, changed) = &*shared;
            loop {
                let is_full = |taken: &mut Taken| {
                    let limit = taken.limit;
                    limit.is_some_and(|limit| taken.tfs.len() >= limit)
                };
                drop(changed.wait_while(state.lock().unwrap(), is_full).unwrap());
                let Some(found) = read_tf(&mut stream) else {
                    return;
                };
                state.lock().unwrap().tfs.push(found);
                changed.notify_all();
            }
        });
        Self { taken, thread }
    }

    /// Takes `more` TFs from now on, and no others.
    fn limit(&self, more: usize) {
        let (state, _) = &*self.taken;
        let mut taken = state.lock().unwrap();
        taken.limit = Some(taken.tfs.len() + more);
    }

    /// Waits until it has as many as it takes.
    fn await_limit(&self) {
        let (state, changed) = &*self.taken;
        let is_short = |taken: &mut Taken| {
            let limit = taken.limit.unwrap_or(0);
            taken.tfs.len() < limit
        };
        let taken = state.lock().unwrap();
        let waited = changed.wait_timeout_while(taken, PATIENCE, is_short);
        assert!(!waited.unwrap().1.timed_out(), "the consumer gets no TF");
    }

    /// Takes all that comes, to the end of its EPN; returns all that it had.
    fn end(self) -> Vec<(u64, bool)> {
        let (state, changed) = &*self.taken;
        state.lock().unwrap().limit = None;
        changed.notify_all();
        self.thread.join().unwrap();
        std::mem::take(&mut state.lock().unwrap().tfs)
    }
}

/// Reads the next whole TF; `None` at the end of the stream, also in the middle of one.
fn read_tf(stream: &mut UnixStream) -> Option<(u64, bool)> {
    let mut length = [0; 8];
    stream.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
    stream.read_exact(&mut bytes).ok()?;
    let tf = read_tf_file(&bytes).expect("a whole TF");
    Some((tf.tf.0, tf.is_redelivered))
}

/// Outcome of a farm whose EPN 0 was killed.
struct Outcome {
    /// Whether each delivery of a TF was marked, by TF.
    deliveries: BTreeMap<u64, Vec<bool>>,
    /// Result of `sheaf data verify`.
    report: Value,
}

fn farm(at: &Path, delivery: &str) -> Outcome {
    let address = free_address();
    let relay = Relay::to(&address).unwrap();
    // In turn: a policy that sees what is with consumers would leave EPN 0 out when its consumer takes nothing.
    let text = |icn: &str| {
        format!(
            "[run]\nflps = 2\nepns = 3\ntimeframes = {TIMEFRAMES}\n\
             [icn]\naddress = \"{icn}\"\ndelivery = \"{delivery}\"\n\
             [flp]\nhold_bytes = 67108864\nrate_hz = 25.0\nstf_bytes_max = 1048576\n\
             [flp.source]\nkind = \"generator\"\nbytes_mean = {STF_BYTES}\n\
             [epn.build]\ncapacity_bytes = 67108864\n\
             [epn.sink]\nkind = \"unix\"\npath = \"{}/epn-{{epn}}.sock\"\n\
             [icn.scheduler]\npolicy = \"round-robin\"\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
            at.display()
        )
    };
    let config = write(at, "farm.toml", &text(&address));
    let relayed = write(at, "relayed.toml", &text(relay.address()));
    let icn = start_icn(at, &config, &[]);
    let killed = start(at, &relayed, "epn", 0, &[]);
    let others = [("epn", 1), ("epn", 2), ("flp", 0), ("flp", 1)];
    let others = others.map(|(role, index)| start(at, &config, role, index, &[]));
    let consumers = [0, 1, 2].map(|epn| Consumer::start(at.join(format!("epn-{epn}.sock"))));
    // It has acknowledged some, so that the next commits come several at a time.
    consumers[0].limit(4);
    consumers[0].await_limit();
    consumers[0].limit(0);
    // A status line may step over a number.
    icn.await_that("40 complete TFs", |line| {
        let status: Value = serde_json::from_str(line).unwrap_or_default();
        status["books"]["complete"].as_u64() >= Some(40)
    });
    relay.set(Tamper::Freeze, 0);
    consumers[0].limit(UNKNOWN);
    consumers[0].taken.1.notify_all();
    consumers[0].await_limit();
    killed.signal(Signal::KILL);
    assert!(!killed.end().status.success());
    relay.set(Tamper::Close, 0);
    for node in others.into_iter().chain([icn]) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let mut deliveries: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
    for (tf, is_marked) in consumers.into_iter().flat_map(Consumer::end) {
        deliveries.entry(tf).or_default().push(is_marked);
    }
    let words = ["data", "verify", at.to_str().unwrap(), "--json", "-"];
    let words = [&words[..], &["--allow-abandoned", "--all"]].concat();
    let report = serde_json::from_str(&sheaf(&words).ok(&words)).unwrap();
    Outcome { deliveries, report }
}

#[test]
fn at_most_once_a_killed_epn_abandons_what_it_had_not_acknowledged_and_nothing_comes_twice() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let Outcome { deliveries, report } = farm(folder.path(), "at-most-once");
    let abandoned = report["abandoned"].as_u64().unwrap();
    assert!((UNKNOWN as u64..=16).contains(&abandoned), "{report:#}");
    assert_eq!(report["complete"], TIMEFRAMES, "{report:#}");
    assert_eq!(report["redelivered"], 0, "{report:#}");
    assert!(
        deliveries.values().all(|marks| marks == &[false]),
        "{deliveries:?}"
    );
    // Some of them are with the consumer.
    let lacking = TIMEFRAMES - deliveries.len() as u64;
    assert!(
        lacking > 0 && lacking < abandoned,
        "{deliveries:?}\n{report:#}"
    );
}

#[test]
fn at_least_once_nothing_is_abandoned_and_what_comes_twice_is_marked() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let Outcome { deliveries, report } = farm(folder.path(), "at-least-once");
    assert_eq!(report["abandoned"], 0, "{report:#}");
    assert_eq!(report["complete"], TIMEFRAMES, "{report:#}");
    let redelivered = report["redelivered"].as_u64().unwrap();
    assert!((UNKNOWN as u64..=16).contains(&redelivered), "{report:#}");
    let all: Vec<u64> = (0..TIMEFRAMES).collect();
    assert_eq!(deliveries.keys().copied().collect::<Vec<u64>>(), all);
    let unmarked = |marks: &[bool]| marks.iter().filter(|is_marked| !**is_marked).count();
    let marked = deliveries.values().filter(|marks| marks.contains(&true));
    assert_eq!(marked.count() as u64, redelivered, "{deliveries:?}");
    assert!(
        deliveries.values().all(|marks| unmarked(marks) <= 1),
        "{deliveries:?}"
    );
    let twice = deliveries.values().filter(|marks| marks.len() > 1).count();
    assert!(twice >= UNKNOWN, "{deliveries:?}");
    assert_eq!(report["delivered_twice"], 0, "{report:#}");
}

#[test]
fn at_least_once_with_ack_level_stored_is_refused_as_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[icn]\ndelivery = \"at-least-once\"\n[epn]\nack = \"stored\"\n[epn.sink]\nkind = \"file\"\n\
                directory = \"/\"\n";
    let config = write(folder.path(), "farm.toml", text);
    let ended = sheaf(&["config", "check", &config]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let all = ended.stderr + &ended.stdout.join("\n");
    let expected = "icn.delivery: found \"at-least-once\", expected \"at-most-once\" with epn.ack = \"stored\"";
    assert!(all.contains(expected), "{all}");
}
