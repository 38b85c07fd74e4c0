//! `calendar`: the number of the job picks a slot, and every second the slots are dealt out again.

use super::{Policy, Registration};
use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::refusal::Refusal;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::Timestamp;
use std::time::Duration;

pub(super) const POLICY: Registration = Registration {
    name: "calendar",
    argument: None,
    make: |_, seed| Some(Box::new(Calendar::new(seed))),
};

/// The value 1 of a correction or a fill, in thousandths.
const ONE: u64 = 1000;
/// Bounds of a target's correction, in thousandths.
const CORRECTION: (u64, u64) = (500, 2000);
/// Share of the difference between a target's fill and the mean that one epoch corrects, as its inverse.
const GAIN_DIVISOR: i128 = 4;

/// Looks the number of the job up in a calendar of 512 slots, in which each target that was online at the beginning of
/// the epoch has slots in proportion to its weight and its correction.
///
/// EJFAT, the ESnet–JLab FPGA accelerated transport: the data plane (`esnet/udplb`) takes nine bits of the event's tick
/// as the slot; the control plane (`esnet/udplbd2`) lays out the next epoch every second: weight += control signal
/// of the node, mean normalised to 1000, slots in proportion, clamped to half and twice, leftovers in turn, shuffled.
/// Its nodes compute that signal from the fill of their queues with gains that are 0 as shipped. Here the view has the
/// fills, and the signal is a quarter of how far a target is below the mean, relative to the mean (proportional
/// control, with the sum in the weight as the integral).
///
/// Between two epochs a choice needs no load at all, so that sources could make it by themselves while the
/// scheduler is away. A slot whose target is offline or full passes the job on to the next slot. A farm of more than
/// 128 targets gets more slots, four a target at least. Takes O(1), and O(n) once a second.
#[derive(Clone, Debug)]
pub struct Calendar {
    lots: Xoshiro256PlusPlus,
    /// Slots, as places in the view.
    slots: Vec<u32>,
    /// One row for each target, ascending by id.
    rows: Vec<Row>,
    members: Option<u64>,
    /// When the present epoch began.
    since: Timestamp,
}

/// State of the calendar for one target.
#[derive(Clone, Copy, Debug)]
struct Row {
    id: TargetId,
    /// Correction of the weight, in thousandths.
    correction: u64,
    /// Smoothed fill, in thousandths of a thousandth.
    fill: u64,
    /// Weight times correction while slots are dealt out, 0 for a target that gets none.
    weight: u64,
}

impl Calendar {
    /// Slots of a farm of up to 128 targets.
    pub const SLOTS: usize = 512;
    /// Fewest slots for a target of a larger farm.
    const SLOTS_EACH_MIN: usize = 4;
    /// How long a calendar stands.
    pub const EPOCH: Duration = Duration::from_secs(1);

