//! Benchmark of the scheduler's cost for each TF.
//!
//! Workload: the life of one TF from its announces (one message an FLP) to the acknowledged commit, in farms of 8 and
//! 250 FLPs by 8 and 350 EPNs, flushed after the announces, after the report and after the acknowledgement, with all
//! actions taken out; and TFs in lists, with a full hold. Unit: time a TF, and TFs a second. Heartbeats are not in it.
//! Aim on one core of 2020s server hardware: below 1 ms at 250 FLPs, so that the ICN keeps up with a detector of 351
//! TF/s on a third of a core. `cargo bench --profile ci -p sheaf-scheduler --bench scheduler` measures; under `cargo
//! test` every bench runs once. The checksum tells whether two runs did the same work.

use divan::{Bencher, counter::ItemsCount};
use sheaf_protocol::control::{Announced, Built, Consumed, EpnPulse, Hello, Position};
use sheaf_protocol::{
    Attempt, Control, EpnId, FlpId, Incarnation, RunId, Source, Target, TfId, Timestamp,
};
use sheaf_scheduler::{Action, Recipient, RunPlan, Scheduler, SchedulerConfig};
use std::collections::VecDeque;
use std::fmt;

/// Payload of an STF: a TF of the largest farm has 3.3 MB.
const STF_BYTES: u64 = 13_200;

const SHAPES: [Shape; 4] = [
    Shape { flps: 8, epns: 8 },
    Shape { flps: 8, epns: 350 },
    Shape { flps: 250, epns: 8 },
    Shape {
        flps: 250,
        epns: 350,
    },
];

fn main() {
    let tfs = if std::env::args().any(|arg| arg == "--bench") {
        1000
    } else {
        5
    };
    for shape in SHAPES {
        let mut farm = BenchFarm::new(shape);
        (0..tfs).for_each(|_| farm.one_tf());
        let accounting = farm.scheduler.accounting();
        assert_eq!(
            (accounting.complete, accounting.announced),
            (tfs, tfs),
            "every TF is built"
        );
        println!(
            "scheduler {shape}: {} TFs, {} STFs built, actions {:016x}",
            accounting.complete,
            accounting
                .sources
                .values()
                .map(|source| source.built)
                .sum::<u64>(),
            farm.checksum,
        );
    }
    divan::main();
}

#[derive(Clone, Copy)]
struct Shape {
    flps: u16,
    epns: u16,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>3} FLPs x {:>3} EPNs", self.flps, self.epns)
    }
}

/// A scheduler in a run, and the next messages of its nodes.
struct BenchFarm {
    scheduler: Scheduler,
    shape: Shape,
    next: TfId,
    now: Timestamp,
    checksum: u64,
}

fn source(flp: u16) -> Source {
    Source {
        flp: FlpId(flp),
        incarnation: Incarnation(1),
    }
}

fn target(epn: u16) -> Target {
    Target {
        epn: EpnId(epn),
        incarnation: Incarnation(1),
    }
}

