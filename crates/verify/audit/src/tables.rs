//! Tables of the lines of the logs, one for each kind, in rows of 8 to 32 bytes.
//!
//! A run of an hour has millions of TFs, so repeated values (lives, targets, verdicts) stand in a list once and rows
//! name them by their place. A TF of *n* FLPs takes 48 bytes and 72 for each FLP: 264 bytes with three, 2.6 GB for ten
//! million.

use sheaf_verdict_log::event::StreamEvent;
use std::collections::BTreeMap;

/// Place of a life in [`Evidence`](super::Evidence).
pub(super) type LifeIndex = u32;

/// Index and incarnation of an FLP or EPN.
pub(super) type Named = (u16, u64);

/// Row of an STF that an FLP made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) tf: u64,
    pub(super) bytes: u64,
    pub(super) digest: u32,
    pub(super) life: LifeIndex,
}

/// Row of an STF that an FLP does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skipped {
    pub(super) tf: u64,
    pub(super) life: LifeIndex,
    /// Place in `reasons`.
    pub(super) reason: u32,
}

/// Row of an STF that an FLP sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) tf: u64,
    pub(super) life: LifeIndex,
    /// Place in `assignments`.
    pub(super) assignment: u32,
}

/// Assignment that an FLP obeyed when it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Assignment {
    pub(super) term: u64,
    pub(super) attempt: u32,
    pub(super) to: Named,
}

/// Row of a TF that an EPN delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) tf: u64,
    pub(super) life: LifeIndex,
    /// Place in `flp_lists`.
    pub(super) missing: u32,
    /// Number of the delivery in [`Part::delivery`].
    pub(super) number: u32,
    /// Whether a later life reports that this one had done it, which it may repeat.
    pub(super) is_hearsay: bool,
    /// Whether the consumer was told that it may be a second delivery.
    pub(super) is_marked: bool,
    /// Whether the consumer worked on it until its EPN wrote `freed`.
    pub(super) is_held: bool,
}

/// Returns the deliveries of one TF without those that a later life of an EPN only repeats.
pub(super) fn as_they_happened(deliveries: &[Delivery]) -> Vec<&Delivery> {
    let own = deliveries.iter().filter(|row| !row.is_hearsay);
    let mut found: Vec<&Delivery> = own.collect();
    for delivery in deliveries.iter().filter(|row| row.is_hearsay) {
        if !found.iter().any(|known| known.life == delivery.life) {
            found.push(delivery);
        }
    }
    found
}

/// Row of an STF in a delivered TF.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) tf: u64,
    pub(super) bytes: u64,
    pub(super) digest: u32,
    /// Place in `sources`.
    pub(super) source: u32,
    pub(super) delivery: u32,
}

/// Row of a verdict that an ICN wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) tf: u64,
    /// Place in `verdicts`.
    pub(super) verdict: u32,
    /// Place in `sessions`.
    pub(super) session: u32,
    /// Place in `rosters`.
    pub(super) roster: u32,
}

/// Verdict on a TF.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Verdict {
    pub(super) name: String,
    /// The EPN that built it.
    pub(super) at: Option<Named>,
    pub(super) missing: Vec<u16>,
    pub(super) reason: Option<String>,
}

/// Writer of verdicts: a life of an ICN in a term, or a verdict log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Session {
    pub(super) by: String,
    /// Term of the writer; 0 if no log holds it.
    pub(super) term: u64,
    pub(super) is_ledger: bool,
}

/// Row of an amendment that an ICN wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amended {
    pub(super) tf: u64,
    /// Place in `sessions`.
    pub(super) session: u32,
}

/// Row of a TF that a consumer held: it has finished, or it died and another one has taken the TF.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handled {
    pub(super) tf: u64,
    pub(super) life: LifeIndex,
    pub(super) is_finished: bool,
}

/// Row of a TF that an EPN gave back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    pub(super) tf: u64,
    pub(super) life: LifeIndex,
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) made: Vec<Made>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) sent: Vec<Sent>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) parts: Vec<Part>,
    pub(super) decided: Vec<Decided>,
    /// Amendments: verdicts on TFs that were built again.
    pub(super) redelivered: Vec<Decided>,
    pub(super) abandoned: Vec<Amended>,
    /// Amendments to `dropped`, for want of a consumer.
    pub(super) undelivered: Vec<Amended>,
    /// TFs that EPNs gave back.
    pub(super) returned: Vec<Returned>,
    /// TFs that consumers have finished with.
    pub(super) handled: Vec<Handled>,
    pub(super) called: Vec<u64>,
    pub(super) reasons: List<String>,
    pub(super) assignments: List<Assignment>,
    pub(super) flp_lists: List<Vec<u16>>,
    /// Fates of TFs in the streams of a sink.
    pub(super) stream_fates: List<Vec<StreamEvent>>,
    pub(super) sources: List<Named>,
    pub(super) verdicts: List<Verdict>,
    pub(super) sessions: List<Session>,
    /// Rosters; `None` stands for an unknown one.
    pub(super) rosters: List<Option<Vec<Named>>>,
}

