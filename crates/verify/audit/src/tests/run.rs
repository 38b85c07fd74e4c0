//! A run of all possible events, to be spoilt.

use super::super::*;
use super::{begin, delivered, incarnation, made, verdict};
use sheaf_protocol::{
    Attempt, DropReason, EpnId, FlpId, Incarnation, NodeId, Record, Role, RosterId, RunId, Source,
    Target, TfId, Verdict,
};
use sheaf_verdict_log::event::{Event, MemberEvent};
use std::collections::BTreeMap;

pub(super) const RUN: RunId = RunId(0xaa);

/// Event logs and verdict log of a farm that was not watched: 2 FLPs, 2 EPNs, 2 ICNs.
///
/// `icn:0` leads in term 1, decides TFs 0 to 2 and is killed; `icn:1` leads in term 2 and decides the rest. TFs 0, 1
/// and 2 are complete (1 on the second attempt), TF 3 lacks `flp:1`, which skipped it, TF 4 is dropped for the same
/// reason, TF 5 is abandoned by `epn:1`, which is killed, TF 6 is complete under a roster without `flp:1`.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) logs: BTreeMap<NodeId, Vec<Event>>,
    pub(super) ledger: Vec<Record>,
}

pub(super) const FLP0: NodeId = NodeId {
    role: Role::Flp,
    index: 0,
};
pub(super) const FLP1: NodeId = NodeId {
    role: Role::Flp,
    index: 1,
};
pub(super) const EPN0: NodeId = NodeId {
    role: Role::Epn,
    index: 0,
};
pub(super) const EPN1: NodeId = NodeId {
    role: Role::Epn,
    index: 1,
};
pub(super) const ICN0: NodeId = NodeId::ICN;
pub(super) const ICN1: NodeId = NodeId {
    role: Role::Icn,
    index: 1,
};

pub(super) fn sent(tf: u64, term: u64, attempt: u32, epn: u16) -> Event {
    let incarnation = incarnation(Role::Epn, epn);
    Event::Sent {
        tf,
        term,
        attempt,
        epn,
        incarnation,
    }
}

pub(super) fn skipped(tf: u64) -> Event {
    Event::Skipped {
        tf,
        reason: "source-overrun".to_owned(),
    }
}

pub(super) fn roster(first: u64, flps: &[u16]) -> Event {
    let member = |flp: &u16| MemberEvent {
        flp: *flp,
        incarnation: incarnation(Role::Flp, *flp),
    };
    Event::Roster {
        roster: 1,
        first,
        members: flps.iter().map(member).collect(),
    }
}

pub(super) fn complete(tf: u64, epn: u16) -> Event {
    verdict(tf, "complete", Some(epn), &[], None)
}

pub(super) fn dropped(tf: u64, reason: &str) -> Event {
    verdict(tf, "dropped", None, &[], Some(reason))
}

/// Returns the verdicts of each term, with the rosters before them.
fn decisions() -> (Vec<Event>, Vec<Event>) {
    let first = vec![
        roster(0, &[0, 1]),
        complete(0, 0),
        complete(1, 1),
        complete(2, 0),
    ];
    let second = vec![
        verdict(3, "incomplete", Some(0), &[1], None),
        dropped(4, "source-overrun"),
        complete(5, 1),
        Event::Abandoned { tf: 5 },
        roster(6, &[0]),
        complete(6, 0),
        complete(7, 0),
        Event::Undelivered { tf: 7 },
    ];
    (first, second)
}

pub(super) fn target(epn: u16) -> Target {
    Target {
        epn: EpnId(epn),
        incarnation: Incarnation(incarnation(Role::Epn, epn)),
    }
}

pub(super) fn recorded(event: &Event) -> Option<Record> {
    Some(match event {
        Event::Roster {
            roster,
            first,
            members,
        } => Record::Roster {
            id: RosterId(*roster),
            first: TfId(*first),
            members: members
                .iter()
                .map(|member| Source {
                    flp: FlpId(member.flp),
                    incarnation: Incarnation(member.incarnation),
                })
                .collect(),
        },
        Event::Verdict {
            tf,
            verdict,
            epn,
            missing,
            ..
        } => Record::Verdict {
            tf: TfId(*tf),
            attempt: Attempt(1),
            verdict: match (verdict.as_str(), epn.map(target)) {
                ("complete", Some(target)) => Verdict::Complete { target },
                (_, Some(target)) => Verdict::Incomplete {
                    target,
                    missing: missing.iter().map(|flp| FlpId(*flp)).collect(),
                },
                (_, None) => Verdict::Dropped {
                    reason: DropReason::SourceOverrun,
                },
            },
            bytes: 0,
        },
        Event::Abandoned { tf } => Record::Abandoned {
            tf: TfId(*tf),
            target: target(1),
        },
        Event::Undelivered { tf } => Record::Undelivered {
            tf: TfId(*tf),
            target: target(0),
        },
        _ => return None,
    })
}

