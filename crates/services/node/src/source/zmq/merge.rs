//! Order of the STFs of several producers of one FLP: each gives whole STFs with rising TF ids, such as every second
//! TF.
//!
//! One STF of each producer waits here; while it does, nothing more is read of that producer. The lowest one goes on
//! at once if no TF lies between it and the last one, else when every producer has given one, for none of them can
//! give a lower one then; or when the window is over. A producer that the window was over for is not awaited again
//! before it gives an STF in order: one that is silent costs one window, not one a TF. TFs that are passed over
//! meanwhile count as given up.

use sheaf_protocol::{Stf, TfId};
use sheaf_zmtp::PeerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A producer, connected or with an STF that is left of it.
#[derive(Debug, Default)]
struct Producer {
    waiting: Option<Stf>,
    /// The TF of its last STF.
    last: Option<TfId>,
    is_excused: bool,
    is_gone: bool,
}

/// Output of the merge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// The next STF.
    Stf(Stf),
    /// TFs were given up for want of a producer: the next STF is behind them.
    GivenUp(GivenUp),
    /// An STF of a TF that was given, or given up, before. The FLP refuses it.
    Late(Late),
}

/// TFs that a producer did not give within the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenUp {
    /// The first of them.
    pub(super) first: TfId,
    /// The TF behind them, of which there is an STF.
    pub(super) end: TfId,
    /// The producer that has given it.
    pub(super) ahead: PeerId,
    /// A producer that has given nothing behind the first of them.
    pub(super) behind: PeerId,
    /// The last TF that the latter has given.
    pub(super) behind_at: Option<TfId>,
}

/// An STF out of order, though all its producers are waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// The STF.
    pub(super) stf: Stf,
    /// Producer of the STF.
    pub(super) of: PeerId,
    /// The TF that was expected at least.
    pub(super) expected: TfId,
    /// Producers at that moment.
    pub(super) producers: usize,
}

/// Puts the STFs of all producers in order.
#[derive(Debug)]
pub(super) struct Merge {
    window: Duration,
    producers: BTreeMap<PeerId, Producer>,
    /// The TF behind the last STF.
    next: Option<TfId>,
    /// When the gap in front of the lowest STF was found.
    since: Option<Instant>,
}

