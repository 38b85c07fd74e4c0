//! Functions of single values.

/// Returns the larger value as Go's `math.Max` does: a NaN wins over numbers, +Inf over a NaN.
fn max(left: f64, right: f64) -> f64 {
    if left == f64::INFINITY || right == f64::INFINITY {
        f64::INFINITY
    } else if left.is_nan() || right.is_nan() {
        f64::NAN
    } else if left > right || (left == right && left.is_sign_positive()) {
        left
    } else {
        right
    }
}

/// Returns the smaller value as Go's `math.Min` does: a NaN wins over numbers, -Inf over a NaN.
fn min(left: f64, right: f64) -> f64 {
    -max(-left, -right)
}

pub(crate) fn clamp(value: f64, limits: &[f64]) -> Option<f64> {
    let (low, high) = (limits[0], limits[1]);
    (high >= low || low.is_nan() || high.is_nan()).then(|| max(low, min(high, value)))
}

pub(crate) fn clamp_max(value: f64, limits: &[f64]) -> Option<f64> {
    Some(min(limits[0], value))
}

pub(crate) fn clamp_min(value: f64, limits: &[f64]) -> Option<f64> {
    Some(max(limits[0], value))
}

pub(crate) fn max_of(values: &[f64]) -> f64 {
    max(values[0], values[1])
}

pub(crate) fn min_of(values: &[f64]) -> f64 {
    min(values[0], values[1])
}

pub(crate) fn pi(_: &[f64]) -> f64 {
    std::f64::consts::PI
}

pub(crate) fn deg(value: f64) -> f64 {
    value * 180.0 / std::f64::consts::PI
}

pub(crate) fn rad(value: f64) -> f64 {
    value * std::f64::consts::PI / 180.0
}

pub(crate) fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

/// From here on the 1 below the root is lost, and twice the value may overflow.
const LARGE: f64 = (1_u64 << 28) as f64;

pub(crate) fn acosh(value: f64) -> f64 {
    if value > LARGE {
        value.ln() + std::f64::consts::LN_2
    } else {
        value.acosh()
    }
}

pub(crate) fn asinh(value: f64) -> f64 {
    if value.abs() > LARGE {
        (value.abs().ln() + std::f64::consts::LN_2).copysign(value)
    } else {
        value.asinh()
    }
}

/// Rounds to the nearest multiple, ties up.
pub(crate) fn round(value: f64, nearest: &[f64]) -> Option<f64> {
    // The inverse loses less, as 0.1 has no exact form and 10 has.
    let inverse = 1.0 / nearest.first().copied().unwrap_or(1.0);
    Some((value * inverse + 0.5).floor() / inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_wins_over_numbers_and_infinity_over_nan() {
        assert!(max(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        assert_eq!(max(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert_eq!(min(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert_eq!((max(1.0, 2.0), min(1.0, 2.0)), (2.0, 1.0));
        assert!(max(-0.0, 0.0).is_sign_positive() && min(0.0, -0.0).is_sign_negative());
    }

    #[test]
    fn a_clamp_without_room_gives_nothing() {
        assert_eq!(clamp(5.0, &[1.0, 3.0]), Some(3.0));
        assert_eq!(clamp(5.0, &[3.0, 1.0]), None);
    }

    #[test]
    fn area_functions_do_not_overflow() {
        assert!((acosh(1.7e308) - 710.419_984_073_788).abs() < 1e-9);
        assert!((asinh(-1.7e308) + 710.419_984_073_788).abs() < 1e-9);
        assert_eq!(asinh(f64::NEG_INFINITY), f64::NEG_INFINITY);
    }

    #[test]
    fn ties_round_up() {
        assert_eq!(round(2.5, &[]), Some(3.0));
        assert_eq!(round(-2.5, &[]), Some(-2.0));
        assert_eq!(round(0.27, &[0.1]), Some(0.3));
    }
}
