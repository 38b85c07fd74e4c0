//! Receipts of the TFs that EPNs hand to a writer node.
//!
//! [`Receipts`] says of a TF that comes in whether it is written, written already or being written, so that a TF that
//! is sent again is in the files once. What has to outlive the writer are a few [`CopyRow`]s: of TFs that came from
//! another writer, that do not count here, or that are stored before they are committed. The driver keeps these rows,
//! and answers the EPNs after that.

use crate::handoff::HandoffId;
use sheaf_protect::protect;
use sheaf_protocol::control::{HeldPart, HeldTf, Move, Record, StreamFate, TfCopy, WrittenTf};
use sheaf_protocol::{EpnId, FlpId, Target};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Written TFs that are remembered in case they come again.
const RECENT_TFS: usize = 65_536;

/// State of a TF in a row that outlives the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Taken, and not acknowledged. After a restart it counts as void: its EPN sends it again.
    Pending,
    /// Written: it counts.
    Written,
    /// Not to count, whatever is written of it.
    Void,
}

impl CopyState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Written, Self::Void];

    /// Returns the name in catalogues.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Written => "written",
            Self::Void => "void",
        }
    }
}

/// A TF that was stored before it was committed. Its row stays for a while when it is published: the EPN may die before
/// it has acknowledged the TF to the ICN, and its next life looks for it here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRow {
    /// The EPN and its life.
    pub epn: Target,
    /// STFs of the TF.
    pub parts: Vec<HeldPart>,
    /// FLPs without one.
    pub missing: Vec<FlpId>,
    /// Number in the order in which TFs were published; `None` while the TF waits for its commit.
    pub published: Option<u64>,
    /// Fate in each stream, from when it is written.
    pub streams: Vec<StreamFate>,
}

/// Facts about a TF that have to outlive a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRow {
    /// Number of its copy; of a void one, that of the copy which replaces it.
    pub copy: u32,
    /// State of the TF.
    pub state: CopyState,
    /// Writers where an earlier copy may still count.
    pub elsewhere: BTreeSet<u16>,
    /// Set if the TF is stored before its commit, and until it is known to be acknowledged.
    pub held: Option<HeldRow>,
}

impl CopyRow {
    /// Whether the TF waits for its commit, and does not count before.
    #[must_use]
    pub fn waits(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.published.is_none())
    }

    /// Whether the row says nothing that is not so without it.
    fn is_idle(&self) -> bool {
        let is_written = self.state == CopyState::Written;
        is_written && self.copy == 0 && self.elsewhere.is_empty() && self.held.is_none()
    }
}

/// Order to the driver of a writer, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptAction<C> {
    /// Keep this row, or remove that of the TF. All orders behind it wait until that is done.
    Keep {
        /// The TF.
        id: HandoffId,
        /// The row; `None`: there is none any more.
        row: Option<CopyRow>,
    },
    /// Acknowledge a TF on a stream.
    Written {
        /// The stream.
        to: C,
        /// The TF.
        tf: WrittenTf,
    },
    /// Answer that lower copies are void.
    Voided {
        /// The stream.
        to: C,
        /// The TF.
        copy: TfCopy,
    },
    /// Answer that a TF counts which was stored before it was committed.
    Published {
        /// The stream.
        to: C,
        /// The TF.
        copy: TfCopy,
    },
    /// Take a TF back from the writing threads, if none has begun with it.
    Recall {
        /// The TF.
        id: HandoffId,
    },
}

/// Treatment of a TF that has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// To be written.
    Write,
    /// To be written to the streams whose files do not have it.
    WriteMissing,
    /// Here already: the payloads are not needed.
    Known,
    /// A later copy counts.
    Stale,
}

/// A TF on its way to the files.
#[derive(Debug)]
struct Writing<C> {
    copy: u32,
    /// Stream that is to be answered.
    to: C,
    /// Streams that wait for it to be void, each below a number; the TF is taken back from the threads then.
    voids: Vec<(C, u32)>,
    /// How often it is with the writing threads: more than once if it came again while it was taken back.
    times: u32,
}

