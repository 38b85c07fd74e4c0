//! Records of the TFs of a live run, from the event logs of its nodes.
//!
//! Logs do not tell the bytes' way: `first_byte_ns`, `last_byte_ns` and `freed_ns` are empty. `announced_ns` is the
//! time at which the first FLP had made its STF (or the ICN had called for the TF), `assigned_ns` that at which the
//! first FLP obeyed. Where a consumer holds TFs, as with the sink `shm`, `processing_ns` is when it took the TF and
//! `done_ns` when it gave the memory back; where the sink works on TFs itself, the begin is not known and `done_ns` is
//! the delivery. All times are of one clock (CLOCK_MONOTONIC), so the nodes have to be of one machine.

use crate::times::Times;
use crate::trace::each_line;
use serde::Deserialize;
use sheaf_protocol::DropReason;
use sheaf_sim::des::{Fate, TfRecord};
use sheaf_sim::summary::Latency;
use sheaf_testbed::IoError;
use sheaf_verdict_log::event::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reasons why a live run has no records.
#[derive(Debug, Error)]
pub enum LiveError {
    /// A log cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No event log.
    #[error(
        "{} holds no event log, expected files such as icn-0.events (sheaf demo leaves them with --keep)",
        .0.display()
    )]
    NoLog(PathBuf),
    /// Logs of several runs.
    #[error("found event logs of the runs {}, expected those of one run", .0.join(", "))]
    Runs(Vec<String>),
}

/// TFs of a live run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveRun {
    /// The run, as 16 hexadecimal digits; empty if no log names it.
    pub run: String,
    /// Records in the order of the TFs, times in ns from the first STF that was made.
    pub records: Vec<TfRecord>,
    /// Time of the last line of all logs, in ns.
    pub end_ns: u64,
}

/// Index and incarnation of an EPN.
type EpnLife = (u16, u64);

/// A line of a log.
#[derive(Deserialize)]
struct Line {
    at_ns: u64,
    #[serde(flatten)]
    event: Event,
}

/// Delivery of a TF by an EPN.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    at_ns: u64,
    is_held: bool,
    freed_ns: Option<u64>,
}

#[derive(Default)]
struct Tf {
    record: TfRecord,
    made_bytes: u64,
    deliveries: BTreeMap<EpnLife, Delivery>,
}

#[derive(Default)]
struct Reader {
    runs: BTreeSet<String>,
    tfs: BTreeMap<u64, Tf>,
    ended: BTreeSet<EpnLife>,
    is_over: bool,
    last_ns: u64,
    /// The EPN of the log that is read.
    epn: Option<EpnLife>,
}

/// Reads the event logs in `dir`. Lines that are cut are left out; `sheaf data verify` reports them.
///
/// # Errors
///
/// All of [`LiveError`].
pub fn read(dir: &Path) -> Result<LiveRun, LiveError> {
    let at = IoError::of(format!("read {}", dir.display()));
    let logs = sheaf_audit::logs_in(dir).map_err(at)?;
    if logs.is_empty() {
        return Err(LiveError::NoLog(dir.to_owned()));
    }
    let mut reader = Reader::default();
    for log in &logs {
        reader.epn = None;
        each_line(log, |line| reader.take(line))?;
    }
    reader.finish()
}

fn earlier(known: &mut Option<u64>, at_ns: u64) {
    *known = Some(known.map_or(at_ns, |known| known.min(at_ns)));
}

fn reason_named(name: &str) -> Option<DropReason> {
    DropReason::ALL
        .into_iter()
        .find(|reason| reason.name() == name)
}

impl Reader {
    fn tf(&mut self, tf: u64) -> &mut Tf {
        self.tfs.entry(tf).or_default()
    }

