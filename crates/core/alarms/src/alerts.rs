//! All alerts that are not inactive, and those whose data is watched: found by rule and series, and woken by time.

use crate::condition::Verdict;
use crate::state::{Machine, State, Timing};
use sheaf_samples::Labels;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name of an alert in the table; a later alert in the same place has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AlertId {
    index: u32,
    generation: u32,
}

/// One alert.
#[derive(Clone, Debug)]
pub(crate) struct Alert {
    pub(crate) rule: usize,
    /// Labels of the series, without its name.
    pub(crate) key: Arc<Labels>,
    /// Labels of the alert, as receivers see them.
    pub(crate) labels: Arc<Labels>,
    pub(crate) annotations: Arc<[(String, String)]>,
    pub(crate) machine: Machine,
    /// Since when receivers take it for firing.
    pub(crate) open_ms: Option<i64>,
    /// When the texts were last made.
    pub(crate) rendered_ms: i64,
    /// Time at which the table wakes the alert.
    wake_ms: Option<i64>,
    is_seen: bool,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) id: AlertId,
    pub(crate) from: State,
}

#[derive(Debug, Default)]
pub(crate) struct Alerts {
    slots: Vec<(u32, Option<Alert>)>,
    free: Vec<u32>,
    by_rule: Vec<BTreeMap<Arc<Labels>, AlertId>>,
    wakes: BTreeSet<(i64, AlertId)>,
}

impl Alerts {
    pub(crate) fn new(rules: usize) -> Self {
        Self {
            by_rule: vec![BTreeMap::new(); rules],
            ..Self::default()
        }
    }

    pub(crate) fn get(&self, id: AlertId) -> Option<&Alert> {
        let (generation, alert) = self.slots.get(id.index as usize)?;
        (*generation == id.generation)
            .then_some(alert.as_ref())
            .flatten()
    }

    pub(crate) fn get_mut(&mut self, id: AlertId) -> Option<&mut Alert> {
        let (generation, alert) = self.slots.get_mut(id.index as usize)?;
        (*generation == id.generation)
            .then_some(alert.as_mut())
            .flatten()
    }

    pub(crate) fn find(&self, rule: usize, key: &Labels) -> Option<AlertId> {
        self.by_rule[rule].get(key).copied()
    }

    pub(crate) fn of_rule(&self, rule: usize) -> impl Iterator<Item = AlertId> {
        self.by_rule[rule].values().copied()
    }

    pub(crate) fn len_of_rule(&self, rule: usize) -> usize {
        self.by_rule[rule].len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AlertId, &Alert)> {
        self.by_rule
            .iter()
            .flat_map(|rule| rule.values())
            .filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Adds an alert; the caller has checked that there is none with this key.
    pub(crate) fn add(
        &mut self,
        rule: usize,
        key: Arc<Labels>,
        machine: Machine,
        timing: &Timing,
    ) -> AlertId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("alerts are bounded far below")
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(Alert {
            rule,
            labels: Arc::clone(&key),
            key: Arc::clone(&key),
            annotations: Arc::default(),
            machine,
            open_ms: None,
            rendered_ms: i64::MIN,
            wake_ms: None,
            is_seen: false,
        });
        let id = AlertId {
            index,
            generation: slot.0,
        };
        self.by_rule[rule].insert(key, id);
        self.reschedule(id, i64::MIN, timing);
        id
    }

    pub(crate) fn remove(&mut self, id: AlertId) {
        let Some((generation, slot)) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        if *generation != id.generation {
            return;
        }
        if let Some(alert) = slot.take() {
            *generation = generation.wrapping_add(1);
            self.free.push(id.index);
            self.by_rule[alert.rule].remove(&alert.key);
            if let Some(wake_ms) = alert.wake_ms {
                self.wakes.remove(&(wake_ms, id));
            }
        }
    }

    /// Takes in a verdict; returns the change of state, if there is one.
    pub(crate) fn observe(
        &mut self,
        id: AlertId,
        (now_ms, data_ms): (i64, i64),
        verdict: Verdict,
        timing: &Timing,
    ) -> Option<Change> {
        let alert = self.get_mut(id)?;
        let from = alert.machine.observe(now_ms, data_ms, verdict, timing);
        self.reschedule(id, now_ms, timing);
        from.map(|from| Change { id, from })
    }

