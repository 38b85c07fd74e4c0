//! Prior systems as baselines: the rule by which each one chooses an EPN, and the fate of a TF for which there is none.
//!
//! A scenario names a system in place of a policy, in simulations. The rest of the farm is the shipped one: network,
//! FLPs, builders and consumers are the same for all, so that a difference is one of the rules. What each system does
//! is taken from its sources, as the table says; figures that a system leaves to its configuration have the value of
//! its documentation.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_placement::{Job, LoadView, Measured, Policy, Refusal, TargetId, TargetLoad, policy};
use sheaf_protocol::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// Registration of a prior system.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Name in scenarios and results, in the place of a policy.
    pub name: &'static str,
    /// Rule by which it chooses an EPN.
    pub rule: &'static str,
    /// Fate of a TF for which there is no EPN.
    pub otherwise: &'static str,
    /// Origin of the rule.
    pub source: &'static str,
    make: fn(u64) -> Box<dyn Policy>,
}

/// TFs that wait for an EPN under the rules of a system: none of them has a queue before its EPNs.
pub(crate) const QUEUE_TFS_MAX: u32 = 0;

/// All systems. A TF for which one of them has no EPN is lost at once.
pub const SYSTEMS: [System; 5] = [
    System {
        name: "datadistribution",
        rule: "the builder that was not taken for longest, if it builds fewer than 25 TFs and has 1.2 times the TF \
               free, beyond eight TFs four times; free memory by its own estimate, which rises when nothing is being \
               built",
        otherwise: "dropped by the scheduler",
        source: "ALICE DataDistribution v1.6.4, src/TfScheduler/TfSchedulerTfBuilderInfo.cxx",
        make: |seed| Box::new(DataDistribution::new(seed)),
    },
    System {
        name: "ejfat",
        rule: "slot (id mod 512) of a calendar that is dealt out every second, by fill; sent whatever room there is",
        otherwise: "lost at the node that it was sent to",
        source: "EJFAT: esnet/udplb, esnet/udplbd2, with a proportional gain of a quarter (0 as shipped)",
        make: |seed| Box::new(Blind::new("ejfat", "calendar", seed)),
    },
    System {
        name: "flesnet",
        rule: "from builder (id mod n) on the first that builds nothing and has room",
        otherwise: "discarded by the manager",
        source: "flesnet, 2026 tsmanager, max_in_flight 1",
        make: |_| Box::new(Flesnet),
    },
    System {
        name: "atlas-files",
        rule: "a file, 60 s of one of 4 n streams, stays at the target that got the fewest bytes in the 5 s before \
               it was opened",
        otherwise: "lost at the target",
        source: "ATLAS storage balancing 2017, Weighted Assignment Policy, by file",
        make: |_| Box::new(Files::default()),
    },
    System {
        name: "o2-balancer",
        rule: "the next EPN of a list; sent whatever room there is",
        otherwise: "lost at the EPN",
        source: "O2-Balancer2, tag experiment-2",
        make: |seed| Box::new(Blind::new("o2-balancer", "round-robin", seed)),
    },
];

/// Returns the system of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

impl System {
    /// Returns the policy of a run of `seed`.
    pub(crate) fn policy(&self, seed: u64) -> Box<dyn Policy> {
        (self.make)(seed)
    }
}

/// TFs that a builder of DataDistribution builds at once, by its documentation.
const BUILDING_MAX: u32 = 25;
/// TFs with a builder beyond which it has to have room for [`RESERVE_TFS`].
const CROWDED_TFS: u64 = 8;
const RESERVE_TFS: u64 = 4;

/// Scheduler of DataDistribution: first fit from the front of a queue of builders, with an estimate of their memory.
struct DataDistribution {
    lots: Xoshiro256PlusPlus,
    /// Builders, the one that was not taken for longest first, each with the estimate of its free bytes.
    queue: VecDeque<(TargetId, u64)>,
    members: Option<u64>,
}

impl DataDistribution {
    fn new(seed: u64) -> Self {
        Self {
            lots: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: VecDeque::new(),
            members: None,
        }
    }

    /// Takes in builders that have come, each at a random end, and forgets those that have gone.
    fn follow(&mut self, view: &LoadView) {
        let members = Some(view.members_hash());
        if self.members == members {
            return;
        }
        self.members = members;
        self.queue.retain(|(id, _)| view.get(*id).is_some());
        for target in view.targets() {
            let is_known = self.queue.iter().any(|(id, _)| *id == target.id);
            if !is_known && self.lots.random() {
                self.queue.push_back((target.id, target.free_bytes()));
            } else if !is_known {
                self.queue.push_front((target.id, target.free_bytes()));
            }
        }
    }
}

