//! States of files on their way to permanent storage, and their table in the catalogue.

/// State of a file on its way to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShipState {
    /// Waits for its turn.
    Queued,
    /// Is being copied; after a death of the program, it waits again.
    Copying,
    /// The destination has it, and its checksum there is that of the catalogue.
    Verified,
    /// The file goes from this disk: all destinations have it.
    Deletable,
    /// The file is gone from this disk.
    Deleted,
    /// The file on this disk is not what was written; it is never deleted.
    Damaged,
}

impl ShipState {
    /// All states, in their order.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Copying,
        Self::Verified,
        Self::Deletable,
        Self::Deleted,
        Self::Damaged,
    ];

    /// Name in the catalogue and in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Copying => "copying",
            Self::Verified => "verified",
            Self::Deletable => "deletable",
            Self::Deleted => "deleted",
            Self::Damaged => "damaged",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Table of the shipments, beside that of the files.
pub(crate) const TABLE: &str = "
CREATE TABLE shipments (
    file INTEGER NOT NULL REFERENCES files (id),
    destination TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'copying', 'verified', 'deletable', 'deleted', 'damaged')),
    attempts INTEGER NOT NULL,
    copies INTEGER NOT NULL,
    next_ns INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,
    error TEXT,
    PRIMARY KEY (file, destination)
) STRICT;
CREATE INDEX shipments_state ON shipments (destination, state, next_ns);
";

/// State that is least far of the shipments of a file, as its place in [`ShipState::ALL`].
pub(crate) const LEAST_FAR: &str = "(SELECT min(CASE shipments.state WHEN 'queued' THEN 0 WHEN 'copying' THEN 1 \
     WHEN 'verified' THEN 2 WHEN 'deletable' THEN 3 WHEN 'deleted' THEN 4 ELSE 5 END) \
     FROM shipments WHERE shipments.file = files.id)";
