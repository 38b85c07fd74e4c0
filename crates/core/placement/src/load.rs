//! Load of the targets: which are there, which may get work, how much room is left.
//!
//! A [`LoadView`] is the one picture of the load that every [`Policy`](crate::Policy) chooses from. Its owner books
//! each choice into it at once, so the next choice already sees it, and lets the reports of the targets correct it
//! later. DataDistribution does so with its estimate of free memory (`TfSchedulerTfBuilderInfo.cxx`), and the ATLAS
//! storage balancing of 2017 found it to matter ("decisions are reflected immediately"). The choice of a target is left
//! to the policy, and the meaning of a booking to the owner.

use crate::measure::{Finished, Measured};
use crate::refusal::Refusal;
use sheaf_protocol::{Timestamp, splitmix};
use std::fmt;
use std::time::Duration;

/// Id of a place where a job can go: an EPN for a TF, a writer thread for a file, a server for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

/// A job to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<'a> {
    /// Number of the job, such as that of its TF. Jobs that are placed again keep theirs.
    pub id: u64,
    /// Bytes that the job takes at its target. May be 0.
    pub bytes: u64,
    /// Targets that must not get this job, in any order. Short: it is searched once for each target.
    pub avoid: &'a [TargetId],
    /// Whether the job is placed before all that it needs is there. Then it leaves room behind for another one of its
    /// size: the last room of a target is for jobs that wait for nothing else, or jobs that depend on those could take
    /// it all.
    pub is_early: bool,
}

impl Job<'_> {
    /// Returns the slots that have to be free: one for the job, and one more that an early job leaves free.
    fn slots_wanted(&self) -> u32 {
        1 + u32::from(self.is_early)
    }

    /// Returns the bytes that have to be free for the job.
    fn bytes_wanted(&self) -> u64 {
        self.bytes.saturating_mul(1 + u64::from(self.is_early))
    }
}

/// Load of one target as known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLoad {
    /// Id of the target.
    pub id: TargetId,
    /// Share of the work that the target should get beside others, in thousandths: 1000 is one share. Only weighted
    /// policies read it; it never forbids a job, that is what [`enabled`](Self::enabled) is for.
    pub weight_milli: u32,
    /// Whether the operator wants the target to work: `false` while it is switched off or drains.
    pub enabled: bool,
    /// Whether the target reported lately: `false` while it is suspected to be dead or cut off.
    pub available: bool,
    /// Whether the target reports that it takes nothing now, for instance because its disk is full.
    pub stuck: bool,
    /// Whether the target is on the list of those that may get work: `false` if the [`Reaction`](crate::Reaction) to
    /// failures keeps it out.
    pub listed: bool,
    /// Total room, in bytes.
    pub capacity_bytes: u64,
    /// Bytes of the jobs booked here and not yet released.
    pub booked_bytes: u64,
    /// Bytes that are booked no longer but still occupy the target, by its own last report: built and with the
    /// consumer.
    pub held_bytes: u64,
    /// Jobs that the target takes at once.
    pub slots: u32,
    /// Jobs booked here and not yet released.
    pub booked_slots: u32,
}

impl TargetLoad {
    /// Returns an empty target of one share, enabled and available.
    #[must_use]
    pub fn new(id: TargetId, capacity_bytes: u64, slots: u32) -> Self {
        Self {
            id,
            weight_milli: 1000,
            enabled: true,
            available: true,
            stuck: false,
            listed: true,
            capacity_bytes,
            booked_bytes: 0,
            held_bytes: 0,
            slots,
            booked_slots: 0,
        }
    }

    /// Returns the bytes neither booked nor held; 0 when a report has overtaken the bookings and the two exceed the
    /// capacity.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes
            .saturating_sub(self.booked_bytes)
            .saturating_sub(self.held_bytes)
    }

    /// Returns the slots not booked; 0 when more are booked than there are, as after the slots were reduced.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.slots.saturating_sub(self.booked_slots)
    }

    /// Returns the bytes that are booked at the target or held by its consumer.
    #[must_use]
    pub fn occupied_bytes(&self) -> u64 {
        self.booked_bytes.saturating_add(self.held_bytes)
    }

    /// Returns whether the target may get work at all: enabled, available, listed and not stuck.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.enabled && self.available && self.listed && !self.stuck
    }

    /// Returns whether the target can take `job` now: online, not avoided, with a slot and enough bytes free, and for
    /// an early job with as much again.
    #[must_use]
    pub fn fits(&self, job: &Job<'_>) -> bool {
        self.is_online()
            && self.free_slots() >= job.slots_wanted()
            && self.free_bytes() >= job.bytes_wanted()
            && !job.avoid.contains(&self.id)
    }
}

