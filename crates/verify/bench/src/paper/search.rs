//! Highest rate that a server takes: which load to offer next, after those that were tried.
//!
//! Loads are doubled until one loses more than is allowed, and then halved between the best and the worst, in equal
//! ratios. A load that the generator did not reach is the last one: nothing more can be offered on this machine.

/// A load that was offered, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tried {
    /// Points that were sent.
    pub(crate) points: u64,
    /// Longest time that the generator was behind, in s.
    pub(crate) behind_s: f64,
    /// Points a second that were asked of the generator.
    pub(crate) offered_per_s: u64,
    /// Points a second that it has sent.
    pub(crate) sent_per_s: f64,
    /// Share of them that the server did not store.
    pub(crate) lost_percent: f64,
    /// CPU time of the server for a million points stored, in s.
    pub(crate) cpu_s_per_million: f64,
}

/// Bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Search {
    /// Load that is offered first, in points a second.
    pub(crate) first: u64,
    /// Loads that are never gone below and above.
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Ratio of the lowest load that loses too much to the highest that does not, at which the search ends.
    pub(crate) ratio: f64,
    /// Share that may be lost.
    pub(crate) lost_percent_max: f64,
}

/// Share of the offered load below which the generator has not reached it.
const REACHED: f64 = 0.95;

impl Search {
    /// Returns the load to offer next; `None` at the end.
    pub(crate) fn next(&self, tried: &[Tried]) -> Option<u64> {
        if tried.is_empty() {
            return Some(self.first.clamp(self.least, self.most));
        }
        let bad = self.bad(tried);
        let good = self.good(tried);
        let next = match (good, bad) {
            (Some(good), None) => (good.offered_per_s * 2).min(self.most),
            (None, Some(bad)) => (bad / 2).max(self.least),
            (Some(good), Some(bad)) => {
                let good = good.offered_per_s as f64;
                if bad as f64 / good <= self.ratio {
                    return None;
                }
                (good * bad as f64).sqrt().round() as u64
            }
            (None, None) => return None,
        };
        let is_new = tried.iter().all(|one| one.offered_per_s != next);
        is_new.then_some(next)
    }

    /// Returns the highest load that loses no more than is allowed, below all that do.
    pub(crate) fn good(&self, tried: &[Tried]) -> Option<Tried> {
        let lossy = self.lossy(tried);
        let kept = tried.iter().copied().filter(|one| !self.is_lossy(one));
        let kept = kept.filter(|one| lossy.is_none_or(|bound| one.offered_per_s < bound));
        kept.max_by(|one, two| one.sent_per_s.total_cmp(&two.sent_per_s))
    }

    /// Returns whether the search ended at what the generator can send, and not at a loss.
    pub(crate) fn is_generators(&self, tried: &[Tried]) -> bool {
        let unreached = tried.iter().any(|one| !is_reached(one));
        let lossy = tried.iter().any(|one| self.is_lossy(one));
        unreached && !lossy
    }

    fn is_lossy(&self, one: &Tried) -> bool {
        one.lost_percent > self.lost_percent_max
    }

    fn lossy(&self, tried: &[Tried]) -> Option<u64> {
        let lossy = tried.iter().filter(|one| self.is_lossy(one));
        lossy.map(|one| one.offered_per_s).min()
    }

    /// Lowest load that is too much, for the server or for the generator.
    fn bad(&self, tried: &[Tried]) -> Option<u64> {
        let bad = tried
            .iter()
            .filter(|one| self.is_lossy(one) || !is_reached(one));
        bad.map(|one| one.offered_per_s).min()
    }
}

fn is_reached(one: &Tried) -> bool {
    one.sent_per_s >= REACHED * one.offered_per_s as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Search = Search {
        first: 300_000,
        least: 10_000,
        most: 5_000_000,
        ratio: 1.1,
        lost_percent_max: 0.0,
    };

    /// Searches with a server that takes `takes` points a second, and a generator that sends `sends`.
    fn run(search: &Search, takes: f64, sends: f64) -> (Vec<Tried>, Option<Tried>) {
        let mut tried = Vec::new();
        while let Some(offered_per_s) = search.next(&tried) {
            assert!(tried.len() < 30, "{tried:?}");
            let sent_per_s = (offered_per_s as f64).min(sends);
            let lost = (1.0 - takes / sent_per_s).max(0.0);
            tried.push(Tried {
                points: 1,
                behind_s: 0.0,
                offered_per_s,
                sent_per_s,
                lost_percent: 100.0 * lost,
                cpu_s_per_million: 1.0,
            });
        }
        let good = search.good(&tried);
        (tried, good)
    }

    #[test]
    fn a_search_ends_within_its_ratio_below_what_the_server_takes() {
        for takes in [25_000.0, 299_000.0, 1_234_567.0] {
            let (tried, good) = run(&SEARCH, takes, 1e9);
            let found = good.unwrap().sent_per_s;
            assert!(found <= takes && found * 1.1 >= takes * 0.99, "{tried:?}");
            assert!(!SEARCH.is_generators(&tried));
        }
    }

    #[test]
    fn a_server_that_always_loses_has_no_rate_and_one_that_never_does_has_the_generators() {
        assert_eq!(run(&SEARCH, 1.0, 1e9).1, None);
        let (tried, good) = run(&SEARCH, 1e9, 900_000.0);
        assert!(good.unwrap().sent_per_s >= 800_000.0, "{tried:?}");
        assert!(SEARCH.is_generators(&tried));
    }

    #[test]
    fn a_loss_that_is_allowed_gives_a_higher_rate_from_the_same_loads() {
        let (mut tried, strict) = run(&SEARCH, 500_000.0, 1e9);
        let loose = Search {
            lost_percent_max: 20.0,
            ..SEARCH
        };
        assert!(loose.good(&tried).unwrap().sent_per_s > strict.unwrap().sent_per_s);
        tried.truncate(1);
        assert_eq!(loose.next(&tried), Some(600_000));
    }

    #[test]
    fn a_lossy_load_bounds_those_above_it_that_were_lucky() {
        let tried = |offered_per_s, lost_percent| Tried {
            points: 1,
            behind_s: 0.0,
            offered_per_s,
            sent_per_s: offered_per_s as f64,
            lost_percent,
            cpu_s_per_million: 1.0,
        };
        let all = [tried(100, 0.0), tried(200, 1.0), tried(400, 0.0)];
        assert_eq!(SEARCH.good(&all).unwrap().offered_per_s, 100);
    }
}
