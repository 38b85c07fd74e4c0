//! Reading and writing of little-endian fields, with a typed error where bytes run out.
//!
//! A reader never trusts a count: it checks that the bytes for it are there before anything is allocated.

use thiserror::Error;

/// Why bytes from a peer are not a message.
///
/// The caller closes the connection: after one of these the stream cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("message is cut: {what} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The field that was being read.
        what: &'static str,
        /// Size in bytes.
        needed: usize,
        /// Bytes that are left of the message.
        left: usize,
    },
    /// More bytes than the message has fields.
    #[error("{left} bytes are left over behind the {what} message")]
    Trailing {
        /// The message that was read.
        what: &'static str,
        /// Bytes behind the message.
        left: usize,
    },
    /// A field has a value that no version of the protocol gives it.
    #[error("{what} is {found}, expected {expected}")]
    Invalid {
        /// The field.
        what: &'static str,
        /// The value found.
        found: u64,
        /// Values that are allowed.
        expected: &'static str,
    },
    /// A list is longer than the protocol allows.
    #[error("{what} has {found} entries, at most {max} are allowed")]
    TooMany {
        /// The list.
        what: &'static str,
        /// The count found.
        found: usize,
        /// The cap.
        max: usize,
    },
    /// A text is not UTF-8 or has control characters.
    #[error("{what} is not printable UTF-8")]
    Text {
        /// The field.
        what: &'static str,
    },
}

/// Takes fields off the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(DecodeError::Truncated {
                what,
                needed: N,
                left: self.bytes.len(),
            });
        };
        self.bytes = rest;
        Ok(*head)
    }

    /// Returns the next byte without taking it.
    pub(crate) fn peek(&self, what: &'static str) -> Result<u8, DecodeError> {
        self.bytes.first().copied().ok_or(DecodeError::Truncated {
            what,
            needed: 1,
            left: 0,
        })
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn take(
        &mut self,
        what: &'static str,
        count: usize,
    ) -> Result<&'a [u8], DecodeError> {
        if count > self.bytes.len() {
            return Err(DecodeError::Truncated {
                what,
                needed: count,
                left: self.bytes.len(),
            });
        }
        let (head, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(head)
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(DecodeError::Invalid {
                what,
                found: u64::from(found),
                expected: "0 or 1",
            }),
        }
    }

    /// Returns bytes of at most `max` with a u32 length before them.
    pub(crate) fn blob(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.u32(what)? as usize;
        if count > max {
            return Err(DecodeError::TooMany {
                what,
                found: count,
                max,
            });
        }
        self.take(what, count)
    }

    /// Returns a text of at most `max` bytes with a u16 length before it.
    pub(crate) fn text(&mut self, what: &'static str, max: usize) -> Result<String, DecodeError> {
        let count = usize::from(self.u16(what)?);
        if count > max {
            return Err(DecodeError::TooMany {
                what,
                found: count,
                max,
            });
        }
        let bytes = self.take(what, count)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Text { what })?;
        if text.chars().any(char::is_control) {
            return Err(DecodeError::Text { what });
        }
        Ok(text.to_owned())
    }

    /// Returns a list with a u32 count before it; every entry takes at least `entry_bytes_min` bytes.
    pub(crate) fn list<T>(
        &mut self,
        what: &'static str,
        max: usize,
        entry_bytes_min: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.u32(what)? as usize;
        if count > max {
            return Err(DecodeError::TooMany {
                what,
                found: count,
                max,
            });
        }
        let needed = count * entry_bytes_min;
        if needed > self.left() {
            return Err(DecodeError::Truncated {
                what,
                needed,
                left: self.left(),
            });
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    pub(crate) fn end(self, what: &'static str) -> Result<(), DecodeError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing {
                what,
                left: self.bytes.len(),
            })
        }
    }
}

/// Appends fields to a buffer.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a u16 length and the text, cut at the last character that fits `max` bytes.
    pub(crate) fn text(&mut self, text: &str, max: usize) {
        let text = &text[..text.floor_char_boundary(max)];
        let clean: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let clean = &clean[..clean.floor_char_boundary(max)];
        self.u16(u16::try_from(clean.len()).expect("the caps of all texts are below 64 KiB"));
        self.bytes.extend_from_slice(clean.as_bytes());
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("blobs are capped far below 4 GiB"));
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn list<T>(&mut self, entries: &[T], mut entry: impl FnMut(&mut Writer<'_>, &T)) {
        self.u32(u32::try_from(entries.len()).expect("lists are capped far below 2^32"));
        for item in entries {
            entry(self, item);
        }
    }
}
