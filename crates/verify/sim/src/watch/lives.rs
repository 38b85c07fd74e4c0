//! Order of the lives of one node (I13).

use super::{Found, Watch, found};
use crate::family::SeedFamily;
use crate::invariant::Invariant;
use crate::options::{Fault, Log};
use sheaf_node::event::{MemberEvent, PartEvent};
use sheaf_protocol::{FlpId, NodeId};

impl Watch<'_> {
    /// Lets what follows be about the second process of a node, until it is called again.
    pub(crate) fn swap_twin(&mut self, node: NodeId) {
        let (life, twin) = (self.lives.remove(&node), self.twins.remove(&node));
        self.lives.extend(twin.map(|twin| (node, twin)));
        self.twins.extend(life.map(|life| (node, life)));
    }

    /// Returns the latest life of a node that has joined.
    pub(super) fn joined_before(&self, node: NodeId) -> u64 {
        self.joined.get(&node).copied().unwrap_or(0)
    }

    /// Checks a life that has joined: none that is later may have joined before it began. Only an ICN that leads all
    /// the time knows every life.
    pub(super) fn check_joined(&mut self, node: NodeId) -> Result<(), Found> {
        let Some(life) = self.lives.get(&node) else {
            return Ok(());
        };
        let (incarnation, former) = (life.incarnation, life.joined_before);
        if incarnation < former && self.options.log == Log::Memory {
            let detail =
                format!("{node} joins in life {incarnation}, after life {former} had joined");
            return found(Invariant::OneLife, None, detail);
        }
        let latest = self.joined.entry(node).or_default();
        *latest = incarnation.max(*latest);
        Ok(())
    }

    /// Checks a complete TF that was made long after the faults: every FLP that made an STF of it is in its roster.
    pub(super) fn check_all_take_part(&self, icn: NodeId, tf: u64) -> Result<(), Found> {
        let Some(run) = self.lives.get(&icn).and_then(|life| life.run) else {
            return Ok(());
        };
        let run = &self.runs[run];
        let roster = run.roster_of(tf).unwrap_or_default();
        let is_left_out = |part: &&PartEvent| {
            let mut members = roster.iter();
            !members.any(|it| (it.flp, it.incarnation) == (part.flp, part.incarnation))
        };
        match run.made_of(tf).iter().find(is_left_out) {
            None => Ok(()),
            Some(part) => {
                let detail = format!(
                    "TF {tf} is complete without flp:{}, which lives and is not in the roster",
                    part.flp
                );
                found(Invariant::Live, tf, detail)
            }
        }
    }

    /// Checks that a source died for which a TF was dropped: that it has a later life, or was paused for long. Only the
    /// family of lives with a registry has no other reason.
    pub(super) fn check_died(&self, icn: NodeId, tf: u64, reason: &str) -> Result<(), Found> {
        let is_family =
            self.options.kind == SeedFamily::Lives && self.options.log == Log::ZooKeeper;
        let run = self.lives.get(&icn).and_then(|life| life.run);
        let Some(run) = run.filter(|_| is_family && reason == "source-died") else {
            return Ok(());
        };
        let half = self.options.session / 2;
        let is_long =
            |fault: &Fault| matches!(fault, Fault::Pause { length, .. } if *length >= half);
        let may_expire = self.options.faults.iter().any(|(_, fault)| is_long(fault));
        let has_later_life = |member: &MemberEvent| {
            let life = self.lives.get(&FlpId(member.flp).into());
            life.is_some_and(|life| life.incarnation != member.incarnation)
        };
        let roster = self.runs[run].roster_of(tf).unwrap_or_default();
        if may_expire || roster.iter().any(has_later_life) {
            return Ok(());
        }
        let detail = format!("TF {tf} is dropped for \"{reason}\", and all its sources live");
        found(Invariant::TrueReason, tf, detail)
    }

    /// Checks a life that was refused: a later one must have begun.
    pub(crate) fn check_refused(&self, node: NodeId, life: u64) -> Result<(), Found> {
        let lives = [self.lives.get(&node), self.twins.get(&node)];
        let mut lives = lives.into_iter().flatten().map(|life| life.incarnation);
        if lives.any(|other| other > life) || self.joined_before(node) > life {
            return Ok(());
        }
        let detail = format!("{node} is refused in life {life}, and no later one has begun");
        found(Invariant::OneLife, None, detail)
    }
}
