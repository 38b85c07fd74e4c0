//! The scheduler under any sequence of events that its driver can bring.

use crate::ops::Ops;
use sheaf_placement::policy;
use sheaf_protocol::control::{
    Announced, Built, Consumed, Counter, EpnPulse, FlpPulse, Hello, Position, Skipped,
};
use sheaf_protocol::{
    Attempt, Control, DropReason, Envelope, EpnId, FlpId, Incarnation, NodeId, RunId, Source,
    Target, Term, TfId, Timestamp, Verdict,
};
use sheaf_scheduler::{
    Action, Delivery, Incomplete, Mode, Record, RunPlan, Scheduler, SchedulerConfig,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Events of one input at most: what a longer one finds, a shorter one finds faster.
const STEPS_MAX: usize = 400;

const RUN: RunId = RunId(1);
const FLPS: u16 = 3;
const EPNS: u16 = 3;
const STF_BYTES_MAX: u64 = 100;

/// The scheduler and what is true of it from outside.
struct Bench {
    scheduler: Scheduler,
    incomplete: Incomplete,
    now: Timestamp,
    /// The life of every node that has joined and is not dead.
    flps: BTreeMap<FlpId, Incarnation>,
    epns: BTreeMap<EpnId, Incarnation>,
    lives: u64,
    verdicts: BTreeMap<TfId, Verdict>,
    abandoned: BTreeSet<TfId>,
    delivery: Delivery,
    /// TFs with an amendment.
    redelivered: BTreeSet<TfId>,
    /// TFs given back.
    given_back: u64,
    /// Abandoned, or with their consumer.
    ended: BTreeSet<TfId>,
}

/// A [`Scheduler`] driven by the sequence of events that `bytes` are read as.
///
/// Its books add up at every step, no TF has two verdicts, all it says can be said on the wire, and every run
/// that is stopped ends with nothing in flight.
pub fn scheduler(bytes: &[u8]) {
    let mut ops = Ops::new(bytes);
    let mut bench = Bench::new(&mut ops);
    for _ in 0..STEPS_MAX {
        let Some(code) = ops.next() else { break };
        bench.step(code, &mut ops);
        // The driver may bring several events before it flushes.
        if code < 192 {
            bench.check();
        }
    }
    bench.end();
}

impl Bench {
    fn new(ops: &mut Ops<'_>) -> Self {
        let incomplete = if ops.once_in(2) {
            Incomplete::Allow
        } else {
            Incomplete::Never
        };
        let mode = if ops.once_in(2) {
            Mode::Paced
        } else {
            Mode::DataDriven
        };
        let names = policy::NAMES;
        let config = SchedulerConfig {
            policy: names[usize::from(ops.below(256)) % names.len()].to_owned(),
            mode,
            incomplete,
            quorum_stfs_min: ops.below(4).into(),
            paced_rate_hz: 100.0,
            announce_deadline_ms: 5,
            tf_deadline_ms: 40,
            repeat_ms: 10,
            drain_ms: 100,
            stf_bytes_max: STF_BYTES_MAX,
            tf_bytes_max: 300,
            queue_tfs_max: 4,
            delivery: if ops.once_in(2) {
                Delivery::AtLeastOnce
            } else {
                Delivery::AtMostOnce
            },
            ..SchedulerConfig::default()
        };
        let delivery = config.delivery;
        let timeframes = ops.once_in(4).then(|| ops.number());
        let plan = RunPlan {
            flps: ops.below(3).into(),
            epns: ops.below(3).into(),
            timeframes,
            ..RunPlan::default()
        };
        Self {
            scheduler: Scheduler::new(config, plan, RUN).expect("a name of the list"),
            incomplete,
            now: Timestamp(0),
            flps: BTreeMap::new(),
            epns: BTreeMap::new(),
            lives: 0,
            verdicts: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            redelivered: BTreeSet::new(),
            delivery,
            given_back: 0,
            ended: BTreeSet::new(),
        }
    }

    fn step(&mut self, code: u8, ops: &mut Ops<'_>) {
        match code % 16 {
            0 => self.flp_joins(ops),
            1 => self.epn_joins(ops),
            2 => self.flp_fares_ill(ops),
            3 => self.epn_fares_ill(ops),
            4..=8 => {
                let source = self.source(ops);
                let control = from_flp(ops);
                self.scheduler.handle_flp(self.now, source, control);
            }
            9..=12 => {
                let target = self.target(ops);
                self.scheduler.handle_epn(self.now, target, from_epn(ops));
            }
            13 if ops.once_in(16) => self.scheduler.handle_stop(self.now),
            13 => self
                .scheduler
                .handle_late(Duration::from_nanos(ops.number())),
            _ => self.pass(Duration::from_millis(u64::from(ops.below(64)))),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.scheduler.handle_tick(self.now);
    }

    /// A node as it is now, mostly; sometimes a life that is over or never was.
    fn source(&self, ops: &mut Ops<'_>) -> Source {
        let flp = FlpId(ops.below(FLPS));
        let incarnation = self.flps.get(&flp).copied().unwrap_or_default();
        let other = Incarnation(u64::from(ops.once_in(32)));
        Source {
            flp,
            incarnation: Incarnation(incarnation.0.saturating_sub(other.0)),
        }
    }

    fn target(&self, ops: &mut Ops<'_>) -> Target {
        let epn = EpnId(ops.below(EPNS));
        let incarnation = self.epns.get(&epn).copied().unwrap_or_default();
        let other = Incarnation(u64::from(ops.once_in(32)));
        Target {
            epn,
            incarnation: Incarnation(incarnation.0.saturating_sub(other.0)),
        }
    }

    /// An FLP joins: the same life again, or a new one after the old was declared gone.
    fn flp_joins(&mut self, ops: &mut Ops<'_>) {
        let flp = FlpId(ops.below(FLPS));
        if let Some(incarnation) = self.flps.get(&flp).copied()
            && ops.once_in(2)
        {
            self.scheduler
                .handle_flp_gone(self.now, Source { flp, incarnation });
            self.flps.remove(&flp);
        }
        let incarnation = *self.flps.entry(flp).or_insert_with(|| {
            self.lives += 1;
            Incarnation(self.lives)
        });
        // The node has refused an FLP that announces larger STFs than the farm takes.
        let stf_bytes_max = ops.number().min(STF_BYTES_MAX);
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: ops.number(),
            slots: u32::from(ops.below(8)),
            stf_bytes_max,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let source = Source { flp, incarnation };
        self.scheduler.handle_flp_joined(self.now, source, &hello);
        let position = Control::Position(position(ops));
        self.scheduler
            .handle_flp(self.now, Source { flp, incarnation }, position);
    }

    fn epn_joins(&mut self, ops: &mut Ops<'_>) {
        let epn = EpnId(ops.below(EPNS));
        if let Some(incarnation) = self.epns.get(&epn).copied()
            && ops.once_in(2)
        {
            self.scheduler
                .handle_epn_dead(self.now, Target { epn, incarnation });
            self.epns.remove(&epn);
        }
        let incarnation = *self.epns.entry(epn).or_insert_with(|| {
            self.lives += 1;
            Incarnation(self.lives)
        });
        let hello = Hello {
            data_address: "a:1".to_owned(),
            capacity_bytes: ops.number().max(1),
            slots: u32::from(ops.below(8)).max(1),
            stf_bytes_max: 0,
            weight_milli: u32::try_from(ops.number()).unwrap_or(u32::MAX),
            is_durable: false,
            ..Hello::default()
        };
        self.scheduler
            .handle_epn_joined(self.now, Target { epn, incarnation }, &hello);
    }

    fn flp_fares_ill(&mut self, ops: &mut Ops<'_>) {
        let source = self.source(ops);
        match ops.below(3) {
            0 if ops.once_in(2) => {
                self.scheduler.handle_flp_expired(self.now, source);
            }
            0 => self.scheduler.handle_flp_silent(self.now, source),
            1 => self.scheduler.handle_flp_heard(self.now, source),
            _ => {
                self.scheduler.handle_flp_gone(self.now, source);
                if self.flps.get(&source.flp) == Some(&source.incarnation) {
                    self.flps.remove(&source.flp);
                }
            }
        }
    }

    fn epn_fares_ill(&mut self, ops: &mut Ops<'_>) {
        let target = self.target(ops);
        match ops.below(4) {
            0 => self.scheduler.handle_epn_silent(self.now, target),
            1 => self.scheduler.handle_epn_heard(self.now, target),
            2 => self.scheduler.handle_epn_cut(self.now, target),
            _ => {
                self.scheduler.handle_epn_dead(self.now, target);
                if self.epns.get(&target.epn) == Some(&target.incarnation) {
                    self.epns.remove(&target.epn);
                }
            }
        }
    }

    fn check(&mut self) {
        self.scheduler.flush();
        while let Some(action) = self.scheduler.poll_action() {
            match action {
                Action::Append(Record::Verdict { tf, verdict, .. }) => {
                    self.check_verdict(tf, verdict);
                }
                Action::Append(Record::Redelivered { tf, verdict, .. }) => {
                    assert_eq!(
                        self.delivery,
                        Delivery::AtLeastOnce,
                        "TF {tf} is redelivered"
                    );
                    self.check_redelivered(tf, &verdict);
                }
                Action::Append(Record::Abandoned { tf, target }) => {
                    self.check_ending(tf, target, "abandoned");
                    self.abandoned.insert(tf);
                }
                Action::Append(Record::Undelivered { tf, target }) => {
                    self.check_ending(tf, target, "given back");
                    self.given_back += 1;
                }
                Action::Append(_) => {}
                Action::NotRedelivered { .. } => {}
                Action::Done { tf, target, .. } => self.check_ending(tf, target, "done"),
                Action::Send(_, control) => check_sayable(&control),
            }
        }
        self.check_accounting();
    }

    /// A TF ends once, and at the EPN of its verdict.
    fn check_ending(&mut self, tf: TfId, target: Target, how: &str) {
        assert!(
            self.ended.insert(tf),
            "TF {tf} is {how} and had ended before"
        );
        let (Some(Verdict::Complete { target: winner })
        | Some(Verdict::Incomplete { target: winner, .. })) = self.verdicts.get(&tf)
        else {
            panic!("TF {tf} is {how} after {:?}", self.verdicts.get(&tf));
        };
        assert_eq!(*winner, target, "TF {tf} is {how} at another EPN");
    }

    /// An amendment names another life of an EPN than the verdict before, of a TF that has not ended.
    fn check_redelivered(&mut self, tf: TfId, verdict: &Verdict) {
        assert!(
            !self.ended.contains(&tf),
            "TF {tf} is redelivered and had ended before"
        );
        self.check_incomplete(tf, verdict);
        let at = |verdict: &Verdict| match verdict {
            Verdict::Complete { target } | Verdict::Incomplete { target, .. } => Some(*target),
            Verdict::Dropped { .. } => None,
        };
        let earlier = self.verdicts.insert(tf, verdict.clone());
        let earlier = earlier.as_ref().and_then(at);
        assert!(
            earlier.is_some(),
            "TF {tf} is redelivered and was not built"
        );
        assert_ne!(
            earlier,
            at(verdict),
            "TF {tf} is redelivered by the same life"
        );
        self.redelivered.insert(tf);
    }

    fn check_incomplete(&self, tf: TfId, verdict: &Verdict) {
        if let Verdict::Incomplete { missing, .. } = verdict {
            assert!(
                !missing.is_empty(),
                "TF {tf} is incomplete and lacks nothing"
            );
            assert_eq!(
                self.incomplete,
                Incomplete::Allow,
                "TF {tf} is incomplete against the rule"
            );
        }
    }

    fn check_verdict(&mut self, tf: TfId, verdict: Verdict) {
        self.check_incomplete(tf, &verdict);
        let earlier = self.verdicts.insert(tf, verdict);
        assert_eq!(earlier, None, "TF {tf} has two verdicts");
    }

    fn check_accounting(&self) {
        let accounting = self.scheduler.accounting();
        assert!(
            accounting.balance(self.scheduler.in_flight()),
            "{accounting:?}"
        );
        assert_eq!(
            accounting.decided(),
            self.verdicts.len() as u64,
            "{accounting:?}"
        );
        assert_eq!(
            accounting.abandoned,
            self.abandoned.len() as u64,
            "{accounting:?}"
        );
        assert_eq!(
            accounting.redelivered,
            self.redelivered.len() as u64,
            "{accounting:?}"
        );
        let given_back = accounting.dropped[DropReason::Undelivered.index()];
        assert!(given_back >= self.given_back, "{accounting:?}");
        for (flp, source) in &accounting.sources {
            let decided = source.built + source.dropped + source.unused;
            assert!(source.announced >= decided, "{flp}: {source:?}");
        }
    }

    /// Stops the run while no node answers: the run still ends, and every TF has its fate.
    fn end(&mut self) {
        self.check();
        self.scheduler.handle_stop(self.now);
        // EPNs have 3 s to give TFs back.
        for _ in 0..40 {
            self.pass(Duration::from_millis(100));
            self.check();
        }
        assert!(
            self.scheduler.is_over(),
            "the run is {}",
            self.scheduler.phase_name()
        );
        assert_eq!(self.scheduler.in_flight(), 0);
        for (flp, source) in &self.scheduler.accounting().sources {
            let decided = source.built + source.dropped + source.unused;
            assert_eq!(source.announced, decided, "{flp}: {source:?}");
        }
    }
}

/// Messages of the scheduler survive encoding and decoding unchanged.
fn check_sayable(control: &Control) {
    let envelope = Envelope {
        minor: 0,
        run: RUN,
        sender: NodeId::ICN,
        incarnation: Incarnation(1),
        term: Term(1),
        sequence: 1,
    };
    let heard = Control::decode(&control.encode(&envelope));
    assert_eq!(heard, Ok((envelope, control.clone())));
}

fn position(ops: &mut Ops<'_>) -> Position {
    let counters = [Counter::InStep, Counter::Behind, Counter::Ahead];
    Position {
        first: if ops.once_in(4) { tf(ops) } else { TfId(0) },
        counter: counters[usize::from(ops.below(3))],
        refused_stfs: ops.number(),
    }
}

fn from_flp(ops: &mut Ops<'_>) -> Control {
    match ops.below(10) {
        0..=2 => Control::Announce(ops.list(5, |ops| Announced {
            tf: tf(ops),
            bytes: ops.number(),
        })),
        3 => Control::Skipped(ops.list(4, |ops| Skipped {
            tf: tf(ops),
            reason: reason(ops),
        })),
        4 => Control::Stopped { next: tf(ops) },
        5 => Control::Ended { next: tf(ops) },
        6 => Control::FlpPulse(FlpPulse {
            held_stfs: ops.number(),
            released_version: ops.number(),
            started: ops.once_in(2),
            ..FlpPulse::default()
        }),
        7 => Control::Position(position(ops)),
        8 => Control::Released(ops.list(4, tf)),
        _ => {
            let incarnation = Incarnation(ops.number());
            Control::Unreachable {
                target: Target {
                    epn: EpnId(ops.below(EPNS)),
                    incarnation,
                },
            }
        }
    }
}

fn from_epn(ops: &mut Ops<'_>) -> Control {
    match ops.below(8) {
        0..=2 => Control::Built(ops.list(4, |ops| Built {
            tf: tf(ops),
            attempt: Attempt(ops.below(4).into()),
            missing: if ops.once_in(2) {
                ops.list(4, flp)
            } else {
                Vec::new()
            },
            bytes: ops.number(),
            first_byte_age_ns: ops.number(),
            last_byte_age_ns: ops.number(),
        })),
        3..=4 => Control::CommitAck {
            tfs: ops.list(5, tf),
            consumed: consumed(ops),
        },
        5 if ops.once_in(2) => Control::Undelivered(ops.list(5, tf)),
        5 if ops.once_in(2) => Control::Sources(ops.list(4, |ops| Source {
            flp: flp(ops),
            incarnation: Incarnation(ops.below(8).into()),
        })),
        5 => Control::Corrupt {
            tf: tf(ops),
            flp: flp(ops),
        },
        6 if ops.once_in(4) => Control::Freed(consumed(ops)),
        6 => Control::EpnPulse(EpnPulse {
            consumed: consumed(ops),
            released_version: ops.number(),
            ..EpnPulse::default()
        }),
        _ if ops.once_in(4) => Control::Leaving,
        _ => Control::Dismissed,
    }
}

fn consumed(ops: &mut Ops<'_>) -> Consumed {
    Consumed {
        sink_bytes: ops.number(),
        freed_bytes: ops.number(),
        busy_ns: ops.number(),
    }
}

fn tf(ops: &mut Ops<'_>) -> TfId {
    let number = ops.number();
    // Mostly few TFs, so that events meet.
    TfId(if number < 248 { number % 32 } else { number })
}

fn flp(ops: &mut Ops<'_>) -> FlpId {
    FlpId(ops.below(FLPS + 1))
}

fn reason(ops: &mut Ops<'_>) -> DropReason {
    DropReason::ALL[usize::from(ops.below(12))]
}
