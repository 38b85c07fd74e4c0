//! Three members under everything that may happen to them, and by script.

#[cfg(feature = "mutants")]
mod mutants;
mod script;
mod torture;
mod world;

use world::{Options, World};

/// Runs one seed; `Err` says what was violated.
fn run(seed: u64) -> Result<World, String> {
    let mut world = World::new(Options::of(seed));
    world.live_through_faults()?;
    world.live_in_peace()?;
    Ok(world)
}
