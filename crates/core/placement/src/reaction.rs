//! What the list of targets does when one of them fails.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the list that a policy chooses from follows the deaths of targets: an axis beside the policy, so that the
/// prior systems' variants can be compared under every policy. Under none of them anything is lost, only
/// delayed: the sources keep what is undecided, and send it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reaction {
    /// The list is who is there: a suspect gets nothing, a dead target leaves, a new one joins, at once. What
    /// O2-Balancer2's branch `zookeepertje` aimed at (`flp/src/flp.cxx`).
    #[default]
    Whitelist,
    /// The list is fixed when the run begins. A dead target is skipped and, restarted at its place, that is under
    /// its number, picked up again; one that was not on the list gets nothing. O2-Balancer with
    /// `restartFairRoot=false`.
    Blacklist,
    /// The list is fixed when the run begins. On a death it is made anew without the dead, who never come back, and
    /// nothing is placed for the reset time meanwhile. O2-Balancer with `restartFairRoot=true`, where the whole FLP
    /// goes through the states of a FairMQ device once.
    Reinitialise,
    /// The list does not notice deaths: jobs go on to the dead, and wait there until their deadline moves them. The
    /// ICN of O2-Balancer2 (tag `experiment-2`), which never removes an EPN, but with the jobs kept.
    None,
}

impl Reaction {
    /// All there are, the default first.
    pub const ALL: [Self; 4] = [
        Self::Whitelist,
        Self::Blacklist,
        Self::Reinitialise,
        Self::None,
    ];

    /// Name in configuration files, metrics and reports, such as `"whitelist"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Whitelist => "whitelist",
            Self::Blacklist => "blacklist",
            Self::Reinitialise => "reinitialise",
            Self::None => "none",
        }
    }

    /// Whether the list of targets is fixed when the run begins, and has to outlive the one who fixed it.
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

/// There is no reaction of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reaction `{name}`, expected one of whitelist, blacklist, reinitialise, none")]
pub struct UnknownReaction {
    /// What was asked for.
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
