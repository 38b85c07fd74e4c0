//! Sink of an EPN whose TFs go to the writer nodes of the farm.
//!
//! A thread of its own has the streams to all writers ([`Links`]) and the [`Handoff`] that chooses among them. A TF
//! counts as delivered when a writer has acknowledged it as written, so its memory is kept until then, and a writer
//! that dies, hangs or is full costs nothing: what it has not acknowledged goes to another one.

mod counters;
mod links;
mod thread;

use super::handle::SinkHandle;
use super::{Ack, Opening, SinkError, SinkKind};
use crate::check::Check;
pub(super) use counters::METRICS;
use links::Links;
use serde::{Deserialize, Serialize};
use sheaf_placement::policy;
use sheaf_write::{Handoff, HandoffConfig};
use std::time::Duration;
use thread::WritersThread;

/// The `[epn.sink]` table with `kind = "writers"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WritersSink {
    /// How the writer of a TF is chosen: a policy, as for EPNs.
    pub policy: String,
    /// TFs that may be with a writer without an acknowledgement. A writer may allow fewer.
    pub window_tfs: u32,
    /// Silence of a writer in ms after which its TFs go to another one. Writers send a pulse every `writer.pulse_ms`.
    pub silence_ms: u64,
}

impl Default for WritersSink {
    fn default() -> Self {
        Self {
            // Of many EPNs that see the same reports, those that choose the least loaded all choose one.
            policy: "power-of-two".to_owned(),
            window_tfs: 64,
            silence_ms: 1000,
        }
    }
}

impl SinkKind for WritersSink {
    fn check(&self, check: &mut Check) {
        if let Err(unknown) = policy::by_name(&self.policy, 0) {
            check.fail(
                "epn.sink.policy",
                format!("\"{}\"", unknown.name),
                policy::choices(),
            );
        }
        for (key, found, most) in [
            ("epn.sink.window_tfs", u64::from(self.window_tfs), 1 << 20),
            ("epn.sink.silence_ms", self.silence_ms, 3_600_000),
        ] {
            check.that(
                (1..=most).contains(&found),
                key,
                found,
                format!("1 to {most}"),
            );
        }
    }

    fn stores(&self) -> bool {
        true
    }

    fn needs_writers(&self) -> bool {
        true
    }

    fn descriptors_max(&self) -> usize {
        // Streams to writers, with new ones beside those that end.
        2 * usize::from(u8::MAX)
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let none = || SinkError::Writers("the farm file has no writer.addresses".to_owned());
        let access = opening.writers.ok_or_else(none)?;
        let config = HandoffConfig {
            writers: u16::try_from(access.addresses.len()).unwrap_or(u16::MAX),
            policy: self.policy.clone(),
            window_tfs: self.window_tfs,
            silence: Duration::from_millis(self.silence_ms),
            // Of EPNs that draw lots each draws others.
            seed: u64::from(opening.target.epn.0) + 1,
        };
        let handoff =
            Handoff::new(config).map_err(|error| SinkError::Writers(error.to_string()))?;
        let transport = (access.transport)().map_err(SinkError::Thread)?;
        let waker = transport.waker();
        let is_storing = opening.ack == Ack::Stored;
        let links = Links::new(transport, opening.target, access.addresses, handoff);
        let (thread, former) = WritersThread::spawn(
            links,
            waker,
            is_storing,
            opening.queue_tfs,
            opening.registry,
            opening.wake,
        )?;
        Ok(match is_storing {
            true => SinkHandle::storing(thread, former),
            false => SinkHandle::new(thread),
        })
    }
}

#[cfg(test)]
mod tests;
