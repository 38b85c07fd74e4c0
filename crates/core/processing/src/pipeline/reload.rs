//! Another configuration or table while the pipeline runs: state is kept, chains are compiled again.

use super::compile::Carried;
use super::correlate::{Correlation, correlations};
use super::{Core, Pipeline, Role, mode_of};
use crate::chain::{Chain, Link};
use crate::config::ProcessingConfig;
use crate::keys::{ConfigError, ConfigErrors};
use crate::output::{Output, Partial, PartialEvent};
use crate::plan::Plan;
use crate::table::{Table, TableError};
use crate::windows::{Mode, Windows};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Windows of `plan`, without groups.
pub(super) fn windows(plan: &Plan, role: Role) -> Vec<Windows> {
    let windows = plan
        .operators
        .iter()
        .enumerate()
        .filter_map(|(at, planned)| {
            let window = planned.operator.window()?;
            let operator = u16::try_from(at).expect("bounded by the plan");
            let shards = match role {
                Role::Merger { shards } => shards,
                Role::Whole | Role::Shard => 0,
            };
            let mode = mode_of(role, planned.is_across);
            Some(Windows::new(operator, window, mode, shards))
        });
    windows.collect()
}

/// Chains of the results of one group before a reload, by (window, group).
type CarriedResults = BTreeMap<(usize, u32), Vec<Carried>>;

impl Pipeline {
    /// Goes over to `config`. Operators with equal definitions keep their state: last values, open windows, counts.
    /// Windows of operators that are changed or removed close early. Nothing changes if the configuration is refused.
    ///
    /// Shards are reconfigured first, each into its own [`Output`]; the merger gets their partials before it is
    /// reconfigured, and those that follow after.
    ///
    /// # Errors
    ///
    /// Everything that is wrong in the configuration.
    pub fn reconfigure(
        &mut self,
        now_ms: i64,
        config: &ProcessingConfig,
        output: &mut Output,
    ) -> Result<(), ConfigErrors> {
        let mut plan = Plan::new(config)?;
        let mut tables = std::mem::take(&mut self.tables);
        tables.retain(|name, _| {
            config
                .tables
                .get(name)
                .is_some_and(|one| one.file.is_some())
        });
        if let Err(error) = load(&mut plan, &tables) {
            self.tables = tables;
            return Err(ConfigErrors(vec![ConfigError {
                key: "tables".to_owned(),
                found: error.to_string(),
                expected: "a table with all columns".to_owned(),
            }]));
        }
        self.tables = tables;
        self.rebuild(now_ms, plan, output);
        Ok(())
    }

    /// Gives the table `name` other rows, and looks every series up again.
    ///
    /// # Errors
    ///
    /// If the table is malformed, is not in the configuration, or lacks a column. Nothing changes then.
    pub fn set_table(
        &mut self,
        now_ms: i64,
        name: &str,
        table: Table,
        output: &mut Output,
    ) -> Result<(), TableError> {
        if !self.plan.config.tables.contains_key(name) {
            return Err(TableError::Unknown(name.to_owned()));
        }
        table.check(self.plan.limits.table_rows_max)?;
        let mut tables = self.tables.clone();
        tables.insert(name.to_owned(), table);
        let mut plan = Plan::new(&self.plan.config).expect("in force already");
        load(&mut plan, &tables)?;
        self.tables = tables;
        self.rebuild(now_ms, plan, output);
        Ok(())
    }

    fn rebuild(&mut self, now_ms: i64, plan: Plan, output: &mut Output) {
        self.core.deliver(output);
        let kept = plan.kept_from(&self.plan, self.role != Role::Whole);
        let mut moved: Vec<Option<u16>> = vec![None; self.plan.operators.len()];
        for (new, old) in kept.iter().enumerate() {
            if let Some(old) = old {
                moved[*old] = Some(u16::try_from(new).expect("bounded by the plan"));
            }
        }
        self.core.close_removed(&moved, now_ms, output);
        let correlations = std::mem::take(&mut self.core.correlations);
        let (stay, go): (Vec<_>, Vec<_>) = correlations
            .into_iter()
            .partition(|one| moved[usize::from(one.operator)].is_some());
        for one in go {
            self.core.end_results(one.series, now_ms, output);
        }
        self.core.generation += 1;
        self.core.stats.replace_operators(plan.stats());
        self.core.groups_max = plan.limits.groups_max;
        self.core.bins_max = plan.limits.sketch_bins_max;
        self.core.open.max = plan.limits.open_windows_max;
        self.core.outputs.release_all();
        let mut results = self
            .core
            .move_windows(&plan, self.role, now_ms, &kept, &moved);
        for (chain, labels) in self.chains.iter_mut().zip(&self.inputs) {
            let Some(labels) = labels else {
                continue;
            };
            let old = std::mem::replace(chain, Chain::unknown());
            *chain = self.core.compile(&plan, 0, labels, carried(old, &moved));
        }
        self.core.move_correlations(&plan, self.role, stay, &moved);
        for (place, planned) in plan.operators.iter().enumerate() {
            if let Some(at) = planned.window {
                self.core
                    .compile_kept(&plan, place, usize::from(at), &mut results);
            }
        }
        let mut pending = std::mem::take(&mut self.core.pending);
        self.core.outputs.end_unused(&mut pending);
        self.core.pending = pending;
        self.core.deliver(output);
        self.plan = plan;
        debug_assert!(self.core.stats.is_balanced(), "{:?}", self.core.stats);
    }
}

