//! Tests with a run of all possible events, spoilt in one place for each kind of contradiction.

use super::super::*;
use super::run::*;
use super::{begin, delivered, made, node, verdict};
use sheaf_protocol::{Attempt, Record, Role, TfId, Verdict};
use sheaf_verdict_log::event::{Event, StreamEvent};
use std::collections::BTreeSet;

type Spoil = fn(&mut Run);

/// The broken thing, the kind that must be found, and a part of its text. Findings of other kinds may follow.
const SPOILS: &[(Spoil, Kind, &str)] = &[
    (
        |run| drop(run.log(FLP0).remove(0)),
        Kind::GarbledLog,
        "flp:0 does not start with the line `begin`",
    ),
    (
        |run| {
            run.log(EPN0).insert(
                2,
                Event::Begin {
                    node: "epn:0".to_owned(),
                    incarnation: 200,
                },
            );
        },
        Kind::WrongLog,
        "epn:0 holds epn:0 (incarnation 200) and behind it epn:0 (incarnation 200)",
    ),
    (
        |run| {
            run.log(FLP1)[1] = Event::Run {
                run: "bb".to_owned(),
            }
        },
        Kind::ForeignRun,
        "several runs",
    ),
    (
        |run| run.replace(&Event::Leads { term: 2 }, &Event::Leads { term: 1 }),
        Kind::TwoLeaders,
        "in term 1 led icn:0 (incarnation 1) and icn:1 (incarnation 2)",
    ),
    (
        |run| {
            run.log(ICN1).retain(|line| *line != complete(6, 0));
            run.log(EPN0)
                .retain(|line| *line != delivered(6, &[0], &[]));
            run.ledger
                .retain(|record| recorded(&complete(6, 0)).as_ref() != Some(record));
        },
        Kind::NoVerdict,
        "TF 6 has no verdict, and the run is over",
    ),
    (
        |run| {
            let log = run.log(ICN1);
            let line = log
                .iter_mut()
                .find(|line| **line == complete(1, 1))
                .unwrap();
            *line = dropped(1, "operator");
        },
        Kind::TwoVerdicts,
        "TF 1 has 2 verdicts: complete at epn:1 (incarnation 201) by icn:0 (incarnation 1) in term 1, \
         dropped (operator) by icn:1 (incarnation 2) in term 2",
    ),
    (
        |run| run.log(ICN1).push(complete(6, 0)),
        Kind::TwoVerdicts,
        "TF 6 was decided 2 times by icn:1 (incarnation 2) in term 2",
    ),
    (
        |run| run.ledger.push(recorded(&complete(6, 0)).unwrap()),
        Kind::TwoVerdicts,
        "TF 6 was decided 2 times by the ledger of icn:1",
    ),
    (
        |run| run.replace(&complete(0, 0), &verdict(0, "built", Some(0), &[], None)),
        Kind::BadVerdict,
        "TF 0: \"built\" is no verdict",
    ),
    (
        |run| {
            run.replace(
                &complete(0, 0),
                &verdict(0, "complete", Some(0), &[1], None),
            );
        },
        Kind::BadVerdict,
        "TF 0 is complete with missing FLPs [1]",
    ),
    (
        |run| run.replace(&complete(0, 0), &verdict(0, "complete", None, &[], None)),
        Kind::BadVerdict,
        "TF 0 is complete, at EPN None",
    ),
    (
        |run| run.replace(&dropped(4, "source-overrun"), &dropped(4, "bad-luck")),
        Kind::BadReason,
        "TF 4 is dropped for \"bad-luck\", which is no reason",
    ),
    (
        |run| {
            run.replace(
                &dropped(4, "source-overrun"),
                &verdict(4, "dropped", None, &[], None),
            );
        },
        Kind::BadReason,
        "TF 4 is dropped without a reason",
    ),
    (
        |run| run.replace(&skipped(4), &made(1, 4)),
        Kind::BadReason,
        "TF 4 is dropped for source-overrun, and no FLP reports such a skip",
    ),
    (
        |run| run.log(ICN1).push(dropped(9, "operator")),
        Kind::MadeUp,
        "TF 9: no FLP reports that it made or skipped it",
    ),
    (
        |run| run.replace(&Event::Abandoned { tf: 5 }, &Event::Abandoned { tf: 4 }),
        Kind::BadAbandoned,
        "TF 4 is abandoned and was not built",
    ),
    (
        |run| run.log(ICN1).push(Event::Abandoned { tf: 5 }),
        Kind::BadAbandoned,
        "TF 5 is abandoned 2 times by icn:1 (incarnation 2) in term 2",
    ),
    (
        |run| run.replace(&sent(0, 1, 1, 0), &sent(0, 1, 1, 1)),
        Kind::NotSent,
        "TF 0: epn:0 (incarnation 200) has a part that flp:0 (incarnation 100) did not send there",
    ),
    (
        |run| run.log(FLP1).insert(3, sent(0, 1, 1, 1)),
        Kind::MixedTarget,
        "TF 0: assignment 1 of term 1 was sent to epn:0 (incarnation 200) and epn:1 (incarnation 201)",
    ),
    (
        |run| run.log(EPN0).insert(2, Event::Freed { tf: 0 }),
        Kind::BadFreed,
        "TF 0 was freed at epn:0 (incarnation 200), and no consumer there had it",
    ),
    (
        |run| run.log(EPN0).insert(2, delivered(1, &[0, 1], &[])),
        Kind::DeliveredTwice,
        "TF 1 was delivered by epn:0 (incarnation 200) and by epn:1 (incarnation 201)",
    ),
    (
        |run| run.log(EPN0).insert(2, delivered(4, &[0], &[])),
        Kind::DeliveredUnbidden,
        "TF 4 was delivered by epn:0 (incarnation 200), its verdict is dropped elsewhere",
    ),
    (
        |run| {
            run.log(EPN0).insert(
                2,
                Event::Begin {
                    node: "epn:0".to_owned(),
                    incarnation: 203,
                },
            );
            run.log(EPN0).insert(2, Event::End);
        },
        Kind::DeliveredUnbidden,
        "TF 0 was delivered by epn:0 (incarnation 203), its verdict is complete elsewhere",
    ),
    (
        |run| {
            run.log(EPN0)
                .retain(|line| *line != delivered(2, &[0, 1], &[]));
        },
        Kind::NotDelivered,
        "TF 2 is complete, and no EPN reports its delivery",
    ),
    (
        |run| run.replace(&Event::Abandoned { tf: 5 }, &Event::Called { tf: 5 }),
        Kind::NotDelivered,
        "TF 5 is complete, and no EPN reports its delivery",
    ),
    (
        |run| run.replace(&delivered(2, &[0, 1], &[]), &delivered(2, &[0], &[])),
        Kind::WrongParts,
        "TF 2 is complete without a part of flp:1 (incarnation 101)",
    ),
    (
        |run| run.replace(&delivered(6, &[0], &[]), &delivered(6, &[0, 1], &[])),
        Kind::WrongParts,
        "TF 6 is complete with a part of flp:1 (incarnation 101), which is not in its roster",
    ),
    (
        |run| run.replace(&roster(0, &[0, 1]), &roster(0, &[0])),
        Kind::WrongParts,
        "TF 3 misses flp:1, which is not in its roster",
    ),
    (
        |run| run.replace(&delivered(3, &[0], &[1]), &delivered(3, &[0], &[])),
        Kind::WrongParts,
        "TF 3 was delivered by epn:0 (incarnation 200) without FLPs [], its verdict says [1]",
    ),
    (
        |run| {
            run.replace(
                &made(1, 2),
                &Event::Made {
                    tf: 2,
                    bytes: 11,
                    digest: 1,
                },
            );
        },
        Kind::DigestMismatch,
        "TF 2: the part of flp:1 (incarnation 101) at epn:0 (incarnation 200) is not what it made",
    ),
    (
        |run| run.log(FLP1).retain(|line| *line != made(1, 1)),
        Kind::Hole,
        "flp:1 neither made nor skipped TFs 1 to 1",
    ),
    (
        |run| run.log(FLP1).push(made(1, 6)),
        Kind::Hole,
        "flp:1 made TF 6 twice",
    ),
    (
        |run| run.replace(&delivered(2, &[0, 1], &[]), &delivered(2, &[0], &[])),
        Kind::Books,
        "flp:1: of 5 STFs made, 1 are neither delivered nor accounted for",
    ),
];

