//! The verdict log as evidence.

use super::super::finding::Kind;
use super::super::rosters::{RosterSource, Rosters};
use super::super::tables::{Amended, Session, Verdict};
use super::summed::Counts;
use super::{Evidence, Summed};
use sheaf_protocol::{self as frame, Checkpoint, DropReason, Record, TfId};
use sheaf_verdict_files::{ReadError, read_dir, read_newest};
use std::path::Path;

impl Evidence {
    /// Adds the records of a verdict log, oldest first, all of them durable. Several ICNs may have a copy each.
    pub fn take_in_ledger(&mut self, name: &str, records: impl IntoIterator<Item = Record>) {
        let session = self.tables.sessions.place(Session {
            by: name.to_owned(),
            term: 0,
            is_ledger: true,
        });
        self.has_ledger = true;
        self.roster_source = RosterSource::Ledger;
        let mut log = LedgerLog {
            name,
            session,
            run: None,
            rosters: Rosters::default(),
            counts: Counts::default(),
            begins_at_checkpoint: false,
        };
        for record in records {
            self.records += 1;
            self.add_record(&mut log, &record);
        }
    }

    /// Adds the verdict log that the ICNs kept in `folders`, one each: the copy that an election between them would
    /// choose. Of copies that are damaged less than half may be left out: an election needs most of them. Other faults
    /// of the files are findings of the audit.
    ///
    /// # Errors
    ///
    /// [`ReadError::Nothing`] if one of them holds no verdict log.
    pub fn read_ledger<P: AsRef<Path>>(&mut self, folders: &[P]) -> Result<(), ReadError> {
        let (mut good, mut damaged) = (Vec::new(), Vec::new());
        for folder in folders {
            let folder = folder.as_ref();
            match read_dir(folder).map(|copy| copy.records().find_map(Result::err)) {
                Ok(None) => good.push(folder),
                Ok(Some(error)) => {
                    damaged.push(format!("{} ends too early: {error}", folder.display()));
                }
                Err(ReadError::Storage(error)) => {
                    damaged.push(format!("{} cannot be read: {error}", folder.display()));
                }
                Err(error) => return Err(error),
            }
        }
        if damaged.is_empty() || 2 * damaged.len() < folders.len() {
            self.damaged_ledgers.extend(damaged);
            let newest = read_newest(&good)?;
            let name = newest.folder().display().to_string();
            let records = newest.records().map_while(Result::ok);
            self.take_in_ledger(&name, records.map(|(_, _, record)| record));
            return Ok(());
        }
        for text in damaged {
            self.find(Kind::Ledger, format!("the verdict log in {text}"));
        }
        // What the newest copy has up to its damage is worth something.
        if let Ok(newest) = read_newest(folders) {
            let name = newest.folder().display().to_string();
            let records = newest.records().map_while(Result::ok);
            self.take_in_ledger(&name, records.map(|(_, _, record)| record));
        }
        Ok(())
    }

