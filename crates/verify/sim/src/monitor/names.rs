//! Names of series: those that clients send, and those that come out of the operators.

use sheaf_samples::{Labels, client};

/// Metric of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Metric {
    /// Passes all operators.
    Gauge,
    /// Suppressed while it does not change.
    State,
    /// Discarded by some configurations.
    Noise,
    /// Renamed by some configurations.
    Old,
    /// Aggregated by some configurations.
    Work,
    /// Ever new series.
    Burst,
    /// Count of the samples that the client sent.
    Sent,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::State => "state",
            Self::Noise => "noise",
            Self::Old => "old_level",
            Self::Work => "work",
            Self::Burst => "burst",
            Self::Sent => client::SENT,
        }
    }
}

/// Series of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesName {
    pub(super) client: u16,
    pub(super) metric: Metric,
    pub(super) number: u32,
}

impl SeriesName {
    /// Tags of a line, as texts.
    pub(super) fn tags(self) -> [(&'static str, String); 2] {
        [
            ("source", source(self.client)),
            ("process", self.number.to_string()),
        ]
    }
}

/// Name of the source that a client is.
pub(super) fn source(client: u16) -> String {
    format!("c{client}")
}

/// Series in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutName {
    /// A series as it was sent.
    Same(SeriesName),
    /// A renamed one: client and number.
    Renamed(u16, u32),
    /// Result of a window: function, and the client if each has windows of its own.
    Window(&'static str, Option<u16>),
}

impl OutName {
    pub(super) fn labels(self) -> Labels {
        let (name, series) = match self {
            Self::Same(series) => (series.metric.name().to_owned(), Some(series)),
            Self::Renamed(client, number) => {
                let metric = Metric::Old;
                let series = SeriesName {
                    client,
                    metric,
                    number,
                };
                ("level".to_owned(), Some(series))
            }
            Self::Window(function, client) => {
                let mut pairs = vec![("__name__", format!("work_{function}"))];
                pairs.extend(client.map(|client| ("source", source(client))));
                return Labels::new(pairs).expect("short labels");
            }
        };
        let tags = series.map(SeriesName::tags).into_iter().flatten();
        let pairs = std::iter::once(("__name__", name)).chain(tags);
        Labels::new(pairs).expect("short labels")
    }
}
