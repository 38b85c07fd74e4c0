//! Builder of an EPN: TFs of messages that do not name their FLP.

use crate::scenario::Builder;
use std::collections::BTreeMap;

/// Builder of one EPN.
#[derive(Clone, Debug)]
pub struct SetBuilder {
    rule: Builder,
    /// Whether messages of different heartbeats make a set that is thrown away, in the counting builder.
    has_order: bool,
    flps: u32,
    /// Heartbeat that a counting builder counts for.
    current: Option<u64>,
    /// Messages in the set, and their bytes.
    messages: u32,
    bytes: u64,
    is_out_of_order: bool,
    /// Messages and bytes by heartbeat, of a keyed builder.
    open: BTreeMap<u64, (u32, u64)>,
    whole: u64,
    thrown_away: u64,
}

/// Effect of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Heartbeat of a whole TF, which is acknowledged, and bytes of its set.
    pub whole: Option<(u64, u64)>,
    /// Whether a set of messages was thrown away.
    pub is_thrown_away: bool,
}

impl SetBuilder {
    /// Returns a builder without messages, for sets of `flps` messages. Without `has_order` a counting builder takes
    /// messages in any order, as experiment-1 did, whose data had no number.
    #[must_use]
    pub fn new(rule: Builder, has_order: bool, flps: u32) -> Self {
        Self {
            rule,
            has_order,
            flps,
            current: None,
            messages: 0,
            bytes: 0,
            is_out_of_order: false,
            open: BTreeMap::new(),
            whole: 0,
            thrown_away: 0,
        }
    }

