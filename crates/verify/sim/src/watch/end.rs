//! Checks after the faults have ended, and after the run is over.

use super::accounting::{RunBook, TfBook};
use super::{Found, Watch, found};
use crate::invariant::Invariant;
use crate::options::{Ack, Log};
use sheaf_protocol::{NodeId, Role, Timestamp};

impl Watch<'_> {
    /// Checks, [`Options::settle`] after the end of the faults, that every TF that a living node knows has its verdict.
    pub(crate) fn check_settled(
        &self,
        until: Timestamp,
        is_alive: impl Fn(NodeId, u64) -> bool,
    ) -> Result<(), Found> {
        if self.options.sends_and_forgets {
            return Ok(());
        }
        if self.accounting().decided == 0 {
            let detail = format!(
                "no TF has a verdict, {:?} after the faults have ended",
                self.options.settle
            );
            return found(Invariant::Live, None, detail);
        }
        for run in self.lasting_runs() {
            for (tf, book) in run.undecided_tfs() {
                let is_known = self.is_owed(book)
                    || book.made.iter().any(|part| {
                        let node = NodeId {
                            role: Role::Flp,
                            index: part.flp,
                        };
                        is_alive(node, part.incarnation)
                    });
                if is_known && book.named_at.is_some_and(|at| at <= until) {
                    let detail = format!(
                        "TF {tf} has no verdict, {:?} after the faults have ended",
                        self.options.settle
                    );
                    return found(Invariant::Live, tf, detail);
                }
            }
        }
        Ok(())
    }

    /// Checks, [`Options::settle`] after the end of the faults, that TFs built before are with a consumer or abandoned,
    /// and that FLPs have freed them.
    pub(crate) fn check_done(
        &self,
        until: Timestamp,
        holds: impl Fn(NodeId, u64, u64) -> bool,
    ) -> Result<(), Found> {
        if self.options.sends_and_forgets {
            return Ok(());
        }
        for run in self.lasting_runs() {
            for (tf, book) in run.tfs() {
                let Some(fate) = book.fate() else { continue };
                if book.named_at.is_none_or(|at| at > until) {
                    continue;
                }
                if book.is_owed_to_consumer(self.options.ack) {
                    let detail = format!("TF {tf} is {fate}, and is owed to a consumer since");
                    return found(Invariant::Live, tf, detail);
                }
                let holder = book.made.iter().find(|part| {
                    let role = Role::Flp;
                    let index = part.flp;
                    holds(NodeId { role, index }, part.incarnation, tf)
                });
                if let Some(part) = holder {
                    let detail = format!("flp:{} still holds TF {tf}, which is {fate}", part.flp);
                    return found(Invariant::Live, tf, detail);
                }
            }
        }
        Ok(())
    }

    /// Checks, when the run is over, that nothing is open.
    pub(crate) fn check_end(&self, was_alive: impl Fn(NodeId, u64) -> bool) -> Result<(), Found> {
        for run in self.lasting_runs() {
            for (tf, book) in run.tfs() {
                let is_known = self.is_owed(book)
                    || book.made.iter().any(|part| {
                        was_alive(
                            NodeId {
                                role: Role::Flp,
                                index: part.flp,
                            },
                            part.incarnation,
                        )
                    });
                match book.fate() {
                    None if is_known => {
                        return found(
                            Invariant::Clean,
                            tf,
                            format!("TF {tf} was made and has no verdict at the end of the run"),
                        );
                    }
                    None => {}
                    Some(fate) if book.is_owed_to_consumer(Ack::Built) => {
                        return found(
                            Invariant::Clean,
                            tf,
                            format!("TF {tf} is {fate}, and no EPN delivered it"),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the runs that are remembered: those before the latest are gone with the memory of their ICN.
    fn lasting_runs(&self) -> &[RunBook] {
        let first = match self.options.log {
            Log::Memory => self.runs.len().saturating_sub(1),
            _ => 0,
        };
        &self.runs[first..]
    }

    /// Returns whether the ICN that called for a TF must remember it: its successor may not know of the call.
    fn is_owed(&self, book: &TfBook) -> bool {
        book.is_called && self.options.log == Log::Memory
    }
}