    /// Returns a calendar that shuffles by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
            slots: Vec::new(),
            rows: Vec::new(),
            members: None,
            since: Timestamp(0),
        }
    }

    fn follow(&mut self, now: Timestamp, view: &LoadView) {
        let members = Some(view.members_hash());
        if self.members != members || self.rows.len() != view.len() {
            self.members = members;
            self.take_in(view.targets());
        } else if now.since(self.since) >= Self::EPOCH {
            self.correct(view.targets());
        } else {
            return;
        }
        self.since = now;
        self.deal(view.targets());
    }

    /// Adopts members that have come or gone: those that stay keep their corrections. The only step that allocates.
    fn take_in(&mut self, targets: &[TargetLoad]) {
        let former = std::mem::take(&mut self.rows);
        let row = |target: &TargetLoad| {
            let known = former.binary_search_by_key(&target.id, |row| row.id);
            known.map_or(
                Row {
                    id: target.id,
                    correction: ONE,
                    fill: 0,
                    weight: 0,
                },
                |at| former[at],
            )
        };
        self.rows = targets.iter().map(row).collect();
    }

    /// Ends an epoch: targets fuller than the others get less.
    fn correct(&mut self, targets: &[TargetLoad]) {
        let (mut sum, mut count) = (0_u128, 0_u128);
        for (row, target) in self.rows.iter_mut().zip(targets) {
            row.fill = u64::midpoint(row.fill, fill(target));
            if target.is_online() {
                sum += u128::from(row.fill);
                count += 1;
            }
        }
        let mean = i128::try_from(sum.checked_div(count).unwrap_or(0)).unwrap_or(0);
        if mean == 0 {
            return;
        }
        for row in &mut self.rows {
            let below = (mean - i128::from(row.fill)) * i128::from(ONE) / mean;
            // A target twice as full as the mean is as bad as it gets.
            let signal = below.max(-i128::from(ONE)) / GAIN_DIVISOR;
            let corrected = (i128::from(row.correction) + signal).max(0);
            let (low, high) = CORRECTION;
            row.correction = u64::try_from(corrected).unwrap_or(high).clamp(low, high);
        }
        // Back to a mean of one, or all of them would drift to a bound together.
        let sum: u128 = self.rows.iter().map(|row| u128::from(row.correction)).sum();
        let goal = u128::from(ONE) * self.rows.len() as u128;
        for row in &mut self.rows {
            let scaled = u128::from(row.correction) * goal / sum.max(1);
            let (low, high) = CORRECTION;
            row.correction = u64::try_from(scaled).unwrap_or(high).clamp(low, high);
        }
    }

    /// Deals out the slots of the next epoch: one for each target that is online, the rest by weight.
    fn deal(&mut self, targets: &[TargetLoad]) {
        self.slots.clear();
        let (mut sum, mut online) = (0_u128, 0_usize);
        for (row, target) in self.rows.iter_mut().zip(targets) {
            row.weight = if target.is_online() {
                online += 1;
                u64::from(target.weight_milli.max(1)) * row.correction
            } else {
                0
            };
            sum += u128::from(row.weight);
        }
        if online == 0 {
            return;
        }
        // Number of members, so that the calendar keeps its length when one goes offline.
        let slots = (targets.len() * Self::SLOTS_EACH_MIN)
            .next_power_of_two()
            .max(Self::SLOTS);
        let free = slots - online;
        for (place, row) in (0..).zip(&self.rows).filter(|(_, row)| row.weight > 0) {
            let share = u128::from(row.weight) * free as u128 / sum;
            let share = usize::try_from(share).unwrap_or(free);
            self.slots.extend(std::iter::repeat_n(place, 1 + share));
        }
        let members = (0..)
            .zip(&self.rows)
            .cycle()
            .filter(|(_, row)| row.weight > 0);
        let left = slots.saturating_sub(self.slots.len());
        self.slots
            .extend(members.map(|(place, _): (u32, &Row)| place).take(left));
        self.slots.shuffle(&mut self.lots);
    }
}

/// Returns the larger of the shares of its bytes and of its slots that a target has taken, in thousandths of a
/// thousandth.
fn fill(target: &TargetLoad) -> u64 {
    let share = |taken: u64, of: u64| {
        let share = u128::from(taken.min(of)) * u128::from(ONE * ONE) / u128::from(of.max(1));
        u64::try_from(share).unwrap_or(ONE * ONE)
    };
    let bytes = share(target.occupied_bytes(), target.capacity_bytes);
    bytes.max(share(target.booked_slots.into(), target.slots.into()))
}