impl Run {
    pub(super) fn good() -> Self {
        let run = || Event::Run {
            run: RUN.to_string(),
        };
        let begin = |node: NodeId| begin(node.role, node.index);
        let (first, second) = decisions();
        let flp0 = [
            begin(FLP0),
            run(),
            made(0, 0),
            sent(0, 1, 1, 0),
            made(0, 1),
            sent(1, 1, 1, 0),
            sent(1, 1, 2, 1),
            made(0, 2),
            sent(2, 1, 1, 0),
            made(0, 3),
            sent(3, 2, 1, 0),
            made(0, 4),
            made(0, 5),
            sent(5, 2, 1, 1),
            made(0, 6),
            sent(6, 2, 1, 0),
            made(0, 7),
            sent(7, 2, 1, 0),
            Event::End,
        ];
        let flp1 = [
            begin(FLP1),
            run(),
            made(1, 0),
            sent(0, 1, 1, 0),
            made(1, 1),
            sent(1, 1, 2, 1),
            made(1, 2),
            sent(2, 1, 1, 0),
            skipped(3),
            skipped(4),
            made(1, 5),
            sent(5, 2, 1, 1),
            made(1, 6),
            Event::End,
        ];
        let both: &[u16] = &[0, 1];
        let epn0 = [
            begin(EPN0),
            run(),
            delivered(0, both, &[]),
            delivered(2, both, &[]),
            delivered(3, &[0], &[1]),
            delivered(6, &[0], &[]),
            Event::Undelivered { tf: 7 },
            Event::End,
        ];
        let epn1 = [begin(EPN1), run(), delivered(1, both, &[])];
        let icn0 = [begin(ICN0), run(), Event::Leads { term: 1 }]
            .into_iter()
            .chain(first.clone());
        let icn1 = [begin(ICN1), run(), Event::Leads { term: 2 }]
            .into_iter()
            .chain(first.clone())
            .chain(second.clone())
            .chain([Event::Over, Event::End]);
        let records = first.iter().chain(&second).filter_map(recorded);
        Self {
            ledger: [Record::Opened { run: RUN }]
                .into_iter()
                .chain(records)
                .chain([Record::Over])
                .collect(),
            logs: BTreeMap::from([
                (FLP0, flp0.into()),
                (FLP1, flp1.into()),
                (EPN0, epn0.into()),
                (EPN1, epn1.into()),
                (ICN0, icn0.collect()),
                (ICN1, icn1.collect()),
            ]),
        }
    }

    pub(super) fn log(&mut self, node: NodeId) -> &mut Vec<Event> {
        self.logs.get_mut(&node).expect("all nodes have a log")
    }

    /// Replaces every line `from` by `to`, in all logs.
    pub(super) fn replace(&mut self, from: &Event, to: &Event) {
        let lines = self
            .logs
            .values_mut()
            .flatten()
            .filter(|line| *line == from);
        lines.for_each(|line| *line = to.clone());
    }

    pub(super) fn without_over(&mut self) {
        self.logs
            .values_mut()
            .for_each(|log| log.retain(|line| *line != Event::Over));
        self.ledger.retain(|record| *record != Record::Over);
    }

    pub(super) fn evidence(&self, with_ledger: bool) -> Evidence {
        let mut evidence = Evidence::default();
        for (node, log) in &self.logs {
            evidence.take_in_events(log, *node, Fate::Unknown);
        }
        if with_ledger {
            evidence.take_in_ledger("the ledger of icn:1", self.ledger.clone());
        }
        evidence
    }

    pub(super) fn audit(&self, with_ledger: bool) -> Audit {
        audit(&mut self.evidence(with_ledger), &Options::default())
    }
}
