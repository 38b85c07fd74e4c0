//! States of FLPs and EPNs as metrics of the ICN that leads.

use sheaf_metrics::{Metric, Registry};
use sheaf_protocol::NodeId;
use std::collections::BTreeMap;

const STATE: Metric = Metric::gauge(
    "balance_node_state",
    "1 for the state that an FLP or EPN is in, 0 for states that it has left.",
)
.labels(&["icn", "node", "state"])
.advice(
    "the states of `sheaf status`: `up`, `ended`, `leaving`, `disabled`, `silent`, `cut`, `left`, `gone`. Of an ICN \
     that leads no more all are 0",
);
const UP: Metric = Metric::gauge(
    "balance_node_up",
    "1 while an FLP or EPN is a living member of the run, else 0.",
)
.labels(&["icn", "node"])
.advice("0: **alarm**, a node has died, hangs or is cut off; `balance_node_state` says which");

/// Lists the metrics of the states of nodes.
pub(super) fn metrics() -> [Metric; 2] {
    [STATE, UP]
}

/// States that were shown last, so that one that a node has left becomes 0.
#[derive(Debug, Default)]
pub(super) struct NodeStates {
    shown: BTreeMap<NodeId, String>,
}

/// State of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) node: NodeId,
    /// Name of the state in status views.
    pub(super) name: String,
    pub(super) is_up: bool,
}

impl NodeStates {
    /// Brings the metrics up to date with `states`, those of all nodes that the ICN `icn` knows; none if it does not
    /// lead.
    pub(super) fn export(&mut self, registry: &Registry, icn: u16, states: Vec<NodeState>) {
        let icn = icn.to_string();
        let set_state = |node: NodeId, state: &str, value| {
            let node = node.to_string();
            let labels = [("icn", &*icn), ("node", &*node), ("state", state)];
            registry.set(&STATE, &labels, value);
        };
        let set_up = |node: NodeId, is_up: bool| {
            let node = node.to_string();
            registry.set(&UP, &[("icn", &*icn), ("node", &*node)], is_up.into());
        };
        let mut before = std::mem::take(&mut self.shown);
        for NodeState { node, name, is_up } in states {
            let former = before.remove(&node);
            if let Some(former) = former.filter(|former| *former != name) {
                set_state(node, &former, 0);
            }
            set_state(node, &name, 1);
            set_up(node, is_up);
            self.shown.insert(node, name);
        }
        for (node, state) in before {
            set_state(node, &state, 0);
            set_up(node, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    fn lines(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        registry.encode(&mut text);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    fn state(node: NodeId, name: &str, is_up: bool) -> NodeState {
        let name = name.to_owned();
        NodeState { node, name, is_up }
    }

    #[test]
    fn a_node_has_one_state_and_none_when_the_icn_leads_no_more() {
        let registry = Registry::default();
        let mut states = NodeStates::default();
        let (epn, flp) = (EpnId(3).into(), FlpId(0).into());
        let both = vec![state(epn, "up", true), state(flp, "ended", true)];
        states.export(&registry, 1, both);
        states.export(&registry, 1, vec![state(epn, "cut", false)]);
        let expected = [
            "balance_node_state{icn=\"1\",node=\"epn:3\",state=\"cut\"} 1",
            "balance_node_state{icn=\"1\",node=\"epn:3\",state=\"up\"} 0",
            "balance_node_state{icn=\"1\",node=\"flp:0\",state=\"ended\"} 0",
            "balance_node_up{icn=\"1\",node=\"epn:3\"} 0",
            "balance_node_up{icn=\"1\",node=\"flp:0\"} 0",
        ];
        assert_eq!(lines(&registry), expected);
        states.export(&registry, 1, Vec::new());
        assert!(lines(&registry).iter().all(|line| line.ends_with(" 0")));
        states.export(&registry, 1, vec![state(epn, "up", true)]);
        let up = "balance_node_up{icn=\"1\",node=\"epn:3\"} 1";
        assert!(lines(&registry).iter().any(|line| line == up));
    }
}
