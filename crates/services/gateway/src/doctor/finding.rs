//! Verdicts of checks, and what repairs what they found.

use serde::Serialize;
use std::fmt;

/// Change of a machine that repairs a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// Setting of the kernel below `/proc/sys`.
    Set {
        /// Name, such as `net/ipv4/ip_forward`.
        key: String,
        /// Value.
        value: String,
    },
    /// Words of `ip`.
    Ip(Vec<String>),
    /// Words of `ethtool`.
    Ethtool(Vec<String>),
}

/// Setting of the kernel that is a list: values of several repairs are joined.
pub(super) const RESERVED_PORTS: &str = "net/ipv4/ip_local_reserved_ports";

impl Repair {
    /// Takes up what another repair adds to the same list. Returns whether it is one.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let (
            Self::Set { key, value },
            Self::Set {
                key: added,
                value: further,
            },
        ) = (self, other)
        else {
            return false;
        };
        if key != added || key != RESERVED_PORTS {
            return false;
        }
        for part in further.split(',') {
            if !value.split(',').any(|own| own == part) {
                *value = format!("{value},{part}");
            }
        }
        true
    }

    pub(super) fn set(key: impl Into<String>, value: impl fmt::Display) -> Self {
        let (key, value) = (key.into(), value.to_string());
        Self::Set { key, value }
    }

    pub(super) fn ip(words: &str) -> Self {
        Self::Ip(words.split_whitespace().map(str::to_owned).collect())
    }

    pub(super) fn ethtool(words: &str) -> Self {
        Self::Ethtool(words.split_whitespace().map(str::to_owned).collect())
    }
}

/// Name of a setting as `sysctl` takes it: with slashes where a part of it has a dot, as names of cards may.
pub(super) fn sysctl_name(key: &str) -> String {
    if key.contains('.') {
        return key.to_owned();
    }
    key.replace('/', ".")
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { key, value } if value.contains(' ') => {
                write!(f, "sysctl -w '{}={value}'", sysctl_name(key))
            }
            Self::Set { key, value } => write!(f, "sysctl -w {}={value}", sysctl_name(key)),
            Self::Ip(words) => write!(f, "ip {}", words.join(" ")),
            Self::Ethtool(words) => write!(f, "ethtool {}", words.join(" ")),
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Verdict {
    /// As expected.
    Ok {
        /// Fact.
        found: String,
    },
    /// Not as expected.
    Wrong {
        /// Fact.
        found: String,
        /// Expectation.
        expected: String,
        /// Changes that `--fix` makes; none if it has to be changed by hand.
        repairs: Vec<Repair>,
        /// Way to change it by hand.
        by_hand: Option<String>,
    },
    /// Not known.
    NotChecked {
        /// Why not.
        reason: String,
    },
}

impl Verdict {
    pub(super) fn ok(found: impl Into<String>) -> Self {
        Self::Ok {
            found: found.into(),
        }
    }

    pub(super) fn not_checked(reason: impl Into<String>) -> Self {
        Self::NotChecked {
            reason: reason.into(),
        }
    }

    pub(super) fn repaired_by(
        found: impl Into<String>,
        expected: impl Into<String>,
        repairs: Vec<Repair>,
    ) -> Self {
        Self::Wrong {
            found: found.into(),
            expected: expected.into(),
            repairs,
            by_hand: None,
        }
    }

    pub(super) fn by_hand(
        found: impl Into<String>,
        expected: impl Into<String>,
        by_hand: impl Into<String>,
    ) -> Self {
        Self::Wrong {
            found: found.into(),
            expected: expected.into(),
            repairs: Vec::new(),
            by_hand: Some(by_hand.into()),
        }
    }
}

/// Verdict on one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Service and server, such as `files/s1`, or name of the director.
    pub machine: String,
    /// Whether it is this machine.
    pub is_here: bool,
    /// Reason of the check, if something is wrong.
    pub why: Option<&'static str>,
    /// Result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_of_several_services_become_one_list() {
        let mut repair = Repair::set(RESERVED_PORTS, "50000-51000,80");
        assert!(repair.join(&Repair::set(RESERVED_PORTS, "50000-51000,2811")));
        assert_eq!(repair, Repair::set(RESERVED_PORTS, "50000-51000,80,2811"));
        let other = Repair::set("net/ipv4/ip_forward", 1);
        assert!(!repair.join(&other) && !other.clone().join(&repair));
    }

    #[test]
    fn a_repair_reads_as_the_command_that_does_it() {
        for (repair, expected) in [
            (
                Repair::set("net/ipv4/conf/all/arp_ignore", 1),
                "sysctl -w net.ipv4.conf.all.arp_ignore=1",
            ),
            (
                Repair::set("net/ipv4/conf/eth0.7/rp_filter", 2),
                "sysctl -w net/ipv4/conf/eth0.7/rp_filter=2",
            ),
            (
                Repair::set("net/ipv4/ip_local_port_range", "32768 60999"),
                "sysctl -w 'net.ipv4.ip_local_port_range=32768 60999'",
            ),
            (
                Repair::ip("addr add 10.80.0.100/32 dev lo"),
                "ip addr add 10.80.0.100/32 dev lo",
            ),
        ] {
            assert_eq!(repair.to_string(), expected);
        }
    }
}
