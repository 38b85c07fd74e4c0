//! The compiled way of one series through the operators.

use crate::operator::Work;
use crate::output::{Destinations, OutputHandle};
use crate::stats::Fate;
use sheaf_samples::Sample;

/// Links that a sample passes in order, and where it leaves. Operators that only changed labels have no link.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) links: Box<[Link]>,
    pub(crate) end: End,
}

impl Chain {
    /// Chain of a handle without a series.
    pub(crate) fn unknown() -> Self {
        Self {
            links: Box::default(),
            end: End::Unknown,
        }
    }
}

/// One operator that looks at each sample.
#[derive(Debug)]
pub(crate) enum Link {
    Work {
        operator: u16,
        work: Work,
    },
    Window(WindowLink),
    /// A window that also passes its input on, but has no room for the group of the series.
    RefusedCopy {
        operator: u16,
    },
}

/// Place of a series in a window.
#[derive(Debug)]
pub(crate) struct WindowLink {
    pub(crate) operator: u16,
    pub(crate) window: u16,
    pub(crate) group: u32,
    pub(crate) consumes: bool,
    /// Last sample that was added, for increases of counters.
    pub(crate) last: Option<Sample>,
}

/// Exit of a sample that has passed all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Out {
        handle: OutputHandle,
        destinations: Destinations,
    },
    /// Ends at an operator. Windows that consume end samples themselves.
    Stop { operator: u16, fate: Fate },
    /// The series was never registered, or over a bound.
    Unknown,
}
