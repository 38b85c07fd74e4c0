//! Wall-clock moments, which certificates are about.

use std::fmt;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// A moment of the wall clock, in whole seconds since 1970-01-01 UTC. Only certificates are held against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// Now, as this machine's clock says.
    #[must_use]
    pub fn now() -> Self {
        // A clock before 1970 is as good as one that stands at it: every certificate is not yet valid then.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self(since.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        }))
    }

    /// `days` later, or earlier if negative.
    #[must_use]
    pub fn plus_days(self, days: i64) -> Self {
        Self(self.0.saturating_add(days.saturating_mul(86_400)))
    }

    /// Returns the time from `self` to `later`; zero if that is in the past.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_secs(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// As the library that writes certificates wants it; beyond the year 9999, that.
    pub(crate) fn date(self) -> OffsetDateTime {
        // 9999-12-31 23:59:59 UTC, "no end" in certificates (RFC 5280, section 4.1.2.5).
        let seconds = self.0.clamp(0, 253_402_300_799);
        OffsetDateTime::from_unix_timestamp(seconds).expect("clamped to what has a date")
    }
}

impl fmt::Display for Moment {
    /// As `2026-11-21 20:30:00 UTC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.date();
        let (year, month, day) = date.to_calendar_date();
        let (hour, minute, second) = date.to_hms();
        let month = u8::from(month);
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )
    }
}

/// Period of validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: Moment,
    /// The last moment.
    pub not_after: Moment,
}

impl Validity {
    /// Clocks of nodes may be this much behind that of the machine with the CA, in s.
    const SKEW_S: i64 = 300;

    /// For `days` from now on, and already five minutes ago: clocks differ.
    #[must_use]
    pub fn of_days(days: u32) -> Self {
        let now = Moment::now();
        Self {
            not_before: Moment(now.0 - Self::SKEW_S),
            not_after: now.plus_days(days.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_printed_as_a_date() {
        assert_eq!(Moment(0).to_string(), "1970-01-01 00:00:00 UTC");
        assert_eq!(Moment(1_795_293_000).to_string(), "2026-11-21 20:30:00 UTC");
        assert_eq!(Moment(i64::MAX).to_string(), "9999-12-31 23:59:59 UTC");
        assert_eq!(Moment(0).plus_days(2), Moment(172_800));
        assert_eq!(Moment(5).until(Moment(3)), Duration::ZERO);
    }
}
