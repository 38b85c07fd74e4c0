//! Times and fates of every TF by the event logs of a farm: the measures of an experiment.
//!
//! The accounting is checked elsewhere (`judge`); this module measures times.

use crate::farm::Log;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sheaf_audit::Fate;
use sheaf_protocol::{NodeId, Role};
use sheaf_testbed::IoError;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::Path;

/// Fate of a TF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not decided.
    #[default]
    Open,
    /// Built with all its parts.
    Complete,
    /// Built without some.
    Incomplete,
    /// Not built, and why.
    Dropped(String),
}

/// One life of an EPN: its index and incarnation.
pub(crate) type EpnLife = (u16, u64);

/// One TF.
#[derive(Clone, Debug, Default)]
pub(crate) struct TfTrace {
    /// When it was called for first.
    pub(crate) called_ns: Option<u64>,
    /// When its verdict was written first.
    pub(crate) verdict_ns: Option<u64>,
    /// Time of the first delivery.
    pub(crate) delivered_ns: Option<u64>,
    /// Fate of the TF.
    pub(crate) outcome: Outcome,
    /// EPNs to which an STF of it was sent.
    pub(crate) sent_to: Vec<EpnLife>,
    /// EPNs that delivered the TF.
    pub(crate) delivered_by: Vec<EpnLife>,
    /// Whether delivery is unknown.
    pub(crate) is_abandoned: bool,
}

/// All TFs of a farm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) tfs: BTreeMap<u64, TfTrace>,
    /// Lives of EPNs that were killed.
    pub(crate) killed: Vec<EpnLife>,
}

/// A line of an event log, as far as it matters here (docs/reference/events.md).
#[derive(Deserialize)]
struct Line {
    event: String,
    tf: Option<u64>,
    at_ns: Option<u64>,
    epn: Option<u16>,
    incarnation: Option<u64>,
    verdict: Option<String>,
    reason: Option<String>,
}

impl Trace {
    /// Reads all `logs`. The clock of a node for which `ahead_ns` is not 0 is so much ahead.
    ///
    /// # Errors
    ///
    /// Result of reading a log. Lines that cannot be read are left out; the check of the accounting reports them.
    pub(crate) fn read(logs: &[Log], ahead_ns: impl Fn(NodeId) -> u64) -> Result<Self, IoError> {
        let mut trace = Self::default();
        for log in logs {
            let mut reader = LogReader {
                node: log.node,
                was_killed: log.fate == Fate::Killed,
                incarnation: 0,
                ahead_ns: ahead_ns(log.node),
            };
            each_line(&log.path, |line| reader.take_in(&mut trace, line))?;
        }
        Ok(trace)
    }

    /// TFs that were dropped or are incomplete, by reason.
    pub(crate) fn lost(&self) -> BTreeMap<String, u64> {
        let mut lost = BTreeMap::new();
        for tf in self.tfs.values() {
            let reason = match &tf.outcome {
                Outcome::Incomplete => "incomplete",
                Outcome::Dropped(reason) => reason,
                Outcome::Open | Outcome::Complete => continue,
            };
            *lost.entry(reason.to_owned()).or_default() += 1;
        }
        lost
    }

    /// How long the TF that waited longest for its verdict had to, in ms, of those that were called for within
    /// `called`, in ns, and not decided at `since_ns`. Time before `since_ns` does not count.
    pub(crate) fn longest_wait_ms(&self, called: &Range<u64>, since_ns: u64) -> Option<f64> {
        let waits = self.tfs.values().filter_map(|tf| {
            let called_ns = tf.called_ns.filter(|at| called.contains(at))?;
            let done_ns = tf.verdict_ns.filter(|done| *done >= since_ns)?;
            Some(done_ns.saturating_sub(called_ns.max(since_ns)))
        });
        waits.max().map(|ns| ns as f64 / 1e6)
    }

    /// TFs of which an FLP had sent something to an EPN that was killed before it delivered the TF: a source that
    /// frees what it has sent would have lost exactly these.
    pub(crate) fn gone_with_a_killed_epn(&self) -> u64 {
        let is_gone = |tf: &&TfTrace| {
            tf.sent_to
                .iter()
                .any(|epn| self.killed.contains(epn) && !tf.delivered_by.contains(epn))
        };
        self.tfs.values().filter(is_gone).count() as u64
    }

    /// TFs whose delivery is unknown.
    pub(crate) fn abandoned(&self) -> u64 {
        self.tfs.values().filter(|tf| tf.is_abandoned).count() as u64
    }
}

/// Reads the event log at `path`, all files of its series. Lines that cannot be read are left out.
pub(crate) fn each_line<L: DeserializeOwned>(
    path: &Path,
    mut take: impl FnMut(L),
) -> Result<(), IoError> {
    let what = || IoError::of(format!("read {}", path.display()));
    for file in sheaf_audit::files_of(path).map_err(what())? {
        let file = File::open(file).map_err(what())?;
        for line in BufReader::new(file).split(b'\n') {
            if let Ok(line) = serde_json::from_slice(&line.map_err(what())?) {
                take(line);
            }
        }
    }
    Ok(())
}