    /// Returns the number of whole TFs so far.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole
    }

    /// Returns the number of sets that were thrown away so far.
    #[must_use]
    pub fn thrown_away(&self) -> u64 {
        self.thrown_away
    }

    /// Returns the bytes in building.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.bytes + self.open.values().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Returns the messages in sets that are not closed.
    #[must_use]
    pub fn open_messages(&self) -> u64 {
        let open = self.open.values().map(|(messages, _)| u64::from(*messages));
        u64::from(self.messages) + open.sum::<u64>()
    }

    /// Forgets everything in building.
    pub fn forget(&mut self) {
        let (whole, thrown_away) = (self.whole, self.thrown_away);
        *self = Self {
            whole,
            thrown_away,
            ..Self::new(self.rule, self.has_order, self.flps)
        };
    }

    /// Accepts a message of heartbeat `beat`, which does not name its FLP.
    pub fn take(&mut self, beat: u64, bytes: u64) -> Closed {
        let closed = match self.rule {
            Builder::Counting => self.count(beat, bytes),
            Builder::Keyed => self.key(beat, bytes),
        };
        self.whole += u64::from(closed.whole.is_some());
        self.thrown_away += u64::from(closed.is_thrown_away);
        closed
    }

    /// Applies the rule of O2-Balancer: messages of a heartbeat are a set, whatever comes between.
    fn key(&mut self, beat: u64, bytes: u64) -> Closed {
        let (messages, sum) = self.open.entry(beat).or_default();
        *messages += 1;
        *sum += bytes;
        if *messages < self.flps {
            return Closed::default();
        }
        Closed {
            whole: self.open.remove(&beat).map(|(_, bytes)| (beat, bytes)),
            is_thrown_away: false,
        }
    }

    /// Applies the rule of O2-Balancer2 (`epn/src/epn.cxx`, tag experiment-2): the first message of a set raises the
    /// heartbeat if it is newer, any that differs spoils the set, and with as many messages as there are FLPs the set
    /// is closed.
    fn count(&mut self, beat: u64, bytes: u64) -> Closed {
        if self.messages == 0 && self.current.is_none_or(|current| beat > current) {
            self.current = Some(beat);
        }
        self.is_out_of_order |= self.has_order && self.current != Some(beat);
        self.messages += 1;
        self.bytes += bytes;
        if self.messages < self.flps {
            return Closed::default();
        }
        self.messages = 0;
        let bytes = std::mem::take(&mut self.bytes);
        let is_thrown_away = std::mem::take(&mut self.is_out_of_order);
        let current = self.current.filter(|_| !is_thrown_away);
        Closed {
            whole: current.map(|beat| (beat, bytes)),
            is_thrown_away,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns acknowledged heartbeats and the builder behind the last message, of two FLPs.
    fn replay(rule: Builder, has_order: bool, beats: &[u64]) -> (Vec<u64>, SetBuilder) {
        replay_for(2, rule, has_order, beats)
    }

    fn replay_for(
        flps: u32,
        rule: Builder,
        has_order: bool,
        beats: &[u64],
    ) -> (Vec<u64>, SetBuilder) {
        let mut builder = SetBuilder::new(rule, has_order, flps);
        let acks: Vec<u64> = beats
            .iter()
            .filter_map(|beat| builder.take(*beat, 1).whole)
            .map(|(beat, bytes)| {
                assert_eq!(bytes, u64::from(flps));
                beat
            })
            .collect();
        assert_eq!(builder.whole(), acks.len() as u64);
        assert_eq!(builder.open_bytes(), builder.open_messages());
        (acks, builder)
    }

    /// Checks acknowledged heartbeats and the number of sets thrown away, of a counting builder.
    #[track_caller]
    fn check(flps: u32, beats: &[u64], acks: &[u64], thrown_away: u64) {
        let (found, builder) = replay_for(flps, Builder::Counting, true, beats);
        assert_eq!(
            (found.as_slice(), builder.thrown_away()),
            (acks, thrown_away),
            "{beats:?}"
        );
    }

    #[test]
    fn in_order_every_set_is_acknowledged() {
        check(2, &[0, 0, 5, 5, 10, 10], &[0, 5, 10], 0);
        check(1, &[0, 6, 12], &[0, 6, 12], 0);
    }

    #[test]
    fn a_stall_of_k_rounds_of_one_source_costs_k_and_one_heartbeats() {
        // FLP B is two rounds behind: A's 5, 10 come first, then B's 5, 10.
        check(2, &[0, 0, 5, 10, 15, 5, 10, 15, 20, 20], &[0, 20], 3);
        check(2, &[0, 0, 5, 10, 5, 10, 15, 15], &[0, 15], 2);
    }

    #[test]
    fn one_message_that_never_comes_spoils_every_set_after_it() {
        // B's 5 is missing.
        let mut beats = vec![0, 0, 5];
        beats.extend((2..100).flat_map(|round| [round * 5, round * 5]));
        check(2, &beats, &[0], 98);
    }

    #[test]
    fn the_first_experiment_took_messages_in_any_order() {
        let beats = [0, 0, 5, 10, 5, 10, 15];
        let (acks, builder) = replay(Builder::Counting, false, &beats);
        assert_eq!(acks.len(), 3);
        assert_eq!((builder.thrown_away(), builder.open_messages()), (0, 1));
    }

    #[test]
    fn a_builder_with_keys_loses_nothing_by_order() {
        let beats = [0, 0, 5, 10, 15, 5, 10, 15];
        let (acks, builder) = replay(Builder::Keyed, true, &beats);
        assert_eq!(acks, [0, 5, 10, 15]);
        assert_eq!((builder.thrown_away(), builder.open_messages()), (0, 0));
    }

    #[test]
    fn a_stall_of_k_rounds_of_one_flp_costs_a_counting_builder_one_more_and_a_keyed_one_nothing() {
        for k in 1..=40_u64 {
            let mut beats = vec![0, 0];
            beats.extend(1..=k + 1); // The other FLP is k rounds behind,
            beats.extend(1..=k + 1); // and then catches up.
            for beat in k + 2..k + 50 {
                beats.extend([beat, beat]);
            }
            let (acks, builder) = replay(Builder::Counting, true, &beats);
            assert_eq!((acks.len(), builder.thrown_away()), (49, k + 1), "{k}");
            let (_, keyed) = replay(Builder::Keyed, true, &beats);
            assert_eq!(keyed.thrown_away(), 0);
        }
    }

    #[test]
    fn one_missing_message_misaligns_a_counting_builder_for_good() {
        let mut beats: Vec<u64> = (0..100).flat_map(|beat| [beat, beat]).collect();
        beats.remove(20);
        let (acks, builder) = replay(Builder::Counting, true, &beats);
        assert_eq!((acks.len(), builder.thrown_away()), (10, 89));
        assert_eq!(replay(Builder::Keyed, true, &beats).0.len(), 99);
    }

    #[test]
    fn a_dead_epn_forgets_what_it_was_building_and_not_what_it_had_built() {
        let (_, mut builder) = replay(Builder::Counting, true, &[0, 0, 1]);
        builder.forget();
        assert_eq!((builder.whole(), builder.open_bytes()), (1, 0));
        assert_eq!(
            builder.take(0, 1),
            Closed::default(),
            "older ones count again"
        );
        assert_eq!(builder.take(0, 1).whole, Some((0, 2)));
    }
}
