//! Tests that, for any history, a log that begins at a checkpoint gives the same leader as the whole log.

use super::*;
use crate::scheduler::{RunPlan, Scheduler, SchedulerConfig};
use proptest::prelude::*;
use sheaf_protocol::{DropReason, Incarnation, RosterId, Source, Target};

const RUN: RunId = RunId(3);
const NOW: Timestamp = Timestamp(5_000_000_000);

/// One step of a history: the event, its TF, and two more numbers.
type HistoryStep = (u8, u64, u64, u64);

fn steps() -> impl Strategy<Value = Vec<HistoryStep>> {
    prop::collection::vec((0_u8..15, 0_u64..40, 0_u64..6, 0_u64..6), 0..200)
}

/// Returns the records of a history that a leader could write, without checkpoints.
fn history(steps: &[HistoryStep]) -> Vec<Record> {
    let mut records = vec![Record::Opened { run: RUN }];
    let mut decided: BTreeMap<TfId, bool> = BTreeMap::new();
    let (mut rosters, mut first, mut is_stopping) = (0, TfId(0), false);
    for (code, at, a, b) in steps.iter().copied() {
        // Near the end of the decided TFs, so that the floor moves on and some TFs stay behind.
        let tf = TfId(first.0 + at);
        let target = Target {
            epn: EpnId(u16::try_from(a).unwrap()),
            incarnation: Incarnation(b + 1),
        };
        match code {
            0..=6 if rosters > 0 && !decided.contains_key(&tf) => {
                let verdict = match code {
                    0..=3 => Verdict::Complete { target },
                    4 | 5 => Verdict::Incomplete {
                        target,
                        missing: vec![FlpId(u16::try_from(b).unwrap())],
                    },
                    _ => Verdict::Dropped {
                        reason: DropReason::ALL[usize::try_from(a).unwrap()],
                    },
                };
                decided.insert(tf, code < 6);
                let attempt = Attempt(1 + u32::try_from(b % 3).unwrap());
                let bytes = if code < 6 { 100 + at } else { 0 };
                records.push(Record::Verdict {
                    tf,
                    attempt,
                    verdict,
                    bytes,
                });
            }
            7 | 8 => {
                let end = TfId(tf.0 + a * 4 + 1);
                records.push(Record::Done {
                    ranges: vec![(tf, end)],
                });
                first = TfId(first.0 + b);
            }
            9 if decided.get(&tf) == Some(&true) => {
                decided.insert(tf, false);
                records.push(Record::Abandoned { tf, target });
            }
            10 => {
                rosters += 1;
                let member = |flp: u64| Source {
                    flp: FlpId(u16::try_from(flp).unwrap()),
                    incarnation: Incarnation(b + 1),
                };
                records.push(Record::Roster {
                    id: RosterId(rosters),
                    first: if rosters == 1 { TfId(0) } else { tf },
                    members: (0..=a).map(member).collect(),
                });
            }
            14 if decided.get(&tf) == Some(&true) => records.push(Record::Redelivered {
                tf,
                attempt: Attempt(2 + u32::try_from(b % 3).unwrap()),
                verdict: if at % 2 == 0 {
                    Verdict::Complete { target }
                } else {
                    Verdict::Incomplete {
                        target,
                        missing: vec![FlpId(u16::try_from(b).unwrap())],
                    }
                },
                bytes: 300 + at,
            }),
            11 => records.push(Record::Set {
                epn: target.epn,
                weight_milli: 1000 + u32::try_from(b).unwrap(),
                enabled: at % 2 == 0,
            }),
            12 => records.push(Record::Clock { elapsed_ns: at * 7 }),
            13 if at == 0 && !is_stopping => {
                is_stopping = true;
                let stop_at = (a > 2).then_some(TfId(1000));
                records.push(Record::Stopping { stop_at });
            }
            13 => records.push(Record::Listed {
                epns: (0..u16::try_from(a).unwrap()).map(EpnId).collect(),
            }),
            _ => {}
        }
    }
    records
}

fn summary(records: &[Record]) -> Summary {
    let mut summary = Summary::default();
    records.iter().for_each(|record| summary.take(record));
    summary
}

fn leader(records: &[Record]) -> Scheduler {
    let plan = RunPlan {
        flps: 1,
        epns: 1,
        timeframes: None,
        ..RunPlan::default()
    };
    let log = records.iter().cloned();
    let config = SchedulerConfig::default();
    Scheduler::recover(NOW, config, plan, Some(RunId(4)), RunId(5), log).unwrap()
}

