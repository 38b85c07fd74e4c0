//! Send and forget, the rule of earlier systems: an FLP frees an STF when it was passed to the transport.
//!
//! No node knows this rule. The harness plays it: it sends an FLP in the name of its ICN a release of all STFs that it
//! has sent. Releases of the ICN itself are passed on in the same messages, since an FLP takes the newest only.

use bytes::Bytes;
use sheaf_node::event::Event;
use sheaf_protocol::control::Release;
use sheaf_protocol::{Control, Envelope, RangeSet, Role, TfId, WireKind};
use sheaf_transport::{ConnId, Event as Net, Frame};
use std::time::Duration;

/// Releases that one FLP was sent.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    released: RangeSet,
    version: u64,
    /// Connection of its ICN, and the envelope of its messages.
    icn: Option<(ConnId, Envelope)>,
}

impl Forgetting {
    /// Returns the event that the FLP gets instead of `event`.
    pub(super) fn replace(&mut self, event: Net) -> Net {
        let Net::Received { conn, frame, .. } = &event else {
            return event;
        };
        if frame.kind != WireKind::Control {
            return event;
        }
        let Ok((envelope, control)) = Control::decode(&frame.head) else {
            return event;
        };
        if envelope.sender.role != Role::Icn {
            return event;
        }
        self.icn = Some((*conn, envelope));
        match control {
            Control::Release(release) => {
                release.add_to(&mut self.released);
                self.release().unwrap_or(event)
            }
            _ => event,
        }
    }

    /// Returns the event that the FLP gets when it has written these events.
    pub(super) fn forget(&mut self, events: &[Event]) -> Option<Net> {
        let mut is_new = false;
        for event in events {
            if let Event::Sent { tf, .. } = event {
                is_new |= self.released.insert(TfId(*tf));
            }
        }
        if is_new { self.release() } else { None }
    }

    fn release(&mut self) -> Option<Net> {
        let (conn, envelope) = self.icn?;
        self.version += 1;
        let control = Control::Release(Release::of(self.version << 32, &self.released));
        let head: Bytes = control.encode(&envelope).into();
        Some(Net::Received {
            conn,
            frame: Frame::without_body(WireKind::Control, head),
            body_digest: None,
            spent: Duration::ZERO,
        })
    }
}
