//! Laws that hold at every instant, and after every storm.

use super::*;
use crate::scheduler::open_tf::Part;
use proptest::prelude::*;
use sheaf_placement::Reaction;

/// Checks that the accounts add up for the run and for each source, and that the load view shows exactly the bookings.
pub(super) fn check(scheduler: &Scheduler) {
    let accounting = &scheduler.accounting;
    assert!(accounting.balance(scheduler.in_flight()), "{accounting:?}");
    assert!(
        accounting.abandoned <= accounting.complete + accounting.incomplete,
        "{accounting:?}"
    );
    assert!(
        accounting.redelivered <= accounting.complete + accounting.incomplete,
        "{accounting:?}"
    );
    for (flp, source) in &accounting.sources {
        let fates = source.built + source.dropped + source.unused;
        assert_eq!(
            source.announced,
            fates + announced_in_flight(scheduler, *flp),
            "{flp} {source:?}"
        );
    }
    for node in scheduler.epns.values() {
        let load = scheduler
            .epn_load(node.target.epn)
            .expect("every EPN has a load");
        let open = scheduler.tfs.values().flat_map(|tf| &tf.bookings);
        let open = open
            .filter(|booking| booking.target == node.target)
            .map(|booking| booking.bytes);
        let booked: Vec<u64> = open
            .chain(node.losing.iter().map(|(_, bytes)| *bytes))
            .collect();
        assert_eq!(
            load.booked_bytes,
            booked.iter().sum::<u64>(),
            "{:?}",
            node.target
        );
        assert_eq!(
            load.booked_slots as usize,
            booked.len(),
            "{:?}",
            node.target
        );
    }
    assert_eq!(scheduler.view.len(), scheduler.epns.len());
    for (tf, open) in scheduler.tfs.iter() {
        assert!(
            !scheduler.released.contains(tf),
            "TF {tf} is open and released"
        );
        assert_eq!(open.members.len(), open.parts.len(), "TF {tf}");
        let queued = scheduler
            .queue
            .iter()
            .filter(|queued| **queued == tf)
            .count();
        assert_eq!(
            queued,
            usize::from(open.phase == Phase::Queued),
            "TF {tf} in the queue"
        );
    }
    assert!(
        scheduler
            .queue
            .iter()
            .all(|tf| scheduler.tfs.contains_key(tf))
    );
}

fn announced_in_flight(scheduler: &Scheduler, flp: FlpId) -> u64 {
    let undecided = scheduler.tfs.values().filter(|tf| tf.is_undecided());
    let parts = undecided.flat_map(|tf| tf.members.iter().zip(tf.parts.iter()));
    parts
        .filter(|(source, part)| source.flp == flp && matches!(part, Part::Announced(_)))
        .count() as u64
}

/// FLPs and EPNs of the storm.
const NODES: u16 = 3;

/// A farm whose nodes send and suffer anything.
struct Storm {
    bench: Bench,
    flp_lives: [u64; NODES as usize],
    epn_lives: [u64; NODES as usize],
    /// The first TF that each FLP has not made.
    next: [u64; NODES as usize],
}

impl Storm {
    fn new(mode: Mode, incomplete: Incomplete, reaction: Reaction, policy: &str) -> Self {
        let bench = farm_with(NODES, NODES, |config| {
            config.reaction = reaction;
            config.policy = policy.to_owned();
            config.mode = mode;
            config.incomplete = incomplete;
            config.queue_tfs_max = 6;
            config.paced_rate_hz = 100.0;
        });
        Self {
            bench,
            flp_lives: [1; NODES as usize],
            epn_lives: [1; NODES as usize],
            next: [0; NODES as usize],
        }
    }

    /// Runs one event of kind `what` at a node, about a TF near the frontier.
    fn step(&mut self, what: u8, index: u16, near: u64) {
        let at = usize::from(index);
        let flp = format!("flp {index}.{}", self.flp_lives[at]);
        let epn = format!("epn {index}.{}", self.epn_lives[at]);
        let frontier = self.bench.scheduler.frontier.0;
        let tf = (frontier + 2).saturating_sub(near);
        let other = near % u64::from(NODES);
        match what {
            0..=7 => {
                let next = self.next[at];
                self.next[at] += 1;
                self.say(&format!("{flp} has {next} of {}", STF_BYTES + near));
            }
            8 => self.say(&format!("{flp} has {tf}")),
            9 => self.say(&format!("{flp} has {tf} of 1000")),
            10 => self.say(&format!("{flp} skips {tf} source-overrun")),
            11..=14 => self.say(&format!("{epn} built {tf}")),
            15 => self.say(&format!("{epn} built {tf} without {other}")),
            16..=18 => self.say(&format!("{epn} acks {tf}")),
            19 => self.say(&format!("{epn} corrupt {tf} {other}")),
            20 | 21 => {
                let version = self.bench.scheduler.released_said;
                self.say(&format!("{epn} pulse {}", version.saturating_sub(near / 4)));
            }
            22 => self.say(&format!("{epn} silent")),
            23 => self.say(&format!("{epn} cut")),
            24 => self.say(&format!("{epn} heard")),
            25 => self.say(&format!("{epn} joins 150 4")),
            26 => {
                self.epn_lives[at] += 1;
                self.say(&format!(
                    "{epn} dead; epn {index}.{} joins 150 4",
                    self.epn_lives[at]
                ));
            }
            27 => self.say(&format!("{flp} silent")),
            28 => self.say(&format!("{flp} heard")),
            29 => self.say(&format!("{flp} gone")),
            30 => self.say(&format!("{flp} joins")),
            31 => {
                self.flp_lives[at] += 1;
                self.say(&format!(
                    "{flp} gone; flp {index}.{} joins",
                    self.flp_lives[at]
                ));
                self.next[at] = self.bench.scheduler.frontier.0;
            }
            32 => self.say(&format!(
                "{flp} unreachable {other}.{}",
                self.epn_lives[other as usize]
            )),
            33 => self.say(&format!("{flp} ended {tf}")),
            34 => self.say(&format!("late {near}")),
            35 => self.say(&format!(
                "epn {index}.77 built {tf}; flp {index}.77 has {tf}"
            )),
            _ => self.say(&format!("wait {}", near * near)),
        }
    }

