//! Hot path: which lines, fields and values does an input hold?

use super::line::{Line, Precision, Raw};
use super::scan::Scan;
use crate::wire::{Code, Fault};
use memchr::memchr;

/// Bytes of a line at most, by default.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// Decoder of lines, with the buffer that all inputs share: once warm, it allocates nothing.
///
/// Differences from the crate `influxdb-line-protocol` 2.0, each with its reason:
///
/// - a line may end with CR LF, and spaces may follow the last field: senders on other systems do so;
/// - `\` does not escape the end of a line, a text without closing quote ends at its first line end, and quotes in a
///   comment open nothing: one damaged line does not take the next ones with it;
/// - a number beyond the range of an `f64` is bad, not infinite: infinity would hide what was sent;
/// - `,` in the name of a tag or field is written `\,`: without the rule `m,a,b=1` would have a tag `a,b`;
/// - the series part may hold no tab, carriage return or NUL.
#[derive(Clone, Debug)]
pub struct Decoder {
    precision: Precision,
    line_bytes_max: usize,
    fields: Vec<Raw>,
}

impl Decoder {
    /// Returns a decoder of inputs whose times have `precision`, for lines of at most `line_bytes_max` bytes.
    #[must_use]
    pub fn new(precision: Precision, line_bytes_max: usize) -> Self {
        Self {
            precision,
            line_bytes_max,
            fields: Vec::new(),
        }
    }

    /// Sets the unit of the times of the next input.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// Returns the lines of `bytes`.
    pub fn lines<'d, 'a>(&'d mut self, bytes: &'a [u8]) -> Lines<'d, 'a> {
        Lines {
            bytes,
            at: 0,
            decoder: self,
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Precision::default(), LINE_BYTES_MAX)
    }
}

/// Lines of one input.
#[derive(Debug)]
pub struct Lines<'d, 'a> {
    bytes: &'a [u8],
    at: usize,
    decoder: &'d mut Decoder,
}

impl<'a> Lines<'_, 'a> {
    /// Returns the next line, or what is wrong with it; none at the end. Blank lines and comments are passed over.
    ///
    /// No `Iterator`: the fields of a line stand in the decoder until the next one.
    pub fn next_line(&mut self) -> Option<Result<Line<'_, 'a>, Fault>> {
        let bytes = self.bytes;
        let start = loop {
            match bytes.get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'#' => self.at = line_end(bytes, self.at),
                _ => break self.at,
            }
        };
        let max = self.decoder.line_bytes_max;
        // One byte more than a line may have, so that its line end is seen.
        let window = &bytes[..bytes.len().min(start.saturating_add(max).saturating_add(1))];
        let mut scan = Scan {
            bytes: window,
            at: start,
        };
        let result = scan.line(&mut self.decoder.fields, self.decoder.precision);
        let is_cut = scan.at >= window.len() && window.len() < bytes.len();
        let (fault, next) = match result {
            // The next line is looked for behind the quote, not behind all that it took.
            Err((Code::OpenQuote, offset)) => ((Code::OpenQuote, offset), offset),
            _ if is_cut || scan.at - start > max => ((Code::LineTooLong, start), scan.at),
            Err((code, offset)) => ((code, offset), offset),
            Ok((series_end, at_ms)) => {
                self.at = scan.at;
                return Some(Ok(Line {
                    bytes,
                    fields: &self.decoder.fields,
                    offset: start,
                    series: &bytes[start..series_end],
                    at_ms,
                }));
            }
        };
        self.at = line_end(bytes, next);
        let (code, offset) = fault;
        Some(Err(Fault { code, offset }))
    }
}

/// Place of the first line end from `at` on, or of the end.
fn line_end(bytes: &[u8], at: usize) -> usize {
    memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |found| at + found)
}

#[cfg(test)]
mod tests;
