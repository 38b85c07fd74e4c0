//! Placing: which EPN gets a TF, and what happens when none has room or the chosen one does not deliver.

use super::open_tf::{Booking, OpenTf, Part, Phase};
use super::peer::target_id;
use super::{Incomplete, Recipient, Scheduler};
use sheaf_placement::{Job, LoadView, Refusal, TargetId};
use sheaf_protocol::control::{Absent, Assign};
use sheaf_protocol::{
    Attempt, Control, DropReason, EpnId, FlpId, Source, Target, TfId, Timestamp, protect,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bound of TFs in the table; also keeps the ranges of a release within one message.
const OPEN_TFS_MAX: usize = 8000;
/// How far ahead of all others an FLP may announce. A wider gap is a broken id.
const AHEAD_MAX: u64 = 1 << 16;
/// Bytes that may be retransmitted after mere silence, before the share below counts.
const RESEND_BYTES_FREE: u64 = 256 << 20;
/// Share of all bytes that may be retransmitted after mere silence: a fifth. A busy machine looks silent, and unlimited
/// retransmission would keep it busy.
const RESEND_DIVISOR: u64 = 5;
/// Rosters that an EPN is assumed to remember; it forgets older ones.
const ROSTERS_SAID_MAX: usize = 256;
/// TFs of the queue that are tried in vain before the rest waits for the next event, counted apart for early ones and
/// for those that wait for room only.
const VAIN_TRIES_MAX: usize = 16;
/// How far into the queue one event looks.
const LOOKED_AT_MAX: usize = 256;
/// How long after the report of one FLP that it cannot reach an EPN all others that cannot have reported it, too.
const REPORTED_BY_ALL_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Yes,
    Dropped,
    NoRoom,
}

/// Refusals in one pass over the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    tries: usize,
    /// The smallest bytes that could have gone anywhere and were refused: every larger TF would be refused, too.
    bytes_min: Option<u64>,
}

impl Refused {
    fn covers(self, bytes: Option<u64>) -> bool {
        let pair = bytes.zip(self.bytes_min);
        self.tries >= VAIN_TRIES_MAX || pair.is_some_and(|(bytes, min)| bytes >= min)
    }

    fn add(&mut self, bytes: Option<u64>) {
        self.tries += 1;
        self.bytes_min = [self.bytes_min, bytes].into_iter().flatten().min();
    }
}

/// Returns whether the booking can become one of `bytes`.
fn room_for(view: &LoadView, booking: &Booking, bytes: u64) -> bool {
    let more = bytes.saturating_sub(booking.bytes);
    let load = view.get(target_id(booking.target.epn));
    load.is_some_and(|load| load.free_bytes() >= more)
}

impl Scheduler {
    /// Makes sure that `tf` is in the table. `false` if it is decided, no TF of this run, or not for `by` to
    /// call: a source calls TFs of whose roster it is, and none in paced mode, where the heartbeat (`None`) does.
    pub(super) fn open_tf(&mut self, now: Timestamp, tf: TfId, by: Option<Source>) -> bool {
        if self.tfs.contains_key(&tf) {
            return true;
        }
        if self.released.contains(tf) || tf.0 > self.frontier.0.saturating_add(AHEAD_MAX) {
            return false;
        }
        if !self.may_open(tf) {
            return false;
        }
        let Some((roster, members)) = self.rosters.of(tf) else {
            return false;
        };
        // A TF that a former ICN has called for is known from the sources only, however late they come. While the farm
        // drains no heartbeat comes past them any more.
        let was_called = self.is_settling || tf < self.frontier || !self.wants_sources();
        let is_paced = self.config.mode == super::Mode::Paced && !was_called;
        // A TF that only a stranger to its roster has is called by no other source: then it is dropped, with a verdict.
        let may_call = |source: Source| members.contains(&source) || self.is_deserted(tf, &members);
        if by.is_some_and(|source| is_paced || !may_call(source)) {
            return false;
        }
        let mut parts = Vec::with_capacity(members.len());
        for member in members.iter() {
            parts.push(if self.gone.contains(member) {
                self.accounting.source(member.flp).skipped += 1;
                Part::Skipped(self.gone_reason(*member))
            } else if self.is_given_up(*member) {
                self.accounting.source(member.flp).skipped += 1;
                Part::Skipped(DropReason::SourceCut)
            } else {
                Part::Unknown(self.stf_bytes_max_of(member.flp))
            });
        }
        self.tfs
            .insert(tf, OpenTf::new(now, roster, members, parts));
        self.frontier = self.frontier.max(tf.next());
        self.accounting.announced += 1;
        self.span.0.get_or_insert(now);
        if self.tfs.len() > OPEN_TFS_MAX {
            self.drop_tf(tf, self.shed_reason());
            return false;
        }
        true
    }

