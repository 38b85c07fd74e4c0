//! End of a process together with its parent.

use anyhow::Context as _;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel kill this process when its parent ends, however that ends.
///
/// # Errors
///
/// If the kernel does not take the request, or the parent with the id `parent` has ended already.
pub(crate) fn end_with(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask for a signal at the end of the parent")?;
    // It may have ended before the signal was asked for.
    let found = getppid().map(Pid::as_raw_pid);
    anyhow::ensure!(found == Some(parent), "the parent {parent} has ended");
    Ok(())
}
