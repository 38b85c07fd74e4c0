//! Table of the codes of rejection.

use super::marked::{Table, markdown};
use sheaf_protocol::reject::Code;

/// Returns the one table of the page.
pub(super) fn tables() -> Vec<Table> {
    let head = [
        "number",
        "code",
        "what came",
        "sent by",
        "ends",
        "what to do",
    ];
    let rows = Code::ALL.map(|code| {
        [
            code.number().to_string(),
            format!("`{}`", code.name()),
            code.input().to_owned(),
            code.sent_by().to_owned(),
            code.ends().to_owned(),
            code.advice().to_owned(),
        ]
    });
    let text = markdown(head, rows);
    vec![Table { name: "", text }]
}
