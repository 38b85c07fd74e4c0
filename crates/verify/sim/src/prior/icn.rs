//! Choice of the ICN: the EPN of each heartbeat.

use super::EpnList;

/// Rule by which the ICN chooses the EPN of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The first EPN of the list, always: experiment-1.
    Fixed,
    /// The EPNs of the list in turn: experiment-2.
    RoundRobin,
    /// The EPN at the number of the heartbeat modulo the length of the list.
    Modulo,
    /// An EPN of the list by chance.
    Random,
}

/// Turn over a list of EPNs. The turn counts on while the list grows and shrinks, so that a change skips or repeats
/// EPNs: nothing of the prior systems remembered which EPN was last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn(u64);

impl Turn {
    /// Returns a turn that begins at place `first` of the list.
    #[must_use]
    pub fn at(first: u64) -> Self {
        Self(first)
    }

    /// Returns the next EPN of `list`, none if it is empty; the turn steps on either way.
    pub fn step(&mut self, list: &EpnList) -> Option<u16> {
        let epn = place(list, self.0);
        self.0 += 1;
        epn
    }
}

/// Heartbeat to all FLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Number, from 0.
    pub number: u64,
    /// EPN that all FLPs are to send to.
    pub epn: u16,
}

/// ICN that names an EPN with every heartbeat.
#[derive(Clone, Debug)]
pub struct Icn {
    choice: Choice,
    turn: Turn,
    next: u64,
    epns: u16,
}

impl Icn {
    /// Returns an ICN before its first heartbeat, of a farm of `epns` EPNs.
    #[must_use]
    pub fn new(choice: Choice, turn: Turn, epns: u16) -> Self {
        Self {
            choice,
            turn,
            next: 0,
            epns,
        }
    }

    /// Returns the number of heartbeats so far.
    #[must_use]
    pub fn heartbeats(&self) -> u64 {
        self.next
    }

    /// Returns the next heartbeat. `draw` gives a number below its argument, by chance, and is called for
    /// [`Choice::Random`] alone.
    ///
    /// With an empty list the ICN goes on as if all EPNs were there.
    pub fn beat(&mut self, list: &EpnList, draw: impl FnOnce(usize) -> usize) -> Heartbeat {
        let number = self.next;
        self.next += 1;
        let in_turn = self.turn.step(list);
        let epn = match self.choice {
            Choice::Fixed => list.epns().first().copied(),
            Choice::RoundRobin => in_turn,
            Choice::Modulo => place(list, number),
            Choice::Random if list.epns().is_empty() => None,
            Choice::Random => list.epns().get(draw(list.epns().len())).copied(),
        };
        let any = (number % u64::from(self.epns.max(1))) as u16;
        Heartbeat {
            number,
            epn: epn.unwrap_or(any),
        }
    }
}

fn place(list: &EpnList, at: u64) -> Option<u16> {
    let count = list.epns().len().max(1) as u64;
    list.epns().get((at % count) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Reaction;

    /// Returns the EPNs of six heartbeats to three EPNs, the second of which dies before the fourth.
    fn choices(choice: Choice, first: u64) -> Vec<u16> {
        let mut icn = Icn::new(choice, Turn::at(first), 3);
        let mut list = EpnList::all(3);
        let mut epns = Vec::new();
        for number in 0..6 {
            if number == 3 {
                list.strike_off(1, Reaction::Blacklist);
            }
            let heartbeat = icn.beat(&list, |count| count - 1);
            assert_eq!(heartbeat.number, number);
            epns.push(heartbeat.epn);
        }
        epns
    }

    #[test]
    fn every_rule_chooses_among_the_listed_epns() {
        assert_eq!(choices(Choice::Fixed, 2), [0, 0, 0, 0, 0, 0]);
        assert_eq!(choices(Choice::RoundRobin, 0), [0, 1, 2, 2, 0, 2]);
        assert_eq!(choices(Choice::Modulo, 0), [0, 1, 2, 2, 0, 2]);
        assert_eq!(choices(Choice::Random, 0), [2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn the_list_of_channels_took_two_turns_in_experiment_2() {
        assert_eq!(choices(Choice::RoundRobin, 2)[..3], [2, 0, 1]);
    }

    #[test]
    fn without_any_epn_the_icn_goes_on_as_if_all_were_there() {
        let mut icn = Icn::new(Choice::Random, Turn::default(), 3);
        let none = EpnList::all(0);
        let epns: Vec<u16> = (0..4).map(|_| icn.beat(&none, |_| 9).epn).collect();
        assert_eq!(epns, [0, 1, 2, 0]);
        assert_eq!(icn.heartbeats(), 4);
    }
}
