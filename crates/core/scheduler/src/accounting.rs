//! Accounting: every announced TF has exactly one fate, per run and per source, at every instant.

use sheaf_protocol::{DropReason, EpnId, FlpId};
use std::collections::BTreeMap;

/// Fates of the TFs of a run. `announced = complete + incomplete + dropped + in flight`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// TFs that exist: called for (paced) or announced by at least one FLP.
    pub announced: u64,
    /// TFs built with all parts of their roster.
    pub complete: u64,
    /// TFs built with parts missing, as the quorum rule allows.
    pub incomplete: u64,
    /// TFs not built, by [`DropReason::index`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// TFs, complete or incomplete, whose EPN died between commit and delivery. Counted there too.
    pub abandoned: u64,
    /// TFs, complete or incomplete, that were committed to another EPN because the former one died between commit and
    /// delivery. Counted there too.
    pub redelivered: u64,
    /// Assignments after the first one of a TF.
    pub reassigned: u64,
    /// Payload bytes of complete and incomplete TFs.
    pub bytes: u64,
    /// Accounting of each source.
    pub sources: BTreeMap<FlpId, SourceAccounting>,
    /// Accounting of each EPN.
    pub targets: BTreeMap<EpnId, TargetAccounting>,
}

/// TFs of one EPN, over all its lives. All EPNs: `built = complete + incomplete`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetAccounting {
    /// TFs committed to it.
    pub built: u64,
    /// Of these, acknowledged: its consumer has them.
    pub delivered: u64,
}

/// Fates of the STFs of one FLP. `announced = built + dropped + unused + in flight`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceAccounting {
    /// STFs announced for TFs whose roster holds the FLP.
    pub announced: u64,
    /// STFs in a complete or incomplete TF.
    pub built: u64,
    /// STFs announced, whose TF was dropped.
    pub dropped: u64,
    /// STFs announced, whose TF was built without them.
    pub unused: u64,
    /// STFs announced for TFs whose roster does not hold the FLP, or that were decided already.
    pub outside: u64,
    /// TFs with the FLP in their roster for which it will never have an STF.
    pub skipped: u64,
}

impl Accounting {
    /// Returns the TFs dropped, for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns TFs with a verdict.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.complete + self.incomplete + self.dropped_total()
    }

    /// Returns whether the equation holds with `in_flight` TFs counted in the table.
    #[must_use]
    pub fn balance(&self, in_flight: u64) -> bool {
        self.announced == self.decided() + in_flight
    }

    pub(crate) fn target(&mut self, epn: EpnId) -> &mut TargetAccounting {
        self.targets.entry(epn).or_default()
    }

    pub(crate) fn source(&mut self, flp: FlpId) -> &mut SourceAccounting {
        self.sources.entry(flp).or_default()
    }
}
