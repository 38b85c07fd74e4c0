//! How are many whole numbers, or many values, written in few bytes?
//!
//! A column is a tag and what the tag says: a first number and a step (regular times, constants), the differences to
//! such numbers (times that are nearly regular), rows in as few bits as the largest needs (short columns, and those of
//! small numbers), pco's bytes (long ones), or the numbers as they are. Values that are decimals are written as whole
//! numbers and a power of ten, and by how many units in the last place each of them is off: most are not, and sums of
//! decimals by a few; where values are near others that the reader has, as differences to those. How many rows there
//! are stands elsewhere.

use crate::record::Damage;
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

const STEP: u8 = 0;
const PACKED: u8 = 1;
const PLAIN: u8 = 2;
const BITS: u8 = 3;
const DECIMAL: u8 = 4;
const GRID: u8 = 5;
const NEAR: u8 = 6;

/// Level of pco for tables, which are written once and kept for years; above it columns do not get smaller.
pub(crate) const KEPT: usize = 8;
/// Level of pco for the head log, which lives for minutes.
pub(crate) const PASSING: usize = 2;
/// Up to this length differences in equal bits are as small as what pco writes, and read ten times as fast.
const BITS_ROWS_MAX: usize = 128;
/// Shorter columns of values are smaller as they are: what pco writes in front of them takes as much.
const PACKED_MIN: usize = 8;
/// Powers of ten that decimals are tried with.
const TENS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Units in the last place that a value may be off its decimal.
const OFF_MAX: i64 = 1 << 10;

/// Appends `value` in groups of 7 bits, lowest first; the top bit of a byte says that more follow.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a number with a sign: 0, -1, 1, -2 … become 0, 1, 2, 3 ….
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, fold_sign(value));
}

fn fold_sign(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

fn unfold_sign(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Takes what [`put_varint`] wrote off the front of `rest`.
pub(crate) fn take_varint(rest: &mut &[u8]) -> Result<u64, Damage> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(rest)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Damage("a number has more than 10 bytes"))
}

