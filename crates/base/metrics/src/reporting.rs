//! How a metric is reported: which values are derived at the source, how often at least, and at which verbosity.

use crate::name::Kind;
use regex::{Regex, RegexBuilder};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Importance of a metric, and how much a back end takes: those up to its own verbosity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// For all back ends.
    Prod,
    /// For most back ends; the verbosity of a metric that nothing else is said of.
    #[default]
    Info,
    /// For back ends that take everything.
    Debug,
}

impl Verbosity {
    /// All of them, the fewest metrics first.
    pub const ALL: [Self; 3] = [Self::Prod, Self::Info, Self::Debug];

    /// Returns the name in URIs and farm files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prod => "prod",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl fmt::Display for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Verbosity {
    type Err = VerbosityError;

    fn from_str(text: &str) -> Result<Self, VerbosityError> {
        let known = Self::ALL.into_iter().find(|one| one.name() == text);
        known.ok_or_else(|| VerbosityError(text.to_owned()))
    }
}

/// Text that is no verbosity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("found verbosity {0:?}, expected prod, info or debug")]
pub struct VerbosityError(String);

/// Value derived from the samples of a series, sent beside it as `<name>_<word>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derived {
    /// Change for each second since the sample before. Of a histogram: values recorded a second.
    Rate,
    /// Change since the sample before. Of a histogram: values recorded.
    Increment,
    /// Average over the interval.
    Average,
    /// Smallest value of the interval.
    Min,
    /// Largest value of the interval.
    Max,
    /// Median of the values recorded in the interval.
    P50,
    /// Value that 90 % of the values recorded in the interval do not exceed.
    P90,
    /// Value that 95 % of the values recorded in the interval do not exceed.
    P95,
    /// Value that 99 % of the values recorded in the interval do not exceed.
    P99,
    /// Value that 99.9 % of the values recorded in the interval do not exceed.
    P999,
}

impl Derived {
    /// Quantiles with their share of the values.
    pub(crate) const QUANTILES: [(Self, f64); 5] = [
        (Self::P50, 0.5),
        (Self::P90, 0.9),
        (Self::P95, 0.95),
        (Self::P99, 0.99),
        (Self::P999, 0.999),
    ];

    /// Returns the word behind the name of the metric.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Increment => "increment",
            Self::Average => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p999",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// How a metric is reported.
///
/// ```
/// use sheaf_metrics::{Derived, Registry, Reporting, Verbosity};
/// use std::time::Duration;
///
/// let registry = Registry::default();
/// let links = registry.gauge("link_up", "1 while the link is up, else 0.", &[("link", "3")]);
/// let way = Reporting::new().suppress(Duration::from_secs(300)).verbosity(Verbosity::Prod);
/// registry.report_as("link_up", way);
/// registry.report_as("frames_total", Reporting::new().derive(&[Derived::Rate]));
/// # drop(links);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reporting {
    derived: u16,
    suppress: Option<Duration>,
    verbosity: Option<Verbosity>,
}

impl Reporting {
    /// Returns a way with nothing derived, sent at every interval, of verbosity `info`.
    ///
    /// A metric that nothing is said of has it, but for histograms: average, max, median and 99 % of their interval are
    /// derived.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            derived: 0,
            suppress: None,
            verbosity: None,
        }
    }

    /// Derives these values, too.
    ///
    /// Average, min and max of a gauge are over ten samples of it in an interval. Quantiles are for histograms alone,
    /// whose min, max and quantiles are read to within 1/64.
    #[must_use]
    pub fn derive(mut self, derived: &[Derived]) -> Self {
        for one in derived {
            self.derived |= one.bit();
        }
        self
    }

    /// Sends a value that has not changed only every `heartbeat`.
    #[must_use]
    pub const fn suppress(mut self, heartbeat: Duration) -> Self {
        self.suppress = Some(heartbeat);
        self
    }

    /// Sets the verbosity. A policy of the registry counts more.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = Some(verbosity);
        self
    }

    /// Returns the way of a metric of `kind` that nothing is said of.
    pub(crate) fn of_kind(kind: Kind) -> Self {
        if kind != Kind::Histogram {
            return Self::new();
        }
        // Its buckets are not sent, so the interval is summed up at the source.
        Self::new().derive(&[Derived::Average, Derived::Max, Derived::P50, Derived::P99])
    }

    pub(crate) fn has(self, derived: Derived) -> bool {
        self.derived & derived.bit() != 0
    }

    /// Returns whether a value is derived from several samples of an interval.
    pub(crate) fn has_window(self) -> bool {
        [Derived::Average, Derived::Min, Derived::Max]
            .into_iter()
            .any(|one| self.has(one))
    }

    pub(crate) fn has_quantiles(self) -> bool {
        Derived::QUANTILES.iter().any(|(one, _)| self.has(*one))
    }

    pub(crate) fn heartbeat(self) -> Option<Duration> {
        self.suppress
    }

    /// Returns the verbosity of the metric `name` under `policy`.
    pub(crate) fn resolve(self, name: &str, policy: &Policy) -> Verbosity {
        policy.of(name).or(self.verbosity).unwrap_or_default()
    }
}

