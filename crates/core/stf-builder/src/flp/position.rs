//! Position of an FLP's source against the run: its first TF, and a counter of TF ids that went astray.

use super::{Action, Flp, Pace, Phase};
use sheaf_protocol::control::{Counter, Position};
use sheaf_protocol::{Control, TfId, Timestamp};
use std::time::Duration;

/// TFs that an external source may pass over at once; a wider gap is a counter that is ahead of the run.
pub(super) const GAP_MAX: u64 = 1 << 16;

/// Reason why an FLP refuses an STF of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StfRefusal {
    /// The TF lies before the first one of the run.
    BeforeFirst,
    /// The TF has had its STF, or was passed over.
    Behind,
    /// The TF lies more than 65,536 TFs ahead.
    Ahead,
    /// The run takes no STFs: it has not begun, or it stops.
    NotRunning,
    /// The TF lies behind the last one of the run.
    AfterEnd,
}

impl StfRefusal {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 5] = [
        Self::BeforeFirst,
        Self::Behind,
        Self::Ahead,
        Self::NotRunning,
        Self::AfterEnd,
    ];

    /// Returns the place of the reason in tables of counts.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the name in metrics and event logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeFirst => "before_first",
            Self::Behind => "behind",
            Self::Ahead => "ahead",
            Self::NotRunning => "not_running",
            Self::AfterEnd => "after_end",
        }
    }
}

/// Result of giving an STF to an FLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The STF counts as made, and is announced.
    Made,
    /// The STF is too large: its TF is skipped.
    Skipped,
    /// The STF counts nowhere.
    Refused(StfRefusal),
}

/// The last STF that was refused for one reason, and how many were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// STFs refused since the FLP was created.
    pub stfs: u64,
    /// TF of the last one.
    pub found: TfId,
    /// TF that was expected: the next one; before the first or behind the end of the run, that one.
    pub expected: TfId,
}

/// Counter of the source, refusals, and what the ICN knows of both.
#[derive(Debug, Default)]
pub(super) struct SourceState {
    /// The TF that an external source offers before the run has begun.
    pub(super) offered: Option<TfId>,
    pub(super) counter: Counter,
    /// The TF behind the last one that was too far ahead.
    ahead: TfId,
    refused: [Refused; StfRefusal::ALL.len()],
    sent: Option<(Timestamp, Position)>,
}

impl SourceState {
    /// Forgets what belongs to a run. Counts stay.
    pub(super) fn reset(&mut self) {
        self.offered = None;
        self.counter = Counter::InStep;
        self.sent = None;
    }

    /// Forgets what the ICN knows.
    pub(super) fn forget_sent(&mut self) {
        self.sent = None;
    }

    pub(super) fn refuse(&mut self, refusal: StfRefusal, found: TfId, expected: TfId) {
        let refused = &mut self.refused[refusal.index()];
        refused.stfs += 1;
        (refused.found, refused.expected) = (found, expected);
        match refusal {
            StfRefusal::Behind => self.counter = Counter::Behind,
            StfRefusal::Ahead => {
                self.counter = Counter::Ahead;
                self.ahead = TfId(found.0.saturating_add(1));
            }
            StfRefusal::BeforeFirst | StfRefusal::NotRunning | StfRefusal::AfterEnd => {}
        }
    }

    pub(super) fn refused(&self, refusal: StfRefusal) -> Refused {
        self.refused[refusal.index()]
    }

    pub(super) fn refused_stfs(&self) -> u64 {
        self.refused.iter().map(|refused| refused.stfs).sum()
    }

    /// Returns the position to send, if it is not known to the ICN; `first` is where the source can begin before the
    /// run has begun. Positions that change all the time are sent every `again`.
    pub(super) fn take_position(
        &mut self,
        now: Timestamp,
        first: Option<TfId>,
        has_begun: bool,
        again: Duration,
    ) -> Option<Position> {
        let first = match self.counter {
            _ if !has_begun => first?,
            Counter::Ahead => self.ahead,
            Counter::InStep | Counter::Behind => TfId(0),
        };
        let position = Position {
            first,
            counter: self.counter,
            refused_stfs: self.refused_stfs(),
        };
        if let Some((at, sent)) = self.sent {
            let is_known = sent == position && has_begun;
            if is_known || now.since(at) < again {
                return None;
            }
        }
        self.sent = Some((now, position));
        Some(position)
    }
}

impl Flp {
    /// Returns why the source cannot give an STF of `tf` now, and the TF that is expected.
    pub(super) fn refusal_of(&self, tf: TfId) -> Option<(StfRefusal, TfId)> {
        if self.phase != Phase::Running {
            Some((StfRefusal::NotRunning, self.next))
        } else if tf < self.first {
            Some((StfRefusal::BeforeFirst, self.first))
        } else if tf < self.next {
            Some((StfRefusal::Behind, self.next))
        } else if self.next.0.saturating_add(GAP_MAX) < tf.0 {
            Some((StfRefusal::Ahead, self.next))
        } else {
            None
        }
    }

    /// Returns the STFs that were refused for one reason.
    #[must_use]
    pub fn refused(&self, refusal: StfRefusal) -> Refused {
        self.source_state.refused(refusal)
    }

    /// Returns the number of STFs that were refused.
    #[must_use]
    pub fn refused_stfs(&self) -> u64 {
        self.source_state.refused_stfs()
    }

    /// Returns the state of the source's counter of TF ids.
    #[must_use]
    pub fn counter(&self) -> Counter {
        self.source_state.counter
    }

    /// Returns whether the FLP has joined a run that has not begun: an external source offers its first STF now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.run.is_some() && self.phase == Phase::Waiting
    }

    /// Handles an STF that an external source has ready before the run has begun; 0 if it counts no TFs.
    pub fn handle_offered(&mut self, tf: TfId) {
        if self.is_waiting() {
            self.source_state.offered = Some(tf);
        }
    }

    /// Goes on behind TFs that the ICN has passed over because all sources are ahead.
    pub(super) fn follow_jump(&mut self) {
        let is_ahead = self.source_state.counter == Counter::Ahead && self.phase == Phase::Running;
        if is_ahead
            && let Some(end) = self.released.end_of_range_with(self.next)
            && end.0 - self.next.0 > GAP_MAX
        {
            self.next = end;
            self.source_state.counter = Counter::InStep;
        }
    }

    /// Sends the position of the source if the ICN does not know it.
    pub(super) fn flush_position(&mut self) {
        let first = match self.config.pace {
            Pace::External => self.source_state.offered,
            Pace::RateHz(_) | Pace::Max | Pace::Icn => Some(TfId(0)),
        };
        let has_begun = self.phase != Phase::Waiting;
        let again = Duration::from_millis(self.config.repeat_ms);
        let source_state = &mut self.source_state;
        if self.run.is_some()
            && let Some(position) =
                source_state.take_position(self.ticked_at, first, has_begun, again)
        {
            self.actions
                .push_back(Action::Send(Control::Position(position)));
        }
    }
}
