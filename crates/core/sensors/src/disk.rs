//! `/proc/diskstats` and `/proc/self/mounts`.

use crate::error::ParseError;
use crate::line::{lines, numbers};

/// Operations of one kind of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Number completed.
    pub count: u64,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Time that they took, all together, in ms. The kernel counts it in 32 bits.
    pub ms: u64,
}

/// A line of `/proc/diskstats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk<'a> {
    /// Name of the device, such as `sda` or `sda1`.
    pub name: &'a str,
    /// Reads.
    pub read: Operation,
    /// Writes.
    pub write: Operation,
    /// Discards, since Linux 4.18.
    pub discard: Option<Operation>,
    /// Flushes, without sectors, since Linux 5.5.
    pub flush: Option<Operation>,
    /// Operations that are under way.
    pub in_flight: u64,
    /// Time in which any was, in ms. The kernel counts it in 32 bits.
    pub busy_ms: u64,
    /// Time that all of them waited and took, in ms. The kernel counts it in 32 bits.
    pub weighted_ms: u64,
}

/// Reads `/proc/diskstats`. Empty for a machine without disks.
///
/// # Errors
///
/// [`ParseError`] if a complete line is none.
pub fn disks(text: &str) -> Result<Vec<Disk<'_>>, ParseError> {
    let bad = |line| ParseError::new("/proc/diskstats", line, "two numbers, a name, 11 numbers");
    lines(text)
        .map(|line| disk(line).ok_or_else(|| bad(line)))
        .collect()
}

fn disk(line: &str) -> Option<Disk<'_>> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?;
    let mut fields = [0; 17];
    let mut found = 0;
    for (place, number) in fields.iter_mut().zip(numbers(words)) {
        *place = number;
        found += 1;
    }
    let operation = |at: usize| Operation {
        count: fields[at],
        sectors: fields[at + 2],
        ms: fields[at + 3],
    };
    (found >= 11).then(|| Disk {
        name,
        read: operation(0),
        write: operation(4),
        discard: (found >= 15).then(|| operation(11)),
        flush: (found >= 17).then_some(Operation {
            count: fields[15],
            sectors: 0,
            ms: fields[16],
        }),
        in_flight: fields[8],
        busy_ms: fields[9],
        weighted_ms: fields[10],
    })
}

/// Reads `/proc/self/mounts`: paths at which a device is mounted, each device once, with blanks as they are.
#[must_use]
pub fn mounts(text: &str) -> Vec<String> {
    let mut devices = Vec::new();
    let mut found = Vec::new();
    for line in lines(text) {
        let mut words = line.split(' ');
        let (Some(device), Some(path)) = (words.next(), words.next()) else {
            continue;
        };
        // Of bind mounts the first counts: their sizes are the same.
        if device.starts_with("/dev/") && !devices.contains(&device) {
            devices.push(device);
            found.push(unescaped(path));
        }
    }
    found
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescaped(path: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let mut text = path.to_owned();
    for (escape, meant) in escapes {
        text = text.replace(escape, meant);
    }
    text
}
