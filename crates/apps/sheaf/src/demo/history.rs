//! Leaders over time, and gaps without assignments: read from the event logs of ICNs and FLPs.
//!
//! Every line of an event log says when it was made, on a clock that all processes of a machine share.

use serde::{Deserialize, Serialize};
use sheaf_farm::Life;
use sheaf_protocol::{NodeId, Role};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

/// An ICN that began to lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Leader {
    /// Such as `icn:1`.
    pub(crate) icn: String,
    /// Term.
    pub(crate) term: u64,
    /// Seconds since the first STF was made; negative before.
    pub(crate) at_s: f64,
}

/// Facts of the logs beside the accounting.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// In the order of their terms.
    pub(crate) leaders: Vec<Leader>,
    /// Longest time from one STF sent to the next, of all FLPs together, in ms.
    pub(crate) assignment_gap_ms_max: Option<f64>,
    /// Verdicts that each ICN knew of when it last led.
    pub(crate) decided: BTreeMap<NodeId, u64>,
}

/// Fields of a line that are used here.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    term: u64,
    #[serde(default)]
    at_ns: u64,
}

impl History {
    /// Reads the logs of all lives of all nodes.
    ///
    /// # Errors
    ///
    /// What reading gives.
    pub(crate) fn read(lives: &[Life]) -> io::Result<Self> {
        let logs: Vec<(NodeId, &Path)> = lives
            .iter()
            .filter(|life| life.events.exists())
            .map(|life| (life.node, life.events.as_path()))
            .collect();
        let of_role = |role| logs.iter().filter(move |(node, _)| node.role == role);
        let mut origin_ns = None;
        let mut flps = Vec::new();
        for (_, path) in of_role(Role::Flp) {
            let mut log = Log::open(path)?;
            if let Some(first) = log.next_of(&["made", "skipped"])? {
                origin_ns = Some(origin_ns.map_or(first, |origin: u64| origin.min(first)));
            }
            flps.push(Log::open(path)?);
        }
        let mut history = Self::default();
        for (node, path) in of_role(Role::Icn) {
            history.add_icn(*node, Log::open(path)?, origin_ns)?;
        }
        history.leaders.sort_by_key(|leader| leader.term);
        // With one life of one ICN it tells only how fast the sources are.
        if of_role(Role::Icn).count() > 1 {
            history.assignment_gap_ms_max = longest_gap(flps)?;
        }
        Ok(history)
    }

    fn add_icn(&mut self, node: NodeId, mut log: Log, origin_ns: Option<u64>) -> io::Result<()> {
        let mut decided = None;
        while let Some(line) = log.next()? {
            match line.event.as_str() {
                "leads" => {
                    // What its verdict log held is written again behind this line.
                    decided = Some(0);
                    let (at_ns, origin_ns) = (line.at_ns, origin_ns.unwrap_or(line.at_ns));
                    self.leaders.push(Leader {
                        icn: node.to_string(),
                        term: line.term,
                        at_s: (at_ns as f64 - origin_ns as f64) / 1e9,
                    });
                }
                "verdict" => *decided.get_or_insert(0) += 1,
                _ => {}
            }
        }
        if let Some(decided) = decided {
            self.decided.insert(node, decided);
        }
        Ok(())
    }
}

/// An event log, line by line.
struct Log {
    reader: BufReader<File>,
    text: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            reader: BufReader::with_capacity(1 << 16, File::open(path)?),
            text: Vec::new(),
        })
    }

    /// The next line that can be read. The last one of a killed process may be cut.
    fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.text.clear();
            if self.reader.read_until(b'\n', &mut self.text)? == 0 {
                return Ok(None);
            }
            if let Ok(line) = serde_json::from_slice(&self.text) {
                return Ok(Some(line));
            }
        }
    }

    /// When the next line of one of these kinds was made.
    fn next_of(&mut self, kinds: &[&str]) -> io::Result<Option<u64>> {
        while let Some(line) = self.next()? {
            if kinds.contains(&line.event.as_str()) {
                return Ok(Some(line.at_ns));
            }
        }
        Ok(None)
    }
}

/// The longest time between two STFs sent by any FLPs, in ms. Each log is in order of time.
fn longest_gap(mut logs: Vec<Log>) -> io::Result<Option<f64>> {
    let mut heads = BinaryHeap::new();
    for (index, log) in logs.iter_mut().enumerate() {
        heads.extend(log.next_of(&["sent"])?.map(|at| Reverse((at, index))));
    }
    let (mut last, mut longest) = (None, None);
    while let Some(Reverse((at, index))) = heads.pop() {
        if let Some(last) = last {
            longest = longest.max(Some(at - last));
        }
        last = Some(at);
        heads.extend(
            logs[index]
                .next_of(&["sent"])?
                .map(|at| Reverse((at, index))),
        );
    }
    Ok(longest.map(|ns| ns as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_gap_is_that_of_all_flps_together() {
        let folder = tempfile::tempdir().unwrap();
        let sent = |at: &[u64]| -> String {
            let line = |at: &u64| format!("{{\"event\":\"sent\",\"tf\":1,\"at_ns\":{at}000000}}\n");
            at.iter().map(line).collect()
        };
        let paths = [
            log(folder.path(), "a", &sent(&[1, 20, 21])),
            log(
                folder.path(),
                "b",
                &format!("{}{{\"event\":\"se", sent(&[8, 25])),
            ),
        ];
        let logs = || paths.iter().map(|path| Log::open(path).unwrap()).collect();
        assert_eq!(longest_gap(logs()).unwrap(), Some(12.0));
        assert_eq!(longest_gap(Vec::new()).unwrap(), None);
    }

    #[test]
    fn every_leader_is_told_with_its_term_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let text = "{\"event\":\"begin\",\"node\":\"icn:1\",\"incarnation\":1,\"at_ns\":1}\n\
                    {\"event\":\"leads\",\"term\":2,\"at_ns\":1500000000}\n\
                    {\"event\":\"verdict\",\"tf\":1,\"at_ns\":1500000000}\n";
        let path = log(folder.path(), "icn", text);
        let node = NodeId {
            role: Role::Icn,
            index: 1,
        };
        let mut history = History::default();
        let origin_ns = Some(1_000_000_000);
        history
            .add_icn(node, Log::open(&path).unwrap(), origin_ns)
            .unwrap();
        let expected = Leader {
            icn: "icn:1".to_owned(),
            term: 2,
            at_s: 0.5,
        };
        assert_eq!(history.leaders, [expected]);
        assert_eq!(history.decided[&node], 1);
    }
}