    fn take(&mut self, Line { at_ns, event }: Line) {
        self.last_ns = self.last_ns.max(at_ns);
        match event {
            Event::Begin { node, incarnation } => {
                let index = node.strip_prefix("epn:").and_then(|it| it.parse().ok());
                self.epn = index.map(|index| (index, incarnation));
            }
            Event::End => self.ended.extend(self.epn),
            Event::Over => self.is_over = true,
            Event::Run { run } => {
                self.runs.insert(run);
            }
            Event::Made { tf, bytes, .. } => {
                let tf = self.tf(tf);
                earlier(&mut tf.record.announced_ns, at_ns);
                tf.made_bytes += bytes;
            }
            Event::Called { tf } => earlier(&mut self.tf(tf).record.announced_ns, at_ns),
            Event::Sent {
                tf, attempt, epn, ..
            } => {
                let record = &mut self.tf(tf).record;
                earlier(&mut record.assigned_ns, at_ns);
                record.attempts = record.attempts.max(attempt);
                record.epn.get_or_insert(epn);
            }
            Event::Verdict {
                tf,
                verdict,
                epn,
                reason,
                ..
            } => {
                let record = &mut self.tf(tf).record;
                earlier(&mut record.committed_ns, at_ns);
                record.epn = epn.or(record.epn);
                record.fate = match (verdict.as_str(), reason.as_deref().and_then(reason_named)) {
                    ("complete", _) => Fate::Complete,
                    ("incomplete", _) => Fate::Incomplete,
                    (_, Some(reason)) => Fate::Dropped(reason),
                    (_, None) => record.fate,
                };
            }
            Event::Redelivered { tf, epn, .. } => self.tf(tf).record.epn = Some(epn),
            Event::Abandoned { tf } => self.tf(tf).record.fate = Fate::Abandoned,
            Event::Undelivered { tf } if self.epn.is_none() => {
                self.tf(tf).record.fate = Fate::Dropped(DropReason::Undelivered);
            }
            Event::Delivered {
                tf, parts, held, ..
            } => self.deliver(self.epn, tf, at_ns, held, &parts),
            Event::Recovered {
                tf,
                incarnation,
                parts,
                ..
            } => {
                let former = self.epn.map(|(epn, _)| (epn, incarnation));
                self.deliver(former, tf, at_ns, false, &parts);
            }
            Event::Freed { tf } => {
                if let Some(epn) = self.epn
                    && let Some(delivery) = self.tf(tf).deliveries.get_mut(&epn)
                {
                    delivery.freed_ns = Some(at_ns);
                }
            }
            _ => {}
        }
    }

    fn deliver(
        &mut self,
        epn: Option<EpnLife>,
        tf: u64,
        at_ns: u64,
        is_held: bool,
        parts: &[sheaf_verdict_log::event::PartEvent],
    ) {
        let Some(epn) = epn else { return };
        let tf = self.tf(tf);
        tf.record.bytes = parts.iter().map(|part| part.bytes).sum();
        tf.deliveries.entry(epn).or_insert(Delivery {
            at_ns,
            is_held,
            freed_ns: None,
        });
    }

    fn finish(self) -> Result<LiveRun, LiveError> {
        let Self {
            runs,
            tfs,
            ended,
            is_over,
            last_ns,
            ..
        } = self;
        if runs.len() > 1 {
            return Err(LiveError::Runs(runs.into_iter().collect()));
        }
        let begins = tfs.values().filter_map(|tf| tf.record.announced_ns);
        let origin = begins.min().unwrap_or(0);
        // In a run that goes on a consumer may finish yet.
        let has_died = |epn: &EpnLife| is_over && !ended.contains(epn);
        let records = tfs
            .into_iter()
            .map(|(number, tf)| tf.record(number, origin, has_died))
            .collect();
        Ok(LiveRun {
            end_ns: last_ns.saturating_sub(origin),
            run: runs.into_iter().next().unwrap_or_default(),
            records,
        })
    }
}

