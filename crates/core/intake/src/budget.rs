//! New series of one source: its budget, and the cut-off when that is used up.

use crate::config::IntakeConfig;
use crate::reason::Reason;
use sheaf_protect::protect;

/// Budget of new series, and the cut-off of a source that used it up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// New series that are left, in thousandths.
    left: u64,
    refilled_ms: i64,
    /// Keys and series that the source has opened and that have not ended.
    held: u32,
    cut_until_ms: Option<i64>,
}

impl Budget {
    pub(crate) fn new(now_ms: i64, config: &IntakeConfig) -> Self {
        Self {
            left: u64::from(config.new_series_burst) * 1000,
            refilled_ms: now_ms,
            held: 0,
            cut_until_ms: None,
        }
    }

    /// Takes one new series out of the budget.
    ///
    /// The error has `true` if the source is cut off from now on.
    pub(crate) fn take(
        &mut self,
        now_ms: i64,
        config: &IntakeConfig,
    ) -> Result<(), (Reason, bool)> {
        if self.is_cut_off(now_ms, config) {
            return Err((Reason::CutOff, false));
        }
        // A clock that steps back refills nothing.
        let elapsed_ms = u64::try_from(now_ms - self.refilled_ms).unwrap_or(0);
        let refill = elapsed_ms.saturating_mul(u64::from(config.new_series_per_s));
        let burst = u64::from(config.new_series_burst) * 1000;
        self.left = self.left.saturating_add(refill).min(burst);
        self.refilled_ms = now_ms;
        let has_all = self.held >= config.series_per_source_max;
        let reason = if protect!(SeriesBound, when has_all) {
            Reason::SeriesLimit
        } else if self.left < 1000 {
            Reason::SeriesRate
        } else {
            self.left -= 1000;
            self.held += 1;
            return Ok(());
        };
        self.cut_until_ms = Some(now_ms + cut_off_ms(config));
        Err((reason, true))
    }

    /// Returns whether the source is cut off. A clock that stepped back does not make a cut-off longer than its time.
    fn is_cut_off(&self, now_ms: i64, config: &IntakeConfig) -> bool {
        let left_ms = self.cut_until_ms.map(|until_ms| until_ms - now_ms);
        left_ms.is_some_and(|left_ms| (1..=cut_off_ms(config)).contains(&left_ms))
    }

    pub(crate) fn cut_until_ms(&self) -> Option<i64> {
        self.cut_until_ms
    }

    /// Ends the cut-off, if its time is over.
    pub(crate) fn restore(&mut self, now_ms: i64, config: &IntakeConfig) -> bool {
        let is_over = !self.is_cut_off(now_ms, config);
        if is_over {
            self.cut_until_ms = None;
        }
        is_over
    }

    /// Gives one series back, or a key.
    pub(crate) fn release(&mut self) {
        self.held = self.held.saturating_sub(1);
    }
}

fn cut_off_ms(config: &IntakeConfig) -> i64 {
    i64::from(config.cut_off_s) * 1000
}
