//! Faults of the members while they work, and the calm afterwards.

use super::{Checked, Event, ICNS, Node, Sick, World, ms};
use crate::Ledger;
use crate::storage::DiskFaults;
use rand::RngExt;

impl World {
    /// Injects a random fault.
    pub(super) fn fault(&mut self) {
        self.faults += 1;
        let icn = self.rng.random_range(0..ICNS);
        let other = (icn + self.rng.random_range(1..ICNS)) % ICNS;
        let lasts = self.draw_us(5_000, 600_000);
        match self.rng.random_range(0..14) {
            0..=2 => {
                let is_seen = self.rng.random_range(0..4) > 0;
                let with_power = self.rng.random_range(0..2) == 0;
                self.kill(icn, is_seen, with_power);
                self.schedule(lasts, icn, Event::Start);
            }
            3 => {
                // All at once: every promise must be on the disks.
                for icn in 0..ICNS {
                    self.kill(icn, true, true);
                    let after = self.draw_us(1000, 50_000);
                    self.schedule(after, icn, Event::Start);
                }
            }
            4 => {
                let until = self.now + lasts;
                self.node(icn).paused_until = until;
            }
            5 | 6 => {
                for other in (0..ICNS).filter(|other| *other != icn) {
                    self.cut(icn, other, true);
                    self.cut(other, icn, true);
                }
                self.schedule(lasts, icn, Event::Heal(Sick::Links));
            }
            7 => {
                let into = self.rng.random_range(0..2) == 0;
                for other in (0..ICNS).filter(|other| *other != icn) {
                    let (from, to) = if into { (other, icn) } else { (icn, other) };
                    self.cut(from, to, true);
                }
                self.schedule(lasts, icn, Event::Heal(Sick::Links));
            }
            8 => {
                self.cut(icn, other, true);
                self.schedule(lasts, icn, Event::Heal(Sick::Links));
            }
            9 | 10 if self.options.may_fail_disks => {
                let pick = self.rng.random_range(0..3);
                self.set_disk(
                    icn,
                    DiskFaults {
                        slow_once_in: if pick == 0 { 3 } else { 0 },
                        slow: ms(300),
                        error_once_in: if pick == 1 { 5 } else { 0 },
                        is_full: pick == 2,
                        ..DiskFaults::default()
                    },
                );
                self.schedule(lasts, icn, Event::Heal(Sick::Disk));
            }
            11 => {
                self.connect(icn, other, false);
                self.notify_peer(ms(5), icn, other, true);
                self.notify_peer(ms(5), other, icn, true);
            }
            12 => {
                let now = self.now;
                if let Some(ledger) = self.ledger(icn) {
                    ledger.resign(now);
                    // Its last messages go out before the process ends.
                    let drained = self.drain(icn);
                    drained.expect("resigning decides nothing");
                    self.kill(icn, true, false);
                    self.schedule(lasts, icn, Event::Start);
                }
            }
            // Beyond one memory lost at a time nothing is promised.
            _ if self.options.may_wipe && self.nodes.iter().all(|node| node.has_joined) => {
                self.wipe(icn);
                self.schedule(lasts, icn, Event::Start);
            }
            _ => {}
        }
    }

    pub(in crate::majority::tests) fn live_through_faults(&mut self) -> Checked {
        self.is_peace = false;
        let mut at = ms(0);
        for _ in 0..self.options.faults {
            at += self.draw_us(10_000, 250_000);
            self.schedule(at, 0, Event::Fault);
        }
        let end = self.now + at + ms(50);
        self.run(end, |_| false)
    }

    /// Runs without faults: within 2 s there is a leader, and its appends last.
    pub(in crate::majority::tests) fn live_in_peace(&mut self) -> Checked {
        self.is_peace = true;
        self.is_cut = Default::default();
        for icn in 0..ICNS {
            self.set_disk(icn, DiskFaults::default());
            self.schedule(ms(1), icn, Event::Start);
        }
        // Messages that wait for sleeping members come to them first.
        let awake = self.nodes.iter().map(|node| node.paused_until).max();
        self.run(awake.unwrap_or_default().max(self.now) + ms(5), |_| false)?;
        // Streams that died silently are found dead, and connected again.
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            self.connect(a, b, false);
        }
        self.run(self.now + ms(5), |_| false)?;
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            self.connect(a, b, true);
        }
        let limit = self.now + ms(2000);
        self.run(limit, |world| world.leader().is_some())?;
        let Some(leader) = self.leader() else {
            let members: Vec<String> = self.nodes.iter().map(Node::describe).collect();
            let (now, members) = (self.now, members.join("; "));
            return Err(format!(
                "{now:?}: no leader 2 s after the last fault: {members}"
            ));
        };
        let before = self.durable;
        let limit = self.now + ms(1000);
        self.run(limit, |world| world.durable >= before + 20)?;
        if self.durable < before + 20 {
            return Err(format!(
                "{:?}: what ICN {leader} appends does not last",
                self.now
            ));
        }
        Ok(())
    }
}
