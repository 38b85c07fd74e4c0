//! Verdict log in a ZooKeeper, for a farm whose ICNs trust an ensemble.
//!
//! Under a root path:
//!
//! - `election/icn-0001-<session>-<number>`: one ephemeral node for each ICN that wants to lead. The lowest number
//!   leads, each of the others watches the one before it. This is only who *should* succeed.
//! - `term`: who took the lead last. A new leader counts it up with a set that checks the version it has read.
//! - `log/seg-0000000001`, …: the log, from the last checkpoint but one on. Every write is one `multi`: check that
//!   `term` has still the version of this leader, check that the segment before is there, create the next one. That
//!   is the fence: a leader whose term is over cannot write, whatever it believes.
//!
//! A write whose answer is lost is neither repeated blindly nor given up: the same `multi` is sent again, and if the
//! segment is there already its bytes are read back. After two thirds of a session without an answer a leader stops by
//! itself; that is for the sake of availability only.
//!
//! All of it is a state machine over a [`Keeper`], which the simulator drives over a model.

mod names;
mod remove;
mod segment;
mod takeover;
mod writer;

use crate::keeper::{
    Answer, Keeper, KeeperError, KeeperEvent, Kind, Request, Step, Ticket, make_path,
};
use names::{Candidate, Claim, Paths, candidate_prefix};
use sheaf_protocol::{Record, Term, Timestamp};
use sheaf_verdict_log::{Ledger, LedgerStatus, Notice, Position};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use takeover::Reading;
use writer::Writer;

/// Pause before a refused request is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Pause before the next attempt after a lost answer.
const RETRY_LOST: Duration = Duration::from_millis(20);

/// Options of a log in ZooKeeper.
#[derive(Clone, Debug)]
pub struct ZooKeeperLedgerOptions {
    /// Path above everything, such as `/sheaf`.
    pub root: String,
    /// Index of this ICN.
    pub icn: u16,
    /// How long records are gathered for one write when none is on the way.
    pub gather: Duration,
    /// How long they are gathered when some are on the way.
    pub gather_max: Duration,
}

impl ZooKeeperLedgerOptions {
    /// Returns options that gather for 1 to 5 ms.
    #[must_use]
    pub fn new(root: &str, icn: u16) -> Self {
        Self {
            root: root.to_owned(),
            icn,
            gather: Duration::from_millis(1),
            gather_max: Duration::from_millis(5),
        }
    }
}

/// Verdict log in a ZooKeeper as one ICN sees it.
#[derive(Debug)]
pub struct ZooKeeperLedger<K> {
    keeper: K,
    options: ZooKeeperLedgerOptions,
    paths: Paths,
    /// Number of the session; 0 while there is none.
    session: i64,
    timeout: Duration,
    is_connected: bool,
    /// Since when no server answers.
    away: Option<Timestamp>,
    stage: Stage,
    /// Requests of the stage. Answers to others are of stages that are over.
    asked: BTreeMap<Ticket, Purpose>,
    retry_at: Option<Timestamp>,
    /// Candidates, lowest first, as last read.
    candidates: Vec<Candidate>,
    /// Whether the list of candidates has to be read; for a leader.
    is_list_dirty: bool,
    /// Claim of a set whose answer may have been lost.
    claimed: Option<Claim>,
    /// Highest known term.
    term: Term,
    records: u64,
    /// The first segment that is there.
    first_segment: u64,
    /// Segments in which runs begin.
    opened: Vec<u64>,
    /// Segments in which the last whole checkpoints begin, at most two.
    checkpoints: VecDeque<u64>,
    /// Segment of a checkpoint whose end is not durable.
    checkpoint_open: Option<u64>,
    /// Number of segments that the last takeover has read.
    segments_read: u64,
    /// Segment up to which the removal was refused, and waits for the next checkpoint.
    remove_refused: u64,
    /// Last segment of a removal without an answer, which may have been carried out.
    removing: Option<u64>,
    trouble_of_way: Option<String>,
    trouble_of_log: Option<String>,
    /// Whether trouble was reported and its end was not.
    is_in_trouble: bool,
    has_resigned: bool,
    notices: VecDeque<Notice>,
}

