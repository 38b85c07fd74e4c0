//! Lives of nodes that should not be: second processes of one index, and clocks that were set back.

use super::TortureFarm;
use super::planned::PlannedStep;
use super::seat::Seat;
use crate::family::SeedFamily;
use crate::options::{Fault, Options};
use crate::trace::Line;
use crate::watch::Found;
use sheaf_protocol::{NodeId, Timestamp, splitmix};
use sheaf_transport::memory::{Death, Network};
use std::collections::BTreeSet;
use std::time::Duration;

/// Distance between the incarnations of two lives, so that there is room below one and above it.
const STEP: u64 = 10;
/// Incarnations below those of all lives that begin in order.
const ROOM_BELOW: u64 = 1000;
/// Room above the least incarnation that may join, from which a process that was refused draws its next.
const REPLACED_WITHIN: u64 = 1_000_000_000;
/// How long a process takes to replace itself.
const REPLACED_AFTER: Duration = Duration::from_millis(5);

/// Incarnations of a farm.
#[derive(Debug)]
pub(super) struct Lives {
    latest: u64,
    step: u64,
    /// Lives of processes that were refused and began again.
    replaced: u64,
}

impl Lives {
    pub(super) fn new(kind: SeedFamily) -> Self {
        let (latest, step) = match kind {
            SeedFamily::Lives => (ROOM_BELOW, STEP),
            _ => (0, 1),
        };
        Self {
            latest,
            step,
            replaced: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.latest
    }

    /// Returns the incarnation of the next life that begins in order.
    fn next(&mut self) -> u64 {
        self.latest += self.step;
        self.latest
    }

    /// Returns the incarnation of a process that was refused and begins again, as a process draws it: `least`
    /// or somewhat higher.
    fn after_refusal(&mut self, least: u64) -> u64 {
        self.replaced += 1;
        least + splitmix::mix(self.replaced) % REPLACED_WITHIN
    }

    /// Notes a life that did not begin in order: later ones that do are above it.
    fn note(&mut self, life: u64) {
        self.latest = self.latest.max(life);
    }
}

/// Returns the seats of the second processes that `options` name.
pub(super) fn twins(options: &Options, network: &Network) -> Vec<Seat> {
    let faults = options.faults.iter();
    let nodes: BTreeSet<NodeId> = faults
        .filter_map(|(_, fault)| match fault {
            Fault::Twin { node, .. } => Some(*node),
            _ => None,
        })
        .collect();
    let twin = |node: NodeId| {
        let mut seat = Seat::new(node, options, network);
        seat.name = format!("{node}~");
        seat.is_twin = true;
        seat
    };
    nodes.into_iter().map(twin).collect()
}

impl TortureFarm<'_> {
    /// Starts the process of a seat with the next incarnation, unless it lives.
    pub(super) fn start(&mut self, index: usize) -> Result<(), Found> {
        if self.seats[index].process.is_some() {
            return Ok(());
        }
        let life = self.lives.next();
        self.start_as(index, life)
    }

    /// Starts the process of a seat as a process does that was refused.
    pub(super) fn replace(&mut self, index: usize, life: u64) -> Result<(), Found> {
        if self.seats[index].process.is_some() {
            return Ok(());
        }
        self.lives.note(life);
        self.start_as(index, life)
    }

    /// Returns an incarnation below those of all lives of `node`.
    pub(super) fn earlier_life(&mut self, node: NodeId) -> u64 {
        let lowest = self.lowest.entry(node).or_insert(ROOM_BELOW);
        *lowest -= 1;
        *lowest
    }

    pub(super) fn inject_clock_back(&mut self, now: Timestamp, node: NodeId, back: Duration) {
        let index = self.seat_of(node);
        if self.seats[index].process.is_none() {
            return;
        }
        self.kill(now, index, Death::Seen, None);
        let life = self.earlier_life(node);
        self.plan(now + back, PlannedStep::StartAs(index, life));
    }

    pub(super) fn inject_twin(
        &mut self,
        now: Timestamp,
        node: NodeId,
        is_later: bool,
        length: Duration,
    ) {
        let twin = self
            .seats
            .iter()
            .position(|it| it.node == node && it.is_twin);
        let Some(index) = twin.filter(|index| self.seats[*index].process.is_none()) else {
            return;
        };
        let life = if is_later {
            self.lives.next()
        } else {
            self.earlier_life(node)
        };
        self.plan(now, PlannedStep::StartAs(index, life));
        self.plan(now + length, PlannedStep::EndTwin(index));
    }

    /// Ends a process that was refused; one that may come back with a later incarnation does.
    pub(super) fn end_refused(&mut self, now: Timestamp, index: usize) -> Result<(), Found> {
        let seat = &mut self.seats[index];
        let Some(least) = seat.refused.take() else {
            return Ok(());
        };
        let (node, life) = (seat.node, seat.life);
        self.trace
            .add(|| Line::new(now, &seat.name, vec![], "is refused, and ends".to_owned()));
        self.kill(now, index, Death::Seen, None);
        self.watch.check_refused(node, life)?;
        if least > 0 && !self.is_stopping {
            let life = self.lives.after_refusal(least);
            self.plan(now + REPLACED_AFTER, PlannedStep::StartAs(index, life));
        }
        Ok(())
    }

    /// Ends all second processes, for good.
    pub(super) fn end_twins(&mut self, now: Timestamp) {
        for index in 0..self.seats.len() {
            if self.seats[index].is_twin {
                self.kill(now, index, Death::Seen, None);
            }
        }
    }

    /// Breaks the control streams of a node, and lets no new one come about for a while.
    pub(super) fn inject_control_cut(&mut self, now: Timestamp, node: NodeId, length: Duration) {
        for icn in 0..self.options.log.icns() {
            let icn = NodeId {
                index: icn,
                ..NodeId::ICN
            };
            let (a, b) = (node.to_string(), icn.to_string());
            self.network.reset(&a, &b);
            self.network.cut(&a, &b);
            self.plan(now + length, PlannedStep::Heal(node, icn));
        }
    }
}

impl Seat {
    /// Notes a refusal that the farm of this seat may have; `false`: it breaks a promise.
    pub(super) fn note_refusal(&mut self, refusal: Option<u64>) -> bool {
        self.refused = refusal.filter(|_| self.may_be_refused);
        self.refused.is_some()
    }
}
