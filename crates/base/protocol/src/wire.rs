//! Wire forms: the types that fields take on the wire, and the tables that list the fields of each message.
//!
//! A table ([`wire_struct!`], [`wire_enum!`]) names every field once, in wire order. Encoder, decoder, least size,
//! samples and the layout in `docs/reference/protocol.md` follow from it. Numbers are little-endian, without padding.

use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{Attempt, EpnId, FlpId, Incarnation, RosterId, RunId, Source, Target, Term, TfId};
use crate::reject::Code;
use crate::verdict::DropReason;
use bytes::Bytes;

/// Most entries of any list.
pub(crate) const ENTRIES_MAX: usize = 8192;
/// Bytes of the longest text.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;
/// Bytes of the longest blob: a message of the verdict log.
pub(crate) const BLOB_BYTES_MAX: usize = 512 << 10;

/// Names of a field in errors.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// The field itself; a type that has a name of its own, such as an id, does without.
    pub(crate) field: &'static str,
    /// The flag before an optional field.
    pub(crate) flag: &'static str,
}

impl Name {
    pub(crate) const NONE: Self = Self::of("");

    pub(crate) const fn of(field: &'static str) -> Self {
        Self { field, flag: field }
    }

    pub(crate) const fn optional(field: &'static str, flag: &'static str) -> Self {
        Self { field, flag }
    }
}

/// Source of the numbers in samples: every field gets another one, so that no two can be mixed up unnoticed.
#[derive(Default)]
pub(crate) struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// The form that a value takes on the wire.
pub(crate) trait Wire {
    /// The value in memory; for most forms the type itself.
    type Value: Clone;

    /// Fewest bytes that a value takes.
    const BYTES_MIN: usize;
    /// Whether every value takes that many bytes.
    const IS_FIXED: bool = true;
    /// Samples that show all variants of a value.
    const VARIANTS: usize = 1;

    fn write(value: &Self::Value, out: &mut Writer<'_>);

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError>;

    /// One value for test vectors; `variant` counts up to [`VARIANTS`](Self::VARIANTS).
    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value;

    /// Layout in Markdown, such as `u64` or `list of (…)`.
    fn layout() -> String;
}

/// An enum whose variants are the kinds of a message.
pub(crate) trait Kinds: Wire<Value = Self> + Sized {
    /// Returns the name of the kind in logs, such as `"announce"`.
    fn kind_name(&self) -> &'static str;

    /// Returns values of every kind and form, for test vectors and fuzz seeds.
    fn samples() -> Vec<Self>;

    /// Returns the layouts of all kinds, in the order of the table.
    fn layouts() -> Vec<Layout>;
}

/// Returns the largest of `numbers`, and 1 if there are none.
pub(crate) const fn most(numbers: &[usize]) -> usize {
    let (mut most, mut at) = (1, 0);
    while at < numbers.len() {
        if numbers[at] > most {
            most = numbers[at];
        }
        at += 1;
    }
    most
}

/// Returns a field with its name in the code, as the protocol page shows it.
pub(crate) fn field_layout(field: &str, layout: &str) -> String {
    format!("`{field}` {layout}")
}

macro_rules! numbers {
    ($($ty:ident $step:literal),*) => {$(
        impl Wire for $ty {
            type Value = Self;

            const BYTES_MIN: usize = size_of::<$ty>();

            fn write(value: &Self, out: &mut Writer<'_>) {
                out.$ty(*value);
            }

            fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
                input.$ty(name.field)
            }

            fn sample(numbers: &mut Numbers, _: usize) -> Self {
                (numbers.next() as $ty).wrapping_mul($step)
            }

            fn layout() -> String {
                stringify!($ty).to_owned()
            }
        }
    )*};
}

// Every byte of a sample is another one, so that order and width show.
numbers!(u16 0x0102, u32 0x0102_0304, u64 0x0102_0304_0506_0708);

