//! Faults as they happen.

use super::super::check::broken;
use super::super::options::{Fault, Operators};
use super::World;
use crate::invariant::{Broken, Invariant};

impl World<'_> {
    pub(super) fn inject(&mut self, fault: Fault) -> Result<(), Broken> {
        self.say("farm", || format!("{fault:?}"));
        self.state_faults += 1;
        match fault {
            Fault::Die(death) if death.after_steps == 0 => {
                self.state_faults -= 1;
                self.die(death.is_cut, death.down)?;
            }
            Fault::Die(death) => {
                if self.collector.is_some() {
                    self.death = Some(death);
                    self.disk.lock().dies_after = Some(death.after_steps);
                }
            }
            Fault::Full(turns) => self.full_until = self.turn + 1 + turns,
            Fault::Slow(step_ms, turns) => {
                self.slow_until = self.turn + 1 + turns;
                self.disk.lock().step_ms = step_ms;
            }
            Fault::RefuseSyncs(count) => self.disk.lock().syncs_refused = count,
            Fault::CollectorClock(step_ms) => self.ahead_ms += step_ms,
            Fault::ClientClock(client, step_ms) => {
                self.clients[usize::from(client)].ahead_ms += step_ms;
            }
            Fault::Restart(client) => self.clients[usize::from(client)].restart(),
            Fault::Explode(client, series, flushes) => {
                self.clients[usize::from(client)].exploding = (series, flushes);
            }
            Fault::BadLines(client, count) => {
                self.clients[usize::from(client)].bad_lines += count;
            }
            Fault::Reload(operators) => self.reload(operators)?,
            Fault::Gap(length_ms) => {
                self.now_ms += length_ms;
                self.well_since_ms = self.now_ms;
            }
        }
        Ok(())
    }

    fn reload(&mut self, operators: Operators) -> Result<(), Broken> {
        self.operators = operators;
        let wall_ms = self.collector_ms();
        if self.collector.is_none() {
            return Ok(());
        }
        let mut refused = None;
        self.following(|world| {
            if let Some(collector) = &mut world.collector {
                let config = operators.config();
                let done = collector
                    .shard
                    .reconfigure(wall_ms, &config, &mut collector.ears);
                refused = done.err();
            }
            world.model.reload(wall_ms, operators);
        })?;
        match refused {
            Some(error) => broken(
                Invariant::Accounting,
                format!("a reload is refused: {error}"),
            ),
            None => Ok(()),
        }
    }
}
