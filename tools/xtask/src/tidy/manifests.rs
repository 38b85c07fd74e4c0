//! Manifests: every declared dependency has a user, no bench is left out of the tests.

use super::Finding;
use super::tree::Tree;
use super::workspace::Workspace;

pub(crate) fn check(_: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unused = workspace
        .dependencies
        .iter()
        .filter(|name| !workspace.crates.iter().any(|one| one.uses.contains(*name)));
    findings.extend(unused.map(|name| {
        Finding::of_file(
            "Cargo.toml",
            format!("declares the dependency {name}, which no crate uses"),
        )
    }));
    for one in &workspace.crates {
        let manifest = format!("{}/Cargo.toml", one.folder);
        findings.extend(one.benches_untested.iter().map(|bench| {
            let message = format!("bench {bench} does not run under cargo test: set test = true");
            Finding::of_file(&manifest, message)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::Crate;

    #[test]
    fn an_unused_dependency_and_an_untested_bench_are_found() {
        let frame = Crate {
            folder: "crates/base/protocol".to_owned(),
            uses: ["bytes".to_owned()].into(),
            benches_untested: vec!["codec".to_owned()],
            ..Crate::default()
        };
        let workspace = Workspace {
            crates: vec![frame],
            dependencies: ["bytes".to_owned(), "left-pad".to_owned()].into(),
            packages: Vec::new(),
        };
        let found = check(&Tree::default(), &workspace);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "Cargo.toml: declares the dependency left-pad, which no crate uses",
                "crates/base/protocol/Cargo.toml: bench codec does not run under cargo test: set test = true",
            ]
        );
    }
}