/// Verbosity of metrics by their names: the first pattern that a name matches counts.
///
/// Patterns are looked at when a metric is registered or the policy changes, never when a value is recorded or sent.
#[derive(Clone, Debug, Default)]
pub struct Policy(Vec<(Regex, Verbosity)>);

/// Pattern that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("found pattern {pattern:?}, expected a regular expression: {reason}")]
pub struct PolicyError {
    /// The pattern.
    pub pattern: String,
    /// Cause, in one line.
    pub reason: String,
}

impl Policy {
    /// Memory of a compiled pattern at most.
    const PATTERN_BYTES_MAX: usize = 1 << 20;

    /// Makes a policy of patterns, which match anywhere in a name unless anchored.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] for the first pattern that is no regular expression or takes more than 1 MiB.
    pub fn new<P: AsRef<str>>(
        rules: impl IntoIterator<Item = (P, Verbosity)>,
    ) -> Result<Self, PolicyError> {
        let rule = |(pattern, verbosity): (P, Verbosity)| {
            let pattern = pattern.as_ref();
            let built = RegexBuilder::new(pattern)
                .size_limit(Self::PATTERN_BYTES_MAX)
                .build();
            built
                .map(|regex| (regex, verbosity))
                .map_err(|error| PolicyError {
                    pattern: pattern.to_owned(),
                    reason: (error.to_string().lines().last())
                        .unwrap_or_default()
                        .trim_start_matches("error: ")
                        .to_owned(),
                })
        };
        Ok(Self(rules.into_iter().map(rule).collect::<Result<_, _>>()?))
    }

    fn of(&self, name: &str) -> Option<Verbosity> {
        let rule = self.0.iter().find(|(regex, _)| regex.is_match(name));
        rule.map(|(_, verbosity)| *verbosity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_counts_and_more_than_the_metric() {
        let policy = Policy::new([
            ("^debug_keep", Verbosity::Prod),
            ("^debug_", Verbosity::Debug),
        ])
        .unwrap();
        let plain = Reporting::new();
        let loud = plain.verbosity(Verbosity::Prod);
        for (name, way, expected) in [
            ("debug_x", plain, Verbosity::Debug),
            ("debug_x", loud, Verbosity::Debug),
            ("debug_keep_x", plain, Verbosity::Prod),
            ("x_debug_", plain, Verbosity::Info),
            ("x", loud, Verbosity::Prod),
        ] {
            assert_eq!(way.resolve(name, &policy), expected, "{name}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        let error = Policy::new([("a", Verbosity::Prod), ("b(", Verbosity::Prod)]).unwrap_err();
        assert_eq!(error.pattern, "b(");
        assert!(error.to_string().contains("unclosed group"), "{error}");
        assert!(Policy::new([("((a{100}){100}){100}", Verbosity::Prod)]).is_err());
    }

    #[test]
    fn verbosities_are_read_by_name_and_ordered() {
        for one in Verbosity::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        let error = "loud".parse::<Verbosity>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "found verbosity \"loud\", expected prod, info or debug"
        );
        assert!(Verbosity::Prod < Verbosity::Info && Verbosity::Info < Verbosity::Debug);
    }

    #[test]
    fn every_derived_value_has_a_bit_of_its_own() {
        let all = [
            Derived::Rate,
            Derived::Increment,
            Derived::Average,
            Derived::Min,
            Derived::Max,
            Derived::P50,
            Derived::P90,
            Derived::P95,
            Derived::P99,
            Derived::P999,
        ];
        for one in all {
            let way = Reporting::new().derive(&[one]);
            let found: Vec<_> = all.into_iter().filter(|other| way.has(*other)).collect();
            assert_eq!(found, [one]);
        }
    }
}