#[derive(Debug)]
enum Stage {
    /// Without a session nothing can be done.
    Idle,
    /// The folders are created.
    Preparing,
    /// The candidates are read, and this one is added.
    Enlisting,
    /// Another one leads, or should.
    Standby,
    /// This one is the lowest: it takes the term.
    Claiming,
    /// The term is taken: it reads the log.
    Reading(Reading),
    /// Leader.
    Leading(Writer),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Prepare,
    List,
    Enlist,
    Watch,
    ReadClaim,
    Claim,
    ListLog,
    ReadSegment(u64),
    Write(u64),
    ReadBack(u64),
    /// Removal of the segments up to this one.
    Remove(u64),
}

impl<K: Keeper> ZooKeeperLedger<K> {
    /// Returns a ledger that is a candidate from its first poll on.
    pub fn new(keeper: K, options: ZooKeeperLedgerOptions) -> Self {
        Self {
            keeper,
            paths: Paths::new(&options.root),
            options,
            session: 0,
            timeout: Duration::from_secs(1),
            is_connected: false,
            away: None,
            stage: Stage::Idle,
            asked: BTreeMap::new(),
            retry_at: None,
            candidates: Vec::new(),
            is_list_dirty: false,
            claimed: None,
            term: Term(0),
            records: 0,
            first_segment: 1,
            opened: Vec::new(),
            checkpoints: VecDeque::new(),
            checkpoint_open: None,
            segments_read: 0,
            remove_refused: 0,
            removing: None,
            trouble_of_way: None,
            trouble_of_log: None,
            is_in_trouble: false,
            has_resigned: false,
            notices: VecDeque::new(),
        }
    }

    /// Returns the keeper beneath the ledger.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// Returns how many segments this ICN has read in its last takeover. For tests and people.
    #[must_use]
    pub fn segments_read(&self) -> u64 {
        self.segments_read
    }

    /// Returns how many segments are in the log, as far as this leader knows.
    #[must_use]
    pub fn segments_kept(&self) -> u64 {
        match &self.stage {
            Stage::Leading(writer) => writer.last_number() + 1 - self.first_segment,
            _ => 0,
        }
    }

    /// Ends the ledger and returns the keeper beneath it.
    pub fn into_keeper(self) -> K {
        self.keeper
    }

    fn ask(&mut self, now: Timestamp, purpose: Purpose, request: Request) -> Ticket {
        let ticket = self.keeper.submit(now, request);
        self.asked.insert(ticket, purpose);
        ticket
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.asked.clear();
        self.retry_at = None;
    }

