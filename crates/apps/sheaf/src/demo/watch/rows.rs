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
    /// STFs held, or TFs in building.
    pub(crate) held_items: Option<u64>,
    /// TFs of the run that an FLP has neither announced nor skipped.
    pub(crate) lag_tfs: Option<u64>,
    /// Counter of TF ids of a source: `in-step`, `behind`, `ahead` or `unknown`; empty for other nodes.
    pub(crate) counter: String,
    /// STFs of its source that an FLP refused; STFs that an EPN refused because they were there already.
    pub(crate) refused_stfs: Option<u64>,
    /// Bytes with the consumer.
    pub(crate) sink_bytes: Option<u64>,
    /// Share of the work relative to other EPNs.
    pub(crate) weight: Option<f64>,
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
            held_items: None,
            lag_tfs: None,
            counter: String::new(),
            refused_stfs: None,
            sink_bytes: None,
            weight: None,
        }
    }

    fn flp_row(&self, status: &FarmStatus, index: u16) -> Option<Row> {
        let of = |status: &FarmStatus| status.flps.iter().find(|flp| flp.index == index).cloned();
        let now = of(status)?;
        let state = self.state(FlpId(index).into(), &now.state);
        let lives = f64::from(u8::from(!is_gone(&state)));
        Some(Row {
            node: FlpId(index).into(),
            items_per_s: lives * self.rate(|status| of(status).map_or(0, |flp| flp.made_stfs)),
            mb_per_s: lives * self.rate(|status| of(status).map_or(0, |flp| flp.sent_bytes)) / 1e6,
            latency_us: None,
            buffered_bytes: held(&state, now.held_bytes),
            held_items: Some(held(&state, now.held_stfs)),
            lag_tfs: Some(now.lag_tfs),
            counter: now.counter,
            refused_stfs: Some(now.refused_stfs),
            sink_bytes: None,
            weight: None,
            state,
        })
    }

    fn epn_row(&self, status: &FarmStatus, index: u16) -> Option<Row> {
        let of = |status: &FarmStatus| status.epns.iter().find(|epn| epn.index == index).cloned();
        let now = of(status)?;
        let state = self.state(EpnId(index).into(), &now.state);
        let lives = f64::from(u8::from(!is_gone(&state)));
        let received = |status: &FarmStatus| of(status).map_or(0, |epn| epn.received_bytes);
        Some(Row {
            node: EpnId(index).into(),
            items_per_s: lives * self.rate(|status| of(status).map_or(0, |epn| epn.delivered_tfs)),
            mb_per_s: lives * self.rate(received) / 1e6,
            latency_us: Some(now.latency_us),
            buffered_bytes: held(&state, now.open_bytes + now.sink_bytes),
            held_items: Some(held(&state, now.open_tfs)),
            lag_tfs: None,
            counter: String::new(),
            refused_stfs: Some(self.duplicates_refused_by(index)),
            sink_bytes: Some(held(&state, now.sink_bytes)),
            weight: Some(f64::from(now.weight_milli) / 1000.0),
            state,
        })
    }

    fn state(&self, node: NodeId, reported: &str) -> String {
        self.marks
            .get(&node)
            .cloned()
            .unwrap_or_else(|| reported.to_owned())
    }
}

/// Returns whether a node in `state` does nothing: it is dead, or has no way to the farm.
fn is_gone(state: &str) -> bool {
    matches!(state, "gone" | "cut" | "left" | "killed" | "failed")
}

/// Returns what a node holds: as in its last status, or nothing if it does not live.
fn held(state: &str, reported: u64) -> u64 {
    if matches!(state, "gone" | "left" | "killed" | "failed") {
        0
    } else {
        reported
    }
}