    fn say(&mut self, script: &str) {
        self.bench.after(script);
    }

    /// Runs the farm with all nodes present and well, for as long as it takes.
    fn calm(&mut self) {
        for index in 0..NODES {
            let at = usize::from(index);
            self.flp_lives[at] += 1;
            self.epn_lives[at] += 1;
            self.say(&format!(
                "flp {index}.{} gone; flp {index}.{} joins; epn {index}.{} dead; epn {index}.{} joins",
                self.flp_lives[at] - 1,
                self.flp_lives[at],
                self.epn_lives[at] - 1,
                self.epn_lives[at],
            ));
        }
        for _ in 0..100 {
            self.say("wait 50");
            self.answer();
            if self.bench.scheduler.tfs.is_empty() && self.bench.scheduler.queue.is_empty() {
                return self.answer();
            }
        }
        panic!("unsettled: {:?}", self.bench.scheduler);
    }

    /// Answers for the nodes: FLPs announce what is asked of them, EPNs report and acknowledge their TFs.
    fn answer(&mut self) {
        let mut script = String::new();
        for (tf, open) in self.bench.scheduler.tfs.iter() {
            for (member, part) in open.members.iter().zip(&open.parts) {
                if matches!(part, Part::Unknown(_)) {
                    script += &format!("flp {}.{} has {tf};", member.flp.0, member.incarnation.0);
                }
            }
            match &open.phase {
                Phase::Building { target, .. } => {
                    let absent = without(&open.absent());
                    script += &format!(
                        "epn {}.{} built {tf}{absent};",
                        target.epn.0, target.incarnation.0
                    );
                }
                Phase::Committed { target, .. } => {
                    script += &format!("epn {}.{} acks {tf};", target.epn.0, target.incarnation.0);
                }
                Phase::Gathering | Phase::Queued => {}
            }
        }
        let version = self.bench.scheduler.released_said;
        for (index, life) in self.epn_lives.iter().enumerate() {
            script += &format!("epn {index}.{life} pulse {version};");
        }
        self.say(&script);
    }

    /// Ends the run: all nodes report so, and nothing stays open or booked.
    fn end(&mut self) {
        self.say("stop");
        let last = self.bench.scheduler.frontier.0;
        self.say(&format!(
            "flps stopped {last}; flps ended {last}; flps pulse"
        ));
        self.calm_until_over();
        let scheduler = &self.bench.scheduler;
        assert!(scheduler.tfs.is_empty() && scheduler.queue.is_empty());
        assert_eq!(
            scheduler.accounting.announced,
            scheduler.accounting.decided()
        );
        assert_eq!(
            scheduler.accounting.announced,
            self.bench.verdicts.len() as u64
        );
        assert_eq!(
            scheduler.accounting.abandoned,
            self.bench.abandoned.len() as u64
        );
        self.bench.check_summary();
    }

    fn calm_until_over(&mut self) {
        for _ in 0..110 {
            if self.bench.scheduler.is_over() {
                return;
            }
            self.answer();
            self.say("flps pulse; wait 50");
        }
        panic!("not over: {:?}", self.bench.scheduler);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_books_and_bookings_add_up_and_calm_settles_everything(
        is_paced in any::<bool>(),
        allows in any::<bool>(),
        again in any::<bool>(),
        reaction in prop::sample::select(&Reaction::ALL[..]),
        policy in prop::sample::select(policy::NAMES),
        steps in prop::collection::vec((0..40_u8, 0..NODES, 0..16_u64), 0..150),
    ) {
        let mode = if is_paced { Mode::Paced } else { Mode::DataDriven };
        let incomplete = if allows { Incomplete::Allow } else { Incomplete::Never };
        let mut storm = Storm::new(mode, incomplete, reaction, policy);
        if again {
            storm.bench.scheduler.config.delivery = Delivery::AtLeastOnce;
        }
        for (what, index, near) in steps {
            storm.step(what, index, near);
        }
        // Under `reinitialise` the storm leaves no EPN on the list: TFs that are open then end with the run.
        if !is_paced && reaction != Reaction::Reinitialise {
            storm.calm();
            let scheduler = &storm.bench.scheduler;
            let booked: u64 = scheduler.view.targets().iter().map(|load| load.booked_bytes).sum();
            prop_assert_eq!((scheduler.in_flight(), booked), (0, 0));
        }
        storm.end();
    }
}
