//! Output lines of the nodes of a farm, with their times.

use sheaf_farm::{Output, read_line};
use sheaf_node::output::Line;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_testbed::clock::now_ns;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A node was in another state from `at_ns` on, by the words of the ICN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) at_ns: u64,
    pub(crate) node: NodeId,
    pub(crate) state: String,
}

/// The state of an ICN from which on it leads.
pub(crate) const LEADS: &str = "leads";

/// The most that one node had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    /// Bytes that an FLP held.
    pub(crate) flp_bytes: u64,
    /// Bytes that an EPN had in building and with its consumer.
    pub(crate) epn_bytes: u64,
}

#[derive(Debug, Default)]
struct Heard {
    status: FarmStatus,
    /// Last known state and incarnation.
    states: BTreeMap<NodeId, (String, u64)>,
    changes: Vec<Change>,
    listening: BTreeMap<NodeId, String>,
    peaks: Peaks,
    /// The ICN that said last that it leads, and the highest term in which one did.
    leader: Option<(NodeId, u64)>,
}

/// Listens to all processes of a farm.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    heard: Arc<Mutex<Heard>>,
}

impl Watch {
    /// Returns the listener to a process of `node`.
    pub(crate) fn listener(&self, node: NodeId) -> impl FnMut(Output) + Send + 'static {
        let heard = self.heard.clone();
        move |output| {
            let at_ns = now_ns();
            let Output::Line(text) = output else { return };
            let line = read_line(&text);
            let mut heard = lock(&heard);
            match line {
                Some(Line::Listening { listening, .. }) => {
                    heard.listening.insert(node, listening);
                }
                Some(Line::Status(status)) => heard.take_in(at_ns, node, *status),
                Some(Line::Exit { .. }) | None => {}
            }
        }
    }

    /// The process of `node` has ended: what was known of it is over.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut heard = lock(&self.heard);
        heard.listening.remove(&node);
        if node.role == Role::Icn {
            heard.leader = heard.leader.filter(|(leader, _)| *leader != node);
            return;
        }
        // The life is over, so that the same words about it count no more.
        if let Some((state, _)) = heard.states.get_mut(&node) {
            "ended".clone_into(state);
        }
    }

    /// Whether the ICN says that `node` is in good standing, in the life that it is in now. An ICN or a writer node,
    /// of which it does not tell, has to listen.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        let heard = lock(&self.heard);
        match node.role {
            Role::Icn | Role::Writer => heard.listening.contains_key(&node),
            _ => heard
                .states
                .get(&node)
                .is_some_and(|(state, _)| state == "up"),
        }
    }

    /// The ICN that leads, as far as is known.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        lock(&self.heard).leader.map(|(leader, _)| leader)
    }

    /// TFs that exist.
    pub(crate) fn announced(&self) -> u64 {
        lock(&self.heard).status.accounting.announced
    }

    /// The last that the ICN said.
    pub(crate) fn status(&self) -> FarmStatus {
        lock(&self.heard).status.clone()
    }

    /// The most that one node had, by the words of the ICN.
    pub(crate) fn peaks(&self) -> Peaks {
        lock(&self.heard).peaks
    }

    /// When nodes were in another state.
    pub(crate) fn changes(&self) -> Vec<Change> {
        lock(&self.heard).changes.clone()
    }
}

impl Heard {
    fn take_in(&mut self, at_ns: u64, icn: NodeId, status: FarmStatus) {
        let term = status.ledger.term;
        if status.phase == "standby" {
            self.leader = self.leader.filter(|(leader, _)| *leader != icn);
            return;
        }
        // An ICN that was stopped goes on with what it knew: another one leads in a higher term.
        if self.leader.is_some_and(|(_, highest)| highest > term) {
            return;
        }
        if self.leader != Some((icn, term)) {
            self.leader = Some((icn, term));
            self.changes.push(Change {
                at_ns,
                node: icn,
                state: LEADS.to_owned(),
            });
        }
        let flps = status.flps.iter().map(|flp| {
            let node = FlpId(flp.index).into();
            (node, flp.state.clone(), flp.incarnation)
        });
        let epns = status.epns.iter().map(|epn| {
            let node = EpnId(epn.index).into();
            (node, epn.state.clone(), epn.incarnation)
        });
        let seen: Vec<(NodeId, String, u64)> = flps.chain(epns).collect();
        for (node, state, incarnation) in seen {
            let known = self.states.get(&node);
            let is_same = known.is_some_and(|(known, life)| {
                *life == incarnation && (*known == state || known == "ended" && state == "up")
            });
            if is_same {
                continue;
            }
            self.changes.push(Change {
                at_ns,
                node,
                state: state.clone(),
            });
            let is_over =
                known.is_some_and(|(known, life)| known == "ended" && *life == incarnation);
            if !is_over {
                self.states.insert(node, (state, incarnation));
            }
        }
        for flp in &status.flps {
            self.peaks.flp_bytes = self.peaks.flp_bytes.max(flp.held_bytes);
        }
        for epn in &status.epns {
            let bytes = epn.open_bytes.saturating_add(epn.sink_bytes);
            self.peaks.epn_bytes = self.peaks.epn_bytes.max(bytes);
        }
        self.status = status;
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_node::status::EpnStatus;

    fn status(state: &str, incarnation: u64) -> FarmStatus {
        FarmStatus {
            epns: vec![EpnStatus {
                index: 0,
                state: state.to_owned(),
                incarnation,
                ..EpnStatus::default()
            }],
            ..FarmStatus::default()
        }
    }

    #[test]
    fn a_killed_node_is_up_again_only_in_its_next_life() {
        let watch = Watch::default();
        let node: NodeId = EpnId(0).into();
        let take_in = |at, state, life| {
            lock(&watch.heard).take_in(at, NodeId::ICN, status(state, life));
        };
        take_in(1, "up", 7);
        assert!(watch.is_up(node));
        watch.forget(node);
        take_in(2, "up", 7);
        assert!(!watch.is_up(node), "the ICN does not know yet");
        take_in(3, "cut", 7);
        assert!(!watch.is_up(node));
        take_in(4, "up", 8);
        assert!(watch.is_up(node));
        let changes = watch.changes();
        let told: Vec<(u64, &str)> = changes
            .iter()
            .filter(|change| change.node == node)
            .map(|c| (c.at_ns, c.state.as_str()))
            .collect();
        assert_eq!(told, [(1, "up"), (3, "cut"), (4, "up")]);
    }

    #[test]
    fn the_leader_is_the_one_of_the_highest_term_until_it_ends() {
        let watch = Watch::default();
        let [old, new] = [0, 1].map(|index| NodeId {
            role: Role::Icn,
            index,
        });
        let take_in = |at, icn, phase: &str, term| {
            let mut status = FarmStatus {
                phase: phase.to_owned(),
                ..FarmStatus::default()
            };
            status.ledger.term = term;
            lock(&watch.heard).take_in(at, icn, status);
        };
        take_in(1, old, "running", 1);
        take_in(2, new, "standby", 1);
        assert_eq!(watch.leader(), Some(old));
        take_in(3, new, "running", 2);
        take_in(4, old, "running", 1);
        assert_eq!(watch.leader(), Some(new), "the old one does not know yet");
        watch.forget(new);
        assert_eq!(watch.leader(), None);
        let at: Vec<u64> = watch.changes().iter().map(|change| change.at_ns).collect();
        assert_eq!(at, [1, 3]);
    }
}