/// Faults around a TF that was given back.
const GIVEN_BACK: &[(Spoil, &str)] = &[
    (
        |run| {
            run.log(EPN0)
                .retain(|line| *line != Event::Undelivered { tf: 7 });
        },
        "TF 7 is given back, and epn:0 (incarnation 200) does not report that it gave it",
    ),
    (
        |run| run.log(EPN0).insert(3, delivered(7, &[0], &[])),
        "TF 7 is given back and was delivered",
    ),
    (
        |run| run.log(ICN1).insert(13, Event::Undelivered { tf: 4 }),
        "TF 4 is given back and was not built",
    ),
    (
        |run| run.log(ICN1).insert(13, Event::Abandoned { tf: 7 }),
        "TF 7 is given back and abandoned",
    ),
];

#[test]
fn each_kind_of_contradiction_is_found_where_it_was_put() {
    // Some kinds need a witness of the processes, a second log, files, or a TF that was built again: they have tests of
    // their own.
    let mut kinds = BTreeSet::from([
        Kind::BadRedelivered,
        Kind::WrongMark,
        Kind::MissingLog,
        Kind::Ledger,
        Kind::SinkMissing,
        Kind::SinkDamaged,
        Kind::SinkTwice,
        Kind::SinkForeign,
    ]);
    for (spoil, kind, expected) in SPOILS {
        let mut run = Run::good();
        spoil(&mut run);
        let found = run.audit(expected.contains("ledger")).contradictions;
        let is_listed = found
            .iter()
            .any(|found| found.kind == *kind && found.text.contains(expected));
        assert!(is_listed, "{kind}: {expected:?} is not in {found:#?}");
        kinds.insert(*kind);
    }
    for (spoil, expected) in GIVEN_BACK {
        let mut run = Run::good();
        spoil(&mut run);
        let found = run.audit(false).contradictions;
        let is_listed = found
            .iter()
            .any(|found| found.kind == Kind::BadUndelivered && found.text == *expected);
        assert!(is_listed, "{expected:?} is not in {found:#?}");
        kinds.insert(Kind::BadUndelivered);
    }
    let all: BTreeSet<Kind> = Kind::ALL.into();
    assert_eq!(kinds, all, "every kind has a row");
}

