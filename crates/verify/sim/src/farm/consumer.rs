//! Consumer of an EPN, as the harness plays it: it records the delivered TFs, and can be out of order.

use crate::taken::Taken;
use bytes::Bytes;
use sheaf_node::event::PartEvent;
use sheaf_node::sink::{DeliverError, Delivery, Patience, Sink};
use sheaf_protocol::{Tf, crc32c};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    is_down: bool,
    taken: Vec<Taken>,
}

/// Harness's end of a consumer. Clones are the same consumer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumer(Arc<Mutex<State>>);

impl Consumer {
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// Takes everything delivered since the last call.
    pub(crate) fn take(&self) -> Vec<Taken> {
        std::mem::take(&mut self.state().taken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Consumer {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        let mut state = self.state();
        if state.is_down {
            return Err(DeliverError::NoConsumer {
                path: PathBuf::new(),
            });
        }
        let parts: Vec<PartEvent> = tf
            .parts
            .iter()
            .map(|part| PartEvent {
                flp: part.source.flp.0,
                incarnation: part.source.incarnation.0,
                bytes: part.payload.len() as u64,
                digest: crc32c(&part.payload),
            })
            .collect();
        state.taken.push(Taken {
            run: tf.run,
            tf: tf.tf,
            is_redelivered: tf.is_redelivered,
            parts: parts.clone(),
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
        });
        Ok(Delivery {
            parts,
            faults: Vec::new(),
            ..Delivery::default()
        })
    }
}