macro_rules! ids {
    ($($id:ident $number:ident $name:literal),*) => {$(
        impl Wire for $id {
            type Value = Self;

            const BYTES_MIN: usize = <$number as Wire>::BYTES_MIN;

            fn write(value: &Self, out: &mut Writer<'_>) {
                out.$number(value.0);
            }

            fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
                input.$number(if name.field.is_empty() { $name } else { name.field }).map(Self)
            }

            fn sample(numbers: &mut Numbers, variant: usize) -> Self {
                Self(<$number as Wire>::sample(numbers, variant))
            }

            fn layout() -> String {
                stringify!($number).to_owned()
            }
        }
    )*};
}

ids!(
    RunId u64 "run", TfId u64 "TF id", Incarnation u64 "incarnation", Term u64 "term", FlpId u16 "FLP id",
    EpnId u16 "EPN id", Attempt u32 "attempt", RosterId u32 "roster id"
);

/// One byte, 0 or 1.
impl Wire for bool {
    type Value = Self;

    const BYTES_MIN: usize = 1;

    fn write(value: &Self, out: &mut Writer<'_>) {
        out.u8(u8::from(*value));
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
        input.flag(name.field)
    }

    fn sample(numbers: &mut Numbers, _: usize) -> Self {
        numbers.next() > 0
    }

    fn layout() -> String {
        "u8 (0 or 1)".to_owned()
    }
}

/// A flag, and the value behind it: zero if there is none.
impl<T: Wire<Value: Default>> Wire for Option<T> {
    type Value = Option<T::Value>;

    const BYTES_MIN: usize = 1 + T::BYTES_MIN;
    const IS_FIXED: bool = T::IS_FIXED;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        out.u8(u8::from(value.is_some()));
        T::write(&value.clone().unwrap_or_default(), out);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        let is_given = input.flag(name.flag)?;
        let value = T::read(input, name)?;
        Ok(is_given.then_some(value))
    }

    const VARIANTS: usize = 2;

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        let value = T::sample(numbers, variant);
        variant.is_multiple_of(2).then_some(value)
    }

    fn layout() -> String {
        format!("given u8 (0 or 1), {}", T::layout())
    }
}

/// A number of entries (u32), and the entries.
impl<T: Wire> Wire for Vec<T> {
    type Value = Vec<T::Value>;

    const BYTES_MIN: usize = 4;
    const IS_FIXED: bool = false;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        out.list(value, |out, entry| T::write(entry, out));
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        input.list(name.field, ENTRIES_MAX, T::BYTES_MIN, |input| {
            T::read(input, Name::NONE)
        })
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        vec![T::sample(numbers, variant), T::sample(numbers, variant + 1)]
    }

    fn layout() -> String {
        let entry = T::layout();
        if entry.contains(", ") {
            format!("list of ({entry})")
        } else {
            format!("list of {entry}")
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    type Value = (A::Value, B::Value);

    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;
    const IS_FIXED: bool = A::IS_FIXED && B::IS_FIXED;

    fn write((first, second): &Self::Value, out: &mut Writer<'_>) {
        A::write(first, out);
        B::write(second, out);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        Ok((A::read(input, name)?, B::read(input, name)?))
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        (A::sample(numbers, variant), B::sample(numbers, variant))
    }

    fn layout() -> String {
        format!("{}, {}", A::layout(), B::layout())
    }
}

impl<T: Wire<Value: Copy + Default>, const N: usize> Wire for [T; N] {
    type Value = [T::Value; N];

    const BYTES_MIN: usize = N * T::BYTES_MIN;
    const IS_FIXED: bool = T::IS_FIXED;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        value.iter().for_each(|entry| T::write(entry, out));
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        let mut all = [T::Value::default(); N];
        for entry in &mut all {
            *entry = T::read(input, name)?;
        }
        Ok(all)
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        [(); N].map(|()| T::sample(numbers, variant))
    }

    fn layout() -> String {
        format!("{N} × {}", T::layout())
    }
}

/// A length (u16), and UTF-8 without control characters.
impl Wire for String {
    type Value = Self;

    const BYTES_MIN: usize = 2;
    const IS_FIXED: bool = false;

    fn write(value: &Self, out: &mut Writer<'_>) {
        out.text(value, TEXT_BYTES_MAX);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
        input.text(name.field, TEXT_BYTES_MAX)
    }

