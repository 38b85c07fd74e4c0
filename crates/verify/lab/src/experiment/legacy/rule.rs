//! How an EPN of the prior systems makes timeframes of messages. Pure.

use std::collections::BTreeMap;

/// Counts messages, or keys them by heartbeat.
#[derive(Debug)]
pub(super) enum Rule {
    Counting(Counting),
    Keyed { flps: u16, open: BTreeMap<u64, u16> },
}

/// The rule of O2-Balancer2 (`epn/src/epn.cxx`, tag experiment-2): there are no sources, only so many messages.
#[derive(Debug)]
pub(super) struct Counting {
    flps: u16,
    current: u64,
    messages: u16,
    /// Whether messages of different heartbeats make a set that is thrown away.
    has_order: bool,
    is_out_of_order: bool,
    /// Sets that were thrown away.
    pub(super) out_of_order: u64,
}

impl Rule {
    pub(super) fn new(is_counting: bool, has_order: bool, flps: u16) -> Self {
        if !is_counting {
            return Self::Keyed {
                flps,
                open: BTreeMap::new(),
            };
        }
        Self::Counting(Counting {
            flps,
            current: 0,
            messages: 0,
            has_order,
            is_out_of_order: false,
            out_of_order: 0,
        })
    }

    /// A message of `heartbeat` has come; the heartbeat that is acknowledged now.
    pub(super) fn take(&mut self, heartbeat: u64) -> Option<u64> {
        match self {
            Self::Counting(counting) => counting.take(heartbeat),
            Self::Keyed { flps, open } => {
                let messages = open.entry(heartbeat).or_default();
                *messages += 1;
                if *messages < *flps {
                    return None;
                }
                open.remove(&heartbeat);
                Some(heartbeat)
            }
        }
    }

    /// Sets that were thrown away, and messages in sets that are not closed.
    pub(super) fn leftovers(&self) -> (u64, u64) {
        match self {
            Self::Counting(counting) => (counting.out_of_order, counting.messages.into()),
            Self::Keyed { open, .. } => {
                (0, open.values().map(|messages| u64::from(*messages)).sum())
            }
        }
    }
}

impl Counting {
    fn take(&mut self, heartbeat: u64) -> Option<u64> {
        if self.messages == 0 && heartbeat > self.current {
            self.current = heartbeat;
        }
        if heartbeat != self.current {
            self.is_out_of_order = self.has_order;
        }
        self.messages += 1;
        if self.messages < self.flps {
            return None;
        }
        self.messages = 0;
        if std::mem::take(&mut self.is_out_of_order) {
            self.out_of_order += 1;
            return None;
        }
        Some(self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the acknowledged messages, and the number of sets that are discarded.
    fn check(flps: u16, messages: &[u64], acks: &[u64], out_of_order: u64) {
        let mut rule = Rule::new(true, true, flps);
        let got: Vec<u64> = messages
            .iter()
            .filter_map(|heartbeat| rule.take(*heartbeat))
            .collect();
        assert_eq!(
            (got.as_slice(), rule.leftovers().0),
            (acks, out_of_order),
            "{messages:?}"
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
        let mut messages = vec![0, 0, 5];
        messages.extend((2..100).flat_map(|round| [round * 5, round * 5]));
        check(2, &messages, &[0], 98);
    }

    #[test]
    fn the_first_experiment_took_messages_in_any_order() {
        let mut rule = Rule::new(true, false, 2);
        let messages = [0, 0, 5, 10, 5, 10, 15];
        assert_eq!(
            messages
                .iter()
                .filter_map(|heartbeat| rule.take(*heartbeat))
                .count(),
            3
        );
        assert_eq!(rule.leftovers(), (0, 1));
    }

    #[test]
    fn a_builder_with_keys_loses_nothing_by_order() {
        let mut rule = Rule::new(false, true, 2);
        let messages = [0, 0, 5, 10, 15, 5, 10, 15];
        let acks: Vec<u64> = messages
            .iter()
            .filter_map(|heartbeat| rule.take(*heartbeat))
            .collect();
        assert_eq!(acks, [0, 5, 10, 15]);
        assert_eq!(rule.leftovers(), (0, 0));
    }
}
