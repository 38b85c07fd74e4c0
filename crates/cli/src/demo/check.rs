//! The books of a run, made up again from the event logs of those who did the work.
//!
//! The ICN keeps the books. A checker that asked the ICN whether they are right would hear yes, so this one
//! counts what each FLP wrote when it made and sent, and each EPN when it handed on, and holds that against
//! the verdicts and the books of the ICN. Whatever does not fit is a contradiction, told in words.

mod audit;
mod evidence;

pub(crate) use audit::{Audit, audit};
pub(crate) use evidence::{Evidence, Fate};

#[cfg(test)]
mod tests;
