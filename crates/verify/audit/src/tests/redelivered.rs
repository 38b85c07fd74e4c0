//! Tests of TFs that were built again: two deliveries are in order with a record and a mark, and in no other way.

use super::super::*;
use super::delivered;
use super::part;
use super::run::*;
use sheaf_protocol::{Attempt, Checkpoint, FlpId, Record, Role, RosterId, TfId, Verdict};
use sheaf_verdict_log::event::Event;

const BOTH: &[u16] = &[0, 1];

type Spoil = fn(&mut Run);

pub(super) fn redelivered(tf: u64, epn: u16, missing: &[u16]) -> Event {
    let name = if missing.is_empty() {
        "complete"
    } else {
        "incomplete"
    };
    Event::Redelivered {
        tf,
        verdict: name.to_owned(),
        epn,
        incarnation: super::incarnation(Role::Epn, epn),
        missing: missing.to_vec(),
    }
}

fn amendment(tf: u64, epn: u16, missing: &[u16]) -> Record {
    let target = target(epn);
    let missing: Vec<FlpId> = missing.iter().map(|flp| FlpId(*flp)).collect();
    Record::Redelivered {
        tf: TfId(tf),
        attempt: Attempt(2),
        verdict: if missing.is_empty() {
            Verdict::Complete { target }
        } else {
            Verdict::Incomplete { target, missing }
        },
        bytes: 0,
    }
}

pub(super) fn marked(tf: u64, flps: &[u16], missing: &[u16]) -> Event {
    let Event::Delivered {
        tf,
        attempt,
        parts,
        missing,
        file,
        streams,
        ..
    } = delivered(tf, flps, missing)
    else {
        unreachable!()
    };
    Event::Delivered {
        tf,
        attempt,
        redelivered: true,
        parts,
        missing,
        file,
        streams,
        held: false,
    }
}

/// Returns the good run in which TF 5 is not abandoned: EPN 1 delivers it and is killed before it acknowledges, EPN 0
/// builds it again.
pub(super) fn again(missing: &[u16]) -> Run {
    let mut run = Run::good();
    let abandoned = Event::Abandoned { tf: 5 };
    run.replace(&abandoned, &redelivered(5, 0, missing));
    let at = run
        .ledger
        .iter()
        .position(|record| Some(record) == recorded(&abandoned).as_ref());
    run.ledger[at.unwrap()] = amendment(5, 0, missing);
    let flps: Vec<u16> = BOTH
        .iter()
        .copied()
        .filter(|flp| !missing.contains(flp))
        .collect();
    for flp in &flps {
        let log = run.log(if *flp == 0 { FLP0 } else { FLP1 });
        log.insert(log.len() - 1, sent(5, 2, 2, 0));
    }
    run.log(EPN0).insert(5, marked(5, &flps, missing));
    run.log(EPN1).push(delivered(5, BOTH, &[]));
    run
}

#[test]
fn a_second_delivery_with_record_and_mark_is_no_contradiction() {
    for with_ledger in [false, true] {
        let found = again(&[]).audit(with_ledger);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        assert_eq!(
            (found.complete, found.incomplete, found.abandoned),
            (5, 1, 0)
        );
        assert_eq!((found.redelivered, found.delivered_again), (1, 1));
        assert_eq!((found.delivered, found.delivered_twice), (7, 0));
        // The first EPN may have died before its consumer had the TF.
        let mut run = again(&[]);
        run.log(EPN1).pop();
        let found = run.audit(with_ledger);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        assert_eq!((found.redelivered, found.delivered_again), (1, 0));
    }
}

#[test]
fn the_last_amendment_counts_and_each_delivery_is_held_against_its_own() {
    for with_ledger in [false, true] {
        let found = again(&[1]).audit(with_ledger);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        assert_eq!((found.complete, found.incomplete), (4, 2));
        assert_eq!((found.redelivered, found.delivered_again), (1, 1));
    }
}

