//! Model of the views: the farm as the ICN reports it, as rates, and the latest events.

#[cfg(any(feature = "tui", test))]
mod rows;
#[cfg(test)]
pub(crate) mod tests;

#[cfg(feature = "tui")]
pub(crate) use rows::Row;

use sheaf_node::status::FarmStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::collections::{BTreeMap, VecDeque};

/// Rates are taken over about this time, in seconds.
const RATE_SPAN_S: f64 = 1.0;
/// Happenings that are kept for the views.
const HAPPENINGS_MAX: usize = 256;
/// Moments that are kept for the views: one a second.
const PAST_MAX: usize = 600;
/// Seconds between two moments.
const PAST_EVERY_S: f64 = 1.0;

/// Words for a farm that has drained and does not answer any more.
const HAS_ENDED: &str = "the farm has ended";

/// Farm at one moment of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    /// Built TFs a second.
    pub(crate) tfs_per_s: f64,
    /// Payload of built TFs, in MB/s.
    pub(crate) mb_per_s: f64,
    /// First announce to acknowledged commit, in ms: 99 of 100 TFs since the leader began are at or below.
    pub(crate) p99_ms: f64,
}

/// Something worth a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Happening {
    /// Seconds since the first announce.
    pub(crate) at_s: f64,
    /// Text of the event.
    pub(crate) text: String,
}

/// Knowledge about the farm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// The latest status last; the first is at least [`RATE_SPAN_S`] old, if there is one.
    statuses: VecDeque<FarmStatus>,
    happenings: VecDeque<Happening>,
    /// Happenings ever, those no longer kept included.
    happened: usize,
    /// State that the supervisor knows better than the ICN: killed, paused, ended.
    marks: BTreeMap<NodeId, String>,
    /// Duplicates refused, by EPN and incarnation: a new life counts from 0.
    duplicates: BTreeMap<(u16, u64), u64>,
    /// Every ICN that has told its office, and whether it led when it last did.
    offices: BTreeMap<u16, bool>,
    /// The highest term that an ICN led in.
    term: u64,
    /// The ICN that led in it.
    leader: Option<u16>,
    /// The supervisor knows that it has died since.
    has_lost_leader: bool,
    /// Of leaders before the last one, which counts from 0: assignments after the first, refusals by reason.
    former: (u64, BTreeMap<String, u64>),
    /// The latest moment last.
    past: VecDeque<Moment>,
    /// When the latest was noted, on the clock of the leader.
    past_at_s: f64,
    /// Why the farm does not answer now.
    lost: Option<String>,
}

/// Origin of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// The ICN that leads: it knows the farm.
    Leader,
    /// A standby, or a leader that does not know yet that another one leads.
    Other,
}

fn icn(index: u16) -> NodeId {
    let role = Role::Icn;
    NodeId { role, index }
}

impl Watch {
    /// The latest status; empty before the first.
    pub(crate) fn status(&self) -> FarmStatus {
        self.statuses.back().cloned().unwrap_or_default()
    }

