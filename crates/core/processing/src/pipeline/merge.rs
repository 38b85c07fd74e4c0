//! The second stage: partial aggregates of shards become windows across all series.

use super::{Core, Pipeline, Role};
use crate::output::{Partial, PartialEvent};
use crate::plan::Plan;
use crate::stats::Fate;
use crate::windows::Mode;

/// Reason why a merger does not take the rest of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartialsError {
    /// This pipeline is no merger, or of fewer shards.
    #[error("shard {found}, expected one below {expected}")]
    Shard {
        /// Number of the shard.
        found: usize,
        /// Number of shards of this merger; 0 if it is none.
        expected: usize,
    },
    /// The shard has another configuration. If its number is higher, the driver reconfigures the merger and passes the
    /// rest again.
    #[error(
        "a partial of configuration {found}, expected {expected}, after {taken} that were taken"
    )]
    Generation {
        /// Configuration of the partial.
        found: u32,
        /// Configuration of this merger.
        expected: u32,
        /// Partials of the batch that were taken.
        taken: usize,
    },
    /// The configurations differ although their numbers are equal.
    #[error("a partial of window {found}, which has no groups across shards here")]
    Window {
        /// Place of the window.
        found: u16,
    },
}

impl Pipeline {
    /// Takes the partial aggregates that `shard` delivered, in their order. [`poll`](Self::poll) then closes the
    /// windows for which every shard has sent its watermark.
    ///
    /// # Errors
    ///
    /// If a partial belongs to another configuration; those before it are taken.
    pub fn handle_partials(
        &mut self,
        shard: usize,
        partials: &[Partial],
    ) -> Result<(), PartialsError> {
        let expected = match self.role {
            Role::Merger { shards } => shards,
            Role::Whole | Role::Shard => 0,
        };
        if shard >= expected {
            let found = shard;
            return Err(PartialsError::Shard { found, expected });
        }
        for (taken, partial) in partials.iter().enumerate() {
            let (found, expected) = (partial.generation, self.core.generation);
            if found != expected {
                return Err(PartialsError::Generation {
                    found,
                    expected,
                    taken,
                });
            }
            self.core.take_partial(&self.plan, shard, partial)?;
        }
        Ok(())
    }
}

impl Core {
    fn take_partial(
        &mut self,
        plan: &Plan,
        shard: usize,
        partial: &Partial,
    ) -> Result<(), PartialsError> {
        let found = partial.window;
        let at = usize::from(found);
        let window = self.windows.get(at);
        let window = window.filter(|window| window.mode == Mode::Merger);
        let Some(operator) = window.map(|window| usize::from(window.operator)) else {
            return Err(PartialsError::Window { found });
        };
        match &partial.event {
            PartialEvent::Group { group, labels } => {
                let planned = &plan.operators[operator];
                let number = self.windows[at].find(labels).or_else(|| {
                    let window = planned.operator.window().expect("a window says so");
                    self.insert_group(plan, operator, planned, window, labels)
                });
                if let Some(number) = number {
                    self.windows[at].group(number).shards += 1;
                    let groups = &mut self.windows[at].from_shards[shard].groups;
                    groups.insert(*group, number);
                }
            }
            PartialEvent::Pane { group, pane } => {
                let known = self.windows[at].from_shards[shard].groups.get(group);
                let taken = known.copied().is_some_and(|number| {
                    let open = &mut self.open;
                    let taken = self.windows[at].add_pane(number, pane, self.bins_max, open);
                    if taken == Err(Fate::Refused) {
                        let id = &plan.operators[operator].id;
                        let labels = &self.windows[at].group(number).labels;
                        self.stats
                            .over("open_windows_max", id, open.max as u64, labels);
                    }
                    taken.is_ok()
                });
                if !taken {
                    self.stats.operators[operator].lost_in_merger += pane.bucket.count;
                }
            }
            PartialEvent::Ended { group } => {
                let groups = &mut self.windows[at].from_shards[shard].groups;
                if let Some(number) = groups.swap_remove(group) {
                    self.windows[at].group(number).shards -= 1;
                    let mut pending = std::mem::take(&mut self.pending);
                    self.remove_unused(at, number, &mut pending);
                    self.pending = pending;
                }
            }
            PartialEvent::Watermark { at_ms } => {
                let watermark = &mut self.windows[at].from_shards[shard].watermark_ms;
                *watermark = Some(watermark.map_or(*at_ms, |was| was.max(*at_ms)));
            }
        }
        Ok(())
    }
}
