//! Tests that every rule meets a log that breaks it: a checker that cannot fail is worth nothing.

mod files;
mod kinds;
mod redelivered;
mod run;
mod sinks;
mod summed;

use super::*;
use sheaf_protocol::{NodeId, Role};
use sheaf_verdict_log::event::{Event, PartEvent};
use std::collections::BTreeMap;

const RUN: &str = "00000000000000aa";

/// Logs of a farm of two FLPs and two EPNs, as lists that a test spoils.
#[derive(Clone)]
struct Logs {
    flps: [Vec<Event>; 2],
    epns: [Vec<Event>; 2],
    icn: Vec<Event>,
    fates: BTreeMap<NodeId, Fate>,
    /// Bytes behind the last line of a log, without an end of line.
    cut: BTreeMap<NodeId, &'static str>,
    accounting: Accounting,
}

fn node(role: Role, index: u16) -> NodeId {
    NodeId { role, index }
}

const fn incarnation(role: Role, index: u16) -> u64 {
    match role {
        Role::Icn | Role::Operator | Role::Writer => 1 + index as u64,
        Role::Flp => 100 + index as u64,
        Role::Epn => 200 + index as u64,
    }
}

fn begin(role: Role, index: u16) -> Event {
    Event::Begin {
        node: node(role, index).to_string(),
        incarnation: incarnation(role, index),
    }
}

fn made(flp: u16, tf: u64) -> Event {
    Event::Made {
        tf,
        bytes: 10 + u64::from(flp),
        digest: 7 * u32::from(flp) + 1,
    }
}

fn part(flp: u16) -> PartEvent {
    let (bytes, digest) = (10 + u64::from(flp), 7 * u32::from(flp) + 1);
    PartEvent {
        flp,
        incarnation: incarnation(Role::Flp, flp),
        bytes,
        digest,
    }
}

fn sent(tf: u64, epn: u16) -> Event {
    Event::Sent {
        tf,
        term: 0,
        attempt: 1,
        epn,
        incarnation: incarnation(Role::Epn, epn),
    }
}

fn delivered(tf: u64, flps: &[u16], missing: &[u16]) -> Event {
    let parts = flps.iter().map(|flp| part(*flp)).collect();
    Event::Delivered {
        tf,
        attempt: 1,
        redelivered: false,
        parts,
        missing: missing.to_vec(),
        file: None,
        streams: Vec::new(),
        held: false,
    }
}

fn verdict(tf: u64, name: &str, epn: Option<u16>, missing: &[u16], reason: Option<&str>) -> Event {
    Event::Verdict {
        tf,
        verdict: name.to_owned(),
        epn,
        incarnation: epn.map(|epn| incarnation(Role::Epn, epn)),
        missing: missing.to_vec(),
        reason: reason.map(str::to_owned),
    }
}

impl Logs {
    /// Returns TFs 0 to 3, TF `t` complete on EPN `t` mod 2.
    fn good() -> Self {
        let run = || Event::Run {
            run: RUN.to_owned(),
        };
        let flp = |flp| {
            let stfs = (0..4).flat_map(|tf| [made(flp, tf), sent(tf, (tf % 2) as u16)]);
            [begin(Role::Flp, flp), run()]
                .into_iter()
                .chain(stfs)
                .collect()
        };
        let epn = |epn: u16| {
            let tfs = [u64::from(epn), u64::from(epn) + 2].map(|tf| delivered(tf, &[0, 1], &[]));
            [begin(Role::Epn, epn)].into_iter().chain(tfs).collect()
        };
        let verdicts = (0..4).map(|tf| verdict(tf, "complete", Some((tf % 2) as u16), &[], None));
        Self {
            flps: [flp(0), flp(1)],
            epns: [epn(0), epn(1)],
            icn: [begin(Role::Icn, 0), run()]
                .into_iter()
                .chain(verdicts)
                .collect(),
            fates: BTreeMap::new(),
            cut: BTreeMap::new(),
            accounting: Accounting {
                announced: 4,
                complete: 4,
                bytes: 4 * 21,
                ..Accounting::default()
            },
        }
    }