    /// Returns a note on the encryption of the connections; empty on loopback.
    pub(crate) fn security(&self) -> &'static str {
        match self.statuses.back().map(|status| status.security.as_str()) {
            Some("tls") => "  tls",
            Some("crc-only") => "  tls, STFs IN THE CLEAR (crc-only)",
            Some("insecure") => "  INSECURE: plain and unauthenticated",
            _ => "",
        }
    }

    /// The past, one moment a second, the latest last.
    #[cfg(any(feature = "tui", test))]
    pub(crate) fn past(&self) -> impl Iterator<Item = &Moment> {
        self.past.iter()
    }

    /// Whether the farm has drained and ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lost() == Some(HAS_ENDED) || self.status().phase == "over"
    }

    /// Notes ICNs by index and state: `leads`, `standby`, or `away`.
    pub(crate) fn note_icns<'a>(&mut self, icns: impl Iterator<Item = (u16, &'a str)>) {
        for (index, state) in icns {
            if state == "away" {
                self.offices.entry(index).or_insert(false);
                self.mark(icn(index), Some("away"));
            } else {
                self.offices.insert(index, state == "leads");
                self.marks.remove(&icn(index));
            }
        }
    }

    /// Why the farm does not answer now, if it does not.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The farm does not answer, for this reason. One that drained has ended: its nodes have left.
    pub(crate) fn lose(&mut self, why: &str) {
        let is_new = self.lost.is_none();
        self.lost = Some(why.to_owned());
        if !is_new {
            return;
        }
        let status = self.status();
        if !matches!(status.phase.as_str(), "draining" | "over") {
            return self.tell(status.duration_s, why);
        }
        self.lost = Some(HAS_ENDED.to_owned());
        self.tell(status.duration_s, HAS_ENDED);
        let flps = status
            .flps
            .iter()
            .map(|flp| (NodeId::from(FlpId(flp.index)), &flp.state));
        let epns = status
            .epns
            .iter()
            .map(|epn| (NodeId::from(EpnId(epn.index)), &epn.state));
        let icns = self.offices.keys().map(|index| icn(*index));
        let mut left: Vec<NodeId> = icns.collect();
        let lived = flps
            .chain(epns)
            .filter(|(_, state)| !matches!(state.as_str(), "gone" | "silent"));
        left.extend(lived.map(|(node, _)| node));
        left.into_iter()
            .for_each(|node| self.mark(node, Some("left")));
    }

    /// Happenings from number `first` on, counted from 0 since the start.
    pub(crate) fn happenings_from(&self, first: usize) -> impl Iterator<Item = &Happening> {
        let forgotten = self.happened - self.happenings.len();
        self.happenings.iter().skip(first.saturating_sub(forgotten))
    }

    /// How many happenings there were so far.
    pub(crate) fn happened(&self) -> usize {
        self.happened
    }

    /// STFs that EPNs refused because they were there already, over all their lives.
    pub(crate) fn duplicates_refused(&self) -> u64 {
        self.duplicates.values().sum()
    }

    /// The same for one EPN.
    pub(crate) fn duplicates_refused_by(&self, epn: u16) -> u64 {
        let of_epn = self
            .duplicates
            .iter()
            .filter(|((index, _), _)| *index == epn);
        of_epn.map(|(_, count)| count).sum()
    }

    /// Something has happened at `at_s`.
    pub(crate) fn tell(&mut self, at_s: f64, text: impl Into<String>) {
        self.happenings.push_back(Happening {
            at_s,
            text: text.into(),
        });
        self.happened += 1;
        if self.happenings.len() > HAPPENINGS_MAX {
            self.happenings.pop_front();
        }
    }

    /// The supervisor knows that `node` is `state`, or nothing particular any more.
    pub(crate) fn mark(&mut self, node: NodeId, state: Option<&str>) {
        self.has_lost_leader |=
            self.last_leader() == Some(node) && matches!(state, Some("killed" | "failed"));
        match state {
            Some(state) => self.marks.insert(node, state.to_owned()),
            None => self.marks.remove(&node),
        };
    }

    /// The ICN that leads, unless the supervisor knows that it does not any more.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = icn(self.leader?);
        let mark = self.marks.get(&leader).map(String::as_str);
        let is_there = !self.has_lost_leader && matches!(mark, None | Some("left"));
        is_there.then_some(leader)
    }

    /// The ICN that last led, whatever became of it.
    pub(crate) fn last_leader(&self) -> Option<NodeId> {
        self.leader.map(icn)
    }

    /// Returns the leader, its term and the standbys; `None` in a farm of one ICN.
    pub(crate) fn offices(&self) -> Option<String> {
        if self.offices.len() < 2 {
            return None;
        }
        let leads = match self.leader() {
            Some(leader) => format!("{leader} leads in term {}", self.term),
            None => "no leader".to_owned(),
        };
        let ready: Vec<String> = (self.offices.iter())
            .filter(|(index, leads)| !**leads && !self.marks.contains_key(&icn(**index)))
            .map(|(index, _)| icn(*index).to_string())
            .collect();
        Some(if ready.is_empty() {
            format!("{leads}, no standby")
        } else {
            format!("{leads}, standby {}", ready.join(" "))
        })
    }

    /// Assignments after the first one of a TF, under all leaders.
    pub(crate) fn reassigned(&self) -> u64 {
        self.former.0 + self.status().accounting.reassigned
    }

    /// Refusals of the policy by reason, under all leaders.
    pub(crate) fn refused(&self) -> BTreeMap<String, u64> {
        let mut refused = self.former.1.clone();
        for (reason, count) in self.status().refused {
            *refused.entry(reason).or_default() += count;
        }
        refused
    }

    /// Notes who leads, and says whose word `status` is.
    fn note_office(&mut self, status: &FarmStatus) -> Voice {
        let ledger = &status.ledger;
        let leads = ledger.office != "standby";
        self.offices
            .insert(ledger.icn, leads && ledger.term >= self.term);
        if !leads || ledger.term < self.term {
            return Voice::Other;
        }
        let is_new = self.leader != Some(ledger.icn) || self.term != ledger.term;
        if is_new && self.leader.is_some() {
            let before = self.status();
            self.former = (self.reassigned(), self.refused());
            if let Some(former) = self.leader.filter(|former| *former != ledger.icn) {
                self.offices.insert(former, false);
            }
            for text in changes(&before, status) {
                self.tell(status.duration_s, text);
            }
            let text = format!("{} leads in term {}", icn(ledger.icn), ledger.term);
            self.tell(status.duration_s, text);
            // Its clock and its counts are others.
            self.statuses.clear();
            self.statuses.push_back(status.clone());
        }
        (self.leader, self.term) = (Some(ledger.icn), ledger.term);
        self.has_lost_leader = false;
        Voice::Leader
    }

    /// Takes in a status, and what has happened since the one before. Gives whose word it is.
    pub(crate) fn add(&mut self, status: FarmStatus) -> Voice {
        if self.lost.take().is_some() {
            // It answers: whatever has left is back.
            self.marks.retain(|_, mark| mark != "left");
        }
        if self.note_office(&status) == Voice::Other {
            return Voice::Other;
        }
        for epn in &status.epns {
            let count = self
                .duplicates
                .entry((epn.index, epn.incarnation))
                .or_default();
            *count = (*count).max(epn.duplicates_refused);
        }
        for text in changes(&self.status(), &status) {
            self.tell(status.duration_s, text);
        }
        let now = status.uptime_s;
        self.statuses.push_back(status);
        while self
            .statuses
            .get(1)
            .is_some_and(|next| now - next.uptime_s >= RATE_SPAN_S)
        {
            self.statuses.pop_front();
        }
        self.note_moment(now);
        Voice::Leader
    }

    /// Notes the farm as it is for the past, once a second by the clock of its leader.
    fn note_moment(&mut self, now_s: f64) {
        // Another leader has another clock.
        let is_due = now_s < self.past_at_s || now_s - self.past_at_s >= PAST_EVERY_S;
        // The first status of a leader has no rate yet.
        let has_rate = self
            .statuses
            .front()
            .is_some_and(|first| first.uptime_s < now_s);
        if !has_rate || !is_due {
            return;
        }
        self.past_at_s = now_s;
        let total = self
            .status()
            .latency_us
            .get("total")
            .copied()
            .unwrap_or_default();
        self.past.push_back(Moment {
            tfs_per_s: self.tfs_per_s(),
            mb_per_s: self.mb_per_s(),
            p99_ms: total.p99 / 1000.0,
        });
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
    }

    /// How much `count` grew a second lately.
    fn rate(&self, count: impl Fn(&FarmStatus) -> u64) -> f64 {
        if self.lost.is_some() {
            return 0.0;
        }
        let (Some(first), Some(last)) = (self.statuses.front(), self.statuses.back()) else {
            return 0.0;
        };
        let span_s = last.uptime_s - first.uptime_s;
        // A new life of a node counts from 0.
        let grown = count(last).saturating_sub(count(first));
        if span_s > 0.0 {
            grown as f64 / span_s
        } else {
            0.0
        }
    }

    /// Complete TFs a second lately.
    pub(crate) fn tfs_per_s(&self) -> f64 {
        self.rate(|status| status.accounting.complete + status.accounting.incomplete)
    }

    /// Payload of built TFs, in MB/s, lately.
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.rate(|status| status.accounting.bytes) / 1e6
    }

    /// The law of the books, with its figures.
    pub(crate) fn ledger(&self) -> String {
        let accounting = self.status().accounting;
        let dropped: u64 = accounting.dropped.values().sum();
        format!(
            "announced {} = complete {} + incomplete {} + dropped {dropped} + in flight {} {}",
            accounting.announced,
            accounting.complete,
            accounting.incomplete,
            accounting.in_flight,
            if accounting.balanced { "✔" } else { "✘" }
        )
    }
}