impl Policy for DataDistribution {
    fn name(&self) -> &'static str {
        "datadistribution"
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        self.follow(view);
        let found = self.queue.iter_mut().position(|(id, estimate)| {
            let Some(target) = view.get(*id).filter(|target| target.fits(job)) else {
                return false;
            };
            let reported = target.free_bytes();
            *estimate = match target.booked_slots {
                0 => reported,
                _ => reported.min(*estimate),
            };
            let tfs = target.occupied_bytes() / job.bytes.max(1);
            let is_crowded = tfs > CROWDED_TFS;
            target.booked_slots < BUILDING_MAX
                && *estimate >= job.bytes.saturating_add(job.bytes / 5)
                && (!is_crowded || *estimate >= job.bytes.saturating_mul(RESERVE_TFS))
        });
        let Some((id, estimate)) = found.and_then(|nth| self.queue.remove(nth)) else {
            return Err(refusal(view, job));
        };
        self.queue
            .push_back((id, estimate.saturating_sub(job.bytes)));
        Ok(id)
    }
}

/// Manager of flesnet: from builder (id mod n) on the first that builds nothing.
struct Flesnet;

impl Policy for Flesnet {
    fn name(&self) -> &'static str {
        "flesnet"
    }

    fn choose(
        &mut self,
        _: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let targets = view.targets();
        let first = usize::try_from(job.id % targets.len().max(1) as u64).unwrap_or(0);
        let mut turn = targets[first..].iter().chain(&targets[..first]);
        let is_idle = |target: &&TargetLoad| target.booked_slots == 0 && target.fits(job);
        let found = turn.find(is_idle).map(|target| target.id);
        found.ok_or_else(|| refusal(view, job))
    }
}

/// Length of a file of ATLAS.
const FILE_NS: u64 = 60_000_000_000;
/// Streams for each target.
const STREAMS_EACH: u64 = 4;

/// Assignment of ATLAS by file: what belongs to one file goes to one target.
#[derive(Default)]
struct Files {
    /// Number of the file that each stream has open, and its target.
    open: BTreeMap<u64, (u64, TargetId)>,
}

impl Policy for Files {
    fn name(&self) -> &'static str {
        "atlas-files"
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        let streams = STREAMS_EACH * view.len().max(1) as u64;
        let (stream, file) = (job.id % streams, now.0 / FILE_NS);
        let known = self.open.get(&stream).filter(|(of, _)| *of == file);
        let known = known.filter(|(_, id)| view.get(*id).is_some_and(TargetLoad::is_online));
        let id = match known {
            Some((_, id)) => *id,
            None => {
                let online = view.targets().iter().zip(view.measured());
                let online = online.filter(|(target, _)| target.is_online());
                let lately = |(target, measured): &(&TargetLoad, &Measured)| {
                    (
                        measured.window_bytes(now) + target.occupied_bytes(),
                        target.id,
                    )
                };
                let least = online.min_by_key(lately);
                let (target, _) = least.ok_or_else(|| refusal(view, job))?;
                self.open.insert(stream, (file, target.id));
                target.id
            }
        };
        let has_room = view.get(id).is_some_and(|target| target.fits(job));
        match has_room {
            true => Ok(id),
            false => Err(refusal(view, job)),
        }
    }
}

/// Policy that does not know which room there is: what it chooses gets the TF, or it is lost.
struct Blind {
    name: &'static str,
    policy: Box<dyn Policy>,
}

impl Blind {
    /// Returns the policy `policy` without its knowledge of the room.
    fn new(name: &'static str, policy: &str, seed: u64) -> Self {
        let policy = policy::by_name(policy, seed).expect("a name of the table of policies");
        Self { name, policy }
    }
}

impl Policy for Blind {
    fn name(&self) -> &'static str {
        self.name
    }

    fn choose(
        &mut self,
        now: Timestamp,
        job: &Job<'_>,
        view: &LoadView,
    ) -> Result<TargetId, Refusal> {
        // As much more everywhere, so that how full one is beside the others stays to be seen.
        let mut roomy = LoadView::new();
        for target in view.targets() {
            roomy.insert(TargetLoad {
                capacity_bytes: target.capacity_bytes.saturating_add(2 * job.bytes),
                slots: target.slots.saturating_add(2),
                ..*target
            });
        }
        let chosen = self.policy.choose(now, job, &roomy)?;
        match view.get(chosen).is_some_and(|target| target.fits(job)) {
            true => Ok(chosen),
            false => Err(refusal(view, job)),
        }
    }
}