/// All targets as known now, in the order of their ids.
///
/// Look-ups take O(log n) and never allocate; only [`insert`](Self::insert) may. A change to a target that is not in
/// the view is ignored: it has left, and its bookings with it. The online targets are kept in a list of their own, so
/// that a policy finds the n-th of them at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// Targets, ascending by id, each id once.
    targets: Vec<TargetLoad>,
    /// Measurements, one for each target. Kept apart, since most policies read the loads of all targets and no
    /// measurements.
    measured: Vec<Measured>,
    /// Places in `targets` of those that are online, ascending.
    online: Vec<u32>,
    /// Hash of the members; see [`members_hash`](Self::members_hash).
    members_hash: u64,
}

/// Returns a number for one member of a view and its weight.
fn member_hash(target: &TargetLoad) -> u64 {
    splitmix::hash((u64::from(target.id.0) << 32) | u64::from(target.weight_milli))
}

impl LoadView {
    /// Returns a view without targets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts `target`, and returns the target that had its id before.
    ///
    /// The bookings are those of `target`: a restarted target starts without those of its predecessor. The measurements
    /// of the predecessor are forgotten, too; see [`Measured::newcomer`].
    pub fn insert(&mut self, target: TargetLoad) -> Option<TargetLoad> {
        let former = self.remove(target.id);
        let newcomer = Measured::newcomer(&self.measured);
        let at = self.targets.partition_point(|other| other.id < target.id);
        let first = self.online.partition_point(|place| (*place as usize) < at);
        self.online[first..]
            .iter_mut()
            .for_each(|place| *place += 1);
        if target.is_online() {
            self.online.insert(first, place_of(at));
        }
        self.members_hash = self.members_hash.wrapping_add(member_hash(&target));
        self.targets.insert(at, target);
        self.measured.insert(at, newcomer);
        former
    }

    /// Removes the target with its bookings, and returns it.
    pub fn remove(&mut self, id: TargetId) -> Option<TargetLoad> {
        let at = self.position(id).ok()?;
        self.set_online(at, false);
        let behind = self.online.partition_point(|place| (*place as usize) < at);
        self.online[behind..]
            .iter_mut()
            .for_each(|place| *place -= 1);
        self.measured.remove(at);
        let target = self.targets.remove(at);
        self.members_hash = self.members_hash.wrapping_sub(member_hash(&target));
        Some(target)
    }

    /// Returns the target `id`.
    #[must_use]
    pub fn get(&self, id: TargetId) -> Option<&TargetLoad> {
        let index = self.position(id).ok()?;
        Some(&self.targets[index])
    }

    /// Returns all targets, ascending by id.
    #[must_use]
    pub fn targets(&self) -> &[TargetLoad] {
        &self.targets
    }

    /// Returns the number of targets, online or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Returns whether there is no target at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Returns the measurements of the targets, one for each of [`targets`](Self::targets).
    #[must_use]
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Returns the measurements of the target `id`.
    #[must_use]
    pub fn measured_of(&self, id: TargetId) -> Option<&Measured> {
        let index = self.position(id).ok()?;
        Some(&self.measured[index])
    }

    /// Returns the number of targets that are online.
    #[must_use]
    pub fn online_len(&self) -> usize {
        self.online.len()
    }

    /// Returns the target at place `nth` of those that are online, ascending by id. Takes O(1).
    #[must_use]
    pub fn online(&self, nth: usize) -> Option<&TargetLoad> {
        let place = *self.online.get(nth)?;
        self.targets.get(place as usize)
    }

    /// Returns a hash that tells lists of members apart: equal as long as the same targets with the same weights are
    /// there, online or not, and another one (but once in 2^64) when any differs. A policy that keeps a table of the
    /// members compares it to know when to rebuild the table.
    #[must_use]
    pub fn members_hash(&self) -> u64 {
        self.members_hash
    }

