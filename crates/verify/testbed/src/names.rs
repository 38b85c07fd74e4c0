//! Names of what an experiment makes on the machine: they bear the id of the process, so that left-overs are found.

use std::sync::atomic::{AtomicU32, Ordering};

/// First characters of all names.
pub const NAME: &str = "sheaf-lab-";

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Returns the first characters of the names of this process.
pub fn prefix() -> String {
    format!("{NAME}{}", std::process::id())
}

/// Returns a name of this process that nothing else has.
pub fn unique() -> String {
    format!("{}-{}", prefix(), SERIAL.fetch_add(1, Ordering::Relaxed))
}
