//! Tests of one ICN on a simulated disk.

use super::*;
use crate::storage::{DiskFaults, SimDisk, SimStorage};

fn clock(elapsed_ns: u64) -> Record {
    Record::Clock { elapsed_ns }
}

/// One ICN in virtual time.
struct Sim {
    now: Timestamp,
    ledger: FileLedger<SimStorage>,
}

impl Sim {
    fn start(disk: &SimDisk) -> Self {
        let storage = SimStorage::open(disk).expect("a crash leaves a good log");
        Self {
            now: Timestamp(0),
            ledger: FileLedger::open(storage).expect("it is that of a single ICN"),
        }
    }

    /// Polls until nothing is due before `until`; returns the notices as text.
    fn run(&mut self, until_ms: u64) -> Vec<String> {
        let until = Timestamp(until_ms * 1_000_000);
        let mut said = Vec::new();
        loop {
            while let Some(notice) = self.ledger.poll(self.now) {
                said.push(match notice {
                    Notice::Lead { term, replay } => {
                        format!("lead {} after {}", term.0, replay.count())
                    }
                    Notice::Durable(position) => format!("durable {}", position.0),
                    other => format!("{other:?}"),
                });
            }
            match self.ledger.next_due() {
                Some(due) if due <= until => self.now = due,
                _ => break,
            }
        }
        self.now = until;
        said
    }
}

#[test]
fn each_life_leads_in_the_next_term_and_finds_what_was_durable() {
    let disk = SimDisk::new(1);
    for life in 1..=5_u64 {
        let mut sim = Sim::start(&disk);
        assert_eq!(
            sim.run(10),
            [format!("lead {life} after {}", 2 * (life - 1))]
        );
        sim.ledger.append(sim.now, vec![clock(life)]);
        sim.ledger.append(sim.now, vec![clock(life)]);
        // The second one waits while the disk is at the first, and comes with the next batch.
        assert_eq!(sim.run(20), ["durable 1", "durable 2"]);
        drop(sim);
        disk.fail_power();
    }
}

#[test]
fn what_comes_while_the_disk_works_goes_with_the_next_batch() {
    let mut sim = Sim::start(&SimDisk::new(1));
    sim.run(10);
    for at in 1..=100 {
        assert_eq!(sim.ledger.append(sim.now, vec![clock(at)]), Position(at));
    }
    assert_eq!(sim.run(20), ["durable 1", "durable 100"]);
    assert_eq!(sim.ledger.status().records, 100);
}

#[test]
fn a_full_disk_is_said_once_and_what_was_appended_comes_when_there_is_space() {
    let disk = SimDisk::new(1);
    let mut sim = Sim::start(&disk);
    sim.run(10);
    disk.set_faults(DiskFaults {
        is_full: true,
        ..DiskFaults::default()
    });
    sim.ledger.append(sim.now, vec![clock(1)]);
    let said = sim.run(500);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("No space left on device"), "{said:?}");
    assert!(sim.ledger.status().trouble.is_some());
    sim.ledger.append(sim.now, vec![clock(2)]);
    disk.set_faults(DiskFaults::default());
    assert_eq!(sim.run(1000), ["Healed", "durable 1", "durable 2"]);
    assert_eq!(sim.ledger.status().trouble, None);
}

#[test]
fn nothing_is_appended_before_it_leads() {
    let mut sim = Sim::start(&SimDisk::new(1));
    assert_eq!(sim.ledger.append(sim.now, vec![clock(1)]), Position(0));
    assert_eq!(sim.run(10), ["lead 1 after 0"]);
}
