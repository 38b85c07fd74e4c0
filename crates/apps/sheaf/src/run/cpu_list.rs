//! Keeps processes and their threads on CPUs.

use crate::fail;
use rustix::thread::{CpuSet, sched_setaffinity};
use sheaf_node::cpus::CpuList;

/// Keeps this thread, and all that it starts, on these CPUs.
///
/// # Errors
///
/// If this process may not use one of them.
pub(crate) fn stay(cpus: &CpuList) -> anyhow::Result<()> {
    Ok(sched_setaffinity(None, &allowed(cpus, "--cpus")?)?)
}

/// Returns the CPUs as the kernel takes them.
///
/// # Errors
///
/// If this process may not use one of them, which were given with `option`.
pub(crate) fn allowed(cpus: &CpuList, option: &str) -> anyhow::Result<CpuSet> {
    let usable = CpuList::of_this_thread()?;
    if let Some(cpu) = cpus.outside(&usable).all().first() {
        return Err(fail::bad_use(format!(
            "{option} {cpus}: this process may use {usable}, not {cpu}"
        )));
    }
    let mut wanted = CpuSet::new();
    cpus.all().into_iter().for_each(|cpu| wanted.set(cpu));
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stays_where_it_is_pinned_and_nowhere_that_it_may_not() {
        let stay = |text: &str| {
            let list: CpuList = text.parse().unwrap();
            let thread = std::thread::spawn(move || {
                super::stay(&list).map(|()| CpuList::of_this_thread().unwrap().all().len())
            });
            thread.join().unwrap()
        };
        assert_eq!(stay("0").unwrap(), 1);
        let refused = stay("0,1023").unwrap_err().to_string();
        assert!(
            refused.starts_with("--cpus 0,1023: this process may use 0"),
            "{refused}"
        );
        assert!(refused.ends_with(", not 1023"), "{refused}");
    }
}
