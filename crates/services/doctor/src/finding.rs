//! Findings: what a check says of one place.

use serde::Serialize;

/// Kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As expected.
    Ok,
    /// A farm runs, and loses speed or safety by it.
    Advice,
    /// A node does not start, or the farm does not work.
    Wrong,
    /// Not known; `found` says why.
    NotChecked,
}

impl State {
    /// Returns the word for people and programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Wrong => "WRONG",
            Self::NotChecked => "not checked",
        }
    }
}

/// Result of a check in one place, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Part of the machine or of the farm, such as `eth0` or `epn:3`; empty for the machine as a whole.
    pub place: String,
    /// Result.
    pub state: State,
    /// Value found, or the reason why there is none.
    pub found: String,
    /// Value expected, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Reason why that matters, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// Cost, where that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<&'static str>,
    /// Command that mends it, or what is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// A result, before it has the name and the reasons of its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) place: String,
    pub(crate) state: State,
    pub(crate) found: String,
    pub(crate) expected: Option<String>,
    pub(crate) mend: Option<String>,
}

impl Verdict {
    fn new(state: State, found: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            state,
            found: found.into(),
            expected: None,
            mend: None,
        }
    }

    pub(crate) fn ok(found: impl Into<String>) -> Self {
        Self::new(State::Ok, found)
    }

    pub(crate) fn not_checked(reason: impl Into<String>) -> Self {
        Self::new(State::NotChecked, reason)
    }

    pub(crate) fn advice(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            expected: Some(expected.into()),
            ..Self::new(State::Advice, found)
        }
    }

    pub(crate) fn wrong(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            expected: Some(expected.into()),
            ..Self::new(State::Wrong, found)
        }
    }

    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            ..self
        }
    }

    pub(crate) fn mended_by(self, mend: impl Into<String>) -> Self {
        Self {
            mend: Some(mend.into()),
            ..self
        }
    }
}
