//! The measured window of a run: what was counted when it opened and when it closed.
//!
//! A run has a beginning (processes start, streams open, queues fill) and an end (queues drain) that say nothing
//! about what it sustains. So the window opens some time after the first announce and closes while the sources
//! still run: TFs that were begun before it and end in it stand for those that are begun in it and end after it.

/// Counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    /// Seconds since the first announce, by the clock of the ICN.
    pub(crate) at_s: f64,
    /// TFs with the verdict `complete` so far.
    pub(crate) tfs: u64,
    /// Payload bytes of them.
    pub(crate) bytes: u64,
    /// CPU time of all processes of the farm so far.
    pub(crate) cpu_s: f64,
    /// Time that all CPUs of the machine were busy so far, with whatever.
    pub(crate) machine_busy_s: f64,
}

/// Cuts the window out of the moments of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    opens_at_s: f64,
    length_s: f64,
    first: Option<Moment>,
    last: Option<Moment>,
}

impl Window {
    /// A window that opens at the first moment from `opens_at_s` on, and closes at the first that is `length_s`
    /// later.
    pub(crate) fn new(opens_at_s: f64, length_s: f64) -> Self {
        Self {
            opens_at_s,
            length_s,
            first: None,
            last: None,
        }
    }

    /// Whether the moment `at_s` opens or closes the window.
    pub(crate) fn wants(&self, at_s: f64) -> bool {
        let due_s = match (self.first, self.last) {
            (_, Some(_)) => return false,
            (Some(first), None) => first.at_s + self.length_s,
            (None, None) => self.opens_at_s,
        };
        at_s > 0.0 && at_s >= due_s
    }

    /// Takes in a moment that is [wanted](Self::wants).
    pub(crate) fn add(&mut self, moment: Moment) {
        match self.first {
            None => self.first = Some(moment),
            Some(_) => self.last = Some(moment),
        }
    }

    /// Returns the counts between the two moments, once both are there.
    pub(crate) fn counted(&self) -> Option<Moment> {
        let (first, last) = (self.first?, self.last?);
        Some(Moment {
            at_s: last.at_s - first.at_s,
            tfs: last.tfs.saturating_sub(first.tfs),
            bytes: last.bytes.saturating_sub(first.bytes),
            cpu_s: last.cpu_s - first.cpu_s,
            machine_busy_s: last.machine_busy_s - first.machine_busy_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at_s: f64, tfs: u64) -> Moment {
        Moment {
            at_s,
            tfs,
            bytes: 10 * tfs,
            cpu_s: 2.0 * at_s,
            machine_busy_s: 3.0 * at_s,
        }
    }

    #[test]
    fn a_window_begins_after_the_warm_up_and_ends_while_the_sources_run() {
        let mut window = Window::new(0.25, 1.5);
        let mut taken = Vec::new();
        for step in 0..20_u32 {
            let at_s = f64::from(step) * 0.125;
            if window.wants(at_s) {
                taken.push(at_s);
                window.add(moment(at_s, step.into()));
            }
        }
        assert_eq!(taken, [0.25, 1.75]);
        assert_eq!(window.counted(), Some(moment(1.5, 12)));
    }

    #[test]
    fn without_an_announce_there_is_no_window() {
        let window = Window::new(0.0, 1.0);
        assert!(!window.wants(0.0) && window.wants(1e-6));
        assert_eq!(window.counted(), None);
    }
}
