//! Registration of nodes: the trait that every registry has, and the text of a node in one.

use sheaf_protocol::{Incarnation, NodeId, Role, Timestamp};
use std::sync::Arc;
use thiserror::Error;

/// One life of one node, as a registry knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The life of the node.
    pub incarnation: Incarnation,
    /// Address on which the node listens, HOST:PORT or unix:PATH, several with commas between; empty if it does not.
    pub address: String,
}

/// Event of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryEvent {
    /// The nodes that are there, ascending by node, one life each. The view differs from the one before.
    View(Arc<[Member]>),
    /// The registry cannot be reached. The last view stays in force.
    Away {
        /// For logs and people.
        why: String,
    },
    /// The registry can be reached again, and everything has been read again.
    Back,
    /// The registry holds something that no node writes, or refuses something. The last good state stays in force.
    Problem {
        /// Names the place, and the found and expected value.
        what: String,
    },
}

/// Place where nodes register themselves, and from which they vanish when they die.
///
/// Nothing here blocks: a driver polls until there is no event, whenever it is woken and at
/// [`next_due`](Self::next_due).
///
/// # Contract, checked for every registry by [`contract::check`](crate::contract::check)
///
/// - who joins is seen by the others, with incarnation and address; who leaves or dies is not seen any more, who dies
///   at the latest after its session;
/// - a node is in the view once: a later life of it replaces an earlier one, and never the other way round;
/// - who is registered stays so without being asked: if its session expires although it lives, it registers again;
/// - what happens between two looks shows in the next view, and views in between may be left out;
/// - while the registry is away the last view stays, and it says [`Away`](RegistryEvent::Away) and
///   [`Back`](RegistryEvent::Back) once each;
/// - garbage in a node's place is one named [`Problem`](RegistryEvent::Problem), and what was known of it stays.
pub trait Registry {
    /// Returns the name: `embedded`, `zookeeper` or `memory`.
    fn name(&self) -> &'static str;

    /// Registers this node, now and whenever that is needed again. A second call replaces the first.
    fn join(&mut self, now: Timestamp, me: Member);

    /// Deregisters this node.
    fn leave(&mut self, now: Timestamp);

    /// Returns the next event; `None` when there is none.
    fn poll(&mut self, now: Timestamp) -> Option<RegistryEvent>;

    /// Returns when to poll again without an event.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the last good view.
    fn view(&self) -> Arc<[Member]>;

    /// Returns whether the registry cannot be reached.
    fn is_away(&self) -> bool;
}

impl<R: Registry + ?Sized> Registry for Box<R> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn join(&mut self, now: Timestamp, me: Member) {
        (**self).join(now, me);
    }

    fn leave(&mut self, now: Timestamp) {
        (**self).leave(now);
    }

    fn poll(&mut self, now: Timestamp) -> Option<RegistryEvent> {
        (**self).poll(now)
    }

    fn next_due(&self) -> Option<Timestamp> {
        (**self).next_due()
    }

    fn view(&self) -> Arc<[Member]> {
        (**self).view()
    }

    fn is_away(&self) -> bool {
        (**self).is_away()
    }
}

/// Error for bytes in a registry that are no node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberError {
    /// The name is not `icn-`, `flp-` or `epn-` with four digits or more.
    #[error("found the name {found:?}, expected a role and an index such as epn-0003")]
    Name {
        /// The name, cut.
        found: String,
    },
    /// Longer than any node is.
    #[error("found {found} bytes, expected at most {}", Member::BYTES_MAX)]
    TooLong {
        /// Number of bytes.
        found: usize,
    },
    /// Not the three lines that a node writes.
    #[error("found {found:?}, expected {expected}")]
    Line {
        /// The line, cut.
        found: String,
        /// The expected line.
        expected: &'static str,
    },
}

impl Member {
    /// Upper bound of the bytes of a node in a registry; an address has at most 253 + 6.
    pub const BYTES_MAX: usize = 512;

    /// Returns the name of a node in a registry, such as `epn-0003`.
    #[must_use]
    pub fn name_of(node: NodeId) -> String {
        format!("{}-{:04}", node.role, node.index)
    }

    /// Returns the node of a name.
    ///
    /// # Errors
    ///
    /// [`MemberError::Name`] if the name is no node's.
    pub fn node_of(name: &str) -> Result<NodeId, MemberError> {
        let parsed = name.split_once('-').and_then(|(role, index)| {
            let roles = [Role::Icn, Role::Flp, Role::Epn];
            let role = roles.into_iter().find(|one| one.to_string() == role)?;
            let index = index.parse().ok()?;
            let node = NodeId { role, index };
            // One spelling each: epn-3 and epn-0003 are not two nodes.
            (Self::name_of(node) == name).then_some(node)
        });
        parsed.ok_or_else(|| MemberError::Name { found: cut(name) })
    }

