//! Sink `discard`: counts TFs and releases their memory.

use super::handle::SinkHandle;
use super::{DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, stated};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_protocol::Tf;

/// Looks at nothing and keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

/// The `[epn.sink]` table with `kind = "discard"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiscardSink {}

impl SinkKind for DiscardSink {
    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        SinkHandle::spawn(Box::new(Discard), opening.queue_tfs, opening.wake)
    }
}

impl Sink for Discard {
    fn name(&self) -> &'static str {
        "discard"
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        Ok(Delivery {
            parts: tf.parts.iter().map(stated).collect(),
            ..Delivery::default()
        })
    }
}