    fn sample(numbers: &mut Numbers, _: usize) -> Self {
        format!("text {}", numbers.next())
    }

    fn layout() -> String {
        "text".to_owned()
    }
}

/// A length (u32), and that many bytes.
impl Wire for Bytes {
    type Value = Self;

    const BYTES_MIN: usize = 4;
    const IS_FIXED: bool = false;

    fn write(value: &Self, out: &mut Writer<'_>) {
        out.blob(value);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
        let bytes = input.blob(name.field, BLOB_BYTES_MAX)?;
        Ok(bytes.to_vec().into())
    }

    fn sample(numbers: &mut Numbers, _: usize) -> Self {
        numbers.next().to_be_bytes().to_vec().into()
    }

    fn layout() -> String {
        "bytes".to_owned()
    }
}

/// The index of a reason.
impl Wire for DropReason {
    type Value = Self;

    const BYTES_MIN: usize = 1;

    fn write(value: &Self, out: &mut Writer<'_>) {
        out.u8(u8::try_from(value.index()).expect("few reasons"));
    }

    fn read(input: &mut Reader<'_>, _: Name) -> Result<Self, DecodeError> {
        let what = "drop reason";
        let code = input.u8(what)?;
        let found = u64::from(code);
        let expected = "0 to 12";
        let reason = Self::ALL.get(usize::from(code)).copied();
        reason.ok_or(DecodeError::Invalid {
            what,
            found,
            expected,
        })
    }

    fn sample(numbers: &mut Numbers, _: usize) -> Self {
        let number = usize::try_from(numbers.next()).unwrap_or_default();
        Self::ALL[number % Self::ALL.len()]
    }

    fn layout() -> String {
        "u8".to_owned()
    }
}

/// The number of a code.
impl Wire for Code {
    type Value = Self;

    const BYTES_MIN: usize = 1;

    fn write(value: &Self, out: &mut Writer<'_>) {
        out.u8(value.number());
    }

    fn read(input: &mut Reader<'_>, _: Name) -> Result<Self, DecodeError> {
        let what = "rejection code";
        let number = input.u8(what)?;
        let found = u64::from(number);
        let expected = "a code of docs/reference/codes.md";
        Self::of_number(number).ok_or(DecodeError::Invalid {
            what,
            found,
            expected,
        })
    }

    fn sample(numbers: &mut Numbers, _: usize) -> Self {
        let number = usize::try_from(numbers.next()).unwrap_or_default();
        Self::ALL[number % Self::ALL.len()]
    }

    fn layout() -> String {
        "u8".to_owned()
    }
}

/// Layout of a message, as `docs/reference/protocol.md` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number that stands for the message on the wire.
    pub code: u64,
    /// The name in logs.
    pub name: &'static str,
    /// Fewest bytes of the fields.
    pub bytes_min: usize,
    /// Whether every message of the kind has that many.
    pub is_fixed: bool,
    /// Fields in the order of the wire, in Markdown.
    pub fields: String,
}

/// The name of a field from its row: none, its own, or its own and that of the flag before it.
macro_rules! name {
    () => {
        $crate::wire::Name::NONE
    };
    ($name:literal) => {
        $crate::wire::Name::of($name)
    };
    ($name:literal, $flag:literal) => {
        $crate::wire::Name::optional($name, $flag)
    };
}

