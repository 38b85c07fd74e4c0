//! Parts of a line: series, fields, values, times.

/// Unit of the times in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precision {
    /// Nanoseconds, the default of the protocol.
    #[default]
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl Precision {
    /// Returns the precision of a query parameter `precision`: `ns`, `n`, `us`, `u`, `ms` or `s`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "ns" | "n" => Some(Self::Ns),
            "us" | "u" => Some(Self::Us),
            "ms" => Some(Self::Ms),
            "s" => Some(Self::S),
            _ => None,
        }
    }

    /// Returns a time in ms since 1970, rounded down; none beyond the range.
    #[must_use]
    pub fn to_ms(self, time: i64) -> Option<i64> {
        match self {
            Self::Ns => Some(time.div_euclid(1_000_000)),
            Self::Us => Some(time.div_euclid(1_000)),
            Self::Ms => Some(time),
            Self::S => time.checked_mul(1_000),
        }
    }

    /// Returns a time in ms since 1970 in this unit; none beyond the range.
    #[must_use]
    pub fn of_ms(self, time_ms: i64) -> Option<i64> {
        match self {
            Self::Ns => time_ms.checked_mul(1_000_000),
            Self::Us => time_ms.checked_mul(1_000),
            Self::Ms => Some(time_ms),
            Self::S => Some(time_ms.div_euclid(1_000)),
        }
    }
}

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `1.5`, always finite.
    Float(f64),
    /// `-3i`
    Int(i64),
    /// `3u`
    Uint(u64),
    /// `t`, `true`, `f`, …
    Bool(bool),
    /// `"text"`, with its escapes and without its quotes.
    Text(&'a [u8]),
}

impl Value<'_> {
    /// Returns the value as that of a sample: a boolean is 0 or 1, a text has none.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sample is an f64, as in PromQL"
    )]
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::Int(value) => Some(value as f64),
            Self::Uint(value) => Some(value as f64),
            Self::Bool(value) => Some(f64::from(u8::from(value))),
            Self::Text(_) => None,
        }
    }
}

/// One field of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    /// Name as it stands, with its escapes.
    pub name: &'a [u8],
    /// Value of the field.
    pub value: Value<'a>,
}

/// Field as the decoder keeps it: places instead of slices, so that one buffer serves every input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    pub(super) name: (usize, usize),
    pub(super) value: RawValue,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RawValue {
    Number(Value<'static>),
    Text(usize, usize),
}

/// One good line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'l, 'a> {
    pub(super) bytes: &'a [u8],
    pub(super) fields: &'l [Raw],
    /// Place of the line in the input.
    pub offset: usize,
    /// Measurement and tags as they stand. Equal bytes are the same series; [`Series`](super::Series) checks them.
    pub series: &'a [u8],
    /// Time in ms since 1970 UTC, if the line has one.
    pub at_ms: Option<i64>,
}

impl<'l, 'a> Line<'l, 'a> {
    /// Fields in their order, at least one.
    #[must_use]
    pub fn fields(&self) -> Fields<'l, 'a> {
        Fields {
            bytes: self.bytes,
            fields: self.fields.iter(),
        }
    }
}

/// Iterator over the fields of a line.
#[derive(Clone, Debug)]
pub struct Fields<'l, 'a> {
    bytes: &'a [u8],
    fields: std::slice::Iter<'l, Raw>,
}

impl<'a> Iterator for Fields<'_, 'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let bytes = self.bytes;
        self.fields.next().map(|raw| Field {
            name: &bytes[raw.name.0..raw.name.1],
            value: match raw.value {
                RawValue::Number(value) => value,
                RawValue::Text(start, end) => Value::Text(&bytes[start..end]),
            },
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.fields.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_, '_> {}
