//! Takeover: the lowest candidate takes the term, then reads the log behind that fence.

use super::names::{Claim, segment_number};
use super::segment::Segment;
use super::writer::Writer;
use super::{Purpose, RETRY, Stage, ZooKeeperLedger};
use crate::keeper::{Answer, Keeper, KeeperError, Request};
use sheaf_protocol::{Record, Term, Timestamp};
use sheaf_verdict_log::{Notice, Replay};
use std::collections::BTreeMap;

/// Segments that are read at once.
const READS_MAX: usize = 16;

/// Log as far as it has been read: from its end back to the last whole checkpoint, or to its begin.
#[derive(Debug)]
pub(super) struct Reading {
    term: Term,
    version: i32,
    /// First and last number, once they are known; `None` for an empty log.
    range: Option<Option<(u64, u64)>>,
    /// The lowest number that was requested.
    lowest: u64,
    /// Numbers whose answer was lost.
    again: Vec<u64>,
    segments: BTreeMap<u64, Segment>,
    /// The highest segment in which a checkpoint begins that may be whole.
    from: Option<u64>,
    /// Segment from which on checkpoints are not whole: their leader ended in the middle.
    cut_from: u64,
}

/// Result of reading a part of the log.
#[derive(Debug, Default)]
struct Log {
    /// Records of whole appends, from the last checkpoint on if there is one.
    records: Vec<Record>,
    /// Records of an append whose end has not come, and the term that began it.
    open: (Term, Vec<Record>),
    /// Records in all segments so far; the first segment holds the number before it.
    count: Option<u64>,
    last_term: Term,
    /// Segments in which runs begin.
    opened: Vec<u64>,
}

impl Reading {
    fn new(term: Term, version: i32) -> Self {
        Self {
            term,
            version,
            range: None,
            lowest: 0,
            again: Vec::new(),
            segments: BTreeMap::new(),
            from: None,
            cut_from: u64::MAX,
        }
    }

    pub(super) fn again(&mut self, number: u64) {
        self.again.push(number);
    }

    /// Sets the numbers of the segments, which must be without gaps.
    fn set_names(&mut self, names: &[String]) -> Result<(), String> {
        let mut numbers = Vec::with_capacity(names.len());
        for name in names {
            let name: String = name.chars().take(40).collect();
            let number = segment_number(&name);
            numbers.push(
                number.ok_or_else(|| format!("found {name:?}, expected seg- and ten digits"))?,
            );
        }
        numbers.sort_unstable();
        let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
        if let Some(pair) = gap {
            return Err(format!(
                "found segment {} after {}, expected no gap",
                pair[1], pair[0]
            ));
        }
        let range = numbers.first().copied().zip(numbers.last().copied());
        self.range = Some(range);
        self.lowest = range.map_or(1, |(_, last)| last + 1);
        Ok(())
    }

    fn next_to_ask(&mut self) -> Option<u64> {
        let (first, _) = self.range??;
        if let Some(number) = self.again.pop() {
            return Some(number);
        }
        if self.from.is_some() || self.lowest <= first {
            return None;
        }
        self.lowest -= 1;
        Some(self.lowest)
    }

    fn take(&mut self, segment: Segment) {
        let number = segment.number;
        let has_checkpoint = segment
            .records
            .iter()
            .any(|record| matches!(record, Record::Checkpoint(_)));
        if has_checkpoint && number < self.cut_from {
            self.from = self.from.max(Some(number));
        }
        self.segments.insert(number, segment);
    }

    /// Returns the log, if all of it that is needed is there; no request is under way.
    fn finish(&mut self) -> Result<Option<Log>, (u64, String)> {
        let Some(range) = self.range else {
            return Ok(None);
        };
        let Some((first, _)) = range else {
            return Ok(Some(Log::default()));
        };
        let from = match self.from {
            Some(from) => from,
            None if self.lowest <= first => first,
            None => return Ok(None),
        };
        let mut log = Log::default();
        for (number, segment) in self.segments.range(from..) {
            log.take(self.term, segment)
                .map_err(|what| (*number, what))?;
        }
        let is_checkpoint = |record: &Record| matches!(record, Record::Checkpoint(_));
        match log.records.iter().rposition(is_checkpoint) {
            Some(at) => drop(log.records.drain(..at)),
            None if self.from.is_some() => {
                // The checkpoint that begins there has no end.
                self.cut_from = from;
                let whole = self.segments.range(..from).rev();
                let mut whole =
                    whole.filter(|(_, segment)| segment.records.iter().any(is_checkpoint));
                self.from = whole.next().map(|(number, _)| *number);
                return self.finish();
            }
            None => {}
        }
        Ok(Some(log))
    }
}

impl Log {
    fn take(&mut self, own: Term, segment: &Segment) -> Result<(), String> {
        let (term, own) = (segment.term.0, own.0);
        if term < self.last_term.0 {
            return Err(format!(
                "found term {term}, expected {} or later",
                self.last_term.0
            ));
        }
        if term >= own {
            return Err(format!(
                "found term {term}, expected one before {own}, which has just begun"
            ));
        }
        let count = self.count.unwrap_or(segment.before);
        if segment.before != count {
            let found = segment.before;
            return Err(format!("found {found} records before it, expected {count}"));
        }
        self.last_term = segment.term;
        self.count = Some(count + segment.records.len() as u64);
        if segment
            .records
            .iter()
            .any(|record| matches!(record, Record::Opened { .. }))
        {
            self.opened.push(segment.number);
        }
        // A leader that ended in the middle of an append leaves a piece of it, which is never read.
        if self.open.0 != segment.term {
            self.open.1.clear();
        }
        self.open.0 = segment.term;
        self.open.1.extend(segment.records.iter().cloned());
        if !segment.goes_on {
            self.records.append(&mut self.open.1);
        }
        Ok(())
    }
}

