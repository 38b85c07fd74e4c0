//! The verdict log as evidence.

use super::super::finding::Kind;
use super::super::rosters::{RosterSource, Rosters};
use super::super::tables::{Abandoned, Session, Verdict};
use super::Evidence;
use crate::file::{ReadError, read_newest};
use sheaf_frame::{self as frame, Record};
use std::path::Path;

impl Evidence {
    /// Takes in the records of a verdict log, oldest first, all of them durable. Several ICNs may have a copy each.
    pub fn take_in_ledger(&mut self, name: &str, records: impl IntoIterator<Item = Record>) {
        let mut rosters = Rosters::default();
        let session = self.tables.sessions.place(Session {
            by: name.to_owned(),
            term: 0,
            is_ledger: true,
        });
        self.has_ledger = true;
        self.roster_source = RosterSource::Ledger;
        let mut run = None;
        for record in records {
            self.records += 1;
            self.add_record(name, session, &mut run, &mut rosters, &record);
        }
    }

    /// Takes in the verdict log that the ICNs kept in `folders`, one each: the copy that an election between them would
    /// choose. What is wrong with its files is a finding of the audit.
    ///
    /// # Errors
    ///
    /// [`ReadError::Nothing`] if one of them holds no verdict log.
    pub fn read_ledger<P: AsRef<Path>>(&mut self, folders: &[P]) -> Result<(), ReadError> {
        let newest = match read_newest(folders) {
            Ok(newest) => newest,
            Err(ReadError::Storage(error)) => {
                self.find(
                    Kind::Ledger,
                    format!("the verdict log cannot be read: {error}"),
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let name = newest.folder().display().to_string();
        let mut trouble = None;
        let records = newest.records().map_while(|record| match record {
            Ok((_, _, record)) => Some(record),
            Err(error) => {
                trouble = Some(error);
                None
            }
        });
        self.take_in_ledger(&name, records);
        if let Some(error) = trouble {
            self.find(
                Kind::Ledger,
                format!("the verdict log in {name} ends too early: {error}"),
            );
        }
        Ok(())
    }

    fn add_record(
        &mut self,
        name: &str,
        session: u32,
        former: &mut Option<String>,
        rosters: &mut Rosters,
        record: &Record,
    ) {
        match record {
            Record::Opened { run } => {
                let run = run.to_string();
                if let Some(former) = former.replace(run.clone()).filter(|former| *former != run) {
                    self.forget(session, &former);
                    *rosters = Rosters::default();
                }
                self.runs.entry(run).or_insert_with(|| name.to_owned());
            }
            Record::Roster { first, members, .. } => {
                let members = members
                    .iter()
                    .map(|member| (member.flp.0, member.incarnation.0));
                self.set_roster(rosters, first.0, members);
            }
            Record::Verdict { tf, verdict, .. } => {
                self.decide(tf.0, verdict_of(verdict), session, rosters.of(tf.0));
            }
            Record::Abandoned { tf, .. } => {
                self.tables.abandoned.push(Abandoned { tf: tf.0, session });
            }
            Record::Over => self.is_over = true,
            Record::Done { .. }
            | Record::Clock { .. }
            | Record::Stopping { .. }
            | Record::Set { .. }
            | Record::Listed { .. } => {}
        }
    }
}

fn verdict_of(verdict: &frame::Verdict) -> Verdict {
    let at = |target: &frame::Target| Some((target.epn.0, target.incarnation.0));
    let (name, at, missing, reason) = match verdict {
        frame::Verdict::Complete { target } => ("complete", at(target), Vec::new(), None),
        frame::Verdict::Incomplete { target, missing } => (
            "incomplete",
            at(target),
            missing.iter().map(|flp| flp.0).collect(),
            None,
        ),
        frame::Verdict::Dropped { reason } => {
            ("dropped", None, Vec::new(), Some(reason.name().to_owned()))
        }
    };
    Verdict {
        name: name.to_owned(),
        at,
        missing,
        reason,
    }
}
