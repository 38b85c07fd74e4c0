//! What a seed stands for: the shape of a farm, and what happens to it when.

use sheaf_balance::{Incomplete, Mode};
use sheaf_transport::memory::Faults;
use std::time::Duration;

/// Which faults a plan may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Calm,
    EpnFaults,
    BadNetwork,
    Everything,
    Paced,
}

/// One thing that happens to a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Killed; started again after a while, or at the end of the faults.
    Crash {
        node: String,
        silent: bool,
        back_after: Option<Duration>,
    },
    /// Stopped for a while, as by SIGSTOP.
    Pause { node: String, length: Duration },
    /// Nothing passes between two nodes for a while.
    Cut {
        a: String,
        b: String,
        length: Duration,
    },
    /// Asked to leave, as by SIGTERM; started again after a while.
    Leave { node: String, back_after: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) flps: u16,
    pub(crate) epns: u16,
    pub(crate) policy: &'static str,
    pub(crate) mode: Mode,
    pub(crate) incomplete: Incomplete,
    /// 0 for as fast as the hold takes them.
    pub(crate) rate_hz: f64,
    pub(crate) timeframes: Option<u64>,
    pub(crate) stf_bytes: u64,
    pub(crate) hold_stfs: u32,
    pub(crate) capacity_stfs: u64,
    pub(crate) slots: u32,
    pub(crate) network: Faults,
    /// When each fault begins; all end before `calm_at`.
    pub(crate) faults: Vec<(Duration, Fault)>,
    pub(crate) calm_at: Duration,
    /// When the run is asked to stop.
    pub(crate) stop_at: Duration,
}

/// SplitMix64, as the memory transport has it: the same on every machine.
pub(crate) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low * 1000, high * 1000))
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.range(1, 100) <= percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.range(0, items.len() as u64 - 1) as usize]
    }
}

impl Kind {
    /// Whether every TF has to be complete, whatever happens: no FLP is hurt.
    pub(crate) fn loses_nothing(self) -> bool {
        matches!(self, Self::Calm | Self::EpnFaults | Self::BadNetwork)
    }
}

impl Plan {
    pub(crate) fn draw(kind: Kind, seed: u64) -> Self {
        let mut dice = Dice(seed ^ 0x5eed_0000);
        let (flps, epns) = (dice.range(1, 4) as u16, dice.range(2, 5) as u16);
        let calm_at = dice.ms(500, 1500);
        let mut plan = Self {
            kind,
            seed,
            flps,
            epns,
            policy: dice.pick(&["round-robin", "random", "least-loaded", "modulo", "fixed"]),
            mode: if kind == Kind::Paced {
                Mode::Paced
            } else {
                Mode::DataDriven
            },
            incomplete: dice.pick(&[Incomplete::Never, Incomplete::Allow]),
            rate_hz: dice.pick(&[50.0, 100.0, 200.0, 0.0]),
            timeframes: dice.chance(30).then_some(0).map(|_: u64| 0),
            stf_bytes: dice.range(0, 3000),
            hold_stfs: dice.range(64, 400) as u32,
            capacity_stfs: dice.range(4, 60),
            slots: dice.range(2, 20) as u32,
            network: Faults {
                delay_max: dice.ms(0, 3),
                ..Faults::default()
            },
            faults: Vec::new(),
            calm_at,
            stop_at: calm_at + dice.ms(300, 600),
        };
        plan.timeframes = plan.timeframes.map(|_| dice.range(1, 200));
        if plan.rate_hz == 0.0 {
            // As fast as possible needs an end in TFs, or virtual seconds become hours.
            plan.timeframes = Some(dice.range(50, 300));
        }
        if plan.mode == Mode::Paced {
            plan.rate_hz = 200.0;
        }
        if matches!(kind, Kind::BadNetwork | Kind::Everything | Kind::Paced) {
            plan.network.loss = dice.range(0, 30) as f64 / 1000.0;
            plan.network.duplicate = dice.range(0, 50) as f64 / 1000.0;
            plan.network.reorder = dice.range(0, 50) as f64 / 1000.0;
            plan.network.late_max = dice.ms(1, 30);
            plan.network.reset = dice.range(0, 5) as f64 / 1000.0;
        }
        let count = match kind {
            Kind::Calm | Kind::BadNetwork => 0,
            Kind::EpnFaults | Kind::Everything | Kind::Paced => dice.range(1, 6),
        };
        for _ in 0..count {
            let at = dice.ms(20, calm_at.as_millis() as u64);
            let fault = plan.draw_fault(kind, &mut dice);
            plan.faults.push((at, fault));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    fn draw_fault(&self, kind: Kind, dice: &mut Dice) -> Fault {
        let epn = |dice: &mut Dice| format!("epn:{}", dice.range(0, u64::from(self.epns) - 1));
        let flp = |dice: &mut Dice| format!("flp:{}", dice.range(0, u64::from(self.flps) - 1));
        let any = |dice: &mut Dice| {
            if dice.chance(60) {
                epn(dice)
            } else {
                flp(dice)
            }
        };
        let node = if kind == Kind::EpnFaults {
            epn(dice)
        } else {
            any(dice)
        };
        match dice.range(1, 10) {
            1..=4 => {
                let back_after = dice.chance(70).then(|| dice.ms(1, 400));
                Fault::Crash {
                    node,
                    silent: dice.chance(30),
                    back_after,
                }
            }
            5..=7 => Fault::Pause {
                node,
                length: dice.ms(10, 600),
            },
            8..=9 if kind != Kind::EpnFaults => {
                let b = if dice.chance(50) {
                    "icn:0".to_owned()
                } else {
                    epn(dice)
                };
                Fault::Cut {
                    a: flp(dice),
                    b,
                    length: dice.ms(10, 600),
                }
            }
            8 => Fault::Cut {
                a: node,
                b: "icn:0".to_owned(),
                length: dice.ms(10, 600),
            },
            _ => Fault::Leave {
                node,
                back_after: dice.ms(50, 400),
            },
        }
    }
}