    fn retry(&mut self, at: Timestamp) {
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.max(at)));
    }

    fn handle(&mut self, now: Timestamp, event: KeeperEvent) {
        match event {
            KeeperEvent::Connected { session, timeout } => self.handle_connected(session, timeout),
            KeeperEvent::Away { why } => {
                self.is_connected = false;
                self.away.get_or_insert(now);
                self.set_trouble(why, true);
            }
            KeeperEvent::Expired => {
                self.session = 0;
                self.depose("the session with ZooKeeper has expired");
                self.enter(Stage::Idle);
            }
            KeeperEvent::Changed { path } => {
                if path == self.paths.election {
                    self.is_list_dirty = true;
                }
                // A candidate is gone: the one before this one, most likely.
                if matches!(self.stage, Stage::Standby) && path.starts_with(&self.paths.election) {
                    self.enter(Stage::Enlisting);
                }
            }
            KeeperEvent::Answer(ticket, answer) => {
                if let Some(purpose) = self.asked.remove(&ticket) {
                    self.handle_answer(now, &purpose, answer);
                }
            }
        }
    }

    fn handle_connected(&mut self, session: i64, timeout: Duration) {
        self.is_connected = true;
        self.away = None;
        self.timeout = timeout;
        self.trouble_of_way = None;
        self.notify_healed();
        if self.session != session {
            self.session = session;
            self.depose("the session with ZooKeeper has been replaced");
            self.enter(Stage::Preparing);
        } else if matches!(self.stage, Stage::Idle) {
            self.enter(Stage::Enlisting);
        }
        self.is_list_dirty = true;
    }

    fn handle_answer(
        &mut self,
        now: Timestamp,
        purpose: &Purpose,
        answer: Result<Answer, KeeperError>,
    ) {
        if let Purpose::Write(number) | Purpose::ReadBack(number) = *purpose {
            return self.handle_written(now, number, answer);
        }
        if let Err(KeeperError::Lost | KeeperError::Expired) = answer {
            // The stage asks again. Its requests are the same whether this has happened or not.
            if let Purpose::ReadSegment(number) = *purpose
                && let Stage::Reading(reading) = &mut self.stage
            {
                reading.again(number);
            }
            match purpose {
                Purpose::List => self.is_list_dirty = true,
                Purpose::Watch => self.enter(Stage::Enlisting),
                _ => {}
            }
            return self.retry(now + RETRY_LOST);
        }
        match purpose {
            // A folder that could not be created may be there all the same; the next stage sees.
            Purpose::Prepare => {
                if !self.asked.values().any(|asked| *asked == Purpose::Prepare) {
                    self.enter(Stage::Enlisting);
                }
            }
            Purpose::List => match answer {
                Ok(Answer::Children(names)) => self.handle_candidates(now, &names),
                other => self.fail(now, "election", &other),
            },
            Purpose::Enlist => match answer {
                // The next list has it.
                Ok(_) | Err(KeeperError::NodeExists) => {}
                other => self.fail(now, "election", &other),
            },
            Purpose::Watch => match answer {
                Ok(Answer::Exists(true)) => self.heal_log(),
                Ok(_) => self.enter(Stage::Enlisting),
                other => self.fail(now, "election", &other),
            },
            Purpose::ReadClaim | Purpose::Claim => self.handle_claim(now, purpose, answer),
            Purpose::ListLog | Purpose::ReadSegment(_) => self.handle_log(now, purpose, answer),
            Purpose::Remove(last) => self.handle_removed(*last, answer),
            Purpose::Write(_) | Purpose::ReadBack(_) => {}
        }
    }

    /// Handles the list of candidates; what follows depends on the place of this one.
    fn handle_candidates(&mut self, now: Timestamp, names: &[String]) {
        self.candidates = names
            .iter()
            .filter_map(|name| Candidate::of(name))
            .collect();
        self.candidates.sort();
        let own = self
            .candidates
            .iter()
            .position(|one| one.session == self.session);
        match (&self.stage, own) {
            (Stage::Enlisting, _) if self.has_resigned => {
                self.leave_election(now);
                self.enter(Stage::Idle);
            }
            (Stage::Enlisting, None) => {
                let prefix = candidate_prefix(self.options.icn, self.session);
                let request = Request::Create {
                    path: self.paths.candidate(&prefix),
                    data: Vec::new(),
                    kind: Kind::EphemeralSequential,
                };
                self.ask(now, Purpose::Enlist, request);
            }
            (Stage::Enlisting, Some(0)) => self.enter(Stage::Claiming),
            (Stage::Enlisting, Some(place)) => {
                let before = self.paths.candidate(&self.candidates[place - 1].name);
                self.enter(Stage::Standby);
                let (path, watch) = (before, true);
                self.ask(now, Purpose::Watch, Request::Exists { path, watch });
            }
            (Stage::Leading(_), place) if place != Some(0) => {
                self.depose("its node in the election is gone");
                self.enter(Stage::Enlisting);
            }
            _ => {}
        }
    }

    /// Handles the result of a write, or the bytes read back of it.
    fn handle_written(&mut self, now: Timestamp, number: u64, answer: Result<Answer, KeeperError>) {
        let Stage::Leading(writer) = &mut self.stage else {
            return;
        };
        let Some(flight) = writer.flight(number) else {
            return;
        };
        flight.ticket = None;
        let path = self.paths.segment(number);
        match answer {
            Ok(Answer::Done) => flight.is_durable = true,
            // It was written by a request whose answer was lost, or not by this leader at all.
            Ok(Answer::Data { data, .. }) if data == flight.bytes => flight.is_durable = true,
            Ok(_) => {
                let what = format!("{path} holds what this leader has not written");
                self.step_down(now, &what, Some(what.clone()));
                return;
            }
            Err(KeeperError::Step(0, error)) if *error != KeeperError::NoAuth => {
                self.step_down(now, "another ICN has taken the term", None);
                return;
            }
            Err(error) => match error.root() {
                KeeperError::NodeExists => {
                    let watch = false;
                    let request = Request::Get { path, watch };
                    let ticket = self.keeper.submit(now, request);
                    flight.ticket = Some(ticket);
                    self.asked.insert(ticket, Purpose::ReadBack(number));
                    return;
                }
                // The segment before was lost, and is sent again before this one.
                KeeperError::NoNode
                    if writer
                        .flights
                        .front()
                        .is_some_and(|first| first.number < number) => {}
                KeeperError::NoNode => {
                    let what = format!("the segment before {path} is gone");
                    self.step_down(now, &what, Some(what.clone()));
                    return;
                }
                KeeperError::Lost | KeeperError::Expired => self.retry(now + RETRY_LOST),
                _ => {
                    let what = format!("{path} cannot be written: {error}");
                    self.set_trouble(what, false);
                    self.retry(now + RETRY);
                    return;
                }
            },
        }
        self.take_durable();
    }

    fn take_durable(&mut self) {
        let Stage::Leading(writer) = &mut self.stage else {
            return;
        };
        let mut durable = None;
        while let Some(flight) = writer.pop_durable() {
            self.records += u64::from(flight.count);
            durable = flight.ends.or(durable);
            if flight.opens_run {
                self.opened.push(flight.number);
            }
            if flight.checkpoint.begins && flight.checkpoint.ends {
                // Whether the one that ends is the one that begins does not matter: the older place is safe.
                let first = self.checkpoint_open.take().unwrap_or(flight.number);
                self.checkpoints.push_back(first);
            } else if flight.checkpoint.begins {
                self.checkpoint_open = Some(flight.number);
            } else if flight.checkpoint.ends {
                self.checkpoints.extend(self.checkpoint_open.take());
            }
            while self.checkpoints.len() > 2 {
                self.checkpoints.pop_front();
            }
        }
        if let Some(position) = durable {
            self.notices.push_back(Notice::Durable(position));
            self.heal_log();
        }
    }

    /// Ends this leader's term, though its session may be open: it goes to the end of the row.
    fn step_down(&mut self, now: Timestamp, why: &str, trouble: Option<String>) {
        self.depose(why);
        if let Some(trouble) = trouble {
            self.set_trouble(trouble, false);
        }
        self.leave_election(now);
        self.enter(Stage::Enlisting);
    }

    fn leave_election(&mut self, now: Timestamp) {
        let own = self
            .candidates
            .iter()
            .find(|one| one.session == self.session);
        if let Some(own) = own {
            let (path, version) = (self.paths.candidate(&own.name), None);
            self.keeper.submit(now, Request::Delete { path, version });
        }
    }

    fn depose(&mut self, why: &str) {
        if matches!(self.stage, Stage::Leading(_)) {
            let (term, why) = (self.term, why.to_owned());
            self.notices.push_back(Notice::Deposed { term, why });
            self.enter(Stage::Idle);
        }
    }

    /// Reports a refusal or an unexpected answer, which is tried again later.
    fn fail(&mut self, now: Timestamp, place: &str, answer: &Result<Answer, KeeperError>) {
        let what = match answer {
            Ok(_) => "has another answer than was asked for".to_owned(),
            Err(error) => error.to_string(),
        };
        let root = self.options.root.trim_end_matches('/');
        let what = format!("{root}/{place}: {what}");
        self.depose(&what);
        self.set_trouble(what, false);
        self.enter(Stage::Preparing);
        self.retry(now + RETRY);
    }

    fn set_trouble(&mut self, what: String, is_of_way: bool) {
        let trouble = if is_of_way {
            &mut self.trouble_of_way
        } else {
            &mut self.trouble_of_log
        };
        if trouble.as_ref() != Some(&what) {
            *trouble = Some(what.clone());
            self.is_in_trouble = true;
            self.notices.push_back(Notice::Trouble(what));
        }
    }

    fn heal_log(&mut self) {
        if self.trouble_of_log.take().is_some() {
            self.notify_healed();
        }
    }

    fn notify_healed(&mut self) {
        if self.is_in_trouble && self.trouble_of_way.is_none() && self.trouble_of_log.is_none() {
            self.is_in_trouble = false;
            self.notices.push_back(Notice::Healed);
        }
    }

    /// Requests everything that the stage needs and has not requested.
    fn step(&mut self, now: Timestamp) {
        if !self.is_connected || self.session == 0 || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.retry_at = None;
        match &self.stage {
            Stage::Leading(_) => return self.step_leading(now),
            Stage::Reading(_) => return self.step_reading(now),
            _ if !self.asked.is_empty() => return,
            _ => {}
        }
        match &self.stage {
            Stage::Preparing => {
                for folder in [&self.paths.election, &self.paths.log].map(Clone::clone) {
                    for request in make_path(&folder) {
                        self.ask(now, Purpose::Prepare, request);
                    }
                }
                let request = Request::Create {
                    path: self.paths.term.clone(),
                    data: Claim::NONE.encode(),
                    kind: Kind::Persistent,
                };
                self.ask(now, Purpose::Prepare, request);
            }
            Stage::Enlisting => {
                let (path, watch) = (self.paths.election.clone(), false);
                self.ask(now, Purpose::List, Request::List { path, watch });
            }
            Stage::Claiming => {
                let (path, watch) = (self.paths.term.clone(), false);
                self.ask(now, Purpose::ReadClaim, Request::Get { path, watch });
            }
            // The watch was lost with its answer.
            Stage::Standby if self.is_list_dirty => {
                self.is_list_dirty = false;
                self.enter(Stage::Enlisting);
            }
            Stage::Standby | Stage::Idle | Stage::Reading(_) | Stage::Leading(_) => {}
        }
    }

    fn step_leading(&mut self, now: Timestamp) {
        if self.is_list_dirty && !self.asked.values().any(|asked| *asked == Purpose::List) {
            self.is_list_dirty = false;
            let (path, watch) = (self.paths.election.clone(), true);
            self.ask(now, Purpose::List, Request::List { path, watch });
        }
        let Stage::Leading(writer) = &mut self.stage else {
            return;
        };
        while writer
            .due(self.options.gather, self.options.gather_max)
            .is_some_and(|due| due <= now)
        {
            writer.make_segment(now);
        }
        let version = Some(writer.version);
        for flight in writer.unsent() {
            let mut steps = vec![Step::Check {
                path: self.paths.term.clone(),
                version,
            }];
            if flight.number > self.first_segment {
                let path = self.paths.segment(flight.number - 1);
                steps.push(Step::Check {
                    path,
                    version: None,
                });
            }
            steps.push(Step::Create {
                path: self.paths.segment(flight.number),
                data: flight.bytes.clone(),
                kind: Kind::Persistent,
            });
            let ticket = self.keeper.submit(now, Request::Multi(steps));
            flight.ticket = Some(ticket);
            self.asked.insert(ticket, Purpose::Write(flight.number));
        }
        self.remove_old(now);
    }

    /// Returns when a leader without answers stops by itself: two thirds of a session after the last one, of which
    /// a keeper takes two fifths to notice.
    fn fences_at(&self) -> Option<Timestamp> {
        let away = self
            .away
            .filter(|_| matches!(self.stage, Stage::Leading(_)))?;
        Some(away + self.timeout * 4 / 15)
    }
}

