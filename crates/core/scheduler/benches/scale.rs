//! Benchmark of the ICN's cost per TF as the farm grows.
//!
//! Workload: a scheduler leads TFs from their announces over assignment, report, commit and acknowledgement to the
//! release, one after the other, in farms of 10 to 2,000 EPNs, with 8 and with 250 FLPs, and once with every EPN full,
//! so that TFs wait. Unit: µs per TF on the scheduler's side (CPU, wall time of one thread), and ns per pulse of an
//! EPN. Aim on one core: below 1 ms a TF at 250 FLPs × 2,000 EPNs, and a cost per TF that does not grow with the EPNs
//! by more than the policy's own scan. `cargo bench --profile ci -p sheaf-scheduler --bench scale` measures and prints
//! the fastest, the median and the slowest of nine rounds; under `cargo test` a round of each runs with few TFs. The
//! checksum tells whether two runs did the same work.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures time"
)]

use sheaf_placement::policy;
use sheaf_protocol::control::{Announced, Built, Consumed, EpnPulse, Hello, Position};
use sheaf_protocol::{
    Attempt, Control, EpnId, FlpId, Incarnation, RunId, Source, Target, TfId, Timestamp,
};
use sheaf_scheduler::{Action, RunPlan, Scheduler, SchedulerConfig};
use std::time::Instant;

/// Payload of an STF: a TF of 250 FLPs has 3.3 MB.
const STF_BYTES: u64 = 13_200;
const EPNS: [u16; 5] = [10, 50, 250, 1000, 2000];
const FLPS: [u16; 2] = [8, 250];

struct Plan {
    rounds: usize,
    tfs: u64,
    epns: &'static [u16],
}

fn main() {
    let plan = if std::env::args().any(|arg| arg == "--bench") {
        Plan {
            rounds: 9,
            tfs: 200,
            epns: &EPNS,
        }
    } else {
        Plan {
            rounds: 1,
            tfs: 3,
            epns: &EPNS[..2],
        }
    };
    println!(
        "scale: rounds of {} TFs; fastest, median, slowest round",
        plan.tfs
    );
    for flps in FLPS {
        for &epns in plan.epns {
            row(&plan, "round-robin", flps, epns);
        }
    }
    let &most = plan.epns.last().expect("a plan has farms");
    for name in policy::NAMES {
        row(&plan, name, 250, most);
    }
    for &epns in plan.epns {
        full(&plan, epns);
    }
}

/// Measures one farm with room.
fn row(plan: &Plan, policy: &str, flps: u16, epns: u16) {
    let mut farm = BenchFarm::new(policy, flps, epns, 256);
    let mut us: Vec<f64> = (0..plan.rounds)
        .map(|_| {
            let begin = now();
            (0..plan.tfs).for_each(|_| farm.one_tf());
            begin.elapsed().as_secs_f64() * 1e6 / plan.tfs as f64
        })
        .collect();
    let (low, mid, high) = spread(&mut us);
    let accounting = farm.scheduler.accounting();
    assert_eq!(
        accounting.complete,
        plan.tfs * plan.rounds as u64,
        "every TF is built"
    );
    println!(
        "{policy:<16} {flps:>4} FLPs {epns:>5} EPNs {low:>9.1} {mid:>9.1} {high:>9.1} us/TF  checksum {:016x}",
        farm.checksum
    );
}

/// Measures a farm without any room: TFs wait, and every pulse could have brought some.
fn full(plan: &Plan, epns: u16) {
    let mut farm = BenchFarm::new("round-robin", 8, epns, 1);
    for _ in 0..u64::from(epns) + 100 {
        farm.announce();
    }
    farm.act();
    assert_eq!(farm.scheduler.queued(), 100);
    let mut ns: Vec<f64> = (0..plan.rounds)
        .map(|_| {
            let begin = now();
            for epn in 0..epns {
                let pulse = Control::EpnPulse(EpnPulse::default());
                farm.scheduler.handle_epn(farm.now, target(epn), pulse);
            }
            farm.act();
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(epns)
        })
        .collect();
    let (low, mid, high) = spread(&mut ns);
    assert_eq!(farm.scheduler.queued(), 100);
    println!(
        "{:<16}    8 FLPs {epns:>5} EPNs {low:>9.1} {mid:>9.1} {high:>9.1} ns/pulse",
        "full farm"
    );
}

fn now() -> Instant {
    Instant::now()
}

fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    )
}

/// A scheduler in a run, and the next messages of its nodes.
struct BenchFarm {
    scheduler: Scheduler,
    flps: u16,
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
    fn new(policy: &str, flps: u16, epns: u16, slots: u32) -> Self {
        let plan = RunPlan {
            flps: u32::from(flps),
            epns: u32::from(epns),
            timeframes: None,
            ..RunPlan::default()
        };
        let config = SchedulerConfig {
            policy: policy.to_owned(),
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config, plan, RunId(1)).expect("one of NAMES");
        let mut farm = Self {
            scheduler,
            flps,
            next: TfId(0),
            now: Timestamp(0),
            checksum: 0,
        };
        let hello = Hello {
            data_address: "10.0.0.1:7100".to_owned(),
            capacity_bytes: 1 << 32,
            slots,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        for epn in 0..epns {
            farm.scheduler
                .handle_epn_joined(farm.now, target(epn), &hello);
        }
        let of_flp = Hello {
            stf_bytes_max: STF_BYTES,
            slots: 4096,
            capacity_bytes: 4096 * STF_BYTES,
            ..hello.clone()
        };
        for flp in 0..flps {
            farm.scheduler
                .handle_flp_joined(farm.now, source(flp), &of_flp);
            let position = Control::Position(Position::default());
            farm.scheduler.handle_flp(farm.now, source(flp), position);
        }
        farm.act();
        farm.checksum = 0;
        farm
    }

    /// Announces the next TF from all FLPs.
    fn announce(&mut self) -> TfId {
        let tf = self.next;
        self.next = tf.next();
        self.now.0 += 2_845_600;
        for flp in 0..self.flps {
            let item = Announced {
                tf,
                bytes: STF_BYTES,
            };
            let announce = Control::Announce(vec![item]);
            self.scheduler.handle_flp(self.now, source(flp), announce);
        }
        tf
    }

    /// Leads one TF from its announces to its release, with the heartbeat of its EPN.
    fn one_tf(&mut self) {
        let tf = self.announce();
        let target = self.act().expect("all have announced, and there is room");
        let built = Built {
            tf,
            attempt: Attempt(1),
            missing: Vec::new(),
            bytes: STF_BYTES * u64::from(self.flps),
            first_byte_age_ns: 2000,
            last_byte_age_ns: 1000,
        };
        self.now.0 += 500_000;
        self.scheduler
            .handle_epn(self.now, target, Control::Built(vec![built]));
        self.act();
        let ack = Control::CommitAck {
            tfs: vec![tf],
            consumed: Consumed::default(),
        };
        self.scheduler.handle_epn(self.now, target, ack);
        self.act();
        let pulse = EpnPulse {
            released_version: self.next.0,
            ..EpnPulse::default()
        };
        self.scheduler
            .handle_epn(self.now, target, Control::EpnPulse(pulse));
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