#[test]
fn what_a_second_delivery_lacks_is_found() {
    let spoils: &[(Spoil, Kind, &str)] = &[
        (
            |run| run.replace(&marked(5, BOTH, &[]), &delivered(5, BOTH, &[])),
            Kind::WrongMark,
            "TF 5 was delivered by epn:0 (incarnation 200) without the mark of a TF that is redelivered, after an \
             amendment",
        ),
        (
            |run| run.replace(&delivered(5, BOTH, &[]), &marked(5, BOTH, &[])),
            Kind::WrongMark,
            "TF 5 was delivered by epn:1 (incarnation 201) with the mark of a TF that is redelivered, by its first \
             verdict",
        ),
        (
            |run| run.replace(&delivered(2, BOTH, &[]), &marked(2, BOTH, &[])),
            Kind::WrongMark,
            "TF 2 was delivered by epn:0 (incarnation 200) with the mark",
        ),
        (
            |run| {
                run.log(ICN1).retain(|line| *line != redelivered(5, 0, &[]));
                run.ledger.retain(|record| *record != amendment(5, 0, &[]));
            },
            Kind::DeliveredTwice,
            "TF 5 was delivered by epn:0 (incarnation 200) and by epn:1 (incarnation 201)",
        ),
        (
            |run| {
                run.log(ICN1).retain(|line| *line != redelivered(5, 0, &[]));
                run.ledger.retain(|record| *record != amendment(5, 0, &[]));
            },
            Kind::DeliveredUnbidden,
            "TF 5 was delivered by epn:0 (incarnation 200), its verdict is complete elsewhere",
        ),
        (
            |run| run.log(EPN0).insert(5, marked(5, BOTH, &[])),
            Kind::DeliveredTwice,
            "TF 5 was delivered by epn:0 (incarnation 200) and by epn:0",
        ),
        (
            |run| {
                let (from, to) = (complete(5, 1), super::run::dropped(5, "source-overrun"));
                run.replace(&from, &to);
            },
            Kind::BadRedelivered,
            "TF 5 is redelivered and was not built",
        ),
        (
            |run| {
                let at = run.log(ICN1).len() - 2;
                run.log(ICN1).insert(at, redelivered(5, 0, &[]));
            },
            Kind::BadRedelivered,
            "TF 5 is redelivered 2 times by icn:1 (incarnation 2) in term 2",
        ),
        (
            |run| run.ledger.retain(|record| *record != amendment(5, 0, &[])),
            Kind::Ledger,
            "TF 5 is redelivered as complete, and the verdict log has no such amendment",
        ),
        (
            |run| run.log(ICN1).insert(13, Event::Undelivered { tf: 5 }),
            Kind::BadUndelivered,
            "TF 5 is given back and redelivered",
        ),
    ];
    for (spoil, kind, expected) in spoils {
        let mut run = again(&[]);
        spoil(&mut run);
        let found = run.audit(true).contradictions;
        let is_listed = found
            .iter()
            .any(|found| found.kind == *kind && found.text.contains(expected));
        assert!(is_listed, "{kind}: {expected:?} is not in {found:#?}");
    }
}

#[test]
fn the_parts_of_each_delivery_are_those_of_its_verdict() {
    let mut run = again(&[1]);
    run.replace(&marked(5, &[0], &[1]), &marked(5, BOTH, &[]));
    let found = run.audit(true).contradictions;
    let expected =
        "TF 5 was delivered by epn:0 (incarnation 200) without FLPs [], its verdict says [1]";
    assert!(
        found.iter().any(|found| found.text == expected),
        "{found:#?}"
    );
}

