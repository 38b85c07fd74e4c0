//! Packets written.

use super::decode::Value;
use super::part;

/// Reason why a value list cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A name that a part cannot carry.
    #[error("a name of {0} bytes or with a NUL in it, expected less than 65,000 bytes and none")]
    Name(usize),
    /// More values than a part can carry, or none.
    #[error("{0} values, expected 1 to 7,000")]
    Values(usize),
    /// A time before 1970.
    #[error("time {0} ms, expected one from 1970 on")]
    Time(i64),
}

/// Names and time of values that are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// Name of the machine.
    pub host: &'a str,
    /// Plugin.
    pub plugin: &'a str,
    /// Instance of the plugin, or nothing.
    pub plugin_instance: &'a str,
    /// Type in types.db.
    pub kind: &'a str,
    /// Instance of the type, or nothing.
    pub type_instance: &'a str,
}

/// Appends one value list to the packet in `out`, with all its names, so that lists need no order.
///
/// # Errors
///
/// If a name, the time or the number of values does not fit; `out` is as before.
pub fn write(
    out: &mut Vec<u8>,
    names: Names<'_>,
    at_ms: i64,
    interval_ms: i64,
    values: &[Value],
) -> Result<(), EncodeError> {
    let texts = [
        (part::HOST, names.host),
        (part::PLUGIN, names.plugin),
        (part::PLUGIN_INSTANCE, names.plugin_instance),
        (part::TYPE, names.kind),
        (part::TYPE_INSTANCE, names.type_instance),
    ];
    for (_, text) in texts {
        if text.len() > 65_000 || text.contains('\0') {
            return Err(EncodeError::Name(text.len()));
        }
    }
    if !(1..=7_000).contains(&values.len()) {
        return Err(EncodeError::Values(values.len()));
    }
    let time = high_resolution(at_ms)?;
    let interval = high_resolution(interval_ms)?;
    for (kind, text) in texts {
        head(out, kind, text.len() + 1);
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
    for (kind, value) in [(part::TIME_HR, time), (part::INTERVAL_HR, interval)] {
        head(out, kind, 8);
        out.extend_from_slice(&value.to_be_bytes());
    }
    head(out, part::VALUES, 2 + values.len() * 9);
    let count = u16::try_from(values.len()).expect("7,000 at most");
    out.extend_from_slice(&count.to_be_bytes());
    out.extend(values.iter().map(|value| match value {
        Value::Counter(_) => 0,
        Value::Gauge(_) => 1,
        Value::Derive(_) => 2,
        Value::Absolute(_) => 3,
    }));
    for value in values {
        out.extend_from_slice(&match value {
            Value::Counter(value) | Value::Absolute(value) => value.to_be_bytes(),
            Value::Gauge(value) => value.to_le_bytes(),
            Value::Derive(value) => value.to_be_bytes(),
        });
    }
    Ok(())
}

fn head(out: &mut Vec<u8>, kind: u16, content: usize) {
    let length = u16::try_from(content + 4).expect("names and values are bounded");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

/// Time in units of 2^-30 s, rounded up, so that it reads back as the same ms.
fn high_resolution(ms: i64) -> Result<u64, EncodeError> {
    let whole = u128::try_from(ms).map_err(|_| EncodeError::Time(ms))?;
    u64::try_from((whole << 30).div_ceil(1000)).map_err(|_| EncodeError::Time(ms))
}
