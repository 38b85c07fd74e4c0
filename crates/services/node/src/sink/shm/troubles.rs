//! Troubles of a sink of two stages, as one.

use crate::sink::SinkEvent;

/// Troubles of the two stages of the sink that are not over.
#[derive(Default)]
pub(super) struct Troubles {
    /// There is no consumer.
    of_consumers: bool,
    /// Files cannot be written.
    of_files: bool,
}

impl Troubles {
    /// Returns what an event of one of the stages means for the sink. [`SinkEvent::Resumed`] means that both work.
    pub(super) fn merge(&mut self, event: SinkEvent, is_of_files: bool) -> Option<SinkEvent> {
        let trouble = if is_of_files {
            &mut self.of_files
        } else {
            &mut self.of_consumers
        };
        match event {
            SinkEvent::Failed {
                tf,
                error,
                is_storage,
            } => {
                *trouble = true;
                Some(SinkEvent::Failed {
                    tf,
                    error,
                    is_storage: is_storage || self.of_files,
                })
            }
            SinkEvent::Resumed => {
                *trouble = false;
                // The stage that still fails says so again.
                (!self.of_files && !self.of_consumers).then_some(SinkEvent::Resumed)
            }
            other => Some(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::TfId;

    #[test]
    fn the_sink_has_resumed_when_both_stages_have() {
        let failed = |is_storage| SinkEvent::Failed {
            tf: TfId(1),
            error: "why".to_owned(),
            is_storage,
        };
        let mut troubles = Troubles::default();
        let (consumers, files) = (false, true);
        assert_eq!(
            troubles.merge(failed(false), consumers),
            Some(failed(false))
        );
        assert_eq!(troubles.merge(failed(true), files), Some(failed(true)));
        // The storage is still full when the other stage fails once more.
        assert_eq!(troubles.merge(failed(false), consumers), Some(failed(true)));
        assert_eq!(troubles.merge(SinkEvent::Resumed, consumers), None);
        assert_eq!(
            troubles.merge(SinkEvent::Resumed, files),
            Some(SinkEvent::Resumed)
        );
        let freed = SinkEvent::freed(7);
        assert_eq!(troubles.merge(freed.clone(), files), Some(freed));
    }
}
