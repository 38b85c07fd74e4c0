//! `/proc/meminfo` and `/proc/vmstat`.

use crate::error::ParseError;
use crate::line::{lines, pair};

/// Reads `/proc/meminfo`: the names of the kernel with their values in bytes, where they are sizes.
///
/// # Errors
///
/// [`ParseError`] if there is no `MemTotal` in it.
pub fn meminfo(text: &str) -> Result<Vec<(&str, u64)>, ParseError> {
    let size = |line: &'_ str| -> Option<(usize, u64)> {
        let (name, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some((name.len(), kib.saturating_mul(1024)))
    };
    let found: Vec<(&str, u64)> = lines(text)
        .filter_map(|line| size(line).map(|(end, bytes)| (&line[..end], bytes)))
        .collect();
    if found.iter().any(|(name, _)| *name == "MemTotal") {
        return Ok(found);
    }
    Err(ParseError::new(
        "/proc/meminfo",
        text,
        "a line such as \"MemTotal: 1024 kB\"",
    ))
}

/// Reads `/proc/vmstat`: the names of the kernel with their values.
///
/// # Errors
///
/// [`ParseError`] if no line has a name and a value.
pub fn vmstat(text: &str) -> Result<Vec<(&str, u64)>, ParseError> {
    let found: Vec<_> = lines(text).filter_map(pair).collect();
    if found.is_empty() {
        return Err(ParseError::new(
            "/proc/vmstat",
            text,
            "lines such as \"pgfault 1\"",
        ));
    }
    Ok(found)
}
