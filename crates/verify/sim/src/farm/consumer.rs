//! Consumer of an EPN, as the harness plays it: it records the delivered TFs, and can be out of order.

use crate::taken::Taken;
use bytes::Bytes;
use sheaf_node::event::PartEvent;
use sheaf_node::sink::{DeliverError, Delivery, Patience, Sink};
use sheaf_protocol::{RunId, Tf, TfId, Timestamp, crc32c};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
struct State {
    is_down: bool,
    taken: Vec<Taken>,
    now: Timestamp,
    /// How long the consumer works on each TF.
    work: Duration,
    /// TFs that it works on, with their bytes and the time of the end.
    working: VecDeque<(Timestamp, RunId, TfId, u64)>,
}

/// Harness's end of a consumer. Clones are the same consumer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumer(Arc<Mutex<State>>);

impl Consumer {
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// The process of the EPN begins: what the consumer of the former one worked on is gone.
    pub(crate) fn begin(&self, work: Duration) {
        let mut state = self.state();
        state.work = work;
        state.working.clear();
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.state().now = now;
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
        let is_held = !state.work.is_zero();
        if is_held {
            let ends = state.now + state.work;
            let bytes = tf.bytes();
            state.working.push_back((ends, tf.run, tf.tf, bytes));
        }
        Ok(Delivery {
            parts,
            is_held,
            ..Delivery::default()
        })
    }

    fn finished(&mut self) -> Option<(RunId, TfId, u64)> {
        let mut state = self.state();
        let (ends, run, tf, bytes) = state.working.front().copied()?;
        if ends > state.now {
            return None;
        }
        state.working.pop_front();
        Some((run, tf, bytes))
    }
}