    /// Marks alerts of `rule` as not seen in the evaluation that begins.
    pub(crate) fn begin(&mut self, rule: usize) {
        let ids: Vec<AlertId> = self.of_rule(rule).collect();
        for id in ids {
            if let Some(alert) = self.get_mut(id) {
                alert.is_seen = false;
            }
        }
    }

    pub(crate) fn mark(&mut self, id: AlertId) {
        if let Some(alert) = self.get_mut(id) {
            alert.is_seen = true;
        }
    }

    /// Alerts of `rule` that the evaluation has not seen.
    pub(crate) fn unseen(&self, rule: usize) -> Vec<AlertId> {
        let is_unseen = |id: &AlertId| self.get(*id).is_some_and(|alert| !alert.is_seen);
        self.of_rule(rule).filter(is_unseen).collect()
    }

    /// Takes the alerts whose time has come by `now_ms`, in the order of rules and series: places in the table differ
    /// after a restart, and what comes out of alarms does not.
    pub(crate) fn take_due(&mut self, now_ms: i64) -> Vec<AlertId> {
        let mut due = Vec::new();
        while let Some((wake_ms, id)) = self.wakes.first().copied() {
            if wake_ms > now_ms {
                break;
            }
            self.wakes.pop_first();
            if let Some(alert) = self.get_mut(id) {
                alert.wake_ms = None;
                due.push((alert.rule, Arc::clone(&alert.key), id));
            }
        }
        due.sort();
        due.into_iter().map(|one| one.2).collect()
    }

    pub(crate) fn next_wake_ms(&self) -> Option<i64> {
        self.wakes.first().map(|wake| wake.0)
    }

    /// Goes on in time; returns the change of state, if there is one.
    pub(crate) fn advance(&mut self, id: AlertId, now_ms: i64, timing: &Timing) -> Option<Change> {
        let alert = self.get_mut(id)?;
        let from = alert.machine.advance(now_ms, timing);
        self.reschedule(id, now_ms, timing);
        from.map(|from| Change { id, from })
    }

    /// A wake that is too early is left: an alert that gets data all the time would move its wake at every sample.
    ///
    /// The wake is after `now_ms`, so that an alert is woken once at a time.
    fn reschedule(&mut self, id: AlertId, now_ms: i64, timing: &Timing) {
        let Some(alert) = self.get_mut(id) else {
            return;
        };
        let Some(due_ms) = alert.machine.due_ms(timing) else {
            return;
        };
        let due_ms = due_ms.max(now_ms + 1);
        let before = alert.wake_ms;
        if before.is_some_and(|wake_ms| wake_ms <= due_ms) {
            return;
        }
        alert.wake_ms = Some(due_ms);
        if let Some(wake_ms) = before {
            self.wakes.remove(&(wake_ms, id));
        }
        self.wakes.insert((due_ms, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(epn: &str) -> Arc<Labels> {
        Arc::new(Labels::new([("epn", epn)]).unwrap())
    }

    #[test]
    fn a_place_that_is_used_again_is_another_alert() {
        let mut alerts = Alerts::new(1);
        let timing = Timing::default();
        let old = alerts.add(0, key("1"), Machine::new(0), &timing);
        alerts.remove(old);
        let new = alerts.add(0, key("2"), Machine::new(0), &timing);
        assert_eq!(old.index, new.index);
        assert!(alerts.get(old).is_none());
        alerts.remove(old);
        assert_eq!(alerts.find(0, &key("2")), Some(new));
        assert_eq!(
            (alerts.find(0, &key("1")), alerts.len_of_rule(0)),
            (None, 1)
        );
    }

    #[test]
    fn alerts_wake_when_their_time_has_come() {
        let mut alerts = Alerts::new(1);
        let timing = Timing {
            for_ms: 1000,
            ..Timing::default()
        };
        let [first, second] =
            ["1", "2"].map(|epn| alerts.add(0, key(epn), Machine::new(0), &timing));
        alerts.observe(second, (0, 0), Verdict::Active(1.0), &timing);
        alerts.observe(first, (5, 5), Verdict::Active(1.0), &timing);
        assert_eq!(alerts.next_wake_ms(), Some(1000));
        assert_eq!(alerts.take_due(1001), [second]);
        let change = alerts.advance(second, 1001, &timing);
        assert_eq!(
            change,
            Some(Change {
                id: second,
                from: State::Pending
            })
        );
        assert_eq!(alerts.take_due(1005), [first]);
    }
}
