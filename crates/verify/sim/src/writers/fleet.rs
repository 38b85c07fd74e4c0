//! Many writers behind many EPNs: each EPN chooses the writer of a TF by a policy and the load that writers report.
//!
//! TFs come at an even pace, one EPN after the other. An EPN books its choice at once into its own view of the load and
//! replaces it by the reports of the writers, which are the same for all and some time old. It keeps the TF until the
//! writer has written it; an EPN whose memory is full of such TFs loses the next one. A writer is the one of
//! [`run`](super::run): brain, workers, queues, input in order.

use super::{Choice, Farm, MB, Mix, NS, Setup, WritersError, stream_of};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_placement::policy;
use sheaf_placement::{Finished, Job, LoadView, Policy, TargetId, TargetLoad, UnknownPolicy};
use sheaf_protocol::{Timestamp, splitmix};
use sheaf_write::StreamId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thiserror::Error;

/// Room of a writer, as EPNs see it: never the reason of a choice, as a full one only makes them wait.
const ROOM_BYTES: u64 = u64::MAX >> 1;
/// Most writers.
const WRITERS_MAX: u32 = 1024;

/// Writers, EPNs in front of them, and what they have to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Writers.
    pub writers: u32,
    /// EPNs.
    pub epns: u32,
    /// Policy by which an EPN chooses the writer of a TF: a name of `sheaf_placement::policy`.
    pub policy: String,
    /// Offered rate ÷ bound of whole files of all writers together.
    pub load: f64,
    /// Time from one report of the load of a writer to the next.
    pub report_ms: u64,
    /// TFs that the memory of an EPN holds until they are written.
    pub epn_tfs_max: u32,
    /// Blocks that TFs come for.
    pub blocks: u64,
    /// Conditions of each writer.
    pub of_writer: Setup,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            writers: 20,
            epns: 1750,
            policy: "power-of-two".to_owned(),
            load: 0.9,
            report_ms: 1000,
            epn_tfs_max: 8,
            blocks: 3,
            of_writer: Setup::default(),
        }
    }
}

/// Outcome of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetOutcome {
    /// Rate that TFs come at, in MB/s.
    pub offered_mb_s: f64,
    /// Bytes written ÷ time until the last of them is, in MB/s.
    pub mb_s: f64,
    /// Bound of whole files of all writers together, a mean over the blocks.
    pub file_bound_mb_s: f64,
    /// TFs that came.
    pub tfs: u64,
    /// TFs lost, as the memory of their EPN was full of others that were not written.
    pub lost: u64,
    /// TFs that a writer took and no file got; 0, or the run is wrong.
    pub lost_by_writers: u64,
    /// Bytes that each writer got.
    pub writer_bytes: Vec<u64>,
    /// Files of all writers.
    pub files: u64,
    /// From a TF at its EPN to the return of its write, in ns, ascending.
    #[serde(skip)]
    pub lag_ns: Vec<u64>,
}

impl FleetOutcome {
    /// Returns the bytes of the fullest writer ÷ their mean over all: 1 if all have the same.
    #[must_use]
    pub fn fullest_writer(&self) -> f64 {
        let sum: u64 = self.writer_bytes.iter().sum();
        let most = self.writer_bytes.iter().max().copied().unwrap_or(0);
        most as f64 * self.writer_bytes.len() as f64 / (sum as f64).max(1.0)
    }

    /// Returns the lag that a share `q` of the TFs does not exceed, in seconds; 0 if none was written.
    #[must_use]
    pub fn lag_s(&self, q: f64) -> f64 {
        let rank = (q * self.lag_ns.len() as f64).ceil() as usize;
        let at = rank.clamp(1, self.lag_ns.len().max(1)) - 1;
        self.lag_ns.get(at).map_or(0.0, |ns| *ns as f64 / NS)
    }

    /// Returns the TFs lost, in percent of those that came.
    #[must_use]
    pub fn loss_percent(&self) -> f64 {
        100.0 * self.lost as f64 / (self.tfs as f64).max(1.0)
    }
}

