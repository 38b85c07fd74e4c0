//! Which crate may use which: the table in ARCHITECTURE.md against the manifests, and the order of the layers against
//! both.

use super::Finding;
use super::markdown::{cells, code_spans, prose};
use super::tree::Tree;
use super::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "ARCHITECTURE.md";

/// Folders of the layers, lowest first. A crate ships with crates of its own layer and of lower ones only.
const LAYERS: [&str; 6] = [
    "crates/base/",
    "crates/core/",
    "crates/io/",
    "crates/services/",
    "crates/verify/",
    "crates/apps/",
];

/// Crate → line of its row, and what it may use.
type Arrows<'a> = BTreeMap<&'a str, (usize, BTreeSet<&'a str>)>;

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let Some(allowed) = table(tree.text(PAGE)) else {
        let message = "has no table with the columns \"crate\" and \"may use\"";
        return vec![Finding::of_file(PAGE, message)];
    };
    let short_of: BTreeMap<&str, &str> = workspace
        .crates
        .iter()
        .map(|one| (one.name.as_str(), one.short()))
        .collect();
    let mut findings = upward(workspace);
    for one in &workspace.crates {
        let Some((_, may_use)) = allowed.get(one.short()) else {
            findings.push(Finding::of_file(
                PAGE,
                format!("table of arrows lacks `{}`", one.short()),
            ));
            continue;
        };
        // Tests count as well: an arrow that only a test needs still ties the two crates together.
        let arrows = one
            .uses
            .iter()
            .filter_map(|name| short_of.get(name.as_str()));
        for to in arrows.filter(|to| !may_use.contains(*to)) {
            let manifest = format!("{}/Cargo.toml", one.folder);
            let message = format!(
                "`{}` uses `{to}`, which the table in {PAGE} does not allow: take another way, or \
                 write an ADR and change the table",
                one.short()
            );
            findings.push(Finding::of_file(&manifest, message));
        }
    }
    let known: BTreeSet<&str> = short_of.values().copied().collect();
    for (from, (line, to)) in &allowed {
        let unknown = [from]
            .into_iter()
            .chain(to)
            .filter(|name| !known.contains(*name));
        findings.extend(unknown.map(|name| {
            Finding::of_line(
                PAGE,
                *line,
                format!("table of arrows names `{name}`, no crate of ours"),
            )
        }));
    }
    findings
}

/// Dependencies on a crate of a higher layer, and crates in no layer. Tests may look up: the log's are run on files.
fn upward(workspace: &Workspace) -> Vec<Finding> {
    let layer = |folder: &str| LAYERS.iter().position(|layer| folder.starts_with(layer));
    let mut findings = Vec::new();
    for one in &workspace.crates {
        let manifest = format!("{}/Cargo.toml", one.folder);
        let own = layer(&one.folder);
        if own.is_none() && one.folder.starts_with("crates/") {
            let message = format!("lies in no layer, expected one of: {}", LAYERS.join(" "));
            findings.push(Finding::of_file(&manifest, message));
        }
        let used = workspace.crates.iter();
        let used = used.filter(|other| one.ships.contains(&other.name));
        let above = used.filter(|other| own.is_some() && layer(&other.folder) > own);
        findings.extend(above.map(|other| {
            let message = format!("ships with {}, which lies in a higher layer", other.folder);
            Finding::of_file(&manifest, message)
        }));
    }
    findings
}

/// The first table whose header names the columns "crate" and "may use".
fn table(page: &str) -> Option<Arrows<'_>> {
    let mut lines = prose(page);
    let column = lines.by_ref().find_map(|(_, line)| {
        let header = cells(line)?;
        (header.first() == Some(&"crate")).then_some(())?;
        header.iter().position(|cell| *cell == "may use")
    })?;
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    let arrows = rows.filter_map(|(line, row)| {
        let cells = cells(row)?;
        let name = code_spans(cells.first()?).next()?;
        Some((name, (line, code_spans(cells.get(column)?).collect())))
    });
    Some(arrows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::Crate;

    const GOOD: &str = "\
Words.

| crate | what | may use |
| --- | --- | --- |
| `protocol` | `words` | nothing of ours |
| `scheduler` | decides | `protocol` |
";

    /// Compares the findings about a page and the arrows `scheduler` → `uses`.
    #[track_caller]
    fn expect(page: &str, uses: &[&str], expected: &[&str]) {
        let new = |short: &str, uses: &[&str]| Crate {
            name: format!("sheaf-{short}"),
            folder: format!("crates/core/{short}"),
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
            ..Crate::default()
        };
        let crates = vec![new("protocol", &["bytes"]), new("scheduler", uses)];
        let workspace = Workspace {
            crates,
            ..Workspace::default()
        };
        let findings = check(&Tree::of(&[(PAGE, page)]), &workspace);
        let found: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn arrows_of_the_table_are_let_through() {
        expect(GOOD, &["sheaf-protocol", "rand"], &[]);
        expect(GOOD, &[], &[]);
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_found() {
        expect(
            &GOOD.replace("decides | `protocol`", "decides | nothing"),
            &["sheaf-protocol"],
            &[
                "crates/core/scheduler/Cargo.toml: `scheduler` uses `protocol`, which the table in ARCHITECTURE.md \
               does not allow: take another way, or write an ADR and change the table",
            ],
        );
    }

    #[test]
    fn an_arrow_to_a_higher_layer_is_found() {
        let new = |folder: &str, ships: &[&str]| Crate {
            name: format!("sheaf-{}", folder.rsplit('/').next().unwrap()),
            folder: folder.to_owned(),
            ships: ships.iter().map(|name| (*name).to_owned()).collect(),
            ..Crate::default()
        };
        let crates = vec![
            new("crates/base/protocol", &["bytes", "sheaf-node"]),
            new("crates/services/node", &["sheaf-protocol"]),
            new("crates/loose", &[]),
            new("tools/xtask", &["sheaf-node"]),
        ];
        let workspace = Workspace {
            crates,
            ..Workspace::default()
        };
        let found: Vec<_> = upward(&workspace).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/base/protocol/Cargo.toml: ships with crates/services/node, which lies in a higher layer",
                "crates/loose/Cargo.toml: lies in no layer, expected one of: crates/base/ crates/core/ crates/io/ \
                 crates/services/ crates/verify/ crates/apps/",
            ]
        );
    }

    #[test]
    fn crates_and_rows_are_the_same() {
        expect(
            &GOOD.replace("`scheduler`", "`schedule`"),
            &[],
            &[
                "ARCHITECTURE.md: table of arrows lacks `scheduler`",
                "ARCHITECTURE.md:6: table of arrows names `schedule`, no crate of ours",
            ],
        );
        expect(
            &GOOD.replace("decides | `protocol`", "decides | `protocol`, `protocols`"),
            &[],
            &["ARCHITECTURE.md:6: table of arrows names `protocols`, no crate of ours"],
        );
    }

    #[test]
    fn a_page_without_the_table_is_found() {
        expect(
            "Words.",
            &[],
            &["ARCHITECTURE.md: has no table with the columns \"crate\" and \"may use\""],
        );
    }
}
