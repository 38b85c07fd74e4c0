//! Supply chain of the build: licences, origins, banned crates, number of packages.
//!
//! The rules stand in `deny.toml`, where `cargo deny` reads them too. That tool wants a network for its
//! list of advisories, so CI runs this check instead, which needs none.

use super::Finding;
use super::tree::Tree;
use super::workspace::{Package, Workspace};
use serde::Deserialize;
use std::collections::BTreeSet;

const RULES: &str = "deny.toml";

/// Packages in the whole build, tests included. Each costs build time and trust; raise it knowingly.
const PACKAGES_MAX: usize = 539;

/// Names that are there in more than one version. Each costs build time, and one version is the older one; lower it
/// when one goes, raise it knowingly.
const DUPLICATES_MAX: usize = 31;

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    /// A name, or a name and a bound, such as `bytes@<1.11.1`: only versions below it are banned.
    #[serde(rename = "crate")]
    spec: String,
    reason: String,
    /// Packages that may use the banned one all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

impl Ban {
    fn is_of(&self, package: &Package) -> bool {
        match self.spec.split_once("@<") {
            None => self.spec == package.name,
            Some((name, bound)) => {
                name == package.name && numbers(&package.version) < numbers(bound)
            }
        }
    }

    /// Whether it is written in a way that this check understands; `cargo deny` understands more.
    fn is_plain(&self) -> bool {
        let (name, bound) = self.spec.split_once("@<").unwrap_or((&self.spec, "0"));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        name.chars().all(is_name) && bound.split('.').all(|part| part.parse::<u64>().is_ok())
    }
}

/// The three numbers of a version; what stands behind `-` or `+` does not count.
fn numbers(version: &str) -> [u64; 3] {
    let plain = version.split(['-', '+']).next().unwrap_or("");
    let mut parts = plain.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
}

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let rules: Rules = match toml::from_str(tree.text(RULES)) {
        Ok(rules) => rules,
        Err(error) => return vec![Finding::of_file(RULES, error.to_string())],
    };
    let packages = &workspace.packages;
    let mut findings = Vec::new();
    if packages.len() > PACKAGES_MAX {
        let message = format!(
            "holds {} packages, at most {PACKAGES_MAX} are wanted",
            packages.len()
        );
        findings.push(Finding::of_file("Cargo.lock", message));
    }
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let versions = |name: &&&str| {
        packages
            .iter()
            .filter(|package| package.name == ***name)
            .count()
    };
    let doubled: Vec<&str> = names
        .iter()
        .filter(|name| versions(name) > 1)
        .copied()
        .collect();
    if doubled.len() > DUPLICATES_MAX {
        let message = format!(
            "holds {} packages in several versions, at most {DUPLICATES_MAX} are wanted: {}",
            doubled.len(),
            doubled.join(" ")
        );
        findings.push(Finding::of_file("Cargo.lock", message));
    }
    for ban in rules.bans.deny.iter().filter(|ban| !ban.is_plain()) {
        let message = format!("bans {:?}, expected NAME or NAME@<VERSION", ban.spec);
        findings.push(Finding::of_file(RULES, message));
    }
    let faults = packages.iter().flat_map(|package| {
        let fault = move |fault: String| format!("{} {} {fault}", package.name, package.version);
        faults(package, packages, &rules).into_iter().map(fault)
    });
    findings.extend(faults.map(|fault| Finding::of_file("Cargo.lock", fault)));
    findings
}

fn faults(package: &Package, packages: &[Package], rules: &Rules) -> Vec<String> {
    let mut faults = Vec::new();
    match &package.license {
        None => faults.push("names no licence".to_owned()),
        Some(license) if !Expression::of(license).allowed_by(&rules.licenses.allow) => {
            faults.push(format!(
                "is under {license:?}, which {RULES} does not allow"
            ));
        }
        Some(_) => {}
    }
    if let Some(source) = &package.source {
        let registry = source.strip_prefix("registry+").unwrap_or("");
        if !rules.sources.allow_registry.contains(registry) {
            faults.push(format!("comes from {source}, which {RULES} does not allow"));
        }
    }
    if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.is_of(package)) {
        let users = packages.iter().filter(|user| user.needs(&package.name));
        let others: Vec<&str> = users
            .map(|user| user.name.as_str())
            .filter(|user| !ban.wrappers.iter().any(|wrapper| wrapper == user))
            .collect();
        if ban.wrappers.is_empty() || !others.is_empty() {
            let by = if others.is_empty() {
                String::new()
            } else {
                format!(", used by {}", others.join(" "))
            };
            faults.push(format!("is banned: {}{by}", ban.reason));
        }
    }
    faults
}

