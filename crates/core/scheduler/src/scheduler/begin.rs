//! The first TF of a run, and how the run follows its sources when their counters go on far ahead.
//!
//! Sources that count by themselves begin anywhere. The ids of a producer outside do not begin at 0, or not any more:
//! the first TF of a run is the highest one with which a source of the quorum can begin, since all of them can give
//! that one.

use super::Scheduler;
use super::peer::FlpNode;
use super::phase::RunPhase;
use sheaf_protocol::control::{Counter, Position};
use sheaf_protocol::{FlpId, Record, Source, TfId, Timestamp};

/// Highest first TF of a run. A counter beyond it is broken, and would leave no room to count on.
const FIRST_MAX: TfId = TfId(1 << 62);

impl Scheduler {
    /// Returns the first TF of the run; 0 before the run has begun.
    #[must_use]
    pub fn first_tf(&self) -> TfId {
        self.first
    }

    /// Returns the FLPs of the quorum whose sources have not given the id of their first STF; none without a quorum, in
    /// a run that has begun or has its first TF from the plan.
    #[must_use]
    pub fn awaited_for_begin(&self) -> Vec<FlpId> {
        if self.phase != RunPhase::Waiting || self.plan.first_tf.is_some() || !self.has_quorum() {
            return Vec::new();
        }
        let unknown = self.present_flps().filter(|node| !can_begin(node));
        unknown.map(|node| node.source.flp).collect()
    }

    /// Returns where the source of the FLP stands against the run, as far as the FLP has reported it.
    #[must_use]
    pub fn flp_position(&self, flp: FlpId) -> Option<Position> {
        self.flps.get(&flp)?.position
    }

    fn present_flps(&self) -> impl Iterator<Item = &FlpNode> {
        let nodes = self.flps.values();
        nodes.filter(|node| !self.gone.contains(&node.source))
    }

    fn has_quorum(&self) -> bool {
        self.present_flps().count() >= self.plan.flps as usize
            && self.epns.len() >= self.plan.epns as usize
    }

    /// Begins the run when the nodes of the plan are there and their sources can begin, or one can and the others had
    /// their time.
    pub(super) fn begin_if_quorum(&mut self, now: Timestamp) {
        if self.phase != RunPhase::Waiting || !self.has_quorum() {
            return;
        }
        let Some(first) = self.first_to_begin(now) else {
            return;
        };
        self.phase = RunPhase::Running;
        self.origin = now;
        self.first = first;
        self.fix_list();
        self.pass_over(first);
        self.change_roster();
        let flps: Vec<FlpId> = self.present_flps().map(|node| node.source.flp).collect();
        for flp in flps {
            self.start_flp(now, flp, first);
        }
    }

    fn first_to_begin(&mut self, now: Timestamp) -> Option<TfId> {
        if let Some(first) = self.plan.first_tf {
            return Some(first);
        }
        let known = self.present_flps().filter(|node| can_begin(node));
        let first = known
            .map(|node| node.position.unwrap_or_default().first)
            .max()?;
        if self.present_flps().all(can_begin) {
            return Some(first);
        }
        let since = *self.begin_awaited_since.get_or_insert(now);
        (now.since(since) >= self.plan.first_tf_wait()).then_some(first)
    }

    /// Passes over all TFs from the frontier up to `first`: they are none of the run, and no node waits for them.
    fn pass_over(&mut self, first: TfId) {
        if first <= self.frontier {
            return;
        }
        let passed = (self.frontier, first);
        self.append(Record::Passed {
            first: passed.0,
            end: passed.1,
        });
        self.released.insert_range(passed.0, passed.1);
        self.released_version += 1;
        self.frontier = first;
    }

    /// Handles the report of an FLP on its source.
    pub(super) fn handle_position(&mut self, now: Timestamp, source: Source, position: Position) {
        if let Some(node) = self.flps.get_mut(&source.flp) {
            let first = position.first.min(FIRST_MAX);
            node.position = Some(Position { first, ..position });
        }
        self.begin_if_quorum(now);
        self.follow_sources();
    }

    /// Follows the sources when the counters of all of them have gone on far ahead, as after a restart of the timing
    /// system: the run goes on with the highest id among them. TFs before it that are known keep their verdict to come.
    fn follow_sources(&mut self) {
        if self.phase != RunPhase::Running || self.is_settling {
            return;
        }
        let is_ahead = |position: &Position| position.counter == Counter::Ahead;
        let mut first = None;
        for node in self.present_flps().filter(|node| node.ended.is_none()) {
            let Some(position) = node.position.filter(is_ahead) else {
                return;
            };
            first = first.max(Some(position.first));
        }
        let Some(first) = first.filter(|first| *first > self.frontier) else {
            return;
        };
        self.pass_over(first);
        self.change_roster();
        for node in self.flps.values_mut() {
            node.position = None;
        }
    }
}

/// Returns whether the FLP knows with which TF its source begins, or makes none.
fn can_begin(node: &FlpNode) -> bool {
    node.position.is_some() || node.ended.is_some()
}