#[test]
fn a_run_with_everything_that_may_happen_has_no_contradiction() {
    for with_ledger in [false, true] {
        let found = Run::good().audit(with_ledger);
        assert!(found.is_balanced(), "{:#?}", found.contradictions);
        let figures = (
            found.announced,
            found.complete,
            found.incomplete,
            found.dropped_total(),
            found.in_flight,
        );
        assert_eq!(figures, (8, 5, 1, 2, 0));
        assert_eq!(found.dropped["undelivered"], 1);
        assert_eq!(
            (found.delivered, found.abandoned, found.undelivered),
            (5, 1, 0)
        );
        let expected = if with_ledger {
            RosterSource::Ledger
        } else {
            RosterSource::IcnLogs
        };
        assert_eq!((found.roster_source, found.is_over), (expected, true));
        let flp1 = found.sources["flp:1"];
        assert_eq!((flp1.made, flp1.skipped, flp1.delivered), (5, 2, 3));
        assert_eq!(
            (flp1.abandoned, flp1.outside, flp1.unaccounted()),
            (1, 1, 0)
        );
    }
}

#[test]
fn an_icn_that_leads_again_reads_its_own_verdicts_from_the_log() {
    // icn:0 is deposed instead of killed, and leads again when icn:1 has decided everything.
    let mut run = Run::good();
    let decided = |log: &[Event]| -> Vec<Event> {
        let is_read = |line: &&Event| recorded(line).is_some();
        log.iter().filter(is_read).cloned().collect()
    };
    let all = [decided(run.log(ICN0)), decided(run.log(ICN1))].concat();
    let log = run.log(ICN0);
    log.push(Event::Deposed {
        term: 1,
        why: "test".to_owned(),
    });
    log.extend(all);
    log.push(Event::Leads { term: 3 });
    let found = run.audit(false);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    // A second decision in one term stays a contradiction.
    run.log(ICN0).extend([complete(6, 0), complete(6, 0)]);
    let found = run.audit(false).contradictions;
    assert_eq!(found[0].kind, Kind::TwoVerdicts, "{found:#?}");
}

