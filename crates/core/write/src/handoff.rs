//! The way of TFs to one of several writer nodes.
//!
//! A [`Handoff`] stands at the end of an EPN. It chooses a writer for each TF by a [`Policy`], keeps what each writer
//! has not acknowledged within a window, and moves that to another writer when one closes its stream, is silent or has
//! full disks. A TF that moves may be at the former writer as well; so each writer that gets it has a copy with a
//! higher number, the highest counts, and the others are made void as soon as their writers can be reached.
//!
//! The driver has the streams: it feeds their events, and carries out [`HandoffAction`]s. No clock and no socket here.

use sheaf_placement::{
    Finished, Job, LoadView, Policy, TargetId, TargetLoad, UnknownPolicy, policy,
};
use sheaf_protect::protect;
use sheaf_protocol::control::{Move, TfCopy, WriterPulse, WriterWelcome};
use sheaf_protocol::{Attempt, Incarnation, RunId, Tf, TfId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Name of a TF at the end of an EPN: run, TF and the assignment that it was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandoffId {
    /// The run.
    pub run: RunId,
    /// The TF.
    pub tf: TfId,
    /// The assignment.
    pub attempt: Attempt,
}

impl HandoffId {
    /// Returns the copy with this number.
    #[must_use]
    pub fn copy(self, copy: u32) -> TfCopy {
        let Self { run, tf, attempt } = self;
        TfCopy {
            run,
            tf,
            attempt,
            copy,
        }
    }

    /// Returns the name of `tf`.
    #[must_use]
    pub fn of_tf<P>(tf: &Tf<P>) -> Self {
        let Tf {
            run, tf, attempt, ..
        } = *tf;
        Self { run, tf, attempt }
    }

    /// Returns the name of the TF that `copy` is one of.
    #[must_use]
    pub fn of(copy: &TfCopy) -> Self {
        Self {
            run: copy.run,
            tf: copy.tf,
            attempt: copy.attempt,
        }
    }
}

/// Configuration of a hand-off.
#[derive(Clone, Debug)]
pub struct HandoffConfig {
    /// Writers, by index from 0.
    pub writers: u16,
    /// Name of the policy that chooses among them, of [`sheaf_placement::policy::TABLE`].
    pub policy: String,
    /// TFs that may be with a writer without an acknowledgement; the writer may ask for fewer.
    pub window_tfs: u32,
    /// Silence of a writer after which it counts as hanging.
    pub silence: Duration,
    /// Seed of policies that draw lots.
    pub seed: u64,
}

/// Order to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoffAction {
    /// Send a TF to a writer.
    Send {
        /// Index of the writer.
        writer: u16,
        /// Which copy of which TF.
        copy: TfCopy,
        /// Whether the writer may have it already.
        may_be_here: bool,
        /// Other writers that may have an earlier copy.
        elsewhere: Vec<u16>,
        /// Whether an earlier copy is stored and committed.
        is_committed: bool,
    },
    /// Send a writer copies that are not to count there.
    Void {
        /// Index of the writer.
        writer: u16,
        /// The copies that count, elsewhere.
        copies: Vec<TfCopy>,
    },
    /// Send a writer moves that are settled.
    Settled {
        /// Index of the writer.
        writer: u16,
        /// The moves.
        moves: Vec<Move>,
    },
    /// Close the stream to a writer, which hangs, and open it again.
    Close {
        /// Index of the writer.
        writer: u16,
    },
}

/// Change of a writer, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterNews {
    /// A writer takes TFs.
    Takes(u16),
    /// The stream to a writer has closed, with so many TFs that are not acknowledged.
    Gone(u16, usize),
    /// The disks of a writer are full or fail.
    Full(u16),
    /// A TF is larger than what any writer takes at once.
    TooLarge(HandoffId, u64),
}