/// Returns the changes between two statuses, as text.
fn changes(before: &FarmStatus, after: &FarmStatus) -> Vec<String> {
    let mut texts = Vec::new();
    let old_phase = if before.phase.is_empty() {
        "waiting"
    } else {
        &before.phase
    };
    if old_phase != after.phase {
        texts.push(match after.phase.as_str() {
            "running" => "the run begins".to_owned(),
            "stopping" => "the sources stop".to_owned(),
            "draining" => "the sources have stopped, the farm drains".to_owned(),
            "over" => "the run is over".to_owned(),
            other => other.to_owned(),
        });
    }
    let states = |status: &FarmStatus| -> BTreeMap<String, String> {
        let flps = status
            .flps
            .iter()
            .map(|flp| (format!("flp:{}", flp.index), flp.state.clone()));
        let epns = status
            .epns
            .iter()
            .map(|epn| (format!("epn:{}", epn.index), epn.state.clone()));
        flps.chain(epns).collect()
    };
    let (old, mut moved) = (states(before), Vec::new());
    // At the end of a run all nodes go; that is one happening, not one for each.
    if after.phase == "running" {
        for (node, state) in states(after) {
            if old.get(&node).is_some_and(|old| *old != state) {
                moved.push(format!("{node} {state}"));
            }
        }
    }
    let grown = |count: fn(&FarmStatus) -> u64, what: &str| {
        let grown = count(after).saturating_sub(count(before));
        (grown > 0).then(|| format!("{grown} {what}"))
    };
    moved.extend(grown(
        |status| status.accounting.reassigned,
        "TFs reassigned",
    ));
    moved.extend(grown(
        |status| status.accounting.incomplete,
        "TFs incomplete",
    ));
    moved.extend(grown(
        |status| status.accounting.dropped.values().sum(),
        "TFs dropped",
    ));
    moved.extend(grown(|status| status.accounting.abandoned, "TFs abandoned"));
    moved.extend(grown(
        |status| status.accounting.redelivered,
        "TFs redelivered",
    ));
    if !moved.is_empty() {
        texts.push(moved.join(", "));
    }
    texts
}
