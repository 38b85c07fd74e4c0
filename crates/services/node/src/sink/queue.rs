//! The node's side of every sink.

use super::SinkEvent;
use bytes::Bytes;
use sheaf_protocol::Tf;
use sheaf_protocol::control::Recover;
use sheaf_protocol::{RunId, TfId};
use sheaf_write::HandoffId;
use std::collections::BTreeSet;

/// Order about a TF that is stored before it is committed.
#[derive(Debug)]
pub(super) enum Order {
    /// Makes a stored TF visible.
    Publish(Tf<Bytes>),
    /// Removes what this life, or what former lives have stored of a TF.
    Unstore {
        run: RunId,
        tf: TfId,
        by_former: bool,
    },
    /// Makes a TF visible that a former life has stored.
    Recover { run: RunId, item: Recover },
}

/// Sink as the node sees it: TFs in, events out, never a wait.
pub(super) trait Queue: Send {
    /// Takes a TF, or returns it while the queue is full.
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>>;

    /// Takes a TF that may be written already, wholly or in part: what is there is not written again.
    fn offer_again(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.offer(tf)
    }

    /// Takes back one TF that is not begun; [`SinkEvent::Returned`] follows if it was not.
    fn recall_one(&mut self, _id: HandoffId) {}

    /// Returns the next event, if there is one now.
    fn poll(&mut self) -> Option<SinkEvent>;

    /// Takes back TFs of `run` that no consumer has been given; [`SinkEvent::Returned`] follows for each of them.
    fn recall(&mut self, _run: RunId, _tfs: &BTreeSet<TfId>) {}

    /// Delivers what is in the queue, as far as consumers take it without delay, and ends.
    fn finish(&mut self) {}

    /// Writes a TF so that it survives a crash. Of a sink that stores only, as the next one.
    fn store(&mut self, tf: Tf<Bytes>) {
        debug_assert!(false, "only a sink that stores is asked to: {}", tf.tf);
    }

    /// Carries out an order about a stored TF.
    fn order(&mut self, order: Order) {
        debug_assert!(false, "only a sink that stores is asked to: {order:?}");
    }
}
