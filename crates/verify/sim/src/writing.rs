//! An engine that writes streams to files, on a simulated disk, through deaths of its process and cuts of power.
//!
//! The shipped engine, workers, recovery and catalogue run in one thread, a few orders at a time in an order that the
//! seed draws ([`WritingOptions`]). The disk keeps apart what the kernel has and what survives a cut: writes are torn
//! and survive block by block, names survive when their folder was synced, a failed sync forgets what it could not
//! write. After every death the files are read again, and compared with what was taken and acknowledged.

mod disk;
mod options;
mod record;
mod world;

pub use options::{DeathOptions, DiskFault, WritingOptions};

use crate::farm::Outcome;
use crate::invariant::{Invariant, Violation};
use crate::quiet;
use crate::trace::Trace;
use world::World;

/// Runs a seed, with what happens in `trace`.
pub(crate) fn run(options: &WritingOptions, trace: Trace) -> (Result<Outcome, Violation>, Trace) {
    let mut world = World::new(options, trace);
    let ended = quiet::catch(|| world.run());
    let ended = ended.unwrap_or_else(|text| Err((Invariant::NoPanic, text)));
    let result = match ended {
        Ok(()) => Ok(world.outcome()),
        Err(broken) => Err(Violation::of(broken, world.now())),
    };
    (result, std::mem::take(&mut world.trace))
}
