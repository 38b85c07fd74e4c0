//! Trace of a farm, line by line, for the analysis of one seed.

use sheaf_protocol::{Timestamp, splitmix};
use std::fmt;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in virtual time since the farm began.
    pub at: Timestamp,
    /// Name of the node, or `farm` for injected faults.
    pub node: String,
    /// The TFs it is about; empty for none or all.
    pub tfs: Vec<u64>,
    /// Description.
    pub text: String,
}

impl Line {
    pub(crate) fn new(at: Timestamp, node: &str, tfs: Vec<u64>, text: String) -> Self {
        let node = node.to_owned();
        Self {
            at,
            node,
            tfs,
            text,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>11.6} {:<6} {}",
            self.at.0 as f64 / 1e9,
            self.node,
            self.text
        )
    }
}

/// All lines of a farm; kept only when asked for.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Option<Vec<Line>>,
}

impl Trace {
    /// Returns a trace that keeps its lines.
    #[must_use]
    pub fn kept() -> Self {
        Self {
            lines: Some(Vec::new()),
        }
    }

    /// Returns whether lines are kept, so that callers can save the work for one.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds the line that `line` returns, if lines are kept.
    pub(crate) fn add(&mut self, line: impl FnOnce() -> Line) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// Returns the lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        self.lines.as_deref().unwrap_or_default()
    }

    /// Returns the last `count` lines about `tf` (all lines for `None`), and all injected faults.
    pub fn last_of(&self, tf: Option<u64>, count: usize) -> Vec<&Line> {
        let is_wanted =
            |line: &&Line| line.node == "farm" || tf.is_none_or(|tf| line.tfs.contains(&tf));
        let mut lines: Vec<&Line> = self
            .lines()
            .iter()
            .rev()
            .filter(is_wanted)
            .take(count)
            .collect();
        lines.reverse();
        lines
    }
}

/// A running hash of everything that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.0 = splitmix::mix(self.0 ^ number).wrapping_add(splitmix::GAMMA);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
