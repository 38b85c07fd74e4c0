//! Orders from alarms to the farm, and what keeps them few.
//!
//! This module answers *may this alarm drain that EPN now?* A wrong rule must not empty a farm: an order is a dry run
//! unless its rule says otherwise, and no more than a few nodes get orders within a time, counted for each rule and
//! over all rules. Dry runs are counted as well, by themselves, so that a dry run shows what would happen.

use crate::duration;
use crate::rule::{Action, ActionOrder, OrderLimit};
use crate::saved;
use serde::{Deserialize, Serialize};
use sheaf_samples::Labels;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most orders that wait for the driver.
const WAITING_MAX: usize = 1000;
/// Most orders that are remembered for limits.
const LEDGER_MAX: usize = 10_000;

/// An order to the farm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Number, by which the driver reports what became of it.
    pub id: u64,
    /// When it was decided, in ms since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Action to carry out.
    pub kind: OrderKind,
    /// Whether to do nothing but write it down.
    pub is_dry_run: bool,
    /// Rule, labels and value that led to it, for the logs of the farm.
    pub reason: String,
    /// Name of the rule.
    pub alert: String,
}

/// Action of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// Drains an EPN: no new TFs, and an end when it has none left.
    Drain {
        /// Index of the EPN.
        epn: u32,
    },
    /// Sets the share of an EPN.
    SetWeight {
        /// Index of the EPN.
        epn: u32,
        /// Share in thousandths.
        weight_milli: u32,
    },
    /// Ends the run.
    Stop,
}

impl std::fmt::Display for OrderKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drain { epn } => write!(f, "drain epn {epn}"),
            Self::SetWeight { epn, weight_milli } => {
                write!(
                    f,
                    "set weight of epn {epn} to {}",
                    f64::from(*weight_milli) / 1000.0
                )
            }
            Self::Stop => f.write_str("stop"),
        }
    }
}

/// Reason why an alarm gives no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderRefusal {
    #[error("target {0:?}, expected \"epn\" and an index")]
    Target(String),
    #[error("{found} nodes within {} of {scope}, expected {} at most", duration::format(limit.in_ms), limit.nodes)]
    Limit {
        scope: &'static str,
        found: usize,
        limit: OrderLimit,
    },
    #[error("{node} had an order {} ago, expected {} in between", duration::format(*since_ms), duration::format(*cooldown_ms))]
    Cooldown {
        node: String,
        since_ms: i64,
        cooldown_ms: i64,
    },
    #[error("{WAITING_MAX} orders wait for the farm, expected fewer")]
    Waiting,
}

/// An order of the past, for limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Given {
    at_ms: i64,
    rule: String,
    node: String,
    is_dry_run: bool,
}

/// Order that sets a share back when its alert resolves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Undo {
    rule: String,
    #[serde(with = "saved::labels")]
    key: Arc<Labels>,
    epn: u32,
    weight_milli: u32,
    is_dry_run: bool,
}

/// Subject of an alarm, for the reason of an order.
pub(crate) struct Cause<'a> {
    /// Name of the rule with that of its group, unique.
    pub(crate) rule: &'a str,
    pub(crate) alert: &'a str,
    /// Labels of the series.
    pub(crate) key: &'a Arc<Labels>,
    /// Labels of the alert.
    pub(crate) labels: &'a Labels,
    pub(crate) value: f64,
}

/// Orders that were given, and those that wait.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Orders {
    next_id: u64,
    ledger: VecDeque<Given>,
    undo: Vec<Undo>,
    /// Orders without an outcome.
    waiting: BTreeMap<u64, Order>,
    /// First order that this life of the process has not handed out.
    #[serde(skip)]
    handed_to: u64,
}