#[test]
fn without_rosters_a_tf_needs_what_was_made_and_sent() {
    let mut run = Run::good();
    run.logs
        .values_mut()
        .for_each(|log| log.retain(|line| !matches!(line, Event::Roster { .. })));
    let found = run.audit(false);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!(found.roster_source, RosterSource::FlpLogs);
    run.replace(&delivered(2, &[0, 1], &[]), &delivered(2, &[0], &[]));
    let found = run.audit(false).contradictions;
    assert_eq!(found[0].kind, Kind::WrongParts);
    assert_eq!(found[0].text, "TF 2 is complete without a part of flp:1");
}

#[test]
fn a_run_that_was_cut_short_is_in_flight() {
    let mut run = Run::good();
    run.without_over();
    run.log(ICN1).retain(|line| *line != complete(6, 0));
    run.log(EPN0)
        .retain(|line| *line != delivered(6, &[0], &[]));
    run.log(EPN0)
        .retain(|line| *line != delivered(3, &[0], &[1]));
    let found = run.audit(false);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!((found.in_flight, found.undelivered), (1, 1));
}

#[test]
fn the_verdict_log_and_the_event_logs_are_compared() {
    let mut run = Run::good();
    let lost = recorded(&complete(2, 0)).unwrap();
    run.ledger.retain(|record| *record != lost);
    let found = run.audit(true).contradictions;
    assert_eq!(found[0].kind, Kind::Ledger);
    let expected =
        "TF 2 has a verdict by icn:0 (incarnation 1) in term 1, and none in the verdict log";
    assert_eq!(found[0].text, expected);

    let mut run = Run::good();
    run.logs
        .values_mut()
        .for_each(|log| log.retain(|line| *line != complete(2, 0)));
    let found = run.audit(true).contradictions;
    assert_eq!(
        found[0].text,
        "TF 2 has a verdict in the verdict log, and no event log of an ICN has it"
    );
    run.without_over();
    assert!(
        run.audit(true).is_balanced(),
        "its ICN may have been killed before it wrote it down"
    );

    let mut run = Run::good();
    run.ledger.push(Record::Verdict {
        tf: TfId(2),
        attempt: Attempt(1),
        verdict: Verdict::Complete { target: target(1) },
        bytes: 0,
    });
    let found = run.audit(true).contradictions;
    assert_eq!(found[0].kind, Kind::TwoVerdicts);
}

#[test]
fn the_verdict_log_alone_knows_the_verdicts() {
    let mut run = Run::good();
    run.logs.retain(|node, _| node.role != Role::Icn);
    let found = run.audit(true);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!((found.announced, found.is_over), (8, true));
}

#[test]
fn several_lives_may_stand_in_one_file() {
    let first = [begin(Role::Flp, 0), made(0, 0), made(0, 1)];
    let second = [
        Event::Begin {
            node: "flp:0".to_owned(),
            incarnation: 500,
        },
        made(0, 7),
        Event::End,
    ];
    let lines = |events: &[Event]| -> String {
        events
            .iter()
            .map(|event| serde_json::to_string(event).unwrap() + "\n")
            .collect()
    };
    for cut in [
        "",
        "{\"event\":\"made\",\"tf\":2,\"by",
        "{",
        "{\"event\":\"made\",\"tf\":2}",
    ] {
        let text = lines(&first) + cut + &lines(&second);
        let mut evidence = Evidence::default();
        evidence
            .take_in(text.as_bytes(), "flp-0.events", None, Fate::Unknown)
            .unwrap();
        let found = audit(&mut evidence, &Options::default());
        assert!(found.is_balanced(), "{cut:?}: {:#?}", found.contradictions);
        assert_eq!(
            evidence.lives(),
            Lives {
                flps: 2,
                ended: 1,
                ..Lives::default()
            }
        );
        // STFs of the killed life were never announced.
        assert_eq!((found.announced, found.unannounced), (1, 2));
        assert_eq!(evidence.work_of(node(Role::Flp, 0)).0, 3);
    }
}