impl Merge {
    /// Creates a merge that waits for at most `window`.
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            producers: BTreeMap::new(),
            next: None,
            since: None,
        }
    }

    /// Notes which producers are connected now.
    pub(super) fn connect(&mut self, connected: &[PeerId]) {
        for peer in connected {
            self.producers.entry(*peer).or_default();
        }
        self.producers.retain(|peer, producer| {
            producer.is_gone = !connected.contains(peer);
            !producer.is_gone || producer.waiting.is_some()
        });
    }

    /// Returns whether an STF of `peer` can be taken.
    pub(super) fn wants(&self, peer: PeerId) -> bool {
        let producer = self.producers.get(&peer);
        producer.is_none_or(|producer| producer.waiting.is_none())
    }

    /// Takes an STF of a producer that it [wants](Self::wants) one of.
    pub(super) fn put(&mut self, peer: PeerId, stf: Stf) {
        let producer = self.producers.entry(peer).or_default();
        if self.next.is_none_or(|next| stf.tf >= next) {
            producer.is_excused = false;
        }
        producer.last = Some(stf.tf);
        producer.waiting = Some(stf);
    }

    /// Returns what comes next; `None` if a producer is awaited, or there is nothing.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Merged> {
        let waiting = |(peer, one): (&PeerId, &Producer)| Some((one.waiting.as_ref()?.tf, *peer));
        let (tf, peer) = self.producers.iter().filter_map(waiting).min()?;
        let is_in_step = self.next.is_some_and(|next| tf <= next);
        if !is_in_step && let Some((behind, behind_at)) = self.behind() {
            let mut producers = self.producers.values();
            if producers.any(|one| one.waiting.is_none() && !one.is_excused) {
                let since = *self.since.get_or_insert(now);
                if now.saturating_duration_since(since) < self.window {
                    return None;
                }
            }
            for one in self.producers.values_mut() {
                one.is_excused |= one.waiting.is_none();
            }
            if let Some(first) = self.next {
                (self.since, self.next) = (None, Some(tf));
                return Some(Merged::GivenUp(GivenUp {
                    first,
                    end: tf,
                    ahead: peer,
                    behind,
                    behind_at,
                }));
            }
        }
        self.since = None;
        let expected = self.next.unwrap_or(tf);
        self.next = Some(expected.max(TfId(tf.0.saturating_add(1))));
        let producers = self.producers.len();
        let producer = self.producers.get_mut(&peer)?;
        let stf = producer.waiting.take()?;
        if producer.is_gone {
            self.producers.remove(&peer);
        }
        Some(if tf < expected {
            Merged::Late(Late {
                stf,
                of: peer,
                expected,
                producers,
            })
        } else {
            Merged::Stf(stf)
        })
    }

    /// Returns when the window is over, if one is open.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.window)
    }

    /// Returns a producer that may still give a lower STF than those that wait, and its last TF.
    fn behind(&self) -> Option<(PeerId, Option<TfId>)> {
        let mut producers = self.producers.iter();
        let found = producers.find(|(_, one)| one.waiting.is_none());
        found.map(|(peer, one)| (*peer, one.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use sheaf_protocol::PayloadFormat;

    const WINDOW: Duration = Duration::from_millis(100);

    /// Runs `steps`, such as `a 3` (producer a gives TF 3 if it is wanted), `wait 5` (ms) and `gone a`, and returns
    /// what comes out.
    fn run(producers: &str, steps: &str) -> String {
        let id = |name: &str| PeerId(u64::from(name.as_bytes()[0]));
        let mut connected: Vec<PeerId> = producers.split_whitespace().map(id).collect();
        let (mut merge, mut now) = (Merge::new(WINDOW), Instant::now());
        let mut found = Vec::new();
        for step in steps.split(';') {
            merge.connect(&connected);
            match *step.split_whitespace().collect::<Vec<_>>() {
                ["wait", ms] => now += Duration::from_millis(ms.parse().unwrap()),
                ["gone", name] => connected.retain(|peer| *peer != id(name)),
                [name, tf] => {
                    assert!(merge.wants(id(name)), "{step}");
                    let tf = TfId(tf.parse().unwrap());
                    merge.put(id(name), Stf::new(tf, PayloadFormat::Opaque, Bytes::new()));
                }
                _ => panic!("{step}"),
            }
            merge.connect(&connected);
            while let Some(merged) = merge.poll(now) {
                found.push(match merged {
                    Merged::Stf(stf) => stf.tf.0.to_string(),
                    Merged::GivenUp(up) => format!("up {}-{}", up.first.0, up.end.0),
                    Merged::Late(late) => format!("late {}<{}", late.stf.tf.0, late.expected.0),
                });
            }
        }
        found.join(" ")
    }

    #[test]
    fn two_producers_that_give_every_second_tf_are_put_in_order() {
        let found = run("a b", "a 0; b 1; b 3; a 2; b 5; a 4; b 7; wait 99; a 6");
        assert_eq!(found, "0 1 2 3 4 5 6 7");
    }

    #[test]
    fn one_producer_is_never_waited_for() {
        assert_eq!(run("a", "a 3; a 4; a 9; a 8"), "3 4 9 late 8<10");
    }

    #[test]
    fn a_tf_that_all_have_passed_is_left_out_without_a_wait() {
        assert_eq!(run("a b", "a 0; b 1; a 4; b 5"), "0 1 4 5");
    }

    #[test]
    fn a_silent_producer_costs_one_window() {
        let steps = "a 0; b 1; a 2; a 4; wait 99; wait 1; a 6; a 8; b 3; b 9";
        assert_eq!(
            run("a b", steps),
            "0 1 2 up 3-4 4 up 5-6 6 up 7-8 8 late 3<9 9"
        );
        // It is awaited again after it was in order.
        let steps = "a 0; b 1; a 2; a 4; wait 100; b 5; a 6; a 8; wait 99; b 7";
        assert_eq!(run("a b", steps), "0 1 2 up 3-4 4 5 6 7 8");
    }

    #[test]
    fn a_producer_that_has_gone_is_not_awaited_and_its_stf_is_not_lost() {
        assert_eq!(run("a b", "a 0; b 1; a 3; gone b; a 5"), "0 1 3 5");
        assert_eq!(run("a b", "a 0; b 3; gone b; a 1; a 2"), "0 1 2 3");
    }

    #[test]
    fn a_second_stf_of_one_tf_is_late() {
        assert_eq!(run("a b", "a 0; b 0; a 1; b 1"), "0 late 0<1 1 late 1<2");
    }

    #[test]
    fn the_first_of_all_is_the_lowest() {
        assert_eq!(run("a b", "b 8; a 7; b 9"), "7 8 9");
        assert_eq!(run("a b", "b 8; wait 100; a 7"), "8 late 7<9");
    }
}
