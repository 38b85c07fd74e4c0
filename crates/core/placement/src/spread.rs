//! Choice of the one of several places, known by their names, that a source stays with: a collector of metrics.
//!
//! Every source chooses for itself, with the policy `maglev` over the names, so that no two have to talk: the sources
//! are spread evenly, a source keeps its place from one life to the next, and a place that is added or taken out
//! moves as few sources as can be. While a place is away its sources are spread over the others.

use crate::load::{Job, LoadView, TargetId, TargetLoad};
use crate::policy::Policy as _;
use crate::policy::maglev::Maglev;
use sheaf_protocol::{Timestamp, splitmix};

/// Entries of the table: with ten places the shares are even within some per mille.
const ENTRIES: usize = 4_093;
/// Hashes that are tried for a source whose place is away.
const TRIES_MAX: u32 = 64;

/// Choice of one source.
///
/// ```
/// use sheaf_placement::Spread;
///
/// let mut spread = Spread::new("epn:3", ["a:8089", "b:8089"]);
/// let own = spread.choose(&[true, true]);
/// let mut is_up = [true, true];
/// is_up[own] = false;
/// assert_eq!(spread.choose(&is_up), 1 - own);
/// assert_eq!(spread.choose(&[true, true]), own);
/// ```
#[derive(Clone, Debug)]
pub struct Spread {
    policy: Maglev,
    view: LoadView,
    /// Target of each place, in the order of the names.
    targets: Vec<TargetId>,
    source: u64,
}

impl Spread {
    /// Returns the choice of `source` among the places `names`, at least one. The order of the names does not matter.
    #[must_use]
    pub fn new<'a>(source: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut view = LoadView::new();
        let mut targets = Vec::new();
        for name in names {
            let number = hash(name).to_le_bytes();
            let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
            // Two names with one number are as rare as they are harmless: the next number is free.
            let numbers = (0..u32::MAX).map(|more| TargetId(number.wrapping_add(more)));
            let mut free = numbers.filter(|id| !targets.contains(id));
            let id = free.next().expect("fewer places than numbers");
            view.insert(TargetLoad::new(id, 0, 1));
            targets.push(id);
        }
        Self {
            policy: Maglev::of_size(ENTRIES),
            view,
            targets,
            source: hash(source),
        }
    }

    /// Returns the place for now; `is_up` says of each place whether it takes anything. If none does, the place is that
    /// of a farm without failures.
    ///
    /// # Panics
    ///
    /// If there are no places, or `is_up` is not as long as their list.
    pub fn choose(&mut self, is_up: &[bool]) -> usize {
        assert_eq!(is_up.len(), self.targets.len(), "one flag a place");
        let home = self.place(self.source);
        if is_up[home] || !is_up.contains(&true) {
            return home;
        }
        // By further hashes, so that the sources of a place spread evenly over all others.
        let mut hash = self.source;
        let mut others = (0..TRIES_MAX).map(|_| {
            hash = splitmix::hash(hash);
            self.place(hash)
        });
        let up = others.find(|place| is_up[*place]);
        let first = is_up.iter().position(|is_up| *is_up);
        up.or(first).unwrap_or(home)
    }

    /// Returns the place of a number, whether it takes anything or not.
    fn place(&mut self, number: u64) -> usize {
        let job = Job {
            id: number,
            bytes: 0,
            avoid: &[],
            is_early: false,
        };
        let chosen = self.policy.choose(Timestamp(0), &job, &self.view);
        let chosen = chosen.expect("a target without bookings takes a job");
        let mut targets = self.targets.iter();
        targets
            .position(|target| *target == chosen)
            .expect("the policy chooses out of the view")
    }
}

/// Hash of a name, the same in every process.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0, |hash, byte| splitmix::hash(hash ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["influxdb-tcp://a:8089", "influxdb-tcp://b:8089", "c"];

    /// Place of each of 3,000 sources.
    fn places(names: &[&str], is_up: &[bool]) -> Vec<String> {
        let place = |number: u32| {
            let source = format!("epn:{number}");
            let at = Spread::new(&source, names.iter().copied()).choose(is_up);
            names[at].to_owned()
        };
        (0..3_000).map(place).collect()
    }

    fn moved(before: &[String], after: &[String]) -> usize {
        before.iter().zip(after).filter(|(a, b)| a != b).count()
    }

    #[test]
    fn sources_are_spread_evenly_whatever_the_order_of_the_names() {
        let all = places(&NAMES, &[true; 3]);
        for name in NAMES {
            let share = all.iter().filter(|place| *place == name).count();
            assert!(share.abs_diff(1_000) < 100, "{name}: {share}");
        }
        let turned = [NAMES[2], NAMES[0], NAMES[1]];
        assert_eq!(places(&turned, &[true; 3]), all);
    }

    #[test]
    fn only_sources_of_a_place_that_is_away_move_and_come_back() {
        let all = places(&NAMES, &[true; 3]);
        let without = places(&NAMES, &[true, false, true]);
        assert!(!without.contains(&NAMES[1].to_owned()));
        let own = all.iter().filter(|place| *place == NAMES[1]).count();
        assert_eq!(moved(&all, &without), own);
        let heirs = |name: &str| without.iter().filter(|place| *place == name).count();
        assert!(heirs(NAMES[0]).abs_diff(heirs(NAMES[2])) < 200);
        assert_eq!(places(&NAMES, &[false; 3]), all);
    }

    #[test]
    fn a_place_that_is_added_takes_its_share_alone() {
        let before = places(&NAMES, &[true; 3]);
        let after = places(&[NAMES[0], NAMES[1], NAMES[2], "d"], &[true; 4]);
        let taken = after.iter().filter(|place| *place == "d").count();
        assert!(taken.abs_diff(750) < 100, "{taken}");
        assert!(moved(&before, &after) < taken + 100);
    }
}
