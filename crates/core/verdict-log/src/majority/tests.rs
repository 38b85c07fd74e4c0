//! Tests of three members under all faults, and by script.

#[cfg(feature = "mutants")]
mod mutants;
mod script;
mod torture;
mod world;

use world::{Options, World};

/// Runs one seed; `Err` names the violation.
fn run(seed: u64) -> Result<World, String> {
    let mut world = World::new(Options::of(seed));
    world.live_through_faults()?;
    world.live_in_peace()?;
    Ok(world)
}
