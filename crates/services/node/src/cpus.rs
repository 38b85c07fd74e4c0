//! Lists of CPUs, as the kernel and `taskset` write them: `0-3,8`.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

/// CPUs by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

impl CpuList {
    /// Returns the CPUs that this thread may use.
    ///
    /// # Errors
    ///
    /// That of the kernel.
    pub fn of_this_thread() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu))
            .collect())
    }

    /// Returns the CPUs in ascending order.
    #[must_use]
    pub fn all(&self) -> Vec<usize> {
        self.0.iter().copied().collect()
    }

    /// Returns whether the list has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the CPUs of this list that `other` has as well.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs of this list that `other` does not have.
    #[must_use]
    pub fn outside(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<T: IntoIterator<Item = usize>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<usize> for CpuList {
    fn extend<T: IntoIterator<Item = usize>>(&mut self, cpus: T) {
        self.0.extend(cpus);
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
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
        Ok(Self(cpus))
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
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), expected);
        }
        for text in ["", "a", "1-", "3-1", "1024", "0,,1", "-1"] {
            let refused = text.parse::<CpuList>().unwrap_err();
            assert!(
                refused.starts_with(&format!("found `{text}`, expected CPUs")),
                "{refused}"
            );
        }
    }

    #[test]
    fn lists_are_compared() {
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        assert_eq!(list("0-3").within(&list("2-5")), list("2-3"));
        assert_eq!(list("0-3").outside(&list("2-5")), list("0-1"));
        assert!(list("0").within(&list("1")).is_empty());
        assert!(!CpuList::of_this_thread().unwrap().is_empty());
    }
}
