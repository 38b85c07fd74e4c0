//! Where each process stays: senders and receivers take turns over the CPUs.
//!
//! The kernel at times packs a sender and its receiver on one CPU, and both then run at half their speed. The
//! FLPs get the first of each two CPUs, the EPNs the second, and the ICN, which does little, stays with an EPN.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sheaf_protocol::{NodeId, Role};
use std::io;

/// The CPUs of a benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    allowed: CpuSet,
    /// In ascending order; empty if no process is pinned.
    used: Vec<usize>,
}

impl Cpus {
    /// Returns the CPUs of this process; they are used one by one if `wants_pins` and there are at least two.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(crate) fn allowed(wants_pins: bool) -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut used: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu))
            .collect();
        if !wants_pins || used.len() < 2 {
            used.clear();
        }
        Ok(Self { allowed, used })
    }

    /// The CPU of `node`, if it is pinned.
    pub(crate) fn of(&self, node: NodeId) -> Option<usize> {
        let index = usize::from(node.index);
        let (first, index) = match node.role {
            Role::Flp => (0, index),
            Role::Epn | Role::Writer => (1, index),
            Role::Icn | Role::Operator => (1, 0),
        };
        let turn: Vec<usize> = self.used.iter().copied().skip(first).step_by(2).collect();
        (!turn.is_empty()).then(|| turn[index % turn.len()])
    }

    /// The CPUs of a sender and its receiver, if they are pinned.
    pub(crate) fn pair(&self) -> Option<[usize; 2]> {
        self.used.first_chunk().copied()
    }

    /// Runs `start` on the CPU of `node`: the processes that it starts stay there from their first instruction
    /// on, with all threads that they will have.
    ///
    /// # Errors
    ///
    /// What the operating system gives, or what `start` gives.
    pub(crate) fn start_on<E: From<io::Error>>(
        &self,
        node: NodeId,
        start: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(cpu) = self.of(node) else {
            return start();
        };
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(io::Error::from)?;
        let started = start();
        sched_setaffinity(None, &self.allowed).map_err(io::Error::from)?;
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    fn cpus(used: &[usize]) -> Cpus {
        Cpus {
            allowed: CpuSet::new(),
            used: used.to_vec(),
        }
    }

    #[test]
    fn flps_and_epns_take_turns_and_the_icn_stays_with_an_epn() {
        for (used, flps, epns, icn) in [
            (&[0, 1][..], [0, 0, 0], [1, 1, 1], 1),
            (&[2, 3, 6, 7], [2, 6, 2], [3, 7, 3], 3),
            (&[0, 1, 2], [0, 2, 0], [1, 1, 1], 1),
        ] {
            let cpus = cpus(used);
            let of_flp = |index| cpus.of(FlpId(index).into()).unwrap();
            let of_epn = |index| cpus.of(EpnId(index).into()).unwrap();
            assert_eq!([0, 1, 2].map(of_flp), flps);
            assert_eq!([0, 1, 2].map(of_epn), epns);
            assert_eq!(cpus.of(NodeId::ICN), Some(icn));
        }
        assert_eq!(cpus(&[]).of(NodeId::ICN), None);
        assert_eq!(
            (cpus(&[]).pair(), cpus(&[4, 9]).pair()),
            (None, Some([4, 9]))
        );
    }

    #[test]
    fn what_is_started_has_the_cpu_of_its_node() {
        let cpus = Cpus::allowed(true).unwrap();
        let mut found = None;
        let flp = FlpId(0).into();
        cpus.start_on(flp, || {
            found = Some(sched_getaffinity(None)?);
            Ok::<(), io::Error>(())
        })
        .unwrap();
        if let Some(cpu) = cpus.of(flp) {
            let found = found.unwrap();
            assert!(found.is_set(cpu) && found.count() == 1);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), cpus.allowed);
    }
}