struct LogReader {
    node: NodeId,
    was_killed: bool,
    incarnation: u64,
    ahead_ns: u64,
}

impl LogReader {
    fn take_in(&mut self, trace: &mut Trace, line: Line) {
        if line.event == "begin" {
            self.incarnation = line.incarnation.unwrap_or(0);
            if self.node.role == Role::Epn && self.was_killed {
                trace.killed.push((self.node.index, self.incarnation));
            }
            return;
        }
        let Some(number) = line.tf else { return };
        let at_ns = line.at_ns.map(|at| at.saturating_sub(self.ahead_ns));
        let tf = trace.tfs.entry(number).or_default();
        let earlier = |known: Option<u64>| match (known, at_ns) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
        match line.event.as_str() {
            "called" => tf.called_ns = earlier(tf.called_ns),
            "delivered" => {
                tf.delivered_ns = earlier(tf.delivered_ns);
                tf.delivered_by.push((self.node.index, self.incarnation));
            }
            "recovered" => {
                tf.delivered_ns = earlier(tf.delivered_ns);
                let by = (self.node.index, line.incarnation.unwrap_or(0));
                if !tf.delivered_by.contains(&by) {
                    tf.delivered_by.push(by);
                }
            }
            "verdict" => {
                tf.verdict_ns = earlier(tf.verdict_ns);
                tf.outcome = match line.verdict.as_deref() {
                    Some("complete") => Outcome::Complete,
                    Some("incomplete") => Outcome::Incomplete,
                    _ => Outcome::Dropped(line.reason.unwrap_or_default()),
                };
            }
            "redelivered" => {
                tf.outcome = match line.verdict.as_deref() {
                    Some("complete") => Outcome::Complete,
                    _ => Outcome::Incomplete,
                };
            }
            "abandoned" => tf.is_abandoned = true,
            "undelivered" if self.node.role == Role::Icn => {
                tf.outcome = Outcome::Dropped(line.event);
            }
            "sent" => {
                let epn = (line.epn.unwrap_or(0), line.incarnation.unwrap_or(0));
                if tf.sent_to.last() != Some(&epn) {
                    tf.sent_to.push(epn);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    /// A trace of the lines `(node, life, was killed, line)`.
    fn trace(lines: &[(NodeId, u64, bool, &str)]) -> Trace {
        let mut trace = Trace::default();
        for (node, incarnation, was_killed, line) in lines {
            let mut reader = LogReader {
                node: *node,
                was_killed: *was_killed,
                incarnation: *incarnation,
                ahead_ns: 0,
            };
            reader.take_in(&mut trace, serde_json::from_str(line).unwrap());
        }
        trace
    }

    #[test]
    fn a_tf_waits_from_its_call_or_from_the_fault_whichever_is_later() {
        let (flp, epn): (NodeId, NodeId) = (FlpId(0).into(), EpnId(1).into());
        let trace = trace(&[
            (
                NodeId::ICN,
                1,
                false,
                r#"{"event":"called","tf":0,"at_ns":1000000}"#,
            ),
            (
                NodeId::ICN,
                1,
                false,
                r#"{"event":"called","tf":1,"at_ns":9000000}"#,
            ),
            (
                epn,
                7,
                true,
                r#"{"event":"begin","node":"epn:1","incarnation":7,"at_ns":0}"#,
            ),
            (
                flp,
                3,
                false,
                r#"{"event":"sent","tf":0,"attempt":1,"epn":1,"incarnation":7,"at_ns":2000000}"#,
            ),
            (
                flp,
                3,
                false,
                r#"{"event":"sent","tf":0,"attempt":2,"epn":2,"incarnation":8,"at_ns":6000000}"#,
            ),
            (
                EpnId(2).into(),
                8,
                false,
                r#"{"event":"delivered","tf":0,"parts":[],"missing":[],"at_ns":8000000}"#,
            ),
            (
                NodeId::ICN,
                1,
                false,
                r#"{"event":"verdict","tf":0,"verdict":"complete","epn":2,"incarnation":8,"at_ns":7500000}"#,
            ),
            (
                NodeId::ICN,
                1,
                false,
                r#"{"event":"verdict","tf":1,"verdict":"dropped","reason":"source-died","at_ns":9500000}"#,
            ),
        ]);
        let wait = |since| trace.longest_wait_ms(&(0..u64::MAX), since);
        assert_eq!(wait(0), Some(6.5));
        assert_eq!(wait(5_000_000), Some(2.5));
        assert_eq!(wait(9_200_000), Some(0.3));
        assert_eq!(wait(10_000_000), None);
        let late = trace.longest_wait_ms(&(5_000_000..u64::MAX), 0);
        assert_eq!(late, Some(0.5));
        assert_eq!(trace.gone_with_a_killed_epn(), 1);
        assert_eq!(trace.lost(), [("source-died".to_owned(), 1)].into());
    }
}