/// Returns why a TF is lost: that of the view, or that the EPN of the rule has no room.
fn refusal(view: &LoadView, job: &Job<'_>) -> Refusal {
    match view.targets().iter().any(|target| target.fits(job)) {
        true => Refusal::NoMemory,
        false => view.refusal(job),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Job<'static> {
        Job {
            id,
            bytes: 10,
            avoid: &[],
            is_early: false,
        }
    }

    /// EPNs with room for ten TFs, of which some is taken.
    fn view(held: &[u64]) -> LoadView {
        let mut view = LoadView::new();
        for (epn, held) in (0..).zip(held) {
            view.insert(TargetLoad::new(TargetId(epn), 100, 50));
            view.set_held(TargetId(epn), *held);
        }
        view
    }

    fn chosen(system: &str, view: &LoadView, ids: std::ops::Range<u64>) -> Vec<Option<u32>> {
        let mut policy = named(system).expect("a system").policy(1);
        assert_eq!(policy.name(), system);
        let mut choose = |id| policy.choose(Timestamp(0), &job(id), view).ok();
        ids.map(|id| choose(id).map(|target| target.0)).collect()
    }

    #[test]
    fn blind_systems_lose_what_they_send_to_a_full_epn() {
        let full = view(&[0, 100, 0]);
        let turn = chosen("o2-balancer", &full, 0..6);
        assert_eq!(
            turn.iter().filter(|epn| epn.is_none()).count(),
            2,
            "{turn:?}"
        );
        let calendar = chosen("ejfat", &full, 0..512);
        let lost = calendar.iter().filter(|epn| epn.is_none()).count();
        assert!((150..=190).contains(&lost), "a third: {lost}");
        assert!(!calendar.contains(&Some(1)));
    }

    #[test]
    fn flesnet_goes_on_from_its_slot_to_the_first_that_builds_nothing() {
        let mut view = view(&[0, 0, 0]);
        assert_eq!(chosen("flesnet", &view, 4..6), [Some(1), Some(2)]);
        view.book(TargetId(1), 10);
        assert_eq!(chosen("flesnet", &view, 4..6), [Some(2), Some(2)]);
        view.book(TargetId(0), 10);
        view.book(TargetId(2), 10);
        assert_eq!(chosen("flesnet", &view, 4..5), [None]);
    }

    #[test]
    fn the_estimate_of_datadistribution_rises_when_nothing_is_built() {
        let mut policy = DataDistribution::new(1);
        let mut choose = |view: &LoadView| policy.choose(Timestamp(0), &job(1), view).ok();
        let mut building = view(&[0]);
        building.book(TargetId(0), 10);
        // One TF is being built all the time; what else was built is freed at once, and the estimate does not see it.
        let mut placed = 0;
        while choose(&building).is_some() {
            placed += 1;
        }
        assert_eq!(placed, 8, "90 bytes free, 12 of them needed for the last");
        assert!(
            choose(&view(&[0])).is_some(),
            "nothing is built: the report counts"
        );
        // Beyond eight TFs there has to be room for four.
        assert!(choose(&view(&[90])).is_none());
    }

    #[test]
    fn a_file_stays_at_its_target_until_it_is_closed() {
        let mut policy = Files::default();
        let mut view = view(&[0, 0]);
        let mut choose = |now, id, view: &LoadView| {
            policy
                .choose(Timestamp(now), &job(id), view)
                .ok()
                .map(|target| target.0)
        };
        assert_eq!(choose(0, 0, &view), Some(0));
        view.set_held(TargetId(0), 90);
        // Stream 0 again (of 8), then a stream that has no file yet.
        assert_eq!(choose(1, 8, &view), Some(0));
        assert_eq!(choose(2, 9, &view), Some(1));
        view.set_held(TargetId(0), 100);
        assert_eq!(choose(3, 16, &view), None, "lost where it was sent");
        assert_eq!(choose(FILE_NS, 24, &view), Some(1));
    }

    #[test]
    fn no_system_has_the_name_of_a_policy() {
        for system in SYSTEMS {
            assert!(policy::by_name(system.name, 1).is_err(), "{}", system.name);
        }
    }
}