    /// Returns every target once, in the order of ids, starting with the first one behind `last` and going on with the
    /// lowest; from the lowest if `last` is `None`. `last` itself may have left.
    pub fn targets_after(&self, last: Option<TargetId>) -> impl Iterator<Item = &TargetLoad> + '_ {
        self.rotated(
            self.targets
                .partition_point(|target| Some(target.id) <= last),
        )
    }

    /// Returns every target once, in the order of ids, starting with `first` or, if it is not there, the first one
    /// behind it, and going on with the lowest.
    pub fn targets_from(&self, first: TargetId) -> impl Iterator<Item = &TargetLoad> + '_ {
        self.rotated(self.targets.partition_point(|target| target.id < first))
    }

    /// Books one job of `bytes` at the target: a slot and the bytes.
    pub fn book(&mut self, id: TargetId, bytes: u64) {
        if let Some(target) = self.target_mut(id) {
            target.booked_bytes = target.booked_bytes.saturating_add(bytes);
            target.booked_slots = target.booked_slots.saturating_add(1);
        }
    }

    /// Releases one booking of `bytes`: a slot and the bytes.
    ///
    /// # Panics
    ///
    /// In debug builds, if the target has no such booking: one was released twice, or with other bytes than it was
    /// booked with. In other builds the counts stop at 0.
    pub fn release(&mut self, id: TargetId, bytes: u64) {
        if let Some(target) = self.target_mut(id) {
            debug_assert!(
                target.booked_slots > 0 && target.booked_bytes >= bytes,
                "release of {bytes} bytes that are not booked: {target:?}"
            );
            target.booked_bytes = target.booked_bytes.saturating_sub(bytes);
            target.booked_slots = target.booked_slots.saturating_sub(1);
        }
    }

    /// Notes how many bytes the target reports as with its consumer.
    pub fn set_held(&mut self, id: TargetId, bytes: u64) {
        if let Some(target) = self.target_mut(id) {
            target.held_bytes = bytes;
        }
    }

    /// Notes a job that the target has finished, for the policies that learn from it. The booking is released
    /// by [`release`](Self::release), not here.
    pub fn observe(&mut self, id: TargetId, finished: &Finished) {
        if let Ok(index) = self.position(id) {
            self.measured[index].add(finished);
        }
    }

    /// Notes a job of `bytes` whose last byte was at the target at `arrived_at`. The end of its work is for
    /// [`observe_work`](Self::observe_work).
    pub fn observe_arrival(
        &mut self,
        id: TargetId,
        bytes: u64,
        placed_at: Timestamp,
        arrived_at: Timestamp,
    ) {
        if let Ok(index) = self.position(id) {
            self.measured[index].add_arrival(bytes, placed_at, arrived_at);
        }
    }

    /// Notes `bytes` of jobs that the target has finished by `done_at`, by its own report, and that took it `busy`,
    /// without the time for which it had nothing to do.
    pub fn observe_work(&mut self, id: TargetId, bytes: u64, busy: Duration, done_at: Timestamp) {
        if let Ok(index) = self.position(id) {
            self.measured[index].add_work(done_at, bytes, busy);
        }
    }

    /// Notes whether the target reports (`true`) or is suspect (`false`). Its bookings stay.
    pub fn set_available(&mut self, id: TargetId, available: bool) {
        self.switch(id, |target| target.available = available);
    }

    /// Notes whether the target says that it takes nothing now. Its bookings stay.
    pub fn set_stuck(&mut self, id: TargetId, stuck: bool) {
        self.switch(id, |target| target.stuck = stuck);
    }

    /// Notes whether the operator wants the target to get work. Its bookings stay.
    pub fn set_enabled(&mut self, id: TargetId, enabled: bool) {
        self.switch(id, |target| target.enabled = enabled);
    }

    /// Notes whether the target is on the list of those that may get work. Its bookings stay.
    pub fn set_listed(&mut self, id: TargetId, listed: bool) {
        self.switch(id, |target| target.listed = listed);
    }

    /// Notes the share of the work that the target should get, in thousandths.
    pub fn set_weight(&mut self, id: TargetId, weight_milli: u32) {
        let Ok(at) = self.position(id) else {
            return;
        };
        let target = &mut self.targets[at];
        self.members_hash = self.members_hash.wrapping_sub(member_hash(target));
        target.weight_milli = weight_milli;
        self.members_hash = self.members_hash.wrapping_add(member_hash(target));
    }

    /// Returns why no target has room for `job`: the reason of the target that comes nearest to it, unless the job is
    /// too large for every one.
    ///
    /// Takes O(n). For a view where some target does have room, the answer means nothing.
    #[must_use]
    pub fn refusal(&self, job: &Job<'_>) -> Refusal {
        let Some(capacity_bytes_max) = self.targets.iter().map(|t| t.capacity_bytes).max() else {
            return Refusal::NoTarget;
        };
        if job.bytes > capacity_bytes_max {
            return Refusal::TooLarge {
                bytes: job.bytes,
                capacity_bytes_max,
            };
        }
        let mut nearest = Refusal::NoneAvailable;
        for target in self.targets.iter().filter(|target| target.is_online()) {
            if !job.avoid.contains(&target.id) {
                if target.free_slots() >= job.slots_wanted() {
                    return Refusal::NoMemory;
                }
                nearest = Refusal::NoSlot;
            } else if matches!(nearest, Refusal::NoneAvailable) {
                nearest = Refusal::NoneAllowed;
            }
        }
        nearest
    }

    /// Returns every target once, starting at `start`, which may be one past the end.
    fn rotated(&self, start: usize) -> impl Iterator<Item = &TargetLoad> + '_ {
        let (before, behind) = self.targets.split_at(start);
        behind.iter().chain(before)
    }

    /// Returns the place of `id`, or the place to insert it.
    fn position(&self, id: TargetId) -> Result<usize, usize> {
        self.targets.binary_search_by_key(&id, |target| target.id)
    }

    /// Applies a change that may take the target online or offline.
    fn switch(&mut self, id: TargetId, change: impl FnOnce(&mut TargetLoad)) {
        let Ok(at) = self.position(id) else {
            return;
        };
        change(&mut self.targets[at]);
        let is_online = self.targets[at].is_online();
        self.set_online(at, is_online);
    }

    fn set_online(&mut self, at: usize, is_online: bool) {
        match self.online.binary_search(&place_of(at)) {
            Ok(nth) if !is_online => {
                self.online.remove(nth);
            }
            Err(nth) if is_online => self.online.insert(nth, place_of(at)),
            Ok(_) | Err(_) => {}
        }
    }

    fn target_mut(&mut self, id: TargetId) -> Option<&mut TargetLoad> {
        let index = self.position(id).ok()?;
        Some(&mut self.targets[index])
    }
}

