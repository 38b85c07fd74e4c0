//! Table of nodes for the live screen.

use super::{Watch, icn};
use sheaf_node::status::{FarmStatus, Quantiles};
use sheaf_protocol::{EpnId, FlpId, NodeId};

/// Row of the table of nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Name of the node.
    pub(crate) node: NodeId,
    /// `up`, `silent`, `killed`, …
    pub(crate) state: String,
    /// TFs decided, STFs made or TFs delivered, a second.
    pub(crate) items_per_s: f64,
    /// Payload sent or received, in MB/s.
    pub(crate) mb_per_s: f64,
    /// First announce to commit; only of EPNs.
    pub(crate) latency_us: Option<Quantiles>,
    /// Bytes held, in building, or with the consumer.
    pub(crate) buffered_bytes: u64,
}

impl Watch {
    /// Returns whether an ICN has reported the farm.
    pub(crate) fn has_status(&self) -> bool {
        !self.statuses.is_empty()
    }

    /// Returns a row for each ICN that has reported, then for each FLP, then for each EPN.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let status = self.status();
        let icns = self
            .offices
            .iter()
            .map(|(index, leads)| self.icn_row(*index, *leads));
        let flps = status
            .flps
            .iter()
            .map(|flp| self.flp_row(&status, flp.index));
        let epns = status
            .epns
            .iter()
            .map(|epn| self.epn_row(&status, epn.index));
        let others = flps.chain(epns).flatten();
        icns.chain(others).collect()
    }

    /// Returns the row of an ICN, which decides TFs and carries no bytes.
    fn icn_row(&self, index: u16, leads: bool) -> Row {
        let role = match (self.offices.len(), leads) {
            (1, true) => "up",
            (_, true) => "leads",
            (_, false) => "standby",
        };
        let decided = |status: &FarmStatus| {
            let accounting = &status.accounting;
            accounting.complete + accounting.incomplete + accounting.dropped.values().sum::<u64>()
        };
        Row {
            node: icn(index),
            state: self.state(icn(index), role),
            items_per_s: if leads { self.rate(decided) } else { 0.0 },
            mb_per_s: 0.0,
            latency_us: None,
            buffered_bytes: 0,
        }
    }

    fn flp_row(&self, status: &FarmStatus, index: u16) -> Option<Row> {
        let of = |status: &FarmStatus| status.flps.iter().find(|flp| flp.index == index).cloned();
        let now = of(status)?;
        Some(Row {
            node: FlpId(index).into(),
            state: self.state(FlpId(index).into(), &now.state),
            items_per_s: self.rate(|status| of(status).map_or(0, |flp| flp.made_stfs)),
            mb_per_s: self.rate(|status| of(status).map_or(0, |flp| flp.sent_bytes)) / 1e6,
            latency_us: None,
            buffered_bytes: self.held(FlpId(index).into(), now.held_bytes),
        })
    }

    fn epn_row(&self, status: &FarmStatus, index: u16) -> Option<Row> {
        let of = |status: &FarmStatus| status.epns.iter().find(|epn| epn.index == index).cloned();
        let now = of(status)?;
        Some(Row {
            node: EpnId(index).into(),
            state: self.state(EpnId(index).into(), &now.state),
            items_per_s: self.rate(|status| of(status).map_or(0, |epn| epn.delivered_tfs)),
            mb_per_s: self.rate(|status| of(status).map_or(0, |epn| epn.received_bytes)) / 1e6,
            latency_us: Some(now.latency_us),
            buffered_bytes: self.held(EpnId(index).into(), now.open_bytes + now.sink_bytes),
        })
    }

    /// Returns the bytes that a node holds: those of its last status, or none if it was killed.
    fn held(&self, node: NodeId, reported_bytes: u64) -> u64 {
        let is_dead = self.marks.get(&node).is_some_and(|mark| mark == "killed");
        if is_dead { 0 } else { reported_bytes }
    }

    fn state(&self, node: NodeId, reported: &str) -> String {
        self.marks
            .get(&node)
            .cloned()
            .unwrap_or_else(|| reported.to_owned())
    }
}
