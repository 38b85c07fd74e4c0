//! Abandoned TFs in results of commands: a warning, and an exit status of their own.

use std::fmt;

/// Exit status of a command whose result is good but for abandoned TFs.
pub(crate) const STATUS: u8 = 3;

/// Warning of abandoned TFs; nothing if there are none.
pub(crate) struct Warning(pub(crate) u64);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count) = self;
        if *count == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  warning: {count} TFs are abandoned: an EPN ended before it acknowledged them, and whether their \
             consumer has them is unknown"
        )
    }
}
