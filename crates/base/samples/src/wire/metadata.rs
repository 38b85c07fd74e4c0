//! Descriptions of metrics.

/// Kind of a metric. The numbers are those of remote write's `MetricMetadata.MetricType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Kind {
    /// Not stated.
    #[default]
    Unknown = 0,
    /// Value that only grows, but for restarts.
    Counter = 1,
    /// Value that goes up and down.
    Gauge = 2,
    /// Cumulative buckets of a distribution.
    Histogram = 3,
    /// Buckets that may shrink.
    GaugeHistogram = 4,
    /// Quantiles of a distribution.
    Summary = 5,
    /// Labels that describe a process, with the value 1.
    Info = 6,
    /// One series for each state, 1 for the present one.
    StateSet = 7,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
    ];

    /// Returns the word of OpenMetrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }

    /// Returns the kind of a word of OpenMetrics, or `untyped` of the older text.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        let is_word = |kind: &Self| kind.word() == word;
        let kind = Self::ALL.into_iter().find(is_word);
        kind.or_else(|| (word == "untyped").then_some(Self::Unknown))
    }
}

/// Description of all series of one name. An empty text was not stated.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Name of the metric: for a histogram, that without `_bucket`.
    pub family: String,
    /// Kind of the metric.
    pub kind: Kind,
    /// Description for people.
    pub help: String,
    /// Unit of the value.
    pub unit: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_number_and_word() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(Kind::of_word(kind.word()), Some(kind));
        }
        assert_eq!(Kind::of_word("untyped"), Some(Kind::Unknown));
        assert_eq!(Kind::of_word("speed"), None);
    }
}