/// One writer as the EPN sees it.
#[derive(Debug, Default)]
struct WriterState {
    /// Bounds that it gave when it welcomed this EPN; `None` while there is no stream.
    welcome: Option<WriterWelcome>,
    /// When it was heard of last.
    heard_at: Timestamp,
    /// Run delay that it reports: how much longer it may be silent.
    run_delay: Duration,
    is_full: bool,
    /// TFs that it has and has not acknowledged.
    unacknowledged: BTreeSet<HandoffId>,
    /// Copies that are not to count there, and the writer that has the one which does.
    to_void: BTreeMap<HandoffId, (u32, u16)>,
    /// Whether all of these have been sent on the stream of now.
    is_void_sent: bool,
}

/// One TF until a writer has acknowledged it.
#[derive(Debug)]
struct Pending {
    bytes: u64,
    /// Number of the copy that counts.
    copy: u32,
    /// Writer that has it now.
    at: Option<u16>,
    /// Writers that it was sent to.
    tried: Vec<u16>,
    /// Whether an earlier copy is stored and committed: it counts until a later one is written.
    is_committed: bool,
    sent_at: Timestamp,
}

/// Chooser of the writer of each TF.
pub struct Handoff {
    config: HandoffConfig,
    policy: Box<dyn Policy>,
    view: LoadView,
    writers: Vec<WriterState>,
    pending: BTreeMap<HandoffId, Pending>,
    /// TFs that wait for a writer.
    queue: VecDeque<HandoffId>,
    actions: VecDeque<HandoffAction>,
    news: VecDeque<WriterNews>,
    moved: u64,
    /// The last TF that was found too large, so that it is reported once.
    too_large: Option<HandoffId>,
}

impl std::fmt::Debug for Handoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handoff")
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

fn target(writer: u16) -> TargetId {
    TargetId(writer.into())
}

impl Handoff {
    /// Creates a hand-off without a stream to any writer.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if there is no such policy.
    pub fn new(config: HandoffConfig) -> Result<Self, UnknownPolicy> {
        let mut view = LoadView::new();
        for writer in 0..config.writers {
            let mut load = TargetLoad::new(target(writer), 0, 0);
            load.available = false;
            view.insert(load);
        }
        Ok(Self {
            policy: policy::by_name(&config.policy, config.seed)?,
            view,
            writers: (0..config.writers)
                .map(|_| WriterState::default())
                .collect(),
            pending: BTreeMap::new(),
            queue: VecDeque::new(),
            actions: VecDeque::new(),
            news: VecDeque::new(),
            moved: 0,
            too_large: None,
            config,
        })
    }

    /// Takes a TF of `bytes` that is to be written. One that waits already is not taken twice.
    pub fn offer(&mut self, id: HandoffId, bytes: u64) {
        let pending = Pending {
            bytes,
            copy: 0,
            at: None,
            tried: Vec::new(),
            is_committed: false,
            sent_at: Timestamp(0),
        };
        if let std::collections::btree_map::Entry::Vacant(entry) = self.pending.entry(id) {
            entry.insert(pending);
            self.queue.push_back(id);
        }
    }

    /// Takes a TF of which a writer that is gone has copy `copy`, which is stored and committed and not known to be
    /// published. `tried` are the writers that it was sent to, that one last. Earlier copies stay until a later one is
    /// written: if the EPN dies before that, they are all that is left of the TF.
    pub fn offer_moved(&mut self, id: HandoffId, bytes: u64, copy: u32, tried: Vec<u16>) {
        let pending = Pending {
            bytes,
            copy,
            at: None,
            tried,
            is_committed: true,
            sent_at: Timestamp(0),
        };
        if self.pending.insert(id, pending).is_none() {
            self.queue.push_back(id);
        }
    }

    /// Takes back a TF that no writer has been sent. Returns whether there was one.
    pub fn recall(&mut self, id: HandoffId) -> bool {
        let is_unsent = |pending: &Pending| pending.tried.is_empty();
        if !self.pending.get(&id).is_some_and(is_unsent) {
            return false;
        }
        self.pending.remove(&id);
        self.queue.retain(|waiting| *waiting != id);
        true
    }

