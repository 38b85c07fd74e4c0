//! Farms whose nodes run on other machines: the differences.

use super::Farm;
use super::FarmError;
use rustix::process::Signal;
use sheaf_farm::Remote;
use sheaf_protocol::NodeId;
use sheaf_testbed::hosts::Session;
use sheaf_testbed::hosts::attend::Orders;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::Arc;

/// Far end of an `ssh`, where a node runs that is controlled by orders.
#[derive(Debug)]
pub(super) struct FarEnd(Orders);

impl FarEnd {
    /// Makes the far end of the `ssh` with the standard input `stdin`.
    pub(super) fn through(stdin: ChildStdin) -> Self {
        Self(Orders::through(stdin))
    }
}

impl Remote for FarEnd {
    fn signal(&self, signal: Signal) -> bool {
        self.0.send(signal)
    }
}

impl Farm {
    /// Connections to the hosts that it stands on, if these are other machines.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        for node in self.all_nodes() {
            if let Some(session) = &self.plan.spot(node).session
                && !sessions.iter().any(|known| Arc::ptr_eq(known, session))
            {
                sessions.push(session.clone());
            }
        }
        sessions
    }

    /// The `ssh` at whose end the node runs, and the process that attends it. Its event log is fetched to `events`.
    pub(super) fn distant_command(
        &self,
        node: NodeId,
        session: &Session,
        events: &Path,
    ) -> Result<Command, FarmError> {
        let here = self.write_farm_file(node, self.plan.spot(node))?;
        let text = std::fs::read_to_string(&here)
            .map_err(FarmError::io(format!("read {}", here.display())))?;
        let there = session.run_file(&here);
        session.write(&there, &text)?;
        let program = format!("{}/sheaf", session.host().folder);
        let words = self.words(node, &there, &session.run_file(events));
        let head = [program.as_str(), "lab", "attend", "--"];
        let words: Vec<&str> = head
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        Ok(session.command(&words))
    }

    /// Brings the event logs of nodes on other machines here. One that cannot be had is a problem.
    pub(super) fn fetch_logs(&mut self) {
        for life in self.lives.iter() {
            if let Some(session) = &self.plan.spot(life.node).session
                && let Err(error) = session.copy_from(&session.run_file(&life.events), &life.events)
            {
                self.problems.push(error.to_string());
            }
        }
    }
}
