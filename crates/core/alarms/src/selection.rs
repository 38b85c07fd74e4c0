//! Series that online rules read: what the driver of a shard asks of each new series, without the alarms themselves.

use crate::online::Plan;
use sheaf_samples::{Labels, Matcher};
use std::collections::BTreeMap;

/// Series that the online rules of one set of rules read. Cheap to ask, and sent to other threads.
#[derive(Clone, Debug, Default)]
pub struct SeriesSelection {
    by_name: BTreeMap<String, Vec<Vec<Matcher>>>,
}

impl SeriesSelection {
    pub(crate) fn new<'a>(plans: impl Iterator<Item = &'a Plan>) -> Self {
        let mut by_name: BTreeMap<String, Vec<Vec<Matcher>>> = BTreeMap::new();
        for input in plans.flat_map(|plan| &plan.inputs) {
            let of_name = by_name.entry(input.name.clone()).or_default();
            if !of_name.contains(&input.matchers) {
                of_name.push(input.matchers.clone());
            }
        }
        Self { by_name }
    }

    /// Returns whether any online rule reads the series with `labels`.
    #[must_use]
    pub fn reads(&self, labels: &Labels) -> bool {
        let of_name = labels.name().and_then(|name| self.by_name.get(name));
        let is_read = |matchers: &Vec<Matcher>| matchers.iter().all(|one| one.is_match(labels));
        of_name.is_some_and(|all| all.iter().any(is_read))
    }

    /// Selectors, each once: the name of a metric and further conditions.
    pub fn selectors(&self) -> impl Iterator<Item = (&str, &[Matcher])> {
        let all = self.by_name.iter();
        all.flat_map(|(name, lists)| lists.iter().map(move |one| (name.as_str(), &one[..])))
    }
}

#[cfg(test)]
mod tests {
    use crate::alarms::{Alarms, AlarmsConfig};
    use crate::{Routing, RuleFile};
    use sheaf_samples::Labels;

    #[test]
    fn only_series_of_online_rules_are_read() {
        let rules = "groups: [{name: g, rules: [
            {alert: A, expr: 'x{epn=\"1\"} > 1', online: true},
            {alert: B, expr: 'rate(x{epn=\"1\"}[1m]) > 1', online: true},
            {alert: C, expr: 'late > 1'}]}]";
        let rules = RuleFile::parse("r.yml", rules).unwrap();
        let alarms = Alarms::new(AlarmsConfig::default(), &[rules], Routing::default());
        let selection = alarms.selection();
        let reads = |name: &str, epn: &str| {
            selection.reads(&Labels::new([("__name__", name), ("epn", epn)]).unwrap())
        };
        assert!(reads("x", "1"));
        assert!(!reads("x", "2") && !reads("late", "1"));
        assert_eq!(selection.selectors().count(), 1);
    }
}
