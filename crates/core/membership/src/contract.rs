//! Suite for the contract of [`Registry`].
//!
//! A backend brings a [`RegistryFarm`]: processes that can be started and killed, one registry that observes them, and
//! a way to let time go by. Live backends wait for an event there, virtual ones step their clock; the suite itself
//! neither sleeps nor knows which it is.

use crate::registry::{Member, Registry, RegistryEvent};
use sheaf_protocol::{EpnId, FlpId, Incarnation, NodeId};

/// A registry in a world of its own.
pub trait RegistryFarm {
    /// Returns the registry of an observer that has not joined.
    fn observer(&mut self) -> &mut dyn Registry;

    /// Returns the next event of the observer. Lets time go by until there is one; `None` when it has waited long
    /// enough that there will be none (longer than a session).
    fn next(&mut self) -> Option<RegistryEvent>;

    /// Starts a process, which joins. One of the same node that runs already goes on.
    fn start(&mut self, me: Member);

    /// Lets the latest process of the node leave in order and end.
    fn leave(&mut self, node: NodeId);

    /// Kills the latest process of the node.
    fn kill(&mut self, node: NodeId);

    /// Ends the session of the latest process of the node, which is alive.
    fn expire(&mut self, node: NodeId);

    /// Cuts the observer off from the registry, or reconnects it. The others are not touched.
    fn set_away(&mut self, is_away: bool);

    /// Writes garbage in the place of a node that is not there; `false` if that is impossible.
    fn garble(&mut self, node: NodeId) -> bool;
}

fn epn(index: u16, incarnation: u64) -> Member {
    Member {
        node: EpnId(index).into(),
        incarnation: Incarnation(incarnation),
        address: format!("10.0.0.{index}:7100"),
    }
}

/// Checks the whole contract, each part in a farm that `make` has just made.
///
/// # Panics
///
/// With the part and the expectation, if the registry breaks the contract.
pub fn check<F: RegistryFarm>(mut make: impl FnMut() -> F) {
    let parts: [(&str, Part); 11] = [
        ("who joins is seen and who leaves is not", joins_and_leaves),
        ("who is killed is gone after its session", is_killed),
        ("a later life replaces the earlier one", restarts),
        ("an earlier life does not replace a later one", is_doubled),
        ("a node comes back on a new address", moves),
        ("several come and go at once", several),
        ("a join and a leave between two looks", between_looks),
        ("an expired session is registered again", expires),
        ("a view stays while the registry is away", is_away),
        ("a node that joins twice is there once", joins_again),
        ("garbage is named and changes nothing", garbage),
    ];
    for (part, run) in parts {
        let mut farm = make();
        run(&mut Check {
            part,
            farm: &mut farm,
            seen: Vec::new(),
        });
    }
}

type Part = fn(&mut Check<'_>);

struct Check<'a> {
    part: &'static str,
    farm: &'a mut dyn RegistryFarm,
    /// All events but views.
    seen: Vec<RegistryEvent>,
}

impl Check<'_> {
    /// Waits until the view is `expected`; further views may come before it.
    #[track_caller]
    fn awaits(&mut self, expected: &[Member]) {
        while self.farm.observer().view()[..] != *expected {
            match self.farm.next() {
                Some(RegistryEvent::View(_)) => {}
                Some(other) => self.seen.push(other),
                None => panic!(
                    "{}: the view is {:?}, expected {expected:?}; seen {:?}",
                    self.part,
                    self.farm.observer().view(),
                    self.seen
                ),
            }
        }
    }

    /// Waits for an event that is no view.
    #[track_caller]
    fn awaits_event(&mut self, what: &str, is_it: impl Fn(&RegistryEvent) -> bool) {
        while !self.seen.iter().any(&is_it) {
            match self.farm.next() {
                Some(RegistryEvent::View(_)) => {}
                Some(other) => self.seen.push(other),
                None => panic!("{}: no {what}; seen {:?}", self.part, self.seen),
            }
        }
        self.seen.retain(|event| !is_it(event));
    }

    /// Lets more than a session go by, in which the view has to be `expected` at every look.
    #[track_caller]
    fn stays(&mut self, expected: &[Member]) {
        while let Some(event) = self.farm.next() {
            if let RegistryEvent::View(view) = &event {
                assert_eq!(view[..], *expected, "{}", self.part);
            }
            self.seen.push(event);
        }
        assert_eq!(self.farm.observer().view()[..], *expected, "{}", self.part);
    }
}

