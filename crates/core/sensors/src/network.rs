//! `/proc/net/dev`: what interfaces carried, and what they did not.

use crate::error::ParseError;
use crate::line::{lines, numbers};

/// A line of `/proc/net/dev`. Arrays have what was received, then what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Name, such as `eth0`.
    pub name: &'a str,
    /// Bytes.
    pub bytes: [u64; 2],
    /// Packets.
    pub packets: [u64; 2],
    /// Packets that could not be used or sent.
    pub errors: [u64; 2],
    /// Packets that the kernel or the driver dropped.
    pub drops: [u64; 2],
}

/// Reads `/proc/net/dev`.
///
/// # Errors
///
/// [`ParseError`] if there is no interface in it: every network namespace has `lo`.
pub fn interfaces(text: &str) -> Result<Vec<Interface<'_>>, ParseError> {
    let read = |line| -> Option<Interface<'_>> {
        let (name, rest): (&str, &str) = str::rsplit_once(line, ':')?;
        let mut fields = [0; 16];
        let mut found = 0;
        for (place, number) in fields
            .iter_mut()
            .zip(numbers(rest.split_ascii_whitespace()))
        {
            *place = number;
            found += 1;
        }
        let both = |at: usize| [fields[at], fields[at + 8]];
        (found == fields.len()).then(|| Interface {
            name: name.trim(),
            bytes: both(0),
            packets: both(1),
            errors: both(2),
            drops: both(3),
        })
    };
    let found: Vec<_> = lines(text).filter_map(read).collect();
    if found.is_empty() {
        return Err(ParseError::new(
            "/proc/net/dev",
            text,
            "lines such as \"lo: 0 …\" with 16 numbers",
        ));
    }
    Ok(found)
}