    /// Returns whether no member of the roster of `tf` will ever have a part of it.
    fn is_deserted(&self, tf: TfId, members: &[Source]) -> bool {
        members.iter().all(|member| {
            let node = self.flps.get(&member.flp);
            let node = node.filter(|node| node.source == *member);
            self.gone.contains(member)
                || node.is_none_or(|node| node.ended.is_some_and(|end| end <= tf))
        })
    }

    /// Handles a change of the known parts of a TF.
    pub(super) fn handle_part_heard(&mut self, now: Timestamp, tf: TfId) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        match open.phase {
            Phase::Gathering if open.all_heard() => self.assign_or_drop(now, tf),
            Phase::Queued | Phase::Building { .. } => {
                let is_queued = open.phase == Phase::Queued;
                if let Some(reason) = self.cannot_build(open) {
                    self.drop_tf(tf, reason);
                } else if open.all_heard() && is_queued {
                    // The TF needs less than before, and may have the room that early ones have to leave.
                    self.place_queued(now);
                } else if open.all_heard() {
                    self.give_back_surplus(tf);
                    self.restart_deadline(now, tf);
                }
            }
            Phase::Gathering | Phase::Committed { .. } => {}
        }
    }

    /// Returns why no EPN needs to be asked: the quorum rule cannot be met any more.
    fn cannot_build(&self, open: &OpenTf) -> Option<DropReason> {
        let reason = open.first_skip();
        let possible = open
            .parts
            .iter()
            .filter(|part| !matches!(part, Part::Skipped(_)))
            .count();
        let enough = match self.config.incomplete {
            Incomplete::Never => open.parts.len(),
            Incomplete::Allow => {
                (self.config.quorum_stfs_min as usize).clamp(1, open.parts.len().max(1))
            }
        };
        if possible >= enough && possible > 0 {
            return None;
        }
        Some(self.true_reason(reason.unwrap_or(DropReason::SourceLate)))
    }

    pub(super) fn assign_or_drop(&mut self, now: Timestamp, tf: TfId) {
        // Free room is for TFs that wait longer; a younger one gets what they cannot use.
        self.place_queued(now);
        if self.try_place(now, tf) == Placed::NoRoom {
            self.enqueue(tf);
        }
    }

    /// Asks the policy once and books its choice.
    fn try_place(&mut self, now: Timestamp, tf: TfId) -> Placed {
        if self.is_settling || self.is_resetting(now) {
            return Placed::NoRoom;
        }
        self.write_off_gone(tf, |_| true);
        let open = &self.tfs[&tf];
        if let Some(reason) = self.cannot_build(open) {
            self.drop_tf(tf, reason);
            return Placed::Dropped;
        }
        let bytes = self.bytes_to_reserve(open);
        let is_early = self.is_early(tf, open);
        let mut avoid = self.unreachable_for(open);
        let unreachable_count = avoid.len();
        avoid.extend(
            open.bookings
                .iter()
                .map(|booking| target_id(booking.target.epn)),
        );
        let mut choice = self.choose(
            now,
            &Job {
                id: tf.0,
                bytes,
                avoid: &avoid,
                is_early,
            },
        );
        let nowhere_else = choice.is_err() && avoid.len() > unreachable_count;
        if protect!(FormerTargetRetry, when nowhere_else) {
            // No other EPN has room: those that were asked before are better than a deadlock of credits.
            avoid.truncate(unreachable_count);
            let open = &self.tfs[&tf];
            let former = |booking: &&Booking| {
                self.is_available(booking.target)
                    && !avoid.contains(&target_id(booking.target.epn))
                    && room_for(&self.view, booking, bytes)
            };
            if let Some(booking) = open.bookings.iter().rfind(former) {
                choice = Ok(target_id(booking.target.epn));
            }
        }
        match choice {
            Ok(id) => {
                let target = self.target_of(id);
                self.put(now, tf, target, bytes);
                Placed::Yes
            }
            // A part that is not announced may turn out smaller than it could be.
            // One that was built before has fitted somewhere, and waits for such an EPN.
            Err(Refusal::TooLarge { .. }) if self.is_oversize(tf) => {
                self.drop_tf(tf, DropReason::Oversize);
                Placed::Dropped
            }
            Err(_) => Placed::NoRoom,
        }
    }

    fn is_oversize(&self, tf: TfId) -> bool {
        let open = &self.tfs[&tf];
        open.all_heard() && open.is_undecided()
    }

    /// Returns whether a TF waits for FLPs while others may wait for room only. With a hold that is full of older TFs
    /// an FLP makes none before those are done, and they are never done if such TFs have all the room. The oldest TF
    /// without a verdict waits for no other.
    fn is_early(&self, tf: TfId, open: &OpenTf) -> bool {
        let oldest = || self.tfs.iter().find(|(_, open)| open.is_unbuilt());
        !open.all_heard() && oldest().is_some_and(|(oldest, _)| oldest != tf)
    }

    fn choose(&mut self, now: Timestamp, job: &Job<'_>) -> Result<TargetId, Refusal> {
        self.stats.choices += 1;
        let choice = self.policy.choose(now, job, &self.view);
        if let Err(refusal) = choice {
            self.stats.refused[refusal.index()] += 1;
        }
        choice
    }

    fn target_of(&self, id: TargetId) -> Target {
        let epn = u16::try_from(id.0).map(EpnId);
        let node = epn.ok().and_then(|epn| self.epns.get(&epn));
        node.expect("a policy chooses a member of the view, and the view has only EPNs")
            .target
    }

    fn bytes_to_reserve(&self, open: &OpenTf) -> u64 {
        if open.all_heard() || self.config.mode == super::Mode::DataDriven {
            open.bytes_expected()
        } else {
            self.config.tf_bytes_max
        }
    }

    fn unreachable_for(&self, open: &OpenTf) -> Vec<TargetId> {
        if self.unreachable.is_empty() {
            return Vec::new();
        }
        let is_member = |flp: FlpId| {
            let mut parts = open.members.iter().zip(&open.parts);
            parts.any(|(member, part)| member.flp == flp && !matches!(part, Part::Skipped(_)))
        };
        let pairs = self.unreachable.keys().filter(|(flp, _)| is_member(*flp));
        pairs.map(|(_, epn)| target_id(*epn)).collect()
    }

    /// Writes off members that died, where they are `lost`: such an STF is only where the TF was built before.
    pub(super) fn write_off_gone(&mut self, tf: TfId, lost: impl Fn(FlpId) -> bool) {
        if self.gone.is_empty() {
            return;
        }
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let is_undecided = open.is_undecided();
        for (part, member) in open.parts.iter_mut().zip(open.members.iter()) {
            let is_lost = self.gone.contains(member) && lost(member.flp);
            if matches!(part, Part::Skipped(_)) || !is_lost {
                continue;
            }
            let reason = if self.cut_off.contains(member) {
                DropReason::SourceCut
            } else {
                DropReason::SourceDied
            };
            if is_undecided {
                let accounting = self.accounting.source(member.flp);
                if matches!(part, Part::Announced(_)) {
                    accounting.announced -= 1;
                    accounting.outside += 1;
                }
                accounting.skipped += 1;
            }
            *part = Part::Skipped(reason);
        }
    }

    fn put(&mut self, now: Timestamp, tf: TfId, target: Target, bytes: u64) {
        let id = target_id(target.epn);
        let deadline = now + self.deadline_of(target);
        let open = self
            .tfs
            .get_mut(&tf)
            .expect("callers hold its id from the table");
        match open
            .bookings
            .iter_mut()
            .find(|booking| booking.target == target)
        {
            Some(booking) => {
                self.view.release(id, booking.bytes);
                booking.bytes = bytes;
                booking.placed_at = now;
            }
            None => open.bookings.push(Booking {
                target,
                bytes,
                placed_at: now,
            }),
        }
        self.view.book(id, bytes);
        open.attempt.0 += 1;
        open.assigned_at = now;
        open.phase = Phase::Building { target, deadline };
        if open.attempt.0 > 1 {
            self.accounting.reassigned += 1;
        }
        self.assigns.push(Assign {
            tf,
            attempt: open.attempt,
            target,
            roster: open.roster,
        });
    }

    /// Shrinks the reservation to the announced bytes when all announces are in.
    fn give_back_surplus(&mut self, tf: TfId) {
        let Some(open) = self.tfs.get_mut(&tf) else {
            return;
        };
        let Phase::Building { target, .. } = open.phase else {
            return;
        };
        let bytes = open.bytes_expected();
        if let Some(booking) = open
            .bookings
            .iter_mut()
            .find(|booking| booking.target == target)
            && booking.bytes != bytes
            // A source that was written off may be back: its bytes have to find room, or the EPN refuses them.
            && room_for(&self.view, booking, bytes)
        {
            self.view.release(target_id(target.epn), booking.bytes);
            self.view.book(target_id(target.epn), bytes);
            booking.bytes = bytes;
        }
    }

    /// Restarts the deadline when the last part becomes known only now: the EPN has its whole time from here on.
    pub(super) fn restart_deadline(&mut self, now: Timestamp, tf: TfId) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        let Phase::Building { target, .. } = open.phase else {
            return;
        };
        let deadline = now + self.deadline_of(target);
        if let Some(open) = self.tfs.get_mut(&tf) {
            open.phase = Phase::Building { target, deadline };
        }
    }

    fn enqueue(&mut self, tf: TfId) {
        let open = self
            .tfs
            .get_mut(&tf)
            .expect("callers hold its id from the table");
        let was_assigned = open.attempt.0 > 0;
        if !was_assigned && self.queue.len() >= self.config.queue_tfs_max as usize {
            self.drop_tf(tf, self.shed_reason());
            return;
        }
        open.phase = Phase::Queued;
        // A TF that was assigned before goes first; then the oldest.
        let rank = |tf: TfId| {
            let open = self.tfs.get(&tf);
            (open.is_some_and(|open| open.attempt.0 == 0), tf)
        };
        let before = |queued: &TfId| rank(*queued) < rank(tf);
        let at = self.queue.iter().rposition(before);
        self.queue.insert(at.map_or(0, |at| at + 1), tf);
    }

    /// Tries to place waiting TFs, oldest first. One TF that fits nowhere does not hold up the others.
    pub(super) fn place_queued(&mut self, now: Timestamp) {
        if self.is_settling || self.is_resetting(now) {
            return;
        }
        let mut at = 0;
        // By whether it is early. A size that was refused though the TF could go anywhere is refused for every larger
        // one, too: a full farm of 2,000 EPNs is looked through once an event, not once a TF.
        let mut refused = [Refused::default(); 2];
        let mut is_full = None;
        while at < self.queue.len().min(LOOKED_AT_MAX) {
            let tf = self.queue[at];
            let open = self.tfs.get(&tf);
            let Some(open) = open.filter(|open| open.phase == Phase::Queued) else {
                self.queue.remove(at);
                continue;
            };
            let is_early = self.is_early(tf, open);
            let goes_anywhere = open.bookings.is_empty() && self.unreachable.is_empty();
            // One whose EPN is gone is among those that were assigned before, and has no booking.
            let is_new = open.attempt == Attempt(0);
            let bytes = goes_anywhere.then(|| self.bytes_to_reserve(open));
            if refused[usize::from(is_early)].covers(bytes) {
                at += 1;
            } else if self.try_place(now, tf) == Placed::NoRoom {
                refused[usize::from(is_early)].add(bytes);
                at += 1;
                // Behind the TFs that were assigned before, no TF has a booking to fall back on.
                if is_new && goes_anywhere && *is_full.get_or_insert_with(|| self.is_full()) {
                    break;
                }
            } else if self.queue.get(at) == Some(&tf) {
                // Placed or dropped; dropping may have shortened the queue already.
                self.queue.remove(at);
            }
        }
    }

    /// Returns whether no EPN has room for a TF of any size.
    fn is_full(&self) -> bool {
        let smallest = Job {
            id: 0,
            bytes: 0,
            avoid: &[],
            is_early: false,
        };
        let targets = self.view.targets();
        !targets.iter().any(|target| target.fits(&smallest))
    }

    /// Returns whether a late TF is the EPN's fault: everything is announced, and all FLPs that announced are well.
    pub(super) fn may_move(&self, open: &OpenTf) -> bool {
        open.all_heard()
            && open
                .members
                .iter()
                .zip(&open.parts)
                .all(|(source, part)| match part {
                    Part::Announced(_) => self.is_well(source),
                    Part::Unknown(_) | Part::Skipped(_) => true,
                })
    }

    /// Returns whether an FLP that has announced an STF is there and heard.
    pub(super) fn is_well(&self, source: &Source) -> bool {
        let node = self.flps.get(&source.flp);
        node.is_some_and(|node| node.source == *source && node.absence.is_none())
            && !self.gone.contains(source)
    }

    /// Moves a TF that is in building at `from` to another EPN. `from` may still win.
    pub(super) fn move_tf(&mut self, now: Timestamp, tf: TfId, from: Target) {
        let is_cut = self
            .epns
            .get(&from.epn)
            .is_none_or(|node| node.target != from || node.is_cut);
        let bytes = self.tfs[&tf].bytes_expected();
        let may_resend = self.accounting.bytes / RESEND_DIVISOR + RESEND_BYTES_FREE;
        if !is_cut && self.resent_bytes + bytes > may_resend {
            self.stats.moves_put_off += 1;
            let deadline = now + self.deadline_of(from);
            if let Some(open) = self.tfs.get_mut(&tf) {
                open.phase = Phase::Building {
                    target: from,
                    deadline,
                };
            }
            return;
        }
        match self.try_place(now, tf) {
            Placed::Yes if !is_cut => self.resent_bytes += bytes,
            Placed::Yes | Placed::Dropped => {}
            Placed::NoRoom => self.enqueue(tf),
        }
    }

    /// Moves the TFs of `flp` at `target`, which it cannot reach, to other EPNs.
    pub(super) fn move_from_unreachable(&mut self, now: Timestamp, flp: FlpId, target: Target) {
        let stuck: Vec<TfId> = self
            .tfs
            .iter()
            .filter(|(_, tf)| {
                matches!(tf.phase, Phase::Building { target: at, .. } if at == target)
                    && tf.members.iter().any(|member| member.flp == flp)
            })
            .map(|(tf, _)| tf)
            .collect();
        for tf in stuck {
            self.move_tf(now, tf, target);
        }
    }

    /// Gives up FLPs that cannot reach the EPN. A TF whose FLPs cannot all reach one EPN waits no longer than a stale
    /// one: it goes on without those that miss the EPN that most can reach, as the quorum rule says. One bad cable does
    /// not stop the farm. An EPN that no FLP reaches is no EPN: where there is no other one, the TF waits as if all
    /// were gone. Since FLPs notice the loss of an EPN one after the other, fresh reports decide nothing, nor do those
    /// that lapsed just now.
    pub(super) fn give_up_unreachable(&mut self, now: Timestamp, tf: TfId) {
        let Some(open) = self.tfs.get(&tf) else {
            return;
        };
        if open.former.is_some() {
            // Its FLPs hold it until then.
            return;
        }
        let parts = open.members.iter().zip(&open.parts);
        let needed: Vec<Source> = parts
            .filter(|(_, part)| !matches!(part, Part::Skipped(_)))
            .map(|(source, _)| *source)
            .collect();
        let cut_off_from = |target: Target| -> Vec<Source> {
            let is_cut = |source: &Source| self.unreachable.contains_key(&(source.flp, target.epn));
            needed.iter().copied().filter(is_cut).collect()
        };
        let targets = self.epns.values().map(|node| node.target);
        let available = targets.filter(|target| self.is_available(*target));
        let fewest = available
            .map(|target| (target, cut_off_from(target)))
            .filter(|(_, cut)| cut.len() < needed.len())
            .min_by_key(|(_, cut)| cut.len());
        let Some((target, cut)) = fewest else {
            return;
        };
        let is_fresh = |source: &Source| {
            let reported = self.unreachable.get(&(source.flp, target.epn));
            reported.is_some_and(|pair| now.since(pair.since) < REPORTED_BY_ALL_AFTER)
        };
        let has_lapsed = |source: &Source| {
            self.unreachable_lapsed
                .contains_key(&(source.flp, target.epn))
        };
        if cut.iter().any(is_fresh) || needed.iter().any(has_lapsed) {
            return;
        }
        for source in cut {
            self.skip(now, tf, source, DropReason::SourceLate);
        }
    }

    /// Sends the gathered assignments: all to every FLP, and to each EPN its own, behind the roster they name.
    pub(super) fn send_assigns(&mut self) {
        if self.assigns.is_empty() {
            return;
        }
        let assigns = std::mem::take(&mut self.assigns);
        let mut by_target: BTreeMap<Target, Vec<Assign>> = BTreeMap::new();
        for assign in &assigns {
            by_target.entry(assign.target).or_default().push(*assign);
        }
        for (target, items) in by_target {
            if self.is_current(target) {
                self.send_assigns_to(target, &items);
            }
        }
        for items in assigns.chunks(Control::ENTRIES_MAX) {
            self.send(Recipient::AllFlps, Control::Assign(items.to_vec()));
        }
    }

    pub(super) fn send_assigns_to(&mut self, target: Target, items: &[Assign]) {
        let to = Recipient::Epn(target.epn);
        for item in items {
            let (Some(node), Some(open)) = (self.epns.get_mut(&target.epn), self.tfs.get(&item.tf))
            else {
                continue;
            };
            // After a move the EPN may have missed the roster with the first assignment.
            let is_new = node.rosters_said.insert(item.roster);
            while node.rosters_said.len() > ROSTERS_SAID_MAX {
                node.rosters_said.pop_first();
            }
            if is_new || item.attempt.0 > 1 {
                let (id, members) = (item.roster, open.members.to_vec());
                self.send(to, Control::Roster { id, members });
            }
        }
        let absent: Vec<Absent> = items
            .iter()
            .filter_map(|item| {
                let flps = self.tfs.get(&item.tf)?.absent();
                (!flps.is_empty()).then_some(Absent { tf: item.tf, flps })
            })
            .collect();
        for items in items.chunks(Control::ENTRIES_MAX) {
            self.send(to, Control::Assign(items.to_vec()));
        }
        for items in absent.chunks(Control::ENTRIES_MAX) {
            self.send(to, Control::Absent(items.to_vec()));
        }
    }
}