/// An SPDX licence expression, read from left to right: `OR` binds less than `AND`, and `/` is the `OR`
/// of old manifests.
struct Expression<'a> {
    tokens: Vec<&'a str>,
}

impl<'a> Expression<'a> {
    fn of(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        for word in text.split_whitespace() {
            tokens.extend(word.split_inclusive(['(', ')', '/']).flat_map(|piece| {
                let end = piece.trim_end_matches(['(', ')', '/']).len();
                let (name, sign) = piece.split_at(end);
                [name, sign].into_iter().filter(|token| !token.is_empty())
            }));
        }
        tokens.reverse();
        Self { tokens }
    }

    /// Whether the licences in `allow` are enough to use the package; not if the text is no expression.
    fn allowed_by(mut self, allow: &BTreeSet<String>) -> bool {
        let met = self.any(allow);
        met && self.tokens.is_empty()
    }

    fn any(&mut self, allow: &BTreeSet<String>) -> bool {
        let mut met = self.all(allow);
        while self.take("OR") || self.take("/") {
            met |= self.all(allow);
        }
        met
    }

    fn all(&mut self, allow: &BTreeSet<String>) -> bool {
        let mut met = self.one(allow);
        while self.take("AND") {
            met &= self.one(allow);
        }
        met
    }

    fn one(&mut self, allow: &BTreeSet<String>) -> bool {
        if self.take("(") {
            let met = self.any(allow);
            return self.take(")") && met;
        }
        let Some(license) = self.tokens.pop() else {
            return false;
        };
        if self.take("WITH") {
            let exception = self.tokens.pop().unwrap_or("");
            return allow.contains(&format!("{license} WITH {exception}"))
                || allow.contains(license);
        }
        allow.contains(license)
    }

