//! The state of one alert: when a condition becomes an alarm, and when it is over.
//!
//! A condition that holds makes an alert pending, after `for` firing; one that ends makes it resolved, after
//! `keep_firing_for`. Data that is absent is a third answer with a time of its own, so that a series that comes and
//! goes makes neither alarms nor ends of alarms: the alert stays as it is until data was absent for that time, and then
//! until data was back for that time. Only a condition that holds is believed at once.

use crate::condition::Verdict;
use crate::rule::{NoData, NoDataState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long an alert is shown as resolved, in ms.
const RESOLVED_MS: i64 = 15 * 60_000;

/// State of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The condition does not hold.
    Inactive,
    /// The condition holds, but not yet for long enough.
    Pending,
    /// The alarm is on.
    Firing,
    /// The alarm was on and is over; after 15 minutes the alert is inactive.
    Resolved,
    /// The series has no data.
    NoData,
}

impl State {
    /// Name in files, pages and histories.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
            Self::NoData => "nodata",
        }
    }

    /// Returns the state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [
            Self::Inactive,
            Self::Pending,
            Self::Firing,
            Self::Resolved,
            Self::NoData,
        ]
        .into_iter()
        .find(|state| state.name() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Times of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Timing {
    pub(crate) for_ms: i64,
    pub(crate) keep_firing_ms: i64,
    pub(crate) nodata: Option<NoData>,
    /// Online rules: how long a value counts when no further one arrives.
    pub(crate) lookback_ms: Option<i64>,
}

/// State of one alert and the times that lead to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    state: State,
    since_ms: i64,
    /// Since when the condition holds.
    active_ms: Option<i64>,
    /// Since when the condition of a firing alert does not hold.
    clear_ms: Option<i64>,
    /// Time of the latest data.
    data_ms: i64,
    /// Data is absent, or not yet back for long enough.
    is_gone: bool,
    /// Since when data is back.
    back_ms: Option<i64>,
    /// Since when the alarm is on; kept while data is absent.
    fired_ms: Option<i64>,
    /// The latest verdict.
    holds: bool,
    #[serde(with = "crate::saved::bits")]
    value: f64,
    /// Restored after a pause: the condition has to be seen again before the alert fires.
    is_unconfirmed: bool,
}

impl Machine {
    pub(crate) fn new(now_ms: i64) -> Self {
        Self {
            state: State::Inactive,
            since_ms: now_ms,
            active_ms: None,
            clear_ms: None,
            data_ms: now_ms,
            is_gone: false,
            back_ms: None,
            fired_ms: None,
            holds: false,
            value: 0.0,
            is_unconfirmed: false,
        }
    }

