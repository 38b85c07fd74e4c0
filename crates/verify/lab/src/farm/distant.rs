//! Farms whose nodes run on other machines: the differences.

use super::Farm;
use crate::error::LabError;
use crate::hosts::Session;
use sheaf_protocol::NodeId;
use std::process::Command;
use std::sync::Arc;

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

    /// The `ssh` at whose end the node runs, and somebody who looks after it.
    pub(super) fn distant_command(
        &self,
        node: NodeId,
        session: &Session,
        events: &str,
    ) -> Result<Command, LabError> {
        let here = self.write_farm_file(node, self.plan.spot(node))?;
        let text = std::fs::read_to_string(&here)
            .map_err(LabError::io(format!("read {}", here.display())))?;
        let there = session.run_file(&here);
        session.write(&there, &text)?;
        let program = format!("{}/sheaf", session.host().folder);
        let words = self.words(node, &there, events);
        let head = [program.as_str(), "lab", "attend", "--"];
        let words: Vec<&str> = head
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        Ok(session.command(&words))
    }

    /// Brings the event logs of nodes on other machines here. One that cannot be had is a problem.
    pub(super) fn fetch_logs(&mut self) {
        for life in &self.lives {
            let session = &self.plan.spot(life.node).session;
            if let (Some(session), Some(distant)) = (session, &life.distant_events)
                && let Err(error) = session.copy_from(distant, &life.events)
            {
                self.problems.push(error.to_string());
            }
        }
    }
}
