//! Nobody: TFs are counted and their memory is given back.

use super::{DeliverError, Delivery, Patience, Sink, stated};
use bytes::Bytes;
use sheaf_protocol::Tf;

/// Looks at nothing and keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

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
            faults: Vec::new(),
        })
    }
}
