//! A pipeline: series and samples in, series and samples out.
//!
//! The driver registers every series once and passes batches of samples; both calls append to an
//! [`Output`](crate::Output). [`Pipeline::poll`] closes windows, [`Pipeline::poll_correlations`] evaluates expressions.

mod compile;
mod correlate;
mod merge;
mod reload;
mod run;

use crate::chain::{Chain, End};
use crate::config::ProcessingConfig;
use crate::keys::ConfigErrors;
use crate::output::{Output, OutputHandle, OutputSample};
use crate::outputs::Outputs;
use crate::plan::Plan;
use crate::stats::Stats;
use crate::table::Table;
use crate::windows::{Counted, Mode, Windows};
use sheaf_samples::{Labels, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use merge::PartialsError;

/// Name of an input series, given by the driver: a small number, as it is the index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesHandle(pub u32);

impl SeriesHandle {
    /// Handles are below this number.
    pub const END: u32 = 1 << 24;
}

/// Part of a pipeline in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// All series are here.
    Whole,
    /// Some series are here ([`shard_of`](crate::shard_of)). Windows across series go to the merger as
    /// [`partials`](Output::partials).
    Shard,
    /// Merges the partials of this many shards, and works on the results. Correlations are evaluated here.
    Merger {
        /// Number of shards.
        shards: usize,
    },
}

/// Reason why a series is not registered. Its samples are counted as unregistered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// As many series as allowed are registered.
    #[error("{limit} series are registered, expected fewer than `limits.series_max`")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// The handle names a series already; the driver ends that one first.
    #[error("handle {0} is in use, expected a free one")]
    InUse(u32),
    /// The handle is not a small number.
    #[error("handle {0}, expected one below {end}", end = SeriesHandle::END)]
    Handle(u32),
}

/// Operators compiled for every series, with their state.
///
/// # Contract
///
/// - Times are in ms since 1970-01-01 UTC, by the collector's clock.
/// - A series lives in one pipeline, under one handle, until [`handle_series_end`](Self::handle_series_end).
/// - The watermark of windows moves in [`poll`](Self::poll) alone. A driver that was kept from running passes the
///   samples that wait before it polls, so that none is late for that.
/// - [`Output`] is only appended to.
#[derive(Debug)]
pub struct Pipeline {
    role: Role,
    plan: Plan,
    /// Tables that the driver gave, by name.
    tables: BTreeMap<String, Table>,
    /// By handle.
    chains: Vec<Chain>,
    /// Labels by handle, beside the chains because no sample needs them.
    inputs: Vec<Option<Arc<Labels>>>,
    series: usize,
    core: Core,
}

/// State that chains lead to.
#[derive(Debug)]
struct Core {
    generation: u32,
    outputs: Outputs,
    windows: Vec<Windows>,
    correlations: Vec<correlate::Correlation>,
    groups_max: usize,
    bins_max: usize,
    /// Panes of all windows.
    open: Counted,
    stats: Stats,
    /// Registered and not delivered yet.
    pending: Output,
}

impl Pipeline {
    /// Returns a pipeline without series.
    ///
    /// # Errors
    ///
    /// Everything that is wrong in the configuration.
    pub fn new(config: &ProcessingConfig, role: Role) -> Result<Self, ConfigErrors> {
        let plan = Plan::new(config)?;
        let mut core = Core {
            generation: 0,
            outputs: Outputs::default(),
            windows: reload::windows(&plan, role),
            correlations: correlate::correlations(&plan, role),
            groups_max: plan.limits.groups_max,
            bins_max: plan.limits.sketch_bins_max,
            open: Counted {
                count: 0,
                max: plan.limits.open_windows_max,
            },
            stats: Stats::default(),
            pending: Output::default(),
        };
        core.stats.replace_operators(plan.stats());
        Ok(Self {
            role,
            plan,
            tables: BTreeMap::new(),
            chains: Vec::new(),
            inputs: Vec::new(),
            series: 0,
            core,
        })
    }

