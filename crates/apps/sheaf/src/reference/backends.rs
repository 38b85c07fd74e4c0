//! Tables of the back ends of metrics.

use super::marked::{Table, markdown};
use sheaf_node::metrics::{BackendOption, SCHEMES, VERBOSITY};
use std::collections::BTreeMap;

/// Returns a table of the schemes, and one of their options.
pub(super) fn tables() -> Vec<Table> {
    let code = |text: &str| format!("`{text}`");
    let rows = SCHEMES.iter().map(|scheme| {
        let options = scheme.options.iter().map(|option| code(option.name));
        [
            format!("`{}://{}`", scheme.name, scheme.place),
            scheme.help.trim_end_matches('.').to_owned(),
            options.collect::<Vec<_>>().join(", "),
        ]
    });
    let schemes = Table {
        name: "schemes",
        text: markdown(["back end", "what it is", "options"], rows),
    };
    let all = SCHEMES.iter().flat_map(|scheme| scheme.options);
    let options: BTreeMap<&str, &BackendOption> = all
        .chain([&VERBOSITY])
        .map(|option| (option.name, option))
        .collect();
    let rows = options.into_values().map(|option| {
        let default = option.default;
        [
            code(option.name),
            if default.is_empty() {
                String::new()
            } else {
                code(default)
            },
            option.help.trim_end_matches('.').to_owned(),
        ]
    });
    let options = Table {
        name: "options",
        text: markdown(["option", "default", "what it is"], rows),
    };
    vec![schemes, options]
}