/// Declares the wire form of structs: rows of `field: form = "name in errors" if "name of its flag"`.
macro_rules! wire_struct {
    ($($struct:ident {
        $($field:ident: $form:ty $(= $name:literal $(if $flag:literal)?)?),* $(,)?
    })*) => {$(
        impl $crate::wire::Wire for $struct {
            type Value = Self;

            const BYTES_MIN: usize = 0 $(+ <$form as $crate::wire::Wire>::BYTES_MIN)*;
            const IS_FIXED: bool = true $(&& <$form as $crate::wire::Wire>::IS_FIXED)*;
            const VARIANTS: usize = $crate::wire::most(&[$(<$form as $crate::wire::Wire>::VARIANTS),*]);

            fn write(value: &Self, out: &mut $crate::codec::Writer<'_>) {
                $(<$form as $crate::wire::Wire>::write(&value.$field, out);)*
            }

            fn read(
                input: &mut $crate::codec::Reader<'_>,
                _: $crate::wire::Name,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $(let $field = <$form as $crate::wire::Wire>::read(
                    input,
                    $crate::wire::name!($($name $(, $flag)?)?),
                )?;)*
                Ok(Self { $($field),* })
            }

            fn sample(numbers: &mut $crate::wire::Numbers, variant: usize) -> Self {
                $(let $field = <$form as $crate::wire::Wire>::sample(numbers, variant);)*
                Self { $($field),* }
            }

            fn layout() -> String {
                [$($crate::wire::field_layout(
                    stringify!($field),
                    &<$form as $crate::wire::Wire>::layout(),
                )),*].join(", ")
            }
        }
    )*};
}

/// Declares the wire form of an enum: the form of its tag with the names of the tag in errors, then a row for each
/// variant: number, name in logs, and its fields as in [`wire_struct!`]. `reserved FORM` stands for bytes that are
/// written as 0 and not looked at.
macro_rules! wire_enum {
    ($enum:ident: $tag:ident = $tag_name:literal, $what:literal, $expected:literal;
    $($number:literal $log_name:literal $variant:ident
        $(($value:ident: $value_form:ty $(= $value_name:literal)?))?
        $({ $($field:ident: $form:ty $(= $name:literal $(if $flag:literal)?)?),* $(,)? })?
        $(reserved $pad:ty)?;)*) => {
        impl $crate::wire::Kinds for $enum {
            fn kind_name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $log_name,)*
                }
            }

            fn samples() -> Vec<Self> {
                let mut all = Vec::with_capacity(<Self as $crate::wire::Wire>::VARIANTS);
                $(for variant in 0..$crate::wire::most(&[
                    1,
                    $(<$value_form as $crate::wire::Wire>::VARIANTS,)?
                    $($(<$form as $crate::wire::Wire>::VARIANTS,)*)?
                ]) {
                    let _of = (&variant, &mut $crate::wire::Numbers::default());
                    $(let $value = <$value_form as $crate::wire::Wire>::sample(_of.1, *_of.0);)?
                    $($(let $field = <$form as $crate::wire::Wire>::sample(_of.1, *_of.0);)*)?
                    all.push(Self::$variant $(($value))? $({ $($field),* })?);
                })*
                all
            }

            fn layouts() -> Vec<$crate::wire::Layout> {
                vec![$($crate::wire::Layout {
                    code: $number,
                    name: $log_name,
                    bytes_min: 0
                        $(+ <$value_form as $crate::wire::Wire>::BYTES_MIN)?
                        $($(+ <$form as $crate::wire::Wire>::BYTES_MIN)*)?
                        $(+ <$pad as $crate::wire::Wire>::BYTES_MIN)?,
                    is_fixed: true
                        $(&& <$value_form as $crate::wire::Wire>::IS_FIXED)?
                        $($(&& <$form as $crate::wire::Wire>::IS_FIXED)*)?,
                    fields: {
                        let fields: &[String] = &[
                            $($crate::wire::value_layout(
                                stringify!($value),
                                <$value_form as $crate::wire::Wire>::layout(),
                            ),)?
                            $($($crate::wire::field_layout(
                                stringify!($field),
                                &<$form as $crate::wire::Wire>::layout(),
                            ),)*)?
                            $(format!("reserved {}", <$pad as $crate::wire::Wire>::layout()),)?
                        ];
                        fields.join(", ")
                    },
                },)*]
            }
        }

        impl $crate::wire::Wire for $enum {
            type Value = Self;

            const BYTES_MIN: usize = size_of::<$tag>();
            const IS_FIXED: bool = false;
            const VARIANTS: usize = 0 $(+ $crate::wire::most(&[
                1,
                $(<$value_form as $crate::wire::Wire>::VARIANTS,)?
                $($(<$form as $crate::wire::Wire>::VARIANTS,)*)?
            ]))*;

            fn write(value: &Self, out: &mut $crate::codec::Writer<'_>) {
                match value {
                    $(Self::$variant $(($value))? $({ $($field),* })? => {
                        out.$tag($number);
                        $(<$value_form as $crate::wire::Wire>::write($value, out);)?
                        $($(<$form as $crate::wire::Wire>::write($field, out);)*)?
                        $(<$pad as $crate::wire::Wire>::write(&Default::default(), out);)?
                    })*
                }
            }

            fn read(
                input: &mut $crate::codec::Reader<'_>,
                _: $crate::wire::Name,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match input.$tag($tag_name)? {
                    $($number => {
                        $(let $value = <$value_form as $crate::wire::Wire>::read(
                            input,
                            $crate::wire::name!($($value_name)?),
                        )?;)?
                        $($(let $field = <$form as $crate::wire::Wire>::read(
                            input,
                            $crate::wire::name!($($name $(, $flag)?)?),
                        )?;)*)?
                        $(<$pad as $crate::wire::Wire>::read(input, $crate::wire::Name::NONE)?;)?
                        Ok(Self::$variant $(($value))? $({ $($field),* })?)
                    })*
                    found => Err($crate::codec::DecodeError::Invalid {
                        what: $what,
                        found: u64::from(found),
                        expected: $expected,
                    }),
                }
            }

            fn sample(_: &mut $crate::wire::Numbers, variant: usize) -> Self {
                let mut all = <Self as $crate::wire::Kinds>::samples();
                all.swap_remove(variant % all.len())
            }

            fn layout() -> String {
                $crate::wire::enum_layout(stringify!($tag), &<Self as $crate::wire::Kinds>::layouts())
            }
        }
    };
}