    fn add_record(&mut self, log: &mut LedgerLog<'_>, record: &Record) {
        match record {
            Record::Opened { run } => {
                let run = run.to_string();
                let former = log.run.replace(run.clone());
                if let Some(former) = former.filter(|former| *former != run) {
                    self.forget(log.session, &former);
                    log.rosters = Rosters::default();
                }
                log.counts = Counts::default();
                log.begins_at_checkpoint = false;
                self.summed = None;
                self.runs.entry(run).or_insert_with(|| log.name.to_owned());
            }
            Record::Roster { first, members, .. } => {
                let members = members
                    .iter()
                    .map(|member| (member.flp.0, member.incarnation.0));
                self.set_roster(&mut log.rosters, first.0, members);
            }
            Record::Verdict { tf, verdict, .. } => {
                log.counts.add_verdict(verdict);
                let roster = log.rosters.of(tf.0);
                self.decide(tf.0, verdict_of(verdict), log.session, roster);
            }
            Record::Redelivered { tf, verdict, .. } => {
                if let Some(name) = self.built_name(tf.0, log.session) {
                    log.counts.remove(&name);
                    log.counts.add_verdict(verdict);
                }
                self.amend(log, *tf, verdict);
            }
            Record::Abandoned { tf, .. } => {
                log.counts.add("abandoned", 1);
                let session = log.session;
                self.tables.abandoned.push(Amended { tf: tf.0, session });
            }
            Record::Undelivered { tf, .. } => {
                if let Some(name) = self.built_name(tf.0, log.session) {
                    log.counts.remove(&name);
                    log.counts.add(DropReason::Undelivered.name(), 1);
                }
                let session = log.session;
                self.tables.undelivered.push(Amended { tf: tf.0, session });
            }
            Record::Over => self.is_over = true,
            Record::Checkpoint(head) => self.add_checkpoint(log, head),
            // All records behind it stand in front of a later checkpoint, too.
            Record::Released { .. }
            | Record::Undone { .. }
            | Record::UndoneRedelivered { .. }
            | Record::Again(_)
                if !log.begins_at_checkpoint => {}
            Record::Released { ranges } => {
                if let Some(summed) = &mut self.summed {
                    summed.add_released(ranges);
                }
            }
            Record::Undone { tf, verdict, .. } => {
                if let Some(summed) = &mut self.summed {
                    summed.add_undone(*tf, false);
                }
                let roster = log.rosters.of(tf.0);
                self.decide(tf.0, verdict_of(verdict), log.session, roster);
            }
            Record::UndoneRedelivered { tf, verdict, .. } => {
                if let Some(summed) = &mut self.summed {
                    summed.add_undone(*tf, true);
                }
                self.amend(log, *tf, verdict);
            }
            Record::Again(record) => match &**record {
                Record::Verdict { tf, verdict, .. } => {
                    let roster = log.rosters.of(tf.0);
                    self.decide(tf.0, verdict_of(verdict), log.session, roster);
                }
                Record::Redelivered { tf, verdict, .. } => self.amend(log, *tf, verdict),
                Record::Abandoned { tf, .. } => {
                    let session = log.session;
                    self.tables.abandoned.push(Amended { tf: tf.0, session });
                }
                Record::Undelivered { tf, .. } => {
                    let session = log.session;
                    self.tables.undelivered.push(Amended { tf: tf.0, session });
                }
                _ => {}
            },
            Record::Passed { first, end } => self.passed.insert_range(*first, *end),
            Record::Done { .. }
            | Record::Clock { .. }
            | Record::Stopping { .. }
            | Record::Set { .. }
            | Record::Sources { .. }
            | Record::Targets { .. }
            | Record::RedeliveredTotal { .. }
            | Record::Listed { .. } => {}
        }
    }

    /// Adds a verdict that amends a former one: the TF was built again.
    fn amend(&mut self, log: &LedgerLog<'_>, tf: TfId, verdict: &frame::Verdict) {
        let roster = log.rosters.of(tf.0);
        let row = self.decided(tf.0, verdict_of(verdict), log.session, roster);
        self.tables.redelivered.push(row);
    }

    /// Returns the name of the verdict that `session` holds on a built TF.
    fn built_name(&self, tf: u64, session: u32) -> Option<String> {
        let amended = self.tables.redelivered.iter().rev();
        let mut rows = amended.chain(self.tables.decided.iter().rev());
        let row = rows.find(|row| row.tf == tf && row.session == session)?;
        let name = &self.tables.verdicts.at(row.verdict).name;
        (name != "dropped").then(|| name.clone())
    }

    /// Adds a checkpoint: the first record of a log whose begin was removed, or one that has to agree with all before
    /// it.
    fn add_checkpoint(&mut self, log: &mut LedgerLog<'_>, head: &Checkpoint) {
        let run = head.run.to_string();
        let found = Counts::of(head);
        log.begins_at_checkpoint = log.run.is_none();
        if log.begins_at_checkpoint {
            log.run = Some(run.clone());
            log.counts = found;
            self.summed = Some(Summed::new(head));
            self.runs.entry(run).or_insert_with(|| log.name.to_owned());
            return;
        }
        let name = log.name;
        if log.run.as_ref() != Some(&run) {
            let before = log.run.clone().unwrap_or_default();
            let text =
                format!("a checkpoint of run {run} stands in the log of run {before} in {name}");
            self.find(Kind::Ledger, text);
        }
        for (what, here, there) in log.counts.differ(&found) {
            let text = format!(
                "{what}: a checkpoint in {name} sums up {there}, the records before it come to {here}"
            );
            self.find(Kind::Ledger, text);
        }
        log.counts = found;
    }
}

/// A verdict log while it is read.
struct LedgerLog<'a> {
    name: &'a str,
    session: u32,
    run: Option<String>,
    rosters: Rosters,
    /// Counts of all verdicts so far.
    counts: Counts,
    /// Whether the checkpoint that is being read is the first record of the log.
    begins_at_checkpoint: bool,
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
