//! The name of a node in its certificate.

use sheaf_protocol::{NodeId, Role};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Longest name of a farm, in bytes; as a label of a host name.
const FARM_BYTES_MAX: usize = 63;

/// Which node of which farm: the URI `sheaf://FARM/ROLE/INDEX` in the subject alternative names of a
/// certificate, such as `sheaf://north/epn/3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The farm. Nodes of two farms refuse each other, even if one CA serves both.
    pub farm: String,
    /// The node.
    pub node: NodeId,
}

/// Why a text names no node or no farm.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Not a URI of this form.
    #[error("found \"{found}\", expected sheaf://FARM/ROLE/INDEX, such as sheaf://north/epn/3")]
    Uri {
        /// The text.
        found: String,
    },
    /// Not a node.
    #[error(
        "found \"{found}\", expected ROLE:INDEX, such as epn:3; roles are icn, flp, epn and operator"
    )]
    Node {
        /// The text.
        found: String,
    },
    /// Not the name of a farm.
    #[error("found farm \"{found}\", expected 1 to 63 of a-z, 0-9, '-' and '.'")]
    Farm {
        /// The text.
        found: String,
    },
}

impl Identity {
    /// Creates the node `node` of the farm `farm`.
    ///
    /// # Errors
    ///
    /// [`NameError::Farm`] if that is no name of a farm.
    pub fn new(farm: &str, node: NodeId) -> Result<Self, NameError> {
        check_farm(farm)?;
        let farm = farm.to_owned();
        Ok(Self { farm, node })
    }
}

/// Names travel in URIs and file names, and are compared byte by byte: one spelling only.
pub(crate) fn check_farm(farm: &str) -> Result<(), NameError> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
    };
    if (1..=FARM_BYTES_MAX).contains(&farm.len()) && farm.bytes().all(is_allowed) {
        return Ok(());
    }
    let found = farm.to_owned();
    Err(NameError::Farm { found })
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeId { role, index } = self.node;
        write!(f, "sheaf://{}/{role}/{index}", self.farm)
    }
}

impl FromStr for Identity {
    type Err = NameError;

    fn from_str(uri: &str) -> Result<Self, NameError> {
        let parts = uri
            .strip_prefix("sheaf://")
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(farm, rest)| Some((farm, rest.split_once('/')?)));
        let error = || NameError::Uri {
            found: uri.to_owned(),
        };
        let (farm, (role, index)) = parts.ok_or_else(error)?;
        let node = node_of(role, index).ok_or_else(error)?;
        Self::new(farm, node)
    }
}

/// Returns a node as `epn:3`.
///
/// # Errors
///
/// [`NameError::Node`] if it is none.
pub fn parse_node(text: &str) -> Result<NodeId, NameError> {
    let node = text
        .split_once(':')
        .and_then(|(role, index)| node_of(role, index));
    node.ok_or_else(|| NameError::Node {
        found: text.to_owned(),
    })
}

fn node_of(role: &str, index: &str) -> Option<NodeId> {
    let role = [
        Role::Icn,
        Role::Flp,
        Role::Epn,
        Role::Operator,
        Role::Writer,
    ]
    .into_iter()
    .find(|known| known.to_string() == role)?;
    let number: u16 = index.parse().ok()?;
    // One spelling only: neither "+3" nor "03".
    let is_plain = number.to_string() == index;
    is_plain.then_some(NodeId {
        role,
        index: number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_being_written() {
        for uri in [
            "sheaf://north/icn/0",
            "sheaf://a/flp/65535",
            "sheaf://n-1.x/epn/3",
            "sheaf://north/operator/1",
        ] {
            let identity: Identity = uri.parse().unwrap();
            assert_eq!(identity.to_string(), uri);
        }
        let node = parse_node("epn:3").unwrap();
        assert_eq!((node.role, node.index), (Role::Epn, 3));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for uri in [
            "",
            "http://north/epn/3",
            "sheaf://north/epn",
            "sheaf://north/epn/03",
            "sheaf://north/epn/+3",
            "sheaf://north/epn/65536",
            "sheaf://north/epn/3/4",
            "sheaf://north/EPN/3",
            "sheaf://North/epn/3",
            "sheaf:///epn/3",
            "sheaf://a b/epn/3",
            "sheaf://north/reader/3",
        ] {
            let refused = uri.parse::<Identity>();
            assert!(refused.is_err(), "{uri}: {refused:?}");
        }
        for node in ["", "epn", "epn:", "epn:x", "epn:-1", "3:epn", "epn:3:4"] {
            assert!(parse_node(node).is_err(), "{node}");
        }
        assert!(check_farm(&"x".repeat(64)).is_err());
    }
}
