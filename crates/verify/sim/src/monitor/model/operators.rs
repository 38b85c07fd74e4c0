//! Expected work of the operators: samples suppressed, discarded, renamed and aggregated.

use super::super::names::{Metric, OutName, SeriesName};
use super::super::options::{AHEAD_MS, Operators, WindowOptions};
use super::Passing;
use std::collections::BTreeMap;

/// Samples of one window so far.
#[derive(Clone, Copy, Debug)]
struct Pane {
    count: u64,
    sum: i64,
    max: i64,
}

/// One life of the operators.
#[derive(Debug)]
pub(in crate::monitor) struct OperatorsModel {
    operators: Operators,
    /// Last time and value of each state that passed.
    passed: BTreeMap<SeriesName, (i64, i64)>,
    /// Open windows by group and end.
    panes: BTreeMap<(Option<u16>, i64), Pane>,
    watermark_ms: Option<i64>,
    /// Samples of `work` that windows took, came too late for, or were ahead of.
    pub(in crate::monitor) aggregated: u64,
    pub(in crate::monitor) late: u64,
    pub(in crate::monitor) ahead: u64,
    pub(in crate::monitor) suppressed: u64,
    pub(in crate::monitor) discarded: u64,
}

impl OperatorsModel {
    pub(super) fn new(operators: Operators) -> Self {
        Self {
            operators,
            passed: BTreeMap::new(),
            panes: BTreeMap::new(),
            watermark_ms: None,
            aggregated: 0,
            late: 0,
            ahead: 0,
            suppressed: 0,
            discarded: 0,
        }
    }

    /// Passes a sample; the error is the reason why it goes no further.
    pub(super) fn pass(
        &mut self,
        now_ms: i64,
        series: SeriesName,
        at_ms: i64,
        value: i64,
    ) -> Result<Passing, &'static str> {
        let mut name = OutName::Same(series);
        match series.metric {
            Metric::State
                if self.operators.refresh_ms > 0 && !self.changes(series, at_ms, value) =>
            {
                self.suppressed += 1;
                return Err("suppressed");
            }
            Metric::Noise if self.operators.discards => {
                self.discarded += 1;
                return Err("discarded");
            }
            Metric::Old if self.operators.renames => {
                name = OutName::Renamed(series.client, series.number);
            }
            Metric::Work => {
                if let Some(window) = self.operators.window {
                    self.aggregate(now_ms, &window, series.client, at_ms, value);
                }
            }
            _ => {}
        }
        Ok(Passing {
            name,
            at_ms,
            value: value as f64,
            client: Some(series.client),
        })
    }

    /// Returns whether a value passes: it differs from the last that passed, or that is long ago.
    fn changes(&mut self, series: SeriesName, at_ms: i64, value: i64) -> bool {
        let Some(&(last_ms, last)) = self.passed.get(&series) else {
            self.passed.insert(series, (at_ms, value));
            return true;
        };
        let is_due = (at_ms - last_ms).abs() >= self.operators.refresh_ms;
        if value == last && !is_due {
            return false;
        }
        if at_ms >= last_ms || is_due {
            self.passed.insert(series, (at_ms, value));
        }
        true
    }

    fn aggregate(
        &mut self,
        now_ms: i64,
        window: &WindowOptions,
        client: u16,
        at_ms: i64,
        value: i64,
    ) {
        if at_ms > now_ms + AHEAD_MS {
            self.ahead += 1;
            return;
        }
        let length_ms = window.length_ms;
        let end_ms = (at_ms + length_ms - 1).div_euclid(length_ms) * length_ms;
        if self
            .watermark_ms
            .is_some_and(|closed_ms| end_ms <= closed_ms)
        {
            self.late += 1;
            return;
        }
        self.aggregated += 1;
        let key = (window.by_source.then_some(client), end_ms);
        let pane = self.panes.entry(key).or_insert(Pane {
            count: 0,
            sum: 0,
            max: i64::MIN,
        });
        pane.count += 1;
        pane.sum += value;
        pane.max = pane.max.max(value);
    }

    /// Closes what is due.
    pub(super) fn poll(&mut self, now_ms: i64) -> Vec<Passing> {
        let mut results = Vec::new();
        let Some(window) = self.operators.window else {
            return results;
        };
        let next_ms = self.panes.keys().map(|key| key.1).min();
        if next_ms.is_none_or(|end_ms| end_ms + window.late_ms > now_ms) {
            return results;
        }
        let to_ms = now_ms - window.late_ms;
        self.watermark_ms = Some(self.watermark_ms.map_or(to_ms, |was| was.max(to_ms)));
        let (due, open): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.panes)
            .into_iter()
            .partition(|(key, _)| key.1 <= to_ms);
        self.panes = open;
        for ((client, end_ms), pane) in due {
            results.extend(result(client, end_ms, pane));
        }
        results
    }

    /// Goes over to other operators; those that do not change keep their state.
    pub(super) fn reload(&mut self, now_ms: i64, operators: Operators) -> Vec<Passing> {
        let mut results = Vec::new();
        if operators.refresh_ms != self.operators.refresh_ms {
            self.passed.clear();
        }
        if operators.window != self.operators.window {
            let length_ms = self.operators.window.map_or(0, |window| window.length_ms);
            for ((client, end_ms), pane) in std::mem::take(&mut self.panes) {
                // All of it closes now, and under no later time than now.
                let at_ms = if end_ms - length_ms < now_ms {
                    end_ms.min(now_ms)
                } else {
                    end_ms
                };
                results.extend(result(client, at_ms, pane));
            }
            self.watermark_ms = operators.window.map(|window| now_ms - window.late_ms);
        }
        self.operators = operators;
        results
    }
}

fn result(client: Option<u16>, at_ms: i64, pane: Pane) -> [Passing; 3] {
    let of = |function, value| Passing {
        name: OutName::Window(function, client),
        at_ms,
        value,
        client: None,
    };
    [
        of("count", pane.count as f64),
        of("sum", pane.sum as f64),
        of("max", pane.max as f64),
    ]
}
