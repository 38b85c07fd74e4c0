//! Tests of verdict logs with checkpoints: their sums have to agree with the event logs.

use super::run::{ICN0, RUN, Run, complete, recorded};
use super::*;
use sheaf_protocol::{Checkpoint, DropReason, Record, RosterId, TfId, Verdict};

/// Returns the checkpoint for the first five TFs of the good run: 0 to 2 complete and done, 3 incomplete, 4 dropped.
fn head() -> Checkpoint {
    let mut dropped = [0; DropReason::ALL.len()];
    dropped[DropReason::SourceOverrun.index()] = 1;
    Checkpoint {
        run: RUN,
        frontier: TfId(5),
        last_roster: RosterId(1),
        floor: TfId(3),
        complete: 3,
        incomplete: 1,
        dropped,
        abandoned: 0,
        bytes: 0,
    }
}

/// Returns the records of that checkpoint, and the number of records of the good run that it stands for.
fn checkpoint(run: &Run, head: Checkpoint) -> (Vec<Record>, usize) {
    let of = |tf: u64| {
        let is_it =
            |record: &&Record| matches!(record, Record::Verdict { tf: at, .. } if at.0 == tf);
        run.ledger.iter().find(is_it).unwrap().clone()
    };
    let end = run
        .ledger
        .iter()
        .position(|record| *record == of(4))
        .unwrap()
        + 1;
    let Record::Verdict {
        tf,
        attempt,
        verdict,
        bytes,
    } = of(3)
    else {
        unreachable!()
    };
    let is_roster = |record: &&Record| matches!(record, Record::Roster { .. });
    let roster = run.ledger.iter().find(is_roster).unwrap().clone();
    let undone = Record::Undone {
        tf,
        attempt,
        verdict,
        bytes,
    };
    let ranges = vec![(TfId(4), TfId(5))];
    let records = vec![
        Record::Checkpoint(Box::new(head)),
        roster,
        Record::Released { ranges },
        undone,
        Record::Again(Box::new(of(4))),
    ];
    (records, end)
}

/// Returns the good run, whose verdict log begins with a checkpoint.
fn cut(head: Checkpoint) -> Run {
    let mut run = Run::good();
    let (records, end) = checkpoint(&run, head);
    run.ledger.splice(..end, records);
    run
}

/// Returns the good run, with the checkpoint in the middle of its verdict log.
fn whole(head: Checkpoint) -> Run {
    let mut run = Run::good();
    let (records, end) = checkpoint(&run, head);
    run.ledger.splice(end..end, records);
    run
}

fn contradictions(run: &Run) -> Vec<String> {
    let found = run.audit(true).contradictions;
    found.into_iter().map(|found| found.text).collect()
}

#[test]
fn a_log_may_begin_with_a_checkpoint_or_have_one_anywhere() {
    for run in [cut(head()), whole(head())] {
        let found = run.audit(true);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        assert_eq!(
            (found.announced, found.complete, found.in_flight),
            (8, 5, 0)
        );
    }
}

#[test]
fn a_sum_that_is_not_that_of_the_event_logs_is_found() {
    let wrong = Checkpoint {
        complete: 4,
        ..head()
    };
    assert_eq!(
        contradictions(&cut(wrong.clone())),
        [
            "complete: before the checkpoint that the verdict log begins with the logs say 3, the checkpoint 4"
        ]
    );
    assert_eq!(
        contradictions(&whole(wrong)),
        [
            "complete: a checkpoint in the ledger of icn:1 sums up 4, the records before it come to 3"
        ]
    );
}

#[test]
fn a_verdict_that_a_checkpoint_counts_and_no_log_has_is_found() {
    let mut run = cut(head());
    run.logs
        .values_mut()
        .for_each(|log| log.retain(|line| *line != complete(2, 0)));
    let found = contradictions(&run);
    let expected = [
        "TF 2 is decided by the checkpoint that the verdict log begins with, and no event log of an ICN has it",
        "complete: before the checkpoint that the verdict log begins with the logs say 2, the checkpoint 3",
    ];
    for text in expected {
        assert!(found.iter().any(|found| found == text), "{found:#?}");
    }
}

#[test]
fn a_verdict_of_an_event_log_that_no_checkpoint_and_no_record_has_is_found() {
    let mut run = cut(head());
    let lost = recorded(&complete(6, 0)).unwrap();
    run.ledger.retain(|record| *record != lost);
    let found = contradictions(&run);
    assert!(
        found[0].starts_with("TF 6 has a verdict by icn:"),
        "{found:#?}"
    );
    assert!(
        found[0].ends_with("and none in the verdict log"),
        "{found:#?}"
    );
}

#[test]
fn a_checkpoint_of_another_run_is_found() {
    let other = Checkpoint {
        run: sheaf_protocol::RunId(0xbb),
        ..head()
    };
    let found = contradictions(&whole(other));
    assert!(
        found[0].starts_with("a checkpoint of run 00000000000000bb stands in"),
        "{found:#?}"
    );
}

#[test]
fn without_event_logs_of_icns_only_sums_are_known_which_is_a_finding() {
    let mut run = cut(head());
    run.logs.retain(|node, _| node.role != ICN0.role);
    let found = run.audit(true);
    assert_eq!(found.contradictions[0].kind, Kind::MissingLog);
    let expected = "the verdict log begins with a checkpoint at TF 5, and no ICN left an event log: \
                    the verdicts before are known as sums only";
    assert_eq!(found.contradictions[0].text, expected);
    let is_unbidden = |found: &Contradiction| found.kind == Kind::DeliveredUnbidden;
    assert!(!found.contradictions.iter().any(is_unbidden));
}

#[test]
fn verdicts_of_the_checkpoint_itself_are_held_against_the_event_logs() {
    let mut run = cut(head());
    for record in &mut run.ledger {
        if let Record::Undone { verdict, .. } = record {
            *verdict = Verdict::Dropped {
                reason: DropReason::Operator,
            };
        }
    }
    let found = run.audit(true).contradictions;
    assert!(
        found
            .iter()
            .any(|found| found.kind == Kind::TwoVerdicts && found.tf == Some(3))
    );
}
