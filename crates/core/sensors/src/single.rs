//! Files with one value or a few in one line.

use crate::error::ParseError;
use crate::line::lines;

/// Reads a file with one whole number, such as `scaling_cur_freq`.
///
/// # Errors
///
/// [`ParseError`] with the name of the `file` if its first line is none.
pub fn number(file: &'static str, text: &str) -> Result<u64, ParseError> {
    let found = lines(text).next().and_then(|line| line.trim().parse().ok());
    found.ok_or_else(|| ParseError::new(file, text, "a whole number"))
}

/// Reads a file with one whole number that may be negative, such as `temp`.
///
/// # Errors
///
/// As of [`number`].
pub fn signed(file: &'static str, text: &str) -> Result<i64, ParseError> {
    let found = lines(text).next().and_then(|line| line.trim().parse().ok());
    found.ok_or_else(|| ParseError::new(file, text, "a whole number"))
}

/// Contents of `/proc/loadavg`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Average number of threads that run or wait for a disk, over 1, 5 and 15 minutes.
    pub averages: [f64; 3],
    /// Threads that there are.
    pub threads: u64,
}

/// Reads `/proc/loadavg`.
///
/// # Errors
///
/// [`ParseError`] if it is anything else than three averages and two numbers of threads.
pub fn load(text: &str) -> Result<Load, ParseError> {
    let read = |line: &str| -> Option<Load> {
        let mut words = line.split(' ');
        let mut average = || words.next()?.parse::<f64>().ok();
        let averages = [average()?, average()?, average()?];
        let (_, threads) = words.next()?.split_once('/')?;
        let threads = threads.parse().ok()?;
        Some(Load { averages, threads })
    };
    let found = lines(text).next().and_then(read);
    found.ok_or_else(|| ParseError::new("/proc/loadavg", text, "\"0.00 0.00 0.00 1/100 1\""))
}

/// Reads `/proc/sys/fs/file-nr`: open file descriptions of the machine, and how many it allows.
///
/// # Errors
///
/// [`ParseError`] if it is anything else than three numbers.
pub fn files(text: &str) -> Result<(u64, u64), ParseError> {
    let read = |line: &str| -> Option<(u64, u64)> {
        let mut words = line.split_ascii_whitespace();
        let open: u64 = words.next()?.parse().ok()?;
        let free: u64 = words.next()?.parse().ok()?;
        Some((open.saturating_sub(free), words.next()?.parse().ok()?))
    };
    let found = lines(text).next().and_then(read);
    found.ok_or_else(|| ParseError::new("/proc/sys/fs/file-nr", text, "three numbers"))
}

/// Reasons why a Raspberry Pi slows itself down, in the order of the bits of `get_throttled`.
pub const THROTTLES: [&str; 4] = [
    "under_voltage",
    "clock_capped",
    "throttled",
    "soft_temperature",
];

/// Reads `get_throttled` of the firmware of a Raspberry Pi, a hexadecimal number with or without `0x`: which of
/// [`THROTTLES`] hold now, and which have held since the board started.
///
/// # Errors
///
/// [`ParseError`] if it is no such number.
pub fn throttles(text: &str) -> Result<[[bool; 2]; THROTTLES.len()], ParseError> {
    let line = lines(text).next().unwrap_or_default().trim();
    let bits = u32::from_str_radix(line.trim_start_matches("0x"), 16)
        .map_err(|_| ParseError::new("get_throttled", text, "a hexadecimal number"))?;
    let has = |bit: usize| bits & (1 << bit) != 0;
    let mut found = [[false; 2]; THROTTLES.len()];
    for (bit, pair) in found.iter_mut().enumerate() {
        *pair = [has(bit), has(bit + 16)];
    }
    Ok(found)
}
