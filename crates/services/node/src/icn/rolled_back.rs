//! Detection of a verdict log that was rolled back: an old copy of it, or one whose end was lost.
//!
//! A leader is sure of two things: no earlier leader had its term, and all that an earlier one has told a node is in
//! the log. So it compares what each node knew before with the log as it was when the leader began. A node that knows
//! more proves that the log has lost records; a TF could get a second verdict, and the ICN ends instead.
//! Why this evidence: `docs/adr/2026-11-24-nodes-know-how-old-the-log-may-be.md`.

use super::{IcnNode, Session};
use crate::event::Event;
use sheaf_protocol::control::Hello;
use sheaf_protocol::{Envelope, Incarnation, NodeId, RunId, Term, TfId};
use sheaf_transport::Transport;
use sheaf_verdict_log::Position;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;
use tracing::error;

/// Verdict log that lacks what a node knows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the verdict log is older than the farm: found {older} of {node}; an old copy of it was put back, or its end was \
     lost. Nothing was decided. Put the latest copy in its place and start the ICN again, the nodes wait; without \
     one, end all nodes and begin a new run with an empty log"
)]
pub struct RolledBack {
    /// Node that knows more.
    pub node: NodeId,
    /// Value found and value expected.
    pub older: Older,
}

/// Fact that a node knows and the log does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// A leader before this one had the term of this one, or a later one.
    Term {
        /// Term that follows from the log.
        found: Term,
        /// Term of the leader that the node has followed.
        known: Term,
    },
    /// More TFs are decided than the log says.
    Decided {
        /// TFs that are decided in the log.
        found: u64,
        /// TFs that the node knows to be decided.
        known: u64,
    },
    /// A TF was committed that has no verdict in the log.
    Committed {
        /// The TF.
        tf: TfId,
    },
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term { found, known } => {
                write!(
                    f,
                    "term {}, expected one above the term {}",
                    found.0, known.0
                )
            }
            Self::Decided { found, known } => {
                write!(f, "{found} decided TFs, expected at least the {known}")
            }
            Self::Committed { tf } => {
                write!(f, "no verdict on TF {}, expected the commit", tf.0)
            }
        }
    }
}

/// Run and term that a node was in when it said hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed {
    run: RunId,
    term: Term,
}

impl Followed {
    /// Returns what the envelope of a hello says.
    pub(super) fn of(hello: &Envelope) -> Self {
        Self {
            run: hello.run,
            term: hello.term,
        }
    }
}

/// State of the verdict log when a leader began, and the nodes that it has told more since.
#[derive(Debug)]
pub(super) struct Origin {
    /// Whether the log had a run.
    had_run: bool,
    /// TFs that were decided.
    decided_tfs: u64,
    /// Lives of nodes that this leader has welcomed.
    welcomed: BTreeMap<NodeId, Incarnation>,
    /// Whether the event log says that it leads.
    is_noted: bool,
    /// Node that follows a higher term, that term, and how far the log was appended when that was heard.
    higher: Option<(NodeId, Term, Position)>,
}

impl Origin {
    /// Returns the state of a log that had a run or none, with so many TFs that were decided.
    pub(super) fn new(had_run: bool, decided_tfs: u64) -> Self {
        Self {
            had_run,
            decided_tfs,
            welcomed: BTreeMap::new(),
            is_noted: false,
            higher: None,
        }
    }
}

impl<T: Transport> IcnNode<T> {
    /// Compares the hello of a node, of which the session was just taken, with the log; the node counts as welcomed.
    /// `false` if it proves that the log was rolled back.
    pub(super) fn is_told_no_more_than_known(&mut self, session: Session) -> bool {
        let Session { node, incarnation } = session;
        let (Some(hello), Some(followed)) = (self.hellos.get(&node), self.followed.get(&node))
        else {
            return true;
        };
        let (older, term) = (self.older(session, followed, hello), followed.term);
        if let Some(older) = older {
            self.refuse_log(RolledBack { node, older });
            return false;
        }
        self.note_leading();
        self.suspect(node, term);
        if let Some(lead) = &mut self.lead {
            lead.origin.welcomed.insert(node, incarnation);
        }
        true
    }

    /// Notes in the event log that this ICN leads, before it has any effect. One that is refused its log has led
    /// nothing: the next ICN with the latest copy has the same term.
    pub(super) fn note_leading(&mut self) {
        if let Some(lead) = &mut self.lead
            && !std::mem::replace(&mut lead.origin.is_noted, true)
        {
            self.log.add(&Event::Leads { term: lead.term.0 });
        }
    }