/// Why a fleet cannot begin.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A writer cannot begin.
    #[error(transparent)]
    Writers(#[from] WritersError),
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// A number is out of its range.
    #[error("found {found} {what}, expected {expected}")]
    Number {
        /// Thing that is numbered.
        what: &'static str,
        /// Number found.
        found: String,
        /// Numbers accepted.
        expected: &'static str,
    },
}

/// TF that an EPN holds.
struct Held {
    writer: TargetId,
    placed_at: Timestamp,
    done_at: Timestamp,
}

/// An EPN, as far as it has to do with writers.
struct Epn {
    policy: Box<dyn Policy>,
    view: LoadView,
    /// Number of the newest report in the view.
    report: u64,
    /// Choices since that report.
    booked: Vec<TargetId>,
    held: Vec<Held>,
}

/// A writer, and what of it is not written yet.
struct Stage {
    farm: Farm,
    /// When each record is written, and its bytes.
    pending: BinaryHeap<Reverse<(Timestamp, u64)>>,
    pending_bytes: u64,
    bytes: u64,
}

impl Stage {
    /// Returns the bytes that wait at `now`.
    fn backlog(&mut self, now: Timestamp) -> u64 {
        while let Some(Reverse((done_at, bytes))) = self.pending.peek().copied()
            && done_at <= now
        {
            self.pending.pop();
            self.pending_bytes -= bytes;
        }
        self.pending_bytes
    }

    /// Takes a record. Returns when it will be written.
    fn take(&mut self, now: Timestamp, stream: StreamId, bytes: u64) -> Timestamp {
        self.farm.now = self.farm.now.max(now);
        self.farm.take(stream, bytes);
        let done_at = self.farm.last_done;
        self.pending.push(Reverse((done_at, bytes)));
        self.pending_bytes += bytes;
        self.bytes += bytes;
        done_at
    }
}

impl Epn {
    /// Creates the EPN with this number. Policies that go in turn begin at another writer each.
    fn new(fleet: &Fleet, number: u32) -> Result<Self, FleetError> {
        let seed = splitmix::hash(fleet.of_writer.seed ^ (u64::from(number) << 32));
        let mut policy = policy::by_name(&fleet.policy, seed)?;
        let mut view = LoadView::new();
        for writer in 0..fleet.writers {
            view.insert(TargetLoad::new(TargetId(writer), ROOM_BYTES, u32::MAX));
        }
        for turn in 0..number % fleet.writers {
            // The choice is not used: only the turn of the policy is.
            let _ = policy.choose(Timestamp(0), &job(turn.into(), 0), &view);
        }
        Ok(Self {
            policy,
            view,
            report: 0,
            booked: Vec::new(),
            held: Vec::new(),
        })
    }

    /// Releases TFs that are written by `now`.
    fn settle(&mut self, now: Timestamp, bytes: u64) {
        let view = &mut self.view;
        self.held.retain(|held| {
            let is_written = held.done_at <= now;
            if is_written {
                let finished = Finished {
                    bytes,
                    placed_at: held.placed_at,
                    arrived_at: held.placed_at,
                    done_at: held.done_at,
                };
                view.observe(held.writer, &finished);
            }
            !is_written
        });
    }

    /// Takes report `number`, whose bytes replace what was booked before it.
    fn handle_report(&mut self, number: u64, reported: &[u64], bytes: u64) {
        if self.report == number {
            return;
        }
        self.report = number;
        for writer in self.booked.drain(..) {
            self.view.release(writer, bytes);
        }
        for (writer, bytes) in (0..).zip(reported) {
            self.view.set_held(TargetId(writer), *bytes);
        }
    }
}

fn job(id: u64, bytes: u64) -> Job<'static> {
    Job {
        id,
        bytes,
        avoid: &[],
        is_early: false,
    }
}

