//! Leadership by the verdict log, and the reaction of an ICN to it.

use super::lead::{self, Lead};
use super::{IcnNode, Session};
use crate::event::Event;
use sheaf_protocol::{Control, Term, Timestamp};
use sheaf_transport::{ConnId, Transport};
use sheaf_verdict_log::{Notice, Replay};
use tracing::{error, info, warn};

impl<T: Transport> IcnNode<T> {
    /// Asks the log what is new.
    pub(super) fn consult(&mut self, now: Timestamp) {
        while let Some(notice) = self.ledger.poll(now) {
            match notice {
                Notice::Lead { term, replay } => self.begin_to_lead(now, term, replay),
                Notice::Durable(position) => {
                    self.confirm_suspicion(position);
                    if self.rolled_back.is_some() {
                        continue;
                    }
                    let Some(lead) = &mut self.lead else {
                        continue;
                    };
                    let (records, messages) = lead.gate.open(position);
                    lead.handle_durable(now, &records);
                    for record in &records {
                        lead::log_record(&mut self.log, record);
                    }
                    // What a peer knows is in the event log.
                    self.flush_log();
                    self.send_all(messages);
                    self.send_answers();
                }
                Notice::Deposed { term, why } => self.stop_leading(term, &why),
                Notice::Trouble(what) => {
                    error!(what, "The verdict log has a problem; verdicts wait");
                }
                Notice::Healed => info!("The verdict log is well again"),
                Notice::Send { to, message } => {
                    if let Some(conn) = self.peers.conn_of(to) {
                        self.send(&[conn], &Control::Ledger(message));
                    }
                }
            }
        }
        let leader = self.ledger.status().leader;
        self.has_followed |= leader.is_some_and(|leader| leader != self.terms.me.index);
    }

    fn begin_to_lead(&mut self, now: Timestamp, term: Term, replay: Replay) {
        let log = &mut self.log;
        let records = replay.inspect(|record| lead::log_record(log, record));
        let lead = Lead::begin(&self.terms, now, term, records, !self.has_followed);
        // A second term of this process must not open the run of its first one again.
        self.has_followed = true;
        let mut lead = match lead {
            Ok(lead) => lead,
            // The name was looked up when the process began.
            Err(error) => return error!(%error, "Cannot lead"),
        };
        info!(term = term.0, run = %lead.scheduler.run(), phase = lead.scheduler.phase_name(), "Leading");
        self.flush_log();
        let fair = self.clock.fair(now);
        lead.expect_back(now, fair);
        let sessions: Vec<(ConnId, Session)> = self
            .conns
            .values()
            .filter_map(|conn| Some((*conn, (*self.sessions.get(conn)?)?)))
            .collect();
        self.lead = Some(Box::new(lead));
        for (conn, session) in sessions {
            let Some(lead) = &mut self.lead else { return };
            let Session { node, incarnation } = session;
            match lead.members.handle_hello(fair, node, incarnation) {
                Ok(events) => {
                    lead.await_word_of(node);
                    if !self.welcome(now, conn, session, events) {
                        return;
                    }
                }
                Err(error) => self.refuse_life(now, conn, &error),
            }
        }
        self.act(now);
    }

    fn stop_leading(&mut self, term: Term, why: &str) {
        // The standbys leave at once when the run is over, and with them the majority: the close_notice goes on.
        let is_over = |lead: &Lead| lead.is_over_for_good();
        if self.lead.as_deref().is_some_and(is_over) {
            return;
        }
        let Some(lead) = self.lead.take() else {
            return;
        };
        // Nodes may well know more than a leader of the past.
        self.rolled_back = None;
        warn!(
            term = lead.term.0,
            higher = term.0,
            why,
            undone = lead.gate.waiting(),
            "Deposed: another ICN leads; what was not durable is void"
        );
        let why = why.to_owned();
        self.log.add(&Event::Deposed { term: term.0, why });
        self.flush_log();
        let conns: Vec<ConnId> = self.conns.values().copied().collect();
        for conn in conns {
            self.send_leadership(conn);
        }
        self.refuse_answers(&lead.askers());
    }
}
