//! Groups and open panes of one window operator.
//!
//! A window that ends at `e` holds the samples of (`e` − length, `e`]. It consists of panes of one step each, so a
//! sample is added once however many windows overlap. The watermark is the time up to which windows are closed: it
//! follows the collector's clock, moves in `poll` alone, and never back
//! (`docs/adr/2026-11-25-windows-close-by-the-collectors-clock.md`).

mod panes;

use crate::chain::{Chain, WindowLink};
use crate::operator::derive::increment;
use crate::operator::window::Window;
use crate::pane::{Function, Pane};
use crate::stats::Fate;
use indexmap::IndexMap;
use panes::Panes;
use rustc_hash::FxBuildHasher;
use sheaf_protect::protect;
use sheaf_samples::{Labels, Sample, is_stale};
use std::sync::Arc;

pub(crate) use panes::{Closing, Counted, end_after};

/// Where the windows of an operator are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Here: all series of a group are here.
    Whole,
    /// In the merger: this is a shard, which sends its panes there.
    Shard,
    /// Here, from the panes of the shards.
    Merger,
}

/// Series that share the windows of an operator.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) labels: Arc<Labels>,
    /// Chains of this pipeline that lead here.
    pub(crate) chains: u32,
    /// Shards that have the group.
    pub(crate) shards: u32,
    pub(crate) panes: Panes,
    /// Ways of the results, one for each function; nothing while they are compiled again, and in a shard.
    pub(crate) results: Option<Box<[Chain]>>,
}

impl Group {
    fn is_unused(&self) -> bool {
        self.chains == 0 && self.shards == 0 && self.panes.is_empty()
    }
}

/// Knowledge of a merger about one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct FromShard {
    /// Groups here by their number in the shard.
    pub(crate) groups: IndexMap<u32, u32, FxBuildHasher>,
    pub(crate) watermark_ms: Option<i64>,
}

/// State of one window operator.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) operator: u16,
    pub(crate) mode: Mode,
    pub(crate) length_ms: i64,
    pub(crate) step_ms: i64,
    pub(crate) late_ms: i64,
    ahead_ms: i64,
    pub(crate) functions: Arc<[Function]>,
    has_rate: bool,
    has_quantile: bool,
    groups: Vec<Option<Group>>,
    free: Vec<u32>,
    by_labels: IndexMap<Arc<Labels>, u32, FxBuildHasher>,
    pub(crate) watermark_ms: Option<i64>,
    /// Windows whose results are added here: this one closes after them.
    pub(crate) fed_by: Vec<u16>,
    /// End of the earliest window that is open.
    next_end_ms: Option<i64>,
    pub(crate) from_shards: Vec<FromShard>,
}

impl Windows {
    pub(crate) fn new(operator: u16, window: &Window, mode: Mode, shards: usize) -> Self {
        let shards = if mode == Mode::Merger { shards } else { 0 };
        let has = |is: fn(&Function) -> bool| window.functions.iter().any(is);
        Self {
            operator,
            mode,
            length_ms: window.length_ms,
            step_ms: window.slide_ms,
            late_ms: window.late_ms,
            ahead_ms: window.ahead_ms,
            functions: window.functions.clone().into(),
            has_rate: has(|one| *one == Function::Rate),
            has_quantile: has(|one| matches!(one, Function::Quantile(_))),
            groups: Vec::new(),
            free: Vec::new(),
            by_labels: IndexMap::default(),
            watermark_ms: None,
            fed_by: Vec::new(),
            next_end_ms: None,
            from_shards: vec![FromShard::default(); shards],
        }
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.by_labels.len()
    }

    pub(crate) fn find(&self, labels: &Labels) -> Option<u32> {
        self.by_labels.get(labels).copied()
    }

