//! Membership of the farm: the table of silence, and the registries where nodes find each other.
//!
//! [`Members`] is an ICN's knowledge of the nodes that have joined. It is pure; its driver reports messages to it and
//! asks for changes. Three states are kept apart, because they have different consequences
//! (`docs/adr/2026-11-21-silence-is-not-death.md`):
//!
//! - **silent**: nothing heard for the suspect time, which is longer for a node that reports that it waits for a
//!   processor. The node may be paused, or this machine busy. It gets nothing new; everything it does still counts.
//! - **cut**: its stream has closed. It may come back in the same life.
//! - **expired**: it stayed cut for its time of grace, and is no member any more. An EPN is as good as dead then; an
//!   FLP may only be cut off, which its data streams tell.
//! - **dead**: a later life of it has joined, or it has left. This is for ever.
//!
//! A [`Registry`] is where nodes register: `embedded`, the ICN itself; `zookeeper` and, over a model of it in virtual
//! time, `memory`, both in another crate. All of them pass [`contract`].

mod config;
pub mod contract;
pub mod embedded;
mod registry;
mod run_delay;

pub use config::LivenessConfig;
pub use registry::{Member, MemberError, Registry, RegistryEvent};
pub use run_delay::{RUN_DELAY_MAX, RunDelays};

use sheaf_protocol::{Incarnation, NodeId, Role, Timestamp, protect};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// Change of the state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node has joined, for the first time or back in the same life.
    Joined,
    /// The node was not heard for the suspect time.
    Silent,
    /// The node was silent and sends again.
    Heard,
    /// The node is silent for so long that its stream should be closed from this side; [`Cut`](Self::Cut) follows then.
    Hopeless,
    /// The stream of the node has closed.
    Cut,
    /// The node stayed cut for its time of grace: it is no member any more.
    Expired,
    /// The life of the node is over: a later one has joined, or it has left.
    Dead,
}

/// One change of one life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// The node.
    pub node: NodeId,
    /// The life of the node.
    pub incarnation: Incarnation,
    /// The change.
    pub change: Change,
}

/// Error for a node that may not join.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// A later life of the same node is a member.
    #[error(
        "{node} joins with incarnation {found}, but incarnation {known} has joined before; is one index given to two processes?"
    )]
    Earlier {
        /// The node.
        node: NodeId,
        /// The incarnation that wants to join.
        found: u64,
        /// The incarnation that is known.
        known: u64,
    },
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Heard within the suspect time.
    Up,
    /// Not heard for the suspect time.
    Silent,
    /// Closed stream.
    Cut,
}

impl MemberState {
    /// Returns the name in status views.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Cut => "cut",
        }
    }
}

#[derive(Debug)]
struct Known {
    incarnation: Incarnation,
    state: MemberState,
    /// Time of the last message of the member; when cut, the time of the cut.
    since: Timestamp,
    /// Longest time lately for which the member has waited for a processor, by its own report.
    run_delay: Duration,
    hopeless_said: bool,
}

impl Known {
    /// Returns whether `incarnation` is the life that is the member.
    fn is_life(&self, incarnation: Incarnation) -> bool {
        protect!(LifeOfMember, requires self.incarnation == incarnation)
    }
}

/// All members, by node.
#[derive(Debug)]
pub struct Members {
    config: LivenessConfig,
    members: BTreeMap<NodeId, Known>,
    /// Latest life of each node, dead ones included: parts of the farm refuse what an earlier life sends.
    latest: BTreeMap<NodeId, Incarnation>,
}

impl Members {
    /// Returns an empty table.
    #[must_use]
    pub fn new(config: LivenessConfig) -> Self {
        Self {
            config,
            members: BTreeMap::new(),
            latest: BTreeMap::new(),
        }
    }

    /// Takes over the limits of `config`, from now on and for all members. The interval of pulses stays, since nodes
    /// get it when they join.
    pub fn reconfigure(&mut self, config: LivenessConfig) {
        self.config = LivenessConfig {
            pulse_ms: self.config.pulse_ms,
            ..config
        };
    }

    /// Returns the state of the node; `None` if it is no member.
    #[must_use]
    pub fn state(&self, node: NodeId) -> Option<MemberState> {
        self.members.get(&node).map(|member| member.state)
    }

    /// Returns whether this life of the node is a member.
    #[must_use]
    pub fn is_member(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(|member| member.is_life(incarnation))
    }