impl BenchFarm {
    fn new(shape: Shape) -> Self {
        let plan = RunPlan {
            flps: u32::from(shape.flps),
            epns: u32::from(shape.epns),
            timeframes: None,
            ..RunPlan::default()
        };
        let config = SchedulerConfig::default();
        let scheduler = Scheduler::new(config, plan, RunId(1)).expect("the default policy exists");
        let mut farm = Self {
            scheduler,
            shape,
            next: TfId(0),
            now: Timestamp(0),
            checksum: 0,
        };
        let hello = Hello {
            data_address: "10.0.0.1:7100".to_owned(),
            capacity_bytes: 1 << 32,
            slots: 256,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        for epn in 0..shape.epns {
            farm.scheduler
                .handle_epn_joined(farm.now, target(epn), &hello);
        }
        let of_flp = Hello {
            stf_bytes_max: STF_BYTES,
            slots: 4096,
            capacity_bytes: 4096 * STF_BYTES,
            ..hello.clone()
        };
        for flp in 0..shape.flps {
            farm.scheduler
                .handle_flp_joined(farm.now, source(flp), &of_flp);
            let position = Control::Position(Position::default());
            farm.scheduler.handle_flp(farm.now, source(flp), position);
        }
        farm.act();
        farm.checksum = 0;
        farm
    }

    /// Leads one TF from its first announce to the acknowledged commit.
    fn one_tf(&mut self) {
        let tf = self.next;
        self.next = tf.next();
        self.now.0 += 1_000_000;
        for flp in 0..self.shape.flps {
            let item = Announced {
                tf,
                bytes: STF_BYTES,
            };
            self.scheduler
                .handle_flp(self.now, source(flp), Control::Announce(vec![item]));
        }
        let target = self.act().expect("all have announced, and there is room");
        let built = self.built(tf);
        self.scheduler
            .handle_epn(self.now, target, Control::Built(vec![built]));
        self.act();
        let ack = Control::CommitAck {
            tfs: vec![tf],
            consumed: Consumed::default(),
        };
        self.scheduler.handle_epn(self.now, target, ack);
        self.act();
        self.pulse(target);
    }

    fn built(&self, tf: TfId) -> Built {
        Built {
            tf,
            attempt: Attempt(1),
            missing: Vec::new(),
            bytes: STF_BYTES * u64::from(self.shape.flps),
            first_byte_age_ns: 2000,
            last_byte_age_ns: 1000,
        }
    }

    fn pulse(&mut self, target: Target) {
        let pulse = EpnPulse {
            released_version: self.next.0,
            ..EpnPulse::default()
        };
        self.scheduler
            .handle_epn(self.now, target, Control::EpnPulse(pulse));
    }

    /// Announces the next TFs of all FLPs, each in one list.
    fn announce(&mut self, tfs: u64) {
        let first = self.next.0;
        self.next = TfId(first + tfs);
        let bytes = STF_BYTES;
        let items = (first..first + tfs).map(|tf| Announced {
            tf: TfId(tf),
            bytes,
        });
        let items: Vec<Announced> = items.collect();
        for flp in 0..self.shape.flps {
            self.scheduler
                .handle_flp(self.now, source(flp), Control::Announce(items.clone()));
        }
    }

    /// Drains the actions; adds the TFs that they assign.
    fn assigned(&mut self, assigned: &mut VecDeque<TfId>) {
        self.scheduler.flush();
        while let Some(action) = self.scheduler.poll_action() {
            if let Action::Send(Recipient::Epn(_), Control::Assign(items)) = &action {
                assigned.extend(items.iter().map(|assign| assign.tf));
            }
        }
    }

    /// Drains the actions; returns the target of the last assignment among them.
    fn act(&mut self) -> Option<Target> {
        self.scheduler.flush();
        let mut target = None;
        while let Some(action) = self.scheduler.poll_action() {
            self.checksum = self.checksum.wrapping_mul(31).wrapping_add(1);
            if let Action::Send(_, Control::Assign(items)) = &action
                && let Some(assign) = items.last()
            {
                self.checksum = self.checksum.wrapping_add(u64::from(assign.target.epn.0));
                target = Some(assign.target);
            }
        }
        target
    }
}

/// Measures TFs of one FLP whose hold is full, in lists of 64: 4,096 are open, 256 of them at the one EPN.
#[divan::bench]
fn lives_in_lists(bencher: Bencher<'_, '_>) {
    const LIST: usize = 64;
    let mut farm = BenchFarm::new(Shape { flps: 1, epns: 1 });
    let mut assigned = VecDeque::new();
    farm.announce(4096);
    farm.assigned(&mut assigned);
    bencher.counter(ItemsCount::new(LIST)).bench_local(|| {
        farm.now.0 += 100_000;
        let tfs: Vec<TfId> = assigned.drain(..LIST).collect();
        let built = tfs.iter().map(|tf| farm.built(*tf)).collect();
        farm.scheduler
            .handle_epn(farm.now, target(0), Control::Built(built));
        farm.assigned(&mut assigned);
        let consumed = Consumed::default();
        let ack = Control::CommitAck { tfs, consumed };
        farm.scheduler.handle_epn(farm.now, target(0), ack);
        farm.announce(LIST as u64);
        farm.assigned(&mut assigned);
        farm.pulse(target(0));
    });
}

#[divan::bench(args = SHAPES)]
fn life_of_a_tf(bencher: Bencher<'_, '_>, shape: Shape) {
    let mut farm = BenchFarm::new(shape);
    bencher
        .counter(ItemsCount::new(1_usize))
        .bench_local(|| farm.one_tf());
}

/// Measures a tick while this many TFs are open: all deadlines are checked.
#[divan::bench(args = [10, 1000])]
fn tick_with_open_tfs(bencher: Bencher<'_, '_>, tfs: u64) {
    let mut farm = BenchFarm::new(SHAPES[0]);
    for tf in 0..tfs {
        let item = Announced {
            tf: TfId(tf),
            bytes: STF_BYTES,
        };
        for flp in 0..farm.shape.flps {
            farm.scheduler
                .handle_flp(farm.now, source(flp), Control::Announce(vec![item]));
        }
    }
    farm.act();
    bencher.bench_local(|| {
        farm.scheduler.handle_tick(farm.now);
        farm.scheduler.flush();
    });
}
