//! Bounds of an intake.

use serde::{Deserialize, Serialize};

/// Bounds of an intake, most of them for each source.
///
/// Two threads that receive have an intake each, so a source that sends to both has each bound twice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntakeConfig {
    /// Labels that name the source of a series, the first one that it has. Without any of them the source is the
    /// address of the sender.
    pub source_labels: Vec<String>,
    /// Sources at most. Beyond it a new one takes the place of one that was idle for `evict_after_s`, or is refused.
    pub sources_max: u32,
    /// Sources that one address may name by labels.
    pub sources_per_address_max: u32,
    /// Series of all sources at most.
    pub series_max: u32,
    /// Series of one source at most.
    pub series_per_source_max: u32,
    /// New series of a source at once.
    pub new_series_burst: u32,
    /// New series of a source a second, once the burst is used up.
    pub new_series_per_s: u32,
    /// How long new series of a source are refused after it met a bound, in s; its known series go on.
    pub cut_off_s: u32,
    /// Labels of a series at most, its name included.
    pub labels_max: u32,
    /// Bytes of the name or value of a label at most.
    pub label_bytes_max: u32,
    /// Bytes of a line at most.
    pub line_bytes_max: u32,
    /// Bytes of a message at most, after decompression.
    pub message_bytes_max: u32,
    /// How often sums of events (StatsD) are given out, in ms.
    pub events_flush_ms: u32,
    /// How far the time of a sample may be ahead, in s.
    pub future_max_s: u32,
    /// How old a sample may be, in s.
    pub past_max_s: u32,
    /// How long a series without samples is remembered, in s.
    pub series_idle_s: u32,
    /// How long a source has to be idle to make way for a new one, in s.
    pub evict_after_s: u32,
}

impl Default for IntakeConfig {
    fn default() -> Self {
        Self {
            source_labels: vec!["source".to_owned(), "host".to_owned()],
            sources_max: 200_000,
            sources_per_address_max: 100_000,
            series_max: 2_000_000,
            series_per_source_max: 100_000,
            new_series_burst: 100_000,
            new_series_per_s: 1_000,
            cut_off_s: 60,
            labels_max: 32,
            label_bytes_max: 1_024,
            line_bytes_max: 16 << 10,
            message_bytes_max: 32 << 20,
            events_flush_ms: 1_000,
            future_max_s: 600,
            past_max_s: 86_400,
            series_idle_s: 3_600,
            evict_after_s: 60,
        }
    }
}
