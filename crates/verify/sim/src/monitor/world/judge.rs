//! Comparison of the collector, its store and the sums with the model.

use super::super::check::{self, broken};
use super::super::collector::Collector;
use super::super::names::source;
use super::super::options::Fault;
use super::{Journey, Sent, World};
use crate::invariant::{Broken, Invariant};

impl World<'_> {
    pub(super) fn audit(&mut self, collector: &Collector) -> Result<(), Broken> {
        check::accounting(collector, &self.model)?;
        let dropped = collector.shard.intake().kernel_drops();
        if dropped != self.kernel_drops {
            return broken(
                Invariant::Accounting,
                format!(
                    "kernel drops: found {dropped}, expected {}",
                    self.kernel_drops
                ),
            );
        }
        self.loss(collector)
    }

    /// Where nothing overtakes or repeats, the loss that a source has is what the network lost between two counts.
    fn loss(&self, collector: &Collector) -> Result<(), Broken> {
        let network = &self.options.network;
        let disturbs = |fault: &(u64, Fault)| {
            matches!(
                fault.1,
                Fault::CollectorClock(_)
                    | Fault::ClientClock(..)
                    | Fault::Restart(_)
                    | Fault::Explode(..)
                    | Fault::Gap(_)
            )
        };
        if network.twice + network.late > 0 || self.options.faults.iter().any(disturbs) {
            return Ok(());
        }
        for (sent, number) in self.sent.iter().zip(0..) {
            let taken = |one: &Sent| one.journey == Journey::Taken(self.life);
            let counts = |one: &Sent| one.has_count && taken(one);
            let (Some(first), Some(last)) =
                (sent.iter().position(counts), sent.iter().rposition(counts))
            else {
                continue;
            };
            let is_lost = |one: &&Sent| !taken(one) || !one.has_sample;
            let between = sent[first + 1..=last].iter().filter(is_lost);
            let lost: u64 = between.map(|one| one.samples).sum();
            let name = source(number);
            let mut sources = collector.shard.intake().sources();
            let found = sources.find(|one| one.0 == name);
            let found = found.map_or(0, |(_, stats)| stats.loss.lost());
            if found != lost {
                return broken(
                    Invariant::LossBySource,
                    format!("{name}: found {found}, expected {lost}, which the network lost"),
                );
            }
        }
        Ok(())
    }

    /// Compares everything that can be seen from outside.
    pub(super) fn look(&mut self) -> Result<(), Broken> {
        let Some(collector) = self.collector.take() else {
            return Ok(());
        };
        let looked = check::content(&collector.store, &self.model.store)
            .and_then(|()| self.audit(&collector));
        let accepted = collector.accepted();
        self.collector = Some(collector);
        self.hash.add(accepted);
        self.hash.add(self.model.intake.samples);
        looked
    }

    /// Sent = stored + suppressed + refused + late + lost, for every client.
    pub(super) fn sum(&mut self) -> Result<(), Broken> {
        for client in &self.clients {
            let books = &self.model.books.clients[usize::from(client.number)];
            if books.sum() != client.copies {
                return broken(
                    Invariant::SampleSum,
                    format!(
                        "c{} ({}) sent {}, the fates add up to {}: {books:?}",
                        client.number,
                        client.address(),
                        client.copies,
                        books.sum()
                    ),
                );
            }
            for (reason, count) in &books.0 {
                self.hash.add(reason.len() as u64);
                self.hash.add(*count);
            }
        }
        let results = &self.model.books.results;
        if results.sum() != self.model.books.made {
            return broken(
                Invariant::SampleSum,
                format!("{} results of windows: {results:?}", self.model.books.made),
            );
        }
        Ok(())
    }
}
