//! Values at a time, and the mark of a series that has ended.

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time in ms since 1970-01-01 UTC, by the clock of the sender.
    pub at_ms: i64,
    /// The value; any `f64`, NaN and infinities included.
    pub value: f64,
}

/// Staleness marker: the NaN that ends a series at its time (Prometheus, `model/value`, `StaleNaN`).
///
/// Compare by [`is_stale`]: a NaN equals nothing.
pub const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Returns whether `value` is the staleness marker; other NaNs are values.
#[must_use]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marker_is_stale() {
        assert!(is_stale(STALE));
        assert!(!is_stale(f64::NAN));
        assert!(!is_stale(f64::INFINITY));
        assert!(!is_stale(0.0));
    }
}
