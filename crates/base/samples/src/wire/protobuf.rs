//! Fields of a protobuf message, one by one and borrowed.
//!
//! `prost` decodes a whole message into owned parts: 2 bytes of an empty label become 48 bytes of memory, so a request
//! of some MB takes hundreds. Decoders of requests from outside walk their fields with this instead, and allocate for
//! one record at a time. Encoders use `prost`.

use super::{Code, Fault};

/// Value of a field, by wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(Span<'a>),
    Fixed32(u32),
}

/// Bytes of a field, with their place in the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: usize,
}

impl<'a> Span<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) fn fault(&self, code: Code) -> Fault {
        let offset = self.offset;
        Fault { code, offset }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Fault> {
        std::str::from_utf8(self.bytes).map_err(|error| Fault {
            code: Code::NotUtf8,
            offset: self.offset + error.valid_up_to(),
        })
    }

    /// Fields of the message that the bytes are; ends after the first fault.
    pub(crate) fn fields(self) -> Fields<'a> {
        Fields { rest: self }
    }
}

impl<'a> Wire<'a> {
    /// Returns the bytes of a message, text or list; none for another wire type.
    pub(crate) fn bytes(self) -> Option<Span<'a>> {
        match self {
            Self::Bytes(span) => Some(span),
            _ => None,
        }
    }

    /// Returns the value of a `double`.
    pub(crate) fn double(self) -> Option<f64> {
        match self {
            Self::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// Returns the value of a `fixed64` or `sfixed64`.
    pub(crate) fn fixed64(self) -> Option<u64> {
        match self {
            Self::Fixed64(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of an `int64`, `uint64`, `bool` or enum.
    pub(crate) fn varint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }
}

/// Iterator over fields: number and value.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: Span<'a>,
}

impl<'a> Fields<'a> {
    /// Fault at the next field.
    pub(crate) fn fault(&self, code: Code) -> Fault {
        self.rest.fault(code)
    }

    fn take(&mut self, length: usize) -> Option<Span<'a>> {
        let (bytes, rest) = self.rest.bytes.split_at_checked(length)?;
        let offset = self.rest.offset;
        self.rest = Span {
            bytes: rest,
            offset: offset + length,
        };
        Some(Span { bytes, offset })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Code> {
        let span = self.take(N).ok_or(Code::Truncated)?;
        Ok(span.bytes.try_into().expect("as many as asked for"))
    }

    fn varint(&mut self) -> Result<u64, Code> {
        let (value, length) = varint(self.rest.bytes)?;
        self.take(length);
        Ok(value)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), Code> {
        let key = u32::try_from(self.varint()?).map_err(|_| Code::BadMessage)?;
        let number = key >> 3;
        if number == 0 {
            return Err(Code::BadMessage);
        }
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Code::Truncated)?;
                Wire::Bytes(self.take(length).ok_or(Code::Truncated)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Code::BadMessage),
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.bytes.is_empty() {
            return None;
        }
        let start = self.rest;
        let field = self.field().map_err(|code| start.fault(code));
        if field.is_err() {
            self.rest.bytes = &[];
        }
        Some(field)
    }
}

/// Reads a varint of at most 10 bytes from the start of `bytes`; its length, too.
pub(crate) fn varint(bytes: &[u8]) -> Result<(u64, usize), Code> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < 10 {
        Code::Truncated
    } else {
        Code::BadMessage
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One field of each wire type.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Each {
        #[prost(int64, tag = "1")]
        int: i64,
        #[prost(double, tag = "2")]
        double: f64,
        #[prost(string, tag = "3")]
        text: String,
        #[prost(fixed32, tag = "2000")]
        fixed: u32,
    }

    proptest! {
        #[test]
        fn fields_are_those_that_prost_wrote(
            (int, double, text, fixed) in (any::<i64>(), any::<f64>(), ".{0,200}", any::<u32>()),
        ) {
            let each = Each { int, double, text: text.clone(), fixed };
            let bytes = prost::Message::encode_to_vec(&each);
            let mut found = Each::default();
            for field in Span::of(&bytes).fields() {
                match field.unwrap() {
                    (1, wire) => found.int = wire.varint().unwrap().cast_signed(),
                    (2, wire) => found.double = wire.double().unwrap(),
                    (3, wire) => found.text = wire.bytes().unwrap().text().unwrap().to_owned(),
                    (2000, Wire::Fixed32(value)) => found.fixed = value,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(prost::Message::encode_to_vec(&found), bytes);
        }

        #[test]
        fn no_bytes_panic_and_prost_takes_no_more(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let fields = || Span::of(&bytes).fields();
            let is_good = fields().all(|field| field.is_ok());
            // A group is refused here only: no protocol of monitoring has one.
            let is_bad = |fault: Fault| fault.code == Code::BadMessage;
            let has_group = fields().any(|field| field.is_err_and(is_bad));
            if <Each as prost::Message>::decode(&*bytes).is_ok() {
                prop_assert!(is_good || has_group);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_truncated() {
        let fault = |bytes: &[u8]| Span::of(bytes).fields().last().unwrap().unwrap_err();
        let at = |code, offset| Fault { code, offset };
        assert_eq!(fault(&[8, 1, 18, 5, 0]), at(Code::Truncated, 2));
        assert_eq!(fault(&[8]), at(Code::Truncated, 0));
        assert_eq!(fault(&[9, 0]), at(Code::Truncated, 0));
        assert_eq!(fault(&[11]), at(Code::BadMessage, 0));
        assert_eq!(fault(&[0, 0]), at(Code::BadMessage, 0));
        assert_eq!(
            fault(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]),
            at(Code::BadMessage, 0)
        );
    }
}
