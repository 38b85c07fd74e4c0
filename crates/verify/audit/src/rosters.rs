//! Rosters: the FLPs that make a TF whole, as far as the logs tell.

use super::tables::Named;
use std::collections::BTreeMap;

/// Origin of the knowledge of the rosters of a run.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RosterSource {
    /// No log holds them: a TF needs a part of every FLP that made it and sent it there.
    #[default]
    FlpLogs,
    /// The event logs of the ICNs.
    IcnLogs,
    /// The verdict log.
    Ledger,
}

impl RosterSource {
    /// Returns the origin as text.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::FlpLogs => "the logs of the FLPs that made and sent it",
            Self::IcnLogs => "the event logs of the ICNs",
            Self::Ledger => "the verdict log",
        }
    }
}

/// Rosters in force while one log is read from its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Rosters(BTreeMap<u64, u32>);

impl Rosters {
    /// Sets the roster: from `first` on, `place` is in force, whatever was set before.
    pub(super) fn set(&mut self, first: u64, place: u32) {
        drop(self.0.split_off(&first));
        self.0.insert(first, place);
    }

    /// Returns the roster in force for `tf`.
    pub(super) fn of(&self, tf: u64) -> Option<u32> {
        self.0.range(..=tf).next_back().map(|(_, place)| *place)
    }
}

/// Returns members in the order of their ids.
pub(super) fn sorted(members: impl Iterator<Item = Named>) -> Vec<Named> {
    let mut members: Vec<Named> = members.collect();
    members.sort_unstable();
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_roster_replaces_those_from_its_first_tf_on() {
        let mut rosters = Rosters::default();
        assert_eq!(rosters.of(0), None);
        rosters.set(0, 10);
        rosters.set(100, 11);
        rosters.set(50, 12);
        let found: Vec<Option<u32>> = [0, 49, 50, 99, 100, 1000].map(|tf| rosters.of(tf)).into();
        assert_eq!(found, [10, 10, 12, 12, 12, 12].map(Some));
    }
}
