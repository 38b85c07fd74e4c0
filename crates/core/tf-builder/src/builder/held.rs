//! Report of open slots: the ICN learns which undecided TFs have STFs here. It goes on with them in place, and counts
//! their bytes in its credits.

use super::TfBuilder;
use crate::slot::Slot;
use sheaf_protocol::control::SlotHeld;
use sheaf_protocol::{Control, TfId, Timestamp, protect};

impl<P: Clone> TfBuilder<P> {
    /// Reports all slots to an ICN that the EPN has just joined.
    pub(super) fn send_slots(&mut self, now: Timestamp) {
        self.slots_said_at = now;
        self.send_slots_where(|_| true);
    }

    /// Reports again the slots that no assignment of this ICN has named for a while: the ICN may not know of them. The
    /// sources may be dead, and the first report lost. An assignment or a release answers it.
    pub(super) fn repeat_slots(&mut self, now: Timestamp) {
        let repeat = self.repeat();
        if now.since(self.slots_said_at) < repeat {
            return;
        }
        self.slots_said_at = now;
        let is_unclaimed =
            |slot: &Slot<P>| slot.roster.is_none() && now.since(slot.waits_since) >= repeat;
        self.send_slots_where(is_unclaimed);
    }

    fn send_slots_where(&mut self, is_meant: impl Fn(&Slot<P>) -> bool) {
        protect!(SlotReport, else return);
        let held = |(tf, slot): (TfId, &Slot<P>)| SlotHeld {
            tf,
            bytes: slot.bytes(),
        };
        let begun = self.slots.iter().filter(|(_, slot)| !slot.parts.is_empty());
        let held: Vec<SlotHeld> = begun.filter(|(_, slot)| is_meant(slot)).map(held).collect();
        for items in held.chunks(Control::ENTRIES_MAX) {
            self.messages.push_back(Control::Slots(items.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::builder::tests::{Bench, RUN};
    use crate::config::BuildConfig;
    use sheaf_protocol::TfId;
    use sheaf_protocol::control::Release;

    #[test]
    fn slots_without_an_assignment_are_reported_until_they_are_answered() {
        let mut bench = Bench::new(BuildConfig::default());
        bench.assign(4, 1);
        bench.stf(4, 0).unwrap();
        bench.pass_ms(100);
        assert_eq!(bench.said(), "", "the ICN has assigned it");
        bench.stf(5, 0).unwrap();
        bench.stf(6, 0).unwrap();
        bench.pass_ms(99);
        assert_eq!(bench.said(), "", "its assignment is on the way");
        bench.pass_ms(1);
        assert_eq!(bench.said(), "slots 5 6");
        bench.pass_ms(99);
        assert_eq!(bench.said(), "");
        bench.assign(5, 1);
        bench.pass_ms(1);
        assert_eq!(bench.said(), "slots 6");
        bench.builder.handle_release(&Release {
            version: 1,
            floor: TfId(0),
            ranges: vec![(TfId(6), TfId(7))],
        });
        bench.pass_ms(100);
        assert_eq!(bench.said(), "");
    }

    #[test]
    fn a_new_leader_gets_reports_of_all_slots_until_it_has_assigned_them() {
        let mut bench = Bench::new(BuildConfig::default());
        bench.assign(5, 7);
        bench.stf(5, 0).unwrap();
        bench.pass_ms(200);
        assert_eq!(bench.said(), "");
        bench.builder.handle_joined(bench.now, RUN, true);
        assert_eq!(bench.said(), "slots 5");
        bench.pass_ms(100);
        assert_eq!(bench.said(), "slots 5", "the first word may be lost");
        bench.assign(5, 1);
        bench.pass_ms(100);
        assert_eq!(bench.said(), "");
    }
}
