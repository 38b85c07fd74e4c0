//! When data is durable, and the time that a catalogue states.

use std::time::{SystemTime, UNIX_EPOCH};

/// How long what is acknowledged may be lost by a cut of power. A program that dies loses nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Until the kernel writes it; files are not synced.
    None,
    /// Until the file is closed.
    Close,
    /// Until the next sync, by the `sync_every` of the brain.
    Every,
    /// Never: a record is synced before it is acknowledged.
    Record,
}

impl Durability {
    const ALL: [Self; 4] = [Self::None, Self::Close, Self::Every, Self::Record];

    /// Name in reports and farm files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Close => "close",
            Self::Every => "every",
            Self::Record => "record",
        }
    }

    /// Finds the durability of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Returns the time of the wall clock, in ns since 1970, for people: nothing depends on it.
pub(crate) fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