fn joins_and_leaves(check: &mut Check<'_>) {
    let flp = Member {
        node: FlpId(7).into(),
        incarnation: Incarnation(1),
        address: String::new(),
    };
    check.farm.start(epn(3, 1));
    check.awaits(&[epn(3, 1)]);
    check.farm.start(flp.clone());
    // FLPs stand before EPNs.
    check.awaits(&[flp.clone(), epn(3, 1)]);
    check.farm.leave(EpnId(3).into());
    check.awaits(std::slice::from_ref(&flp));
    check.farm.leave(flp.node);
    check.awaits(&[]);
    assert_eq!(check.seen, [], "{}", check.part);
}

fn is_killed(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.farm.start(epn(2, 1));
    check.awaits(&[epn(1, 1), epn(2, 1)]);
    check.farm.kill(EpnId(1).into());
    check.awaits(&[epn(2, 1)]);
    check.stays(&[epn(2, 1)]);
}

fn restarts(check: &mut Check<'_>) {
    check.farm.start(epn(1, 5));
    check.awaits(&[epn(1, 5)]);
    check.farm.kill(EpnId(1).into());
    check.farm.start(epn(1, 6));
    check.awaits(&[epn(1, 6)]);
    // The end of the old session does not take the new life with it.
    check.stays(&[epn(1, 6)]);
}

fn is_doubled(check: &mut Check<'_>) {
    check.farm.start(epn(1, 6));
    check.awaits(&[epn(1, 6)]);
    check.farm.start(epn(1, 5));
    check.stays(&[epn(1, 6)]);
}

fn moves(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.awaits(&[epn(1, 1)]);
    check.farm.leave(EpnId(1).into());
    let moved = Member {
        address: "10.9.9.9:1".to_owned(),
        ..epn(1, 2)
    };
    check.farm.start(moved.clone());
    check.awaits(&[moved]);
}

fn several(check: &mut Check<'_>) {
    let all: Vec<_> = (0..20).map(|index| epn(index, 1)).collect();
    for member in &all {
        check.farm.start(member.clone());
    }
    check.awaits(&all);
    for member in &all[..10] {
        check.farm.kill(member.node);
    }
    let new: Vec<_> = (20..25).map(|index| epn(index, 1)).collect();
    for member in &new {
        check.farm.start(member.clone());
    }
    check.awaits(&[&all[10..], &new[..]].concat());
}

fn between_looks(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.awaits(&[epn(1, 1)]);
    check.farm.start(epn(2, 1));
    check.farm.leave(EpnId(2).into());
    check.farm.leave(EpnId(1).into());
    check.farm.start(epn(1, 2));
    check.awaits(&[epn(1, 2)]);
    check.stays(&[epn(1, 2)]);
}

fn expires(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.farm.start(epn(2, 1));
    check.awaits(&[epn(1, 1), epn(2, 1)]);
    check.farm.expire(EpnId(1).into());
    check.farm.start(epn(3, 1));
    // Whether the node was away in between is not promised; that it is there in the end is.
    check.awaits(&[epn(1, 1), epn(2, 1), epn(3, 1)]);
    while check.farm.next().is_some() {}
    check.awaits(&[epn(1, 1), epn(2, 1), epn(3, 1)]);
}

fn is_away(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.awaits(&[epn(1, 1)]);
    check.farm.set_away(true);
    check.awaits_event("Away", |event| matches!(event, RegistryEvent::Away { .. }));
    assert!(check.farm.observer().is_away(), "{}", check.part);
    check.stays(&[epn(1, 1)]);
    assert!(check.farm.observer().is_away(), "{}", check.part);
    check.farm.set_away(false);
    check.awaits_event("Back", |event| *event == RegistryEvent::Back);
    assert!(!check.farm.observer().is_away(), "{}", check.part);
    check.farm.start(epn(2, 1));
    check.awaits(&[epn(1, 1), epn(2, 1)]);
    assert_eq!(check.seen, [], "{}", check.part);
}

fn joins_again(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.awaits(&[epn(1, 1)]);
    check.farm.start(epn(1, 1));
    check.stays(&[epn(1, 1)]);
}

fn garbage(check: &mut Check<'_>) {
    check.farm.start(epn(1, 1));
    check.awaits(&[epn(1, 1)]);
    if !check.farm.garble(EpnId(2).into()) {
        return;
    }
    check.awaits_event(
        "Problem that names epn-0002",
        |event| matches!(event, RegistryEvent::Problem { what } if what.contains("epn-0002")),
    );
    check.awaits(&[epn(1, 1)]);
    check.farm.start(epn(3, 1));
    check.awaits(&[epn(1, 1), epn(3, 1)]);
    // The node that owns the place may have it.
    check.farm.start(epn(2, 1));
    check.awaits(&[epn(1, 1), epn(2, 1), epn(3, 1)]);
}
