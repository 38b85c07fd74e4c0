//! Transfer of STFs to their EPNs: pushed at once, or offered and sent when the EPN asks.

use super::{Action, Flp, Push};
use crate::hold::Progress;
use sheaf_protocol::control::Offered;
use sheaf_protocol::{Attempt, Control, StfHeader, Target, TfId, Timestamp, protect};

impl Flp {
    /// Assigns the TF of an STF that is held to `target`.
    pub(super) fn assign(&mut self, tf: TfId, attempt: Attempt, target: Target) {
        let Some(held) = self.hold.get_mut(tf) else {
            return;
        };
        let is_old = held.assigned.is_some_and(|(known, _)| known >= attempt);
        if protect!(AttemptOrder, when is_old) {
            return;
        }
        // A former leader had it sent there: it need not go again, unless the EPN misses it.
        let was_sent =
            held.progress == Progress::Sent && held.assigned == Some((Attempt(0), target));
        if was_sent && attempt == Attempt(1) {
            held.assigned = Some((attempt, target));
            return;
        }
        if held.assigned.is_some() {
            self.stats.reassigned_stfs += 1;
        }
        held.assigned = Some((attempt, target));
        held.progress = Progress::Waiting;
        if self.links.is_open(target) {
            self.send_or_offer(tf, target);
        }
    }

    fn send_or_offer(&mut self, tf: TfId, target: Target) {
        let Some(held) = self.hold.get_mut(tf) else {
            return;
        };
        let bytes = held.stf.bytes();
        if self.config.push == Push::Eager || bytes <= self.config.eager_bytes {
            return self.send_stf(tf);
        }
        held.progress = Progress::Offered;
        self.stats.offered_stfs += 1;
        let offers = self.offers.entry(target).or_default();
        offers.push(Offered { tf, bytes });
    }

    fn send_stf(&mut self, tf: TfId) {
        let (Some(run), Some(held)) = (self.run, self.hold.get_mut(tf)) else {
            return;
        };
        let Some((attempt, target)) = held.assigned else {
            return;
        };
        held.progress = Progress::Sent;
        self.stats.sent_stfs += 1;
        self.stats.sent_bytes += held.stf.bytes();
        let header = StfHeader::of(&held.stf, run, self.source, attempt);
        self.actions.push_back(Action::SendStf {
            target,
            header,
            stf: held.stf.clone(),
        });
        protect!(HoldUntilRelease, else self.hold.release(tf));
    }

    /// Puts gathered offers into messages.
    pub(super) fn flush_offers(&mut self) {
        for (target, offers) in std::mem::take(&mut self.offers) {
            for items in offers.chunks(Control::ENTRIES_MAX) {
                let control = Control::Offer(items.to_vec());
                self.actions
                    .push_back(Action::SendToEpn { target, control });
            }
        }
    }

    /// Handles a message of an EPN on the data stream to it.
    pub fn handle_epn_message(&mut self, target: Target, control: &Control) {
        match control {
            Control::Grant(tfs) => self.handle_grant(target, tfs),
            _ => self.stats.unexpected_messages += 1,
        }
    }

    /// Handles grants of offered STFs. An STF that the EPN cannot have any more is withdrawn at once, so that the EPN
    /// asks another FLP.
    fn handle_grant(&mut self, target: Target, tfs: &[TfId]) {
        let mut withdrawn = Vec::new();
        for tf in tfs {
            let held = self.hold.get_mut(*tf);
            let held = held.filter(|held| held.is_assigned_to(target));
            match held.map(|held| held.progress) {
                Some(Progress::Offered) => self.send_stf(*tf),
                // On its way: the EPN has asked twice.
                Some(Progress::Sent) => {}
                Some(Progress::Waiting) | None => withdrawn.push(*tf),
            }
        }
        for tfs in withdrawn.chunks(Control::ENTRIES_MAX) {
            let control = Control::Withdrawn(tfs.to_vec());
            self.actions
                .push_back(Action::SendToEpn { target, control });
        }
    }

    /// Returns whether the data stream to `target` is open.
    #[must_use]
    pub fn is_link_open(&self, target: Target) -> bool {
        self.links.is_open(target)
    }

    /// Handles an opened data stream to `target`: everything assigned to it is sent, also STFs that an earlier stream
    /// may have carried already, because it is not known which of them arrived.
    pub fn handle_link_opened(&mut self, target: Target) {
        if !self.links.opened(target) {
            return;
        }
        let assigned: Vec<TfId> = self
            .hold
            .iter_mut()
            .filter(|(_, held)| held.is_assigned_to(target))
            .map(|(tf, _)| tf)
            .collect();
        for tf in protect!(ResendOnReopen, assigned, else Vec::new()) {
            self.send_or_offer(tf, target);
        }
    }

    /// Handles a data stream to `target` that the EPN refuses, and that closes next, for a reason that a short pause
    /// does not mend. The pauses before it is opened again become longer and longer.
    pub fn handle_link_refused(&mut self, target: Target) {
        self.links.refused(target);
    }

    /// Handles a data stream to `target` that is closed, or could not be opened.
    pub fn handle_link_closed(&mut self, now: Timestamp, target: Target) {
        self.links.closed(now, target);
        self.offers.remove(&target);
        for (_, held) in self.hold.iter_mut() {
            if held.assigned.is_some_and(|(_, to)| to == target) {
                held.progress = Progress::Waiting;
            }
        }
    }
}
