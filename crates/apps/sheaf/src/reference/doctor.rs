//! The table of the checks of `sheaf doctor`.

use super::marked::{Table, markdown};
use sheaf_doctor::{CHECKS, Check};

/// Returns the tables of the page.
pub(super) fn tables() -> Vec<Table> {
    let row = |check: &Check| {
        let name = format!("`{}`", check.name);
        let why = match check.cost {
            Some(cost) => format!("{}; {cost}", check.why),
            None => check.why.to_owned(),
        };
        let [reads, expects] = [check.reads, check.expects].map(str::to_owned);
        [name, reads, expects, why]
    };
    vec![Table {
        name: "",
        text: markdown(
            ["check", "reads", "expects", "otherwise"],
            CHECKS.iter().map(row),
        ),
    }]
}
