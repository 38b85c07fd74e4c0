//! A scheduler in a run, and the messages of its nodes.

use crate::farm::Shape;
use sheaf_placement::policy::UnknownPolicy;
use sheaf_protocol::control::{Announced, Built, Consumed, EpnPulse, Hello, Position};
use sheaf_protocol::{
    Attempt, Control, EpnId, FlpId, Incarnation, RunId, Source, Target, TfId, Timestamp,
};
use sheaf_scheduler::{Action, RunPlan, Scheduler, SchedulerConfig};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Payload of an STF: a TF of 250 FLPs has 3.3 MB.
const STF_BYTES: u64 = 13_200;
/// From one TF to the next, in ns: the rate of ALICE, 351.4 Hz.
const PERIOD_NS: u64 = 2_845_600;
/// TFs that an EPN takes at once.
const SLOTS: u32 = 256;

/// The brain of an ICN, led through TFs.
pub(super) struct LedIcn {
    scheduler: Scheduler,
    shape: Shape,
    next: TfId,
    now: Timestamp,
    /// TFs that are assigned and not finished, the oldest first.
    open: VecDeque<(TfId, Target)>,
    finished: u64,
    /// Sum over all actions: equal where two runs did the same work.
    pub(super) checksum: u64,
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

impl LedIcn {
    /// Creates an ICN whose FLPs and EPNs have all joined.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`].
    pub(super) fn new(policy: &str, shape: Shape, slots: u32) -> Result<Self, UnknownPolicy> {
        let plan = RunPlan {
            flps: shape.flps.into(),
            epns: shape.epns.into(),
            timeframes: None,
            ..RunPlan::default()
        };
        let config = SchedulerConfig {
            policy: policy.to_owned(),
            ..SchedulerConfig::default()
        };
        let mut led = Self {
            scheduler: Scheduler::new(config, plan, RunId(1))?,
            shape,
            next: TfId(0),
            now: Timestamp(0),
            open: VecDeque::new(),
            finished: 0,
            checksum: 0,
        };
        let of_epn = Hello {
            data_address: "10.0.0.1:7100".to_owned(),
            capacity_bytes: 1 << 32,
            slots,
            weight_milli: 1000,
            ..Hello::default()
        };
        for epn in 0..shape.epns {
            let scheduler = &mut led.scheduler;
            scheduler.handle_epn_joined(led.now, target(epn), &of_epn);
        }
        // Room for a TF of each EPN, and for those that wait.
        let held = u32::from(shape.epns) + 4096;
        let of_flp = Hello {
            stf_bytes_max: STF_BYTES,
            slots: held,
            capacity_bytes: u64::from(held) * STF_BYTES,
            ..of_epn
        };
        for flp in 0..shape.flps {
            let scheduler = &mut led.scheduler;
            scheduler.handle_flp_joined(led.now, source(flp), &of_flp);
            let position = Control::Position(Position::default());
            scheduler.handle_flp(led.now, source(flp), position);
        }
        led.act();
        led.checksum = 0;
        Ok(led)
    }

    /// Creates an ICN as [`new`](Self::new), whose EPNs have room for all TFs of a measurement.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(super) fn with_room(policy: &str, shape: Shape) -> Result<Self, UnknownPolicy> {
        Self::new(policy, shape, SLOTS)
    }

    /// Returns TFs that are finished.
    pub(super) fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns TFs that the books have as complete.
    pub(super) fn complete(&self) -> u64 {
        self.scheduler.accounting().complete
    }

    /// Returns TFs that wait for an EPN.
    pub(super) fn queued(&self) -> usize {
        self.scheduler.queued()
    }

    /// Announces the next TF from all FLPs, and finishes the oldest ones beyond `open_max`. Returns the time from the
    /// last announce until the assignment is there; `None` if there is none.
    pub(super) fn lead_one(&mut self, open_max: usize) -> Option<Duration> {
        self.now.0 += PERIOD_NS;
        let begin = self.announce();
        let assigned = self.act();
        let took = begin.elapsed();
        let assigned = assigned?;
        self.open.push_back(assigned);
        while self.open.len() > open_max {
            self.finish_oldest();
        }
        Some(took)
    }

    /// Announces the next TF from all FLPs. Returns the time right before the last announce.
    fn announce(&mut self) -> Instant {
        let tf = self.next;
        self.next = tf.next();
        let mut last = Instant::now();
        for flp in 0..self.shape.flps {
            let item = Announced {
                tf,
                bytes: STF_BYTES,
            };
            if flp + 1 == self.shape.flps {
                last = Instant::now();
            }
            let announce = Control::Announce(vec![item]);
            self.scheduler.handle_flp(self.now, source(flp), announce);
        }
        last
    }

    /// Announces `tfs` TFs at once to an ICN whose EPNs have room for one each.
    pub(super) fn fill(&mut self, tfs: u64) {
        for _ in 0..tfs {
            self.announce();
            // The queue is shorter than the TFs of a large farm.
            self.act();
        }
    }

    /// Takes a pulse of every EPN. Returns how long that took.
    pub(super) fn pulse_all(&mut self) -> Duration {
        let begin = Instant::now();
        for epn in 0..self.shape.epns {
            let pulse = Control::EpnPulse(EpnPulse::default());
            self.scheduler.handle_epn(self.now, target(epn), pulse);
        }
        self.act();
        begin.elapsed()
    }

    /// Leads the oldest TF from the report of its EPN over commit and acknowledgement to its release.
    fn finish_oldest(&mut self) {
        let Some((tf, target)) = self.open.pop_front() else {
            return;
        };
        let built = Built {
            tf,
            attempt: Attempt(1),
            missing: Vec::new(),
            bytes: STF_BYTES * u64::from(self.shape.flps),
            first_byte_age_ns: 2_000_000,
            last_byte_age_ns: 1_000_000,
        };
        let built = Control::Built(vec![built]);
        self.scheduler.handle_epn(self.now, target, built);
        self.act();
        let ack = Control::CommitAck {
            tfs: vec![tf],
            consumed: Consumed::default(),
        };
        self.scheduler.handle_epn(self.now, target, ack);
        self.act();
        self.finished += 1;
        let pulse = EpnPulse {
            released_version: self.finished,
            ..EpnPulse::default()
        };
        let pulse = Control::EpnPulse(pulse);
        self.scheduler.handle_epn(self.now, target, pulse);
    }

    /// Takes all actions out. Returns the last assignment among them.
    fn act(&mut self) -> Option<(TfId, Target)> {
        self.scheduler.flush();
        let mut assigned = None;
        while let Some(action) = self.scheduler.poll_action() {
            self.checksum = self.checksum.wrapping_mul(31).wrapping_add(1);
            if let Action::Send(_, Control::Assign(items)) = &action
                && let Some(assign) = items.last()
            {
                let epn = u64::from(assign.target.epn.0);
                self.checksum = self.checksum.wrapping_add(epn);
                assigned = Some((assign.tf, assign.target));
            }
        }
        assigned
    }
}
