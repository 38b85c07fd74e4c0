//! Grants: the builder asks for a few of the offered STFs at a time, so that a switch with shallow buffers is not
//! flooded by all FLPs at once.

use super::{Action, TfBuilder};
use sheaf_protocol::control::Offered;
use sheaf_protocol::{Control, Source, TfId, Timestamp};

impl<P: Clone> TfBuilder<P> {
    /// Handles STFs that an FLP offers on its data stream.
    pub fn handle_offer(&mut self, now: Timestamp, source: Source, items: &[Offered]) {
        self.stats.offers += items.len() as u64;
        for item in items {
            self.grants.offer(item.tf, source);
        }
        self.fetch(now);
    }

    /// Handles TFs whose offer an FLP has withdrawn: it sends no STF of them unless it offers again.
    pub fn handle_withdrawn(&mut self, now: Timestamp, source: Source, tfs: &[TfId]) {
        for tf in tfs {
            self.grants.done(*tf, source);
        }
        self.fetch(now);
    }

    /// Requests offered STFs until the permitted number is under way.
    pub(super) fn fetch(&mut self, now: Timestamp) {
        let max = self.config.grants_max as usize;
        while let Some((tf, source)) = self.grants.next(now, max) {
            if self.is_wanted(tf, source) {
                self.stats.grants += 1;
                self.asked.entry(source).or_default().push(tf);
            } else {
                self.grants.done(tf, source);
            }
        }
    }

    fn is_wanted(&self, tf: TfId, source: Source) -> bool {
        let slot = self.slots.get(&tf);
        let is_here = slot.is_some_and(|slot| slot.part(source).is_some());
        !is_here && !self.released.contains(tf) && !self.committed.contains_key(&tf)
    }

    /// Expires grants that are not answered.
    pub(super) fn tick_grants(&mut self, now: Timestamp) {
        self.grants.expire(now, self.config.grant());
        self.fetch(now);
    }

    /// Returns the next message to an FLP.
    pub(super) fn poll_grants(&mut self) -> Option<Action<P>> {
        let (source, mut tfs) = self.asked.pop_first()?;
        if tfs.len() > Control::ENTRIES_MAX {
            let rest = tfs.split_off(Control::ENTRIES_MAX);
            self.asked.insert(source, rest);
        }
        let control = Control::Grant(tfs);
        Some(Action::SendToFlp { source, control })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::tests::{Bench, source};
    use crate::config::BuildConfig;
    use sheaf_protocol::control::Release;

    /// Returns an EPN that fetches two STFs at once.
    fn bench() -> Bench {
        Bench::new(BuildConfig {
            grants_max: 2,
            grant_ms: 100,
            ..BuildConfig::default()
        })
    }

    impl Bench {
        fn offer(&mut self, flp: u16, tfs: &[u64]) -> String {
            let offered = |tf: &u64| Offered {
                tf: TfId(*tf),
                bytes: 10,
            };
            let items: Vec<_> = tfs.iter().map(offered).collect();
            self.builder.handle_offer(self.now, source(flp), &items);
            self.said()
        }

        fn withdraw(&mut self, flp: u16, tf: u64) -> String {
            let now = self.now;
            self.builder.handle_withdrawn(now, source(flp), &[TfId(tf)]);
            self.said()
        }

        fn release(&mut self, version: u64, tf: u64) {
            self.builder.handle_release(&Release {
                version,
                floor: TfId(0),
                ranges: vec![(TfId(tf), TfId(tf + 1))],
            });
        }

        fn comes(&mut self, tf: u64, flp: u16) -> String {
            self.stf(tf, flp).expect("it is wanted");
            self.said()
        }
    }

    #[test]
    fn so_many_are_asked_for_at_once_and_the_oldest_tf_first() {
        let mut bench = bench();
        assert_eq!(bench.offer(0, &[7, 5, 6]), "grant [5, 6] of 0");
        assert_eq!(bench.offer(1, &[5, 6]), "");
        assert_eq!(bench.comes(5, 0), "grant [5] of 1");
        assert_eq!(bench.comes(5, 1), "grant [6] of 1");
        assert_eq!(bench.comes(6, 0), "grant [7] of 0");
        let stats = bench.builder.stats();
        assert_eq!((stats.offers, stats.grants), (5, 5));
    }

    #[test]
    fn what_is_withdrawn_or_refused_or_no_longer_wanted_makes_room_for_the_next() {
        let mut bench = bench();
        bench.offer(0, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(bench.withdraw(0, 1), "grant [3] of 0");
        // TF 2 is decided while its part is on the way, and TF 4 while it waits.
        bench.release(1, 2);
        bench.release(2, 4);
        assert_eq!(bench.stf(2, 0), Err(crate::RefusedStf::Decided));
        assert_eq!(bench.said(), "grant [5] of 0");
    }

    #[test]
    fn a_source_that_does_not_answer_delays_no_other_and_is_asked_again_last() {
        let mut bench = bench();
        assert_eq!(bench.offer(0, &[1, 2]), "grant [1, 2] of 0");
        assert_eq!(bench.offer(1, &[1, 2, 3]), "");
        bench.pass_ms(99);
        assert_eq!(bench.said(), "");
        bench.pass_ms(1);
        assert_eq!(bench.said(), "grant [1, 2] of 1");
        assert_eq!(bench.comes(1, 1), "grant [3] of 1");
        assert_eq!(bench.comes(2, 1), "grant [1] of 0");
        assert_eq!(bench.comes(1, 0), "grant [2] of 0");
    }

    #[test]
    fn an_offer_that_is_made_again_is_asked_for_again() {
        let mut bench = bench();
        assert_eq!(bench.offer(0, &[1]), "grant [1] of 0");
        assert_eq!(bench.offer(0, &[1]), "grant [1] of 0");
        bench.comes(1, 0);
        assert_eq!(bench.offer(0, &[1]), "", "it is here");
    }

    #[test]
    fn the_offers_of_a_source_end_with_its_last_stream() {
        let mut bench = bench();
        bench.builder.handle_stream_opened(source(0));
        bench.builder.handle_stream_opened(source(0));
        bench.offer(0, &[1, 2, 3]);
        assert_eq!(bench.offer(1, &[4]), "");
        bench.builder.handle_stream_closed(bench.now, source(0));
        assert_eq!(bench.said(), "");
        bench.builder.handle_stream_closed(bench.now, source(0));
        assert_eq!(bench.said(), "grant [4] of 1");
    }
}
