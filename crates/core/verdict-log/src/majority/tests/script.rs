//! Tests of cases that people ask about, each by a script.

use super::world::{ICNS, Options, World, ms};
use crate::majority::{MajorityConfig, MajorityLedger};
use crate::storage::{DiskFaults, SimDisk, SimStorage, Storage, StorageError};
use crate::{Ledger, Notice, Position};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::{Record, TfId, Timestamp};
use std::time::Duration;

/// Lets `time` pass, or less if `is_enough`.
fn pass(world: &mut World, time: Duration, is_enough: impl Fn(&World) -> bool) {
    let until = world.now + time;
    world
        .run(until, is_enough)
        .unwrap_or_else(|why| panic!("{why}"));
}

/// Returns three members, one of which leads, and its index.
fn farm(seed: u64) -> (World, u16) {
    let mut world = World::new(Options::kind(seed));
    pass(&mut world, ms(1000), |world| world.leader().is_some());
    let leader = world.leader().expect("nothing hinders them");
    pass(&mut world, ms(100), |_| false);
    assert_eq!(world.leader(), Some(leader));
    (world, leader)
}

fn others(icn: u16) -> (u16, u16) {
    ((icn + 1) % ICNS, (icn + 2) % ICNS)
}

fn isolate(world: &mut World, icn: u16, is_cut: bool) {
    for other in (0..ICNS).filter(|other| *other != icn) {
        world.cut(icn, other, is_cut);
        world.cut(other, icn, is_cut);
    }
}

fn role(world: &mut World, icn: u16) -> &'static str {
    world
        .ledger(icn)
        .map_or("dead", |ledger| ledger.status().role)
}

#[test]
fn a_first_start_needs_every_icn() {
    let mut world = World::empty(Options::kind(1));
    world.start_soon(0, ms(0));
    world.start_soon(1, ms(1));
    pass(&mut world, ms(3000), |world| world.leader().is_some());
    assert_eq!(world.leader(), None);
    let trouble = world.ledger(0).and_then(|ledger| ledger.status().trouble);
    assert_eq!(
        trouble.as_deref(),
        Some("its disk is blank: waits for an answer of every other ICN, of 2 still")
    );
    world.start_soon(2, ms(0));
    pass(&mut world, ms(500), |world| world.leader().is_some());
    assert!(world.leader().is_some());
    assert_eq!(
        world.ledger(0).and_then(|ledger| ledger.status().trouble),
        None
    );
}

#[test]
fn two_of_three_go_on_and_one_alone_does_not() {
    let (mut world, leader) = farm(2);
    let (second, third) = others(leader);
    world.kill(third, true, true);
    let before = world.durable;
    pass(&mut world, ms(500), |_| false);
    assert_eq!(world.leader(), Some(leader));
    assert!(world.durable > before + 50);
    world.kill(second, true, true);
    pass(&mut world, ms(20), |_| false);
    let before = world.durable;
    pass(&mut world, ms(2000), |_| false);
    assert_eq!(
        (world.durable, role(&mut world, leader)),
        (before, "candidate")
    );
    world.start_soon(second, ms(0));
    pass(&mut world, ms(500), |world| world.leader().is_some());
    assert!(world.leader().is_some());
}

#[test]
fn a_leader_that_resigns_is_followed_at_once() {
    for seed in 0..50 {
        let (mut world, leader) = farm(seed);
        let (at, before) = (world.now, world.leads.len());
        world.with(leader, Ledger::resign).unwrap();
        pass(&mut world, ms(1000), |world| world.leads.len() > before);
        let gap = world.now.since(at);
        assert!(gap < ms(15), "seed {seed}: {gap:?}");
        assert_ne!(world.leader(), Some(leader));
        assert_eq!(role(&mut world, leader), "standby");
    }
}

#[test]
fn an_isolated_leader_says_that_it_leads_no_longer_and_decides_nothing() {
    let (mut world, leader) = farm(4);
    isolate(&mut world, leader, true);
    let before = world.leads.len();
    pass(&mut world, ms(300), |world| world.leads.len() > before);
    assert!(
        world.leads.len() > before,
        "no other member leads after 300 ms"
    );
    pass(&mut world, ms(450), |_| false);
    assert_ne!(role(&mut world, leader), "leader");
    isolate(&mut world, leader, false);
    pass(&mut world, ms(300), |_| false);
    assert_eq!(role(&mut world, leader), "standby");
    assert_eq!(
        world.leads.len(),
        before + 1,
        "its return disturbs no other member"
    );
}

#[test]
fn a_member_that_was_away_deposes_no_leader_by_coming_back() {
    let (mut world, leader) = farm(5);
    let (away, _) = others(leader);
    isolate(&mut world, away, true);
    pass(&mut world, ms(3000), |_| false);
    isolate(&mut world, away, false);
    pass(&mut world, ms(1000), |_| false);
    assert_eq!((world.leader(), world.leads.len()), (Some(leader), 1));
}

