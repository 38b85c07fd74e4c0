//! Reasons why a job could not be placed now.

use std::fmt;

/// Reason why no target gets a job now. Every refusal has a reason, a name and a counter.
///
/// A refusal is an answer, not an error: the job waits, or its owner drops it with a reason of its own.
///
/// From [`NoTarget`](Self::NoTarget) to [`NoMemory`](Self::NoMemory) the order is that of how near a target
/// comes to taking the job, and the nearest one gives the reason: a farm with one suspect and one fully
/// booked target has no slot. [`TooLarge`](Self::TooLarge) goes before all of these but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// There is no target at all. The job waits for one to join.
    NoTarget,
    /// Every target is disabled or suspect. The job waits for one to come back.
    NoneAvailable,
    /// The job avoids every target that is online. It waits for another one.
    NoneAllowed,
    /// No target that is online and allowed has a free slot. The job waits for a booking to end.
    NoSlot,
    /// Some targets that are online and allowed have a free slot, but none of these the free bytes. The job waits for a
    /// booking or a consumer to end.
    NoMemory,
    /// The job is larger than every target when empty, online and allowed or not. Waiting does not help,
    /// unless a larger target joins.
    TooLarge {
        /// Bytes that the job needs.
        bytes: u64,
        /// Bytes of the largest target.
        capacity_bytes_max: u64,
    },
}

impl Refusal {
    /// One of each reason, by [`index`](Self::index), for tables of counters. The sizes in
    /// [`TooLarge`](Self::TooLarge) are 0 here.
    pub const ALL: [Self; 6] = [
        Self::NoTarget,
        Self::NoneAvailable,
        Self::NoneAllowed,
        Self::NoSlot,
        Self::NoMemory,
        Self::TooLarge {
            bytes: 0,
            capacity_bytes_max: 0,
        },
    ];

    /// Returns the name in metrics, summaries and logs, such as `"no_memory"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::NoneAvailable => "none_available",
            Self::NoneAllowed => "none_allowed",
            Self::NoSlot => "no_slot",
            Self::NoMemory => "no_memory",
            Self::TooLarge { .. } => "too_large",
        }
    }

    /// Returns the place in [`ALL`](Self::ALL), whatever the sizes.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::NoTarget => 0,
            Self::NoneAvailable => 1,
            Self::NoneAllowed => 2,
            Self::NoSlot => 3,
            Self::NoMemory => 4,
            Self::TooLarge { .. } => 5,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget => f.write_str("there is no target"),
            Self::NoneAvailable => f.write_str("every target is disabled or suspect"),
            Self::NoneAllowed => f.write_str("the job avoids every target that is online"),
            Self::NoSlot => f.write_str("no target has a free slot"),
            Self::NoMemory => f.write_str("no target with a free slot has enough free bytes"),
            Self::TooLarge {
                bytes,
                capacity_bytes_max,
            } => write!(
                f,
                "the job needs {bytes} bytes, the largest target has {capacity_bytes_max}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index_under_its_own_name() {
        for (index, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            let same_name = Refusal::ALL.iter().filter(|r| r.name() == reason.name());
            assert_eq!(same_name.count(), 1, "{reason}");
        }
    }

    #[test]
    fn a_job_too_large_counts_under_one_reason_whatever_its_size() {
        let refusal = Refusal::TooLarge {
            bytes: 3,
            capacity_bytes_max: 2,
        };
        assert_eq!(Refusal::ALL[refusal.index()].name(), refusal.name());
        assert_eq!(
            refusal.to_string(),
            "the job needs 3 bytes, the largest target has 2"
        );
    }
}