impl Tf {
    fn record(self, number: u64, origin: u64, has_died: impl Fn(&EpnLife) -> bool) -> TfRecord {
        let mut record = TfRecord {
            tf: number,
            ..self.record
        };
        let is_delivered = !self.deliveries.is_empty();
        if !is_delivered {
            record.bytes = self.made_bytes;
        }
        let held = self.deliveries.values().filter(|it| it.is_held);
        record.processing_ns = held.map(|it| it.at_ns).min();
        let done = |it: &Delivery| match it.is_held {
            true => it.freed_ns,
            false => Some(it.at_ns),
        };
        record.done_ns = self.deliveries.values().filter_map(done).min();
        if is_delivered && record.done_ns.is_none() {
            record.fate = match self.deliveries.keys().all(has_died) {
                true => Fate::DiedUnprocessed,
                false => Fate::Unprocessed,
            };
        }
        for time in [
            &mut record.announced_ns,
            &mut record.assigned_ns,
            &mut record.committed_ns,
            &mut record.processing_ns,
            &mut record.done_ns,
        ] {
            *time = time.map(|at| at.saturating_sub(origin));
        }
        record
    }
}

impl LiveRun {
    /// Returns the TFs of each fate.
    #[must_use]
    pub fn fates(&self) -> BTreeMap<&'static str, u64> {
        let mut fates = BTreeMap::new();
        for record in &self.records {
            *fates.entry(record.fate.name()).or_default() += 1;
        }
        fates
    }

    /// Returns the distribution in µs of the times from announce to the begin of processing; `None` if no log tells
    /// when consumers began.
    #[must_use]
    pub fn wait_us(&self) -> Option<(u64, Latency)> {
        self.distribution(|record| record.wait_ns(self.end_ns))
    }

    /// Returns the distribution in µs of the times from announce to the end of processing; of TFs whose consumers have
    /// not finished, the time until the end of the logs.
    #[must_use]
    pub fn turnaround_us(&self) -> Option<(u64, Latency)> {
        self.distribution(|record| record.turnaround_ns(self.end_ns))
    }

    fn distribution(&self, time: impl Fn(&TfRecord) -> Option<u64>) -> Option<(u64, Latency)> {
        let times = self.records.iter().filter_map(time);
        let times: Vec<f64> = times.map(|ns| ns as f64 / 1e3).collect();
        let count = times.len() as u64;
        (count > 0).then(|| (count, Times::of(times).us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads logs, each as its name and its lines.
    fn run(logs: &[(&str, &[&str])]) -> Result<LiveRun, LiveError> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, lines) in logs {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        read(folder.path())
    }

    const FLP: (&str, &[&str]) = (
        "flp-0.events",
        &[
            r#"{"event":"begin","node":"flp:0","incarnation":5,"at_ns":900}"#,
            r#"{"event":"run","run":"00000000000000ab","at_ns":950}"#,
            r#"{"event":"made","tf":0,"bytes":10,"digest":1,"at_ns":1000}"#,
            r#"{"event":"sent","tf":0,"term":1,"attempt":1,"epn":1,"incarnation":7,"at_ns":1100}"#,
            r#"{"event":"made","tf":1,"bytes":30,"digest":1,"at_ns":2000}"#,
            r#"{"event":"sent","tf":1,"term":1,"attempt":2,"epn":1,"incarnation":7,"at_ns":2100}"#,
            r#"{"event":"made","tf":2,"bytes":30,"digest":1,"at_ns":3000}"#,
        ],
    );
    const ICN: (&str, &[&str]) = (
        "icn-0.events",
        &[
            r#"{"event":"begin","node":"icn:0","incarnation":1,"at_ns":800}"#,
            r#"{"event":"verdict","tf":0,"verdict":"complete","epn":1,"incarnation":7,"missing":[],"reason":null,"at_ns":1500}"#,
            r#"{"event":"verdict","tf":1,"verdict":"complete","epn":1,"incarnation":7,"missing":[],"reason":null,"at_ns":2500}"#,
            r#"{"event":"verdict","tf":2,"verdict":"dropped","epn":null,"incarnation":null,"missing":[],"reason":"shed-overload","at_ns":3500}"#,
            r#"{"event":"over","at_ns":8000}"#,
        ],
    );

    fn epn(lines: &[&'static str]) -> Vec<&'static str> {
        let begin = [r#"{"event":"begin","node":"epn:1","incarnation":7,"at_ns":850}"#];
        begin.into_iter().chain(lines.iter().copied()).collect()
    }

    const TAKEN_0: &str = r#"{"event":"delivered","tf":0,"attempt":1,"parts":[{"flp":0,"incarnation":5,"bytes":10,"digest":1}],"missing":[],"held":true,"at_ns":1600}"#;
    const FREED_0: &str = r#"{"event":"freed","tf":0,"at_ns":4600}"#;
    const TAKEN_1: &str = r#"{"event":"delivered","tf":1,"attempt":2,"parts":[{"flp":0,"incarnation":5,"bytes":30,"digest":1}],"missing":[],"held":true,"at_ns":4700}"#;

    #[test]
    fn a_record_has_the_times_from_the_first_stf_on() {
        let lines = epn(&[TAKEN_0, FREED_0, TAKEN_1]);
        let run = run(&[FLP, ICN, ("epn-1.events", &lines)]).expect("one run");
        assert_eq!(run.run, "00000000000000ab");
        let [first, second, third] = run.records.as_slice() else {
            panic!("{run:?}")
        };
        let times = [
            first.announced_ns,
            first.assigned_ns,
            first.committed_ns,
            first.processing_ns,
            first.done_ns,
        ];
        assert_eq!(times.map(|at| at.expect("known")), [0, 100, 500, 600, 3600]);
        assert_eq!((first.epn, first.attempts, first.bytes), (Some(1), 1, 10));
        assert_eq!(first.fate, Fate::Complete);
        // Its EPN has no line `end`: it died with the TF.
        assert_eq!((second.done_ns, second.fate), (None, Fate::DiedUnprocessed));
        assert_eq!(second.processing_ns, Some(3700));
        assert_eq!(third.fate.name(), "shed-overload");
        let (count, wait) = run.wait_us().expect("a consumer");
        assert_eq!((count, wait.max), (2, 2.7));
        let (count, turnaround) = run.turnaround_us().expect("one is done");
        assert_eq!((count, turnaround.max), (1, 3.6));
    }

    #[test]
    fn a_tf_with_the_consumer_of_an_epn_that_ended_in_order_is_unprocessed() {
        let lines = epn(&[TAKEN_0, r#"{"event":"end","at_ns":9000}"#]);
        let run = run(&[FLP, ICN, ("epn-1.events", &lines)]).expect("one run");
        assert_eq!(run.records[0].fate, Fate::Unprocessed);
        // Until the last line of all logs, at least.
        let (count, turnaround) = run.turnaround_us().expect("one is not done");
        assert_eq!((count, turnaround.max), (1, 8.0));
    }

    #[test]
    fn in_a_run_that_goes_on_no_tf_has_died() {
        let lines = epn(&[TAKEN_0]);
        let run = run(&[FLP, ("epn-1.events", &lines)]).expect("one run");
        assert_eq!(run.records[0].fate, Fate::Unprocessed);
    }

    #[test]
    fn a_sink_that_works_itself_tells_no_begin() {
        let delivered =
            r#"{"event":"delivered","tf":0,"attempt":1,"parts":[],"missing":[],"at_ns":1600}"#;
        let lines = epn(&[delivered]);
        let run = run(&[FLP, ICN, ("epn-1.events", &lines)]).expect("one run");
        assert_eq!(
            (run.records[0].processing_ns, run.records[0].done_ns),
            (None, Some(600))
        );
        assert!(run.wait_us().is_none());
        assert_eq!(run.fates()["complete"], 2);
    }

    #[test]
    fn logs_of_two_runs_or_none_are_refused() {
        let other = r#"{"event":"run","run":"00000000000000cd","at_ns":950}"#;
        let error = run(&[FLP, ("flp-1.events", &[other])]).expect_err("two runs");
        assert!(
            error
                .to_string()
                .contains("00000000000000ab, 00000000000000cd"),
            "{error}"
        );
        let error = run(&[]).expect_err("no log");
        assert!(error.to_string().contains("holds no event log"), "{error}");
    }
}
