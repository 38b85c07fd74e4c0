//! EPNs that hand TFs to writer nodes, through deaths, silences and full disks of both, and cuts between them.
//!
//! The shipped [`Handoff`](sheaf_write::Handoff) and [`Receipts`](sheaf_write::Receipts) decide; streams between them
//! keep the order of messages and lose what was on its way when they close. A writer that dies loses its memory and may
//! have written a TF to some of its streams only; its files and rows stay. What its files hold is compared with what
//! EPNs were answered, by the rule that readers go by ([`Copies`](sheaf_write::Copies)), all the time and at the end.

mod net;
mod options;
mod world;
mod writer;

pub use options::{HandoffFault, HandoffOptions};

use crate::farm::Outcome;
use crate::invariant::{Invariant, Violation};
use crate::quiet;
use crate::trace::Trace;
use world::World;

/// Runs a seed, with what happens in `trace`.
pub(crate) fn run(options: &HandoffOptions, trace: Trace) -> (Result<Outcome, Violation>, Trace) {
    let mut world = World::new(options, trace);
    let ended = quiet::catch(|| world.run());
    let ended = ended.unwrap_or_else(|text| Err((Invariant::NoPanic, text)));
    let result = match ended {
        Ok(()) => Ok(world.outcome()),
        Err(broken) => Err(Violation::of(broken, world.now())),
    };
    (result, std::mem::take(&mut world.trace))
}