    /// Handles the hello of a node. An earlier life of it is dead from now on.
    ///
    /// # Errors
    ///
    /// [`JoinError::Earlier`] if a later life of the node has joined before, or is known to have; the caller refuses
    /// the node.
    pub fn handle_hello(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Result<Vec<MemberEvent>, JoinError> {
        let mut events = Vec::new();
        let latest = self.latest.get(&node).copied();
        let later = latest.filter(|known| *known > incarnation);
        if let Some(known) = protect!(EarlierLifeRefused, later, else None) {
            let (found, known) = (incarnation.0, known.0);
            return Err(JoinError::Earlier { node, found, known });
        }
        self.note_life(node, incarnation);
        if let Some(member) = self.members.get(&node)
            && member.incarnation < incarnation
        {
            let change = Change::Dead;
            events.push(MemberEvent {
                node,
                incarnation: member.incarnation,
                change,
            });
        }
        let member = Known {
            incarnation,
            state: MemberState::Up,
            since: now,
            run_delay: Duration::ZERO,
            hopeless_said: false,
        };
        self.members.insert(node, member);
        events.push(MemberEvent {
            node,
            incarnation,
            change: Change::Joined,
        });
        Ok(events)
    }

    /// Adds a life of a node that is known from elsewhere and expected back: it counts as cut, with at least `patience`
    /// to come.
    pub fn expect(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
        patience: Duration,
    ) {
        let more = patience.saturating_sub(self.config.grace(node.role));
        let member = Known {
            incarnation,
            state: MemberState::Cut,
            since: now + more,
            run_delay: Duration::ZERO,
            hopeless_said: false,
        };
        self.note_life(node, incarnation);
        self.members.entry(node).or_insert(member);
    }

    /// Notes that this life of a node existed: earlier ones may not join.
    pub fn note_life(&mut self, node: NodeId, incarnation: Incarnation) {
        let latest = self.latest.entry(node).or_insert(incarnation);
        *latest = incarnation.max(*latest);
    }

    /// Notes a message of a node.
    pub fn handle_heard(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Option<MemberEvent> {
        let member = self.members.get_mut(&node)?;
        if !member.is_life(incarnation) || member.state == MemberState::Cut {
            return None;
        }
        member.since = now;
        member.hopeless_said = false;
        let was_silent = member.state == MemberState::Silent;
        member.state = MemberState::Up;
        was_silent.then_some(MemberEvent {
            node,
            incarnation,
            change: Change::Heard,
        })
    }

    /// Notes how long a node has lately had to wait for a processor: it may be silent for so much longer. Returns how
    /// much of that counts, at most [`LivenessConfig::run_delay_max_ms`].
    pub fn handle_run_delay(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        delay: Duration,
    ) -> Duration {
        let granted = delay.min(self.config.run_delay_max());
        if let Some(member) = self.members.get_mut(&node)
            && member.is_life(incarnation)
        {
            member.run_delay = granted;
        }
        granted
    }

    /// Handles a closed stream of a node.
    pub fn handle_closed(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Option<MemberEvent> {
        let member = self.members.get_mut(&node)?;
        if !member.is_life(incarnation) || member.state == MemberState::Cut {
            return None;
        }
        member.state = MemberState::Cut;
        member.since = now;
        Some(MemberEvent {
            node,
            incarnation,
            change: Change::Cut,
        })
    }

    /// Handles the notice of a registry outside the farm that this life of a node is over. If it is not heard either,
    /// it is dead without grace; one that sends is alive, whatever a registry reports.
    pub fn handle_vanished(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
    ) -> Option<MemberEvent> {
        let state = self.members.get(&node).map(|member| member.state)?;
        if state == MemberState::Up {
            return None;
        }
        self.handle_left(node, incarnation)
    }

    /// Handles a node that has left as agreed: it is dead without grace.
    pub fn handle_left(&mut self, node: NodeId, incarnation: Incarnation) -> Option<MemberEvent> {
        if !self.is_member(node, incarnation) {
            return None;
        }
        self.members.remove(&node);
        Some(MemberEvent {
            node,
            incarnation,
            change: Change::Dead,
        })
    }

    /// Returns the changes that silence and grace have brought by `now`.
    pub fn handle_tick(&mut self, now: Timestamp) -> Vec<MemberEvent> {
        let mut events = Vec::new();
        for (node, member) in &mut self.members {
            let quiet = now.since(member.since);
            let change = match member.state {
                MemberState::Up if quiet >= self.config.suspect_after(member.run_delay) => {
                    member.state = MemberState::Silent;
                    Change::Silent
                }
                MemberState::Silent if quiet >= self.config.cut() && !member.hopeless_said => {
                    member.hopeless_said = true;
                    Change::Hopeless
                }
                MemberState::Cut if quiet >= self.config.grace(node.role) => Change::Expired,
                _ => continue,
            };
            events.push(MemberEvent {
                node: *node,
                incarnation: member.incarnation,
                change,
            });
        }
        for event in &events {
            if event.change == Change::Expired {
                self.members.remove(&event.node);
            }
        }
        events
    }
}

impl LivenessConfig {
    /// Returns the silence that makes a suspect of a node that has waited for a processor for `run_delay`.
    fn suspect_after(&self, run_delay: Duration) -> Duration {
        self.suspect() + protect!(RunDelayGranted, run_delay, else Duration::ZERO)
    }

    fn grace(&self, role: Role) -> Duration {
        match role {
            Role::Flp => self.flp_grace(),
            Role::Epn | Role::Icn | Role::Operator | Role::Writer => self.epn_grace(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId {
        role: Role::Epn,
        index: 3,
    };

    fn ms(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    /// Drives a table by a script such as `hello 1 @0; tick @120` and checks the changes.
    fn check(script: &str, expected: &str) {
        let mut members = Members::new(LivenessConfig::default());
        let mut changes = Vec::new();
        for step in script.split("; ") {
            let (what, at) = step.split_once(" @").unwrap();
            let now = ms(at.parse().unwrap());
            let (verb, life) = what.split_once(' ').unwrap_or((what, "0"));
            let life = Incarnation(life.parse().unwrap());
            let events = match verb {
                "hello" => match members.handle_hello(now, NODE, life) {
                    Ok(events) => events,
                    Err(JoinError::Earlier { .. }) => {
                        changes.push("refused".to_owned());
                        continue;
                    }
                },
                "heard" => members.handle_heard(now, NODE, life).into_iter().collect(),
                "waited" => {
                    members.handle_run_delay(NODE, Incarnation(1), Duration::from_millis(life.0));
                    Vec::new()
                }
                "closed" => members.handle_closed(now, NODE, life).into_iter().collect(),
                "left" => members.handle_left(NODE, life).into_iter().collect(),
                _ => members.handle_tick(now),
            };
            for event in events {
                changes.push(format!("{:?} {}", event.change, event.incarnation.0));
            }
        }
        assert_eq!(changes.join(", "), expected);
    }

    #[test]
    fn a_node_that_is_heard_stays_up() {
        check(
            "hello 1 @0; heard 1 @90; tick @180; heard 1 @181; tick @250",
            "Joined 1",
        );
    }

    #[test]
    fn silence_makes_a_suspect_and_a_word_heals_it() {
        check(
            "hello 1 @0; tick @100; tick @5000; heard 1 @5001",
            "Joined 1, Silent 1, Heard 1",
        );
    }

    #[test]
    fn a_node_that_waits_for_a_processor_may_be_silent_for_longer() {
        check(
            "hello 1 @0; waited 230 @0; tick @329; tick @330",
            "Joined 1, Silent 1",
        );
        check(
            "hello 1 @0; waited 9000 @0; tick @1099; tick @1100",
            "Joined 1, Silent 1",
        );
        check(
            "hello 1 @0; waited 230 @0; waited 0 @99; tick @100",
            "Joined 1, Silent 1",
        );
    }

    #[test]
    fn silence_alone_never_kills() {
        check(
            "hello 1 @0; tick @100; tick @10000; tick @20000; heard 1 @30000",
            "Joined 1, Silent 1, Hopeless 1, Heard 1",
        );
    }

    #[test]
    fn a_cut_node_that_does_not_come_back_is_dead() {
        check(
            "hello 1 @0; closed 1 @10; tick @2009; tick @2010",
            "Joined 1, Cut 1, Expired 1",
        );
    }

    #[test]
    fn a_cut_node_may_come_back_in_the_same_life() {
        check(
            "hello 1 @0; closed 1 @10; hello 1 @500; tick @590",
            "Joined 1, Cut 1, Joined 1",
        );
    }

    #[test]
    fn a_later_life_ends_the_earlier_one_and_cannot_be_followed_by_it() {
        check(
            "hello 1 @0; hello 2 @10; heard 1 @20; closed 1 @30; hello 1 @40; left 2 @50",
            "Joined 1, Dead 1, Joined 2, refused, Dead 2",
        );
    }
}