impl Orders {
    /// Decides on the order of an alarm that fires.
    pub(crate) fn decide(
        &mut self,
        now_ms: i64,
        action: &Action,
        cause: &Cause<'_>,
        all: OrderLimit,
    ) -> Result<Order, (String, OrderRefusal)> {
        let target = action
            .target
            .as_ref()
            .map(|target| target.render(cause.labels, cause.value));
        let described = match (action.order, &target) {
            (ActionOrder::Drain, Some(target)) => format!("drain {target}"),
            (ActionOrder::SetWeight { weight_milli, .. }, Some(target)) => {
                format!(
                    "set weight of {target} to {}",
                    f64::from(weight_milli) / 1000.0
                )
            }
            _ => "stop".to_owned(),
        };
        let (kind, node) = match order_kind(action.order, target.as_deref()) {
            Ok(kind) => kind,
            Err(refusal) => return Err((described, refusal)),
        };
        let refuse = |refusal| Err((kind.to_string(), refusal));
        if self.waiting.len() >= WAITING_MAX {
            return refuse(OrderRefusal::Waiting);
        }
        let earlier = self
            .ledger
            .iter()
            .filter(|one| one.is_dry_run == action.is_dry_run);
        let last = earlier
            .filter(|one| one.node == node)
            .map(|one| one.at_ms)
            .max();
        if let Some(since_ms) = last
            .map(|at_ms| now_ms - at_ms)
            .filter(|since| *since < action.cooldown_ms)
        {
            return refuse(OrderRefusal::Cooldown {
                node,
                since_ms,
                cooldown_ms: action.cooldown_ms,
            });
        }
        for (scope, limit, rule) in [
            ("this rule", action.limit, Some(cause.rule)),
            ("all rules", all, None),
        ] {
            let found = self.nodes(now_ms, limit.in_ms, action.is_dry_run, rule);
            if !found.contains(node.as_str()) && found.len() >= limit.nodes as usize {
                let found = found.len();
                return refuse(OrderRefusal::Limit {
                    scope,
                    found,
                    limit,
                });
            }
        }
        if self.ledger.len() >= LEDGER_MAX {
            self.ledger.pop_front();
        }
        let rule = cause.rule.to_owned();
        self.ledger.push_back(Given {
            at_ms: now_ms,
            rule: rule.clone(),
            node,
            is_dry_run: action.is_dry_run,
        });
        if let (
            ActionOrder::SetWeight {
                undo_milli: Some(weight_milli),
                ..
            },
            OrderKind::SetWeight { epn, .. },
        ) = (action.order, kind)
            && self.undo.len() < LEDGER_MAX
        {
            let key = Arc::clone(cause.key);
            self.undo.push(Undo {
                rule,
                key,
                epn,
                weight_milli,
                is_dry_run: action.is_dry_run,
            });
        }
        let reason = format!(
            "{} {} has the value {}",
            cause.alert, cause.labels, cause.value
        );
        Ok(self.give(now_ms, kind, action.is_dry_run, reason, cause.alert))
    }

    /// Returns the order that takes back what an alarm did which is over.
    pub(crate) fn undo(&mut self, now_ms: i64, cause: &Cause<'_>) -> Option<Order> {
        let at = self
            .undo
            .iter()
            .position(|one| one.rule == cause.rule && one.key == *cause.key)?;
        let Undo {
            epn,
            weight_milli,
            is_dry_run,
            ..
        } = self.undo.remove(at);
        let reason = format!("{} {} is resolved", cause.alert, cause.labels);
        Some(self.give(
            now_ms,
            OrderKind::SetWeight { epn, weight_milli },
            is_dry_run,
            reason,
            cause.alert,
        ))
    }

    fn give(
        &mut self,
        at_ms: i64,
        kind: OrderKind,
        is_dry_run: bool,
        reason: String,
        alert: &str,
    ) -> Order {
        let id = self.next_id;
        self.next_id += 1;
        let order = Order {
            id,
            at_ms,
            kind,
            is_dry_run,
            reason,
            alert: alert.to_owned(),
        };
        self.waiting.insert(id, order.clone());
        order
    }

    /// Distinct nodes that got orders in the `in_ms` before `now_ms`.
    fn nodes(
        &self,
        now_ms: i64,
        in_ms: i64,
        is_dry_run: bool,
        rule: Option<&str>,
    ) -> BTreeSet<&str> {
        let is_counted = |one: &&Given| {
            one.is_dry_run == is_dry_run
                && now_ms - one.at_ms < in_ms
                && rule.is_none_or(|rule| rule == one.rule)
        };
        self.ledger
            .iter()
            .filter(is_counted)
            .map(|one| one.node.as_str())
            .collect()
    }