/// Takes what [`put_signed`] wrote off the front of `rest`.
pub(crate) fn take_signed(rest: &mut &[u8]) -> Result<i64, Damage> {
    take_varint(rest).map(unfold_sign)
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, Damage> {
    let (&byte, after) = rest
        .split_first()
        .ok_or(Damage("a record ends within a column"))?;
    *rest = after;
    Ok(byte)
}

/// Takes `length` bytes off the front of `rest`.
pub(crate) fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Damage> {
    let (bytes, after) = rest
        .split_at_checked(length)
        .ok_or(Damage("a length is beyond the end of its record"))?;
    *rest = after;
    Ok(bytes)
}

/// Appends whole numbers, such as times.
pub(crate) fn put_whole(out: &mut Vec<u8>, numbers: &[i64], level: usize) {
    let first = numbers.first().copied().unwrap_or(0);
    let step = numbers
        .get(1)
        .map_or(0, |second| second.wrapping_sub(first));
    let is_regular = numbers
        .windows(2)
        .all(|pair| pair[1].wrapping_sub(pair[0]) == step);
    if is_regular {
        out.push(STEP);
        put_signed(out, first);
        put_signed(out, step);
        return;
    }
    if numbers.len() <= BITS_ROWS_MAX {
        put_bits(out, numbers);
        return;
    }
    if level != KEPT {
        // What lives for minutes is not worth a second form.
        put_pco(out, numbers, level);
        return;
    }
    let (mut bits, mut packed) = (Vec::new(), Vec::new());
    put_bits(&mut bits, numbers);
    put_pco(&mut packed, numbers, level);
    let forms = [Some(bits), on_grid(numbers), Some(packed)];
    let shortest = forms.into_iter().flatten().min_by_key(Vec::len);
    out.extend(shortest.into_iter().flatten());
}

/// The column of numbers that are nearly regular: a first number, a step, and how far each is off in few bits.
fn on_grid(numbers: &[i64]) -> Option<Vec<u8>> {
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let steps = i64::try_from(numbers.len()).ok()? - 1;
    let length = last.checked_sub(first)?;
    let step = length.checked_add(steps / 2)?.checked_div(steps)?;
    let off = |(at, &number): (i64, &i64)| number.wrapping_sub(grid(first, step, at));
    let off: Vec<i64> = (0..).zip(numbers).map(off).collect();
    let mut out = vec![GRID];
    put_signed(&mut out, first);
    put_signed(&mut out, step);
    put_bits(&mut out, &off);
    Some(out)
}

fn grid(first: i64, step: i64, at: i64) -> i64 {
    first.wrapping_add(step.wrapping_mul(at))
}

fn put_pco(out: &mut Vec<u8>, numbers: &[i64], level: usize) {
    let delta = if is_drifting(numbers) {
        DeltaSpec::TryConsecutive(1)
    } else {
        DeltaSpec::NoOp
    };
    let config = ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(delta);
    put_packed(out, numbers, &config, i64::to_le_bytes);
}

/// Returns whether neighbours are closer to each other than rows are to their mean.
fn is_drifting(numbers: &[i64]) -> bool {
    let count = i128::try_from(numbers.len().max(1)).expect("rows are few");
    let sum: i128 = numbers.iter().copied().map(i128::from).sum();
    let mean = sum / count;
    let apart: u128 = numbers
        .iter()
        .map(|&number| mean.abs_diff(i128::from(number)))
        .sum();
    let steps: u128 = numbers
        .windows(2)
        .map(|pair| u128::from(pair[0].abs_diff(pair[1])))
        .sum();
    steps < apart
}

/// Appends a base, a byte of width and whether rows are differences to the one before, and the rows in that many bits.
fn put_bits(out: &mut Vec<u8>, numbers: &[i64]) {
    let base = numbers.iter().copied().min().unwrap_or(0);
    let first = numbers.first().copied().unwrap_or(0);
    let above = |number: i64| number.wrapping_sub(base).cast_unsigned();
    let pairs = || numbers.iter().zip(numbers.iter().skip(1));
    let steps = || pairs().map(|(left, right)| fold_sign(right.wrapping_sub(*left)));
    let width = |largest: u64| 64 - largest.leading_zeros();
    let plain = width(
        numbers
            .iter()
            .map(|&number| above(number))
            .max()
            .unwrap_or(0),
    );
    let stepped = width(steps().max().unwrap_or(0));
    out.push(BITS);
    if stepped < plain {
        put_signed(out, first);
        out.push(0x80 | stepped.to_le_bytes()[0]);
        put_rows(out, stepped, steps());
    } else {
        put_signed(out, base);
        out.push(plain.to_le_bytes()[0]);
        put_rows(out, plain, numbers.iter().map(|&number| above(number)));
    }
}

fn put_rows(out: &mut Vec<u8>, width: u32, rows: impl Iterator<Item = u64>) {
    let (mut waiting, mut bits) = (0_u128, 0);
    for row in rows {
        waiting |= u128::from(row) << bits;
        bits += width;
        while bits >= 8 {
            out.push(waiting.to_le_bytes()[0]);
            waiting >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(waiting.to_le_bytes()[0]);
    }
}

fn take_bits(rest: &mut &[u8], count: usize) -> Result<Vec<i64>, Damage> {
    let base = take_signed(rest)?;
    let head = take_byte(rest)?;
    let (is_stepped, width) = (head & 0x80 != 0, u32::from(head & 0x7f));
    // Equal numbers are a step: without a width, no bytes would bound the rows.
    if width > 64 || (width == 0 && count > BITS_ROWS_MAX) {
        return Err(Damage("a column of bits is wider or longer than it can be"));
    }
    let rows = if is_stepped {
        count.saturating_sub(1)
    } else {
        count
    };
    let width = usize::try_from(width).expect("64 at most");
    let length = rows
        .checked_mul(width)
        .ok_or(Damage("a column is longer than it can be"))?;
    let bytes = take_bytes(rest, length.div_ceil(8))?;
    let mut numbers = Vec::with_capacity(count);
    if is_stepped {
        let mut last = base;
        numbers.extend((count > 0).then_some(base));
        numbers.extend((0..rows).map(|at| {
            last = last.wrapping_add(unfold_sign(row_of(bytes, at, width)));
            last
        }));
    } else {
        let above = |at| base.wrapping_add(row_of(bytes, at, width).cast_signed());
        numbers.extend((0..rows).map(above));
    }
    Ok(numbers)
}

/// Reads row `at` of rows of `width` bits.
fn row_of(bytes: &[u8], at: usize, width: usize) -> u64 {
    let bit = at * width;
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let mut word = [0; 16];
    match rest.first_chunk() {
        Some(whole) => word = *whole,
        None => word[..rest.len()].copy_from_slice(rest),
    }
    let shifted = u128::from_le_bytes(word) >> (bit % 8);
    let mask = u128::from(u64::MAX) >> (64 - width);
    u64::try_from(shifted & mask).expect("masked to 64 bits at most")
}

/// Appends values, bit by bit as they are, NaNs included.
pub(crate) fn put_values(out: &mut Vec<u8>, values: &[f64], level: usize) {
    put_near(out, values, &[], level);
}

/// Appends values that may be near those of `base`, which the reader has: as many, or none.
pub(crate) fn put_near(out: &mut Vec<u8>, values: &[f64], base: &[f64], level: usize) {
    let first = values.first().copied().unwrap_or(0.0).to_bits();
    if values.iter().all(|value| value.to_bits() == first) {
        out.push(STEP);
        out.extend_from_slice(&first.to_le_bytes());
        return;
    }
    let Some((tens, wholes, off)) = decimals(values) else {
        let config = ChunkConfig::default().with_compression_level(level);
        put_packed(out, values, &config, f64::to_le_bytes);
        return;
    };
    let (mut tag, mut column) = (DECIMAL, Vec::new());
    put_whole(&mut column, &wholes, level);
    if let Some(apart) = apart(&wholes, tens, base) {
        let mut near = Vec::new();
        put_whole(&mut near, &apart, level);
        if near.len() < column.len() {
            (tag, column) = (NEAR, near);
        }
    }
    out.push(tag);
    out.push(tens);
    out.append(&mut column);
    put_whole(out, &off, level);
}

/// How far `wholes`, of values times a power of ten, are from those of `base`; none without one.
fn apart(wholes: &[i64], tens: u8, base: &[f64]) -> Option<Vec<i64>> {
    let power = *TENS.get(usize::from(tens))?;
    if base.len() != wholes.len() {
        return None;
    }
    let pairs = wholes.iter().zip(base);
    pairs
        .map(|(whole, base)| Some(whole - nearest(*base, power)?))
        .collect()
}

/// The whole number that `value`, times a power of ten, is nearest to; none beyond 2^53.
fn nearest(value: f64, power: f64) -> Option<i64> {
    let scaled = (value * power).round();
    if scaled.is_nan() || scaled.abs() > 9_007_199_254_740_992.0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let whole = scaled as i64;
    Some(whole)
}

/// The whole numbers that `values` are, divided by a power of ten, and by how many units in the last place they are
/// off.
fn decimals(values: &[f64]) -> Option<(u8, Vec<i64>, Vec<i64>)> {
    // The power that the first values need is that of all, or too small: then it goes up.
    let mut tens = 0;
    let (mut wholes, mut off) = (Vec::new(), Vec::new());
    'powers: while let Some(&power) = TENS.get(usize::from(tens)) {
        wholes.clear();
        off.clear();
        for &value in values {
            let Some((whole, units)) = decimal(value, power) else {
                tens += 1;
                continue 'powers;
            };
            wholes.push(whole);
            off.push(units);
        }
        return Some((tens, wholes, off));
    }
    None
}

fn decimal(value: f64, power: f64) -> Option<(i64, i64)> {
    // Beyond 2^53 not every whole number is a value.
    let whole = nearest(value, power)?;
    let near = whole_over(whole, power).to_bits().cast_signed();
    let units = value.to_bits().cast_signed().wrapping_sub(near);
    (units.unsigned_abs() <= OFF_MAX.unsigned_abs()).then_some((whole, units))
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53, and exact so")]
fn whole_over(whole: i64, power: f64) -> f64 {
    whole as f64 / power
}

fn put_packed<T: pco::data_types::Number>(
    out: &mut Vec<u8>,
    numbers: &[T],
    config: &ChunkConfig,
    plain: impl Fn(T) -> [u8; 8],
) {
    if numbers.len() >= PACKED_MIN {
        let packed = pco::standalone::simple_compress(numbers, config);
        // An error names a wrong configuration; the plain form is right in any case.
        if let Ok(packed) = packed
            && packed.len() < numbers.len() * 8
        {
            out.push(PACKED);
            put_varint(out, packed.len() as u64);
            out.extend_from_slice(&packed);
            return;
        }
    }
    out.push(PLAIN);
    for &number in numbers {
        out.extend_from_slice(&plain(number));
    }
}

/// Takes `count` whole numbers off the front of `rest`.
pub(crate) fn take_whole(rest: &mut &[u8], count: usize) -> Result<Vec<i64>, Damage> {
    let tag = take_byte(rest)?;
    if tag == STEP {
        let (first, step) = (take_signed(rest)?, take_signed(rest)?);
        let numbers = std::iter::successors(Some(first), |last| Some(last.wrapping_add(step)));
        return Ok(numbers.take(count).collect());
    }
    if tag == BITS {
        return take_bits(rest, count);
    }
    if tag == GRID {
        let (first, step) = (take_signed(rest)?, take_signed(rest)?);
        if take_byte(rest)? != BITS {
            return Err(Damage("a column has an unknown tag"));
        }
        let mut numbers = take_bits(rest, count)?;
        for (at, number) in (0..).zip(&mut numbers) {
            *number = number.wrapping_add(grid(first, step, at));
        }
        return Ok(numbers);
    }
    take_packed(rest, tag, count, i64::from_le_bytes)
}

/// Takes `count` values off the front of `rest`.
pub(crate) fn take_values(rest: &mut &[u8], count: usize) -> Result<Vec<f64>, Damage> {
    take_near(rest, count, &[])
}

/// Takes `count` values off the front of `rest` that [`put_near`] wrote with the same `base`.
pub(crate) fn take_near(rest: &mut &[u8], count: usize, base: &[f64]) -> Result<Vec<f64>, Damage> {
    let tag = take_byte(rest)?;
    if tag == STEP {
        let bytes = take_bytes(rest, 8)?;
        let value = f64::from_le_bytes(bytes.try_into().expect("8 bytes were taken"));
        return Ok(vec![value; count]);
    }
    if tag != DECIMAL && tag != NEAR {
        return take_packed(rest, tag, count, f64::from_le_bytes);
    }
    let power = TENS.get(usize::from(take_byte(rest)?));
    let power = *power.ok_or(Damage("a power of ten is too large"))?;
    let (mut wholes, off) = (take_whole(rest, count)?, take_whole(rest, count)?);
    if tag == NEAR {
        if base.len() != count {
            return Err(Damage("values are near others that are not there"));
        }
        for (whole, base) in wholes.iter_mut().zip(base) {
            let nearest = nearest(*base, power).ok_or(Damage("values are near one too large"))?;
            *whole = whole.wrapping_add(nearest);
        }
    }
    let value = |(whole, off): (&i64, &i64)| {
        let near = whole_over(*whole, power).to_bits().cast_signed();
        f64::from_bits(near.wrapping_add(*off).cast_unsigned())
    };
    Ok(wholes.iter().zip(&off).map(value).collect())
}

fn take_packed<T: pco::data_types::Number + Default>(
    rest: &mut &[u8],
    tag: u8,
    count: usize,
    plain: impl Fn([u8; 8]) -> T,
) -> Result<Vec<T>, Damage> {
    match tag {
        PACKED => {
            let length = usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX);
            let bytes = take_bytes(rest, length)?;
            let mut numbers = vec![T::default(); count];
            let progress = pco::standalone::simple_decompress_into(bytes, &mut numbers)
                .map_err(|_| Damage("a packed column cannot be read"))?;
            if progress.n_processed == count && progress.finished {
                Ok(numbers)
            } else {
                Err(Damage("a packed column has another number of rows"))
            }
        }
        PLAIN => {
            let bytes = take_bytes(rest, count.saturating_mul(8))?;
            let rows = bytes.chunks_exact(8);
            Ok(rows
                .map(|row| plain(row.try_into().expect("chunks of 8 bytes")))
                .collect())
        }
        _ => Err(Damage("a column has an unknown tag")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng as _, RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn check_whole(numbers: &[i64]) -> usize {
        let mut bytes = Vec::new();
        put_whole(&mut bytes, numbers, KEPT);
        let mut rest = &bytes[..];
        assert_eq!(take_whole(&mut rest, numbers.len()), Ok(numbers.to_vec()));
        assert!(rest.is_empty());
        bytes.len()
    }

    fn check_values(values: &[f64]) -> usize {
        let mut bytes = Vec::new();
        put_values(&mut bytes, values, KEPT);
        let mut rest = &bytes[..];
        let found = take_values(&mut rest, values.len()).unwrap();
        let bits = |values: &[f64]| values.iter().map(|one| one.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(values));
        assert!(rest.is_empty());
        bytes.len()
    }

    #[test]
    fn regular_times_take_a_few_bytes() {
        let times: Vec<i64> = (0..1024).map(|at| 1_790_000_000_000 + at * 1000).collect();
        assert!(check_whole(&times) < 16);
        assert!(check_whole(&[]) < 4);
        check_whole(&[i64::MIN, i64::MAX]);
        check_whole(&[i64::MIN, i64::MAX, 0]);
        check_whole(&[0, i64::MIN, 5, i64::MAX, -1]);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for width in 0..64 {
            for count in [1, 2, 7, 60, 128, 129, 300] {
                let near = |_| random.random::<i64>() >> width;
                let numbers: Vec<i64> = (0..count).map(near).collect();
                check_whole(&numbers);
            }
        }
    }

    #[test]
    fn times_that_are_nearly_regular_take_as_many_bits_as_they_are_off() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let at = |second: i64, off: i64| 1_790_000_000_000 + second * 1000 + off;
        let times: Vec<i64> = (0..1024)
            .map(|second| at(second, random.random_range(0..=1)))
            .collect();
        assert!(check_whole(&times) < 1024 / 8 + 24);
        let times: Vec<i64> = (0..300)
            .map(|second| at(second, random.random_range(-9..=9)))
            .collect();
        assert!(check_whole(&times) < 300 * 6 / 8 + 24);
    }

    #[test]
    fn values_near_others_take_less() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
        let base: Vec<f64> = (0..200).map(|_| random.random::<f64>() * 1e4).collect();
        let near = |base: &f64| (base * 100.0 + 3.0).round() / 100.0;
        let values: Vec<f64> = base.iter().map(near).collect();
        let mut bytes = Vec::new();
        put_near(&mut bytes, &values, &base, KEPT);
        assert!(bytes.len() < 100, "{} bytes", bytes.len());
        let mut rest = &bytes[..];
        assert_eq!(take_near(&mut rest, 200, &base), Ok(values.clone()));
        assert!(rest.is_empty());
        assert!(take_near(&mut &bytes[..], 200, &base[1..]).is_err());
        let endless = vec![f64::INFINITY; 200];
        let mut bytes = Vec::new();
        put_near(&mut bytes, &values, &endless, KEPT);
        assert_eq!(take_near(&mut &bytes[..], 200, &endless), Ok(values));
    }

    #[test]
    fn every_bit_of_a_value_comes_back() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let any: Vec<f64> = (0..500)
            .map(|_| f64::from_bits(random.next_u64()))
            .collect();
        check_values(&any);
        let mut decimals: Vec<f64> = (0..1000)
            .map(|_| (random.random::<f64>() * 1e5).round() / 1e5)
            .collect();
        assert!(check_values(&decimals) < 2300);
        let sums: Vec<f64> = decimals.windows(9).map(|part| part.iter().sum()).collect();
        assert!(check_values(&sums) < 3500);
        let wholes: Vec<f64> = (0..100).map(|at| f64::from(at % 16) * 1e6).collect();
        assert!(check_values(&wholes) < 60 * 8);
        decimals[17] = sheaf_samples::STALE;
        decimals[18] = f64::NEG_INFINITY;
        decimals[19] = -0.0;
        decimals[20] = f64::from_bits(0xfff8_0000_0000_1234);
        check_values(&decimals);
        assert_eq!(check_values(&[2.5; 1000]), 9);
        check_values(&[]);
        check_values(&[1.0, 2.0, 4.0]);
    }

    #[test]
    fn no_bytes_panic() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut good = Vec::new();
        put_whole(&mut good, &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], KEPT);
        put_values(
            &mut good,
            &[0.5, 1.5, 0.25, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0],
            KEPT,
        );
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
            bytes.truncate(random.random_range(0..=bytes.len()));
            let mut rest = &bytes[..];
            let _ = take_whole(&mut rest, 11).and_then(|_| take_values(&mut rest, 9));
        }
    }
}
