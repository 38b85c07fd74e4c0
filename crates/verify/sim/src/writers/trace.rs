//! Recorded streams: a line a record.

use std::collections::BTreeMap;
use thiserror::Error;

/// Record of a recorded trace: when it was offered, its stream, its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traced {
    /// Seconds since the beginning of the trace.
    pub at_s: f64,
    /// Number of the stream.
    pub stream: u16,
    /// Bytes.
    pub bytes: u64,
}

/// Records in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The records.
    pub records: Vec<Traced>,
    /// Number of streams.
    pub streams: u16,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// A line is no record, or is of an earlier time than the one before it.
    #[error("line {line}: found `{found}`, expected SECONDS,STREAM,BYTES in the order of time")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line.
        found: String,
    },
    /// More streams than there are numbers for.
    #[error("line {line}: found stream {}, expected at most {}", u16::MAX, u16::MAX - 1)]
    Streams {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl Trace {
    /// Reads lines `SECONDS,STREAM,BYTES`; streams are numbered in the order in which they come. Empty lines and those
    /// that begin with `#` are left out.
    ///
    /// # Errors
    ///
    /// [`TraceError`], with the line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
        let mut records: Vec<Traced> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || TraceError::Line {
                line: at + 1,
                found: line.to_owned(),
            };
            let mut fields = line.split(',').map(str::trim);
            let (at_s, stream, bytes) = (fields.next(), fields.next(), fields.next());
            let (Some(at_s), Some(stream), Some(bytes), None) =
                (at_s, stream, bytes, fields.next())
            else {
                return Err(bad());
            };
            let at_s: f64 = at_s.parse().map_err(|_| bad())?;
            let last = records.last().map_or(0.0, |record| record.at_s);
            if !at_s.is_finite() || at_s < last {
                return Err(bad());
            }
            let bytes = bytes.parse().map_err(|_| bad())?;
            let next = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
            let stream = *numbers.entry(stream).or_insert(next);
            if stream == u16::MAX {
                return Err(TraceError::Streams { line: at + 1 });
            }
            records.push(Traced {
                at_s,
                stream,
                bytes,
            });
        }
        let streams = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
        Ok(Self { records, streams })
    }

    /// Returns the share of each stream of the bytes.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let mut totals = vec![0.0; usize::from(self.streams)];
        for record in &self.records {
            totals[usize::from(record.stream)] += record.bytes as f64;
        }
        let sum: f64 = totals.iter().sum();
        totals.iter().map(|bytes| bytes / sum.max(1.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_line_by_line() {
        let trace = Trace::parse("# a comment\n0,a,10\n\n0.5, b ,20\n0.5,a,0\n").expect("a trace");
        let found: Vec<_> = trace
            .records
            .iter()
            .map(|it| (it.at_s, it.stream, it.bytes))
            .collect();
        assert_eq!(found, [(0.0, 0, 10), (0.5, 1, 20), (0.5, 0, 0)]);
        assert_eq!(trace.streams, 2);
        assert_eq!(trace.shares(), [10.0 / 30.0, 20.0 / 30.0]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (bad, line) in [
            ("1,a", 1),
            ("1,a,2,3", 1),
            ("x,a,1", 1),
            ("1,a,-1", 1),
            ("inf,a,1", 1),
            ("2,a,1\n1,a,1", 2),
        ] {
            let error = Trace::parse(bad).expect_err(bad).to_string();
            let told = error.starts_with(&format!("line {line}: found `"));
            assert!(
                told && error.ends_with("the order of time"),
                "{bad}: {error}"
            );
        }
    }
}