    /// Gives up a TF that is not committed: what writers have of it is not to count.
    pub fn withdraw(&mut self, id: HandoffId) {
        let Some(at) = self.pending.get(&id).map(|pending| pending.at) else {
            return;
        };
        if let Some(writer) = at {
            self.take_from(writer, id);
            self.writers[usize::from(writer)].unacknowledged.remove(&id);
        }
        self.queue.retain(|waiting| *waiting != id);
        let tried = self.pending.remove(&id).map(|pending| pending.tried);
        for writer in tried.into_iter().flatten() {
            self.revoke(writer, id);
        }
    }

    /// Notes that a writer has welcomed this EPN on a new stream.
    pub fn handle_welcome(&mut self, now: Timestamp, writer: u16, welcome: WriterWelcome) {
        self.handle_closed(writer);
        let Some(state) = self.writers.get_mut(usize::from(writer)) else {
            return;
        };
        state.welcome = Some(welcome);
        state.heard_at = now;
        state.run_delay = Duration::ZERO;
        state.is_full = false;
        state.is_void_sent = false;
        let slots = welcome.window_tfs.min(self.config.window_tfs);
        let load = TargetLoad::new(target(writer), welcome.window_bytes, slots.max(1));
        self.view.insert(load);
        self.news.push_back(WriterNews::Takes(writer));
    }

    /// Notes that the stream to a writer has closed: what it has not acknowledged goes to another one.
    pub fn handle_closed(&mut self, writer: u16) {
        let Some(state) = self.writers.get_mut(usize::from(writer)) else {
            return;
        };
        if state.welcome.take().is_none() {
            return;
        }
        let unacknowledged = std::mem::take(&mut state.unacknowledged);
        self.view.set_available(target(writer), false);
        self.news
            .push_back(WriterNews::Gone(writer, unacknowledged.len()));
        // The oldest first, before all that were not sent yet.
        for id in unacknowledged.into_iter().rev() {
            self.take_from(writer, id);
            self.queue.push_front(id);
        }
    }

    /// Notes a sign of life of a writer.
    pub fn handle_pulse(&mut self, now: Timestamp, writer: u16, pulse: &WriterPulse) {
        let Some(state) = self.writers.get_mut(usize::from(writer)) else {
            return;
        };
        let Some(welcome) = state.welcome else {
            return;
        };
        state.heard_at = now;
        state.run_delay = Duration::from_nanos(pulse.run_delay_ns);
        let was_full = std::mem::replace(&mut state.is_full, pulse.is_full);
        self.view
            .set_stuck(target(writer), pulse.is_full || pulse.is_leaving);
        if was_full != pulse.is_full {
            self.news.push_back(match pulse.is_full {
                true => WriterNews::Full(writer),
                false => WriterNews::Takes(writer),
            });
        }
        // The load of other EPNs counts as far as it leaves this one half of its window.
        let own = self
            .view
            .get(target(writer))
            .map_or(0, |it| it.booked_bytes);
        let others = pulse.queued_bytes.saturating_sub(own);
        let scaled = u128::from(others) * u128::from(welcome.window_bytes)
            / u128::from(pulse.capacity_bytes.max(1));
        let held = u64::try_from(scaled).unwrap_or(u64::MAX);
        self.view
            .set_held(target(writer), held.min(welcome.window_bytes / 2));
    }

    /// Notes that a writer has written a TF. If that is the copy which counts, the TF is done with, and the writers
    /// that it was sent to are returned, the last one at the end.
    pub fn handle_written(
        &mut self,
        now: Timestamp,
        writer: u16,
        copy: &TfCopy,
    ) -> Option<Vec<u16>> {
        let id = HandoffId::of(copy);
        if let Some(state) = self.writers.get_mut(usize::from(writer)) {
            state.heard_at = now;
        }
        let counts = |pending: &Pending| {
            protect!(HighestCopyCounts, requires pending.copy == copy.copy)
                && pending.tried.contains(&writer)
        };
        let pending = self.pending.get(&id).filter(|pending| counts(pending))?;
        let finished = Finished {
            bytes: pending.bytes,
            placed_at: pending.sent_at,
            arrived_at: now,
            done_at: now,
        };
        self.view.observe(target(writer), &finished);
        if let Some(at) = pending.at {
            self.take_from(at, id);
            self.writers[usize::from(at)].unacknowledged.remove(&id);
        } else {
            self.queue.retain(|waiting| *waiting != id);
        }
        let pending = self.pending.remove(&id)?;
        if pending.is_committed {
            for other in pending.tried.iter().filter(|tried| **tried != writer) {
                self.void(*other, id, copy.copy, writer);
            }
        }
        Some(pending.tried)
    }

