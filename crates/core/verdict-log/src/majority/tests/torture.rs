//! Thousands of seeds. `SHEAF_SEED=7` runs one alone, `SHEAF_SEEDS=100000` more of them.

use super::run;
use super::world::{ICNS, Options, World, ms};
use std::time::Duration;

/// Seeds of every run of the tests.
const SEEDS: u64 = 2000;

#[expect(
    clippy::disallowed_methods,
    reason = "the seeds of a test are chosen from outside"
)]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[test]
fn nothing_durable_is_lost_and_logs_never_part_whatever_happens() {
    let seeds = match number("SHEAF_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SHEAF_SEEDS").unwrap_or(SEEDS),
    };
    let (mut faults, mut durable, mut leads, mut installs) = (0, 0, 0, 0);
    for seed in seeds {
        let world = run(seed).unwrap_or_else(|why| {
            panic!("SHEAF_SEED={seed}: {why}; {:?}", Options::of(seed));
        });
        faults += world.faults;
        durable += world.durable;
        leads += world.leads.len();
        installs += world.installs;
    }
    println!("{faults} faults, {leads} leaders, {durable} records durable, {installs} installs");
}

#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in 0..20 {
        let trace = || run(seed).expect("checked by the other test").trace();
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

/// Returns how long there is no leader after the leader was killed.
fn gap(seed: u64, with_power: bool) -> Duration {
    let mut world = World::new(Options::kind(seed));
    let step = |world: &mut World, time, what: &dyn Fn(&World) -> bool| {
        let until = world.now + time;
        world
            .run(until, what)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    };
    step(&mut world, ms(3000), &|world| world.leader().is_some());
    step(&mut world, ms(100 + seed % 50), &|_| false);
    let leader = world.leader().expect("nothing has happened to it");
    let (at, before) = (world.now, world.leads.len());
    world.kill(leader, true, with_power);
    step(&mut world, ms(3000), &|world| world.leads.len() > before);
    assert!(world.leads.len() > before, "seed {seed}: no member leads");
    world.now.since(at)
}

#[test]
fn another_leads_within_120_ms_of_the_kill_of_a_leader_in_99_of_100() {
    let mut gaps: Vec<Duration> = (0..1000).map(|seed| gap(seed, seed % 2 == 0)).collect();
    gaps.sort_unstable();
    let at = |share: usize| gaps[gaps.len() * share / 1000];
    println!(
        "{} kills, {ICNS} ICNs: p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
        gaps.len(),
        at(500),
        at(900),
        at(990),
        at(999)
    );
    assert!(at(990) <= ms(120), "{:?}", at(990));
}