/// Returns all state of a new leader that a message or a status view can ever depend on.
fn state_of(leader: &mut Scheduler) -> String {
    let undone: Vec<String> = leader
        .tfs
        .iter()
        .map(|(tf, open)| {
            let (phase, attempt) = (&open.phase, open.attempt);
            format!(
                "{tf:?} {attempt:?} {phase:?} {:?} {:?} {} {}",
                open.roster, open.members, open.is_redelivered, open.committed_bytes
            )
        })
        .collect();
    let flps: Vec<String> = leader
        .flps
        .values()
        .map(|node| format!("{:?} {:?} {:?}", node.source, node.first, node.gone_at))
        .collect();
    // The next name of a roster, too: none may be given out twice.
    leader.rosters.change(leader.frontier, Vec::new());
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}\n{:?}\n{undone:#?}\n{flps:#?}\n{:?} {:?}\n{:?} {:?}",
        leader.run,
        leader.phase,
        leader.frontier,
        leader.released,
        leader.released_version,
        leader.before,
        leader.settings,
        leader.list,
        leader.accounting,
        leader.rosters,
        leader.gone,
        leader.expected(),
        leader.is_settling,
    )
}

fn encoded(records: &[Record]) -> Vec<Record> {
    let mut bytes = Vec::new();
    records
        .iter()
        .for_each(|record| record.encode_into(&mut bytes));
    Record::decode_all(&bytes).expect("what was written can be read")
}

proptest! {
    #[test]
    fn a_leader_is_the_same_from_the_last_checkpoint_on(
        steps in steps(),
        cuts in prop::collection::vec(0_usize..220, 0..4)
    ) {
        let whole = history(&steps);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % whole.len() + 1).collect();
        cuts.sort_unstable();
        let (mut running, mut short) = (Summary::default(), Vec::new());
        for (at, record) in whole.iter().enumerate() {
            running.take(record);
            short.push(record.clone());
            for _ in cuts.iter().filter(|cut| **cut == at + 1) {
                let unheard = at.saturating_sub(3)..=at;
                short = encoded(&running.checkpoint(whole[unheard].iter()));
            }
        }
        prop_assert_eq!(state_of(&mut leader(&whole)), state_of(&mut leader(&short)));
        // A checkpoint of a checkpoint is the same again.
        let (mut once, mut twice) = (summary(&whole), summary(&short));
        prop_assert_eq!(
            once.checkpoint(std::iter::empty()),
            twice.checkpoint(std::iter::empty())
        );
    }

    #[test]
    fn records_that_may_be_lost_are_retransmitted(steps in steps(), unheard in 1_usize..20) {
        let whole = history(&steps);
        let mut summary = summary(&whole);
        let from = whole.len().saturating_sub(unheard);
        let records = summary.checkpoint(whole[from..].iter());
        for record in &whole[from..] {
            let Record::Verdict { tf, attempt, verdict, bytes } = record.clone() else { continue };
            let undone = Record::Undone { tf, attempt, verdict, bytes };
            let again = Record::Again(Box::new(record.clone()));
            prop_assert!(records.contains(&undone) ^ records.contains(&again), "{:?}", record);
            // The roster that makes the TF whole is still known.
            if !matches!(record, Record::Verdict { verdict: Verdict::Dropped { .. }, .. }) {
                let firsts = records.iter().filter_map(|record| match record {
                    Record::Roster { first, .. } => Some(*first),
                    _ => None,
                });
                prop_assert!(firsts.min().is_some_and(|first| first <= tf));
            }
        }
    }
}

#[test]
fn a_log_without_a_run_has_no_checkpoint() {
    assert!(Summary::default().checkpoint(std::iter::empty()).is_empty());
}

#[test]
fn records_are_counted_from_the_last_checkpoint_on() {
    let mut summary = summary(&[Record::Opened { run: RUN }, Record::Clock { elapsed_ns: 1 }]);
    assert_eq!(summary.since(), 1);
    let records = summary.checkpoint(std::iter::empty());
    assert_eq!(summary.since(), 0);
    summary.take(&Record::Clock { elapsed_ns: 2 });
    assert_eq!((summary.since(), records.len()), (1, 2));
}