impl Tables {
    /// Sorts all rows by their TFs. Logs are nearly in order already.
    pub(super) fn sort(&mut self) {
        self.made.sort_by_key(|row| row.tf);
        self.skipped.sort_by_key(|row| row.tf);
        self.sent.sort_by_key(|row| row.tf);
        self.deliveries.sort_by_key(|row| row.tf);
        self.parts.sort_by_key(|row| row.tf);
        self.decided.sort_by_key(|row| row.tf);
        self.redelivered.sort_by_key(|row| row.tf);
        self.abandoned.sort_by_key(|row| row.tf);
        self.undelivered.sort_by_key(|row| row.tf);
        self.returned.sort_by_key(|row| row.tf);
        self.handled.sort_by_key(|row| row.tf);
        self.called.sort_unstable();
        self.called.dedup();
    }

    /// Returns all TFs in order, each with its rows. The tables must be sorted.
    pub(super) fn tfs(&self) -> impl Iterator<Item = (u64, Facts<'_>)> {
        let mut made = Rest(&self.made, |row: &Made| row.tf);
        let mut skipped = Rest(&self.skipped, |row: &Skipped| row.tf);
        let mut sent = Rest(&self.sent, |row: &Sent| row.tf);
        let mut deliveries = Rest(&self.deliveries, |row: &Delivery| row.tf);
        let mut parts = Rest(&self.parts, |row: &Part| row.tf);
        let mut decided = Rest(&self.decided, |row: &Decided| row.tf);
        let mut redelivered = Rest(&self.redelivered, |row: &Decided| row.tf);
        let mut abandoned = Rest(&self.abandoned, |row: &Amended| row.tf);
        let mut undelivered = Rest(&self.undelivered, |row: &Amended| row.tf);
        let mut returned = Rest(&self.returned, |row: &Returned| row.tf);
        let mut handled = Rest(&self.handled, |row: &Handled| row.tf);
        let mut called = Rest(&self.called, |tf: &u64| *tf);
        std::iter::from_fn(move || {
            let firsts = [
                made.first(),
                skipped.first(),
                sent.first(),
                deliveries.first(),
                decided.first(),
                redelivered.first(),
                abandoned.first(),
                undelivered.first(),
                returned.first(),
                handled.first(),
                called.first(),
            ];
            let tf = firsts.into_iter().flatten().min()?;
            let facts = Facts {
                made: made.take(tf),
                skipped: skipped.take(tf),
                sent: sent.take(tf),
                deliveries: deliveries.take(tf),
                parts: parts.take(tf),
                decided: decided.take(tf),
                redelivered: redelivered.take(tf),
                abandoned: abandoned.take(tf),
                undelivered: undelivered.take(tf),
                returned: returned.take(tf),
                handled: handled.take(tf),
                called: !called.take(tf).is_empty(),
            };
            Some((tf, facts))
        })
    }
}

/// All rows about one TF.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) made: &'a [Made],
    pub(super) skipped: &'a [Skipped],
    pub(super) sent: &'a [Sent],
    pub(super) deliveries: &'a [Delivery],
    pub(super) parts: &'a [Part],
    pub(super) decided: &'a [Decided],
    pub(super) redelivered: &'a [Decided],
    pub(super) abandoned: &'a [Amended],
    pub(super) undelivered: &'a [Amended],
    pub(super) returned: &'a [Returned],
    pub(super) handled: &'a [Handled],
    pub(super) called: bool,
}

/// Rows of a sorted table that are still to come.
struct Rest<'a, T>(&'a [T], fn(&T) -> u64);

impl<'a, T> Rest<'a, T> {
    fn first(&self) -> Option<u64> {
        self.0.first().map(self.1)
    }

    fn take(&mut self, tf: u64) -> &'a [T] {
        let count = self.0.iter().take_while(|row| (self.1)(row) == tf).count();
        let (now, rest) = self.0.split_at(count);
        self.0 = rest;
        now
    }
}

/// Distinct values, named by their place.
#[derive(Clone, Debug)]
pub(super) struct List<T> {
    places: BTreeMap<T, u32>,
    things: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            places: BTreeMap::new(),
            things: Vec::new(),
        }
    }
}

impl<T: Clone + Ord> List<T> {
    /// Returns the place of `thing`; a new one gets the next place.
    pub(super) fn place(&mut self, thing: T) -> u32 {
        if let Some(place) = self.places.get(&thing) {
            return *place;
        }
        let place =
            u32::try_from(self.things.len()).expect("fewer than 4 billion different things");
        self.things.push(thing.clone());
        self.places.insert(thing, place);
        place
    }

    /// Returns the value at `place`, which [`place`](Self::place) has returned.
    pub(super) fn at(&self, place: u32) -> &T {
        &self.things[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_size_that_the_documents_say() {
        let of_tf = size_of::<Delivery>() + size_of::<Decided>();
        let of_stf = size_of::<Made>() + size_of::<Sent>() + size_of::<Part>();
        assert_eq!((of_tf, of_stf), (48, 72));
    }

    #[test]
    fn rows_of_all_tables_meet_at_their_tf() {
        let made = |tf, life| Made {
            tf,
            bytes: 1,
            digest: 2,
            life,
        };
        let mut tables = Tables {
            made: vec![made(5, 0), made(2, 0), made(5, 1)],
            called: vec![9, 2, 9],
            ..Tables::default()
        };
        tables.sort();
        let found: Vec<(u64, usize, bool)> = tables
            .tfs()
            .map(|(tf, facts)| (tf, facts.made.len(), facts.called))
            .collect();
        assert_eq!(found, [(2, 1, true), (5, 2, false), (9, 0, true)]);
    }
}
