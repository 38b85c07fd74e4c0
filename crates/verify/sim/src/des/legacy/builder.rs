//! Builder of the prior systems: an EPN that makes TFs of messages.

use crate::scenario::Builder;
use std::collections::BTreeMap;

/// One EPN.
#[derive(Debug)]
pub(super) struct Epn {
    pub(super) is_up: bool,
    rule: Builder,
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
}

/// Effect of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
    /// A whole TF and its bytes.
    pub(super) whole: Option<(u64, u64)>,
    /// Whether a set of messages was thrown away.
    pub(super) is_thrown_away: bool,
}

impl Epn {
    pub(super) fn new(rule: Builder, flps: u32) -> Self {
        Self {
            is_up: true,
            rule,
            flps,
            current: None,
            messages: 0,
            bytes: 0,
            is_out_of_order: false,
            open: BTreeMap::new(),
            whole: 0,
        }
    }

    /// Returns the number of whole TFs so far.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Returns the bytes in building.
    pub(super) fn open_bytes(&self) -> u64 {
        self.bytes + self.open.values().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Forgets everything in building.
    pub(super) fn forget(&mut self) {
        let (is_up, whole) = (self.is_up, self.whole);
        *self = Self {
            is_up,
            whole,
            ..Self::new(self.rule, self.flps)
        };
    }

    /// Accepts a message, which does not name its FLP.
    pub(super) fn take(&mut self, beat: u64, bytes: u64) -> Closed {
        match self.rule {
            Builder::Counting => self.count(beat, bytes),
            Builder::Keyed => {
                let (messages, sum) = self.open.entry(beat).or_default();
                *messages += 1;
                *sum += bytes;
                if *messages < self.flps {
                    return Closed::default();
                }
                let whole = self.open.remove(&beat).map(|(_, bytes)| (beat, bytes));
                self.whole += 1;
                Closed {
                    whole,
                    is_thrown_away: false,
                }
            }
        }
    }

    /// Applies the rule of O2-Balancer2: the first message of a set raises the heartbeat if it is newer, any that
    /// differs spoils the set, and with as many messages as there are FLPs the set is closed.
    fn count(&mut self, beat: u64, bytes: u64) -> Closed {
        if self.messages == 0 && self.current.is_none_or(|current| beat > current) {
            self.current = Some(beat);
        }
        self.is_out_of_order |= self.current != Some(beat);
        self.messages += 1;
        self.bytes += bytes;
        if self.messages < self.flps {
            return Closed::default();
        }
        self.messages = 0;
        let bytes = std::mem::take(&mut self.bytes);
        let is_thrown_away = std::mem::take(&mut self.is_out_of_order);
        self.whole += u64::from(!is_thrown_away);
        Closed {
            whole: self
                .current
                .filter(|_| !is_thrown_away)
                .map(|beat| (beat, bytes)),
            is_thrown_away,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns acknowledged heartbeats and sets thrown away, of two FLPs.
    fn replay(rule: Builder, beats: &[u64]) -> (Vec<u64>, u64) {
        let mut epn = Epn::new(rule, 2);
        let (mut acked, mut thrown) = (Vec::new(), 0);
        for beat in beats {
            let closed = epn.take(*beat, 1);
            acked.extend(closed.whole.map(|(beat, _)| beat));
            thrown += u64::from(closed.is_thrown_away);
        }
        (acked, thrown)
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
            let (acked, thrown) = replay(Builder::Counting, &beats);
            assert_eq!((acked.len() as u64, thrown), (49, k + 1), "{k}");
            assert_eq!(replay(Builder::Keyed, &beats).1, 0);
        }
    }

    #[test]
    fn one_missing_message_misaligns_a_counting_builder_for_good() {
        let mut beats: Vec<u64> = (0..100).flat_map(|beat| [beat, beat]).collect();
        beats.remove(20);
        let (acked, thrown) = replay(Builder::Counting, &beats);
        assert_eq!((acked.len(), thrown), (10, 89));
        assert_eq!(replay(Builder::Keyed, &beats).0.len(), 99);
    }
}
