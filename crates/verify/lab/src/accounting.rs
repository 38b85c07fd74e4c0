//! Accounting of a run, recomputed from the event logs of its nodes by the code that `sheaf data verify` runs.

use crate::farm::Log;
use sheaf_audit::{self as verify, Audit, Evidence, Options};
use sheaf_node::status::AccountingStatus;
use sheaf_testbed::IoError;

/// Findings that the event logs prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recomputed {
    /// TFs without a verdict.
    pub(crate) in_flight: u64,
    /// TFs delivered more than once.
    pub(crate) delivered_twice: u64,
    /// The first contradictions, in words.
    pub(crate) contradictions: Vec<String>,
    /// All contradictions.
    pub(crate) contradictions_total: u64,
}

/// Reads all `logs`, and compares with the last books of the ICN; `None` if it may not have told its last ones.
///
/// # Errors
///
/// What reading gives.
pub(crate) fn recompute(
    logs: &[Log],
    status: Option<&AccountingStatus>,
) -> Result<Recomputed, IoError> {
    let audit = audit(logs, status)?;
    Ok(Recomputed {
        in_flight: audit.in_flight,
        delivered_twice: audit.delivered_twice,
        contradictions: words(&audit),
        contradictions_total: audit.contradictions_total,
    })
}

/// The first contradictions that an audit found, in words.
pub(crate) fn words(audit: &Audit) -> Vec<String> {
    let contradictions = audit.contradictions.iter();
    contradictions.map(ToString::to_string).collect()
}

/// As [`recompute`], with all that the logs prove.
///
/// # Errors
///
/// What reading gives.
pub(crate) fn audit(logs: &[Log], status: Option<&AccountingStatus>) -> Result<Audit, IoError> {
    let mut evidence = Evidence::default();
    for log in logs {
        evidence
            .read(&log.path, Some(log.node), log.fate)
            .map_err(IoError::of(format!("read {}", log.path.display())))?;
    }
    let options = Options {
        accounting: status.map(sheaf_farm::accounting_of),
        ..Options::default()
    };
    Ok(verify::audit(&mut evidence, &options))
}
