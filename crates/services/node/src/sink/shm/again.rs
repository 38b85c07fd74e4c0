//! TFs whose consumer has died with them, at ack level `processed`: another consumer gets them.

use super::delivered;
use crate::sink::SinkEvent;
use bytes::Bytes;
use sheaf_protocol::{RunId, Tf, TfId};
use std::collections::BTreeMap;

/// Consumers that may die with one TF. Then it counts as finished, or it would end every consumer that there is.
const DEATHS_MAX: u32 = 3;

/// TFs that are given to a consumer again, with the number of those that have died with each.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// Whether a TF is given again at all.
    is_on: bool,
    deaths: BTreeMap<(RunId, TfId), u32>,
}

impl Again {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    pub(super) fn has(&self, run: RunId, tf: TfId) -> bool {
        self.deaths.contains_key(&(run, tf))
    }

    /// Returns the event of a TF that a consumer has taken.
    pub(super) fn taken(&self, tf: &Tf<Bytes>) -> SinkEvent {
        let (run, id) = (tf.run, tf.tf);
        match self.has(run, id) {
            true => SinkEvent::TakenAgain { run, tf: id },
            false => delivered(tf),
        }
    }

    /// Notes that a consumer has died with `tf`. Returns it, marked, if another one is to get it.
    pub(super) fn give_again(&mut self, tf: Tf<Bytes>) -> Result<Tf<Bytes>, Tf<Bytes>> {
        if !self.is_on {
            return Err(tf);
        }
        let deaths = self.deaths.entry((tf.run, tf.tf)).or_default();
        *deaths += 1;
        if *deaths >= DEATHS_MAX {
            tracing::error!(
                tf_id = tf.tf.0,
                consumers = *deaths,
                "Consumers have died with a TF, one after the other; no other gets it"
            );
            return Err(tf);
        }
        Ok(Tf {
            is_redelivered: true,
            ..tf
        })
    }

    /// Notes that a consumer has finished with a TF.
    pub(super) fn end(&mut self, run: RunId, tf: TfId) {
        self.deaths.remove(&(run, tf));
    }
}
