//! Table of TFs in building, and the messages to the ICN about them.

mod fetch;
mod held;
mod recall;
mod stored;

use crate::config::BuildConfig;
use crate::consumer::Consumer;
use crate::grants::Grants;
use crate::slot::{Roster, Slot};
use crate::stats::{RefusedStf, Stats};
use recall::Committed;
use sheaf_protocol::control::{Absent, Assign, Built, EpnPulse, Recover, Release};
use sheaf_protocol::{
    Attempt, Control, Part, RangeSet, RosterId, RunId, Source, StfHeader, Tf, TfId, TfTable,
    Timestamp, protect,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use stored::Storing;

/// Number of rosters that are kept for assignments that still name them.
const ROSTERS_KEPT: usize = 256;

/// TFs in one report at most: with every FLP of a large farm missing in each it still fits a message.
const REPORTS_AT_ONCE_MAX: usize = 512;

/// Order of the builder to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Send a message to the ICN.
    Send(Control),
    /// Send a message to an FLP, on its data stream.
    SendToFlp {
        /// The FLP.
        source: Source,
        /// The message: offered STFs that are to be sent.
        control: Control,
    },
    /// Deliver a TF to the consumer, then call [`TfBuilder::handle_delivered`], or [`TfBuilder::handle_held`] and later
    /// [`TfBuilder::handle_processed`].
    Deliver(Tf<P>),
    /// Take these committed TFs back from the consumer's queue, then call [`TfBuilder::handle_returned`] for each that
    /// no consumer has been given.
    Recall {
        /// The run.
        run: RunId,
        /// The TFs.
        tfs: Vec<TfId>,
    },
    /// Write a TF where it survives a crash, under a name that no consumer reads, then call
    /// [`TfBuilder::handle_stored`]. Ack level `stored` only, like the variants below.
    Store(Tf<P>),
    /// Remove the stored copy of a TF.
    Unstore {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
        /// Whether a former life of this EPN stored the TF, or the present one.
        by_former: bool,
    },
    /// Publish a TF that a former life of this EPN stored, then call [`TfBuilder::handle_recovered`].
    Recover {
        /// The run.
        run: RunId,
        /// The TF, and its missing STFs.
        item: Recover,
    },
}

/// A life of an FLP that is over.
#[derive(Clone, Copy, Debug)]
struct Gone {
    since: Timestamp,
    /// The latest roster when the ICN said so.
    roster: RosterId,
    /// Whether its streams have had the time of an STF to be emptied and closed.
    is_overdue: bool,
}

/// Builder of the TFs of one run at one EPN.
///
/// Events enter by `handle_…(now, …)`; [`poll_action`](Self::poll_action) returns actions until `None`. `P` is the
/// payload: bytes in a farm, anything in a simulation.
#[derive(Debug)]
pub struct TfBuilder<P> {
    config: BuildConfig,
    run: Option<RunId>,
    rosters: BTreeMap<RosterId, Roster>,
    slots: TfTable<Slot<P>>,
    /// Bytes of all parts in slots.
    open_bytes: u64,
    /// Bytes with the consumer, and those that only the writer of the ack level `stored` holds.
    sink_bytes: u64,
    consumer: Consumer,
    /// TFs committed here and not released yet: tombstones, from which a repeated commit is acknowledged.
    committed: TfTable<Committed>,
    /// TFs that are decided and done everywhere: tombstones that keep a late duplicate from opening a slot again.
    released: RangeSet,
    released_version: u64,
    /// Sources whose life is over.
    gone: BTreeMap<Source, Gone>,
    /// Sources with an open data stream, and their number of streams.
    streams: BTreeMap<Source, u32>,
    /// Whether the list of these is another one than the ICN has.
    has_new_streams: bool,
    /// STFs that FLPs have offered.
    grants: Grants,
    /// STFs that are granted, with the grant not sent yet.
    asked: BTreeMap<Source, Vec<TfId>>,
    /// The last wrong digest of an STF, so that the same one again is reported to the ICN.
    bad_digests: BTreeMap<(TfId, Source), u32>,
    deliveries: VecDeque<Tf<P>>,
    messages: VecDeque<Control>,
    built: Vec<Built>,
    acks: Vec<TfId>,
    /// Committed TFs that were given back.
    undelivered: Vec<TfId>,
    /// TFs to take back from the consumer's queue.
    recalls: Vec<TfId>,
    stats: Stats,
    /// TFs on the disk or on the way to it, at ack level `stored`.
    storing: Option<Storing<P>>,
    /// Whether the storage behind the consumer takes nothing now.
    is_storage_full: bool,
    /// When the slots without an assignment were last reported to the ICN.
    slots_said_at: Timestamp,
    /// How much longer answers of the ICN are awaited.
    run_delay: Duration,
}