    /// Returns a fact that a node knows from earlier leaders, and that the log lacks.
    fn older(&self, session: Session, followed: &Followed, hello: &Hello) -> Option<Older> {
        let lead = self
            .lead
            .as_ref()
            .filter(|_| self.ledger.outlives_process())?;
        let origin = &lead.origin;
        let is_welcomed = origin.welcomed.get(&session.node) == Some(&session.incarnation);
        if is_welcomed {
            return None;
        }
        let is_ours = followed.run == lead.scheduler.run();
        // With a log that was empty, a new run begins on purpose.
        let is_same_term = followed.term == lead.term && (is_ours || origin.had_run);
        // Where another ICN may lead, the log says so soon, or does not.
        let is_higher = followed.term > lead.term && !self.ledger.may_be_succeeded();
        if is_same_term || is_higher {
            let (found, known) = (lead.term, followed.term);
            return Some(Older::Term { found, known });
        }
        if !is_ours || followed.term > lead.term {
            return None;
        }
        let is_decided = |tf| lead.scheduler.is_decided(tf);
        lost_verdict(hello, origin.decided_tfs, is_decided)
    }

    /// Notes that a node follows a higher term. A log that has that term takes no append of this leader any more.
    pub(super) fn suspect(&mut self, node: NodeId, term: Term) {
        let outlives = self.ledger.outlives_process();
        if let Some(lead) = self.lead.as_mut().filter(|_| outlives)
            && term > lead.term
            && lead.origin.higher.is_none()
        {
            lead.origin.higher = Some((node, term, lead.gate.appended()));
        }
    }

    /// The log is durable up to `position`: what was appended after a higher term was heard proves that the log has
    /// forgotten that term.
    pub(super) fn confirm_suspicion(&mut self, position: Position) {
        let Some(lead) = &self.lead else { return };
        let Some((node, known, appended)) = lead.origin.higher else {
            return;
        };
        if position > appended {
            let found = lead.term;
            let older = Older::Term { found, known };
            self.refuse_log(RolledBack { node, older });
        }
    }

    fn refuse_log(&mut self, found: RolledBack) {
        if self.rolled_back.is_none() {
            error!(node = %found.node, older = %found.older, "The verdict log was rolled back; the ICN ends");
            self.rolled_back = Some(found);
        }
    }
}

/// Returns a verdict that a node of the same run knows of and the log does not have, in which `decided_tfs` TFs were
/// decided when the leader began.
fn lost_verdict(
    hello: &Hello,
    decided_tfs: u64,
    is_decided: impl Fn(TfId) -> bool,
) -> Option<Older> {
    if hello.decided_tfs > decided_tfs {
        let (found, known) = (decided_tfs, hello.decided_tfs);
        return Some(Older::Decided { found, known });
    }
    let tf = TfId(hello.committed_end.0.checked_sub(1)?);
    (!is_decided(tf)).then_some(Older::Committed { tf })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a node that knows of so much with a log in which TFs 0 to 9 and 12 are decided.
    fn found(decided_tfs: u64, committed_end: u64) -> Option<Older> {
        let hello = Hello {
            decided_tfs,
            committed_end: TfId(committed_end),
            ..Hello::default()
        };
        lost_verdict(&hello, 11, |tf| tf.0 < 10 || tf.0 == 12)
    }

    #[test]
    fn a_log_with_every_verdict_that_the_node_knows_of_is_not_older() {
        for (decided_tfs, committed_end) in [(0, 0), (11, 0), (0, 10), (11, 13), (5, 1)] {
            assert_eq!(
                found(decided_tfs, committed_end),
                None,
                "{decided_tfs} {committed_end}"
            );
        }
    }

    #[test]
    fn a_commit_without_a_verdict_shows_a_lost_record_before_any_release_does() {
        let committed = |tf: u64| Some(Older::Committed { tf: TfId(tf) });
        assert_eq!(found(11, 11), committed(10));
        assert_eq!(found(0, 12), committed(11));
        assert_eq!(found(0, u64::MAX), committed(u64::MAX - 1));
        let text = committed(11).unwrap().to_string();
        assert_eq!(text, "no verdict on TF 11, expected the commit");
    }

    #[test]
    fn more_decided_tfs_than_in_the_log_show_lost_records() {
        let decided = |known| Some(Older::Decided { found: 11, known });
        assert_eq!(found(12, 0), decided(12));
        assert_eq!(found(12, 12), decided(12), "the sum is named first");
    }
}
