//! Place of the node in its farm, as its page tells it.

use super::{State, Stream, Uplink};
use crate::health::{Health, Standing};
use std::sync::Arc;

impl Uplink {
    /// Notes in `health`, at every tick, whether the node has joined.
    #[must_use]
    pub(crate) fn noted_in(mut self, health: Arc<Health>) -> Self {
        let standing = self.standing();
        health.stand(standing);
        self.health = Some((health, standing));
        self
    }

    fn standing(&self) -> Standing {
        let stands = |stream: &Stream| matches!(stream.state, State::Standby { .. });
        let is_ready = self.is_joined();
        Standing {
            phase: if is_ready {
                "joined"
            } else if self.streams.iter().any(stands) {
                "waiting for a leader"
            } else {
                "connecting"
            },
            is_ready,
            run: self.run,
            term: self.term,
        }
    }

    /// Notes the place of the node in its farm, if it is another one than before.
    pub(super) fn note_standing(&mut self) {
        let standing = self.standing();
        if let Some((health, noted)) = &mut self.health
            && *noted != standing
        {
            *noted = standing;
            health.stand(standing);
        }
    }
}
