//! Packets read.

use super::part;
use crate::wire::names::metric_name;
use crate::wire::{Code, Fault};
use crate::{Labels, NAME};

/// Check of a signature: name of the user, signed bytes, HMAC-SHA-256 of these with the user's password.
pub type Verify<'a> = dyn Fn(&str, &[u8], &[u8]) -> bool + 'a;

/// Demands on a packet.
#[derive(Clone, Copy, Default)]
pub struct Security<'a> {
    /// Check of signatures; without it they are not looked at.
    pub verify: Option<&'a Verify<'a>>,
    /// Values outside of a signed packet are refused.
    pub is_required: bool,
}

/// One value, by the type of its data source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Counter that wraps.
    Counter(u64),
    /// Momentary value; NaN if it is not known.
    Gauge(f64),
    /// Counter that may also fall.
    Derive(i64),
    /// Count since the last reading.
    Absolute(u64),
}

impl Value {
    /// Returns the value as that of a sample.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sample is an f64, as in PromQL"
    )]
    pub fn number(self) -> f64 {
        match self {
            Self::Counter(value) | Self::Absolute(value) => value as f64,
            Self::Gauge(value) => value,
            Self::Derive(value) => value as f64,
        }
    }

    /// Whether the value is the present count of something.
    #[must_use]
    pub fn is_total(self) -> bool {
        matches!(self, Self::Counter(_) | Self::Derive(_))
    }
}

/// Values that were read at one time. A name that is not set is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueList<'a> {
    /// Name of the machine.
    pub host: &'a str,
    /// Plugin that read the values, such as `interface`.
    pub plugin: &'a str,
    /// Instance of the plugin, such as `eth0`.
    pub plugin_instance: &'a str,
    /// Type in types.db, such as `if_octets`.
    pub kind: &'a str,
    /// Instance of the type, such as `free`.
    pub type_instance: &'a str,
    /// Time in ms since 1970, if the packet has one.
    pub at_ms: Option<i64>,
    /// Interval of the readings in ms, if the packet has one.
    pub interval_ms: Option<i64>,
    /// Type codes, one byte a value, then 8 bytes a value; lengths are checked.
    codes: &'a [u8],
    numbers: &'a [u8],
}

impl<'a> ValueList<'a> {
    /// Values in the order of the type's data sources.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value> + use<'a> {
        let numbers = self.numbers.chunks_exact(8);
        self.codes.iter().zip(numbers).map(|(code, bytes)| {
            let bytes: [u8; 8] = bytes.try_into().expect("chunks of 8");
            match code {
                0 => Value::Counter(u64::from_be_bytes(bytes)),
                1 => Value::Gauge(f64::from_le_bytes(bytes)),
                2 => Value::Derive(i64::from_be_bytes(bytes)),
                _ => Value::Absolute(u64::from_be_bytes(bytes)),
            }
        })
    }

    /// Returns the labels of the value `value` of the data source `source`.
    ///
    /// The name is `collectd_PLUGIN_TYPE`, or `collectd_PLUGIN` if both are equal, with `_SOURCE` behind it if the data
    /// source is not called `value`, and `_total` if the value is a total. Labels: `host`, `plugin_instance`,
    /// `type_instance`.
    ///
    /// # Errors
    ///
    /// [`Code::BadLabels`] if a name is too long.
    pub fn labels(&self, source: &str, value: Value) -> Result<Labels, Code> {
        let mut name = format!("collectd_{}", self.plugin);
        if self.kind != self.plugin {
            name.extend(["_", self.kind]);
        }
        if source != "value" {
            name.extend(["_", source]);
        }
        if value.is_total() {
            name.push_str("_total");
        }
        let name = metric_name(&name);
        let labels = [
            (NAME, name.as_ref()),
            ("host", self.host),
            ("plugin_instance", self.plugin_instance),
            ("type_instance", self.type_instance),
        ];
        Labels::new(labels).map_err(|_| Code::BadLabels)
    }
}

/// Returns the value lists of `bytes`, one packet. Notifications are passed over.
#[must_use]
pub fn decode<'a>(bytes: &'a [u8], security: Security<'a>) -> Packet<'a> {
    Packet {
        bytes,
        at: 0,
        security,
        is_signed: false,
        list: ValueList {
            host: "",
            plugin: "",
            plugin_instance: "",
            kind: "",
            type_instance: "",
            at_ms: None,
            interval_ms: None,
            codes: &[],
            numbers: &[],
        },
    }
}

/// Iterator over the value lists of a packet. A part whose content is bad does not end it, a length that is does.
#[derive(Clone)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    at: usize,
    security: Security<'a>,
    is_signed: bool,
    /// Names and times in force.
    list: ValueList<'a>,
}

