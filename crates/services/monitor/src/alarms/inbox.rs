//! Queue before the thread of alarms: samples of all shards, and outcomes of what other threads did for it.

use sheaf_sample_store::SeriesId;
use sheaf_samples::{Labels, Sample};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// News of one shard for the alarms at one time.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Number of the set of rules that the shard chose series by.
    pub(crate) generation: u64,
    /// Series that are new to the alarms. To be taken before `samples`.
    pub(crate) series: Vec<(SeriesId, Arc<Labels>)>,
    pub(crate) samples: Vec<(SeriesId, Sample)>,
    /// Series that have ended in this shard. To be taken after `samples`.
    pub(crate) ended: Vec<SeriesId>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty() && self.samples.is_empty() && self.ended.is_empty()
    }
}

/// Outcome of something that another thread did for the alarms.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An attempt to deliver a notification.
    Delivered {
        id: u64,
        /// Receiver and channel, one attempt at a time.
        lane: String,
        result: Result<(), String>,
    },
    /// An order to the farm; what the farm answered.
    Ordered {
        id: u64,
        result: Result<String, String>,
    },
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) batches: Vec<Batch>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Samples dropped so far, because the alarms were behind.
    pub(crate) dropped: u64,
    samples: usize,
    is_rung: bool,
    is_closed: bool,
}

/// Bounded queue. With too many samples in it the newest are dropped and counted: alarms never hold up the store.
/// Series are few against samples, and outcomes have a bound by what was asked for, so both always have room.
#[derive(Debug)]
pub(crate) struct Inbox {
    mail: Mutex<Mail>,
    filled: Condvar,
    samples_max: usize,
}

impl Inbox {
    pub(crate) fn new(samples_max: usize) -> Self {
        Self {
            mail: Mutex::default(),
            filled: Condvar::new(),
            samples_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, mut batch: Batch) {
        let mut mail = self.lock();
        if mail.samples + batch.samples.len() > self.samples_max {
            mail.dropped += batch.samples.len() as u64;
            batch.samples.clear();
        }
        mail.samples += batch.samples.len();
        mail.batches.push(batch);
        drop(mail);
        self.filled.notify_one();
    }

    pub(crate) fn report(&self, outcome: Outcome) {
        self.lock().outcomes.push(outcome);
        self.filled.notify_one();
    }

    /// Wakes the thread: something else has changed.
    pub(crate) fn ring(&self) {
        self.lock().is_rung = true;
        self.filled.notify_one();
    }

    /// Ends the queue: what is in it is still taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Takes all that is there; waits for something, for at most `patience`. Returns whether more can come.
    pub(crate) fn take(&self, patience: Duration) -> (Mail, bool) {
        let is_idle = |mail: &mut Mail| {
            mail.batches.is_empty() && mail.outcomes.is_empty() && !mail.is_rung && !mail.is_closed
        };
        let waited = self
            .filled
            .wait_timeout_while(self.lock(), patience, is_idle);
        let (mut mail, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (is_open, dropped) = (!mail.is_closed, mail.dropped);
        let taken = std::mem::take(&mut *mail);
        (mail.dropped, mail.is_closed) = (dropped, !is_open);
        (taken, is_open)
    }

    /// Waits for outcomes until `until`, when nothing else is of interest any more.
    pub(crate) fn take_outcomes(&self, until: Instant) -> Vec<Outcome> {
        let patience = until.saturating_duration_since(Instant::now());
        let is_idle = |mail: &mut Mail| mail.outcomes.is_empty();
        let waited = self
            .filled
            .wait_timeout_while(self.lock(), patience, is_idle);
        let (mut mail, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut mail.outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(samples: usize) -> Batch {
        let sample = Sample {
            at_ms: 0,
            value: 0.0,
        };
        Batch {
            series: vec![(SeriesId(0), Arc::default())],
            samples: vec![(SeriesId(0), sample); samples],
            ..Batch::default()
        }
    }

    #[test]
    fn samples_beyond_the_bound_are_dropped_and_series_are_not() {
        let inbox = Inbox::new(5);
        inbox.push(batch(4));
        inbox.push(batch(4));
        let (mail, is_open) = inbox.take(Duration::ZERO);
        let samples: usize = mail.batches.iter().map(|one| one.samples.len()).sum();
        assert_eq!((mail.batches.len(), samples, mail.dropped), (2, 4, 4));
        assert!(is_open);
        inbox.push(batch(5));
        inbox.close();
        let (mail, is_open) = inbox.take(Duration::from_secs(60));
        assert_eq!((mail.batches.len(), mail.dropped, is_open), (1, 4, false));
    }
}
