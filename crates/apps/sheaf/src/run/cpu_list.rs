//! Lists of CPUs, as the kernel and `taskset` write them: `0-3,8`.

use crate::fail;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fmt;

/// CPUs by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuList(BTreeSet<usize>);

/// Reads a list.
pub(crate) fn parse(text: &str) -> Result<CpuList, String> {
    let expected = || {
        let last = CpuSet::MAX_CPU - 1;
        format!("found `{text}`, expected CPUs from 0 to {last}, such as 2 or 0-3,8")
    };
    let mut cpus = BTreeSet::new();
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            return Err(expected());
        };
        if first > last || last >= CpuSet::MAX_CPU {
            return Err(expected());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

impl CpuList {
    /// Returns the CPUs in ascending order.
    pub(crate) fn all(&self) -> Vec<usize> {
        self.0.iter().copied().collect()
    }

    /// Keeps this thread, and all that it starts, on these CPUs.
    ///
    /// # Errors
    ///
    /// If this process may not use one of them.
    pub(crate) fn stay(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(None, &self.allowed("--cpus")?)?)
    }

    /// Returns the CPUs as the kernel takes them.
    ///
    /// # Errors
    ///
    /// If this process may not use one of them, which were given with `option`.
    pub(crate) fn allowed(&self, option: &str) -> anyhow::Result<CpuSet> {
        let allowed = sched_getaffinity(None)?;
        let mut wanted = CpuSet::new();
        for cpu in &self.0 {
            if !allowed.is_set(*cpu) {
                let usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
                let usable = Self(usable.collect());
                return Err(fail::bad_use(format!(
                    "{option} {self}: this process may use {usable}, not {cpu}"
                )));
            }
            wanted.set(*cpu);
        }
        Ok(wanted)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut between = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{between}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            between = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        for (text, expected) in [
            ("2", "2"),
            ("0-3,8", "0-3,8"),
            ("3,1,2,2", "1-3"),
            ("1023", "1023"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected);
        }
        for text in ["", "a", "1-", "3-1", "1024", "0,,1", "-1"] {
            let refused = parse(text).unwrap_err();
            assert!(
                refused.starts_with(&format!("found `{text}`, expected CPUs")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_process_stays_where_it_is_told_and_nowhere_that_it_may_not() {
        let stay = |text: &'static str| {
            let list = parse(text).unwrap();
            let thread = std::thread::spawn(move || {
                list.stay()
                    .map(|()| sched_getaffinity(None).unwrap().count())
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
