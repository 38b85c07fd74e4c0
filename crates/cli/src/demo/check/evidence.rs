//! What the event logs of a farm say, gathered by timeframe.

use sheaf_frame::{NodeId, Role};
use sheaf_node::event::{Event, PartEvent};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// What was done to a process while it lived, so that the audit knows what it may not expect of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ended by itself.
    Ended,
    /// It was stopped for a while: the farm may have gone on without it.
    Paused,
    /// It was killed: its last line may be cut, and what it wrote last nobody may have heard.
    Killed,
}

/// One life of one node.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    pub(super) fate: Fate,
    /// STFs made (FLP) or TFs handed on (EPN).
    pub(super) items: u64,
    /// Payload bytes of them.
    pub(super) bytes: u64,
}

/// Index of a [`Life`].
pub(super) type LifeIndex = usize;

#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) life: LifeIndex,
    pub(super) bytes: u64,
    pub(super) digest: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) life: LifeIndex,
    pub(super) attempt: u32,
    /// Index and incarnation of the EPN.
    pub(super) to: (u16, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) life: LifeIndex,
    pub(super) parts: Vec<PartEvent>,
    pub(super) missing: Vec<u16>,
}

/// What the ICN decided about a TF.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) name: String,
    /// Index and incarnation of the EPN that built it.
    pub(super) at: Option<(u16, u64)>,
    pub(super) missing: Vec<u16>,
    pub(super) reason: Option<String>,
}

/// All that was written about one TF.
#[derive(Clone, Debug, Default)]
pub(super) struct TfFacts {
    pub(super) called: bool,
    pub(super) made: Vec<Made>,
    pub(super) skipped: Vec<LifeIndex>,
    pub(super) sent: Vec<Sent>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) abandoned: u64,
    pub(super) consumer_faults: u64,
}

/// The logs of all lives of all nodes of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(super) lives: Vec<Life>,
    pub(super) tfs: BTreeMap<u64, TfFacts>,
    /// The runs that logs name, each with the node that named it first.
    pub(super) runs: BTreeMap<String, NodeId>,
    /// What is wrong with the logs themselves.
    pub(super) broken: Vec<String>,
}

impl Evidence {
    /// Takes in the log at `path`, of one life of `node`. A node that was killed before it wrote anything has
    /// none.
    ///
    /// # Errors
    ///
    /// What reading the file gives.
    pub(crate) fn read(&mut self, path: &Path, node: NodeId, fate: Fate) -> io::Result<()> {
        match File::open(path) {
            Ok(file) => self.take_in(BufReader::new(file), node, fate),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fate != Fate::Killed {
                    self.broken.push(format!("{node} has no event log"));
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes in the lines of `log`, of one life of `node`.
    pub(crate) fn take_in(
        &mut self,
        mut log: impl BufRead,
        node: NodeId,
        fate: Fate,
    ) -> io::Result<()> {
        let life = self.lives.len();
        self.lives.push(Life {
            node,
            incarnation: 0,
            fate,
            items: 0,
            bytes: 0,
        });
        let mut line = Vec::new();
        let mut number = 0_u64;
        while log.read_until(b'\n', &mut line)? > 0 {
            number += 1;
            let is_whole = line.last() == Some(&b'\n');
            match serde_json::from_slice(&line) {
                // Even if it can be read, the end of a number may be lost with the end of the line.
                _ if !is_whole && fate == Fate::Killed => {}
                Ok(event) if is_whole => self.add(life, event),
                Ok(_) => self
                    .broken
                    .push(format!("line {number} of the log of {node} is cut")),
                Err(error) => {
                    let text = format!("line {number} of the log of {node} is no event: {error}");
                    self.broken.push(text);
                }
            }
            line.clear();
        }
        Ok(())
    }

    fn add(&mut self, life: LifeIndex, event: Event) {
        let node = self.lives[life].node;
        match event {
            Event::Begin {
                node: name,
                incarnation,
            } => self.begin(life, &name, incarnation),
            Event::Run { run } => {
                self.runs.entry(run).or_insert(node);
            }
            Event::Made { tf, bytes, digest } => {
                self.count(life, bytes);
                self.tf(tf).made.push(Made {
                    life,
                    bytes,
                    digest,
                });
            }
            Event::Skipped { tf, .. } => self.tf(tf).skipped.push(life),
            Event::Sent {
                tf,
                attempt,
                epn,
                incarnation,
            } => {
                self.tf(tf).sent.push(Sent {
                    life,
                    attempt,
                    to: (epn, incarnation),
                });
            }
            Event::Delivered {
                tf, parts, missing, ..
            } => {
                self.count(life, parts.iter().map(|part| part.bytes).sum());
                self.tf(tf).deliveries.push(Delivery {
                    life,
                    parts,
                    missing,
                });
            }
            Event::Fault { tf, .. } => self.tf(tf).consumer_faults += 1,
            Event::Called { tf } => self.tf(tf).called = true,
            Event::Verdict {
                tf,
                verdict,
                epn,
                incarnation,
                missing,
                reason,
            } => {
                let at = epn.zip(incarnation);
                self.tf(tf).verdicts.push(Verdict {
                    name: verdict,
                    at,
                    missing,
                    reason,
                });
            }
            Event::Abandoned { tf } => self.tf(tf).abandoned += 1,
        }
    }

    fn begin(&mut self, life: LifeIndex, name: &str, incarnation: u64) {
        let found = &mut self.lives[life];
        if name != found.node.to_string() {
            self.broken
                .push(format!("the log of {} is that of {name}", found.node));
        } else if found.incarnation != 0 {
            self.broken
                .push(format!("the log of {name} is that of two lives"));
        }
        found.incarnation = incarnation;
    }

    fn tf(&mut self, tf: u64) -> &mut TfFacts {
        self.tfs.entry(tf).or_default()
    }

    fn count(&mut self, life: LifeIndex, bytes: u64) {
        self.lives[life].items += 1;
        self.lives[life].bytes += bytes;
    }

    /// STFs made or TFs handed on by all lives of `node`, and their payload bytes.
    pub(crate) fn work_of(&self, node: NodeId) -> (u64, u64) {
        let lives = self.lives.iter().filter(|life| life.node == node);
        lives.fold((0, 0), |(items, bytes), life| {
            (items + life.items, bytes + life.bytes)
        })
    }

    pub(super) fn life_of(&self, role: Role, index: u16, incarnation: u64) -> Option<LifeIndex> {
        let node = NodeId { role, index };
        self.lives
            .iter()
            .position(|life| life.node == node && life.incarnation == incarnation)
    }
}
