//! Functions of the calendar, in UTC.
//!
//! Days are counted as Go's package `time` does, from a year far in the past, so that times out of range wrap to the
//! same nonsense as in Prometheus.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, Steps};
use crate::rows::{Merge, merged, without_name};

/// Functions of this module.
pub(crate) const NAMES: [&str; 8] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "year",
];

/// The year that Go counts days from; a multiple of 400 years before the year 1.
const ORIGIN_YEAR: i64 = -292_277_022_399;
/// Seconds from there to 1970.
const ORIGIN_TO_1970_S: u64 = 9_223_371_966_579_724_800 + 62_135_596_800;
const DAY_S: u64 = 86_400;

/// One instant.
struct Date {
    year: i64,
    month: u64,
    day: u64,
    day_of_year: u64,
    days_in_month: u64,
    day_of_week: u64,
    hour: u64,
    minute: u64,
}

impl Date {
    fn at(seconds: i64) -> Self {
        let absolute = seconds.cast_unsigned().wrapping_add(ORIGIN_TO_1970_S);
        let (mut days, second) = (absolute / DAY_S, absolute % DAY_S);
        // The first day of the count was a Monday.
        let day_of_week = (days + 1) % 7;
        let mut years = 400 * (days / 146_097);
        days %= 146_097;
        // The last of four centuries and of four years has a day more.
        let centuries = (days / 36_524).min(3);
        days -= 36_524 * centuries;
        let fours = days / 1_461;
        days -= 1_461 * fours;
        let ones = (days / 365).min(3);
        days -= 365 * ones;
        years += 100 * centuries + 4 * fours + ones;
        let year = years.cast_signed().wrapping_add(ORIGIN_YEAR);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut month, mut day) = (1, days);
        for length in lengths {
            if day < length {
                break;
            }
            day -= length;
            month += 1;
        }
        Self {
            year,
            month,
            day: day + 1,
            day_of_year: days + 1,
            days_in_month: lengths[(month - 1) as usize],
            day_of_week,
            hour: second / 3_600,
            minute: second % 3_600 / 60,
        }
    }
}

/// Returns `value` as whole seconds, as Go converts on x86-64: what does not fit is the smallest number.
fn seconds(value: f64) -> i64 {
    // `i64::MAX` as a float is 2^63, the first that does not fit.
    if (i64::MIN as f64..i64::MAX as f64).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

fn run(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
    part: fn(&Date) -> f64,
) -> Result<Out, Error> {
    let Some(arg) = call.args.first() else {
        let values = steps.times().map(|at_ms| part(&Date::at(at_ms / 1000)));
        return Ok(Out::Vector(vec![Evaluator::unlabelled(values.collect())]));
    };
    let mut rows = evaluator.vector(arg, steps)?;
    for row in &mut rows {
        row.labels = without_name(&row.labels);
        row.map(|_, value| Some(part(&Date::at(seconds(value)))));
    }
    merged(rows, Merge::Disjoint).map(Out::Vector)
}

macro_rules! parts {
    ($($name:ident: $part:expr;)*) => {$(
        pub(crate) fn $name(
            evaluator: &mut Evaluator<'_>,
            call: &Call,
            steps: &Steps,
        ) -> Result<Out, Error> {
            run(evaluator, call, steps, $part)
        }
    )*};
}

parts! {
    day_of_month: |date| date.day as f64;
    day_of_week: |date| date.day_of_week as f64;
    day_of_year: |date| date.day_of_year as f64;
    days_in_month: |date| date.days_in_month as f64;
    hour: |date| date.hour as f64;
    minute: |date| date.minute as f64;
    month: |date| date.month as f64;
    year: |date| date.year as f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        let cases = [
            (0, (1970, 1, 1, 1, 31, 4, 0, 0)),
            (951_782_399, (2000, 2, 28, 59, 29, 1, 23, 59)),
            (951_868_799, (2000, 2, 29, 60, 29, 2, 23, 59)),
            (-1, (1969, 12, 31, 365, 31, 3, 23, 59)),
            (4_107_542_400, (2100, 3, 1, 60, 31, 1, 0, 0)),
        ];
        for (seconds, expected) in cases {
            let date = Date::at(seconds);
            let found = (
                date.year,
                date.month,
                date.day,
                date.day_of_year,
                date.days_in_month,
                date.day_of_week,
                date.hour,
                date.minute,
            );
            assert_eq!(found, expected, "{seconds}");
        }
    }

    #[test]
    fn no_time_panics() {
        for value in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            9.3e18,
            -9.3e18,
            1e300,
        ] {
            assert_eq!(seconds(value), i64::MIN);
        }
        for seconds in [i64::MIN, i64::MIN + 1, i64::MAX] {
            assert!(Date::at(seconds).month <= 12);
        }
    }
}
