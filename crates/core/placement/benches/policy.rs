//! Benchmark of the cost of one choice.
//!
//! Workload: one call of `choose` on farms of 10, 100 and 2,000 targets, once with room everywhere, once with room
//! everywhere and targets that were all measured, and once with room on a single target, which is the longest way for
//! every policy. Unit: time per choice.
//! Aim on one core of 2020s server hardware at 2,000 targets: below 1 µs for policies that look at a few
//! targets, below 20 µs for those that look at all. `cargo bench --profile ci -p sheaf-placement`
//! measures; under `cargo test` every bench runs once. The checksum tells whether two runs did the same
//! work.

use divan::{Bencher, black_box};
use sheaf_placement::{Finished, Job, LoadView, Policy, TargetId, TargetLoad, policy};
use sheaf_protocol::Timestamp;
use std::fmt;

const TARGETS: [u32; 3] = [10, 100, 2000];
/// Bytes of a job in this benchmark.
const JOB_BYTES: u64 = 3_300_000;
/// Capacity of a target: room for a hundred such jobs.
const CAPACITY_BYTES: u64 = 100 * JOB_BYTES;

fn main() {
    let choices = if std::env::args().any(|arg| arg == "--bench") {
        100_000
    } else {
        100
    };
    let checksum = cases().fold(0, |sum: u64, case| {
        sum.rotate_left(7) ^ place(&mut *case.policy(), case.targets, choices)
    });
    println!("policy: {choices} choices a case, checksum {checksum:016x}");
    divan::main();
}

/// One policy on one size of farm.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    targets: u32,
}

impl Case {
    fn policy(&self) -> Box<dyn Policy> {
        policy::by_name(self.name, 1).expect("one of NAMES")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<15} {:>4}", self.name, self.targets)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let of_name = |&name| TARGETS.map(|targets| Case { name, targets });
    policy::NAMES.iter().flat_map(of_name)
}

/// Returns a farm in which targets of the given ids have room.
fn farm(targets: u32, with_room: impl Fn(u32) -> bool) -> LoadView {
    let mut view = LoadView::new();
    for id in 0..targets {
        let slots = if with_room(id) { 100 } else { 0 };
        view.insert(TargetLoad::new(TargetId(id), CAPACITY_BYTES, slots));
    }
    view
}

fn job(id: u64) -> Job<'static> {
    Job {
        id,
        bytes: JOB_BYTES,
        avoid: &[],
        is_early: false,
    }
}

/// Places jobs with their bookings, each released once as many are placed as there are targets, and
/// folds the choices into one number.
fn place(policy: &mut dyn Policy, targets: u32, choices: u64) -> u64 {
    let mut view = farm(targets, |_| true);
    let mut booked = std::collections::VecDeque::new();
    (0..choices).fold(0, |sum: u64, id| {
        if booked.len() == targets as usize
            && let Some(target) = booked.pop_front()
        {
            view.release(target, JOB_BYTES);
        }
        let target = policy
            .choose(Timestamp(id), &job(id), &view)
            .expect("one slot in a hundred is booked");
        view.book(target, JOB_BYTES);
        booked.push_back(target);
        sum.rotate_left(5) ^ u64::from(target.0)
    })
}

fn choose(bencher: Bencher<'_, '_>, case: Case, view: &LoadView) {
    let mut policy = case.policy();
    let mut id = 0;
    bencher.bench_local(|| {
        id += 1;
        policy.choose(Timestamp(id), black_box(&job(id)), black_box(view))
    });
}

#[divan::bench(args = cases())]
fn room_everywhere(bencher: Bencher<'_, '_>, case: Case) {
    choose(bencher, case, &farm(case.targets, |_| true));
}

/// Jobs of a target behind which every policy goes by what was measured.
const MEASURED_JOBS: u64 = 20;

#[divan::bench(args = cases())]
fn measured(bencher: Bencher<'_, '_>, case: Case) {
    let mut view = farm(case.targets, |_| true);
    for (id, at) in (0..case.targets).flat_map(|id| (0..MEASURED_JOBS).map(move |at| (id, at))) {
        // Each a little slower than the one before it.
        let ns = 1_000_000 * (10 + u64::from(id % 10));
        let placed_at = Timestamp(at * 100_000_000);
        let done = Finished {
            bytes: JOB_BYTES,
            placed_at,
            arrived_at: Timestamp(placed_at.0 + ns),
            done_at: Timestamp(placed_at.0 + 2 * ns),
        };
        view.observe(TargetId(id), &done);
    }
    let mut policy = case.policy();
    let mut at = MEASURED_JOBS * 100_000_000;
    bencher.bench_local(|| {
        at += 1;
        policy.choose(Timestamp(at), black_box(&job(at)), black_box(&view))
    });
}

#[divan::bench(args = cases())]
fn room_on_one(bencher: Bencher<'_, '_>, case: Case) {
    choose(
        bencher,
        case,
        &farm(case.targets, |id| id == case.targets - 1),
    );
}

#[divan::bench(args = cases())]
fn room_nowhere(bencher: Bencher<'_, '_>, case: Case) {
    choose(bencher, case, &farm(case.targets, |_| false));
}
