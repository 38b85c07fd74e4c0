//! Table of sources: by name, with a bound.

use crate::batch::{Batch, Notice};
use crate::budget::Budget;
use crate::config::IntakeConfig;
use crate::reason::Reason;
use crate::source::SourceStats;
use core::net::IpAddr;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Name of a source in one intake; none is alive once the source made way for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SourceRef {
    index: u32,
    life: u32,
}

/// One source.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) stats: SourceStats,
    pub(crate) budget: Budget,
    /// Address of the sender that named the source first.
    named_by: IpAddr,
}

#[derive(Debug)]
struct Place {
    life: u32,
    source: Option<Source>,
}

/// All sources of an intake.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    places: Vec<Place>,
    free: Vec<u32>,
    names: IndexMap<String, u32, FxBuildHasher>,
    /// Sources that each address named.
    addresses: IndexMap<IpAddr, u32, FxBuildHasher>,
    cut_off: Vec<SourceRef>,
    /// Where the search for an idle source, and the sweep, go on.
    hand: usize,
    next: usize,
    /// Sources that made way for others.
    pub(crate) evicted: u64,
    /// Accounting of the sources that are no longer here.
    pub(crate) gone: SourceStats,
}

/// Places that are looked at for an idle source before a new one is refused.
const LOOKS: usize = 64;

impl Sources {
    pub(crate) fn get(&mut self, at: SourceRef) -> Option<&mut Source> {
        let place = self.places.get_mut(at.index as usize)?;
        place.source.as_mut().filter(|_| place.life == at.life)
    }

    pub(crate) fn is_alive(&self, at: SourceRef) -> bool {
        let place = self.places.get(at.index as usize);
        place.is_some_and(|place| place.life == at.life && place.source.is_some())
    }

    /// Source with `name`, opened if there is none.
    pub(crate) fn of_name(
        &mut self,
        name: &str,
        address: IpAddr,
        now_ms: i64,
        config: &IntakeConfig,
        out: &mut Batch,
    ) -> Result<SourceRef, Reason> {
        if let Some(&index) = self.names.get(name) {
            let life = self.places[index as usize].life;
            return Ok(SourceRef { index, life });
        }
        let named = self.addresses.get(&address).copied().unwrap_or(0);
        if named >= config.sources_per_address_max {
            return Err(Reason::SourceLimit);
        }
        if self.names.len() >= config.sources_max as usize {
            let before_ms = now_ms - i64::from(config.evict_after_s) * 1000;
            let source = self.evict(before_ms).ok_or(Reason::SourceLimit)?;
            out.notices.push(Notice::Evicted { source });
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                life: 0,
                source: None,
            });
            u32::try_from(self.places.len() - 1).expect("sources_max is below 2^32")
        });
        *self.addresses.entry(address).or_default() += 1;
        self.names.insert(name.to_owned(), index);
        let place = &mut self.places[index as usize];
        place.source = Some(Source {
            name: name.to_owned(),
            stats: SourceStats {
                seen_ms: now_ms,
                ..SourceStats::default()
            },
            budget: Budget::new(now_ms, config),
            named_by: address,
        });
        let life = place.life;
        Ok(SourceRef { index, life })
    }

    /// Takes one new series out of the budget of a source, and cuts the source off that has none left.
    pub(crate) fn admit(
        &mut self,
        at: SourceRef,
        now_ms: i64,
        config: &IntakeConfig,
        out: &mut Batch,
    ) -> Result<(), Reason> {
        let source = self.get(at).expect("the caller looked the source up");
        let Err((reason, is_cut_off)) = source.budget.take(now_ms, config) else {
            source.stats.series += 1;
            return Ok(());
        };
        if is_cut_off {
            source.stats.cut_offs += 1;
            out.notices.push(Notice::CutOff {
                source: source.name.clone(),
                reason,
                until_ms: source.budget.cut_until_ms().unwrap_or(now_ms),
            });
            if !self.cut_off.contains(&at) {
                self.cut_off.push(at);
            }
        }
        Err(reason)
    }

    /// Removes an idle source out of the next places; returns its name.
    fn evict(&mut self, before_ms: i64) -> Option<String> {
        let looks = LOOKS.min(self.places.len());
        let candidates = (0..looks).map(|step| (self.hand + step) % self.places.len());
        let seen = |index: usize| {
            let source = self.places[index].source.as_ref();
            source.map(|source| (source.stats.seen_ms, index))
        };
        let (seen_ms, index) = candidates.filter_map(seen).min()?;
        self.hand = (self.hand + looks) % self.places.len();
        if seen_ms >= before_ms {
            return None;
        }
        self.evicted += 1;
        Some(self.remove(index))
    }

    fn remove(&mut self, index: usize) -> String {
        let place = &mut self.places[index];
        let source = place.source.take().expect("the caller saw the source");
        place.life = place.life.wrapping_add(1);
        self.free
            .push(u32::try_from(index).expect("sources_max is below 2^32"));
        self.names.swap_remove(&source.name);
        if let Some(named) = self.addresses.get_mut(&source.named_by) {
            *named -= 1;
            if *named == 0 {
                self.addresses.swap_remove(&source.named_by);
            }
        }
        self.gone.merge(&source.stats);
        source.name
    }

    /// Ends cut-offs whose time is over, and removes sources without series that were idle since `before_ms` among
    /// `share` of the places, a part of 1000.
    pub(crate) fn sweep(
        &mut self,
        now_ms: i64,
        share: u64,
        before_ms: i64,
        config: &IntakeConfig,
        out: &mut Batch,
    ) {
        let mut cut_off = std::mem::take(&mut self.cut_off);
        cut_off.retain(|&at| {
            let Some(source) = self.get(at) else {
                return false;
            };
            let is_over = source.budget.restore(now_ms, config);
            if is_over {
                let source = source.name.clone();
                out.notices.push(Notice::Restored { source });
            }
            !is_over
        });
        self.cut_off = cut_off;
        let length = self.places.len();
        let part = usize::try_from(length as u64 * share.min(1000) / 1000).unwrap_or(length);
        for _ in 0..(part + 1).min(length) {
            self.next = (self.next + 1) % length;
            let source = self.places[self.next].source.as_ref();
            if source
                .is_some_and(|source| source.stats.series == 0 && source.stats.seen_ms < before_ms)
            {
                self.remove(self.next);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.names
            .values()
            .filter_map(|&index| self.places[index as usize].source.as_ref())
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}