/// Gives every operator of `plan` the rows of its table, where the driver has given some.
fn load(plan: &mut Plan, tables: &BTreeMap<String, Table>) -> Result<(), TableError> {
    for planned in &mut plan.operators {
        let Some(name) = planned.operator.table().map(str::to_owned) else {
            continue;
        };
        if let Some(table) = tables.get(&name) {
            let missing = |column| TableError::Missing {
                table: name.clone(),
                column,
                operator: planned.id.clone(),
            };
            planned.operator.load(table).map_err(missing)?;
        }
    }
    Ok(())
}

/// Links of `chain` whose operators stay, with their new places.
fn carried(chain: Chain, moved: &[Option<u16>]) -> Carried {
    let links = chain.links.into_iter().filter_map(|link| {
        let old = match &link {
            Link::Work { operator, .. } | Link::RefusedCopy { operator } => *operator,
            Link::Window(link) => link.operator,
        };
        Some((moved[usize::from(old)]?, link))
    });
    links.collect()
}

impl Core {
    /// Closes the windows of operators that do not stay, through the chains as they are.
    fn close_removed(&mut self, moved: &[Option<u16>], now_ms: i64, output: &mut Output) {
        for at in 0..self.windows.len() {
            let window = &self.windows[at];
            if moved[usize::from(window.operator)].is_some() {
                continue;
            }
            let is_shard = window.mode == Mode::Shard;
            let to_ms = window.watermark_ms.unwrap_or(i64::MIN);
            self.close(at, now_ms, to_ms, Some(now_ms), output);
            if is_shard {
                let numbers = self.windows[at].numbers();
                let used = numbers.filter(|number| self.windows[at].get(*number).is_some());
                let used: Vec<u32> = used.collect();
                output
                    .partials
                    .extend(used.into_iter().map(|group| Partial {
                        generation: self.generation,
                        window: u16::try_from(at).expect("a place of the plan"),
                        event: PartialEvent::Ended { group },
                    }));
            }
        }
    }

    /// Makes the windows of `plan`, with the groups of those that stay. Their chains are given up, and returned.
    fn move_windows(
        &mut self,
        plan: &Plan,
        role: Role,
        now_ms: i64,
        kept: &[Option<usize>],
        moved: &[Option<u16>],
    ) -> CarriedResults {
        let mut results = CarriedResults::new();
        let mut old = std::mem::take(&mut self.windows);
        // Place of each window from now on, by its place before.
        let now: Vec<Option<u16>> = old
            .iter()
            .map(|one| plan.operators[usize::from(moved[usize::from(one.operator)]?)].window)
            .collect();
        self.windows = windows(plan, role);
        for (at, window) in self.windows.iter_mut().enumerate() {
            let from = kept[usize::from(window.operator)];
            let place = old
                .iter()
                .position(|one| Some(usize::from(one.operator)) == from);
            let Some(place) = place else {
                // Samples that are late for the windows of the operator before are late here as well.
                if window.mode != Mode::Merger {
                    window.watermark_ms = Some(now_ms.saturating_sub(window.late_ms));
                }
                continue;
            };
            let operator = window.operator;
            *window = old.swap_remove(place);
            window.operator = operator;
            let fed_by = window
                .fed_by
                .iter()
                .filter_map(|feeder| now[usize::from(*feeder)]);
            window.fed_by = fed_by.filter(|feeder| usize::from(*feeder) < at).collect();
            for number in window.numbers() {
                let Some(group) = window.get(number) else {
                    continue;
                };
                group.chains = 0;
                if let Some(chains) = group.results.take() {
                    let chains = chains.into_iter().map(|chain| carried(chain, moved));
                    results.insert((at, number), chains.collect());
                }
            }
        }
        results
    }

    /// Makes the correlations of `plan`, with the series of those that stay.
    fn move_correlations(
        &mut self,
        plan: &Plan,
        role: Role,
        stay: Vec<Correlation>,
        moved: &[Option<u16>],
    ) {
        self.correlations = correlations(plan, role);
        for mut old in stay {
            let operator = moved[usize::from(old.operator)].expect("it stays");
            for (labels, chain) in &mut old.series {
                let links = carried(std::mem::replace(chain, Chain::unknown()), moved);
                *chain = self.compile(plan, usize::from(operator) + 1, labels, links);
            }
            let mut all = self.correlations.iter_mut();
            let place = all.find(|new| new.operator == operator);
            old.operator = operator;
            *place.expect("of the same plan") = old;
        }
    }

    /// Compiles the chains of the results of groups that stay, and removes groups that nothing leads to any more.
    fn compile_kept(&mut self, plan: &Plan, place: usize, at: usize, results: &mut CarriedResults) {
        for number in self.windows[at].numbers() {
            let mut pending = std::mem::take(&mut self.pending);
            self.remove_unused(at, number, &mut pending);
            self.pending = pending;
            let has_results = self.windows[at].mode != Mode::Shard;
            let Some(group) = self.windows[at].get(number) else {
                continue;
            };
            if has_results && group.results.is_none() {
                let labels = Arc::clone(&group.labels);
                let carried = results.remove(&(at, number)).unwrap_or_default();
                let window = plan.operators[place].operator.window();
                let window = window.expect("a window says so");
                let chains = self.compile_results(plan, place, window, &labels, carried);
                self.windows[at].group(number).results = Some(chains);
            }
        }
    }
}