    fn audit(&self) -> Audit {
        let mut evidence = Evidence::default();
        let flps = self
            .flps
            .iter()
            .zip(0..)
            .map(|(log, index)| (node(Role::Flp, index), log));
        let epns = self
            .epns
            .iter()
            .zip(0..)
            .map(|(log, index)| (node(Role::Epn, index), log));
        for (node, log) in flps.chain(epns).chain([(NodeId::ICN, &self.icn)]) {
            let mut text: String = log
                .iter()
                .map(|event| serde_json::to_string(event).unwrap() + "\n")
                .collect();
            text.push_str(self.cut.get(&node).copied().unwrap_or(""));
            let fate = self.fates.get(&node).copied().unwrap_or(Fate::Ended);
            let name = format!("the log of {node}");
            evidence
                .take_in(text.as_bytes(), &name, Some(node), fate)
                .unwrap();
        }
        let accounting = Some(self.accounting.clone());
        audit(
            &mut evidence,
            &Options {
                accounting,
                ..Options::default()
            },
        )
    }

    /// Replaces the last verdict by another one, and adapts the accounting.
    fn decide_last(&mut self, verdict: Event, change: impl FnOnce(&mut Accounting)) {
        *self.icn.last_mut().unwrap() = verdict;
        change(&mut self.accounting);
    }
}

/// Spoils good logs and expects this contradiction among those found.
#[track_caller]
fn check(spoil: impl FnOnce(&mut Logs), expected: &str) -> Audit {
    let mut logs = Logs::good();
    spoil(&mut logs);
    let audit = logs.audit();
    assert!(
        !audit.is_balanced(),
        "nothing was found, {expected:?} was expected"
    );
    let is_listed = audit
        .contradictions
        .iter()
        .any(|found| found.text.contains(expected));
    assert!(
        is_listed,
        "{:#?} do not tell {expected:?}",
        audit.contradictions
    );
    audit
}

/// Changes good logs in a legitimate way.
#[track_caller]
fn check_good(change: impl FnOnce(&mut Logs)) -> Audit {
    let mut logs = Logs::good();
    change(&mut logs);
    let audit = logs.audit();
    assert!(audit.is_balanced(), "{audit:#?}");
    audit
}

#[test]
fn a_good_run_has_no_contradiction() {
    let audit = check_good(|_| {});
    let figures = (
        audit.announced,
        audit.complete,
        audit.in_flight,
        audit.bytes,
    );
    assert_eq!(figures, (4, 4, 0, 84));
    let wrong = (
        audit.mixed_target,
        audit.delivered_twice,
        audit.digest_mismatch,
    );
    assert_eq!(wrong, (0, 0, 0));
}

#[test]
fn a_tf_without_a_verdict_is_in_flight() {
    let audit = check(
        |logs| {
            logs.icn.pop();
            logs.epns[1].pop();
        },
        "in flight: the logs say 1, the accounting of the ICN 0",
    );
    assert_eq!((audit.announced, audit.in_flight), (4, 1));
}

#[test]
fn a_run_that_was_cut_short_balances_with_tfs_in_flight() {
    let audit = check_good(|logs| {
        logs.icn.pop();
        logs.epns[1].pop();
        logs.accounting.complete = 3;
        logs.accounting.in_flight = 1;
        logs.accounting.bytes = 63;
    });
    assert_eq!(audit.in_flight, 1);
}

#[test]
fn a_tf_with_two_verdicts_breaks_the_sum() {
    let audit = check(
        |logs| {
            logs.icn
                .push(verdict(3, "dropped", None, &[], Some("source-late")));
            logs.accounting.dropped.insert("source-late".to_owned(), 1);
        },
        "TF 3 has 2 verdicts",
    );
    assert_eq!(audit.complete + audit.dropped_total(), audit.announced + 1);
}

#[test]
fn a_tf_that_the_icn_made_up_is_found() {
    check(
        |logs| {
            logs.icn
                .push(verdict(9, "dropped", None, &[], Some("operator")));
            logs.accounting.dropped.insert("operator".to_owned(), 1);
            logs.accounting.announced += 1;
        },
        "TF 9: no FLP reports that it made or skipped it",
    );
}

#[test]
fn every_figure_of_the_books_is_compared() {
    check(
        |logs| logs.accounting.announced += 1,
        "announced: the logs say 4, the accounting of the ICN 5",
    );
    check(
        |logs| logs.accounting.complete -= 1,
        "complete: the logs say 4",
    );
    check(
        |logs| logs.accounting.incomplete += 1,
        "incomplete: the logs say 0",
    );
    check(
        |logs| logs.accounting.in_flight += 1,
        "in flight: the logs say 0",
    );
    check(
        |logs| logs.accounting.abandoned += 1,
        "abandoned: the logs say 0",
    );
    check(|logs| logs.accounting.bytes += 1, "bytes: the logs say 84");
    check(
        |logs| logs.accounting.dropped.extend([("oversize".to_owned(), 2)]),
        "oversize: the logs say 0, the accounting of the ICN 2",
    );
}

