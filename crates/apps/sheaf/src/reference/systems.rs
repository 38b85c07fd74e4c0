//! Table of the prior systems that stand for policies in simulations.

use super::marked::{Table, markdown};
use sheaf_sim::systems::{SYSTEMS, System};

/// Returns the table of the page.
pub(super) fn tables() -> Vec<Table> {
    let row = |system: &System| {
        let name = format!("`{}`", system.name);
        let [rule, otherwise, source] =
            [system.rule, system.otherwise, system.source].map(str::to_owned);
        [name, rule, otherwise, source]
    };
    vec![Table {
        name: "",
        text: markdown(
            [
                "policy",
                "gives a TF to",
                "a TF for which it has none",
                "source",
            ],
            SYSTEMS.iter().map(row),
        ),
    }]
}