    fn take(&mut self, token: &str) -> bool {
        self.tokens.pop_if(|next| *next == token).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
[licenses]
allow = [\"MIT\", \"Apache-2.0\", \"Unicode-3.0\"]
[bans]
deny = [
    { crate = \"openssl-sys\", reason = \"a second TLS\" },
    { crate = \"bytes@<1.11.1\", reason = \"overflow\" },
]
[sources]
allow-registry = [\"https://index\"]
";

    fn package(name: &str, license: Option<&str>, source: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: Some(source.to_owned()),
            ..Package::default()
        }
    }

    #[track_caller]
    fn expect(packages: Vec<Package>, expected: &[&str]) {
        let workspace = Workspace {
            packages,
            ..Workspace::default()
        };
        let found = check(&Tree::of(&[(RULES, SAMPLE)]), &workspace);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn packages_that_follow_the_rules_are_let_through() {
        let index = "registry+https://index";
        expect(vec![package("a", Some("GPL-3.0 OR MIT"), index)], &[]);
    }

    #[test]
    fn packages_that_break_a_rule_are_found() {
        let index = "registry+https://index";
        expect(
            vec![
                package("a", Some("GPL-3.0"), index),
                package("b", None, index),
                package("c", Some("MIT"), "git+https://github.com/c/c"),
                package("openssl-sys", Some("MIT"), index),
            ],
            &[
                "Cargo.lock: a 1.0.0 is under \"GPL-3.0\", which deny.toml does not allow",
                "Cargo.lock: b 1.0.0 names no licence",
                "Cargo.lock: c 1.0.0 comes from git+https://github.com/c/c, which deny.toml does not \
                 allow",
                "Cargo.lock: openssl-sys 1.0.0 is banned: a second TLS",
            ],
        );
    }

    #[test]
    fn old_versions_are_banned_by_a_bound() {
        let index = "registry+https://index";
        let bytes = |version: &str| Package {
            version: version.to_owned(),
            ..package("bytes", Some("MIT"), index)
        };
        for good in ["1.11.1", "1.12.0-rc.1", "2.0.0"] {
            expect(vec![bytes(good)], &[]);
        }
        for bad in ["1.11.0", "1.9.12", "0.4.12+old"] {
            let expected = format!("Cargo.lock: bytes {bad} is banned: overflow");
            expect(vec![bytes(bad)], &[&expected]);
        }
    }

    #[test]
    fn a_wrapper_may_use_what_is_banned_and_others_may_not() {
        let index = "registry+https://index";
        let rules = SAMPLE.replace(
            "reason = \"a second TLS\"",
            "reason = \"a second TLS\", wrappers = [\"legacy\"]",
        );
        let user = |name: &str| {
            let mut user = package(name, Some("MIT"), index);
            let needs = serde_json::json!({"name": "openssl-sys", "kind": null, "rename": null});
            user.dependencies = vec![serde_json::from_value(needs).unwrap()];
            user
        };
        let found = |users: &[&str]| -> Vec<String> {
            let mut packages = vec![package("openssl-sys", Some("MIT"), index)];
            packages.extend(users.iter().map(|name| user(name)));
            let workspace = Workspace {
                packages,
                ..Workspace::default()
            };
            let found = check(&Tree::of(&[(RULES, &rules)]), &workspace);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(&["legacy"]), Vec::<String>::new());
        let expected = "Cargo.lock: openssl-sys 1.0.0 is banned: a second TLS, used by other";
        assert_eq!(found(&["legacy", "other"]), [expected]);
    }

    #[test]
    fn a_ban_that_would_never_be_checked_is_found() {
        let rules = SAMPLE.replace("bytes@<1.11.1", "bytes:^1.0");
        let found = check(&Tree::of(&[(RULES, &rules)]), &Workspace::default());
        let expected = "deny.toml: bans \"bytes:^1.0\", expected NAME or NAME@<VERSION";
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expected]
        );
    }

    #[test]
    fn too_many_packages_in_several_versions_are_found() {
        let index = "registry+https://index";
        let versions = |number: usize| {
            ["1.0.0", "2.0.0"].map(|version| Package {
                version: version.to_owned(),
                ..package(&format!("p{number:02}"), Some("MIT"), index)
            })
        };
        expect((0..DUPLICATES_MAX).flat_map(versions).collect(), &[]);
        let found = check(
            &Tree::of(&[(RULES, SAMPLE)]),
            &Workspace {
                packages: (0..=DUPLICATES_MAX).flat_map(versions).collect(),
                ..Workspace::default()
            },
        );
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let most = DUPLICATES_MAX + 1;
        let expected = format!("Cargo.lock: holds {most} packages in several versions");
        assert!(found[0].starts_with(&expected), "{found:?}");
    }

    #[test]
    fn too_many_packages_are_found() {
        let many = vec![package("a", Some("MIT"), "registry+https://index"); PACKAGES_MAX + 1];
        let (found, most) = (PACKAGES_MAX + 1, PACKAGES_MAX);
        let expected = format!("Cargo.lock: holds {found} packages, at most {most} are wanted");
        expect(many, &[&expected]);
    }

    #[test]
    fn licence_expressions_are_read_as_spdx_means_them() {
        let allow = ["MIT", "Apache-2.0", "Unicode-3.0"]
            .map(str::to_owned)
            .into();
        let check = |text, expected| {
            assert_eq!(Expression::of(text).allowed_by(&allow), expected, "{text}");
        };
        check("MIT", true);
        check("MIT/GPL-2.0", true);
        check("(MIT OR GPL-2.0) AND Unicode-3.0", true);
        check("MIT OR GPL-2.0 AND BSD-9", true);
        check("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true);
        check("MIT AND GPL-2.0", false);
        check("(MIT OR GPL-2.0) AND BSD-9", false);
        check("GPL-2.0 WITH Linking-exception", false);
        check("(MIT", false);
        check("MIT MIT", false);
        check("", false);
    }
}