impl Fleet {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// [`FleetError::Number`] or [`FleetError::Policy`], with what is accepted.
    pub fn check(&self) -> Result<(), FleetError> {
        policy::by_name(&self.policy, 1)?;
        let numbers: [(&'static str, f64, f64, f64, &'static str); 6] = [
            (
                "writers",
                self.writers.into(),
                1.0,
                WRITERS_MAX.into(),
                "1 to 1024",
            ),
            ("EPNs", self.epns.into(), 1.0, 65_000.0, "1 to 65000"),
            ("as load", self.load, 1e-3, 10.0, "0.001 to 10"),
            (
                "ms between reports",
                self.report_ms as f64,
                1.0,
                1e6,
                "1 to 1000000",
            ),
            (
                "TFs an EPN",
                self.epn_tfs_max.into(),
                1.0,
                1e6,
                "1 to 1000000",
            ),
            ("blocks", self.blocks as f64, 1.0, 1e6, "1 to 1000000"),
        ];
        for (what, found, least, most, expected) in numbers {
            if !(least..=most).contains(&found) {
                return Err(FleetError::Number {
                    what,
                    found: found.to_string(),
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Runs TFs of `mix` through the fleet, whose writers assign files by `choice`. A TF is a record of one stream.
    ///
    /// # Errors
    ///
    /// [`FleetError`] if the conditions make no sense.
    pub fn run(&self, mix: &Mix, choice: Choice) -> Result<FleetOutcome, FleetError> {
        self.check()?;
        let setup = self.of_writer;
        let bytes = setup.record_bytes;
        let streams = u16::try_from(mix.shares.len()).unwrap_or(u16::MAX);
        let mut stages = Vec::new();
        for writer in 0..self.writers {
            let seed = setup.seed.wrapping_add(u64::from(writer) << 32);
            let farm = Farm::new(streams, choice, Setup { seed, ..setup });
            stages.push(Stage {
                farm: farm.map_err(WritersError::from)?,
                pending: BinaryHeap::new(),
                pending_bytes: 0,
                bytes: 0,
            });
        }
        let epns = (0..self.epns).map(|number| Epn::new(self, number));
        let mut epns = epns.collect::<Result<Vec<_>, _>>()?;
        let offered_mb_s = self.load * f64::from(self.writers) * setup.file_bound(&mix.shares);
        let period_ns = bytes as f64 / MB / offered_mb_s * NS;
        let end_ns = self.blocks as f64 * setup.block_s * NS;
        let report_ns = self.report_ms * 1_000_000;

        let mut rng = Xoshiro256PlusPlus::seed_from_u64(setup.seed);
        let mut of_blocks = mix.blocks(setup.seed);
        let (mut block, mut shares) = (u64::MAX, Vec::new());
        let mut bounds = Vec::new();
        let (mut report, mut reported) = (0, vec![0; self.writers as usize]);
        let (mut tfs, mut lost) = (0_u64, 0);
        let mut lag_ns = Vec::new();
        let mut last = Timestamp(0);
        while (tfs as f64) * period_ns < end_ns {
            let now = Timestamp((tfs as f64 * period_ns) as u64);
            while (report + 1) * report_ns <= now.0 {
                report += 1;
                for (stage, backlog) in stages.iter_mut().zip(&mut reported) {
                    *backlog = stage.backlog(Timestamp(report * report_ns));
                }
            }
            let in_block = (now.0 as f64 / NS / setup.block_s) as u64;
            if in_block != block {
                block = in_block;
                shares = of_blocks.next().unwrap_or_default();
                bounds.push(setup.file_bound(&shares) * f64::from(self.writers));
            }
            let stream = stream_of(&shares, rng.random());
            let place = usize::try_from(tfs % u64::from(self.epns)).expect("an EPN has an index");
            let epn = &mut epns[place];
            let job = job(tfs, bytes);
            tfs += 1;
            epn.settle(now, bytes);
            epn.handle_report(report, &reported, bytes);
            if epn.held.len() >= self.epn_tfs_max as usize {
                lost += 1;
                continue;
            }
            let Ok(writer) = epn.policy.choose(now, &job, &epn.view) else {
                // Only a policy that knows one writer, which is not there, finds no room.
                lost += 1;
                continue;
            };
            epn.view.book(writer, bytes);
            epn.booked.push(writer);
            let done_at = stages[writer.0 as usize].take(now, stream, bytes);
            epn.held.push(Held {
                writer,
                placed_at: now,
                done_at,
            });
            lag_ns.push(done_at.since(now).as_nanos() as u64);
            last = last.max(done_at);
        }
        lag_ns.sort_unstable();
        let writer_bytes: Vec<u64> = stages.iter().map(|stage| stage.bytes).collect();
        let (mut files, mut lost_by_writers) = (0, 0);
        for stage in stages.into_iter().filter(|stage| stage.bytes > 0) {
            let outcome = stage.farm.outcome(&bounds)?;
            files += outcome.files;
            lost_by_writers += outcome.lost;
        }
        let written: u64 = writer_bytes.iter().sum();
        Ok(FleetOutcome {
            offered_mb_s,
            mb_s: written as f64 / MB / (last.0 as f64).max(end_ns) * NS,
            file_bound_mb_s: bounds.iter().sum::<f64>() / bounds.len().max(1) as f64,
            tfs,
            lost,
            lost_by_writers,
            writer_bytes,
            files,
            lag_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(policy: &str, load: f64) -> Fleet {
        Fleet {
            writers: 4,
            epns: 40,
            policy: policy.to_owned(),
            load,
            ..Fleet::default()
        }
    }

    fn outcome(fleet: &Fleet) -> FleetOutcome {
        let mix = Mix::named("sfo-2016", 0.0).expect("a mix");
        let choice = Choice::named("open-rate").expect("an assignment");
        let outcome = fleet.run(&mix, choice).expect("runs");
        let written: u64 = outcome.writer_bytes.iter().sum();
        let bytes = fleet.of_writer.record_bytes;
        assert_eq!(written, (outcome.tfs - outcome.lost) * bytes, "every TF");
        assert_eq!(outcome.lost_by_writers, 0);
        outcome
    }

    #[test]
    fn a_fleet_below_its_bound_loses_nothing_and_is_even() {
        for policy in ["round-robin", "power-of-two", "modulo"] {
            let outcome = outcome(&fleet(policy, 0.7));
            assert_eq!(outcome.lost, 0, "{policy}");
            assert!(outcome.fullest_writer() < 1.1, "{policy}: {outcome:?}");
            assert!(outcome.lag_s(0.5) < 1.0, "{policy}: {}", outcome.lag_s(0.5));
            let off = outcome.mb_s / outcome.offered_mb_s - 1.0;
            assert!(off.abs() < 0.02, "{policy}: {off}");
        }
    }

    #[test]
    fn a_fleet_beyond_its_bound_loses_what_its_epns_cannot_hold() {
        let outcome = outcome(&fleet("power-of-two", 2.0));
        assert!(outcome.loss_percent() > 20.0, "{}", outcome.loss_percent());
        assert!(outcome.mb_s < 1.05 * outcome.file_bound_mb_s);
        assert!(outcome.lag_s(1.0) >= outcome.lag_s(0.5));
    }

    #[test]
    fn one_writer_for_all_is_seen_in_the_balance() {
        let outcome = outcome(&fleet("fixed:0", 0.2));
        assert_eq!(outcome.fullest_writer(), 4.0);
        assert_eq!(outcome.writer_bytes[1..], [0; 3]);
    }

    #[test]
    fn equal_seeds_give_equal_fleets_and_others_do_not() {
        let random = |seed| {
            let mut fleet = fleet("random", 0.7);
            fleet.of_writer.seed = seed;
            outcome(&fleet).writer_bytes
        };
        assert_eq!(random(1), random(1));
        assert_ne!(random(1), random(2));
    }

    #[test]
    fn numbers_and_policies_that_make_no_sense_are_refused() {
        let told = |fleet: Fleet| fleet.check().unwrap_err().to_string();
        let none = Fleet {
            writers: 0,
            ..Fleet::default()
        };
        assert_eq!(told(none), "found 0 writers, expected 1 to 1024");
        assert!(told(fleet("moon", 0.5)).contains("`moon`"));
        assert_eq!(
            told(fleet("random", 0.0)),
            "found 0 as load, expected 0.001 to 10"
        );
    }
}