#[test]
fn a_tf_delivered_twice_is_counted() {
    let audit = check(
        |logs| logs.epns[0].push(delivered(3, &[0, 1], &[])),
        "TF 3 was delivered by epn:0 (incarnation 200) and by epn:1 (incarnation 201)",
    );
    assert_eq!(audit.delivered_twice, 1);
    let audit = check(
        |logs| logs.epns[1].push(delivered(3, &[0, 1], &[])),
        "TF 3 was delivered",
    );
    assert_eq!(audit.delivered_twice, 1, "twice by the same EPN");
}

#[test]
fn a_tf_sent_to_two_epns_by_one_assignment_is_mixed() {
    let audit = check(
        |logs| logs.flps[1].push(sent(2, 1)),
        "TF 2: assignment 1 was sent to epn:0 (incarnation 200) and epn:1 (incarnation 201)",
    );
    assert_eq!(audit.mixed_target, 1);
}

#[test]
fn a_tf_that_moved_by_a_second_assignment_is_not_mixed() {
    check_good(|logs| {
        logs.flps[1].push(Event::Sent {
            tf: 2,
            term: 0,
            attempt: 2,
            epn: 1,
            incarnation: 201,
        });
    });
}

#[test]
fn a_part_that_is_not_what_was_made_is_a_digest_mismatch() {
    let spoil_part = |spoil: fn(&mut PartEvent)| {
        move |logs: &mut Logs| {
            if let Event::Delivered { parts, .. } = logs.epns[1].last_mut().unwrap() {
                spoil(&mut parts[0]);
            }
        }
    };
    let is_other =
        "TF 3: the part of flp:0 (incarnation 100) at epn:1 (incarnation 201) is not what it made";
    let audit = check(spoil_part(|part| part.digest += 1), is_other);
    assert_eq!(audit.digest_mismatch, 1);
    let audit = check(spoil_part(|part| part.bytes += 1), is_other);
    assert_eq!(audit.digest_mismatch, 1);
    let of_no_flp = spoil_part(|part| part.incarnation += 1);
    let audit = check(of_no_flp, "flp:0 (incarnation 101) did not make the part");
    assert_eq!(audit.digest_mismatch, 1);
}

#[test]
fn a_part_without_a_made_line_is_a_digest_mismatch() {
    let audit = check(
        |logs| logs.flps[0].retain(|event| *event != made(0, 3)),
        "TF 3: flp:0 (incarnation 100) did not make the part",
    );
    assert_eq!(audit.digest_mismatch, 1);
}

#[test]
fn a_part_that_was_never_sent_there_is_found() {
    check(
        |logs| logs.flps[0].retain(|event| *event != sent(3, 1)),
        "TF 3: epn:1 (incarnation 201) has a part that flp:0 (incarnation 100) did not send there",
    );
}

#[test]
fn a_complete_tf_without_a_delivery_is_found() {
    let lose = |logs: &mut Logs| drop(logs.epns[1].pop());
    check(lose, "TF 3 is complete, and no EPN reports its delivery");
}

#[test]
fn an_abandoned_tf_needs_no_delivery() {
    let abandon = |logs: &mut Logs| {
        logs.epns[1].pop();
        logs.icn.push(Event::Abandoned { tf: 3 });
        logs.accounting.abandoned = 1;
    };
    let audit = check_good(abandon);
    assert_eq!((audit.complete, audit.abandoned), (4, 1));
    assert_eq!(audit.bytes, 84, "what its FLPs made");
}

#[test]
fn a_tf_whose_consumer_had_not_finished_is_counted_when_its_epn_ends() {
    let hold = |log: &mut Vec<Event>| {
        for line in log {
            if let Event::Delivered { held, .. } = line {
                *held = true;
            }
        }
    };
    let found = |over: bool, fate: Fate| {
        let audit = check_good(|logs| {
            hold(&mut logs.epns[1]);
            logs.epns[1].push(Event::Freed { tf: 1 });
            logs.fates.insert(node(Role::Epn, 1), fate);
            logs.icn.extend(over.then_some(Event::Over));
        });
        (audit.died_unprocessed, audit.unprocessed)
    };
    assert_eq!(found(true, Fate::Killed), (1, 0));
    assert_eq!(found(true, Fate::Ended), (0, 1));
    assert_eq!(found(false, Fate::Ended), (0, 0), "it may still do so");
    let strange = |logs: &mut Logs| logs.epns[1].push(Event::Freed { tf: 3 });
    check(strange, "TF 3 was freed at epn:1");
}