    /// Returns the machine of a series whose condition did not hold for its latest data.
    pub(crate) fn idle(data_ms: i64, value: f64) -> Self {
        Self {
            value,
            ..Self::new(data_ms)
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn since_ms(&self) -> i64 {
        self.since_ms
    }

    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Since when the alarm is on, as far as receivers know: an alarm that lost its data is still on.
    pub(crate) fn fired_ms(&self) -> Option<i64> {
        self.fired_ms
    }

    /// Since when the condition holds, or held before the alarm.
    pub(crate) fn active_ms(&self) -> Option<i64> {
        self.active_ms
    }

    /// Takes in a verdict on data of `data_ms`; returns the state left behind if it changes.
    pub(crate) fn observe(
        &mut self,
        now_ms: i64,
        data_ms: i64,
        verdict: Verdict,
        timing: &Timing,
    ) -> Option<State> {
        match verdict {
            Verdict::Active(value) | Verdict::Clear(value) => {
                self.data_ms = self.data_ms.max(data_ms);
                self.holds = matches!(verdict, Verdict::Active(_));
                self.value = value;
                self.is_unconfirmed = false;
                if self.is_gone
                    && now_ms - data_ms < timing.nodata.map_or(i64::MAX, |nodata| nodata.for_ms)
                {
                    self.back_ms.get_or_insert(now_ms);
                }
            }
            Verdict::Missing if timing.nodata.is_none() => self.holds = false,
            Verdict::Missing => {}
        }
        self.advance(now_ms, timing)
    }

    /// Goes on to `now_ms`; returns the state left behind if it changes.
    pub(crate) fn advance(&mut self, now_ms: i64, timing: &Timing) -> Option<State> {
        let silent_ms = now_ms - self.data_ms;
        let is_absent = timing
            .nodata
            .is_some_and(|nodata| silent_ms >= nodata.for_ms);
        if self.state == State::Resolved
            && now_ms - self.since_ms >= RESOLVED_MS
            && (is_absent || !self.holds)
        {
            return self.enter(State::Inactive, now_ms);
        }
        if let Some(nodata) = timing.nodata {
            if is_absent {
                self.is_gone = true;
                self.back_ms = None;
                self.active_ms = None;
                if nodata.state != NoDataState::Ok {
                    self.clear_ms = None;
                }
                return match nodata.state {
                    NoDataState::Keep => None,
                    NoDataState::Ok => self.clear(now_ms, timing),
                    NoDataState::NoData => self.enter(State::NoData, now_ms),
                    NoDataState::Firing => {
                        self.fired_ms.get_or_insert(now_ms);
                        self.enter(State::Firing, now_ms)
                    }
                };
            }
            if self.is_gone {
                let is_steady = self
                    .back_ms
                    .is_some_and(|back_ms| now_ms - back_ms >= nodata.for_ms);
                if !is_steady && !self.holds {
                    return None;
                }
                self.is_gone = false;
                self.back_ms = None;
            }
        } else if timing
            .lookback_ms
            .is_some_and(|lookback_ms| silent_ms >= lookback_ms)
        {
            self.holds = false;
        }
        if self.holds {
            self.hold(now_ms, timing)
        } else {
            self.clear(now_ms, timing)
        }
    }

    fn hold(&mut self, now_ms: i64, timing: &Timing) -> Option<State> {
        self.clear_ms = None;
        let active_ms = *self.active_ms.get_or_insert(now_ms);
        let is_due = now_ms - active_ms >= timing.for_ms && !self.is_unconfirmed;
        if self.fired_ms.is_some() || is_due {
            self.fired_ms.get_or_insert(now_ms);
            return self.enter(State::Firing, now_ms);
        }
        self.enter(State::Pending, now_ms)
    }

    fn clear(&mut self, now_ms: i64, timing: &Timing) -> Option<State> {
        self.active_ms = None;
        if self.fired_ms.is_some() {
            let clear_ms = *self.clear_ms.get_or_insert(now_ms);
            if now_ms - clear_ms < timing.keep_firing_ms {
                return self.enter(State::Firing, now_ms);
            }
            self.fired_ms = None;
            self.clear_ms = None;
            return self.enter(State::Resolved, now_ms);
        }
        match self.state {
            // Ends by its own time.
            State::Resolved => None,
            _ => self.enter(State::Inactive, now_ms),
        }
    }

    fn enter(&mut self, state: State, now_ms: i64) -> Option<State> {
        let before = self.state;
        if before == state {
            return None;
        }
        self.state = state;
        self.since_ms = now_ms;
        Some(before)
    }

    /// Earliest time at which the state may change without a verdict.
    pub(crate) fn due_ms(&self, timing: &Timing) -> Option<i64> {
        let mut due: Option<i64> = None;
        let mut at = |at_ms: Option<i64>| due = [due, at_ms].into_iter().flatten().min();
        if self.state == State::Pending && !self.is_unconfirmed {
            at(self.active_ms.map(|ms| ms.saturating_add(timing.for_ms)));
        }
        if self.state == State::Resolved {
            at(Some(self.since_ms.saturating_add(RESOLVED_MS)));
        }
        at(self
            .clear_ms
            .map(|ms| ms.saturating_add(timing.keep_firing_ms)));
        match timing.nodata {
            Some(nodata) if !self.is_gone || self.back_ms.is_some() => {
                at(Some(self.data_ms.saturating_add(nodata.for_ms)));
                at(self.back_ms.map(|ms| ms.saturating_add(nodata.for_ms)));
            }
            None if self.holds => at(timing.lookback_ms.map(|ms| self.data_ms.saturating_add(ms))),
            _ => {}
        }
        due
    }

    /// Goes on after a pause of `pause_ms`, in which no data could arrive: the pause is not held against the series,
    /// `for` goes on, and nothing fires before its condition is seen again.
    pub(crate) fn resume(&mut self, pause_ms: i64) {
        self.data_ms += pause_ms;
        self.back_ms = self.back_ms.map(|ms| ms + pause_ms);
        self.is_unconfirmed |= pause_ms > 0;
    }

    /// Ends the alert, whatever its condition; returns the state left behind if it changes.
    pub(crate) fn end(&mut self, now_ms: i64) -> Option<State> {
        let was_on = self.fired_ms.take().is_some();
        (self.active_ms, self.clear_ms, self.holds) = (None, None, false);
        self.enter(
            if was_on {
                State::Resolved
            } else {
                State::Inactive
            },
            now_ms,
        )
    }

    /// Time of the latest data, if that is all there is to save: [`idle`](Self::idle) of it goes on the same.
    pub(crate) fn idle_data_ms(&self) -> Option<i64> {
        let is_plain = self.is_idle()
            && !self.is_gone
            && !self.is_unconfirmed
            && !self.holds
            && self.active_ms.is_none()
            && self.clear_ms.is_none();
        is_plain.then_some(self.data_ms)
    }

    /// Returns whether nothing has to be remembered of the alert, but for its data.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Inactive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States after each step; a step is seconds and what is seen: `+` the condition holds, `-` it does not, `.` time
    /// alone.
    fn check(timing: Timing, steps: &[(i64, char)], expected: &str) {
        let mut machine = Machine::new(0);
        let mut found = Vec::new();
        for (at, seen) in steps {
            let now_ms = at * 1000;
            match seen {
                '+' => machine.observe(now_ms, now_ms, Verdict::Active(1.0), &timing),
                '-' => machine.observe(now_ms, now_ms, Verdict::Clear(0.0), &timing),
                '?' => machine.observe(now_ms, now_ms, Verdict::Missing, &timing),
                _ => machine.advance(now_ms, &timing),
            };
            found.push(machine.state().name());
        }
        assert_eq!(found.join(" "), expected);
    }

    fn nodata(state: NoDataState) -> Timing {
        let nodata = Some(NoData {
            for_ms: 20_000,
            state,
        });
        Timing {
            nodata,
            ..Timing::default()
        }
    }

    #[test]
    fn a_condition_fires_after_its_time_and_resolves() {
        let timing = Timing {
            for_ms: 5_000,
            ..Timing::default()
        };
        check(
            timing,
            &[
                (0, '-'),
                (1, '+'),
                (5, '+'),
                (6, '.'),
                (7, '-'),
                (8, '+'),
                (9, '-'),
            ],
            "inactive pending pending firing resolved pending inactive",
        );
        check(
            Timing::default(),
            &[(1, '+'), (2, '-'), (901, '.'), (902, '.')],
            "firing resolved resolved inactive",
        );
    }

    #[test]
    fn firing_is_kept_for_its_time() {
        let timing = Timing {
            keep_firing_ms: 10_000,
            ..Timing::default()
        };
        check(
            timing,
            &[
                (0, '+'),
                (1, '-'),
                (9, '+'),
                (10, '-'),
                (19, '.'),
                (20, '.'),
            ],
            "firing firing firing firing firing resolved",
        );
    }

    #[test]
    fn absence_has_its_own_time_in_both_directions() {
        // A sample every 30 s, each counts for 20 s: no flapping.
        let steps = [
            (0, '-'),
            (20, '.'),
            (30, '-'),
            (50, '.'),
            (60, '-'),
            (70, '-'),
            (80, '-'),
        ];
        check(
            nodata(NoDataState::NoData),
            &steps,
            "inactive nodata nodata nodata nodata nodata inactive",
        );
        check(
            nodata(NoDataState::Firing),
            &steps,
            "inactive firing firing firing firing firing resolved",
        );
    }

    #[test]
    fn an_alarm_without_data_stays_open_and_does_not_fire_twice() {
        let timing = nodata(NoDataState::NoData);
        let mut machine = Machine::new(0);
        machine.observe(0, 0, Verdict::Active(1.0), &timing);
        assert_eq!(machine.advance(20_000, &timing), Some(State::Firing));
        assert_eq!(
            (machine.state(), machine.fired_ms()),
            (State::NoData, Some(0))
        );
        machine.observe(30_000, 30_000, Verdict::Active(2.0), &timing);
        assert_eq!(
            (machine.state(), machine.fired_ms()),
            (State::Firing, Some(0))
        );
    }

    #[test]
    fn the_state_of_absence_is_a_choice() {
        let steps = [(0, '+'), (10, '?'), (20, '.'), (21, '+')];
        check(
            nodata(NoDataState::Keep),
            &steps,
            "firing firing firing firing",
        );
        check(
            nodata(NoDataState::Ok),
            &steps,
            "firing firing resolved firing",
        );
        check(
            nodata(NoDataState::NoData),
            &steps,
            "firing firing nodata firing",
        );
    }

    #[test]
    fn without_nodata_a_missing_value_does_not_hold() {
        check(Timing::default(), &[(0, '+'), (1, '?')], "firing resolved");
        let timing = Timing {
            lookback_ms: Some(5_000),
            ..Timing::default()
        };
        check(
            timing,
            &[(0, '+'), (4, '.'), (5, '.')],
            "firing firing resolved",
        );
    }

    #[test]
    fn every_change_by_time_is_announced_by_its_due_time() {
        // Random verdicts, and then time alone: the state never changes before the due time, which is then the change.
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..3000 {
            let state = [
                NoDataState::NoData,
                NoDataState::Firing,
                NoDataState::Ok,
                NoDataState::Keep,
            ][random(4) as usize];
            let has_nodata = random(2) == 0;
            let timing = Timing {
                for_ms: random(5) as i64,
                keep_firing_ms: random(5) as i64,
                nodata: has_nodata.then_some(NoData {
                    for_ms: 1 + random(6) as i64,
                    state,
                }),
                lookback_ms: (random(2) == 0).then_some(7),
            };
            let (mut machine, mut now_ms) = (Machine::new(0), 0);
            for _ in 0..30 {
                let due_ms = machine.due_ms(&timing);
                now_ms += 1 + random(3) as i64;
                let mut copy = machine;
                let changed = copy.advance(now_ms, &timing).is_some();
                assert!(
                    !changed || due_ms.is_some_and(|due_ms| due_ms <= now_ms),
                    "{machine:?} {timing:?} {now_ms}"
                );
                let verdict = [Verdict::Active(1.0), Verdict::Clear(0.0), Verdict::Missing]
                    [random(3) as usize];
                if random(2) == 0 {
                    machine.observe(now_ms, now_ms, verdict, &timing);
                } else {
                    machine = copy;
                }
            }
        }
    }
}
