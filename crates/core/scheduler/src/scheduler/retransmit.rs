//! Messages that are sent again: to nodes that may have missed them, and to FLPs whose STFs were lost on the way.

use super::open_tf::{Part, Phase};
use super::{Recipient, Scheduler};
use sheaf_protocol::control::Assign;
use sheaf_protocol::{Control, FlpId, Target, TfId, Timestamp};

impl Scheduler {
    /// Retransmits an assignment to an FLP that seems to have missed it.
    pub(super) fn repeat_assign(&mut self, tf: TfId, flp: FlpId) {
        if let Some(assign) = self.assign_of(tf) {
            self.send(Recipient::Flp(flp), Control::Assign(vec![assign]));
        }
    }

    /// Makes FLPs retransmit the STFs that `target` misses of a TF that this leader adopted there, each once: what an
    /// FLP sent there for a former leader may be lost, and it does not send that again for the first attempt. Returns
    /// whether an FLP was asked.
    pub(super) fn retransmit_missing(
        &mut self,
        now: Timestamp,
        target: Target,
        tf: TfId,
        missing: &[FlpId],
    ) -> bool {
        let Some(open) = self.tfs.get(&tf) else {
            return false;
        };
        if !open.is_adopted {
            return false;
        }
        let (mut flps, mut bytes) = (Vec::new(), 0);
        for (source, part) in open.members.iter().zip(&open.parts) {
            let flp = source.flp;
            if let Part::Announced(held) = part
                && missing.contains(&flp)
                && !open.asked_again.contains(&flp)
                && self.is_well(source)
            {
                flps.push(flp);
                bytes += held;
            }
        }
        if flps.is_empty() {
            return false;
        }
        self.resent_bytes += bytes;
        self.accounting.reassigned += 1;
        if let Some(open) = self.tfs.get_mut(&tf) {
            open.attempt.0 += 1;
            open.asked_again.extend(&flps);
        }
        // What the EPN lacks of an FLP that is gone comes no more: it does not wait for that again.
        self.write_off_gone(tf, |flp| missing.contains(&flp));
        // The EPN waits as long as for a first attempt.
        self.repeat_assign_to_epn(now, tf, target);
        for flp in flps {
            self.repeat_assign(tf, flp);
        }
        true
    }

    /// Retransmits the assignment of a TF that is late by no fault of its EPN, which may have missed it.
    pub(super) fn repeat_assign_to_epn(&mut self, now: Timestamp, tf: TfId, target: Target) {
        self.restart_deadline(now, tf);
        if let Some(node) = self.epns.get_mut(&target.epn) {
            node.rosters_said.clear();
        }
        if let Some(assign) = self.assign_of(tf) {
            self.send_assigns_to(target, &[assign]);
        }
    }

    /// Retransmits roster and assignment to an EPN that joined again.
    pub(super) fn repeat_roster(&mut self, target: Target, assign: Assign) {
        if let Some(node) = self.epns.get_mut(&target.epn) {
            node.rosters_said.clear();
        }
        self.send_assigns_to(target, &[assign]);
    }

    fn assign_of(&self, tf: TfId) -> Option<Assign> {
        let open = self.tfs.get(&tf)?;
        let Phase::Building { target, .. } = open.phase else {
            return None;
        };
        Some(Assign {
            tf,
            attempt: open.attempt,
            target,
            roster: open.roster,
        })
    }

    /// Retransmits everything to an EPN that has joined again.
    pub(super) fn repeat_all_for(&mut self, now: Timestamp, target: Target) {
        let here: Vec<TfId> = self
            .tfs
            .iter()
            .filter(|(_, tf)| match &tf.phase {
                Phase::Building { target: at, .. } | Phase::Committed { target: at, .. } => {
                    *at == target
                }
                Phase::Gathering | Phase::Queued => false,
            })
            .map(|(tf, _)| tf)
            .collect();
        for tf in here {
            match self.assign_of(tf) {
                Some(assign) => self.assigns.push(assign),
                None => self.repeat_commit(now, tf),
            }
        }
    }
}