#[test]
fn a_leader_whose_disk_fails_hands_over() {
    for seed in 0..50 {
        let (mut world, leader) = farm(seed);
        world.set_disk(
            leader,
            DiskFaults {
                is_full: true,
                ..DiskFaults::default()
            },
        );
        let (at, before) = (world.now, world.leads.len());
        pass(&mut world, ms(1000), |world| world.leads.len() > before);
        let gap = world.now.since(at);
        assert!(gap < ms(60), "seed {seed}: {gap:?}");
        assert_ne!(world.leader(), Some(leader));
        let trouble = world
            .ledger(leader)
            .and_then(|ledger| ledger.status().trouble);
        assert!(trouble.is_some_and(|why| why.contains("No space left")));
        world.set_disk(leader, DiskFaults::default());
        pass(&mut world, ms(500), |_| false);
        assert_eq!(
            world
                .ledger(leader)
                .and_then(|ledger| ledger.status().trouble),
            None
        );
    }
}

#[test]
fn a_follower_whose_disk_is_slow_hinders_no_other_member() {
    let (mut world, leader) = farm(6);
    let (slow, _) = others(leader);
    let faults = DiskFaults {
        latency: ms(5000),
        ..DiskFaults::default()
    };
    world.set_disk(slow, faults);
    let before = world.durable;
    pass(&mut world, ms(1000), |_| false);
    assert!(world.durable > before + 150);
    assert_eq!((world.leader(), world.leads.len()), (Some(leader), 1));
}

#[test]
fn a_replaced_disk_is_filled_before_its_member_votes() {
    let (mut world, leader) = farm(7);
    let (replaced, third) = others(leader);
    world.wipe(replaced);
    world.start_soon(replaced, ms(50));
    pass(&mut world, ms(1000), |world| world.has_joined(replaced));
    assert!(world.has_joined(replaced));
    world.kill(leader, true, true);
    pass(&mut world, ms(500), |world| world.leads.len() > 1);
    assert!(matches!(world.leader(), Some(icn) if icn == replaced || icn == third));
}

#[test]
fn a_replaced_disk_does_not_vote_away_what_it_has_forgotten() {
    let (mut world, leader) = farm(8);
    let (forgetful, away) = others(leader);
    // Decided entries are now on the disks of the leader and of the member that will forget.
    isolate(&mut world, away, true);
    pass(&mut world, ms(200), |_| false);
    let known = world.truth().len();
    world.wipe(forgetful);
    world.kill(leader, true, true);
    isolate(&mut world, away, false);
    world.start_soon(forgetful, ms(0));
    pass(&mut world, ms(3000), |_| false);
    assert_eq!(world.leader(), None, "two that both lack it must not go on");
    world.start_soon(leader, ms(0));
    pass(&mut world, ms(1000), |world| world.leader().is_some());
    assert!(world.leader().is_some());
    assert!(world.truth().len() >= known);
}

#[test]
fn a_member_that_is_far_behind_catches_up_by_pages() {
    let (mut world, leader) = farm(9);
    let (behind, third) = others(leader);
    world.kill(behind, true, false);
    let ranges = |first: u64| (first..first + 8000).map(|tf| (TfId(2 * tf), TfId(2 * tf + 1)));
    for batch in 0..40 {
        let record = |at: u64| Record::Done {
            ranges: ranges(batch * 10 + at).collect(),
        };
        // More than one entry holds.
        world.append(leader, (0..3).map(record).collect()).unwrap();
        pass(&mut world, ms(5), |_| false);
    }
    let known = world.truth().len();
    world.start_soon(behind, ms(0));
    pass(&mut world, ms(300), |_| false);
    world.kill(third, true, true);
    pass(&mut world, ms(50), |_| false);
    world.kill(leader, true, true);
    world.start_soon(third, ms(0));
    world.wipe(leader);
    pass(&mut world, ms(1000), |world| world.leads.len() > 1);
    assert_eq!(world.leads.len(), 2);
    assert!(world.truth().len() >= known);
}

#[test]
fn a_member_that_was_away_while_the_log_was_cut_gets_it_from_the_last_checkpoint_but_one_on() {
    let (mut world, leader) = farm(11);
    let (behind, third) = others(leader);
    world.kill(behind, true, false);
    for _ in 0..40 {
        pass(&mut world, ms(20), |_| false);
        world.append_checkpoint(leader);
    }
    pass(&mut world, ms(50), |_| false);
    let first = world.ledger(leader).unwrap().storage().first_index();
    assert!(
        first > 10,
        "the leader still has everything from {first} on"
    );
    assert_eq!(world.installs, 0);
    let known = world.truth().len();
    world.start_soon(behind, ms(0));
    pass(&mut world, ms(300), |_| false);
    assert!(world.installs > 0);
    assert!(world.ledger(behind).unwrap().storage().first_index() >= first);
    // Its log is now as good as any other.
    world.kill(third, true, true);
    pass(&mut world, ms(50), |_| false);
    world.kill(leader, true, true);
    world.wipe(leader);
    world.start_soon(third, ms(0));
    pass(&mut world, ms(1000), |world| world.leads.len() > 1);
    assert_eq!(world.leads.len(), 2);
    assert!(world.truth().len() >= known);
}

