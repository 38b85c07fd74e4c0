//! How do the samples of one series within a day become a record?
//!
//! A chunk is a run of samples, sorted, times unique. Payload: number of samples, first time, length to the last time,
//! column of times, column of values. Chunks of one series never overlap.

use crate::column::{
    KEPT, put_signed, put_values, put_varint, put_whole, take_signed, take_values, take_varint,
    take_whole,
};
use crate::record::Damage;
use sheaf_samples::Sample;

/// Most samples of one chunk; a bound on what a reader allocates for one.
pub(crate) const SAMPLES_MAX: usize = 4096;

/// Number and times of a chunk, read without its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) count: usize,
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
}

/// Returns the payload of the chunk of `samples`: at least one, at most [`SAMPLES_MAX`].
pub(crate) fn encode(samples: &[Sample]) -> Vec<u8> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        unreachable!("a chunk holds at least one sample");
    };
    let times: Vec<i64> = samples.iter().map(|sample| sample.at_ms).collect();
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let mut out = Vec::with_capacity(64 + samples.len() * 3);
    put_varint(&mut out, samples.len() as u64);
    put_signed(&mut out, first.at_ms);
    put_varint(&mut out, last.at_ms.abs_diff(first.at_ms));
    put_whole(&mut out, &times, KEPT);
    put_values(&mut out, &values, KEPT);
    out
}

/// Reads number and times of a chunk.
pub(crate) fn extent(payload: &[u8]) -> Result<Extent, Damage> {
    take_extent(&mut &payload[..])
}

fn take_extent(rest: &mut &[u8]) -> Result<Extent, Damage> {
    let count = take_varint(rest)?;
    let first_ms = take_signed(rest)?;
    let length = take_varint(rest)?;
    match (
        usize::try_from(count),
        first_ms.checked_add_unsigned(length),
    ) {
        (Ok(count @ 1..=SAMPLES_MAX), Some(last_ms)) => Ok(Extent {
            count,
            first_ms,
            last_ms,
        }),
        _ => Err(Damage("a chunk has a wrong number of samples or times")),
    }
}

/// Appends the samples of a chunk from `from_ms` to `to_ms`, both included, to `out`.
pub(crate) fn decode(
    payload: &[u8],
    from_ms: i64,
    to_ms: i64,
    out: &mut Vec<Sample>,
) -> Result<(), Damage> {
    let mut rest = payload;
    let extent = take_extent(&mut rest)?;
    if extent.last_ms < from_ms || extent.first_ms > to_ms {
        return Ok(());
    }
    let times = take_whole(&mut rest, extent.count)?;
    let is_sorted = times.windows(2).all(|pair| pair[0] < pair[1]);
    let ends = (times.first().copied(), times.last().copied());
    if !is_sorted || ends != (Some(extent.first_ms), Some(extent.last_ms)) {
        return Err(Damage("times of a chunk are out of order"));
    }
    let values = take_values(&mut rest, extent.count)?;
    if !rest.is_empty() {
        return Err(Damage("bytes behind the columns of a chunk"));
    }
    let begin = times.partition_point(|&at| at < from_ms);
    let end = times.partition_point(|&at| at <= to_ms);
    let rows = times[begin..end].iter().zip(&values[begin..end]);
    out.extend(rows.map(|(&at_ms, &value)| Sample { at_ms, value }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: i64) -> Vec<Sample> {
        let of = |at: i64| Sample {
            at_ms: at * 1000 + at % 3,
            value: f64::from(i32::try_from(at % 7).unwrap()) / 4.0,
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn a_part_of_a_chunk_comes_back() {
        let all = samples(1000);
        let payload = encode(&all);
        let mut out = Vec::new();
        decode(&payload, i64::MIN, i64::MAX, &mut out).unwrap();
        assert_eq!(out, all);
        out.clear();
        decode(&payload, all[10].at_ms, all[20].at_ms, &mut out).unwrap();
        assert_eq!(out, all[10..=20]);
        out.clear();
        decode(&payload, -10, -1, &mut out).unwrap();
        assert!(out.is_empty());
        let extent = extent(&payload).unwrap();
        assert_eq!((extent.count, extent.last_ms), (1000, all[999].at_ms));
    }

    #[test]
    fn cut_chunks_are_damaged() {
        let payload = encode(&samples(100));
        for length in 0..payload.len() {
            let read = decode(&payload[..length], i64::MIN, i64::MAX, &mut Vec::new());
            assert!(read.is_err(), "{length} bytes");
        }
    }
}
