//! Losses in the log: each reason once a second, with how many TFs it stands for. And what the begin of a run awaits.

use sheaf_protocol::{DropReason, FlpId, Target, TfId, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// How often a line may be repeated.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// How often the log names the FLPs that the begin of a run awaits.
const AWAITED_EVERY: Duration = Duration::from_secs(10);

/// Events of TFs that an operator has to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Dropped(DropReason),
    Incomplete,
    Abandoned(Target),
    /// Built by another EPN after the death of the first.
    Redelivered,
    /// Abandoned, since it cannot be built again.
    NotRedelivered(DropReason),
}

#[derive(Debug, Default)]
struct Notice {
    said_at: Option<Timestamp>,
    tfs: u64,
    last: TfId,
}

/// Gathers losses, and says them.
#[derive(Debug, Default)]
pub(super) struct Notices(BTreeMap<Loss, Notice>);

impl Notices {
    pub(super) fn add(&mut self, loss: Loss, tf: TfId) {
        let notice = self.0.entry(loss).or_default();
        notice.tfs += 1;
        notice.last = tf;
    }

    /// Says what was not said within the last second, or everything if the process `is_ending`.
    pub(super) fn log(&mut self, now: Timestamp, is_ending: bool) {
        for (loss, notice) in &mut self.0 {
            let is_fresh = notice
                .said_at
                .is_some_and(|said| now.since(said) < SAID_EVERY);
            if notice.tfs > 0 && (is_ending || !is_fresh) {
                let (tfs, last_tf_id) = (std::mem::take(&mut notice.tfs), notice.last.0);
                notice.said_at = Some(now);
                match loss {
                    Loss::Dropped(reason) => warn!(tfs, last_tf_id, %reason, "Dropped TFs"),
                    Loss::Incomplete => warn!(tfs, last_tf_id, "TFs are incomplete"),
                    Loss::Abandoned(target) => {
                        warn!(tfs, last_tf_id, epn = %target.epn, "TFs are abandoned: not acknowledged");
                    }
                    Loss::Redelivered => {
                        warn!(
                            tfs,
                            last_tf_id,
                            "TFs are built again and delivered marked: their EPN died before it acknowledged"
                        );
                    }
                    Loss::NotRedelivered(reason) => {
                        warn!(tfs, last_tf_id, %reason, "TFs cannot be built again from the holds");
                    }
                }
            }
        }
    }
}

/// Log of the FLPs whose sources have to give the id of their first STF before the run begins.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// When the begin was found waiting, or was logged last.
    since: Option<Timestamp>,
}

impl Awaited {
    /// Logs the FLPs that have been awaited for a while.
    pub(super) fn log(&mut self, now: Timestamp, flps: &[FlpId]) {
        if self.is_due(now, !flps.is_empty()) {
            let flps: Vec<String> = flps.iter().map(FlpId::to_string).collect();
            warn!(
                flps = flps.join(" "),
                "The run has its quorum and awaits the first STF of these FLPs, for its first TF id: start their \
                 producers, or set run.first_tf"
            );
        }
    }

    fn is_due(&mut self, now: Timestamp, is_awaiting: bool) -> bool {
        if !is_awaiting {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_due = now.since(since) >= AWAITED_EVERY;
        if is_due {
            self.since = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_loss_is_said_once_a_second_and_the_rest_at_the_end() {
        let mut notices = Notices::default();
        let loss = Loss::Dropped(DropReason::SourceLate);
        let ms = |ms: u64| Timestamp(ms * 1_000_000);
        let left = |notices: &Notices| notices.0[&loss].tfs;
        notices.add(loss, TfId(1));
        notices.log(ms(0), false);
        assert_eq!(left(&notices), 0);
        notices.add(loss, TfId(2));
        notices.add(loss, TfId(3));
        notices.log(ms(999), false);
        assert_eq!(left(&notices), 2);
        notices.log(ms(1000), false);
        assert_eq!(left(&notices), 0);
        notices.add(loss, TfId(4));
        notices.log(ms(1001), true);
        assert_eq!(left(&notices), 0);
    }

    #[test]
    fn what_the_begin_awaits_is_logged_every_ten_seconds() {
        let s = |s: u64| Timestamp(s * 1_000_000_000);
        let mut awaited = Awaited::default();
        assert!(!awaited.is_due(s(1), true));
        assert!(!awaited.is_due(s(10), true));
        assert!(awaited.is_due(s(11), true));
        assert!(!awaited.is_due(s(20), true));
        assert!(awaited.is_due(s(21), true));
        assert!(!awaited.is_due(s(40), false));
        assert!(!awaited.is_due(s(41), true), "another begin");
    }
}
