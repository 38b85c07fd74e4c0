//! Accounting of a load: fates, bytes, latencies, by server. Pure.

use crate::fate::{Failure, Fate};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// Most names of servers that are kept apart; a server that invents names is not given memory for them.
const NAMES_MAX: usize = 1000;
/// Longest latency that is kept apart, in µs: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Decimal digits of a latency.
const DIGITS: u8 = 3;

/// Names of servers, in the order in which they answered.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    indexes: HashMap<String, usize>,
}

impl Names {
    /// Returns the index of `name`; that of all further ones if there are too many.
    pub(crate) fn index_of(&mut self, name: &str) -> usize {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        if self.names.len() > NAMES_MAX {
            return NAMES_MAX;
        }
        let name = if self.names.len() == NAMES_MAX {
            "others"
        } else {
            name
        };
        self.indexes.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}

/// Latencies of one kind, with three digits each.
#[derive(Clone, PartialEq, Deserialize, Serialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Spread(Histogram<u64>);

impl Default for Spread {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS);
        Self(histogram.expect("bounds and digits are those that it takes"))
    }
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most] = [self.quantile_ms(0.5), self.max_ms()];
        write!(
            f,
            "{} latencies, median {median} ms, at most {most} ms",
            self.count()
        )
    }
}

impl From<Vec<(u64, u64)>> for Spread {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut spread = Self::default();
        for (value, count) in counts {
            spread.0.saturating_record(value.min(LATENCY_US_MAX));
            // The first of them is recorded above, where no value is too large.
            let _ = spread
                .0
                .record_n(value.min(LATENCY_US_MAX), count.saturating_sub(1));
        }
        spread
    }
}

impl From<Spread> for Vec<(u64, u64)> {
    fn from(spread: Spread) -> Self {
        let values = spread.0.iter_recorded();
        values
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    }
}

impl Spread {
    fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.0.saturating_record(us.max(1));
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Latency in ms that the share `quantile` does not exceed; 0 of none.
    #[must_use]
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Longest latency in ms; 0 of none.
    #[must_use]
    pub fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    fn merge(&mut self, other: &Self) {
        let added = self.0.add(&other.0);
        added.expect("all have the same bounds");
    }
}

/// Latencies of transfers that ended in the window.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Latencies {
    /// From the call to the connection.
    pub connect: Spread,
    /// From the request to the first byte of the answer.
    pub first_byte: Spread,
    /// From the call, or the request on a connection that was there, to the last byte.
    pub transfer: Spread,
}

/// Part of one server in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Served {
    /// Transfers finished.
    pub finished: u64,
    /// Bytes of bodies, those of transfers that did not finish too.
    pub bytes: u64,
}

/// Result of a load. *Started = finished + failed + cut*, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Outcome {
    /// Clients.
    pub clients: u32,
    /// Most connections at once.
    pub held_max: u32,
    /// Length of the window.
    pub seconds: f64,
    /// Transfers that began.
    pub started: u64,
    /// Transfers that finished.
    pub finished: u64,
    /// Transfers that failed, by reason.
    pub failed: BTreeMap<Failure, u64>,
    /// Transfers that the end of the run cut.
    pub cut: u64,
    /// Transfers begun again since the server had closed a connection between two requests.
    pub reconnected: u64,
    /// Bytes of bodies in the window.
    pub window_bytes: u64,
    /// Transfers finished in the window.
    pub window_finished: u64,
    /// Connections made in the window.
    pub window_connections: u64,
    /// By name of the server, in the window.
    pub servers: BTreeMap<String, Served>,
    /// Latencies, in the window.
    pub latencies: Latencies,
    /// Bytes of bodies in each second of the window.
    pub bytes_each_second: Vec<u64>,
}

impl Outcome {
    /// Adds what another part of the same load did.
    pub fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.held_max += other.held_max;
        self.seconds = self.seconds.max(other.seconds);
        self.started += other.started;
        self.finished += other.finished;
        for (failure, count) in &other.failed {
            *self.failed.entry(*failure).or_default() += count;
        }
        self.cut += other.cut;
        self.reconnected += other.reconnected;
        self.window_bytes += other.window_bytes;
        self.window_finished += other.window_finished;
        self.window_connections += other.window_connections;
        for (name, served) in &other.servers {
            let sum = self.servers.entry(name.clone()).or_default();
            sum.finished += served.finished;
            sum.bytes += served.bytes;
        }
        self.latencies.connect.merge(&other.latencies.connect);
        self.latencies.first_byte.merge(&other.latencies.first_byte);
        self.latencies.transfer.merge(&other.latencies.transfer);
        let seconds = self.bytes_each_second.len();
        self.bytes_each_second
            .resize(seconds.max(other.bytes_each_second.len()), 0);
        for (sum, bytes) in self
            .bytes_each_second
            .iter_mut()
            .zip(&other.bytes_each_second)
        {
            *sum += bytes;
        }
    }

    /// Transfers that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Transfers that failed on a connection that they had.
    #[must_use]
    pub fn broken(&self) -> u64 {
        let breaks = self.failed.iter().filter(|(failure, _)| failure.is_break());
        breaks.map(|(_, count)| count).sum()
    }

    /// Whether every transfer that began has one fate.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.started == self.finished + self.failures() + self.cut
    }

    /// Bytes of bodies a second in the window.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.window_bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Accounting of a run under way.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) names: Names,
    outcome: Outcome,
    /// By index of the server.
    served: Vec<Served>,
    /// Since the window opened; `None` outside of it.
    window: Option<Duration>,
}

impl Account {
    pub(crate) fn new(clients: u32) -> Self {
        Self {
            names: Names::default(),
            outcome: Outcome {
                clients,
                ..Outcome::default()
            },
            served: Vec::new(),
            window: None,
        }
    }

