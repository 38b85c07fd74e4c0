//! Frames that wait for room in a stream, and STFs among them that need not be sent any more.

use sheaf_protocol::{PrefixError, StfHeader, TfId, WireKind};
use sheaf_transport::{ConnId, Frame, SendError, Transport};
use std::collections::{BTreeMap, VecDeque};

/// Frames that full queues rejected, by stream, in order. Bounded by what their payloads are part of: the hold of an
/// FLP, or the window of a writer.
#[derive(Debug, Default)]
pub(crate) struct HeldBack(BTreeMap<ConnId, VecDeque<Frame>>);

impl HeldBack {
    /// Sends `frame`, behind what was held back before: the peer gets all in order.
    ///
    /// # Errors
    ///
    /// If the frame is beyond the limits of the farm.
    pub(crate) fn send<T: Transport>(
        &mut self,
        transport: &mut T,
        conn: ConnId,
        frame: Frame,
    ) -> Result<(), PrefixError> {
        if let Some(waiting) = self.0.get_mut(&conn) {
            waiting.push_back(frame);
            return Ok(());
        }
        match transport.send(conn, frame) {
            Err(SendError::Full(frame)) => {
                self.0.entry(conn).or_default().push_back(frame);
                Ok(())
            }
            Err(SendError::TooLarge(error)) => Err(error),
            Ok(()) | Err(SendError::Closed) => Ok(()),
        }
    }

    /// Sends what is held back for a stream whose queue has room again, except STFs of TFs that are decided
    /// meanwhile: the payload bytes of each of these go to `cancel`.
    pub(crate) fn send_again<T: Transport>(
        &mut self,
        transport: &mut T,
        conn: ConnId,
        is_decided: impl Fn(TfId) -> bool,
        mut cancel: impl FnMut(u64),
    ) {
        let Some(mut waiting) = self.0.remove(&conn) else {
            return;
        };
        while let Some(frame) = waiting.pop_front() {
            if tf_of(&frame).is_some_and(&is_decided) {
                cancel(frame.body.len() as u64);
                continue;
            }
            if let Err(SendError::Full(frame)) = transport.send(conn, frame) {
                waiting.push_front(frame);
                self.0.insert(conn, waiting);
                return;
            }
        }
    }

    /// Sends what is held back for a stream whose queue has room again.
    pub(crate) fn send_all_again<T: Transport>(&mut self, transport: &mut T, conn: ConnId) {
        self.send_again(transport, conn, |_| false, |_| {});
    }

    /// Whether something is held back for a stream.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.0.contains_key(&conn)
    }

    /// Whether nothing is held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets what is held back for a stream that has closed.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.0.remove(&conn);
    }
}

/// Returns the TF of an STF.
fn tf_of(frame: &Frame) -> Option<TfId> {
    if frame.kind != WireKind::Stf {
        return None;
    }
    let header = StfHeader::decode(&frame.head, frame.body.len() as u64).ok()?;
    Some(header.key.tf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sheaf_protocol::{
        Attempt, FlpId, Incarnation, PayloadFormat, RunId, Source, Stf, Timestamp,
    };
    use sheaf_transport::Event;
    use sheaf_transport::memory::{Faults, Memory, Network, Settings};
    use std::time::Duration;

    const STF_BYTES: usize = 1000;

    fn stf(tf: u64) -> Frame {
        let source = Source {
            flp: FlpId(0),
            incarnation: Incarnation(1),
        };
        let payload = Bytes::from(vec![0; STF_BYTES]);
        let stf = Stf::new(TfId(tf), PayloadFormat::Opaque, payload);
        let header = StfHeader::of(&stf, RunId(9), source, Attempt(1));
        Frame {
            kind: WireKind::Stf,
            head: header.encode().to_vec().into(),
            body: stf.payload,
        }
    }

    /// Lets time pass, and returns what `endpoint` receives.
    fn received(network: &Network, at: &mut Timestamp, endpoint: &mut Memory) -> Vec<Event> {
        *at = *at + Duration::from_millis(10);
        network.advance_to(*at);
        let mut events = Vec::new();
        endpoint.poll(&mut events, None).unwrap();
        events
    }

    #[test]
    fn an_stf_whose_tf_is_decided_while_it_waits_is_not_sent() {
        let settings = Settings {
            queue_bytes_max: 1,
            ..Settings::default()
        };
        let network = Network::with_settings(1, Faults::default(), settings);
        let (mut flp, mut epn) = (network.endpoint("flp"), network.endpoint("epn"));
        epn.listen("epn:1").unwrap();
        let conn = flp.connect("epn:1").unwrap();
        let mut at = Timestamp(0);
        for _ in 0..3 {
            received(&network, &mut at, &mut epn);
            received(&network, &mut at, &mut flp);
        }
        let mut held_back = HeldBack::default();
        for tf in 0..4 {
            held_back.send(&mut flp, conn, stf(tf)).unwrap();
        }
        // The queue takes one frame. TFs 1 and 2 are decided before the next one has room.
        let (mut arrived, mut cancelled) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            for event in received(&network, &mut at, &mut epn) {
                if let Event::Received { frame, .. } = event {
                    arrived.extend(tf_of(&frame));
                }
            }
            for event in received(&network, &mut at, &mut flp) {
                if let Event::Writable { conn } = event {
                    let is_decided = |tf| tf == TfId(1) || tf == TfId(2);
                    let cancel = |bytes| cancelled.push(bytes);
                    held_back.send_again(&mut flp, conn, is_decided, cancel);
                }
            }
        }
        assert_eq!(arrived, [TfId(0), TfId(3)]);
        assert_eq!(cancelled, [STF_BYTES as u64; 2]);
        assert!(held_back.0.is_empty());
    }
}
