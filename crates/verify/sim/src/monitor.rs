//! The collector of monitoring and its store, in virtual time, under seeded faults.
//!
//! Clients with wrong clocks send counted samples over a network that loses, repeats, delays and cuts datagrams, to
//! the parts that the threads of a collector drive ([`sheaf_monitor::cores`]); their store is the shipped one, in
//! files on a disk that can be full, slow, and without power ([`MonitorOptions`]). Beside it runs a model that knows
//! only what clients sent and the network delivered. What the collector says of every source, what its store answers
//! after every death, and the sum *sent = stored + suppressed + refused + late + lost* have to agree with it.

mod check;
mod client;
mod collector;
mod disk;
mod model;
mod names;
mod options;
mod world;

pub use options::{
    ClientOptions, Death, Fault, MonitorOptions, NetworkOptions, Operators, Way, WindowOptions,
};

use crate::farm::Outcome;
use crate::invariant::{Invariant, Violation};
use crate::quiet;
use crate::trace::Trace;
use sheaf_protocol::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use world::World;

/// Runs a seed, with what happens in `trace`.
pub(crate) fn run(options: &MonitorOptions, trace: Trace) -> (Result<Outcome, Violation>, Trace) {
    let dir = match folder() {
        Ok(dir) => dir,
        Err(error) => {
            let detail = format!("no folder for the store: {error}");
            let violation = Violation::of((Invariant::NoPanic, detail), Timestamp(0));
            return (Err(violation), trace);
        }
    };
    let mut world = World::new(options, dir.path(), trace);
    let ended = quiet::catch(|| world.run());
    let ended = ended.unwrap_or_else(|text| Err((Invariant::NoPanic, text)));
    let result = match ended {
        Ok(()) => Ok(outcome(&world)),
        Err(broken) => Err(Violation::of(broken, world.now())),
    };
    (result, std::mem::take(&mut world.trace))
}

fn outcome(world: &World<'_>) -> Outcome {
    let mut samples: BTreeMap<&'static str, u64> = BTreeMap::new();
    for books in &world.model().books.clients {
        for (reason, count) in &books.0 {
            *samples.entry(reason).or_default() += count;
        }
    }
    Outcome {
        accounting: crate::watch::Accounting::default(),
        fates: samples,
        state_faults: world.state_faults,
        message_faults: world.message_faults,
        simulated: Duration::from_nanos(world.now().0),
        trace_hash: world.hash.value(),
    }
}

/// A folder in memory if there is one: nothing here waits for a real disk.
fn folder() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let mut made = tempfile::Builder::new();
    made.prefix("sheaf-sim-");
    match made.tempdir_in(memory) {
        Ok(dir) => Ok(dir),
        Err(_) => made.tempdir(),
    }
}
