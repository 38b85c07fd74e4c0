//! Files of a control group, version 2.

use crate::error::ParseError;
use crate::line::{lines, pair};

/// Reads a file of lines `name value`, such as `memory.events`. Values such as `max` are passed over.
#[must_use]
pub fn flat(text: &str) -> Vec<(&str, u64)> {
    lines(text).filter_map(pair).collect()
}

/// Contents of `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupCpu {
    /// Time in programs and in the kernel for them, in ns.
    pub user_ns: u64,
    /// Time in the kernel for its programs, in ns.
    pub system_ns: u64,
    /// Time in which its bound of processor time held it back, in ns; `None` without a controller.
    pub throttled_ns: Option<u64>,
}

/// Reads `cpu.stat`.
///
/// # Errors
///
/// [`ParseError`] if it lacks the times.
pub fn cgroup_cpu(text: &str) -> Result<CgroupCpu, ParseError> {
    let fields = flat(text);
    let ns = |name| {
        let found = fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, us)| us.saturating_mul(1000))
    };
    let found = ns("user_usec").zip(ns("system_usec"));
    let (user_ns, system_ns) =
        found.ok_or_else(|| ParseError::new("cpu.stat", text, "user_usec and system_usec"))?;
    Ok(CgroupCpu {
        user_ns,
        system_ns,
        throttled_ns: ns("throttled_usec"),
    })
}

/// Contents of `io.stat`, summed over all disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// Reads `io.stat`. Empty for a group that has used no disk.
#[must_use]
pub fn cgroup_io(text: &str) -> CgroupIo {
    let mut sum = CgroupIo::default();
    for word in lines(text).flat_map(str::split_ascii_whitespace) {
        let Some((name, Ok(value))) = word
            .split_once('=')
            .map(|(name, value)| (name, value.parse::<u64>()))
        else {
            continue;
        };
        match name {
            "rbytes" => sum.read_bytes = sum.read_bytes.saturating_add(value),
            "wbytes" => sum.write_bytes = sum.write_bytes.saturating_add(value),
            _ => {}
        }
    }
    sum
}