#[test]
fn only_a_built_tf_can_be_abandoned_and_only_once() {
    let drop_last = |logs: &mut Logs| {
        logs.epns[1].pop();
        logs.decide_last(
            verdict(3, "dropped", None, &[], Some("operator")),
            |accounting| {
                accounting.complete = 3;
                accounting.dropped.insert("operator".to_owned(), 1);
                accounting.abandoned = 1;
            },
        );
        logs.icn.push(Event::Abandoned { tf: 3 });
    };
    check(drop_last, "TF 3 is abandoned and was not built");
    let twice = |logs: &mut Logs| {
        logs.icn.insert(1, Event::Leads { term: 1 });
        logs.icn.extend([3, 3].map(|tf| Event::Abandoned { tf }));
    };
    check(
        twice,
        "TF 3 is abandoned 2 times by icn:0 (incarnation 1) in term 1",
    );
}

#[test]
fn a_tf_delivered_without_its_verdict_is_found() {
    let forget = |logs: &mut Logs| drop(logs.icn.pop());
    check(
        forget,
        "TF 3 was delivered by epn:1 (incarnation 201) without a verdict",
    );
    let dropped = verdict(3, "dropped", None, &[], Some("operator"));
    check(
        |logs| logs.decide_last(dropped, |_| {}),
        "its verdict is dropped elsewhere",
    );
    let elsewhere = verdict(3, "complete", Some(0), &[], None);
    check(
        |logs| logs.decide_last(elsewhere, |_| {}),
        "TF 3 was delivered by epn:1 (incarnation 201), its verdict is complete elsewhere",
    );
}

#[test]
fn a_complete_tf_needs_a_part_of_every_flp_that_was_left_in_peace() {
    let lose_part = |logs: &mut Logs| *logs.epns[1].last_mut().unwrap() = delivered(3, &[1], &[]);
    check(lose_part, "TF 3 is complete without a part of flp:0");
    let skip = |logs: &mut Logs| {
        lose_part(logs);
        logs.flps[0].truncate(8);
        logs.flps[0].push(Event::Skipped {
            tf: 3,
            reason: "source-overrun".to_owned(),
        });
    };
    check(skip, "TF 3 is complete without a part of flp:0");
}

#[test]
fn the_missing_list_must_agree_between_epn_and_verdict() {
    let incomplete = verdict(3, "incomplete", Some(1), &[0], None);
    let change = |accounting: &mut Accounting| {
        (accounting.complete, accounting.incomplete, accounting.bytes) = (3, 1, 74);
    };
    let agree = |logs: &mut Logs| {
        *logs.epns[1].last_mut().unwrap() = delivered(3, &[1], &[0]);
        logs.decide_last(incomplete.clone(), change);
    };
    let audit = check_good(agree);
    assert_eq!(audit.missing, BTreeMap::from([("flp:0".to_owned(), 1)]));
    check(
        |logs| {
            agree(logs);
            *logs.epns[1].last_mut().unwrap() = delivered(3, &[1], &[]);
        },
        "without FLPs [], its verdict says [0]",
    );
    let whole = verdict(3, "incomplete", Some(1), &[], None);
    check(
        |logs| logs.decide_last(whole, |_| {}),
        "TF 3 is incomplete with missing FLPs []",
    );
    check(
        |logs| *logs.epns[1].last_mut().unwrap() = delivered(3, &[0, 1, 1], &[]),
        "TF 3: flp:1 is twice in the list of parts",
    );
}

#[test]
fn an_flp_forgets_no_tf() {
    let forget = |logs: &mut Logs| logs.flps[0].retain(|event| *event != made(0, 1));
    check(forget, "flp:0 neither made nor skipped TFs 1 to 1");
    check(
        |logs| logs.flps[0].push(made(0, 3)),
        "flp:0 made TF 3 twice",
    );
}

#[test]
fn an_flp_may_pass_over_a_tf_that_was_dropped_before_it_came_to_it() {
    let overrun = |logs: &mut Logs| {
        let skipped = Event::Skipped {
            tf: 1,
            reason: "source-overrun".to_owned(),
        };
        logs.flps[0].retain(|event| *event != made(0, 1) && *event != sent(1, 1));
        logs.flps[1].retain(|event| *event != sent(1, 1));
        for event in &mut logs.flps[1] {
            if *event == made(1, 1) {
                *event = skipped.clone();
            }
        }
        logs.epns[1].retain(|event| *event != delivered(1, &[0, 1], &[]));
        let complete = verdict(1, "complete", Some(1), &[], None);
        for event in &mut logs.icn {
            if *event == complete {
                *event = verdict(1, "dropped", None, &[], Some("source-overrun"));
            }
        }
        logs.accounting = Accounting {
            complete: 3,
            bytes: 3 * 21,
            dropped: BTreeMap::from([("source-overrun".to_owned(), 1)]),
            ..logs.accounting.clone()
        };
    };
    check_good(overrun);
}

