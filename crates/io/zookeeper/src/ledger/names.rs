//! Names of the nodes of a log in ZooKeeper, and the content of `term`.

use sheaf_protocol::Term;
use thiserror::Error;

/// Paths of the log.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) election: String,
    pub(super) term: String,
    pub(super) log: String,
}

impl Paths {
    pub(super) fn new(root: &str) -> Self {
        let root = root.trim_end_matches('/');
        Self {
            election: format!("{root}/election"),
            term: format!("{root}/term"),
            log: format!("{root}/log"),
        }
    }

    pub(super) fn segment(&self, number: u64) -> String {
        format!("{}/seg-{number:010}", self.log)
    }

    pub(super) fn candidate(&self, name: &str) -> String {
        format!("{}/{name}", self.election)
    }
}

/// Returns the number in the name of a segment.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("seg-")?.parse().ok()?;
    (format!("seg-{number:010}") == name).then_some(number)
}

/// An ICN that wants to lead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// Sequence number; the lowest leads.
    pub(super) sequence: u64,
    /// Session with which its node vanishes: so the own one is found again when the answer was lost.
    pub(super) session: i64,
    pub(super) icn: u16,
    /// Name in the election.
    pub(super) name: String,
}

/// Returns the begin of the name of a candidate; ZooKeeper adds the number.
pub(super) fn candidate_prefix(icn: u16, session: i64) -> String {
    format!("icn-{icn:04}-{session:016x}-")
}

impl Candidate {
    /// Parses a name; `None` if it is no candidate's.
    pub(super) fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("icn-")?.split('-');
        let (icn, session, sequence) = (parts.next()?, parts.next()?, parts.next()?);
        let candidate = Self {
            sequence: sequence.parse().ok()?,
            session: u64::from_str_radix(session, 16).ok()?.cast_signed(),
            icn: icn.parse().ok()?,
            name: name.to_owned(),
        };
        let is_one = parts.next().is_none() && sequence.bytes().all(|byte| byte.is_ascii_digit());
        is_one.then_some(candidate)
    }
}

/// Content of `term`: the ICN that took it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) term: Term,
    pub(super) icn: u16,
    pub(super) session: i64,
}

/// Error for bytes that are no claim.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("found {found:?}, expected `term`, `icn` and `session`, a number each")]
pub(super) struct ClaimError {
    found: String,
}

impl Claim {
    /// Before the first leader.
    pub(super) const NONE: Self = Self {
        term: Term(0),
        icn: 0,
        session: 0,
    };

    pub(super) fn encode(self) -> Vec<u8> {
        let Self { term, icn, session } = self;
        format!("term {}\nicn {icn}\nsession {session:x}\n", term.0).into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ClaimError> {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]);
        let mut lines = text.split('\n');
        let mut value = |key| lines.next()?.strip_prefix(key);
        let claim = (|| {
            let term = Term(value("term ")?.parse().ok()?);
            let icn = value("icn ")?.parse().ok()?;
            let session = u64::from_str_radix(value("session ")?, 16).ok()?;
            let session = session.cast_signed();
            Some(Self { term, icn, session })
        })();
        // One spelling each: a text that reads the same but is written otherwise was not written by us.
        let claim = claim.filter(|claim| claim.encode() == bytes);
        claim.ok_or_else(|| ClaimError {
            found: text.chars().take(40).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let name = format!("{}{:010}", candidate_prefix(1, -2), 7);
        assert_eq!(name, "icn-0001-fffffffffffffffe-0000000007");
        let candidate = Candidate::of(&name).unwrap();
        assert_eq!(
            (candidate.sequence, candidate.session, candidate.icn),
            (7, -2, 1)
        );
        for bad in [
            "",
            "icn-0001",
            "icn-1-2-",
            "icn-1-2-3-4",
            "icn-1-2-+3",
            "epn-1-2-3",
            "icn-70000-2-3",
        ] {
            assert_eq!(Candidate::of(bad), None, "{bad}");
        }
        assert_eq!(Paths::new("/a/b/").segment(12), "/a/b/log/seg-0000000012");
        assert_eq!(segment_number("seg-0000000012"), Some(12));
        for bad in [
            "seg-12",
            "seg-",
            "seg-00000000012",
            "sig-0000000012",
            "seg-000000001x",
        ] {
            assert_eq!(segment_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_claim_survives_being_written_and_nothing_else_is_one() {
        let claim = Claim {
            term: Term(7),
            icn: 1,
            session: -2,
        };
        assert_eq!(claim.encode(), b"term 7\nicn 1\nsession fffffffffffffffe\n");
        assert_eq!(Claim::decode(&claim.encode()), Ok(claim));
        for bad in [
            "",
            "7",
            "term 7\n",
            "term 07\nicn 1\nsession 0\n",
            "term 7\nicn 1\nsession 0\nx",
        ] {
            assert!(Claim::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let error = Claim::decode(b"\xff\n\x1b[2J").unwrap_err().to_string();
        assert!(
            error.starts_with("found \"\u{fffd}\\n\\u{1b}[2J\""),
            "{error}"
        );
    }
}
