//! Gate of the verdict log: nothing that follows from a record leaves before the record is durable.

use sheaf_protocol::control::Commit;
use sheaf_protocol::{Control, Record, protect};
use sheaf_scheduler::Recipient;
use sheaf_verdict_log::Position;
use std::collections::VecDeque;

/// Record that a message follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// From nothing in the log.
    Nothing,
    /// From the rosters, or from where the run stops.
    Shape,
    /// From verdicts.
    Verdicts,
}

/// Records on their way to the log, and the messages behind them.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Appended, not durable yet.
    records: VecDeque<(Position, Vec<Record>)>,
    shape: VecDeque<(Position, Recipient, Control)>,
    verdicts: VecDeque<(Position, Recipient, Control)>,
    /// Where the last record that gives the run its shape stands.
    shape_at: Position,
    appended: Position,
    durable: Position,
}

/// Results of one turn of the scheduler, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    messages: Vec<(usize, Recipient, Control)>,
}

impl Batch {
    pub(super) fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Adds a message. Commits to one EPN that follow each other become one, but for those of incomplete TFs: their
    /// lists of missing FLPs could make it larger than a receiver takes.
    pub(super) fn message(&mut self, to: Recipient, control: Control) {
        let records = self.records.len();
        let is_whole = |commit: &Commit| commit.missing.is_empty();
        if let Control::Commit(more) = &control
            && let Some((before, last_to, Control::Commit(commits))) = self.messages.last_mut()
            && *last_to == to
            && commits.len() + more.len() <= Control::ENTRIES_MAX
            && more.iter().chain(commits.last()).all(is_whole)
        {
            *before = records;
            commits.extend_from_slice(more);
            return;
        }
        self.messages.push((records, to, control));
    }

    fn gives_shape(record: &Record) -> bool {
        matches!(
            record,
            Record::Opened { .. }
                | Record::Passed { .. }
                | Record::Roster { .. }
                | Record::Stopping { .. }
        )
    }
}

impl Gate {
    /// Takes in a turn whose records `append` puts into the log. Returns what may be sent at once.
    pub(super) fn pass(
        &mut self,
        batch: Batch,
        append: impl FnOnce(Vec<Record>) -> Position,
    ) -> Vec<(Recipient, Control)> {
        let (before, shape_before) = (self.appended, self.shape_at);
        let first_shape = batch.records.iter().position(Batch::gives_shape);
        if !batch.records.is_empty() {
            self.appended = append(batch.records.clone());
            self.records.push_back((self.appended, batch.records));
        }
        if first_shape.is_some() {
            self.shape_at = self.appended;
        }
        let mut free = Vec::new();
        for (records_before, to, control) in batch.messages {
            let needs = match follows(&control) {
                Follows::Nothing => Position(0),
                Follows::Shape if first_shape.is_some_and(|first| first < records_before) => {
                    self.shape_at
                }
                Follows::Shape => shape_before,
                Follows::Verdicts if records_before > 0 => self.appended,
                Follows::Verdicts => before,
            };
            if needs <= self.durable {
                free.push((to, control));
            } else if follows(&control) == Follows::Shape {
                self.shape.push_back((needs, to, control));
            } else {
                self.verdicts.push_back((needs, to, control));
            }
        }
        free
    }

    /// The log is durable up to `position`: these records are in it, and these messages may go.
    pub(super) fn open(&mut self, position: Position) -> (Vec<Record>, Vec<(Recipient, Control)>) {
        self.durable = self.durable.max(position);
        let mut records = Vec::new();
        while let Some((at, _)) = self.records.front()
            && *at <= self.durable
        {
            let (_, mut more) = self.records.pop_front().expect("it was there");
            records.append(&mut more);
        }
        let mut messages = Vec::new();
        for queue in [&mut self.shape, &mut self.verdicts] {
            while let Some((needs, ..)) = queue.front()
                && *needs <= self.durable
            {
                let (_, to, control) = queue.pop_front().expect("it was there");
                messages.push((to, control));
            }
        }
        (records, messages)
    }

    /// A life of a node is over: what waits for it alone is not for the next one, whose TFs may have the same names.
    pub(super) fn forget(&mut self, dead: Recipient) {
        for queue in [&mut self.shape, &mut self.verdicts] {
            queue.retain(|(_, to, _)| *to != dead);
        }
    }

    /// Where the last record stands.
    pub(super) fn appended(&self) -> Position {
        self.appended
    }

    /// How far the log is durable.
    pub(super) fn durable(&self) -> Position {
        self.durable
    }

    /// Whether everything appended is durable.
    pub(super) fn is_open(&self) -> bool {
        self.appended <= self.durable
    }

    /// The records that are not known to be durable, oldest first.
    pub(super) fn unheard(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flat_map(|(_, records)| records)
    }

    /// Records that are not durable yet.
    pub(super) fn waiting(&self) -> usize {
        self.records.iter().map(|(_, records)| records.len()).sum()
    }
}

