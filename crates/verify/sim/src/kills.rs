//! Cost of the death of an EPN: kills by the hundred at a steady rate, with a hold of a given length.
//!
//! Each farm lives for [`KILLS_A_FARM`] kills, one every [`KILL_EVERY`], half of them seen (the process dies), half
//! silent (the machine dies); the EPN is back after [`BACK_AFTER`]. Beside it, on demand, the rule of earlier systems:
//! an STF is freed when it was passed to the transport (*send and forget*). That rule lives here and in no node.

use crate::family::SeedFamily;
use crate::farm::TortureFarm;
use crate::invariant::Violation;
use crate::options::{Ack, Fault, Options};
use crate::watch::Accounting;
use sheaf_protocol::EpnId;
use sheaf_scheduler::Incomplete;
use sheaf_stf_builder::flp::WhenFull;
use std::time::Duration;

/// Kills of one farm.
pub const KILLS_A_FARM: u64 = 25;
/// From one kill to the next.
pub const KILL_EVERY: Duration = Duration::from_millis(400);
/// How long a killed EPN is away.
pub const BACK_AFTER: Duration = Duration::from_millis(250);

/// Configuration of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// EPNs that are killed, at least.
    pub kills: u64,
    /// How long an STF can be held at the rate of the farm.
    pub hold: Duration,
    /// TFs a second.
    pub rate_hz: u32,
    /// FLPs.
    pub flps: u16,
    /// EPNs.
    pub epns: u16,
    /// When EPNs say that a TF is built. With [`Ack::Stored`] every other kill hits between two steps of the disk.
    pub ack: Ack,
    /// Whether an STF is freed when it was sent.
    pub sends_and_forgets: bool,
    /// The first seed.
    pub seed: u64,
}

/// Result of the measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// EPNs killed.
    pub kills: u64,
    /// Accounting of all farms together.
    pub accounting: Accounting,
    /// Virtual time of all farms together.
    pub simulated: Duration,
}

impl Report {
    /// Returns the number of TFs dropped or incomplete.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.accounting.dropped + self.accounting.incomplete
    }
}

/// Kills EPNs.
///
/// # Errors
///
/// The first [`Violation`] of a promise that must hold here; with `sends_and_forgets` losses are no violation.
pub fn run(config: &Config, progress: &mut dyn FnMut(&Report)) -> Result<Report, Violation> {
    let mut report = Report::default();
    while report.kills < config.kills {
        let options = options(config, config.seed.wrapping_add(report.kills));
        let outcome = TortureFarm::new(&options).run()?;
        report.kills += outcome.state_faults;
        report.accounting.add(&outcome.accounting);
        report.simulated += outcome.simulated;
        progress(&report);
    }
    Ok(report)
}

fn options(config: &Config, seed: u64) -> Options {
    let mut options = Options::draw(SeedFamily::Calm, seed);
    options.kind = SeedFamily::Swarm;
    options.policy = "round-robin";
    options.flps = config.flps;
    options.epns = config.epns;
    options.incomplete = Incomplete::Never;
    options.rate_hz = f64::from(config.rate_hz);
    options.timeframes = None;
    options.stf_bytes = 200;
    let held = config.hold.as_millis() * u128::from(config.rate_hz) / 1000;
    options.hold_stfs = u32::try_from(held).unwrap_or(u32::MAX).max(1);
    options.when_full = WhenFull::DropNewest;
    options.capacity_tfs = 200;
    options.slots = 100;
    options.network.delay_max = Duration::from_millis(2);
    options.calm_network = options.network;
    options.sends_and_forgets = config.sends_and_forgets;
    options.ack = config.ack;
    let mut dice = crate::dice::Dice::new(seed);
    for kill in 0..KILLS_A_FARM {
        let jitter = dice.ms(0, 50);
        let at =
            Duration::from_millis(300) + KILL_EVERY * u32::try_from(kill).unwrap_or(0) + jitter;
        let fault = Fault::Crash {
            node: EpnId(dice.range(0, u64::from(config.epns) - 1) as u16).into(),
            silent: kill % 2 == 1,
            // Of 4 kills: seen, silent, and both of them between two steps.
            after_frames: match config.ack {
                Ack::Stored if kill % 4 >= 2 => dice.range(1, 12) as u32,
                Ack::Stored | Ack::Built | Ack::Processed => 0,
            },
            back_after: Some(BACK_AFTER),
        };
        options.faults.push((at, fault));
    }
    let last = options.faults.last().map_or(Duration::ZERO, |(at, _)| *at);
    options.calm_at = last + KILL_EVERY;
    options.stop_at = options.calm_at + options.settle + Duration::from_millis(100);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_hold_loses_nothing_and_sending_and_forgetting_does() {
        let config = |hold_ms, sends_and_forgets| Config {
            kills: KILLS_A_FARM,
            hold: Duration::from_millis(hold_ms),
            rate_hz: 200,
            flps: 3,
            epns: 6,
            ack: Ack::Built,
            sends_and_forgets,
            seed: 1,
        };
        let kept = run(&config(1000, false), &mut |_| {}).unwrap();
        assert_eq!((kept.kills, kept.lost()), (KILLS_A_FARM, 0));
        let forgotten = run(&config(1000, true), &mut |_| {}).unwrap();
        assert!(forgotten.lost() > 0, "{forgotten:?}");
    }

    #[test]
    fn what_was_stored_before_it_was_reported_is_never_abandoned() {
        let config = |ack| Config {
            kills: 8 * KILLS_A_FARM,
            hold: Duration::from_millis(1000),
            rate_hz: 200,
            flps: 3,
            epns: 6,
            ack,
            sends_and_forgets: false,
            seed: 1,
        };
        let built = run(&config(Ack::Built), &mut |_| {}).unwrap();
        let stored = run(&config(Ack::Stored), &mut |_| {}).unwrap();
        assert!(built.accounting.abandoned > 0, "{built:?}");
        assert_eq!((stored.lost(), stored.accounting.abandoned), (0, 0));
        assert!(stored.accounting.recovered > 0, "{stored:?}");
    }
}
