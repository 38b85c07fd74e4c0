//! Expected fate of every sample, computed from what clients sent and the network delivered.
//!
//! The model is a second, plain answer to the questions that the collector answers: it never looks into the collector,
//! and the collector's accounting and the answers of its store are compared with it.

pub(super) mod books;
pub(super) mod intake;
pub(super) mod operators;
pub(super) mod store;

use super::client::Parcel;
use super::names::OutName;
use super::options::{MonitorOptions, Operators};
use books::Books;
use intake::{Fate, IntakeModel};
use operators::OperatorsModel;
use sheaf_sample_store::Appended;
use std::collections::VecDeque;
use store::StoreModel;

/// A sample behind the operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Passing {
    pub(super) name: OutName,
    pub(super) at_ms: i64,
    pub(super) value: f64,
    /// The client that it came from; results of windows have none.
    pub(super) client: Option<u16>,
}

/// Sum of the fates of one datagram or request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) taken: u64,
    pub(super) bad: u64,
    pub(super) refused: u64,
}

/// Expectation of one collector, over all its lives.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) intake: IntakeModel,
    pub(super) operators: OperatorsModel,
    pub(super) store: StoreModel,
    /// Samples between operators and store.
    pub(super) queue: VecDeque<Passing>,
    pub(super) books: Books,
}

impl Model {
    pub(super) fn new(options: &MonitorOptions) -> Self {
        Self {
            intake: IntakeModel::new(options.intake.clone()),
            operators: OperatorsModel::new(options.operators),
            store: StoreModel::new(&options.store),
            queue: VecDeque::new(),
            books: Books::new(options.clients.len()),
        }
    }

    /// A datagram or request is taken.
    pub(super) fn take(&mut self, now_ms: i64, parcel: &Parcel) -> Expected {
        let mut expected = Expected::default();
        let books = self.books.of(parcel.client);
        for (item, fate) in self.intake.take(now_ms, parcel) {
            match (fate, item) {
                (Fate::Bad, _) => {
                    expected.bad += 1;
                    books.add("bad", 1);
                }
                (Fate::Refused(reason), _) => {
                    expected.refused += 1;
                    books.add(reason, 1);
                }
                (Fate::Taken, (series, at_ms, value)) => {
                    expected.taken += 1;
                    let passed = self.operators.pass(now_ms, series, at_ms, value);
                    match passed {
                        Ok(passing) => self.queue.push_back(passing),
                        Err(reason) => books.add(reason, 1),
                    }
                }
            }
        }
        expected
    }

    /// The collector looks at its cut-offs and windows.
    pub(super) fn tick(&mut self, now_ms: i64) {
        self.intake.tick(now_ms);
        let results = self.operators.poll(now_ms);
        self.made(results);
    }

    pub(super) fn reload(&mut self, now_ms: i64, operators: Operators) {
        let results = self.operators.reload(now_ms, operators);
        self.made(results);
    }

    fn made(&mut self, results: Vec<Passing>) {
        self.books.made += results.len() as u64;
        self.queue.extend(results);
    }

    /// The store was given as many samples as `found` counts; returns what it should have counted.
    pub(super) fn append(&mut self, found: &Appended) -> Appended {
        let mut expected = Appended::default();
        for _ in 0..found.accepted + found.refused() {
            let Some(passing) = self.queue.pop_front() else {
                break;
            };
            let fate = self.store.append(passing, &mut expected);
            self.books.end(passing.client, fate);
        }
        expected
    }

    /// The store refused the next `count` samples. Returns `false` if there are not as many.
    pub(super) fn refuse(&mut self, reason: &'static str, count: u64) -> bool {
        for _ in 0..count {
            let Some(passing) = self.queue.pop_front() else {
                return false;
            };
            self.books.end(passing.client, reason);
        }
        true
    }

    /// The collector dies: what only its memory had is lost.
    pub(super) fn die(&mut self) {
        for passing in std::mem::take(&mut self.queue) {
            self.books.end(passing.client, "lost in memory");
        }
        self.intake.die();
        self.store.clock_ms = None;
    }

    /// The collector begins another life, with these operators.
    pub(super) fn start(&mut self, operators: Operators) {
        self.operators = OperatorsModel::new(operators);
    }
}