#[test]
fn garbage_is_named_by_file_and_line() {
    let good = serde_json::to_string(&begin(Role::Flp, 0)).unwrap();
    let rows: [(&[u8], &str); 5] = [
        (b"\xff\xfe\0\n", "line 2 of flp-0.events is no event: "),
        (b"[]\n", "line 2 of flp-0.events is no event: "),
        (
            b"{\"event\":\"made\",\"tf\":-1}\n",
            "line 2 of flp-0.events is no event: ",
        ),
        (b"{\"event\":\"melted\"}\n", "unknown variant `melted`"),
        (
            b"{\"event\":\"begin\",\"node\":\"cat:0\",\"incarnation\":900}\n",
            "begins with \"cat:0\"",
        ),
    ];
    for (garbage, expected) in rows {
        let text = [good.as_bytes(), b"\n", garbage].concat();
        let mut evidence = Evidence::default();
        evidence
            .take_in(&text[..], "flp-0.events", None, Fate::Unknown)
            .unwrap();
        let found = audit(&mut evidence, &Options::default()).contradictions;
        assert_eq!(found[0].kind, Kind::GarbledLog);
        assert!(found[0].text.contains(expected), "{found:?}");
    }
}

#[test]
fn a_directory_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (node, log) in &Run::good().logs {
        let lines = log
            .iter()
            .map(|event| serde_json::to_string(event).unwrap() + "\n");
        let name = format!("{}-{}.events", node.role, node.index);
        std::fs::write(folder.path().join(name), lines.collect::<String>()).unwrap();
    }
    std::fs::write(folder.path().join("flp-0.log"), "no event log").unwrap();
    let mut evidence = Evidence::default();
    assert_eq!(evidence.read_dir(folder.path()).unwrap(), 6);
    let found = audit(&mut evidence, &Options::default());
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!(evidence.runs(), [RUN.to_string()]);
    assert_eq!(
        evidence.lives(),
        Lives {
            icns: 2,
            flps: 2,
            epns: 2,
            ended: 4
        }
    );
}

#[test]
fn what_a_later_life_found_published_is_the_same_delivery() {
    let mut run = Run::good();
    let recovered = |tf: u64, flps: &[u16]| {
        let Event::Delivered { parts, missing, .. } = delivered(tf, flps, &[]) else {
            panic!("it is a delivery")
        };
        Event::Recovered {
            tf,
            incarnation: 201,
            attempt: 1,
            parts,
            missing,
            streams: vec![StreamEvent {
                stream: "main".to_owned(),
                shed: None,
                refused: None,
            }],
        }
    };
    // TF 5 was not abandoned: the next life of its EPN finds it on the disk, and TF 1 as well.
    run.logs
        .values_mut()
        .for_each(|log| log.retain(|line| *line != Event::Abandoned { tf: 5 }));
    let next = [
        Event::Begin {
            node: "epn:1".to_owned(),
            incarnation: 300,
        },
        recovered(1, &[0, 1]),
        recovered(5, &[0, 1]),
        recovered(5, &[0, 1]),
        Event::End,
    ];
    run.log(EPN1).extend(next.clone());
    let found = run.audit(false);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!((found.delivered, found.abandoned), (6, 0));
    // TF 5 once, TF 1 as its own life said.
    assert_eq!(found.streams["main"].written, 1, "{:#?}", found.streams);
    run.log(EPN1).push(delivered(5, &[0, 1], &[]));
    let kinds: Vec<Kind> = run
        .audit(false)
        .contradictions
        .iter()
        .map(|found| found.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            Kind::DeliveredTwice,
            Kind::DeliveredUnbidden,
            Kind::NotSent,
            Kind::NotSent
        ]
    );
}

#[test]
fn former_runs_in_a_verdict_log_do_not_count() {
    let mut run = Run::good();
    let former = [
        Record::Opened {
            run: sheaf_protocol::RunId(0xbb),
        },
        recorded(&roster(0, &[7])).unwrap(),
        recorded(&complete(0, 1)).unwrap(),
        recorded(&dropped(1, "source-overrun")).unwrap(),
        Record::Over,
    ];
    run.ledger.splice(0..0, former);
    let lines = [
        Event::Run {
            run: "00000000000000bb".to_owned(),
        },
        complete(0, 1),
        Event::Over,
    ];
    run.log(ICN1).splice(
        3..3,
        lines.into_iter().chain([Event::Run {
            run: RUN.to_string(),
        }]),
    );
    run.log(ICN1).remove(1);
    let found = run.audit(true);
    assert!(found.is_balanced(), "{:#?}", found.contradictions);
    assert_eq!(run.evidence(true).runs(), [RUN.to_string()]);
}