    /// Registers the series with `labels` under `handle` and compiles its chain of operators.
    ///
    /// # Errors
    ///
    /// If there is no room, or the handle cannot be used. Samples of the handle are then counted as unregistered.
    pub fn handle_new_series(
        &mut self,
        _now_ms: i64,
        handle: SeriesHandle,
        labels: &Labels,
    ) -> Result<(), SeriesError> {
        if handle.0 >= SeriesHandle::END {
            return Err(SeriesError::Handle(handle.0));
        }
        let at = handle.0 as usize;
        if self.inputs.get(at).is_some_and(Option::is_some) {
            return Err(SeriesError::InUse(handle.0));
        }
        let limit = self.plan.limits.series_max;
        if self.series >= limit {
            self.core.stats.over("series_max", "", limit as u64, labels);
            return Err(SeriesError::TooMany { limit });
        }
        if at >= self.inputs.len() {
            self.inputs.resize_with(at + 1, || None);
            self.chains.resize_with(at + 1, Chain::unknown);
        }
        self.series += 1;
        self.inputs[at] = Some(Arc::new(labels.clone()));
        self.chains[at] = self.core.compile(&self.plan, 0, labels, Vec::new());
        Ok(())
    }

    /// Forgets the series; its handle is free again. Does nothing if there is none.
    pub fn handle_series_end(&mut self, _now_ms: i64, handle: SeriesHandle) {
        let at = handle.0 as usize;
        if self.inputs.get_mut(at).and_then(Option::take).is_some() {
            self.series -= 1;
            let chain = std::mem::replace(&mut self.chains[at], Chain::unknown());
            self.core.release(chain);
        }
    }

    /// Passes `samples` through the operators, in order.
    pub fn handle_samples(
        &mut self,
        now_ms: i64,
        samples: &[(SeriesHandle, Sample)],
        output: &mut Output,
    ) {
        self.core.deliver(output);
        self.core.stats.received += samples.len() as u64;
        for &(handle, sample) in samples {
            match self.chains.get_mut(handle.0 as usize) {
                Some(chain) => self.core.pass(chain, sample, now_ms, output),
                None => self.core.stats.unregistered += 1,
            }
        }
        debug_assert!(self.core.stats.is_balanced(), "{:?}", self.core.stats);
    }

    /// Closes the windows that are due.
    pub fn poll(&mut self, now_ms: i64, output: &mut Output) {
        self.core.deliver(output);
        self.core
            .poll(now_ms, self.plan.limits.shard_wait_ms, output);
        debug_assert!(self.core.stats.is_balanced(), "{:?}", self.core.stats);
    }

    /// Time of the next [`poll`](Self::poll) that has something to do. A merger is polled after partials as well.
    #[must_use]
    pub fn next_poll_ms(&self) -> Option<i64> {
        let of = |place: usize| self.core.due_ms(place, self.plan.limits.shard_wait_ms);
        (0..self.core.windows.len()).filter_map(of).min()
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Number of registered input series.
    #[must_use]
    pub fn series(&self) -> usize {
        self.series
    }

    /// Number of groups of all windows and of series of all correlations.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.core.groups()
    }

    /// Number of partial aggregates in memory.
    #[must_use]
    pub fn open_windows(&self) -> usize {
        self.core.open.count
    }

    /// Output series that chains lead to, as a driver needs them that begins later.
    pub fn outputs(&self) -> impl Iterator<Item = (OutputHandle, &Arc<Labels>)> {
        self.core.outputs.iter()
    }

    /// Configuration in force.
    #[must_use]
    pub fn config(&self) -> &ProcessingConfig {
        &self.plan.config
    }
}

impl Core {
    fn groups(&self) -> usize {
        let windows = self.windows.iter().map(Windows::len);
        let correlations = self.correlations.iter().map(|one| one.series.len());
        windows.chain(correlations).sum()
    }

    /// Passes on what registrations have made.
    fn deliver(&mut self, output: &mut Output) {
        output.append(&mut self.pending);
    }

    fn pass(&mut self, chain: &mut Chain, sample: Sample, now_ms: i64, output: &mut Output) {
        if let (
            End::Out {
                handle,
                destinations,
            },
            true,
        ) = (chain.end, chain.links.is_empty())
        {
            // The most frequent way: nothing looks at the sample.
            self.stats.out += 1;
            output.samples.push(OutputSample {
                handle,
                destinations,
                sample,
            });
            return;
        }
        let mut run = run::Run {
            now_ms,
            bins_max: self.bins_max,
            open: &mut self.open,
            stats: &mut self.stats,
            output,
        };
        run.pass(chain, sample, &mut self.windows, 0);
    }
}

/// Where the windows of an operator are computed in a pipeline of `role`.
fn mode_of(role: Role, is_across: bool) -> Mode {
    match (role, is_across) {
        (Role::Shard, true) => Mode::Shard,
        (Role::Merger { .. }, true) => Mode::Merger,
        _ => Mode::Whole,
    }
}