fn follows(control: &Control) -> Follows {
    match control {
        Control::Commit(items) if items.iter().any(|item| item.is_redelivered) => {
            protect!(DurableAmendment, Follows::Verdicts, else Follows::Nothing)
        }
        Control::Commit(_) => protect!(DurableCommit, Follows::Verdicts, else Follows::Nothing),
        Control::Release(_) => protect!(DurableRelease, Follows::Verdicts, else Follows::Nothing),
        Control::Recover(_) | Control::Discard(_) | Control::Dismissed => Follows::Verdicts,
        Control::Roster { .. } | Control::Assign(_) | Control::Start(_) => {
            protect!(DurableRoster, Follows::Shape, else Follows::Nothing)
        }
        Control::Absent(_)
        | Control::SourceGone { .. }
        | Control::SourceBack { .. }
        | Control::StopAt { .. } => Follows::Shape,
        _ => Follows::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::control::{Release, Start};
    use sheaf_protocol::{EpnId, FlpId, RosterId, RunId, TfId};

    fn roster() -> Record {
        Record::Roster {
            id: RosterId(1),
            first: TfId(0),
            members: Vec::new(),
        }
    }

    fn start() -> Control {
        Control::Start(Start {
            first: TfId(0),
            end: TfId(1),
            elapsed_ns: 0,
            origin: TfId(0),
        })
    }

    fn names(messages: &[(Recipient, Control)]) -> Vec<&'static str> {
        messages.iter().map(|(_, control)| control.name()).collect()
    }

    #[test]
    fn what_follows_from_a_record_waits_for_it_and_the_rest_does_not() {
        let mut gate = Gate::default();
        let mut batch = Batch::default();
        batch.record(Record::Opened { run: RunId(1) });
        batch.record(roster());
        batch.message(Recipient::AllFlps, start());
        batch.message(Recipient::AllFlps, Control::Stop);
        batch.message(Recipient::AllEpns, Control::Release(Release::default()));
        let free = gate.pass(batch, |_| Position(1));
        assert_eq!(names(&free), ["stop"]);

        // A release in the next turn waits for the clock record before it; a start only for the roster.
        let mut batch = Batch::default();
        batch.record(Record::Clock { elapsed_ns: 1 });
        batch.message(Recipient::AllEpns, Control::Release(Release::default()));
        batch.message(Recipient::AllFlps, start());
        assert!(gate.pass(batch, |_| Position(2)).is_empty());

        assert_eq!(gate.unheard().count(), 3);
        let (records, messages) = gate.open(Position(1));
        assert_eq!(
            gate.unheard().collect::<Vec<_>>(),
            [&Record::Clock { elapsed_ns: 1 }]
        );
        assert_eq!(records.len(), 2);
        assert_eq!(names(&messages), ["start", "start", "release"]);
        assert_eq!(gate.waiting(), 1);
        let (records, messages) = gate.open(Position(2));
        assert_eq!((records.len(), names(&messages)), (1, vec!["release"]));
    }

    #[test]
    fn commits_to_one_epn_become_one_message_behind_the_last_verdict() {
        let commit = |tf, missing: &[u16]| {
            let commit = Commit {
                tf: TfId(tf),
                is_redelivered: false,
                missing: missing.iter().copied().map(FlpId).collect(),
            };
            Control::Commit(vec![commit])
        };
        let (one, other) = (Recipient::Epn(EpnId(1)), Recipient::Epn(EpnId(2)));
        let mut batch = Batch::default();
        batch.message(one, commit(1, &[]));
        batch.record(roster());
        batch.message(one, commit(2, &[]));
        batch.message(other, commit(3, &[]));
        batch.message(one, commit(4, &[]));
        batch.message(one, commit(5, &[7]));
        batch.message(one, commit(6, &[]));
        let mut gate = Gate::default();
        assert!(gate.pass(batch, |_| Position(1)).is_empty());
        let (_, messages) = gate.open(Position(1));
        let tfs = messages.into_iter().map(|(to, control)| match control {
            Control::Commit(commits) => (to, commits.iter().map(|commit| commit.tf.0).collect()),
            other => panic!("{other:?}"),
        });
        let tfs: Vec<(Recipient, Vec<u64>)> = tfs.collect();
        let expected: [(Recipient, &[u64]); 5] = [
            (one, &[1, 2]),
            (other, &[3]),
            (one, &[4]),
            (one, &[5]),
            (one, &[6]),
        ];
        assert_eq!(tfs, expected.map(|(to, tfs)| (to, tfs.to_vec())));
    }

    #[test]
    fn a_discard_that_waits_for_a_life_that_is_over_does_not_reach_the_next_one() {
        // A life of EPN 1 has reported a TF that it holds from before, and builds it again; then it dies while the log
        // is slow. What the next life finds of that TF on the disk is committed.
        let (dead, other) = (Recipient::Epn(EpnId(1)), Recipient::Epn(EpnId(2)));
        let mut gate = Gate::default();
        let mut batch = Batch::default();
        batch.record(Record::Clock { elapsed_ns: 1 });
        batch.message(dead, Control::Discard(vec![TfId(7)]));
        batch.message(other, Control::Discard(vec![TfId(8)]));
        batch.message(Recipient::AllEpns, Control::Release(Release::default()));
        assert!(gate.pass(batch, |_| Position(1)).is_empty());
        gate.forget(dead);
        let mut batch = Batch::default();
        batch.message(dead, Control::Discard(vec![TfId(9)]));
        assert!(
            gate.pass(batch, |_| unreachable!("nothing to append"))
                .is_empty()
        );
        let (_, messages) = gate.open(Position(1));
        let expected = [
            (other, Control::Discard(vec![TfId(8)])),
            (Recipient::AllEpns, Control::Release(Release::default())),
            (dead, Control::Discard(vec![TfId(9)])),
        ];
        assert_eq!(
            messages, expected,
            "only what came after that life is for the next"
        );
    }

    #[test]
    fn what_follows_from_durable_records_goes_at_once() {
        let mut gate = Gate::default();
        let mut batch = Batch::default();
        batch.record(roster());
        gate.pass(batch, |_| Position(1));
        gate.open(Position(1));
        let mut batch = Batch::default();
        batch.message(Recipient::AllFlps, start());
        batch.message(Recipient::AllEpns, Control::Release(Release::default()));
        let free = gate.pass(batch, |_| unreachable!("nothing to append"));
        assert_eq!(names(&free), ["start", "release"]);
    }
}