#[test]
fn logs_of_two_runs_are_told_apart() {
    check(
        |logs| {
            logs.flps[1][1] = Event::Run {
                run: "00000000000000bb".to_owned(),
            }
        },
        "the logs are of several runs: 00000000000000aa by flp:0, 00000000000000bb by flp:1",
    );
}

#[test]
fn the_cut_last_line_of_a_killed_process_is_no_line() {
    let cut = "{\"event\":\"made\",\"tf\":4,\"bytes\":1";
    check_good(|logs| {
        logs.cut.insert(node(Role::Flp, 1), cut);
        logs.fates.insert(node(Role::Flp, 1), Fate::Killed);
    });
    let of_a_living = |logs: &mut Logs| logs.cut.extend([(node(Role::Flp, 1), cut)]);
    check(of_a_living, "line 11 of the log of flp:1 is no event");
    // The end of the number may be lost as well.
    let could_be_whole = "{\"event\":\"called\",\"tf\":4}";
    let cut_after = |logs: &mut Logs| logs.cut.extend([(NodeId::ICN, could_be_whole)]);
    check(cut_after, "line 7 of the log of icn:0 is cut");
    check_good(|logs| {
        logs.cut.insert(NodeId::ICN, could_be_whole);
        logs.fates.insert(NodeId::ICN, Fate::Killed);
    });
}

#[test]
fn a_log_in_the_wrong_place_is_found() {
    check(
        |logs| logs.epns.swap(0, 1),
        "the log of epn:0 is that of epn:1",
    );
    check(
        |logs| logs.flps[0].push(begin(Role::Flp, 0)),
        "the log of flp:0 holds flp:0 (incarnation 100) and behind it flp:0 (incarnation 100)",
    );
}

#[test]
fn what_only_a_killed_flp_knew_was_not_announced() {
    let killed = |logs: &mut Logs| {
        logs.flps[1].push(made(1, 4));
        logs.fates.insert(node(Role::Flp, 1), Fate::Killed);
    };
    let audit = check_good(killed);
    assert_eq!((audit.announced, audit.unannounced), (4, 1));
    let audit = check(
        |logs| {
            killed(logs);
            logs.accounting.announced = 5;
        },
        "in flight: the logs say 1, the accounting of the ICN 0",
    );
    assert_eq!(
        (audit.announced, audit.unannounced),
        (5, 0),
        "the ICN had received it"
    );
    check(
        |logs| logs.flps[1].push(made(1, 4)),
        "announced: the logs say 5",
    );
}

#[test]
fn a_tf_that_the_icn_called_for_exists() {
    let call = |logs: &mut Logs| logs.icn.push(Event::Called { tf: 4 });
    let audit = check(
        call,
        "announced: the logs say 5, the accounting of the ICN 4",
    );
    assert_eq!(audit.in_flight, 1);
}

#[test]
fn what_a_consumer_finds_is_counted() {
    let fault = Event::Fault {
        tf: 3,
        detail: "page counter jumps".to_owned(),
    };
    let audit = check_good(|logs| logs.epns[1].push(fault));
    assert_eq!(audit.consumer_faults, 1);
}

#[test]
fn a_missing_log_is_found_unless_its_process_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epn-0.events");
    let mut evidence = Evidence::default();
    let epn = Some(node(Role::Epn, 0));
    evidence.read(&path, epn, Fate::Killed).unwrap();
    assert!(audit(&mut evidence, &Options::default()).is_balanced());
    evidence.read(&path, epn, Fate::Ended).unwrap();
    let found = audit(&mut evidence, &Options::default()).contradictions;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, Kind::MissingLog);
    assert_eq!(found[0].to_string(), "epn:0 has no event log");
}

#[test]
fn contradictions_are_listed_in_part_and_counted_in_full() {
    let mut logs = Logs::good();
    logs.icn.extend((100..200).map(|tf| Event::Called { tf }));
    logs.icn
        .extend((100..200).map(|tf| Event::Abandoned { tf }));
    let audit = logs.audit();
    assert_eq!(audit.contradictions.len(), 20);
    assert_eq!(audit.contradictions_total, 100 + 3); // and three figures of the books
}
