//! Samples on their way, and windows that close.

use super::Core;
use crate::chain::{Chain, End, Link};
use crate::output::{Output, OutputSample, Partial, PartialEvent};
use crate::stats::{Fate, Stats};
use crate::windows::{Closing, Counted, FromShard, Mode, Windows, end_after};
use sheaf_samples::Sample;
use std::sync::Arc;

/// State that a sample may touch on its way, beside its chain and the windows.
pub(super) struct Run<'a> {
    pub(super) now_ms: i64,
    pub(super) bins_max: usize,
    pub(super) open: &'a mut Counted,
    pub(super) stats: &'a mut Stats,
    pub(super) output: &'a mut Output,
}

impl Run<'_> {
    /// Passes `sample` along `chain`. The chain uses `windows`, of which the first has the place `base`.
    #[inline]
    pub(super) fn pass(
        &mut self,
        chain: &mut Chain,
        mut sample: Sample,
        windows: &mut [Windows],
        base: usize,
    ) {
        for link in &mut chain.links {
            match link {
                Link::Work { operator, work } => match work.take(sample) {
                    Ok(worked) => sample = worked,
                    Err(fate) => return self.stats.end(*operator, fate),
                },
                Link::Window(link) => {
                    let window = &mut windows[usize::from(link.window) - base];
                    let (fate, is_partly_late) =
                        window.add(link, sample, self.now_ms, self.bins_max, self.open);
                    self.stats.end(link.operator, fate);
                    if is_partly_late {
                        self.stats.operators[usize::from(link.operator)].partly_late += 1;
                    }
                    if fate == Fate::Refused {
                        let operator = usize::from(link.operator);
                        let id = self.stats.operators[operator].id.clone();
                        let labels = &window.group(link.group).labels;
                        let max = self.open.max as u64;
                        self.stats.over("open_windows_max", &id, max, labels);
                    }
                    if link.consumes {
                        return;
                    }
                    self.stats.copied += 1;
                }
                Link::RefusedCopy { operator } => {
                    self.stats.copied += 1;
                    self.stats.end(*operator, Fate::Refused);
                }
            }
        }
        match chain.end {
            End::Out {
                handle,
                destinations,
            } => {
                self.stats.out += 1;
                self.output.samples.push(OutputSample {
                    handle,
                    destinations,
                    sample,
                });
            }
            End::Stop { operator, fate } => self.stats.end(operator, fate),
            End::Unknown => self.stats.unregistered += 1,
        }
    }

    /// Closes windows of the operator at `place` up to its watermark, and passes the results on.
    fn close(&mut self, windows: &mut [Windows], place: usize, closing: &Closing) {
        let (head, behind) = windows.split_at_mut(place + 1);
        let window = &mut head[place];
        let length_ms = window.length_ms;
        let functions = Arc::clone(&window.functions);
        for number in window.numbers() {
            let Some(group) = window.get(number) else {
                continue;
            };
            let results = group.results.as_deref_mut().unwrap_or_default();
            let bins_max = self.bins_max;
            let mut emitted = 0;
            let removed = group.panes.close(closing, bins_max, |at_ms, pane| {
                emitted += 1;
                for (function, chain) in functions.iter().zip(results.iter_mut()) {
                    let value = pane.value(*function, length_ms);
                    self.stats.made += 1;
                    self.pass(chain, Sample { at_ms, value }, behind, place + 1);
                }
            });
            self.open.count -= removed;
            if closing.early_ms.is_some() {
                let operator = usize::from(window.operator);
                self.stats.operators[operator].closed_early += emitted;
            }
        }
    }

    /// Sends the panes that end at `to_ms` or before to the merger.
    fn send(&mut self, window: &mut Windows, place: usize, to_ms: i64, generation: u32) {
        let partials = &mut self.output.partials;
        let mut push = |event| {
            partials.push(Partial {
                generation,
                window: u16::try_from(place).expect("a place of the plan"),
                event,
            });
        };
        for number in window.numbers() {
            let Some(group) = window.get(number) else {
                continue;
            };
            group.panes.drain(to_ms, |pane| {
                self.open.count -= 1;
                push(PartialEvent::Pane {
                    group: number,
                    pane,
                });
            });
        }
    }
}

impl Core {
    /// Closes what is due at `now_ms`, windows that feed others first.
    pub(super) fn poll(&mut self, now_ms: i64, shard_wait_ms: i64, output: &mut Output) {
        for place in 0..self.windows.len() {
            let Some(to_ms) = self.watermark(place, now_ms, shard_wait_ms) else {
                continue;
            };
            self.close(place, now_ms, to_ms, None, output);
        }
    }