impl<K: Keeper> ZooKeeperLedger<K> {
    /// Handles the content of `term`, or the result of taking it.
    pub(super) fn handle_claim(
        &mut self,
        now: Timestamp,
        purpose: &Purpose,
        answer: Result<Answer, KeeperError>,
    ) {
        match answer {
            Ok(Answer::Data { data, version, .. }) if *purpose == Purpose::ReadClaim => {
                match Claim::decode(&data) {
                    Ok(claim) => self.take_term(now, claim, version),
                    Err(error) => self.refuse(now, &self.paths.term.clone(), &error.to_string()),
                }
            }
            Ok(Answer::Version(version)) if *purpose == Purpose::Claim => {
                let claimed = self.claimed.take();
                self.begin_reading(claimed.map_or(self.term, |claim| claim.term), version);
            }
            // Another one was faster; the stage reads again.
            Err(KeeperError::BadVersion) => {}
            other => self.fail(now, "term", &other),
        }
    }

    fn take_term(&mut self, now: Timestamp, found: Claim, version: i32) {
        // The answer to the set was lost, and it was carried out.
        if self.claimed == Some(found) {
            self.claimed = None;
            return self.begin_reading(found.term, version);
        }
        self.term = self.term.max(found.term);
        let Some(term) = found.term.0.checked_add(1).map(Term) else {
            return self.refuse(
                now,
                &self.paths.term.clone(),
                "found the last of all terms, expected an earlier one",
            );
        };
        let claim = Claim {
            term,
            icn: self.options.icn,
            session: self.session,
        };
        self.claimed = Some(claim);
        let request = Request::Set {
            path: self.paths.term.clone(),
            data: claim.encode(),
            version: Some(version),
        };
        self.ask(now, Purpose::Claim, request);
    }

    fn begin_reading(&mut self, term: Term, version: i32) {
        self.term = term;
        self.enter(Stage::Reading(Reading::new(term, version)));
    }

    /// Reports garbage with its place. This one does not lead, and looks again later.
    fn refuse(&mut self, now: Timestamp, place: &str, what: &str) {
        self.set_trouble(format!("{place}: {what}"), false);
        if let Stage::Reading(reading) = &self.stage {
            let (term, version) = (reading.term, reading.version);
            self.begin_reading(term, version);
        }
        self.retry(now + RETRY);
    }

    pub(super) fn handle_log(
        &mut self,
        now: Timestamp,
        purpose: &Purpose,
        answer: Result<Answer, KeeperError>,
    ) {
        let Stage::Reading(reading) = &mut self.stage else {
            return;
        };
        match (purpose, answer) {
            (Purpose::ListLog, Ok(Answer::Children(names))) => {
                if let Err(what) = reading.set_names(&names) {
                    self.refuse(now, &self.paths.log.clone(), &what);
                }
            }
            (Purpose::ReadSegment(number), Ok(Answer::Data { data, .. })) => {
                match Segment::decode(*number, &data) {
                    Ok(segment) => reading.take(segment),
                    Err(error) => {
                        self.refuse(now, &self.paths.segment(*number), &error.to_string());
                    }
                }
            }
            (_, other) => {
                let what = other
                    .err()
                    .map_or("another answer".to_owned(), |error| error.to_string());
                self.refuse(
                    now,
                    &self.paths.log.clone(),
                    &format!("cannot be read: {what}"),
                );
            }
        }
    }

    pub(super) fn step_reading(&mut self, now: Timestamp) {
        let Stage::Reading(reading) = &mut self.stage else {
            return;
        };
        if reading.range.is_none() {
            if self.asked.is_empty() {
                let (path, watch) = (self.paths.log.clone(), false);
                self.ask(now, Purpose::ListLog, Request::List { path, watch });
            }
            return;
        }
        while self.asked.len() < READS_MAX
            && let Some(number) = reading.next_to_ask()
        {
            let (path, watch) = (self.paths.segment(number), false);
            let ticket = self.keeper.submit(now, Request::Get { path, watch });
            self.asked.insert(ticket, Purpose::ReadSegment(number));
        }
        if !self.asked.is_empty() || !reading.again.is_empty() {
            return;
        }
        match reading.finish() {
            Ok(Some(log)) => self.lead(log),
            // The checkpoint that was found has no end: the search goes on before it.
            Ok(None) => self.step_reading(now),
            Err((number, what)) => self.refuse(now, &self.paths.segment(number), &what),
        }
    }

    fn lead(&mut self, log: Log) {
        let Stage::Reading(reading) = std::mem::replace(&mut self.stage, Stage::Idle) else {
            return;
        };
        let (first, last) = reading.range.flatten().unwrap_or((1, 0));
        let count = log.count.unwrap_or(0);
        self.records = count;
        self.first_segment = first;
        self.opened = log.opened;
        self.checkpoints = reading.from.into_iter().collect();
        (self.checkpoint_open, self.remove_refused, self.removing) = (None, 0, None);
        self.segments_read = reading.segments.len() as u64;
        self.is_list_dirty = true;
        self.heal_log();
        let term = reading.term;
        let mut writer = Writer::new(term, reading.version, last, count);
        writer.set_behind_checkpoint(last + 1 - reading.from.unwrap_or(first).min(last + 1));
        self.enter(Stage::Leading(writer));
        let replay = Replay::new(log.records.into_iter());
        self.notices.push_back(Notice::Lead { term, replay });
    }
}