    /// Returns the three lines that are written to a registry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self {
            incarnation,
            address,
            ..
        } = self;
        format!(
            "sheaf 1\nincarnation {}\naddress {address}\n",
            incarnation.0
        )
        .into_bytes()
    }

    /// Reads the lines of `node`.
    ///
    /// # Errors
    ///
    /// [`MemberError`] names the first line that no node writes.
    pub fn decode(node: NodeId, bytes: &[u8]) -> Result<Self, MemberError> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(MemberError::TooLong { found: bytes.len() });
        }
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split('\n');
        let mut line = |expected: &'static str, key: &str| {
            let line = lines.next().unwrap_or("");
            let value = line.strip_prefix(key).map(str::to_owned);
            value.ok_or_else(|| MemberError::Line {
                found: cut(line),
                expected,
            })
        };
        let version = line("`sheaf 1`", "sheaf ")?;
        if version != "1" {
            return Err(MemberError::Line {
                found: cut(&version),
                expected: "version 1",
            });
        }
        let incarnation = line("`incarnation` and a number", "incarnation ")?;
        let incarnation = incarnation.parse().map_err(|_| MemberError::Line {
            found: cut(&incarnation),
            expected: "an incarnation from 0 to 2^64 - 1",
        })?;
        let address = line("`address` and HOST:PORT or unix:PATH", "address ")?;
        if !(address.is_empty() || address.split(',').all(is_address)) {
            return Err(MemberError::Line {
                found: cut(&address),
                expected: "HOST:PORT or unix:PATH",
            });
        }
        match (lines.next(), lines.next()) {
            (Some(""), None) => Ok(Self {
                node,
                incarnation: Incarnation(incarnation),
                address,
            }),
            (more, _) => Err(MemberError::Line {
                found: cut(more.unwrap_or("")),
                expected: "the end after three lines",
            }),
        }
    }
}

/// Returns whether `text` may be looked up as HOST:PORT, or is `unix:PATH`. Whether a process listens there is another
/// question.
fn is_address(text: &str) -> bool {
    if let Some(path) = text.strip_prefix("unix:") {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-+@=~:".contains(&byte);
        // As many bytes as the address of a Unix socket holds.
        return path.starts_with('/') && path.len() <= 107 && path.bytes().all(allowed);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && host.bytes().all(allowed)
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// Returns the first characters of a text from outside, for messages. They are printed escaped.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::EpnId;

    fn member(address: &str) -> Member {
        Member {
            node: EpnId(3).into(),
            incarnation: Incarnation(17),
            address: address.to_owned(),
        }
    }

    #[test]
    fn a_node_survives_being_written_down() {
        for address in [
            "",
            "10.0.0.7:7100",
            "flp3.farm:1",
            "[::1]:7000",
            "unix:/run/icn.sock,10.0.0.7:7100",
        ] {
            let member = member(address);
            assert_eq!(Member::decode(member.node, &member.encode()), Ok(member));
        }
        let text = String::from_utf8(member("a:1").encode()).unwrap();
        assert_eq!(text, "sheaf 1\nincarnation 17\naddress a:1\n");
    }

    #[test]
    fn every_node_has_one_name_and_every_other_name_is_refused() {
        let node = EpnId(3).into();
        assert_eq!(Member::name_of(node), "epn-0003");
        assert_eq!(Member::node_of("epn-0003"), Ok(node));
        assert_eq!(Member::node_of("flp-65535").unwrap().index, 65535);
        for name in [
            "epn-3",
            "epn-00003",
            "epn",
            "",
            "EPN-0003",
            "operator-0001",
            "epn-65536",
            "epn-+003",
        ] {
            assert!(Member::node_of(name).is_err(), "{name}");
        }
    }

    #[test]
    fn bytes_that_no_node_writes_are_named() {
        let check = |bytes: &[u8], expected: &str| {
            let error = Member::decode(EpnId(3).into(), bytes).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(b"", "found \"\", expected `sheaf 1`");
        check(b"sheaf 2\n", "found \"2\", expected version 1");
        check(
            b"{\"a\": 1}\x1b[31m",
            "found \"{\\\"a\\\": 1}\\u{1b}[31m\", expected `sheaf 1`",
        );
        check(
            b"sheaf 1\nincarnation -1\n",
            "found \"-1\", expected an incarnation from 0 to 2^64 - 1",
        );
        check(
            b"sheaf 1\nincarnation 1\naddress a b:1\n",
            "found \"a b:1\", expected HOST:PORT or unix:PATH",
        );
        check(
            b"sheaf 1\nincarnation 1\naddress a:0\n",
            "found \"a:0\", expected HOST:PORT or unix:PATH",
        );
        check(
            b"sheaf 1\nincarnation 1\naddress a:1",
            "found \"\", expected the end after three lines",
        );
        check(
            b"sheaf 1\nincarnation 1\naddress a:1\nx\n",
            "found \"x\", expected the end after three lines",
        );
        check(&[0xff; 513], "found 513 bytes, expected at most 512");
    }
}
