//! Log of the STFs that an FLP refuses: the first one of a kind at once, then their number once a second; and the fates
//! of those of each producer.

use sheaf_protocol::Timestamp;
use sheaf_stf_builder::flp::{Flp, Given, Refused, StfRefusal};
use std::time::Duration;
use tracing::{info, warn};

/// How often refusals of one kind are logged.
const EVERY: Duration = Duration::from_secs(1);

/// Refusals that were logged, by kind.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    logged: [Option<(Timestamp, u64)>; StfRefusal::ALL.len()],
}

impl Refusals {
    /// Logs the refusals that were not logged yet, as far as they are due.
    pub(crate) fn log(&mut self, now: Timestamp, flp: &Flp) {
        for refusal in StfRefusal::ALL {
            let refused = flp.refused(refusal);
            if let Some(more) = self.due(now, refusal, refused.stfs) {
                log(refusal, refused, more);
            }
        }
    }

    /// Returns how many refusals were added since the last line, if a line is due.
    fn due(&mut self, now: Timestamp, refusal: StfRefusal, stfs: u64) -> Option<u64> {
        let logged = &mut self.logged[refusal.index()];
        let (at, before) = logged.unwrap_or_default();
        let is_due = logged.is_none() || now.since(at) >= EVERY;
        if stfs == before || !is_due {
            return None;
        }
        *logged = Some((now, stfs));
        Some(stfs - before)
    }
}

/// Fates of the STFs of the producer that a feed serves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    taken: u64,
    skipped: u64,
    refused: u64,
}

impl Served {
    /// Counts an STF of the producer.
    pub(crate) fn count(&mut self, given: Given) {
        match given {
            Given::Made => self.taken += 1,
            Given::Skipped => self.skipped += 1,
            Given::Refused(_) => self.refused += 1,
        }
    }

    /// Logs that the producer `peer` has gone, and begins with the next one.
    pub(crate) fn end(&mut self, peer: &str) {
        let Self {
            taken,
            skipped,
            refused,
        } = std::mem::take(self);
        if skipped + refused == 0 {
            info!(peer, taken, "A producer has ended");
        } else {
            warn!(
                peer,
                taken, skipped, refused, "A producer has ended, and not all of its STFs were taken"
            );
        }
    }
}

fn log(refusal: StfRefusal, refused: Refused, more: u64) {
    let (found, expected) = (refused.found.0, refused.expected.0);
    match refusal {
        StfRefusal::BeforeFirst => {
            info!(
                more,
                found, expected, "STFs before the first TF of the run passed over"
            );
        }
        StfRefusal::Behind => warn!(
            more,
            found,
            expected,
            "STFs refused: the source's TF ids went back. They are taken again from the expected one on; for a \
             counter that begins again, stop the run and begin another"
        ),
        StfRefusal::Ahead => warn!(
            more,
            found,
            expected,
            "STFs refused: the source's TF ids jumped by more than 65536. They are taken when the run gets there, or \
             when all sources have jumped; otherwise correct the counter, or stop the run and begin another"
        ),
        StfRefusal::NotRunning => {
            warn!(
                more,
                found, expected, "STFs refused: the run takes none now"
            );
        }
        StfRefusal::AfterEnd => {
            info!(
                more,
                found, expected, "STFs behind the end of the run passed over"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_of_a_kind_is_logged_at_once_and_then_their_number_once_a_second() {
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        let mut refusals = Refusals::default();
        let mut due = |ms, refusal, stfs| refusals.due(at(ms), refusal, stfs);
        assert_eq!(due(0, StfRefusal::Behind, 0), None);
        assert_eq!(due(5, StfRefusal::Behind, 1), Some(1));
        assert_eq!(due(10, StfRefusal::Behind, 7), None);
        assert_eq!(due(10, StfRefusal::Ahead, 2), Some(2), "another kind");
        assert_eq!(due(1005, StfRefusal::Behind, 90), Some(89));
        assert_eq!(due(9000, StfRefusal::Behind, 90), None, "none were added");
    }
}