impl<K: Keeper> Ledger for ZooKeeperLedger<K> {
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position {
        match &mut self.stage {
            Stage::Leading(writer) => writer.append(now, &records),
            _ => Position(0),
        }
    }

    fn poll(&mut self, now: Timestamp) -> Option<Notice> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            if self.fences_at().is_some_and(|at| at <= now) {
                self.depose("no ZooKeeper server answered for two thirds of the session");
                continue;
            }
            self.step(now);
            match self.keeper.poll(now) {
                Some(event) => self.handle(now, event),
                None if self.notices.is_empty() => return None,
                None => {}
            }
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        let gathered = match &self.stage {
            Stage::Leading(writer) => writer.due(self.options.gather, self.options.gather_max),
            _ => None,
        };
        // Before a retry is due nothing is written, however long records have been gathered.
        let gathered = gathered.map(|due| self.retry_at.map_or(due, |at| due.max(at)));
        let gathered = gathered.filter(|_| self.is_connected);
        let retry_at = self.retry_at.filter(|_| self.is_connected);
        let own = [retry_at, self.fences_at(), gathered];
        self.keeper
            .next_due()
            .into_iter()
            .chain(own.into_iter().flatten())
            .min()
    }

    fn resign(&mut self, now: Timestamp) {
        self.has_resigned = true;
        self.leave_election(now);
        self.depose("it has resigned");
        // One more look: a node of this session may have been created whose answer has not come.
        self.enter(match self.session {
            0 => Stage::Idle,
            _ => Stage::Enlisting,
        });
    }

    fn wants_checkpoint(&self) -> bool {
        matches!(&self.stage, Stage::Leading(writer) if writer.wants_checkpoint())
    }

    fn has_others(&self) -> bool {
        self.candidates
            .iter()
            .any(|one| one.session != self.session)
    }

    fn may_be_succeeded(&self) -> bool {
        // Candidates are those of the last answer of ZooKeeper.
        true
    }

    fn status(&self) -> LedgerStatus {
        let trouble = self
            .trouble_of_way
            .as_ref()
            .or(self.trouble_of_log.as_ref());
        LedgerStatus {
            backend: "zookeeper",
            role: match &self.stage {
                Stage::Leading(_) => "leader",
                Stage::Standby => "standby",
                _ => "candidate",
            },
            term: self.term,
            leader: self.candidates.first().map(|first| first.icn),
            records: self.records,
            trouble: trouble.cloned(),
        }
    }
}
