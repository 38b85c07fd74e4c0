//! End of the process of an ICN: with its run, or before it, so that the next life or another ICN goes on.
//!
//! A lone ICN that ends before its run stands still first: it carries out nothing new, waits until all that it has
//! decided is durable and sent, and ends. What nodes report in between they report to the next life again.

use super::IcnNode;
use super::orders::SEND_WAIT;
use sheaf_protocol::{Term, Timestamp};
use sheaf_transport::Transport;
use std::time::Duration;
use tracing::info;

/// How long a leader that is asked to end waits for another to take over, or for its log.
const HAND_OVER: Duration = Duration::from_secs(1);

/// How the life of an ICN has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcnEnd {
    /// The run is over.
    Over,
    /// The run goes on: with a later life of this ICN, or under another one.
    Left,
    /// As [`Left`](Self::Left), and an operator wants the next life to begin at once.
    Restart,
}

/// Continuation after this life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: a lone ICN ends with its run.
    Nothing,
    Leave,
    Restart,
}

/// Request that this process ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Farewell {
    since: Timestamp,
    next: Next,
    /// Since when everything that was decided is durable and handed to the transport.
    settled_at: Option<Timestamp>,
}

impl Farewell {
    fn new(since: Timestamp, next: Next) -> Self {
        Self {
            since,
            next,
            settled_at: None,
        }
    }

    /// Returns whether a leader has waited long enough.
    pub(super) fn is_over(&self, now: Timestamp, has_others: bool) -> bool {
        let is_late = now.since(self.since) >= HAND_OVER;
        match self.next {
            _ if has_others => is_late,
            Next::Nothing => false,
            Next::Leave | Next::Restart => {
                let is_sent = |at| now.since(at) >= SEND_WAIT;
                is_late || self.settled_at.is_some_and(is_sent)
            }
        }
    }
}

impl<T: Transport> IcnNode<T> {
    /// A request that this process ends keeps the run of a lone ICN from now on.
    pub fn keep_run(&mut self) {
        self.keeps_run = true;
    }

    /// The address of the next life would be another one: orders to restart are refused.
    pub fn refuse_restart(&mut self, why: &'static str) {
        self.refuses_restart = Some(why);
    }

    /// Returns how this life has ended, when its turns are over.
    pub fn end(&self) -> IcnEnd {
        match self.farewell.map(|farewell| farewell.next) {
            _ if self.is_dismissed => IcnEnd::Over,
            _ if self
                .lead
                .as_ref()
                .is_some_and(|lead| lead.is_over_for_good()) =>
            {
                IcnEnd::Over
            }
            None | Some(Next::Nothing) => IcnEnd::Over,
            Some(Next::Leave) => IcnEnd::Left,
            Some(Next::Restart) => IcnEnd::Restart,
        }
    }

    /// Handles a request that this process ends. A lone ICN ends the run, unless it [keeps](Self::keep_run) it: sources
    /// stop, the farm drains, the nodes are dismissed. One of several transfers the leadership and ends.
    pub fn handle_shutdown(&mut self, now: Timestamp) {
        let is_lone = !self.ledger.has_others();
        let ends_run = is_lone && !self.keeps_run && self.lead.is_some();
        let next = if ends_run { Next::Nothing } else { Next::Leave };
        // A signal counts more than an order to restart that came just before.
        self.farewell = Some(Farewell::new(now, next));
        match &mut self.lead {
            Some(lead) if ends_run => {
                info!("Asked to end: the sources stop, the farm drains");
                lead.scheduler.handle_stop(now);
            }
            Some(_) if is_lone => {
                info!("Asked to end: the run is kept for the next life of this ICN");
            }
            Some(_) => {
                info!("Asked to end: another ICN takes over");
                self.ledger.resign(now);
            }
            None => info!("Asked to end"),
        }
    }

    /// Handles an operator's order to begin the next life. Returns what becomes of it.
    pub(super) fn handle_restart(&mut self, now: Timestamp, term: Term) -> Result<String, String> {
        let Some(lead) = &self.lead else {
            return Err("this ICN does not lead".to_owned());
        };
        let me = self.terms.me;
        if lead.term > term {
            let term = lead.term.0;
            return Ok(format!("{me} has begun to lead since, in term {term}"));
        }
        if lead.is_over_for_good() {
            return Err("the run is over, and this ICN ends".to_owned());
        }
        if !self.ledger.outlives_process() {
            let backend = self.ledger.status().backend;
            return Err(format!(
                "icn.ledger.backend is `{backend}`: the run would be lost with this process; `sheaf ctl stop` ends it"
            ));
        }
        if let Some(why) = self.refuses_restart {
            return Err(why.to_owned());
        }
        if self.farewell.is_none() {
            self.farewell = Some(Farewell::new(now, Next::Restart));
            self.ledger.resign(now);
        }
        Ok(format!("{me} starts again, the run goes on"))
    }

    /// Returns whether a lone leader carries out nothing new, since it is about to end before its run.
    pub(super) fn stands_still(&self) -> bool {
        let ends_early = |farewell: Farewell| farewell.next != Next::Nothing;
        self.farewell.is_some_and(ends_early) && !self.ledger.has_others()
    }

    /// Notes when all that was decided is durable.
    pub(super) fn settle_farewell(&mut self, now: Timestamp) {
        let is_settled = self.lead.as_ref().is_some_and(|lead| lead.gate.is_open());
        if let Some(farewell) = self.farewell.as_mut().filter(|_| is_settled) {
            farewell.settled_at.get_or_insert(now);
        }
    }
}