    /// Watermark of the window at `place` at `now_ms`, if it is known.
    fn watermark(&mut self, place: usize, now_ms: i64, shard_wait_ms: i64) -> Option<i64> {
        let window = &self.windows[place];
        let by_clock_ms = now_ms.saturating_sub(window.late_ms);
        let mut to_ms = by_clock_ms;
        if window.mode == Mode::Merger {
            let of_shard = |shard: &FromShard| shard.watermark_ms.unwrap_or(i64::MIN);
            let of_shards = window
                .from_shards
                .iter()
                .map(of_shard)
                .min()
                .unwrap_or(by_clock_ms);
            let forced_ms = by_clock_ms.saturating_sub(shard_wait_ms);
            to_ms = of_shards.max(forced_ms);
            if window.is_due(to_ms) && of_shards < to_ms {
                let operator = usize::from(window.operator);
                self.stats.operators[operator].closed_without_shard += 1;
            }
        }
        for feeder in &window.fed_by {
            to_ms = to_ms.min(self.windows[usize::from(*feeder)].watermark_ms?);
        }
        Some(window.watermark_ms.map_or(to_ms, |was| was.max(to_ms)))
    }

    /// Moves the watermark of the window at `place` to `to_ms`. With `early_ms` all of its windows close.
    pub(super) fn close(
        &mut self,
        place: usize,
        now_ms: i64,
        to_ms: i64,
        early_ms: Option<i64>,
        output: &mut Output,
    ) {
        let window = &mut self.windows[place];
        let from_ms = window.watermark_ms.replace(to_ms);
        let is_shard = window.mode == Mode::Shard;
        // The merger waits for the watermark of a shard that has no pane as well.
        let is_awaited = is_shard && crosses(from_ms, to_ms, window.step_ms);
        if early_ms.is_none() && !is_awaited && !window.is_due(to_ms) {
            return;
        }
        let closing = Closing {
            from_ms,
            to_ms,
            early_ms,
            length_ms: window.length_ms,
            step_ms: window.step_ms,
        };
        let mut run = Run {
            now_ms,
            bins_max: self.bins_max,
            open: &mut self.open,
            stats: &mut self.stats,
            output,
        };
        if is_shard {
            let to_ms = early_ms.map_or(to_ms, |_| i64::MAX);
            run.send(&mut self.windows[place], place, to_ms, self.generation);
            if early_ms.is_none() {
                let at_ms = closing.to_ms;
                output.partials.push(Partial {
                    generation: self.generation,
                    window: u16::try_from(place).expect("a place of the plan"),
                    event: PartialEvent::Watermark { at_ms },
                });
            }
        } else {
            run.close(&mut self.windows, place, &closing);
        }
        for number in self.windows[place].closed() {
            self.remove_unused(place, number, output);
        }
    }

    /// Time at which a poll closes windows of the operator at `place`, if some are open.
    pub(super) fn due_ms(&self, place: usize, shard_wait_ms: i64) -> Option<i64> {
        let window = &self.windows[place];
        if window.mode == Mode::Shard {
            let next_ms = |at_ms| end_after(at_ms, window.step_ms);
            let end_ms = window.watermark_ms.map_or(i64::MIN, next_ms);
            return Some(end_ms.saturating_add(self.late_ms(place)));
        }
        let end_ms = window.next_end_ms()?;
        let late_ms = self.late_ms(place);
        let by_clock_ms = end_ms.saturating_add(late_ms);
        if window.mode == Mode::Whole {
            return Some(by_clock_ms);
        }
        let of_shard = |shard: &FromShard| shard.watermark_ms.unwrap_or(i64::MIN);
        let of_shards = window.from_shards.iter().map(of_shard).min();
        if of_shards.is_some_and(|at_ms| at_ms >= end_ms) && window.fed_by.is_empty() {
            return Some(end_ms);
        }
        Some(by_clock_ms.saturating_add(shard_wait_ms))
    }

    /// Lateness of the window at `place` and of those that feed it.
    fn late_ms(&self, place: usize) -> i64 {
        let window = &self.windows[place];
        let feeders = window.fed_by.iter();
        let of_feeders = feeders
            .map(|feeder| self.late_ms(usize::from(*feeder)))
            .max();
        window.late_ms.max(of_feeders.unwrap_or(0))
    }
}

/// Returns whether the end of an interval lies between the two watermarks.
fn crosses(from_ms: Option<i64>, to_ms: i64, step_ms: i64) -> bool {
    from_ms.is_none_or(|from_ms| from_ms.div_euclid(step_ms) != to_ms.div_euclid(step_ms))
}
