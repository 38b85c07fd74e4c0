//! Where every sample of every client ended.

use std::collections::BTreeMap;

/// Fates of the copies of one client's samples on the network, by name of the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::monitor) struct ClientBooks(pub(in crate::monitor) BTreeMap<&'static str, u64>);

/// Fate of a sample that the store has.
pub(in crate::monitor) const STORED: &str = "stored";
/// Fate of a sample that another one at its time took the place of, or that repeated it.
pub(in crate::monitor) const REPLACED: &str = "replaced";
/// Fate of a sample that the store had, and no commit.
pub(in crate::monitor) const UNCOMMITTED: &str = "lost uncommitted";

impl ClientBooks {
    pub(in crate::monitor) fn add(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    pub(in crate::monitor) fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// A sample that counted as stored is lost.
    fn lose(&mut self) {
        if let Some(stored) = self.0.get_mut(STORED) {
            *stored -= 1;
        }
        self.add(UNCOMMITTED, 1);
    }
}

/// Books of all clients, and of what the collector made itself.
#[derive(Clone, Debug, Default)]
pub(in crate::monitor) struct Books {
    pub(in crate::monitor) clients: Vec<ClientBooks>,
    /// Fates of the results of windows.
    pub(in crate::monitor) results: ClientBooks,
    /// Results of windows.
    pub(in crate::monitor) made: u64,
}

impl Books {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            clients: vec![ClientBooks::default(); clients],
            ..Self::default()
        }
    }

    pub(in crate::monitor) fn of(&mut self, client: u16) -> &mut ClientBooks {
        &mut self.clients[usize::from(client)]
    }

    fn of_any(&mut self, client: Option<u16>) -> &mut ClientBooks {
        match client {
            Some(client) => self.of(client),
            None => &mut self.results,
        }
    }

    pub(in crate::monitor) fn end(&mut self, client: Option<u16>, reason: &'static str) {
        self.of_any(client).add(reason, 1);
    }

    pub(in crate::monitor) fn lose(&mut self, client: Option<u16>) {
        self.of_any(client).lose();
    }
}
