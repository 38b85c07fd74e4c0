//! View of a log as its owner sees it at once, while the disk is still at work: terms, the newest entries, open
//! tickets.

use super::checkpoints::Checkpoints;
use super::scan::Findings;
use super::{HardState, StorageError, Ticket};
use crate::entry::Entry;
use sheaf_protocol::Term;
use std::collections::VecDeque;

/// Bodies of durable entries that are kept for followers that are a little behind.
const KEPT_BYTES: usize = 2 << 20;

/// View of a log.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) state: Option<HardState>,
    /// First index and term of each run.
    terms: Vec<(u64, Term)>,
    /// The entry that the first one follows, and its term.
    base: (u64, Term),
    checkpoints: Checkpoints,
    last: u64,
    durable: u64,
    pub(crate) records: u64,
    /// The newest entries; all that are not durable are here.
    newest: VecDeque<Entry>,
    newest_bytes: usize,
    /// Index that each open ticket makes durable.
    tickets: VecDeque<(Ticket, u64)>,
    given: Ticket,
}

impl View {
    pub(crate) fn new(found: &Findings) -> Self {
        Self {
            state: found.state,
            terms: found.terms.clone(),
            base: found.base,
            checkpoints: found.checkpoints.clone(),
            last: found.last_index,
            durable: found.last_index,
            records: found.records,
            newest: VecDeque::new(),
            newest_bytes: 0,
            tickets: VecDeque::new(),
            given: Ticket(0),
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) fn first(&self) -> u64 {
        self.base.0 + 1
    }

    pub(crate) fn term_at(&self, index: u64) -> Option<Term> {
        let (base, term) = self.base;
        if index <= base {
            return (index == base).then_some(term);
        }
        (index <= self.last).then(|| self.terms[self.run_of(index)].1)
    }

    pub(crate) fn term_first(&self, index: u64) -> u64 {
        if index <= self.base.0 || index > self.last {
            return index.max(self.base.0);
        }
        self.terms[self.run_of(index)].0.max(self.first())
    }

    /// Returns the run that `index` lies in, which is at most `last` and above the base.
    fn run_of(&self, index: u64) -> usize {
        self.terms.partition_point(|(first, _)| *first <= index) - 1
    }

    pub(crate) fn append(&mut self, entry: Entry) {
        assert_eq!(entry.index, self.last + 1, "entries follow each other");
        if self
            .terms
            .last()
            .is_none_or(|(_, term)| *term != entry.term)
        {
            self.terms.push((entry.index, entry.term));
        }
        self.last = entry.index;
        self.checkpoints.see(&entry);
        self.records += entry.record_count();
        self.newest_bytes += entry.body.len();
        self.newest.push_back(entry);
        self.shrink();
    }

    /// Cuts the log; `read` returns entries that are only on the disk, to count the removed records.
    pub(crate) fn truncate(&mut self, from: u64, mut read: impl FnMut(u64) -> Option<Entry>) {
        let from = from.max(self.first());
        while self.last >= from {
            let entry = match self.newest.pop_back() {
                Some(entry) => {
                    self.newest_bytes -= entry.body.len();
                    Some(entry)
                }
                None => read(self.last),
            };
            // A count for people; an entry that cannot be read is not worth an error here.
            self.records -= entry
                .map_or(0, |entry| entry.record_count())
                .min(self.records);
            self.last -= 1;
        }
        self.terms.retain(|(first, _)| *first < from);
        self.checkpoints.cut(from);
        let end = from.saturating_sub(1);
        self.durable = self.durable.min(end);
        for (_, index) in &mut self.tickets {
            *index = (*index).min(end);
        }
    }

    /// Returns the entry below which all may be removed once everything up to `committed` is final.
    pub(crate) fn release(&mut self, committed: u64) -> Option<u64> {
        let first = self.checkpoints.last(committed.min(self.durable), 1)?;
        if first <= self.first() {
            return None;
        }
        self.base = (first - 1, self.term_at(first - 1)?);
        // The run of the base goes when nothing of it is left.
        let runs = self.terms.partition_point(|(run, _)| *run <= first);
        self.terms.drain(..runs.saturating_sub(1));
        self.checkpoints.forget_before(first);
        Some(first)
    }

    /// Discards everything; the log goes on behind entry `index` of `term`.
    pub(crate) fn reset(&mut self, index: u64, term: Term) {
        self.terms.clear();
        self.base = (index, term);
        self.checkpoints = Checkpoints::default();
        (self.last, self.durable) = (index, 0);
        self.records = 0;
        self.newest.clear();
        self.newest_bytes = 0;
        for (_, index) in &mut self.tickets {
            *index = 0;
        }
    }

    /// Returns where a replay of everything up to `to` begins.
    pub(crate) fn replay_from(&self, to: u64) -> Result<u64, StorageError> {
        let first = self.first();
        match self.checkpoints.last(to, 0) {
            Some(from) => Ok(from),
            None if first == 1 => Ok(1),
            None => Err(StorageError::NoCheckpoint { first, to }),
        }
    }

    pub(crate) fn give_ticket(&mut self) -> Ticket {
        self.given.0 += 1;
        self.tickets.push_back((self.given, self.last));
        self.given
    }

    /// Marks everything up to this ticket as durable.
    pub(crate) fn complete(&mut self, ticket: Ticket) {
        while let Some((open, index)) = self.tickets.front().copied()
            && open <= ticket
        {
            self.durable = self.durable.max(index);
            self.tickets.pop_front();
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.newest_bytes > KEPT_BYTES
            && let Some(entry) = self
                .newest
                .pop_front_if(|entry| entry.index <= self.durable)
        {
            self.newest_bytes -= entry.body.len();
        }
    }

    /// Returns an entry that is kept in memory.
    pub(crate) fn kept(&self, index: u64) -> Option<&Entry> {
        let first = self.newest.front()?.index;
        let at = usize::try_from(index.checked_sub(first)?).ok()?;
        self.newest.get(at)
    }

    /// Returns entries from `from` on, from memory or by `read`, up to `bytes_max` of bodies but at least one.
    pub(crate) fn page<E>(
        &self,
        from: u64,
        bytes_max: usize,
        mut read: impl FnMut(u64) -> Result<Entry, E>,
    ) -> Result<Vec<Entry>, E> {
        let mut page = Vec::new();
        let mut bytes = 0;
        for index in from..=self.last {
            let entry = match self.kept(index) {
                Some(entry) => entry.clone(),
                None => read(index)?,
            };
            bytes += entry.body.len() + PAGE_ENTRY_BYTES;
            if bytes > bytes_max && !page.is_empty() {
                break;
            }
            page.push(entry);
        }
        Ok(page)
    }
}

/// Bytes of an entry in a page beside its body.
const PAGE_ENTRY_BYTES: usize = 16;
