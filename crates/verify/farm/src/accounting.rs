//! The accounting that an ICN states, in the form in which an audit compares it with the logs.

use sheaf_audit::Accounting;
use sheaf_node::status::AccountingStatus;

/// Returns the counts of a status line that an audit compares.
#[must_use]
pub fn accounting_of(status: &AccountingStatus) -> Accounting {
    Accounting {
        announced: status.announced,
        complete: status.complete,
        incomplete: status.incomplete,
        dropped: status.dropped.clone(),
        in_flight: status.in_flight,
        abandoned: status.abandoned,
        redelivered: status.redelivered,
        bytes: status.bytes,
    }
}
