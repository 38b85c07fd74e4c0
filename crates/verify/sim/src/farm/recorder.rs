//! Records of streams.

use sheaf_transport::{ConnId, Event as Net, Frame};
use std::collections::{BTreeMap, BTreeSet};

/// Begin of the name of a process that is no node.
pub(super) const STRANGER: &str = "stranger";
/// Frames of a stream that are recorded, from its first one on.
const FRAMES_MAX: usize = 300;

/// Frames that one process has received, by stream.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    streams: BTreeMap<ConnId, Vec<Frame>>,
    /// Streams that a stranger has opened.
    strangers: BTreeSet<ConnId>,
}

impl Recorder {
    /// Notes an event of the process.
    pub(super) fn note(&mut self, event: &Net) {
        match event {
            Net::Accepted { conn, peer, .. } if peer.starts_with(STRANGER) => {
                self.strangers.insert(*conn);
            }
            Net::Accepted { conn, .. } => {
                self.streams.insert(*conn, Vec::new());
            }
            Net::Received { conn, frame, .. } => {
                let frames = self.streams.get_mut(conn);
                if let Some(frames) = frames.filter(|frames| frames.len() < FRAMES_MAX) {
                    frames.push(frame.clone());
                }
            }
            _ => {}
        }
    }

    /// Returns whether a stranger is at the other end.
    pub(super) fn is_strange(&self, conn: ConnId) -> bool {
        self.strangers.contains(&conn)
    }

    /// Returns the record of a stream, counted from the latest.
    pub(super) fn stream(&self, index: usize) -> Option<Vec<Frame>> {
        let count = self.streams.len();
        let recent = self.streams.values().rev();
        recent.cycle().nth(index.checked_rem(count)?).cloned()
    }
}