    /// Notes that lower copies do not count at a writer any more.
    pub fn handle_voided(&mut self, writer: u16, copies: &[TfCopy]) {
        let Some(state) = self.writers.get_mut(usize::from(writer)) else {
            return;
        };
        let mut settled: BTreeMap<u16, Vec<Move>> = BTreeMap::new();
        for copy in copies {
            let id = HandoffId::of(copy);
            let Some((number, holder)) = state.to_void.get(&id).copied() else {
                continue;
            };
            // A later copy may have replaced the one that this answers.
            if number <= copy.copy {
                state.to_void.remove(&id);
                let copy = *copy;
                settled
                    .entry(holder)
                    .or_default()
                    .push(Move { copy, from: writer });
            }
        }
        for (holder, moves) in settled {
            if self.is_open(holder) {
                let writer = holder;
                self.actions
                    .push_back(HandoffAction::Settled { writer, moves });
            }
        }
    }

    /// Notes copies that a writer has of TFs with earlier copies elsewhere: of this EPN, or of one that is gone.
    pub fn handle_moves(&mut self, holder: u16, moves: &[Move]) {
        for Move { copy, from } in moves {
            if *from == holder {
                continue;
            }
            self.void(*from, HandoffId::of(copy), copy.copy, holder);
        }
    }

    /// Notes that all copies of a TF at a writer are not to count, as it is not committed.
    pub fn revoke(&mut self, writer: u16, id: HandoffId) {
        self.void(writer, id, u32::MAX, writer);
    }

    fn void(&mut self, writer: u16, id: HandoffId, copy: u32, holder: u16) {
        let Some(state) = self.writers.get_mut(usize::from(writer)) else {
            return;
        };
        let entry = state.to_void.entry(id).or_insert((copy, holder));
        if entry.0 <= copy {
            *entry = (copy, holder);
            state.is_void_sent = false;
        }
    }

    fn is_open(&self, writer: u16) -> bool {
        let state = self.writers.get(usize::from(writer));
        state.is_some_and(|state| state.welcome.is_some())
    }