/// Returns the one value of a message: a struct shows its fields, all else its name.
pub(crate) fn value_layout(name: &str, layout: String) -> String {
    if layout.starts_with('`') {
        layout
    } else {
        field_layout(name, &layout)
    }
}

/// Returns an enum inside a message: its tag, and what stands behind each.
pub(crate) fn enum_layout(tag: &str, rows: &[Layout]) -> String {
    let kinds = rows.iter().map(|row| match row.fields.as_str() {
        "" => format!("{} {}", row.code, row.name),
        fields => format!("{} {}: {fields}", row.code, row.name),
    });
    format!("{tag} ({})", kinds.collect::<Vec<_>>().join("; "))
}

pub(crate) use {name, wire_enum, wire_struct};

/// Source and target have a layout of their own on the protocol page.
macro_rules! lives {
    ($($life:ident $name:literal { $index:ident: $id:ty })*) => {$(
        impl Wire for $life {
            type Value = Self;

            const BYTES_MIN: usize = <$id as Wire>::BYTES_MIN + Incarnation::BYTES_MIN;

            fn write(value: &Self, out: &mut Writer<'_>) {
                <$id as Wire>::write(&value.$index, out);
                Incarnation::write(&value.incarnation, out);
            }

            fn read(input: &mut Reader<'_>, name: Name) -> Result<Self, DecodeError> {
                let $index = <$id as Wire>::read(input, name)?;
                let incarnation = Incarnation::read(input, name)?;
                Ok(Self { $index, incarnation })
            }

            fn sample(numbers: &mut Numbers, variant: usize) -> Self {
                let $index = <$id as Wire>::sample(numbers, variant);
                let incarnation = Incarnation::sample(numbers, variant);
                Self { $index, incarnation }
            }

            fn layout() -> String {
                $name.to_owned()
            }
        }
    )*};
}

lives! {
    Source "source" { flp: FlpId }
    Target "target" { epn: EpnId }
}

/// Reads a file of test vectors: lines of a name and bytes in hexadecimal digits.
#[cfg(test)]
pub(crate) fn vectors(text: &str) -> Vec<(&str, Vec<u8>)> {
    let digits = |pair: &[u8]| {
        let pair = str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
    };
    let line = |line| {
        let (name, bytes): (&str, &str) = str::split_once(line, ' ').expect("name and bytes");
        (name, bytes.as_bytes().chunks(2).map(digits).collect())
    };
    text.lines().map(line).collect()
}
