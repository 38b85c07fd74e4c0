//! Characters of one line, read from left to right.

use super::line::{Precision, Raw, RawValue, Value};
use crate::wire::Code;
use memchr::{memchr2, memchr3};

/// Reader of one line; `at` never passes the end of `bytes`.
pub(super) struct Scan<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

/// Code and place of what is wrong.
pub(super) type Bad = (Code, usize);

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Reads a line up to its end; returns the end of its series part, and its time.
    pub(super) fn line(
        &mut self,
        fields: &mut Vec<Raw>,
        precision: Precision,
    ) -> Result<(usize, Option<i64>), Bad> {
        fields.clear();
        let series_end = self.series()?;
        self.spaces();
        loop {
            let name = self.name(fields.is_empty())?;
            let value = self.value()?;
            fields.push(Raw { name, value });
            match self.peek() {
                Some(b',') => self.at += 1,
                _ if self.is_end() => return Ok((series_end, None)),
                Some(b' ') => break,
                _ => return Err((Code::BadField, self.at)),
            }
        }
        self.spaces();
        if self.is_end() {
            return Ok((series_end, None));
        }
        let start = self.at;
        let time = self.time().ok_or((Code::BadTime, start))?;
        let at_ms = precision.to_ms(time).ok_or((Code::BadTime, start))?;
        self.spaces();
        if self.is_end() {
            Ok((series_end, Some(at_ms)))
        } else {
            Err((Code::BadTime, self.at))
        }
    }

    /// Passes over the series part, up to the first space that is not escaped.
    fn series(&mut self) -> Result<usize, Bad> {
        loop {
            let Some(found) = memchr3(b' ', b'\\', b'\n', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err((Code::NoFields, self.at));
            };
            self.at += found;
            match self.bytes[self.at] {
                b' ' => return Ok(self.at),
                b'\\' => self.escape(),
                _ => return Err((Code::NoFields, self.at)),
            }
        }
    }

    /// Passes over a `\` and the character that it escapes, which is no line end.
    fn escape(&mut self) {
        self.at += 1;
        if self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    fn spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Returns whether the line is at its end: LF, CR LF, or the end of the input.
    fn is_end(&self) -> bool {
        match self.peek() {
            None | Some(b'\n') => true,
            Some(b'\r') => matches!(self.bytes.get(self.at + 1), None | Some(b'\n')),
            Some(_) => false,
        }
    }

    /// Passes over a field's name and its `=`.
    fn name(&mut self, is_first: bool) -> Result<(usize, usize), Bad> {
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'=') => break,
                Some(b'\\') => self.escape(),
                None | Some(b'\n' | b'\r') if is_first && start == self.at => {
                    return Err((Code::NoFields, self.at));
                }
                None | Some(b'\n' | b'\r' | b'\t' | b' ' | b',') => {
                    return Err((Code::BadField, self.at));
                }
                Some(_) => self.at += 1,
            }
        }
        let end = self.at;
        if start == end || self.bytes[end - 1] == b'\\' {
            return Err((Code::BadField, end));
        }
        self.at += 1;
        Ok((start, end))
    }

    fn value(&mut self) -> Result<RawValue, Bad> {
        match self.peek() {
            Some(b'0'..=b'9' | b'-') => {
                let start = self.at;
                let value = self.number().ok_or((Code::BadNumber, start))?;
                Ok(RawValue::Number(value))
            }
            Some(b'"') => self.text(),
            Some(b't' | b'T' | b'f' | b'F') => {
                let rest = &self.bytes[self.at..];
                let length = rest.iter().take_while(|byte| byte.is_ascii_alphabetic());
                let length = length.count();
                let value = match &rest[..length] {
                    b"t" | b"T" | b"true" | b"True" | b"TRUE" => true,
                    b"f" | b"F" | b"false" | b"False" | b"FALSE" => false,
                    _ => return Err((Code::BadField, self.at)),
                };
                self.at += length;
                Ok(RawValue::Number(Value::Bool(value)))
            }
            _ => Err((Code::BadField, self.at)),
        }
    }

    /// Passes over a text in quotes; line ends in it belong to it.
    fn text(&mut self) -> Result<RawValue, Bad> {
        let quote = self.at;
        self.at += 1;
        loop {
            let Some(found) = memchr2(b'"', b'\\', &self.bytes[self.at..]) else {
                self.at = self.bytes.len();
                return Err((Code::OpenQuote, quote));
            };
            self.at += found + 1;
            if self.bytes[self.at - 1] == b'"' {
                return Ok(RawValue::Text(quote + 1, self.at - 1));
            }
            // Only `\"` and `\\` are escapes in a text.
            if matches!(self.peek(), Some(b'"' | b'\\')) {
                self.at += 1;
            }
        }
    }

    /// Passes over digits; returns their value, wrapped beyond 64 bits, and their number.
    fn digits(&mut self, mut value: u64) -> (u64, usize) {
        let start = self.at;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        (value, self.at - start)
    }

    /// Reads `-3i`, `3u`, `3`, `-1.5e-3`; none if the characters are no number of their type.
    fn number(&mut self) -> Option<Value<'static>> {
        let start = self.at;
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        let (mantissa, whole) = self.digits(0);
        if whole == 0 {
            return None;
        }
        let all = |scan: &Self| std::str::from_utf8(&scan.bytes[start..scan.at]).ok();
        match self.peek() {
            Some(b'i') => {
                let value = all(self)?.parse().ok();
                self.at += 1;
                return value.map(Value::Int);
            }
            Some(b'u') => {
                let value = all(self)?.parse().ok();
                self.at += 1;
                return value.map(Value::Uint);
            }
            _ => {}
        }
        let (mut mantissa, mut digits, mut fraction) = (mantissa, whole, 0);
        if self.peek() == Some(b'.') {
            self.at += 1;
            (mantissa, fraction) = self.digits(mantissa);
            digits += fraction;
            if fraction == 0 {
                return None;
            }
        }
        let has_exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if has_exponent {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.digits(0).1 == 0 {
                return None;
            }
        }
        // Up to 15 digits and 10^15 are exact in an f64, so one division rounds once: the nearest value.
        let value = if digits <= 15 && !has_exponent {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let value = mantissa as f64 / POWERS[fraction];
            if is_negative { -value } else { value }
        } else {
            all(self)?.parse().ok()?
        };
        value.is_finite().then_some(Value::Float(value))
    }

    fn time(&mut self) -> Option<i64> {
        let start = self.at;
        let is_negative = self.peek() == Some(b'-');
        self.at += usize::from(is_negative);
        let (value, digits) = self.digits(0);
        // 18 digits fit in any case, 19 perhaps.
        match digits {
            0 => None,
            1..=18 => {
                let value = value.cast_signed();
                Some(if is_negative { -value } else { value })
            }
            _ => std::str::from_utf8(&self.bytes[start..self.at])
                .ok()?
                .parse()
                .ok(),
        }
    }
}

const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
