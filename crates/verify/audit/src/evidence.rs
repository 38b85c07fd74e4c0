//! Evidence: the lines of the event logs of a farm and its verdict log, gathered by timeframe.

mod deliveries;
mod files;
mod records;
mod summed;

pub(super) use summed::{Counts, Summed};

use super::finding::{Contradiction, Kind};
use super::rosters::{self, RosterSource, Rosters};
use super::stock::Stock;
use super::tables::{
    Amended, Assignment, Decided, Delivery, Handled, LifeIndex, Made, Named, Returned, Sent,
    Session, Skipped, Tables, Verdict,
};
use sheaf_protocol::{NodeId, RangeSet, Role, TfId};
use sheaf_verdict_log::event::{Event, FileEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

/// Fault of a process while it lived, from the least to the most, by which the audit knows what not to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The process ended by itself, and was neither stopped nor cut off before.
    Ended,
    /// The process was stopped for a while, or cut off: the farm may have gone on without it.
    Paused,
    /// The process was killed: its last line may be cut, and the farm may not know of its last lines.
    Killed,
    /// The process was not watched. If its log has no last line `end`, it counts as killed.
    Unknown,
}

/// One life of one node.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    pub(super) fate: Fate,
    /// Whether its log has the line `end`.
    pub(super) has_ended: bool,
    /// STFs made (FLP) or TFs delivered (EPN).
    pub(super) items: u64,
    /// Payload bytes of these.
    pub(super) bytes: u64,
}

impl Life {
    pub(super) fn was_killed(&self) -> bool {
        match self.fate {
            Fate::Killed => true,
            Fate::Ended | Fate::Paused => false,
            Fate::Unknown => !self.has_ended,
        }
    }
}

/// Lives by role, for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lives {
    /// Lives of ICNs.
    pub icns: u64,
    /// Lives of FLPs.
    pub flps: u64,
    /// Lives of EPNs.
    pub epns: u64,
    /// Lives that ended in order, by their own logs or by those who watched them.
    pub ended: u64,
}

/// The logs of all lives of all nodes of one run.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub(super) lives: Vec<Life>,
    by_name: BTreeMap<(Role, u16, u64), LifeIndex>,
    pub(super) tables: Tables,
    /// Runs that logs name, each with the log that named it first.
    pub(super) runs: BTreeMap<String, String>,
    /// Faults of the logs themselves.
    pub(super) broken: Vec<Contradiction>,
    /// The ICNs that led, by term.
    pub(super) leaders: BTreeMap<u64, BTreeSet<String>>,
    pub(super) roster_source: RosterSource,
    pub(super) is_over: bool,
    pub(super) has_ledger: bool,
    /// Checkpoint that the verdict log begins with.
    pub(super) summed: Option<Summed>,
    /// TFs that are none of the run.
    pub(super) passed: RangeSet,
    pub(super) has_icns: bool,
    pub(super) consumer_faults: u64,
    /// STFs that FLPs refused, by FLP.
    pub(super) refused: BTreeMap<String, u64>,
    /// TFs as they stand in files of DataDistribution, by the number of their delivery.
    pub(super) files: BTreeMap<u32, FileEvent>,
    /// Fates in the streams of a sink, by the number of the delivery: the place in the list of fates.
    pub(super) streams: BTreeMap<u32, u32>,
    /// Content of the files of sinks, if they were read.
    pub(super) stock: Option<Stock>,
    /// Copies of the verdict log that are damaged, and why, where most of the others are not.
    pub(super) damaged_ledgers: Vec<String>,
    lines: u64,
    records: u64,
}

/// A log while it is read.
struct Log {
    /// Path or node of the log, for findings.
    name: String,
    /// Expected node of the log.
    expected: Option<NodeId>,
    fate: Fate,
    life: Option<LifeIndex>,
    term: u64,
    run: Option<String>,
    rosters: Rosters,
    part: FilePart,
}

/// File of a series.
#[derive(Default)]
struct FilePart {
    /// Number of the file; 0 before the first.
    number: u64,
    /// Whether the last line says that the log goes on in a later file.
    has_ended: bool,
}

