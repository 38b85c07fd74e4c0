//! Accounting of samples: each one ends exactly once, and this says where.

use std::collections::BTreeMap;

/// Reason why a sample goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Unchanged, or a first value from which nothing can be derived yet.
    Suppressed,
    /// Not selected, by `keep` or `discard`.
    Discarded,
    /// Older than the watermark of a window, or than the last sample of a series whose order matters.
    Late,
    /// Further ahead of the collector's clock than a window accepts.
    Ahead,
    /// Added to a window.
    Aggregated,
    /// Over a bound, or of a series that could not be registered.
    Refused,
}

impl Fate {
    /// All fates, in the order of [`OperatorStats::ended`].
    pub const ALL: [Self; 6] = [
        Self::Suppressed,
        Self::Discarded,
        Self::Late,
        Self::Ahead,
        Self::Aggregated,
        Self::Refused,
    ];

    /// Name in metrics and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Suppressed => "suppressed",
            Self::Discarded => "discarded",
            Self::Late => "late",
            Self::Ahead => "ahead",
            Self::Aggregated => "aggregated",
            Self::Refused => "refused",
        }
    }
}

/// Counts of one operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorStats {
    /// Id of the operator, unique in its configuration.
    pub id: String,
    /// Kind of the operator, such as `window`.
    pub kind: &'static str,
    /// Samples that ended here, by [`Fate`] in the order of [`Fate::ALL`].
    pub ended: [u64; Fate::ALL.len()],
    /// Aggregated samples for which some of the sliding windows that hold them had closed already.
    pub partly_late: u64,
    /// Windows emitted before their end, because the operator changed.
    pub closed_early: u64,
    /// Samples in partial aggregates that the merger did not take, since their window had closed or there was no room;
    /// the shard counted them as aggregated.
    pub lost_in_merger: u64,
    /// Polls in which the merger closed windows without the watermark of every shard.
    pub closed_without_shard: u64,
    /// Look-ups of series that found no row in the table of `enrich`; every reload looks all series up again.
    pub unmatched_lookups: u64,
    /// Evaluations of `correlate` that failed, wholly or for one series.
    pub failed: u64,
    /// Reason of the last failure.
    pub last_failure: String,
}

impl OperatorStats {
    /// Samples that ended here for `fate`.
    #[must_use]
    pub fn of(&self, fate: Fate) -> u64 {
        self.ended[fate as usize]
    }
}

/// Excess over one bound, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// Bound in force.
    pub limit: u64,
    /// How often it was reached.
    pub times: u64,
    /// First series that was over it.
    pub first: String,
}

/// Counts of a [`Pipeline`](crate::Pipeline) since its start.
///
/// At every instant, received + copied + made = out + unregistered + ended ([`is_balanced`](Self::is_balanced)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Samples given to the pipeline.
    pub received: u64,
    /// Copies for windows that also pass their input on.
    pub copied: u64,
    /// Samples made by windows and correlations.
    pub made: u64,
    /// Samples in outputs.
    pub out: u64,
    /// Samples of series that were never registered, or over a bound at registration.
    pub unregistered: u64,
    /// Counts by operator, in the order of the configuration.
    pub operators: Vec<OperatorStats>,
    /// Samples that ended at operators that are no longer configured.
    pub retired: [u64; Fate::ALL.len()],
    /// Bounds that were reached, by (bound, id of the operator or nothing).
    pub over: BTreeMap<(&'static str, String), Over>,
}

impl Stats {
    /// Samples that ended for `fate`, over all operators.
    #[must_use]
    pub fn ended(&self, fate: Fate) -> u64 {
        let now: u64 = self.operators.iter().map(|one| one.of(fate)).sum();
        now + self.retired[fate as usize]
    }

    /// Returns whether every sample is accounted for.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let ended: u64 = Fate::ALL.iter().map(|fate| self.ended(*fate)).sum();
        self.received + self.copied + self.made == self.out + self.unregistered + ended
    }

    pub(crate) fn end(&mut self, operator: u16, fate: Fate) {
        self.operators[usize::from(operator)].ended[fate as usize] += 1;
    }

    /// Counts that `bound` was reached; `operator` is empty if the bound is that of the pipeline.
    pub(crate) fn over(
        &mut self,
        bound: &'static str,
        operator: &str,
        limit: u64,
        series: &dyn std::fmt::Display,
    ) {
        let over = self.over.entry((bound, operator.to_owned()));
        let over = over.or_insert_with(|| Over {
            limit,
            times: 0,
            first: series.to_string(),
        });
        over.limit = limit;
        over.times += 1;
    }

    /// Goes over to `operators` (id, kind): counts of an id that stays are kept, those of others are summed up.
    pub(crate) fn replace_operators(&mut self, operators: Vec<OperatorStats>) {
        let mut old = std::mem::replace(&mut self.operators, operators);
        for one in &mut self.operators {
            let at = old
                .iter()
                .position(|was| was.id == one.id && was.kind == one.kind);
            if let Some(at) = at {
                *one = old.swap_remove(at);
            }
        }
        for gone in old {
            for (sum, count) in self.retired.iter_mut().zip(gone.ended) {
                *sum += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(id: &str, ended: [u64; 6]) -> OperatorStats {
        OperatorStats {
            id: id.to_owned(),
            kind: "window",
            ended,
            ..OperatorStats::default()
        }
    }

    #[test]
    fn counts_of_operators_that_go_are_kept_in_the_sum() {
        let mut stats = Stats {
            received: 21,
            operators: vec![operator("a", [1, 2, 3, 4, 5, 6]), operator("b", [0; 6])],
            ..Stats::default()
        };
        assert!(stats.is_balanced());
        stats.replace_operators(vec![operator("b", [0; 6]), operator("c", [0; 6])]);
        assert!(stats.is_balanced());
        assert_eq!(stats.ended(Fate::Late), 3);
        stats.end(1, Fate::Late);
        assert!(!stats.is_balanced(), "one sample ended that never came");
        let names: Vec<_> = stats.operators.iter().map(|one| &*one.id).collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn fates_are_numbered_as_listed() {
        for (number, fate) in Fate::ALL.into_iter().enumerate() {
            assert_eq!(fate as usize, number, "{}", fate.name());
        }
    }
}
