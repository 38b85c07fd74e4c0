//! Bounds and times of a store.

use crate::level::{DAY_MS, Kind};

/// Settings of a store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most series; [`intern`](crate::Store::intern) refuses more.
    pub series_max: u32,
    /// How long samples are kept, in ms.
    pub raw_ms: i64,
    /// How long buckets of 10 s are kept, in ms.
    pub ten_seconds_ms: i64,
    /// How long buckets of 1 min are kept, in ms.
    pub minute_ms: i64,
    /// How long buckets of 1 h are kept, in ms.
    pub hour_ms: i64,
    /// How much older than the newest of its series a sample may be, in ms.
    pub late_ms: i64,
    /// How far ahead of the clock of [`maintain`](crate::Store::maintain) a sample may be, in ms.
    pub future_ms: i64,
    /// Number of samples of one series at which they become a chunk.
    pub seal_samples: usize,
    /// Age at which samples become a chunk, whatever their number, in ms.
    pub seal_age_ms: i64,
    /// Most bytes of samples in memory that are not yet in a chunk; [`append`](crate::Store::append) refuses more.
    pub head_bytes_max: u64,
    /// Bytes of chunks in memory at which they are written to tables.
    pub flush_bytes: u64,
    /// Age of chunks in memory at which they are written to tables, in ms.
    pub flush_age_ms: i64,
    /// Most samples that wait for [`commit`](crate::Store::commit); [`append`](crate::Store::append) refuses more.
    pub uncommitted_max: usize,
    /// Bytes that stay free on the disk; below it intake is refused.
    pub reserve_bytes: u64,
    /// Most samples, or buckets, that one selection loads.
    pub select_max: u64,
    /// Bytes of memory for blocks of tables.
    pub cache_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            series_max: 1_000_000,
            raw_ms: 7 * DAY_MS,
            ten_seconds_ms: 30 * DAY_MS,
            minute_ms: 90 * DAY_MS,
            hour_ms: 5 * 365 * DAY_MS,
            late_ms: 3_600_000,
            future_ms: 600_000,
            seal_samples: 1024,
            seal_age_ms: 600_000,
            head_bytes_max: 2 << 30,
            flush_bytes: 16 << 20,
            flush_age_ms: 60_000,
            uncommitted_max: 4_000_000,
            reserve_bytes: 256 << 20,
            select_max: 50_000_000,
            cache_bytes: 64 << 20,
        }
    }
}

impl Config {
    /// How long content of `kind` is kept, in ms.
    #[must_use]
    pub fn retention_ms(&self, kind: Kind) -> i64 {
        match kind {
            Kind::Raw => self.raw_ms,
            Kind::TenSeconds => self.ten_seconds_ms,
            Kind::Minute => self.minute_ms,
            Kind::Hour => self.hour_ms,
        }
    }
}