impl<'a> Iterator for Packet<'a> {
    type Item = Result<ValueList<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            let offset = self.at;
            match self.part() {
                Ok(Some(list)) => return Some(Ok(list)),
                Ok(None) => {}
                Err(code) => return Some(Err(Fault { code, offset })),
            }
        }
        None
    }
}

impl<'a> Packet<'a> {
    /// Reads one part; a list, if the part has values.
    fn part(&mut self) -> Result<Option<ValueList<'a>>, Code> {
        let rest = &self.bytes[self.at..];
        // A length that is wrong says nothing of where the next part is.
        let end = self.bytes.len();
        let head = rest.first_chunk::<4>();
        let &[a, b, c, d] = head.ok_or(Code::Truncated).inspect_err(|_| self.at = end)?;
        let (kind, length) = (
            u16::from_be_bytes([a, b]),
            usize::from(u16::from_be_bytes([c, d])),
        );
        let content = rest.get(4..length);
        let content = content
            .ok_or(Code::Truncated)
            .inspect_err(|_| self.at = end)?;
        self.at += length;
        let list = &mut self.list;
        match kind {
            part::HOST => list.host = text(content)?,
            part::PLUGIN => list.plugin = text(content)?,
            part::PLUGIN_INSTANCE => list.plugin_instance = text(content)?,
            part::TYPE => list.kind = text(content)?,
            part::TYPE_INSTANCE => list.type_instance = text(content)?,
            part::TIME => {
                let seconds = i64::try_from(number(content)?).ok();
                let at_ms = seconds.and_then(|seconds| seconds.checked_mul(1000));
                list.at_ms = Some(at_ms.ok_or(Code::BadTime)?);
            }
            part::TIME_HR => list.at_ms = Some(high_resolution(number(content)?)),
            part::INTERVAL => {
                let seconds = i64::try_from(number(content)?).ok();
                let interval_ms = seconds.and_then(|seconds| seconds.checked_mul(1000));
                list.interval_ms = Some(interval_ms.ok_or(Code::BadTime)?);
            }
            part::INTERVAL_HR => list.interval_ms = Some(high_resolution(number(content)?)),
            part::VALUES => {
                if self.security.is_required && !self.is_signed {
                    return Err(Code::Unsigned);
                }
                return values(content, self.list).map(Some);
            }
            part::SIGNATURE => self.signature(content).inspect_err(|_| self.at = end)?,
            part::ENCRYPTED => {
                self.at = end;
                return Err(Code::Encrypted);
            }
            part::MESSAGE | part::SEVERITY => {}
            // Parts of later versions: the length says where the next one is.
            _ => {}
        }
        Ok(None)
    }

    /// Checks a signature over the name in it and all that follows.
    fn signature(&mut self, content: &'a [u8]) -> Result<(), Code> {
        let Some(verify) = self.security.verify else {
            return Ok(());
        };
        let (mac, user) = content.split_at_checked(32).ok_or(Code::BadPart)?;
        let user_text = std::str::from_utf8(user).map_err(|_| Code::NotUtf8)?;
        // The name stands right before what follows.
        let signed = &self.bytes[self.at - user.len()..];
        if !verify(user_text, signed, mac) {
            return Err(Code::BadSignature);
        }
        self.is_signed = true;
        Ok(())
    }
}

/// A text with the NUL at its end.
fn text(content: &[u8]) -> Result<&str, Code> {
    let text = content.strip_suffix(&[0]).ok_or(Code::BadPart)?;
    std::str::from_utf8(text).map_err(|_| Code::NotUtf8)
}

fn number(content: &[u8]) -> Result<u64, Code> {
    let bytes = content.try_into().map_err(|_| Code::BadPart)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Time in units of 2^-30 s, as ms.
fn high_resolution(time: u64) -> i64 {
    let ms = (u128::from(time) * 1000) >> 30;
    i64::try_from(ms).expect("2^34 s are below 2^63 ms")
}

fn values<'a>(content: &'a [u8], list: ValueList<'a>) -> Result<ValueList<'a>, Code> {
    let (count, rest) = content.split_first_chunk::<2>().ok_or(Code::BadPart)?;
    let count = usize::from(u16::from_be_bytes(*count));
    if count == 0 || rest.len() != count * 9 {
        return Err(Code::BadPart);
    }
    let (codes, numbers) = rest.split_at(count);
    if codes.iter().any(|&code| code > 3) {
        return Err(Code::BadPart);
    }
    if list.plugin.is_empty() || list.kind.is_empty() {
        return Err(Code::BadSeries);
    }
    Ok(ValueList {
        codes,
        numbers,
        ..list
    })
}

#[cfg(test)]
mod tests;