impl<P: Clone> TfBuilder<P> {
    /// Returns a builder without a run.
    #[must_use]
    pub fn new(config: BuildConfig) -> Self {
        Self {
            config,
            run: None,
            rosters: BTreeMap::new(),
            slots: TfTable::new(),
            open_bytes: 0,
            sink_bytes: 0,
            consumer: Consumer::default(),
            committed: TfTable::new(),
            released: RangeSet::default(),
            released_version: 0,
            gone: BTreeMap::new(),
            streams: BTreeMap::new(),
            has_new_streams: false,
            grants: Grants::default(),
            asked: BTreeMap::new(),
            bad_digests: BTreeMap::new(),
            deliveries: VecDeque::new(),
            messages: VecDeque::new(),
            built: Vec::new(),
            acks: Vec::new(),
            undelivered: Vec::new(),
            recalls: Vec::new(),
            stats: Stats::default(),
            storing: None,
            is_storage_full: false,
            slots_said_at: Timestamp(0),
            run_delay: Duration::ZERO,
        }
    }

    /// Returns the run that the builder has joined.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the number of TFs in building.
    #[must_use]
    pub fn open_tfs(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes of TFs in building.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// Returns the bytes that the consumer holds.
    #[must_use]
    pub fn sink_bytes(&self) -> u64 {
        self.sink_bytes
    }

    /// Returns the content of the next heartbeat; `received_bytes` is the transport's count.
    #[must_use]
    pub fn pulse(&self, received_bytes: u64) -> EpnPulse {
        EpnPulse {
            open_tfs: self.slots.len() as u64,
            open_bytes: self.open_bytes,
            consumed: self.consumer.consumed(self.sink_bytes),
            delivered_tfs: self.stats.delivered_complete + self.stats.delivered_incomplete,
            received_bytes,
            duplicates_refused: self.stats.refused(RefusedStf::Duplicate),
            digest_mismatches: self.stats.refused(RefusedStf::BadDigest),
            released_version: self.released_version,
            storage_full: self.is_storage_full,
            // The process knows it.
            run_delay_ns: 0,
        }
    }

    /// Joins `run`, into which the ICN has accepted the EPN. State of another run is dropped; of the same run every
    /// settled TF is reported again, since the ICN may not have received the report. `is_new_leader`: another ICN than
    /// before, or the same in a new term. A new leader counts attempts from 1 and gets a report of all undecided TFs
    /// that are here.
    pub fn handle_joined(&mut self, now: Timestamp, run: RunId, is_new_leader: bool) {
        if self.run != Some(run) {
            // Committed TFs that `poll_action` has not returned yet go as well.
            self.stats.discarded_tfs += (self.slots.len() + self.deliveries.len()) as u64;
            let undelivered: u64 = self.deliveries.iter().map(Tf::bytes).sum();
            let (config, sink_bytes) = (self.config, self.sink_bytes.saturating_sub(undelivered));
            let sink_bytes = sink_bytes + self.leave_stores();
            self.consumer.remove(undelivered);
            let (stats, streams) = (self.stats, std::mem::take(&mut self.streams));
            let (storing, is_storage_full) = (self.storing.take(), self.is_storage_full);
            *self = Self {
                run: Some(run),
                sink_bytes,
                consumer: self.consumer,
                stats,
                streams,
                has_new_streams: true,
                storing,
                is_storage_full,
                ..Self::new(config)
            };
            self.send_stored(now);
            return;
        }
        // The ICN names all sources that are gone again.
        self.gone.clear();
        self.has_new_streams = true;
        self.send_stored(now);
        if protect!(RosterReset, when is_new_leader) {
            self.released_version = 0;
            // Its rosters may be others: no TF is reported before the new leader has named its roster.
            for slot in self.slots.values_mut() {
                slot.attempt = Attempt(0);
                slot.roster = None;
                slot.reported = None;
            }
        }
        self.send_slots(now);
        let reported: Vec<TfId> = self
            .slots
            .iter_mut()
            .filter_map(|(tf, slot)| slot.reported.take().map(|_| tf))
            .collect();
        for tf in reported {
            self.report_if_settled(now, tf);
        }
    }

    /// Accepts an STF whose bytes came with the digest `found`; `spent` is the time since its first byte.
    ///
    /// # Errors
    ///
    /// A [`RefusedStf`], counted; the state is unchanged. After
    /// [`BadDigest`](RefusedStf::BadDigest) the stream cannot be trusted, and the driver closes it.
    pub fn handle_stf(
        &mut self,
        now: Timestamp,
        header: &StfHeader,
        found: u32,
        payload: P,
        spent: Duration,
    ) -> Result<(), RefusedStf> {
        let part = Part {
            source: header.key.source,
            format: header.format,
            digest: header.digest,
            bytes: header.payload_bytes,
            payload,
        };
        let tf = header.key.tf;
        self.grants.done(tf, part.source);
        let outcome = self.admit(header, found, &part);
        if let Err(reason) = outcome {
            self.stats.refused[reason as usize] += 1;
            self.fetch(now);
            return Err(reason);
        }
        let first_at = Timestamp(now.0.saturating_sub(duration_ns(spent)));
        self.stats.accepted_stfs += 1;
        self.stats.accepted_bytes += part.bytes;
        self.open_bytes += part.bytes;
        let slot = self.slots.get_or_insert_with(tf, || Slot::new(first_at));
        if slot.parts.is_empty() {
            slot.first_at = first_at;
        }
        slot.last_at = now;
        slot.changes += 1;
        slot.parts.push(part);
        self.report_if_settled(now, tf);
        self.fetch(now);
        Ok(())
    }

    fn admit(&mut self, header: &StfHeader, found: u32, part: &Part<P>) -> Result<(), RefusedStf> {
        let tf = header.key.tf;
        if protect!(RunCheck, when self.run != Some(header.key.run)) {
            return Err(RefusedStf::OtherRun);
        }
        let is_decided = self.released.contains(tf) || self.committed.contains_key(&tf);
        if protect!(Tombstones, when is_decided) {
            return Err(RefusedStf::Decided);
        }
        if let Some(slot) = self.slots.get(&tf) {
            if let Some(held) = protect!(Deduplication, slot.part(part.source), else None) {
                let same = held.digest == part.digest && held.bytes == part.bytes;
                return Err(if same {
                    RefusedStf::Duplicate
                } else {
                    RefusedStf::Conflict
                });
            }
            let roster = slot.roster.as_ref();
            let is_stranger = roster.is_some_and(|roster| !roster.contains(&part.source));
            if protect!(RosterCheck, when is_stranger) {
                return Err(RefusedStf::OtherRoster);
            }
        } else if self.slots.len() >= 2 * self.config.tfs_in_building_max as usize {
            // Credits keep assigned TFs within the slots; as many again may be left from former assignments.
            return Err(RefusedStf::NoRoom);
        }
        let held = self.open_bytes.saturating_add(self.sink_bytes);
        if part.bytes > self.config.capacity_bytes.saturating_sub(held) {
            return Err(RefusedStf::NoRoom);
        }
        if protect!(DigestCheck, when found != header.digest) {
            self.note_bad_digest(tf, part.source, found);
            return Err(RefusedStf::BadDigest);
        }
        Ok(())
    }

    /// Notes a wrong digest. The same wrong bytes twice come from the source. A path that damages data hardly does it
    /// twice in the same way: then the STF is retransmitted, and after the deadline the TF moves.
    fn note_bad_digest(&mut self, tf: TfId, source: Source, found: u32) {
        if self.bad_digests.insert((tf, source), found) == Some(found) {
            self.messages.push_back(Control::Corrupt {
                tf,
                flp: source.flp,
            });
        }
    }

    /// Counts an STF that the driver refused because frame and header disagree about its size.
    pub fn handle_wrong_size(&mut self) {
        self.stats.refused[RefusedStf::WrongSize as usize] += 1;
    }

    /// Notes that a data stream of `source` is open.
    pub fn handle_stream_opened(&mut self, source: Source) {
        let count = self.streams.entry(source).or_default();
        *count += 1;
        self.has_new_streams |= *count == 1;
        self.gone.remove(&source);
    }

    /// Notes that a data stream of `source` is closed, and that all data it carried has been handled.
    pub fn handle_stream_closed(&mut self, now: Timestamp, source: Source) {
        if let Some(count) = self.streams.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.streams.remove(&source);
                self.has_new_streams = true;
                // With its next stream the source offers again.
                self.grants.keep_only(|_, other| other != source);
                self.asked.remove(&source);
                self.fetch(now);
            }
        }
        if self.is_gone(source) {
            self.report_all_settled(now);
        }
    }

    /// Handles the ICN's notice that this life of an FLP is over, sent when `roster` was the latest. Notices may come
    /// late and out of order, also twice: one that a later roster revoked is ignored.
    pub fn handle_source_gone(&mut self, now: Timestamp, source: Source, roster: RosterId) {
        let mut later = self
            .rosters
            .range((Bound::Excluded(roster), Bound::Unbounded));
        let is_revoked = later.any(|(_, members)| members.binary_search(&source).is_ok());
        if protect!(LateGone, is_revoked, else false) {
            return;
        }
        let gone = self.gone.entry(source).or_insert(Gone {
            since: now,
            roster,
            is_overdue: false,
        });
        gone.roster = gone.roster.max(roster);
        if self.is_gone(source) {
            self.report_all_settled(now);
        }
    }

    /// Handles the ICN's notice that a source that was presumed gone is back in the same life, sent when `roster` was
    /// the latest.
    pub fn handle_source_back(&mut self, source: Source, roster: RosterId) {
        let gone = self.gone.get(&source);
        if gone.is_some_and(|gone| gone.roster <= roster) {
            self.gone.remove(&source);
        }
    }

    /// Returns whether a source is gone: dead, and its last stream closed, since bytes of a dead source may still be on
    /// the way. A machine that loses its power closes no stream: there is a limit.
    fn is_gone(&self, source: Source) -> bool {
        let gone = self.gone.get(&source);
        gone.is_some_and(|gone| gone.is_overdue || !self.streams.contains_key(&source))
    }

    /// Ends the wait for streams of dead sources that have stayed open for as long as an STF may take.
    fn tick_gone(&mut self, now: Timestamp) {
        let limit = self.config.stf_timeout();
        let mut is_new = false;
        for gone in self.gone.values_mut().filter(|gone| !gone.is_overdue) {
            gone.is_overdue = now.since(gone.since) >= limit;
            is_new |= gone.is_overdue;
        }
        if is_new {
            self.report_all_settled(now);
        }
    }

    /// Handles a roster that the ICN names. A member of it that was said to be gone before has come back, whether or
    /// not that notice has arrived.
    pub fn handle_roster(&mut self, id: RosterId, members: &[Source]) {
        if protect!(LateGone, !self.gone.is_empty(), else false) {
            for source in members {
                if self.gone.get(source).is_some_and(|gone| gone.roster < id) {
                    self.gone.remove(source);
                }
            }
        }
        let mut members = members.to_vec();
        members.sort_unstable();
        self.rosters.insert(id, members.into());
        while self.rosters.len() > ROSTERS_KEPT {
            self.rosters.pop_first();
        }
    }

    /// Handles TFs that the ICN has assigned to this EPN.
    pub fn handle_assign(&mut self, now: Timestamp, assigns: &[Assign]) {
        for assign in assigns {
            if self.released.contains(assign.tf) {
                continue;
            }
            let committed = self.committed.get(&assign.tf).copied();
            if let Some(committed) = protect!(Tombstones, committed, else None) {
                self.answer_again(assign.tf, committed);
                continue;
            }
            let Some(roster) = self.rosters.get(&assign.roster).cloned() else {
                continue;
            };
            let slot = self.slots.get_or_insert_with(assign.tf, || Slot::new(now));
            if slot.attempt < assign.attempt {
                // The FLPs retransmit: an STF that was missing a while ago is on its way now.
                slot.attempt = assign.attempt;
                slot.waits_since = now;
                slot.reported = None;
            }
            slot.roster = Some(roster);
            let (stfs, bytes) = protect!(RosterCheck, slot.drop_strangers(), else (0, 0));
            self.stats.refused[RefusedStf::OtherRoster as usize] += stfs;
            self.open_bytes -= bytes;
            self.report_if_settled(now, assign.tf);
        }
    }

    /// Handles the ICN's notice that some FLPs have no part in a TF.
    pub fn handle_absent(&mut self, now: Timestamp, items: &[Absent]) {
        for item in items {
            if let Some(slot) = self.slots.get_mut(&item.tf) {
                slot.absent.extend(&item.flps);
                self.report_if_settled(now, item.tf);
            }
        }
    }

    /// Handles a release: slots of decided TFs go, and their tombstones are folded into ranges.
    pub fn handle_release(&mut self, release: &Release) {
        if release.version <= self.released_version {
            return;
        }
        self.released_version = release.version;
        release.add_to(&mut self.released);
        let released = &self.released;
        let discarded: Vec<TfId> = self
            .slots
            .keys()
            .filter(|tf| protect!(DecidedSlotsFreed, when released.contains(*tf)))
            .collect();
        for tf in discarded {
            self.discard(tf);
        }
        let released = &self.released;
        self.committed.retain(|tf, _| !released.contains(tf));
        self.bad_digests
            .retain(|(tf, _), _| !released.contains(*tf));
        self.grants.keep_only(|tf, _| !released.contains(tf));
    }

    fn discard(&mut self, tf: TfId) {
        if let Some(slot) = self.slots.remove(&tf) {
            self.open_bytes -= slot.bytes();
            self.stats.discarded_tfs += 1;
            self.unstore(tf, &slot);
        }
    }

    /// Extends all deadlines by `late`, for which this process itself was kept from working.
    pub fn handle_late(&mut self, late: Duration) {
        for slot in self.slots.values_mut() {
            slot.waits_since = slot.waits_since + late;
        }
    }

    /// Notes how long this EPN and the ICN have lately had to wait for a processor: an answer may take so much longer.
    pub fn handle_run_delay(&mut self, run_delay: Duration) {
        self.run_delay = run_delay;
    }

    /// Returns how long an answer of the ICN is awaited before a report is repeated.
    fn repeat(&self) -> Duration {
        self.config.repeat() + self.run_delay
    }

    /// Handles the passing of time: reports stale TFs as they are, and repeats unanswered reports.
    pub fn handle_tick(&mut self, now: Timestamp) {
        let (stale, repeat) = (self.config.stf_timeout(), self.repeat());
        let due: Vec<TfId> = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.stored.is_busy())
            .filter(|(_, slot)| match &slot.reported {
                Some((at, _)) => protect!(ReportRetransmit, when now.since(*at) >= repeat),
                None => slot.roster.is_some() && now.since(slot.waits_since) >= stale,
            })
            .map(|(tf, _)| tf)
            .collect();
        for tf in due {
            let slot = &self.slots[&tf];
            if slot.reported.is_some() {
                self.stats.repeated_reports += 1;
            } else {
                self.stats.stale_tfs += 1;
            }
            self.report(now, tf);
        }
        self.tick_gone(now);
        self.repeat_slots(now);
        self.repeat_stored(now);
        self.tick_grants(now);
    }

    fn report_all_settled(&mut self, now: Timestamp) {
        let open: Vec<TfId> = self.slots.keys().collect();
        for tf in open {
            self.report_if_settled(now, tf);
        }
    }

    fn report_if_settled(&mut self, now: Timestamp, tf: TfId) {
        let slot = &self.slots[&tf];
        if !slot.is_settled(self.gone.len(), |source| self.is_gone(source)) {
            return;
        }
        let missing = slot.missing();
        let news = slot.reported.as_ref().map(|(_, missing)| missing) != missing.as_ref();
        if news {
            self.report(now, tf);
        }
    }

    fn report(&mut self, now: Timestamp, tf: TfId) {
        let slot = self
            .slots
            .get_mut(&tf)
            .expect("callers hold its id from the table");
        let Some(missing) = slot.missing() else {
            return;
        };
        if let (Some(storing), Some(run)) = (&mut self.storing, self.run)
            && !storing.has_stored(run, tf, slot, &missing)
        {
            return; // `handle_stored` reports it.
        }
        slot.reported = Some((now, missing.clone()));
        self.built.push(Built {
            tf,
            attempt: slot.attempt,
            missing,
            bytes: slot.bytes(),
            first_byte_age_ns: duration_ns(now.since(slot.first_at)),
            last_byte_age_ns: duration_ns(now.since(slot.last_at)),
        });
        protect!(DeliveryAfterCommit, else {
            let missing = self.slots[&tf].missing().unwrap_or_default();
            let commit = sheaf_protocol::control::Commit {
                tf,
                is_redelivered: false,
                missing,
            };
            self.commit(now, &commit)
        });
    }

    /// Returns the next action; `None` when none is left.
    pub fn poll_action(&mut self) -> Option<Action<P>> {
        if let Some(tf) = self.deliveries.pop_front() {
            return Some(Action::Deliver(tf));
        }
        if let Some(action) = self.poll_recalls() {
            return Some(action);
        }
        if let Some(action) = self.poll_storing() {
            return Some(action);
        }
        if let Some(action) = self.poll_grants() {
            return Some(action);
        }
        if self.run.is_some() && std::mem::take(&mut self.has_new_streams) {
            let sources = self.streams.keys().copied().collect();
            return Some(Action::Send(Control::Sources(sources)));
        }
        if let Some(message) = self.messages.pop_front() {
            return Some(Action::Send(message));
        }
        if !self.built.is_empty() {
            let count = self.built.len().min(REPORTS_AT_ONCE_MAX);
            return Some(Action::Send(Control::Built(
                self.built.drain(..count).collect(),
            )));
        }
        if !self.acks.is_empty() {
            let count = self.acks.len().min(Control::ENTRIES_MAX);
            let tfs = self.acks.drain(..count).collect();
            let consumed = self.consumer.report(self.sink_bytes);
            return Some(Action::Send(Control::CommitAck { tfs, consumed }));
        }
        self.poll_freed()
    }
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