#[test]
fn a_checkpoint_counts_the_verdict_that_was_in_force() {
    // TF 5 is undone, and amended from complete to incomplete before or behind the checkpoint.
    for is_before in [true, false] {
        let mut run = again(&[1]);
        let of = |wanted: &Event| recorded(wanted).unwrap();
        let verdict_at = run
            .ledger
            .iter()
            .position(|record| *record == of(&complete(5, 1)));
        let end = verdict_at.unwrap() + 1 + usize::from(is_before);
        let (complete, incomplete) = if is_before { (3, 2) } else { (4, 1) };
        let mut dropped = [0; sheaf_protocol::DropReason::ALL.len()];
        dropped[sheaf_protocol::DropReason::SourceOverrun.index()] = 1;
        let head = Record::Checkpoint(Box::new(Checkpoint {
            run: RUN,
            frontier: TfId(6),
            last_roster: RosterId(1),
            floor: TfId(5),
            complete,
            incomplete,
            dropped,
            ..Checkpoint::default()
        }));
        let (tf, attempt, bytes) = (TfId(5), Attempt(1), 0);
        let undone = if is_before {
            let Record::Redelivered { verdict, .. } = amendment(5, 0, &[1]) else {
                unreachable!()
            };
            vec![
                Record::UndoneRedelivered {
                    tf,
                    attempt,
                    verdict,
                    bytes,
                },
                Record::RedeliveredTotal { tfs: 1 },
            ]
        } else {
            let target = target(1);
            let verdict = Verdict::Complete { target };
            vec![Record::Undone {
                tf,
                attempt,
                verdict,
                bytes,
            }]
        };
        let roster = of(&roster(0, &[0, 1]));
        let records = [head, roster].into_iter().chain(undone);
        // In the middle of the log, and at its begin.
        let mut whole = run.clone();
        whole.ledger.splice(end..end, records.clone());
        run.ledger.splice(..end, records);
        for run in [whole, run] {
            let found = run.audit(true);
            assert!(
                found.is_balanced(),
                "{is_before} {:#?}",
                found.contradictions
            );
            assert_eq!((found.complete, found.redelivered), (4, 1));
        }
    }
}

#[test]
fn sinks_may_have_a_tf_twice_if_it_was_delivered_twice() {
    let stored = |redelivered: bool| Stored::Tf {
        tf: 5,
        run: RUN.to_string(),
        redelivered,
        parts: BOTH.iter().map(|flp| part(*flp)).collect(),
        missing: Vec::new(),
        streams: Vec::new(),
    };
    let kinds = |run: &Run, files: &[bool]| -> Vec<Kind> {
        let mut evidence = run.evidence(true);
        evidence.begin_sinks();
        for (place, is_marked) in files.iter().enumerate() {
            evidence.add_stored(format!("dir-{place}/tf-5.tf"), stored(*is_marked));
        }
        let found = audit(&mut evidence, &Options::default()).contradictions;
        let of_tf = found.iter().filter(|found| found.tf == Some(5));
        of_tf.map(|found| found.kind).collect()
    };
    let run = again(&[]);
    assert_eq!(kinds(&run, &[false, true]), []);
    // In a directory that EPNs share, the later one has replaced the other.
    assert_eq!(kinds(&run, &[true]), []);
    assert_eq!(kinds(&run, &[]), [Kind::SinkMissing, Kind::SinkMissing]);
    assert_eq!(kinds(&run, &[false, true, true]), [Kind::SinkTwice]);
    // An EPN that was killed may have written what it could not report.
    let mut unsaid = again(&[]);
    unsaid.log(EPN1).pop();
    assert_eq!(kinds(&unsaid, &[false, true]), []);
    let mut once = Run::good();
    once.log(EPN1).push(delivered(5, BOTH, &[]));
    assert_eq!(kinds(&once, &[false, false]), [Kind::SinkTwice]);
}

#[test]
fn a_tf_that_another_epn_has_finished_did_not_die_unprocessed() {
    let mut run = again(&[]);
    for log in [EPN0, EPN1] {
        for line in run.log(log) {
            if let Event::Delivered { tf: 5, held, .. } = line {
                *held = true;
            }
        }
    }
    let unfinished = |run: &mut Run| {
        let found = run.audit(true);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        found.died_unprocessed + found.unprocessed
    };
    assert_eq!(unfinished(&mut run), 2);
    run.log(EPN0).insert(6, Event::Freed { tf: 5 });
    assert_eq!(unfinished(&mut run), 0);
}