/// Receipts of a writer. `C` names a stream of an EPN.
#[derive(Debug)]
pub struct Receipts<C> {
    writing: BTreeMap<HandoffId, Writing<C>>,
    written: BTreeMap<HandoffId, Vec<StreamFate>>,
    recent: VecDeque<HandoffId>,
    rows: BTreeMap<HandoffId, CopyRow>,
    /// Published TFs of each EPN whose rows are kept, in their order.
    published: BTreeMap<EpnId, BTreeMap<u64, HandoffId>>,
    published_max: usize,
    actions: VecDeque<ReceiptAction<C>>,
}

impl<C: Copy + Ord> Receipts<C> {
    /// Creates the receipts of a writer whose former lives have left `rows`. A TF that a former life had taken and not
    /// acknowledged is void.
    ///
    /// The rows of the last `published_max` TFs that each EPN has published are kept. An EPN acknowledges TFs to the
    /// ICN in the order in which a writer publishes them, so these may be without an acknowledgement when it dies.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = (HandoffId, CopyRow)>, published_max: usize) -> Self {
        let mut receipts = Self {
            writing: BTreeMap::new(),
            written: BTreeMap::new(),
            recent: VecDeque::new(),
            rows: BTreeMap::new(),
            published: BTreeMap::new(),
            published_max,
            actions: VecDeque::new(),
        };
        for (id, mut row) in rows {
            let is_pending = row.state == CopyState::Pending;
            if is_pending {
                row.state = CopyState::Void;
                row.elsewhere.clear();
                row.held = None;
            }
            if let Some(held) = &row.held
                && let Some(number) = held.published
            {
                let of_epn = receipts.published.entry(held.epn.epn).or_default();
                of_epn.insert(number, id);
            }
            receipts.rows.insert(id, row);
            if is_pending {
                receipts.keep(id);
            }
        }
        receipts
    }

    /// Takes a TF that has come whole on the stream `to`, of `epn`. `parts` are its STFs.
    pub fn handle_record(
        &mut self,
        to: C,
        epn: Target,
        record: &Record,
        parts: impl FnOnce() -> Vec<HeldPart>,
    ) -> Received {
        let id = HandoffId::of(&record.copy);
        let number = record.copy.copy;
        let row = self.rows.get(&id);
        if row.is_some_and(|row| row.copy > number) {
            return Received::Stale;
        }
        let held = || HeldRow {
            epn,
            parts: parts(),
            missing: record.missing.clone(),
            published: None,
            streams: Vec::new(),
        };
        if let Some(writing) = self.writing.get_mut(&id) {
            if writing.voids.iter().any(|(_, below)| *below > number) {
                return Received::Stale;
            }
            writing.to = to;
            writing.copy = number;
            let voids = std::mem::take(&mut writing.voids);
            let is_taken_back = !voids.is_empty();
            writing.times += u32::from(is_taken_back);
            // The copy that has come is later than those.
            let answers = voids.into_iter().map(|(to, below)| ReceiptAction::Voided {
                to,
                copy: id.copy(below),
            });
            self.actions.extend(answers);
            self.note(id, record, CopyState::Pending, held);
            return match is_taken_back {
                true => Received::WriteMissing,
                false => Received::Known,
            };
        }
        if let Some(fates) = self.written.get(&id).cloned() {
            let streams = fates.clone();
            self.note(id, record, CopyState::Written, || HeldRow {
                streams,
                ..held()
            });
            let copy = record.copy;
            let streams = fates;
            let tf = WrittenTf { copy, streams };
            self.actions.push_back(ReceiptAction::Written { to, tf });
            return Received::Known;
        }
        self.note(id, record, CopyState::Pending, held);
        let writing = Writing {
            copy: number,
            to,
            voids: Vec::new(),
            times: 1,
        };
        self.writing.insert(id, writing);
        match protect!(ResentIsLookedFor, when record.may_be_here) {
            true => Received::WriteMissing,
            false => Received::Write,
        }
    }

    /// Brings the row of a TF up to date with a record of it. A row is needed for one that is void here or elsewhere,
    /// or that is held.
    fn note(
        &mut self,
        id: HandoffId,
        record: &Record,
        state: CopyState,
        held: impl FnOnce() -> HeldRow,
    ) {
        let copy = record.copy.copy;
        let is_moved = copy > 0 || !record.elsewhere.is_empty();
        let is_held = record.is_held || record.is_committed;
        let is_needed = is_moved || is_held;
        if !is_needed && !self.rows.contains_key(&id) {
            return;
        }
        if !is_held {
            self.forget_published(id);
            if let Some(row) = self.rows.get_mut(&id) {
                row.held = None;
            }
        }
        let row = self.rows.entry(id).or_insert_with(|| CopyRow {
            copy,
            state,
            elsewhere: BTreeSet::new(),
            held: None,
        });
        row.copy = copy;
        // What is written stays so, whatever becomes of a second look at it.
        if row.state != CopyState::Written {
            row.state = state;
        }
        row.elsewhere = record.elsewhere.iter().copied().collect();
        if is_held && row.held.is_none() {
            row.held = Some(held());
        }
        self.keep(id);
        if record.is_committed {
            self.note_published(id);
        }
    }

    fn keep(&mut self, id: HandoffId) {
        if self.rows.get(&id).is_some_and(CopyRow::is_idle) {
            self.rows.remove(&id);
        }
        let row = self.rows.get(&id).cloned();
        self.actions.push_back(ReceiptAction::Keep { id, row });
    }

    /// Notes that a TF is written, with its fate in each stream.
    pub fn handle_written(&mut self, id: HandoffId, fates: Vec<StreamFate>) {
        self.remember(id, fates);
        self.end_stay(id);
    }

    /// Notes that a TF was taken back from the writing threads, so that nothing of it is written this time.
    pub fn handle_returned(&mut self, id: HandoffId) {
        self.end_stay(id);
    }

    /// Ends one stay of a TF with the writing threads. With the last one, streams are answered: that the TF is void, or
    /// that it is written, by this stay or by one before.
    fn end_stay(&mut self, id: HandoffId) {
        let Some(writing) = self.take_last(id) else {
            return;
        };
        if !writing.voids.is_empty() {
            return self.make_void(id, writing.voids);
        }
        let Some(fates) = self.written.get(&id).cloned() else {
            return;
        };
        if let Some(row) = self.rows.get_mut(&id) {
            row.state = CopyState::Written;
            if let Some(held) = &mut row.held {
                held.streams.clone_from(&fates);
            }
            self.keep(id);
        }
        let tf = WrittenTf {
            copy: id.copy(writing.copy),
            streams: fates,
        };
        let to = writing.to;
        self.actions.push_back(ReceiptAction::Written { to, tf });
    }

    /// Counts the end of one stay of a TF with the writing threads, and removes it if that was the last one.
    fn take_last(&mut self, id: HandoffId) -> Option<Writing<C>> {
        let writing = self.writing.get_mut(&id)?;
        writing.times -= 1;
        (writing.times == 0)
            .then(|| self.writing.remove(&id))
            .flatten()
    }

    fn remember(&mut self, id: HandoffId, fates: Vec<StreamFate>) {
        if self.written.insert(id, fates).is_none() {
            self.recent.push_back(id);
        }
        while self.recent.len() > RECENT_TFS {
            if let Some(oldest) = self.recent.pop_front() {
                self.written.remove(&oldest);
            }
        }
    }

    /// Handles the order of the stream `to` that copies lower than this one are not to count.
    pub fn handle_void(&mut self, to: C, copy: &TfCopy) {
        let id = HandoffId::of(copy);
        let counts = |number: u32| protect!(LaterCopyStays, requires number >= copy.copy);
        let is_later = self.rows.get(&id).is_some_and(|row| counts(row.copy));
        if is_later {
            let copy = *copy;
            return self.actions.push_back(ReceiptAction::Voided { to, copy });
        }
        if let Some(writing) = self.writing.get_mut(&id) {
            // One recall for each time that the TF went to the threads: a second would take back what came since.
            if writing.voids.is_empty() {
                self.actions.push_back(ReceiptAction::Recall { id });
            }
            return writing.voids.push((to, copy.copy));
        }
        self.make_void(id, vec![(to, copy.copy)]);
    }

    /// Makes what is here of a TF void, and answers the streams that wait for that.
    fn make_void(&mut self, id: HandoffId, voids: Vec<(C, u32)>) {
        let below = voids.iter().map(|(_, below)| *below).max().unwrap_or(0);
        self.forget_published(id);
        let row = CopyRow {
            copy: below,
            state: CopyState::Void,
            elsewhere: BTreeSet::new(),
            held: None,
        };
        self.rows.insert(id, row);
        self.keep(id);
        let answers = voids.into_iter().map(|(to, below)| ReceiptAction::Voided {
            to,
            copy: id.copy(below),
        });
        self.actions.extend(answers);
    }

    /// Notes that earlier copies elsewhere do not count any more.
    pub fn handle_settled(&mut self, moves: &[Move]) {
        for Move { copy, from } in moves {
            let id = HandoffId::of(copy);
            let Some(row) = self.rows.get_mut(&id) else {
                continue;
            };
            if row.copy <= copy.copy && row.elsewhere.remove(from) {
                self.keep(id);
            }
        }
    }

    /// Handles the notice of the stream `to` that a TF which is stored here is committed.
    pub fn handle_publish(&mut self, to: C, copy: &TfCopy) {
        let id = HandoffId::of(copy);
        if let Some(row) = self.rows.get_mut(&id) {
            if row.state == CopyState::Void {
                return;
            }
            self.note_published(id);
        }
        let copy = *copy;
        self.actions
            .push_back(ReceiptAction::Published { to, copy });
    }

    /// Removes a TF from the published ones.
    fn forget_published(&mut self, id: HandoffId) {
        let held = self.rows.get(&id).and_then(|row| row.held.as_ref());
        let Some(HeldRow {
            epn,
            published: Some(number),
            ..
        }) = held
        else {
            return;
        };
        if let Some(of_epn) = self.published.get_mut(&epn.epn) {
            of_epn.remove(number);
        }
    }

    /// Makes the row of a TF that was stored before its commit the last one of those that are published. The oldest row
    /// of the EPN goes, if there are too many.
    fn note_published(&mut self, id: HandoffId) {
        let held = self.rows.get_mut(&id).and_then(|row| row.held.as_mut());
        let Some(held) = held else {
            return;
        };
        let published = self.published.entry(held.epn.epn).or_default();
        if let Some(number) = held.published {
            published.remove(&number);
        }
        let number = published.last_key_value().map_or(0, |(last, _)| last + 1);
        published.insert(number, id);
        held.published = Some(number);
        let kept = protect!(PublishedIsKept, self.published_max, else 0);
        let is_over = published.len() > kept;
        let oldest = is_over.then(|| published.pop_first()).flatten();
        self.keep(id);
        if let Some((_, oldest)) = oldest
            && let Some(row) = self.rows.get_mut(&oldest)
        {
            row.held = None;
            self.keep(oldest);
        }
    }

    /// Returns the copies here of TFs whose earlier copies may still count elsewhere.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let counts = |row: &CopyRow| row.state == CopyState::Written;
        let rows = self.rows.iter().filter(|(_, row)| counts(row));
        let moves = rows.flat_map(|(id, row)| {
            let copy = id.copy(row.copy);
            row.elsewhere
                .iter()
                .map(move |from| Move { copy, from: *from })
        });
        moves.collect()
    }

    /// Returns the TFs that lives of `epn` before this one have stored here, and that wait for their commit or were
    /// published lately.
    #[must_use]
    pub fn held_before(&self, epn: Target) -> Vec<HeldTf> {
        let rows = self.rows.iter();
        rows.filter_map(|(id, row)| held_before(*id, row, epn))
            .collect()
    }

    /// As [`held_before`](Self::held_before), of one TF: it may be written when its EPN has died.
    #[must_use]
    pub fn one_held_before(&self, id: HandoffId, epn: Target) -> Option<HeldTf> {
        held_before(id, self.rows.get(&id)?, epn)
    }

    /// Returns the next order.
    pub fn poll(&mut self) -> Option<ReceiptAction<C>> {
        self.actions.pop_front()
    }

    /// TFs that are being written.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.writing.len()
    }
}

fn held_before(id: HandoffId, row: &CopyRow, epn: Target) -> Option<HeldTf> {
    let held = row.held.as_ref()?;
    let is_former = held.epn.epn == epn.epn && held.epn.incarnation < epn.incarnation;
    let is_written = row.state == CopyState::Written;
    (is_former && is_written).then(|| HeldTf {
        copy: id.copy(row.copy),
        incarnation: held.epn.incarnation,
        parts: held.parts.clone(),
        missing: held.missing.clone(),
        is_published: held.published.is_some(),
        streams: held.streams.clone(),
    })
}

#[cfg(test)]
mod tests;