    /// Takes the next order to hand to the driver. Dry runs need no outcome.
    pub(crate) fn poll(&mut self) -> Option<Order> {
        let (id, order) = self.waiting.range(self.handed_to..).next()?;
        self.handed_to = id + 1;
        let order = order.clone();
        if order.is_dry_run {
            self.waiting.remove(&order.id);
        }
        Some(order)
    }

    /// Takes the outcome of an order; `None` if it is not waited for.
    pub(crate) fn finish(&mut self, id: u64) -> Option<Order> {
        self.waiting.remove(&id)
    }

    /// Leaves with the driver what `old` had handed out to it.
    pub(crate) fn take_over(&mut self, old: &Self) {
        self.handed_to = old.handed_to;
    }

    pub(crate) fn forget_before(&mut self, at_ms: i64) {
        while self.ledger.front().is_some_and(|one| one.at_ms < at_ms) {
            self.ledger.pop_front();
        }
    }
}

fn order_kind(
    order: ActionOrder,
    target: Option<&str>,
) -> Result<(OrderKind, String), OrderRefusal> {
    let epn = |target: Option<&str>| {
        let text = target.unwrap_or_default();
        let index = text
            .strip_prefix("epn")
            .map(|rest| rest.trim_start_matches([' ', ':', '-']));
        let index = index.and_then(|index| index.trim().parse::<u32>().ok());
        index.ok_or_else(|| OrderRefusal::Target(text.to_owned()))
    };
    Ok(match order {
        ActionOrder::Drain => {
            let epn = epn(target)?;
            (OrderKind::Drain { epn }, format!("epn {epn}"))
        }
        ActionOrder::SetWeight { weight_milli, .. } => {
            let epn = epn(target)?;
            (
                OrderKind::SetWeight { epn, weight_milli },
                format!("epn {epn}"),
            )
        }
        ActionOrder::Stop => (OrderKind::Stop, "the farm".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Template;
    use proptest::prelude::*;

    const ALL: OrderLimit = OrderLimit {
        nodes: 3,
        in_ms: 60_000,
    };

    fn action(is_dry_run: bool, nodes: u32) -> Action {
        Action {
            order: ActionOrder::SetWeight {
                weight_milli: 500,
                undo_milli: Some(1000),
            },
            target: Some(Template::parse("epn {{ $labels.epn }}").unwrap()),
            is_dry_run,
            limit: OrderLimit {
                nodes,
                in_ms: 60_000,
            },
            cooldown_ms: 10_000,
        }
    }

    fn decide(
        orders: &mut Orders,
        now_ms: i64,
        rule: &str,
        epn: &str,
        action: &Action,
    ) -> Result<OrderKind, String> {
        let key = Arc::new(Labels::new([("epn", epn)]).unwrap());
        let cause = Cause {
            rule,
            alert: rule,
            key: &key,
            labels: &key,
            value: 1.0,
        };
        let order = orders.decide(now_ms, action, &cause, ALL);
        order
            .map(|order| order.kind)
            .map_err(|(_, refusal)| refusal.to_string())
    }

    #[test]
    fn a_rule_is_held_to_its_limit_and_all_rules_to_theirs() {
        let (mut orders, action) = (Orders::default(), action(false, 2));
        let kind = OrderKind::SetWeight {
            epn: 1,
            weight_milli: 500,
        };
        assert_eq!(decide(&mut orders, 0, "A", "1", &action), Ok(kind));
        assert!(decide(&mut orders, 1, "A", "2", &action).is_ok());
        assert_eq!(
            decide(&mut orders, 2, "A", "3", &action).unwrap_err(),
            "2 nodes within 1m of this rule, expected 2 at most"
        );
        assert!(decide(&mut orders, 3, "B", "3", &action).is_ok());
        assert_eq!(
            decide(&mut orders, 4, "B", "4", &action).unwrap_err(),
            "3 nodes within 1m of all rules, expected 3 at most"
        );
        assert_eq!(
            decide(&mut orders, 5000, "B", "1", &action).unwrap_err(),
            "epn 1 had an order 5s ago, expected 10s in between"
        );
        // The same node again, and after the time other nodes.
        assert!(decide(&mut orders, 10_000, "A", "1", &action).is_ok());
        assert!(decide(&mut orders, 60_003, "B", "4", &action).is_ok());
    }

    #[test]
    fn dry_runs_take_nothing_from_real_orders() {
        let mut orders = Orders::default();
        for epn in ["1", "2", "3"] {
            assert!(decide(&mut orders, 0, "A", epn, &action(true, 3)).is_ok());
        }
        assert!(decide(&mut orders, 0, "A", "4", &action(true, 3)).is_err());
        assert!(decide(&mut orders, 0, "A", "4", &action(false, 3)).is_ok());
        let dry: Vec<_> = std::iter::from_fn(|| orders.poll())
            .map(|order| order.is_dry_run)
            .collect();
        assert_eq!(dry, [true, true, true, false]);
    }

    #[test]
    fn a_share_is_set_back_once() {
        let (mut orders, action) = (Orders::default(), action(false, 2));
        decide(&mut orders, 0, "A", "7", &action).unwrap();
        let key = Arc::new(Labels::new([("epn", "7")]).unwrap());
        let cause = Cause {
            rule: "A",
            alert: "A",
            key: &key,
            labels: &key,
            value: 0.0,
        };
        let kinds = [orders.undo(5, &cause), orders.undo(6, &cause)]
            .map(|order| order.map(|order| order.kind));
        assert_eq!(
            kinds,
            [
                Some(OrderKind::SetWeight {
                    epn: 7,
                    weight_milli: 1000
                }),
                None
            ]
        );
    }

    #[test]
    fn a_target_is_an_epn() {
        let refused = decide(&mut Orders::default(), 0, "A", "x", &action(false, 1));
        assert_eq!(
            refused.unwrap_err(),
            "target \"epn x\", expected \"epn\" and an index"
        );
    }

    #[test]
    fn orders_without_outcome_are_handed_out_again_by_the_next_life() {
        let (mut orders, action) = (Orders::default(), action(false, 3));
        decide(&mut orders, 0, "A", "1", &action).unwrap();
        decide(&mut orders, 0, "A", "2", &action).unwrap();
        let first = orders.poll().unwrap();
        assert!(orders.poll().is_some() && orders.poll().is_none());
        assert!(orders.finish(first.id).is_some());
        let mut next: Orders =
            serde_json::from_str(&serde_json::to_string(&orders).unwrap()).unwrap();
        assert_eq!(
            next.poll().map(|order| order.kind),
            Some(OrderKind::SetWeight {
                epn: 2,
                weight_milli: 500
            })
        );
        assert_eq!(next.poll(), None);
    }

    proptest! {
        /// Whatever fires when: within any time of a limit, no more nodes than the limit get real orders.
        #[test]
        fn no_more_nodes_than_the_limit(
            asked in proptest::collection::vec((0_i64..20_000, 0_u32..3, 0_u32..12, any::<bool>()), 1..200),
        ) {
            let mut orders = Orders::default();
            let mut given: Vec<(i64, u32, OrderKind)> = Vec::new();
            let mut now_ms = 0;
            for (step_ms, rule, epn, is_dry_run) in asked {
                now_ms += step_ms;
                let kind = decide(&mut orders, now_ms, &format!("rule {rule}"), &epn.to_string(), &action(is_dry_run, 2));
                if let (Ok(kind), false) = (kind, is_dry_run) {
                    given.push((now_ms, rule, kind));
                }
                let nodes = |of: Option<u32>| {
                    let recent = given.iter().filter(|one| now_ms - one.0 < 60_000 && of.is_none_or(|of| of == one.1));
                    recent.map(|one| one.2.to_string()).collect::<BTreeSet<_>>().len()
                };
                prop_assert!(nodes(None) <= 3);
                prop_assert!((0..3).all(|rule| nodes(Some(rule)) <= 2));
            }
        }
    }
}