impl Policy for Calendar {
    fn name(&self) -> &'static str {
        POLICY.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        self.follow(now, view);
        let slot = job.id.checked_rem(self.slots.len() as u64).unwrap_or(0);
        let slot = usize::try_from(slot).unwrap_or(0);
        let (before, behind) = self.slots.split_at(slot);
        let places = behind.iter().chain(before).take(Self::SLOTS);
        let mut turn = places.filter_map(|place| view.targets().get(*place as usize));
        let found = turn.find(|target| target.fits(job));
        // A target that came online in this epoch has no slot yet.
        found
            .or_else(|| view.targets().iter().find(|target| target.fits(job)))
            .map(|target| target.id)
            .ok_or_else(|| view.refusal(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use crate::contract;

    const SECOND: u64 = 1_000_000_000;

    fn farm(targets: u32) -> LoadView {
        let mut view = LoadView::new();
        for id in 0..targets {
            view.insert(TargetLoad::new(TargetId(id), 1000, 100));
        }
        view
    }

    fn choose(policy: &mut Calendar, second: u64, id: u64, view: &LoadView) -> u32 {
        let job = Job {
            id,
            bytes: 1,
            avoid: &[],
            is_early: false,
        };
        policy
            .choose(Timestamp(second * SECOND), &job, view)
            .expect("room")
            .0
    }

    /// Returns the slots of each target in the calendar that stands at `second`.
    fn slots(policy: &mut Calendar, second: u64, view: &LoadView) -> Vec<usize> {
        choose(policy, second, 0, view);
        let mut counts = vec![0; view.len()];
        policy
            .slots
            .iter()
            .for_each(|place| counts[*place as usize] += 1);
        counts
    }

    #[test]
    fn calendar_keeps_the_contract() {
        contract::check(|seed| Box::new(Calendar::new(seed)));
    }

    #[test]
    fn calendar_passes_over_full_targets() {
        check(Calendar::new(1), &[0, 2, 0], "1 1 NoSlot");
    }

    #[test]
    fn slots_are_dealt_out_by_weight_and_all_of_them() {
        let mut view = farm(4);
        assert_eq!(slots(&mut Calendar::new(1), 0, &view), [128; 4]);
        view.set_weight(TargetId(3), 3000);
        let counts = slots(&mut Calendar::new(1), 0, &view);
        assert_eq!(counts.iter().sum::<usize>(), Calendar::SLOTS);
        assert!(counts[3].abs_diff(3 * counts[0]) <= 4, "{counts:?}");
        // A weight of 0 forbids nothing.
        view.set_weight(TargetId(0), 0);
        assert!((1..=2).contains(&slots(&mut Calendar::new(1), 0, &view)[0]));
    }

    #[test]
    fn a_large_farm_has_four_slots_a_target() {
        let counts = slots(&mut Calendar::new(1), 0, &farm(2000));
        assert_eq!(counts.iter().sum::<usize>(), 8192);
        assert!(counts.iter().all(|count| (4..=5).contains(count)));
    }

    #[test]
    fn within_an_epoch_the_number_alone_decides() {
        let (mut policy, mut view) = (Calendar::new(1), farm(5));
        let first: Vec<u32> = (0..512)
            .map(|id| choose(&mut policy, 0, id, &view))
            .collect();
        view.book(TargetId(0), 900);
        let again: Vec<u32> = (512..1024)
            .map(|id| choose(&mut policy, 0, id, &view))
            .collect();
        assert_eq!(first, again);
    }

    #[test]
    fn a_target_that_fills_up_loses_slots_epoch_by_epoch_down_to_half_and_wins_them_back() {
        let (mut policy, mut view) = (Calendar::new(1), farm(4));
        (0..4).for_each(|id| view.book(TargetId(id), 100));
        assert_eq!(slots(&mut policy, 0, &view), [128; 4]);
        assert_eq!(slots(&mut policy, 1, &view), [128; 4], "equally full");
        view.book(TargetId(2), 700);
        let first = slots(&mut policy, 2, &view);
        assert!(first[2] < 128 && first[0] > 128, "{first:?}");
        for second in 3..20 {
            slots(&mut policy, second, &view);
        }
        let low = slots(&mut policy, 20, &view);
        assert!(
            (60..=75).contains(&low[2]),
            "half of an even share: {low:?}"
        );
        view.release(TargetId(2), 700);
        view.release(TargetId(2), 100);
        for second in 21..60 {
            slots(&mut policy, second, &view);
        }
        let back = slots(&mut policy, 60, &view);
        assert!(back[2] > 100, "{back:?}");
    }

    #[test]
    fn who_is_offline_at_the_beginning_of_an_epoch_has_no_slot_in_it() {
        let (mut policy, mut view) = (Calendar::new(1), farm(4));
        view.set_available(TargetId(1), false);
        assert_eq!(slots(&mut policy, 0, &view)[1], 0);
        view.set_available(TargetId(1), true);
        assert_eq!(slots(&mut policy, 0, &view)[1], 0);
        assert_eq!(slots(&mut policy, 1, &view)[1], 128);
    }
}
