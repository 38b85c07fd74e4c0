//! List of EPNs that the ICN or an FLP takes turns over, and the reaction to a dead one.

use crate::scenario::{Legacy, Reaction};

/// How long FLPs send nothing when they rebuild their list of EPNs, in ms.
pub const REINIT_MS: u64 = 1000;

/// Returns whether the death or return of an EPN changes any list.
#[must_use]
pub fn takes_notice(rules: &Legacy, reaction: Reaction) -> bool {
    !rules.no_removal && reaction != Reaction::None
}

/// EPNs that get heartbeats, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpnList(Vec<u16>);

impl EpnList {
    /// Returns a list of the EPNs from 0 to `epns` less one.
    #[must_use]
    pub fn all(epns: u16) -> Self {
        Self((0..epns).collect())
    }

    /// Returns the EPNs in the list, in order.
    #[must_use]
    pub fn epns(&self) -> &[u16] {
        &self.0
    }

    /// Strikes off a dead EPN. Returns whether FLPs rebuild their lists: for [`REINIT_MS`] none of them sends, and
    /// all that waits or is in building is lost.
    pub fn strike_off(&mut self, epn: u16, reaction: Reaction) -> bool {
        self.0.retain(|listed| *listed != epn);
        reaction == Reaction::Reinitialise
    }

    /// Lists an EPN that is back, unless lists are made once and for all.
    pub fn readmit(&mut self, epn: u16, reaction: Reaction) {
        if reaction != Reaction::Reinitialise && !self.0.contains(&epn) {
            self.0.push(epn);
            self.0.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_epn_is_struck_off_and_comes_back_to_its_place_unless_lists_are_made_anew() {
        for (reaction, is_anew, after) in [
            (Reaction::Blacklist, false, &[0, 1, 2][..]),
            (Reaction::Whitelist, false, &[0, 1, 2]),
            (Reaction::Reinitialise, true, &[0, 2]),
        ] {
            let mut list = EpnList::all(3);
            assert_eq!(list.strike_off(1, reaction), is_anew);
            assert_eq!(list.epns(), [0, 2]);
            list.readmit(1, reaction);
            assert_eq!(list.epns(), after, "{reaction:?}");
        }
    }

    #[test]
    fn a_dead_epn_keeps_its_turn_by_rule_or_without_a_reaction() {
        let rules = |no_removal| Legacy {
            no_removal,
            ..Legacy::default()
        };
        assert!(takes_notice(&rules(false), Reaction::Blacklist));
        assert!(!takes_notice(&rules(true), Reaction::Blacklist));
        assert!(!takes_notice(&rules(false), Reaction::None));
    }
}