    /// Sets the time since the window opened; `None`: it is not open.
    pub(crate) fn set_window(&mut self, since: Option<Duration>) {
        self.window = since;
    }

    pub(crate) fn add_start(&mut self) {
        self.outcome.started += 1;
    }

    pub(crate) fn add_reconnect(&mut self) {
        self.outcome.reconnected += 1;
    }

    /// Takes a connection that took `latency` to be made, the `held`th at once.
    pub(crate) fn add_connection(&mut self, latency: Duration, held: u32) {
        self.outcome.held_max = self.outcome.held_max.max(held);
        if self.window.is_some() {
            self.outcome.window_connections += 1;
            self.outcome.latencies.connect.record(latency);
        }
    }

    pub(crate) fn add_first_byte(&mut self, latency: Duration) {
        if self.window.is_some() {
            self.outcome.latencies.first_byte.record(latency);
        }
    }

    /// Takes `bytes` of a body of the server `server`.
    pub(crate) fn add_bytes(&mut self, server: usize, bytes: u64) {
        let Some(since) = self.window.filter(|_| bytes > 0) else {
            return;
        };
        self.outcome.window_bytes += bytes;
        self.served_by(server).bytes += bytes;
        let second = since.as_secs() as usize;
        if self.outcome.bytes_each_second.len() <= second {
            self.outcome.bytes_each_second.resize(second + 1, 0);
        }
        self.outcome.bytes_each_second[second] += bytes;
    }

    /// Takes the end of a transfer of the server `server` that took `latency`.
    pub(crate) fn add_fate(&mut self, fate: Fate, server: usize, latency: Duration) {
        match fate {
            Fate::Finished => {
                self.outcome.finished += 1;
                if self.window.is_some() {
                    self.outcome.window_finished += 1;
                    self.outcome.latencies.transfer.record(latency);
                    self.served_by(server).finished += 1;
                }
            }
            Fate::Failed(failure) => *self.outcome.failed.entry(failure).or_default() += 1,
            Fate::Cut => self.outcome.cut += 1,
        }
    }

    fn served_by(&mut self, server: usize) -> &mut Served {
        if self.served.len() <= server {
            self.served.resize(server + 1, Served::default());
        }
        &mut self.served[server]
    }

    /// Ends the accounting, with a window that was `length` long.
    pub(crate) fn finish(mut self, length: Duration) -> Outcome {
        self.outcome.seconds = length.as_secs_f64();
        for (index, served) in self.served.iter().enumerate() {
            if *served != Served::default() {
                let name = self.names.name(index).to_owned();
                self.outcome.servers.insert(name, *served);
            }
        }
        debug_assert!(self.outcome.adds_up(), "{:?}", self.outcome);
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sample() -> Outcome {
        let mut account = Account::new(3);
        let [a, b] = ["a", "b"].map(|name| account.names.index_of(name));
        // Before the window: a fate counts, its latency and bytes do not.
        account.add_start();
        account.add_bytes(a, 7);
        account.add_fate(Fate::Finished, a, MS);
        account.set_window(Some(Duration::ZERO));
        for (fate, server) in [
            (Fate::Finished, a),
            (Fate::Finished, b),
            (Fate::Failed(Failure::Short), b),
            (Fate::Failed(Failure::Refused), b),
        ] {
            account.add_start();
            account.add_connection(2 * MS, 3);
            account.add_bytes(server, 10);
            account.add_fate(fate, server, 20 * MS);
        }
        account.set_window(Some(Duration::from_millis(1500)));
        account.add_start();
        account.add_bytes(a, 5);
        account.add_fate(Fate::Cut, a, MS);
        account.finish(Duration::from_secs(2))
    }

    #[test]
    fn every_transfer_has_one_fate_and_the_window_counts_what_is_in_it() {
        let outcome = sample();
        assert!(outcome.adds_up());
        assert_eq!((outcome.started, outcome.finished, outcome.cut), (6, 3, 1));
        assert_eq!((outcome.failures(), outcome.broken()), (2, 1));
        assert_eq!((outcome.window_finished, outcome.window_bytes), (2, 45));
        assert_eq!(outcome.bytes_each_second, [40, 5]);
        let served = |name: &str| (outcome.servers[name].finished, outcome.servers[name].bytes);
        assert_eq!((served("a"), served("b")), ((1, 15), (1, 30)));
        assert_eq!(outcome.latencies.transfer.count(), 2);
        assert!((outcome.latencies.transfer.max_ms() - 20.0).abs() < 0.1);
        assert!((outcome.bytes_per_s() - 22.5).abs() < 1e-9);
    }

    #[test]
    fn parts_that_went_through_json_add_up() {
        let text = serde_json::to_string(&sample()).unwrap();
        let other: Outcome = serde_json::from_str(&text).unwrap();
        assert_eq!(other, sample());
        let mut sum = sample();
        sum.merge(&other);
        assert!(sum.adds_up());
        assert_eq!((sum.clients, sum.started, sum.held_max), (6, 12, 6));
        assert_eq!(sum.failed[&Failure::Short], 2);
        assert_eq!(sum.servers["a"].bytes, 30);
        assert_eq!(sum.bytes_each_second, [80, 10]);
        assert_eq!(sum.latencies.connect.count(), 8);
        assert!((sum.seconds - 2.0).abs() < 1e-9);
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names::default();
        let first = names.index_of("0");
        for name in 1..2 * NAMES_MAX {
            names.index_of(&name.to_string());
        }
        assert_eq!(names.names.len(), NAMES_MAX + 1);
        assert_eq!(names.index_of("0"), first);
        let further = names.index_of("one more");
        assert_eq!(names.name(further), "others");
    }
}