    /// Releases the booking of a TF at a writer.
    fn take_from(&mut self, writer: u16, id: HandoffId) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        if pending.at.take() == Some(writer) {
            self.view.release(target(writer), pending.bytes);
        }
    }

    /// Looks for writers that are silent or full, and places what waits.
    pub fn handle_tick(&mut self, now: Timestamp) {
        for (writer, state) in (0..).zip(&mut self.writers) {
            let is_silent =
                |since: Timestamp| now.since(since) >= self.config.silence + state.run_delay;
            if state.welcome.is_some() && is_silent(state.heard_at) {
                // Once for each stream: it is closed next.
                state.heard_at = now;
                self.actions.push_back(HandoffAction::Close { writer });
            }
        }
        self.leave_full(now);
        while let Some(id) = self.queue.front().copied() {
            if !self.place(now, id) {
                break;
            }
            self.queue.pop_front();
        }
        for (writer, state) in (0..).zip(&mut self.writers) {
            if state.welcome.is_some() && !std::mem::replace(&mut state.is_void_sent, true) {
                let copies = state.to_void.iter();
                let copies: Vec<TfCopy> = copies.map(|(id, (copy, _))| id.copy(*copy)).collect();
                if !copies.is_empty() {
                    self.actions
                        .push_back(HandoffAction::Void { writer, copies });
                }
            }
        }
    }

    /// Moves TFs from writers with full disks as far as others have room.
    fn leave_full(&mut self, now: Timestamp) {
        for writer in 0..self.config.writers {
            let state = &self.writers[usize::from(writer)];
            if !state.is_full || state.welcome.is_none() {
                continue;
            }
            let waiting: Vec<HandoffId> = state.unacknowledged.iter().copied().collect();
            for id in waiting {
                let bytes = self.pending[&id].bytes;
                self.take_from(writer, id);
                if !self.place(now, id) {
                    // It stays where it is.
                    self.view.book(target(writer), bytes);
                    self.pending.get_mut(&id).expect("it waits").at = Some(writer);
                    break;
                }
                self.writers[usize::from(writer)].unacknowledged.remove(&id);
            }
        }
    }

    /// Sends a TF to a writer that has room; `false` if there is none.
    fn place(&mut self, now: Timestamp, id: HandoffId) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else {
            return true;
        };
        let job = Job {
            id: id.tf.0,
            bytes: pending.bytes,
            avoid: &[],
            is_early: false,
        };
        let chosen = self.policy.choose(now, &job, &self.view).or_else(|_| {
            // The load of others is a preference, no bound.
            for writer in 0..self.config.writers {
                self.view.set_held(target(writer), 0);
            }
            self.policy.choose(now, &job, &self.view)
        });
        let writer = match chosen {
            Ok(chosen) => u16::try_from(chosen.0).unwrap_or(u16::MAX),
            Err(sheaf_placement::Refusal::TooLarge { bytes, .. }) => {
                if self.view.online_len() > 0 && self.too_large != Some(id) {
                    self.too_large = Some(id);
                    self.news.push_back(WriterNews::TooLarge(id, bytes));
                }
                return false;
            }
            Err(_) => return false,
        };
        let last = pending.tried.last().copied();
        if last.is_some_and(|last| last != writer) {
            pending.copy += 1;
            self.moved += 1;
        }
        let may_be_here = pending.tried.contains(&writer);
        pending.tried.retain(|tried| *tried != writer);
        let elsewhere = pending.tried.clone();
        pending.tried.push(writer);
        pending.at = Some(writer);
        pending.sent_at = now;
        let copy = pending.copy;
        self.view.book(target(writer), pending.bytes);
        let state = &mut self.writers[usize::from(writer)];
        state.unacknowledged.insert(id);
        // The copy that is sent now is the one that counts there.
        if state
            .to_void
            .get(&id)
            .is_some_and(|(below, _)| *below <= copy)
        {
            state.to_void.remove(&id);
        }
        let is_committed = pending.is_committed;
        // What is committed stays until the copy is written.
        let stays = protect!(CommittedCopyStays, when is_committed);
        for other in elsewhere.iter().filter(|_| !stays) {
            let void = protect!(MovedCopyIsVoid, Some(()), else None);
            if void.is_some() {
                self.void(*other, id, copy, writer);
            }
        }
        self.actions.push_back(HandoffAction::Send {
            writer,
            copy: id.copy(copy),
            may_be_here,
            elsewhere,
            is_committed,
        });
        true
    }

    /// Returns the next order.
    pub fn poll(&mut self) -> Option<HandoffAction> {
        self.actions.pop_front()
    }

    /// Returns the next change of a writer.
    pub fn poll_news(&mut self) -> Option<WriterNews> {
        self.news.pop_front()
    }

    /// Returns whether some writer takes TFs.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.view.online_len() > 0
    }

    /// TFs that no writer has acknowledged, the waiting ones included.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// TFs that wait for a writer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns how often a TF was sent to another writer than before.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns how many copies are still to be made void.
    #[must_use]
    pub fn to_void(&self) -> usize {
        self.writers.iter().map(|state| state.to_void.len()).sum()
    }

    /// Returns the life of a writer that has a stream now.
    #[must_use]
    pub fn life(&self, writer: u16) -> Option<Incarnation> {
        let state = self.writers.get(usize::from(writer))?;
        Some(state.welcome?.incarnation)
    }

    /// Returns the TFs and bytes that a writer has not acknowledged, and whether it takes TFs.
    #[must_use]
    pub fn load(&self, writer: u16) -> (u32, u64, bool) {
        let load = self.view.get(target(writer));
        load.map_or((0, 0, false), |it| {
            (it.booked_slots, it.booked_bytes, it.is_online())
        })
    }
}

#[cfg(test)]
mod tests;
