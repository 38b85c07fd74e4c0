//! Acknowledgement levels of an EPN.

use serde::{Deserialize, Serialize};

/// When an EPN reports a TF as built, and when it acknowledges the delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ack {
    /// When its parts are in memory. If the EPN dies between the verdict and the hand-over, the TF is abandoned.
    #[default]
    Built,
    /// When it is on the disk under a name that no consumer reads, or at a writer node that has not published it; the
    /// commit publishes it, if need be in the next life of the EPN. Needs the sink `file` or `writers`.
    Stored,
    /// As `built`, but the delivery is acknowledged when the consumer has finished with the TF: until then the FLPs
    /// hold it. If the EPN or the consumer dies before, another one gets it. Needs the sink `shm` and delivery at
    /// least once.
    Processed,
}

impl Ack {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Built, Self::Stored, Self::Processed];

    /// Returns the name in a farm file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Built => "built",
            Self::Stored => "stored",
            Self::Processed => "processed",
        }
    }

    /// Returns the level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ack| ack.name() == name)
    }
}
