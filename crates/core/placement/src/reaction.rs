//! Reaction of the list of targets to the failure of one of them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Rule by which the list that a policy chooses from follows the deaths of targets: an axis beside the policy, so that
/// the prior systems' variants can be compared under every policy. Under none of them anything is lost, only delayed:
/// the sources keep undecided STFs, and retransmit them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The list holds the present targets: a suspect gets nothing, a dead target leaves, a new one joins, at once. The
    /// aim of O2-Balancer2's branch `zookeepertje` (`flp/src/flp.cxx`).
    #[default]
    Whitelist,
    /// The list is fixed when the run begins. A dead target is skipped and, restarted at its place, that is under
    /// its number, picked up again; one that was not on the list gets nothing. O2-Balancer with
    /// `restartFairRoot=false`.
    Blacklist,
    /// The list is fixed when the run begins. On a death it is rebuilt without the dead, who never come back, and
    /// nothing is placed for the reset time meanwhile. O2-Balancer with `restartFairRoot=true`, where the whole FLP
    /// goes through the states of a FairMQ device once.
    Reinitialise,
    /// The list does not notice deaths: jobs go on to the dead, and wait there until their deadline moves them. The
    /// ICN of O2-Balancer2 (tag `experiment-2`), which never removes an EPN, but with the jobs kept.
    None,
}

impl Reaction {
    /// All reactions, the default first.
    pub const ALL: [Self; 4] = [
        Self::Whitelist,
        Self::Blacklist,
        Self::Reinitialise,
        Self::None,
    ];

    /// Returns the name in configuration files, metrics and reports, such as `"whitelist"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Whitelist => "whitelist",
            Self::Blacklist => "blacklist",
            Self::Reinitialise => "reinitialise",
            Self::None => "none",
        }
    }

    /// Returns whether the list of targets is fixed when the run begins, and has to outlive the leader that fixed it.
    #[must_use]
    pub fn fixes_list(self) -> bool {
        matches!(self, Self::Blacklist | Self::Reinitialise)
    }
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error for a name that no reaction has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reaction `{name}`, expected one of whitelist, blacklist, reinitialise, none")]
pub struct UnknownReaction {
    /// The name that was asked for.
    pub name: String,
}

impl FromStr for Reaction {
    type Err = UnknownReaction;

    fn from_str(name: &str) -> Result<Self, UnknownReaction> {
        let found = Self::ALL
            .into_iter()
            .find(|reaction| reaction.name() == name);
        found.ok_or_else(|| UnknownReaction {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reaction_is_found_under_its_name_and_an_unknown_name_is_answered_with_all() {
        for reaction in Reaction::ALL {
            assert_eq!(reaction.to_string().parse(), Ok(reaction));
        }
        let error = "Whitelist"
            .parse::<Reaction>()
            .expect_err("no reaction")
            .to_string();
        assert!(error.contains("`Whitelist`"), "{error}");
        for reaction in Reaction::ALL {
            assert!(error.contains(reaction.name()), "{error}");
        }
    }
}
