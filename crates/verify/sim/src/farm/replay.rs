//! Records of streams, and the stranger who sends them again.

use super::TortureFarm;
use super::recorder::STRANGER;
use sheaf_protocol::{EpnId, Incarnation, NodeId, Role};
use sheaf_transport::memory::Memory;
use sheaf_transport::{Event as Net, Frame, Transport};
use std::time::Duration;

/// One process that is no node: it opens a stream, sends a record, and goes when the stream closes.
#[derive(Debug)]
pub(super) struct Stranger {
    transport: Memory,
    frames: Vec<Frame>,
}

impl Stranger {
    /// Sends the record when the stream stands; `false` when it is over.
    fn turn(&mut self) -> bool {
        let mut events = Vec::new();
        let polled = self.transport.poll(&mut events, Some(Duration::ZERO));
        polled.expect("memory does not fail");
        for event in events {
            match event {
                Net::Connected { conn } => {
                    for frame in self.frames.drain(..) {
                        // What does not fit is not sent.
                        let _ = self.transport.send(conn, frame);
                    }
                }
                Net::Closed { .. } => return false,
                _ => {}
            }
        }
        true
    }
}

impl TortureFarm<'_> {
    /// Sends what `node` has received on one of its streams again, from a process that is no node.
    pub(super) fn inject_replay(&mut self, node: NodeId, stream: usize) {
        let seat = &self.seats[self.seat_of(node)];
        let recorder = seat.recorder.as_ref();
        let Some(frames) = recorder.and_then(|recorder| recorder.stream(stream)) else {
            return;
        };
        let address = match node.role {
            Role::Icn => super::make::icn_address(node.index),
            _ => super::make::epn_address(EpnId(node.index), Incarnation(seat.life)),
        };
        self.strangers_made += 1;
        let name = format!("{STRANGER}:{}", self.strangers_made);
        let mut transport = self.network.endpoint(&name);
        let at = transport.id().index();
        if self.endpoints.len() <= at {
            // No seat knows the endpoint as its own.
            self.endpoints.resize(at + 1, 0);
        }
        if transport.connect(&address).is_ok() {
            self.strangers.push(Stranger { transport, frames });
        }
    }

    /// Turns all strangers. They go when the faults end.
    pub(super) fn turn_strangers(&mut self) {
        if self.is_calm || self.is_stopping {
            self.strangers.clear();
        }
        self.strangers.retain_mut(Stranger::turn);
    }
}