#[test]
fn a_directory_of_another_seat_is_refused() {
    let disk = SimDisk::new(1);
    let open = |me, icns| {
        let storage = SimStorage::open(&disk).unwrap();
        let mut ledger = MajorityLedger::new(MajorityConfig::new(me, icns, 1), storage)?;
        // Until the seat is on the disk.
        for at in 0..10 {
            while ledger.poll(Timestamp(at * 1_000_000)).is_some() {}
        }
        Ok::<_, StorageError>(ledger)
    };
    drop(open(1, 3).unwrap());
    drop(open(1, 3).unwrap());
    let error = open(2, 3).unwrap_err().to_string();
    assert_eq!(
        error,
        "the ledger directory is that of ICN 1 of 3, expected that of ICN 2 of 3"
    );
    let storage = SimStorage::open(&disk).unwrap();
    let error = crate::file::FileLedger::open(storage)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the ledger directory is that of ICN 1 of 3, expected that of a single ICN"
    );
}

#[test]
fn what_is_appended_without_leading_has_no_effect() {
    let (mut world, leader) = farm(10);
    let (other, _) = others(leader);
    let now = world.now;
    let ledger = world.ledger(other).unwrap();
    let before = ledger.storage().last_index();
    assert_eq!(ledger.append(now, vec![Record::Over]), Position(0));
    assert_eq!(ledger.storage().last_index(), before);
}

#[test]
fn hostile_bytes_do_nothing() {
    let (mut world, leader) = farm(11);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let now = world.now;
    for icn in [leader, others(leader).0] {
        let ledger = world.ledger(icn).unwrap();
        let (status, refused) = (ledger.status(), ledger.refused());
        for _ in 0..20_000 {
            let mut bytes = vec![0; rng.random_range(0..80)];
            rng.fill_bytes(&mut bytes);
            if let Some(kind) = bytes.get_mut(..2) {
                kind.copy_from_slice(&[1, (rng.random::<u32>() % 9) as u8]);
            }
            // Terms beyond counting, so that random bytes are no valid message.
            if let Some(byte) = bytes.get_mut(9) {
                *byte |= 0x80;
            }
            ledger.handle_message(now, rng.random_range(0..5), &bytes);
        }
        assert_eq!(
            (ledger.status(), ledger.refused()),
            (status, refused + 20_000)
        );
        while let Some(notice) = ledger.poll(now) {
            assert!(
                matches!(notice, Notice::Send { .. } | Notice::Durable(_)),
                "{notice:?}"
            );
        }
    }
}

/// Plays the history that shows why old terms are not committed by counting (figure 3.7 of the dissertation on Raft):
/// an entry of an old term gets to most disks, and is overwritten by a leader that has never seen it.
pub(super) fn overwritten_majority(seed: u64) -> Result<(), String> {
    let (mut world, first) = farm(seed);
    let (x, y) = others(first);
    isolate(&mut world, first, true);
    let common = world.last_on_disk(first);
    // More than is under way at once, so that a follower has some of it without the rest.
    let record = |at: u64| Record::Done {
        ranges: vec![(TfId(at), TfId(at + 1)); 8000],
    };
    world.append(first, (0..30).map(record).collect())?;
    let begins = |world: &World| {
        let reigns = |icn| world.opens_a_term(icn);
        reigns(x) || reigns(y)
    };
    let until = world.now + ms(1000);
    world.run(until, begins)?;
    let (second, third) = if world.opens_a_term(x) {
        (x, y)
    } else {
        (y, x)
    };
    // The no-op entry of the second leader is on its own disk only.
    world.kill(third, true, true);
    let until = world.now + ms(5);
    world.run(until, |_| false)?;
    world.kill(second, true, true);
    isolate(&mut world, first, false);
    world.start_soon(third, ms(0));
    // The first leads again and sends its entries, of its old term, to the third.
    let has_some = |world: &World| world.last_on_disk(third) > common + 3;
    let until = world.now + ms(2000);
    world.run(until, has_some)?;
    let until = world.now + Duration::from_micros(500);
    world.run(until, |_| false)?;
    world.kill(first, true, true);
    // Entries on their way to the third's disk do not get there.
    world.kill(third, true, true);
    world.start_soon(third, ms(0));
    world.start_soon(second, ms(0));
    let until = world.now + ms(2000);
    world.run(until, |world| world.leader() == Some(second))?;
    let until = world.now + ms(100);
    world.run(until, |_| false)
}

#[test]
fn what_most_disks_have_of_an_old_term_may_still_be_overwritten() {
    for seed in 0..20 {
        overwritten_majority(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