impl Evidence {
    /// Adds the lines of `log`, which findings call `name`. See [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// The error of reading.
    pub fn take_in(
        &mut self,
        log: impl BufRead,
        name: &str,
        expected: Option<NodeId>,
        fate: Fate,
    ) -> io::Result<()> {
        let mut state = self.begin_log(name, expected, fate);
        self.take_in_file(log, &mut state)
    }

    fn take_in_file(&mut self, mut log: impl BufRead, state: &mut Log) -> io::Result<()> {
        let (mut line, mut number) = (Vec::new(), 0_u64);
        while log.read_until(b'\n', &mut line)? > 0 {
            number += 1;
            state.part.has_ended = false;
            self.take_in_line(state, &line, number);
            line.clear();
        }
        Ok(())
    }

    /// Adds a log that was kept in memory. See [`read`](Self::read).
    pub fn take_in_events<'a>(
        &mut self,
        events: impl IntoIterator<Item = &'a Event>,
        node: NodeId,
        fate: Fate,
    ) {
        let mut state = self.begin_log(&node.to_string(), Some(node), fate);
        for event in events {
            self.add(&mut state, event.clone());
        }
    }

    fn begin_log(&mut self, name: &str, expected: Option<NodeId>, fate: Fate) -> Log {
        Log {
            name: name.to_owned(),
            expected,
            fate,
            life: None,
            term: 0,
            run: None,
            rosters: Rosters::default(),
            part: FilePart::default(),
        }
    }

    /// Forgets the lines of `session` so far: they are of `former`, a run before this one that stands in the same
    /// verdict log.
    fn forget(&mut self, session: u32, former: &str) {
        self.tables.decided.retain(|row| row.session != session);
        self.tables.redelivered.retain(|row| row.session != session);
        self.tables.abandoned.retain(|row| row.session != session);
        self.tables.undelivered.retain(|row| row.session != session);
        self.is_over = false;
        // Others may be of that run, for the audit to find.
        let by = &self.tables.sessions.at(session).by;
        let is_its_own = self
            .runs
            .get(former)
            .is_some_and(|first| *first == *by || first.starts_with("icn:"));
        if is_its_own {
            self.runs.remove(former);
        }
    }

    fn take_in_line(&mut self, log: &mut Log, line: &[u8], number: u64) {
        let is_whole = line.last() == Some(&b'\n');
        let parsed = serde_json::from_slice::<Event>(line);
        let name = &log.name;
        match parsed {
            Ok(event) if is_whole => self.add(log, event),
            // Even if it can be read, the end of a number may be lost with the end of the line.
            _ if !is_whole && self.may_be_cut(log) => {}
            Ok(_) => {
                let text = format!("line {number} of {name} is cut");
                self.find(Kind::GarbledLog, text);
            }
            // The last line of a killed life may be cut, and the next life writes on behind it.
            Err(error) => match begin_behind(line) {
                Some(event) if is_whole => self.add(log, event),
                _ => {
                    let text = format!("line {number} of {name} is no event: {error}");
                    self.find(Kind::GarbledLog, text);
                }
            },
        }
    }

    /// Returns whether the last line of the last life of `log` may be cut.
    fn may_be_cut(&self, log: &Log) -> bool {
        match log.fate {
            Fate::Killed => true,
            Fate::Ended | Fate::Paused => false,
            Fate::Unknown => log.life.is_none_or(|life| !self.life(life).has_ended),
        }
    }

    fn find(&mut self, kind: Kind, text: String) {
        self.broken.push(Contradiction {
            kind,
            tf: None,
            text,
        });
    }

    fn add(&mut self, log: &mut Log, event: Event) {
        self.lines += 1;
        match event {
            Event::Rotated { .. } => {
                log.part.has_ended = true;
                return;
            }
            Event::Continued { part } => return self.go_on(log, part),
            _ => {}
        }
        if let Event::Begin { node, incarnation } = &event {
            return self.begin(log, node, *incarnation);
        }
        let Some(life) = log.life else {
            let text = format!("{} does not start with the line `begin`", log.name);
            self.find(Kind::GarbledLog, text);
            // One finding is enough, and its lines are still worth something.
            let node = log.expected.unwrap_or(NodeId::ICN);
            log.life = Some(self.new_life(node, 0, log.fate));
            return self.add(log, event);
        };
        match event {
            Event::Begin { .. } | Event::Continued { .. } | Event::Rotated { .. } => {}
            Event::End => self.lives[life as usize].has_ended = true,
            Event::Run { run } => {
                let node = self.life(life).node;
                let before = log.run.replace(run.clone());
                if node.role == Role::Icn && before.as_ref().is_some_and(|before| *before != run) {
                    let session = self.session(life, log.term);
                    self.forget(session, &before.unwrap_or_default());
                    log.rosters = Rosters::default();
                }
                self.runs.entry(run).or_insert(node.to_string());
            }
            Event::Made { .. }
            | Event::Skipped { .. }
            | Event::Refused { .. }
            | Event::Sent { .. } => {
                self.add_of_flp(life, event);
            }
            Event::Undelivered { tf } if self.life(life).node.role == Role::Epn => {
                self.tables.returned.push(Returned { tf, life });
            }
            Event::Delivered { .. }
            | Event::Freed { .. }
            | Event::TakenAgain { .. }
            | Event::Recovered { .. }
            | Event::Fault { .. } => {
                self.add_of_epn(life, event);
            }
            Event::Leads { .. }
            | Event::Deposed { .. }
            | Event::Roster { .. }
            | Event::Called { .. }
            | Event::Verdict { .. }
            | Event::Redelivered { .. }
            | Event::Abandoned { .. }
            | Event::Undelivered { .. }
            | Event::Passed { .. }
            | Event::Over => self.add_of_icn(log, life, event),
        }
    }

    fn add_of_flp(&mut self, life: LifeIndex, event: Event) {
        let tables = &mut self.tables;
        match event {
            Event::Made { tf, bytes, digest } => {
                tables.made.push(Made {
                    tf,
                    bytes,
                    digest,
                    life,
                });
                self.count(life, bytes);
            }
            Event::Skipped { tf, reason } => {
                let reason = tables.reasons.place(reason);
                tables.skipped.push(Skipped { tf, life, reason });
            }
            Event::Refused { .. } => {
                let node = self.life(life).node;
                *self.refused.entry(node.to_string()).or_default() += 1;
            }
            Event::Sent {
                tf,
                term,
                attempt,
                epn,
                incarnation,
            } => {
                let to = (epn, incarnation);
                let assignment = tables.assignments.place(Assignment { term, attempt, to });
                tables.sent.push(Sent {
                    tf,
                    life,
                    assignment,
                });
            }
            _ => {}
        }
    }

    fn add_of_epn(&mut self, life: LifeIndex, event: Event) {
        match event {
            Event::Delivered {
                tf,
                redelivered,
                parts,
                missing,
                file,
                streams,
                held,
                ..
            } => {
                let number = self.tables.deliveries.len();
                if let (Some(file), Ok(number)) = (file, u32::try_from(number)) {
                    self.files.insert(number, file);
                }
                self.add_fates(streams);
                let missing = self.flp_list(missing);
                let delivery = Delivery {
                    tf,
                    life,
                    missing,
                    number: 0,
                    is_hearsay: false,
                    is_marked: redelivered,
                    is_held: held,
                };
                self.add_delivery(delivery, &parts);
            }
            Event::Recovered {
                tf,
                incarnation,
                parts,
                missing,
                streams,
                ..
            } => {
                self.add_fates(streams);
                // The delivery is that of the former life, which may have been killed before it wrote the line.
                let node = self.life(life).node;
                let former = self.life_of(node.role, (node.index, incarnation));
                let missing = self.flp_list(missing);
                let delivery = Delivery {
                    tf,
                    life: former.unwrap_or(life),
                    missing,
                    number: 0,
                    is_hearsay: true,
                    is_marked: false,
                    is_held: false,
                };
                self.add_delivery(delivery, &parts);
            }
            Event::Freed { tf } | Event::TakenAgain { tf } => {
                self.tables.handled.push(Handled {
                    tf,
                    life,
                    is_finished: matches!(event, Event::Freed { .. }),
                });
            }
            Event::Fault { .. } => self.consumer_faults += 1,
            _ => {}
        }
    }

    fn flp_list(&mut self, mut flps: Vec<u16>) -> u32 {
        flps.sort_unstable();
        flps.dedup();
        self.tables.flp_lists.place(flps)
    }

    fn add_of_icn(&mut self, log: &mut Log, life: LifeIndex, event: Event) {
        match event {
            Event::Leads { term } => {
                let by = life_name(self.life(life));
                self.leaders.entry(term).or_default().insert(by);
                log.term = term;
                log.rosters = Rosters::default();
            }
            Event::Deposed { .. } => {
                // Lines up to its next term are those that it reads from the verdict log, its own among them.
                log.term = 0;
                log.rosters = Rosters::default();
            }
            Event::Passed { first, end } => self.passed.insert_range(TfId(first), TfId(end)),
            Event::Roster { first, members, .. } => {
                self.roster_source = self.roster_source.max(RosterSource::IcnLogs);
                let members = members
                    .iter()
                    .map(|member| (member.flp, member.incarnation));
                self.set_roster(&mut log.rosters, first, members);
            }
            Event::Called { tf } => self.tables.called.push(tf),
            Event::Verdict {
                tf,
                verdict: name,
                epn,
                incarnation,
                missing,
                reason,
            } => {
                let at = epn.zip(incarnation);
                let session = self.session(life, log.term);
                let verdict = Verdict {
                    name,
                    at,
                    missing,
                    reason,
                };
                self.decide(tf, verdict, session, log.rosters.of(tf));
            }
            Event::Redelivered {
                tf,
                verdict: name,
                epn,
                incarnation,
                missing,
            } => {
                let session = self.session(life, log.term);
                let verdict = Verdict {
                    name,
                    at: Some((epn, incarnation)),
                    missing,
                    reason: None,
                };
                let row = self.decided(tf, verdict, session, log.rosters.of(tf));
                self.tables.redelivered.push(row);
            }
            Event::Abandoned { tf } => {
                let session = self.session(life, log.term);
                self.tables.abandoned.push(Amended { tf, session });
            }
            Event::Undelivered { tf } => {
                let session = self.session(life, log.term);
                self.tables.undelivered.push(Amended { tf, session });
            }
            Event::Over => self.is_over = true,
            _ => {}
        }
    }

    fn begin(&mut self, log: &mut Log, name: &str, incarnation: u64) {
        let Some(node) = parse_node(name) else {
            let text = format!(
                "{} begins with {name:?}, expected a node such as \"flp:2\"",
                log.name
            );
            return self.find(Kind::GarbledLog, text);
        };
        if let Some(expected) = log.expected
            && node != expected
        {
            self.find(
                Kind::WrongLog,
                format!("the log of {expected} is that of {name}"),
            );
        }
        if let Some(before) = log.life {
            let before = &mut self.lives[before as usize];
            before.fate = if before.has_ended {
                Fate::Unknown
            } else {
                Fate::Killed
            };
            if before.node != node || before.incarnation == incarnation {
                let (text, old) = (&log.name, life_name(before));
                let text =
                    format!("{text} holds {old} and behind it {name} (incarnation {incarnation})");
                self.find(Kind::WrongLog, text);
            }
        }
        if self
            .by_name
            .contains_key(&(node.role, node.index, incarnation))
        {
            let text = format!(
                "two logs are of {name} (incarnation {incarnation}), one is {}",
                log.name
            );
            self.find(Kind::WrongLog, text);
        }
        log.life = Some(self.new_life(node, incarnation, log.fate));
        log.term = 0;
        log.rosters = Rosters::default();
    }

    fn new_life(&mut self, node: NodeId, incarnation: u64, fate: Fate) -> LifeIndex {
        let index = LifeIndex::try_from(self.lives.len()).expect("fewer than 4 billion lives");
        self.lives.push(Life {
            node,
            incarnation,
            fate,
            has_ended: false,
            items: 0,
            bytes: 0,
        });
        self.by_name
            .insert((node.role, node.index, incarnation), index);
        self.has_icns |= node.role == Role::Icn;
        index
    }

    fn set_roster(
        &mut self,
        rosters: &mut Rosters,
        first: u64,
        members: impl Iterator<Item = Named>,
    ) {
        // The first place stands for an unknown roster.
        self.tables.rosters.place(None);
        let place = self.tables.rosters.place(Some(rosters::sorted(members)));
        rosters.set(first, place);
    }

    fn decide(&mut self, tf: u64, verdict: Verdict, session: u32, roster: Option<u32>) {
        let row = self.decided(tf, verdict, session, roster);
        self.tables.decided.push(row);
    }

    fn decided(
        &mut self,
        tf: u64,
        mut verdict: Verdict,
        session: u32,
        roster: Option<u32>,
    ) -> Decided {
        verdict.missing.sort_unstable();
        let unknown = self.tables.rosters.place(None);
        let verdict = self.tables.verdicts.place(verdict);
        let roster = roster.unwrap_or(unknown);
        Decided {
            tf,
            verdict,
            session,
            roster,
        }
    }

    fn session(&mut self, life: LifeIndex, term: u64) -> u32 {
        let life = self.life(life);
        let by = match term {
            0 => life_name(life),
            term => format!("{} in term {term}", life_name(life)),
        };
        self.tables.sessions.place(Session {
            by,
            term,
            is_ledger: false,
        })
    }

    fn count(&mut self, life: LifeIndex, bytes: u64) {
        let life = &mut self.lives[life as usize];
        life.items += 1;
        life.bytes += bytes;
    }

    /// Returns the STFs made or TFs delivered by all lives of `node`, and their payload bytes.
    #[must_use]
    pub fn work_of(&self, node: NodeId) -> (u64, u64) {
        let lives = self.lives.iter().filter(|life| life.node == node);
        lives.fold((0, 0), |(items, bytes), life| {
            (items + life.items, bytes + life.bytes)
        })
    }

    /// Returns the lives that there are logs of.
    #[must_use]
    pub fn lives(&self) -> Lives {
        let mut lives = Lives::default();
        for life in &self.lives {
            match life.node.role {
                Role::Icn => lives.icns += 1,
                Role::Flp => lives.flps += 1,
                Role::Epn => lives.epns += 1,
                Role::Operator | Role::Writer => {}
            }
            lives.ended += u64::from(!life.was_killed());
        }
        lives
    }

    /// Returns the lines of event logs and records of verdict logs that were added.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.lines, self.records)
    }

    /// Returns the copies of the verdict log that are damaged and were not needed, with the damage.
    #[must_use]
    pub fn damaged_ledgers(&self) -> &[String] {
        &self.damaged_ledgers
    }

    /// Returns the runs of the logs; one, if all is well.
    #[must_use]
    pub fn runs(&self) -> Vec<String> {
        self.runs.keys().cloned().collect()
    }

    pub(super) fn life(&self, life: LifeIndex) -> &Life {
        &self.lives[life as usize]
    }

    pub(super) fn life_of(&self, role: Role, (index, incarnation): Named) -> Option<LifeIndex> {
        self.by_name.get(&(role, index, incarnation)).copied()
    }
}

/// Returns a node and its life, for findings.
pub(super) fn life_name(life: &Life) -> String {
    name(life.node.role, (life.node.index, life.incarnation))
}

pub(super) fn name(role: Role, (index, incarnation): Named) -> String {
    format!("{role}:{index} (incarnation {incarnation})")
}

/// Returns the line `begin` at the end of `line`, behind the cut last line of the life before.
fn begin_behind(line: &[u8]) -> Option<Event> {
    const BEGIN: &[u8] = b"{\"event\":\"begin\"";
    let start = line
        .windows(BEGIN.len())
        .rposition(|found| found == BEGIN)?;
    serde_json::from_slice(&line[start..]).ok()
}

fn parse_node(name: &str) -> Option<NodeId> {
    let (role, index) = name.split_once(':')?;
    let role = [Role::Icn, Role::Flp, Role::Epn, Role::Writer]
        .into_iter()
        .find(|found| found.to_string() == role)?;
    Some(NodeId {
        role,
        index: index.parse().ok()?,
    })
}