    /// Makes the group of `labels`, which did not exist.
    pub(crate) fn insert(&mut self, labels: Arc<Labels>, results: Option<Box<[Chain]>>) -> u32 {
        let group = Group {
            labels: Arc::clone(&labels),
            chains: 0,
            shards: 0,
            panes: Panes::default(),
            results,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.groups.push(None);
            u32::try_from(self.groups.len() - 1).expect("bounded by `groups_max`")
        });
        self.groups[number as usize] = Some(group);
        self.by_labels.insert(labels, number);
        number
    }

    /// Returns the group `number`, which exists.
    pub(crate) fn group(&mut self, number: u32) -> &mut Group {
        self.groups[number as usize].as_mut().expect("in use")
    }

    /// Numbers of the groups, in the order in which their windows close.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.groups.len()).expect("bounded by `groups_max`")
    }

    /// Returns the group `number` if it is in use.
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Group> {
        self.groups[number as usize].as_mut()
    }

    /// Removes the group `number` if nothing leads there and nothing is open.
    pub(crate) fn remove_unused(&mut self, number: u32) -> Option<Group> {
        let slot = &mut self.groups[number as usize];
        let group = slot.take_if(|group| group.is_unused())?;
        self.by_labels.swap_remove(&group.labels);
        self.free.push(number);
        Some(group)
    }

    /// Adds `sample` to its pane; `open` is the number of open panes of the pipeline, and what it may become.
    #[inline]
    pub(crate) fn add(
        &mut self,
        link: &mut WindowLink,
        sample: Sample,
        now_ms: i64,
        bins_max: usize,
        open: &mut Counted,
    ) -> (Fate, bool) {
        if is_stale(sample.value) {
            link.last = None;
            return (Fate::Suppressed, false);
        }
        if sample.at_ms > now_ms.saturating_add(self.ahead_ms) {
            return (Fate::Ahead, false);
        }
        let group = self.groups[link.group as usize]
            .as_mut()
            .expect("a chain leads here");
        let end_ms = group.panes.end_of(sample.at_ms, self.step_ms);
        let is_partly_late = match self.watermark_ms {
            Some(closed_ms) if protect!(ClosedWindow, when end_ms <= closed_ms) => {
                if end_ms.saturating_add(self.length_ms - self.step_ms) <= closed_ms {
                    return (Fate::Late, false);
                }
                true
            }
            _ => false,
        };
        let increase = match link.last {
            Some(last) if self.has_rate && sample.at_ms > last.at_ms => {
                increment(last.value, sample.value)
            }
            _ => 0.0,
        };
        match group.panes.find(end_ms) {
            Some(pane) => pane.add(sample, increase, bins_max),
            None => {
                if !open.take() {
                    return (Fate::Refused, false);
                }
                let bins_max = self.has_quantile.then_some(bins_max);
                group
                    .panes
                    .insert(Pane::of(end_ms, sample, increase, bins_max));
                self.opened(end_ms);
            }
        }
        if self.has_rate && link.last.is_none_or(|last| sample.at_ms > last.at_ms) {
            link.last = Some(sample);
        }
        (Fate::Aggregated, is_partly_late)
    }

    /// Adds a pane of a shard.
    ///
    /// # Errors
    ///
    /// [`Fate::Late`] if all of its windows are closed, [`Fate::Refused`] if there is no room.
    pub(crate) fn add_pane(
        &mut self,
        group: u32,
        pane: &Pane,
        bins_max: usize,
        open: &mut Counted,
    ) -> Result<(), Fate> {
        let last_ms = pane.end_ms.saturating_add(self.length_ms - self.step_ms);
        if self
            .watermark_ms
            .is_some_and(|closed_ms| last_ms <= closed_ms)
        {
            return Err(Fate::Late);
        }
        let panes = &mut self.group(group).panes;
        if let Some(own) = panes.find(pane.end_ms) {
            own.merge(pane, bins_max);
            return Ok(());
        }
        if !open.take() {
            return Err(Fate::Refused);
        }
        panes.insert(pane.clone());
        self.opened(pane.end_ms);
        Ok(())
    }

    fn opened(&mut self, end_ms: i64) {
        // A late part of a sliding window: the first window that can still close ends after the watermark.
        let step_ms = self.step_ms;
        let after = self
            .watermark_ms
            .map(|closed_ms| end_after(closed_ms, step_ms));
        let end_ms = match self.mode {
            Mode::Shard => end_ms,
            Mode::Whole | Mode::Merger => after.map_or(end_ms, |after| after.max(end_ms)),
        };
        self.next_end_ms = Some(self.next_end_ms.map_or(end_ms, |next| next.min(end_ms)));
    }

    /// End of the earliest window that is open, if any.
    pub(crate) fn next_end_ms(&self) -> Option<i64> {
        self.next_end_ms
    }

    /// Returns whether a watermark of `at_ms` closes a window.
    pub(crate) fn is_due(&self, at_ms: i64) -> bool {
        self.next_end_ms.is_some_and(|end_ms| end_ms <= at_ms)
    }

    /// Finds the earliest open window again after some were closed. Returns the groups that are of no further use.
    pub(crate) fn closed(&mut self) -> Vec<u32> {
        let (mut first, mut unused) = (None::<i64>, Vec::new());
        for (number, group) in (0..).zip(&self.groups) {
            let Some(group) = group else {
                continue;
            };
            match group.panes.first_end_ms() {
                Some(end_ms) => first = Some(first.map_or(end_ms, |first| first.min(end_ms))),
                None if group.is_unused() => unused.push(number),
                None => {}
            }
        }
        let (closed_ms, step_ms) = (self.watermark_ms, self.step_ms);
        let after = closed_ms.map(|closed_ms| end_after(closed_ms, step_ms));
        self.next_end_ms = first.map(|first| after.map_or(first, |after| after.max(first)));
        unused
    }
}