/// Converts an index into a place in the list of targets: ids have 32 bits and differ.
fn place_of(index: usize) -> u32 {
    u32::try_from(index).expect("no more targets than there are ids")
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TARGET: TargetId = TargetId(7);

    fn job(bytes: u64, avoid: &[TargetId]) -> Job<'_> {
        Job {
            id: 0,
            bytes,
            avoid,
            is_early: false,
        }
    }

    fn early(bytes: u64) -> Job<'static> {
        Job {
            is_early: true,
            ..job(bytes, &[])
        }
    }

    fn with(mut target: TargetLoad, change: impl FnOnce(&mut TargetLoad)) -> TargetLoad {
        change(&mut target);
        target
    }

    fn view(targets: impl IntoIterator<Item = TargetLoad>) -> LoadView {
        let mut view = LoadView::new();
        for target in targets {
            view.insert(target);
        }
        view
    }

    fn ids<'a>(targets: impl Iterator<Item = &'a TargetLoad>) -> Vec<u32> {
        targets.map(|target| target.id.0).collect()
    }

    #[test]
    fn a_target_fits_only_when_nothing_speaks_against_it() {
        let open = TargetLoad::new(TARGET, 100, 2);
        let check = |target: TargetLoad, avoid: &[TargetId], fits: bool| {
            assert_eq!(target.fits(&job(60, avoid)), fits, "{target:?}");
        };
        check(open, &[], true);
        check(open, &[TargetId(6), TargetId(8)], true);
        check(open, &[TargetId(6), TARGET], false);
        let cases = [
            (with(open, |t| t.enabled = false), false),
            (with(open, |t| t.available = false), false),
            (with(open, |t| t.stuck = true), false),
            (with(open, |t| t.listed = false), false),
            (with(open, |t| t.booked_slots = 1), true),
            (with(open, |t| t.booked_slots = 2), false),
            (with(open, |t| t.booked_slots = 3), false),
            (with(open, |t| t.booked_bytes = 40), true),
            (with(open, |t| t.booked_bytes = 41), false),
            (with(open, |t| t.held_bytes = 40), true),
            (with(open, |t| t.held_bytes = 41), false),
            (
                with(open, |t| (t.booked_bytes, t.held_bytes) = (20, 21)),
                false,
            ),
            (
                with(open, |t| (t.booked_bytes, t.held_bytes) = (101, u64::MAX)),
                false,
            ),
            (with(open, |t| t.weight_milli = 0), true),
        ];
        for (target, fits) in cases {
            check(target, &[], fits);
        }
    }

    #[test]
    fn an_early_job_leaves_room_for_another_one_of_its_size() {
        let open = TargetLoad::new(TARGET, 100, 2);
        let check = |target: TargetLoad, bytes: u64, refusal: Option<Refusal>| {
            let view = view([target]);
            assert_eq!(target.fits(&early(bytes)), refusal.is_none(), "{target:?}");
            if let Some(refusal) = refusal {
                assert_eq!(view.refusal(&early(bytes)), refusal, "{target:?}");
                assert!(target.fits(&job(bytes, &[])), "{target:?}");
            }
        };
        check(open, 50, None);
        check(open, 51, Some(Refusal::NoMemory));
        check(
            with(open, |t| t.held_bytes = 1),
            50,
            Some(Refusal::NoMemory),
        );
        check(with(open, |t| t.booked_slots = 1), 1, Some(Refusal::NoSlot));
        check(with(open, |t| t.slots = 1), 0, Some(Refusal::NoSlot));
    }

    #[test]
    fn a_refusal_names_the_reason_of_the_target_that_comes_nearest() {
        let open = TargetLoad::new(TargetId(1), 100, 1);
        let second = TargetLoad::new(TargetId(2), 50, 1);
        let suspect = with(open, |t| t.available = false);
        let drained = with(second, |t| t.enabled = false);
        let booked = with(open, |t| t.booked_slots = 1);
        let holding = with(open, |t| t.held_bytes = 80);
        let check = |targets: &[TargetLoad], job: Job<'_>, refusal: Refusal| {
            let view = view(targets.iter().copied());
            assert_eq!(view.refusal(&job), refusal, "{view:?}");
        };
        check(&[], job(u64::MAX, &[]), Refusal::NoTarget);
        check(&[suspect, drained], job(60, &[]), Refusal::NoneAvailable);
        check(&[open], job(60, &[open.id]), Refusal::NoneAllowed);
        check(&[open, drained], job(60, &[open.id]), Refusal::NoneAllowed);
        check(&[booked], job(60, &[]), Refusal::NoSlot);
        check(&[booked, drained], job(60, &[]), Refusal::NoSlot);
        check(&[booked, second], job(60, &[second.id]), Refusal::NoSlot);
        check(&[holding], job(60, &[]), Refusal::NoMemory);
        check(&[booked, second], job(60, &[]), Refusal::NoMemory);
        let too_large = Refusal::TooLarge {
            bytes: 101,
            capacity_bytes_max: 100,
        };
        check(&[suspect, second], job(101, &[]), too_large);
        check(&[suspect, second], job(100, &[]), Refusal::NoMemory);
    }

    #[test]
    fn a_walk_starts_behind_the_last_target_and_meets_each_once() {
        let view = view([9, 2, 5].map(|id| TargetLoad::new(TargetId(id), 1, 1)));
        assert_eq!(ids(view.targets_after(None)), [2, 5, 9]);
        assert_eq!(ids(view.targets_after(Some(TargetId(0)))), [2, 5, 9]);
        assert_eq!(ids(view.targets_after(Some(TargetId(2)))), [5, 9, 2]);
        assert_eq!(ids(view.targets_after(Some(TargetId(3)))), [5, 9, 2]);
        assert_eq!(ids(view.targets_after(Some(TargetId(u32::MAX)))), [2, 5, 9]);
        assert_eq!(ids(view.targets_from(TargetId(5))), [5, 9, 2]);
        assert_eq!(ids(view.targets_from(TargetId(6))), [9, 2, 5]);
        assert_eq!(ids(view.targets_from(TargetId(10))), [2, 5, 9]);
        assert_eq!(LoadView::new().targets_after(None).count(), 0);
    }

    #[test]
    fn a_change_to_a_target_that_left_is_ignored() {
        let mut view = view([TargetLoad::new(TARGET, 100, 1)]);
        view.remove(TARGET);
        view.book(TARGET, 1);
        view.release(TARGET, 1);
        view.set_held(TARGET, 1);
        view.set_available(TARGET, true);
        view.set_enabled(TARGET, true);
        view.set_weight(TARGET, 1);
        assert_eq!(view, LoadView::new());
    }

    #[test]
    fn books_that_would_overflow_stay_at_the_end_of_the_scale() {
        let full = TargetLoad::new(TARGET, u64::MAX, u32::MAX);
        let mut view = view([with(full, |t| t.booked_slots = u32::MAX)]);
        view.book(TARGET, u64::MAX);
        view.book(TARGET, u64::MAX);
        let target = view.get(TARGET).expect("just put in");
        assert_eq!((target.free_bytes(), target.free_slots()), (0, 0));
        assert_eq!(target.booked_bytes, u64::MAX);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "release of 5 bytes that are not booked")]
    fn a_booking_released_twice_is_caught_in_debug_builds() {
        let mut view = view([TargetLoad::new(TARGET, 100, 2)]);
        view.book(TARGET, 5);
        view.release(TARGET, 5);
        view.release(TARGET, 5);
    }

    #[derive(Clone, Debug)]
    enum ViewStep {
        Insert(u32),
        Remove(u32),
        Book(u32, u64),
        Release(u32),
        Held(u32, u64),
        Switch(u32, u8, bool),
        Weight(u32, u32),
    }

    fn step() -> impl Strategy<Value = ViewStep> {
        let id = 0_u32..12;
        prop_oneof![
            id.clone().prop_map(ViewStep::Insert),
            id.clone().prop_map(ViewStep::Remove),
            (id.clone(), 0_u64..100).prop_map(|(id, bytes)| ViewStep::Book(id, bytes)),
            id.clone().prop_map(ViewStep::Release),
            (id.clone(), 0_u64..100).prop_map(|(id, bytes)| ViewStep::Held(id, bytes)),
            (id.clone(), 0..4_u8, any::<bool>())
                .prop_map(|(id, what, on)| ViewStep::Switch(id, what, on)),
            (id, 0..3_u32).prop_map(|(id, weight)| ViewStep::Weight(id, weight)),
        ]
    }

    proptest! {
        #[test]
        fn it_keeps_the_books_that_a_plain_list_of_bookings_keeps(
            steps in prop::collection::vec(step(), 0..80)
        ) {
            let mut view = LoadView::new();
            let mut model: BTreeMap<u32, (Vec<u64>, u64)> = BTreeMap::new();
            for step in steps {
                match step {
                    ViewStep::Insert(id) => {
                        view.insert(TargetLoad::new(TargetId(id), 300, 4));
                        model.insert(id, (Vec::new(), 0));
                    }
                    ViewStep::Remove(id) => {
                        prop_assert_eq!(view.remove(TargetId(id)).is_some(), model.remove(&id).is_some());
                    }
                    ViewStep::Book(id, bytes) => {
                        view.book(TargetId(id), bytes);
                        model.entry(id).and_modify(|(booked, _)| booked.push(bytes));
                    }
                    ViewStep::Release(id) => {
                        if let Some(bytes) = model.get_mut(&id).and_then(|(booked, _)| booked.pop()) {
                            view.release(TargetId(id), bytes);
                        }
                    }
                    ViewStep::Held(id, bytes) => {
                        view.set_held(TargetId(id), bytes);
                        model.entry(id).and_modify(|(_, held)| *held = bytes);
                    }
                    ViewStep::Switch(id, 0, on) => view.set_available(TargetId(id), on),
                    ViewStep::Switch(id, 1, on) => view.set_enabled(TargetId(id), on),
                    ViewStep::Switch(id, 2, on) => view.set_listed(TargetId(id), on),
                    ViewStep::Switch(id, _, on) => view.set_stuck(TargetId(id), on),
                    ViewStep::Weight(id, weight) => view.set_weight(TargetId(id), weight),
                }
                prop_assert_eq!(view.len(), model.len());
                prop_assert_eq!(view.measured().len(), model.len());
                let online = ids(view.targets().iter().filter(|target| target.is_online()));
                let listed = ids((0..view.online_len()).filter_map(|nth| view.online(nth)));
                prop_assert_eq!(online, listed);
                // Inserted all at once or step by step, equal members have one hash.
                let mut rebuilt = LoadView::new();
                for target in view.targets().iter().rev() {
                    rebuilt.insert(*target);
                }
                prop_assert_eq!(rebuilt.members_hash(), view.members_hash());
                for (target, (id, (booked, held))) in view.targets().iter().zip(&model) {
                    let occupied = booked.iter().sum::<u64>() + held;
                    prop_assert_eq!(target.id, TargetId(*id));
                    prop_assert_eq!(target.free_bytes(), 300_u64.saturating_sub(occupied));
                    prop_assert_eq!(target.free_slots() as usize, 4_usize.saturating_sub(booked.len()));
                    prop_assert_eq!(view.get(target.id), Some(target));
                }
            }
        }
    }
}
