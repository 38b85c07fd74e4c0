//! Log lines of all nodes at the ICN, for operators: `sheaf logs`.

use crate::log_tail;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_protocol::control::LogLine;
use sheaf_protocol::{Incarnation, NodeId};
use std::collections::{BTreeMap, VecDeque};

/// Lines that are kept, over all nodes.
const LINES_MAX: usize = 8192;
/// Lines in one answer. An operator asks for the next ones at once.
const LINES_TOLD_MAX: usize = 1024;

/// One line of the log of a node, as the leading ICN has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Node, such as `epn:3`.
    pub node: String,
    /// Which life of the node.
    pub incarnation: u64,
    /// Number of the line in this life, from 1.
    pub sequence: u64,
    /// When it was logged, in ns since 1970-01-01 UTC on the clock of the node's machine.
    pub at_unix_ns: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// Message and fields.
    pub text: String,
}

/// Answer to [`Order::Log`](sheaf_protocol::control::Order::Log).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// Number of the last of these lines at this leader, for the next order.
    pub last: u64,
    /// Whether there are more lines.
    pub has_more: bool,
    /// Whether the run is over.
    pub is_over: bool,
    /// The lines, in the order in which the ICN got them.
    pub lines: Vec<Line>,
}

/// The last lines of all nodes.
#[derive(Debug, Default)]
pub(super) struct LogBook {
    lines: VecDeque<Line>,
    /// Number of the last line.
    last: u64,
    /// The last line of each node that is here: its life, and its number there.
    heard: BTreeMap<NodeId, (Incarnation, u64)>,
}

impl LogBook {
    /// Adds lines of a node but those that are here.
    pub(super) fn add(&mut self, node: NodeId, incarnation: Incarnation, lines: Vec<LogLine>) {
        let heard = self.heard.entry(node).or_default();
        for line in lines {
            if (incarnation, line.sequence) <= *heard {
                continue;
            }
            *heard = (incarnation, line.sequence);
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            self.last += 1;
            self.lines.push_back(Line {
                node: node.to_string(),
                incarnation: incarnation.0,
                sequence: line.sequence,
                at_unix_ns: line.at_unix_ns,
                level: line.level.name().to_owned(),
                text: line.text,
            });
        }
    }

    /// Adds the lines of this process.
    pub(super) fn add_ours(&mut self, me: NodeId, incarnation: Incarnation) {
        loop {
            let (_, sequence) = self.heard.get(&me).copied().unwrap_or_default();
            let lines = log_tail::after(sequence);
            if lines.is_empty() {
                return;
            }
            self.add(me, incarnation, lines);
        }
    }

    /// Returns the lines behind the one with the number `after`, as JSON.
    pub(super) fn page(&self, after: u64, is_over: bool) -> Bytes {
        let first = self.last - self.lines.len() as u64;
        let skipped = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let new = self.lines.iter().skip(skipped);
        let lines: Vec<Line> = new.take(LINES_TOLD_MAX).cloned().collect();
        let last = first + (skipped.min(self.lines.len()) + lines.len()) as u64;
        let page = LogPage {
            last,
            has_more: last < self.last,
            is_over,
            lines,
        };
        let text = serde_json::to_vec(&page);
        Bytes::from(text.expect("names and numbers always have a JSON form"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::EpnId;
    use sheaf_protocol::control::LogLevel;

    fn line(sequence: u64) -> LogLine {
        LogLine {
            sequence,
            at_unix_ns: 5,
            level: LogLevel::Warn,
            text: format!("line {sequence}"),
        }
    }

    fn page(book: &LogBook, after: u64) -> LogPage {
        serde_json::from_slice(&book.page(after, false)).unwrap()
    }

    fn told(page: &LogPage) -> Vec<(u64, u64)> {
        let lines = page.lines.iter();
        lines
            .map(|line| (line.incarnation, line.sequence))
            .collect()
    }

    #[test]
    fn a_line_that_comes_twice_is_there_once_and_a_new_life_counts_anew() {
        let mut book = LogBook::default();
        let node = EpnId(3).into();
        book.add(node, Incarnation(7), vec![line(4), line(5)]);
        book.add(node, Incarnation(7), vec![line(4), line(5), line(6)]);
        book.add(node, Incarnation(9), vec![line(1)]);
        // A late message of the former life.
        book.add(node, Incarnation(7), vec![line(7)]);
        let all = page(&book, 0);
        assert_eq!(told(&all), [(7, 4), (7, 5), (7, 6), (9, 1)]);
        assert_eq!((all.last, all.has_more), (4, false));
        assert_eq!(
            (all.lines[0].node.as_str(), all.lines[0].level.as_str()),
            ("epn:3", "warn")
        );
        assert_eq!(told(&page(&book, 3)), [(9, 1)]);
        assert_eq!((page(&book, 4).last, page(&book, 4).lines.len()), (4, 0));
        // The number of another leader.
        assert_eq!((page(&book, 99).last, page(&book, 99).lines.len()), (4, 0));
    }

    #[test]
    fn answers_are_bounded_and_so_is_what_is_kept() {
        let mut book = LogBook::default();
        let node = EpnId(0).into();
        let all = LINES_MAX as u64 + 100;
        book.add(node, Incarnation(1), (1..=all).map(line).collect());
        let first = page(&book, 0);
        assert_eq!(
            (first.lines[0].sequence, first.lines.len()),
            (101, LINES_TOLD_MAX)
        );
        assert!(first.has_more);
        let next = page(&book, first.last);
        assert_eq!(next.lines[0].sequence, 101 + LINES_TOLD_MAX as u64);
        assert!(!page(&book, all - 1).has_more);
    }
}
