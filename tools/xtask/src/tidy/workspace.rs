//! The crates of the workspace and all packages they pull in, as `cargo metadata` tells.

use super::tree::Tree;
use crate::command::{cargo, host, typed};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Content of the manifests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspace {
    /// Our own crates.
    pub(crate) crates: Vec<Crate>,
    /// The names in `[workspace.dependencies]`.
    pub(crate) dependencies: BTreeSet<String>,
    /// Every package in the build of this platform, ours included.
    pub(crate) packages: Vec<Package>,
}

/// One crate of ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crate {
    /// Package name, such as `sheaf-scheduler`.
    pub(crate) name: String,
    /// Where it lies, such as `crates/core/scheduler`.
    pub(crate) folder: String,
    /// Dependencies, of tests and build scripts included.
    pub(crate) uses: BTreeSet<String>,
    /// Dependencies of the shipped crate, tests left out.
    pub(crate) ships: BTreeSet<String>,
    /// Benches that `cargo test` does not run.
    pub(crate) benches_untested: Vec<String>,
}

impl Crate {
    /// The name used in ARCHITECTURE.md, such as `balance`: the last part of the folder.
    pub(crate) fn short(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }
}

/// One package, ours or from outside.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: Option<String>,
    /// None for our own.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    name: String,
    kind: Option<String>,
    rename: Option<String>,
    #[serde(default)]
    optional: bool,
}

impl Dependency {
    /// Whether it is built whatever the features are, and not for the tests of its package alone.
    fn is_built(&self) -> bool {
        !self.optional && self.kind.as_deref() != Some("dev")
    }
}

impl Package {
    /// Whether the package always uses the package `name`, whatever its features.
    pub(crate) fn needs(&self, name: &str) -> bool {
        let mut dependencies = self.dependencies.iter();
        dependencies.any(|dependency| dependency.name == name && dependency.is_built())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Target {
    name: String,
    kind: Vec<String>,
    test: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Workspace {
    /// Asks cargo, without network: dependencies must have been fetched.
    ///
    /// # Errors
    ///
    /// If cargo fails, for instance because the lock file does not fit the manifests.
    pub(crate) fn read(root: &Path, tree: &Tree) -> Result<Self> {
        let ours = metadata(&["--no-deps"])?;
        let crates: Result<_> = ours
            .into_iter()
            .map(|package| as_crate(root, package))
            .collect();
        Ok(Self {
            crates: crates?,
            dependencies: dependency_names(tree.text("Cargo.toml"))?,
            packages: built_packages(&host()?)?,
        })
    }
}

fn metadata(args: &[&str]) -> Result<Vec<Package>> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--offline"]);
    let metadata = serde_json::from_slice::<Metadata>(&output(command.args(args))?);
    Ok(metadata
        .context("cannot understand what cargo metadata says")?
        .packages)
}

/// The packages that are built for `host`. Those of other platforms are not even downloaded.
///
/// `cargo metadata` also lists packages behind features that are off; `cargo tree` does not, but says
/// less about each. So the one picks from the other.
fn built_packages(host: &str) -> Result<Vec<Package>> {
    let mut command = cargo();
    command.args([
        "tree",
        "--workspace",
        "--edges",
        "all",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    command.args(["--offline", "--locked", "--target", host]);
    let tree = String::from_utf8(output(&mut command)?).context("cargo tree speaks UTF-8")?;
    let built: BTreeSet<_> = tree.lines().filter_map(name_and_version).collect();
    let mut packages = metadata(&["--locked", "--filter-platform", host])?;
    packages.retain(|package| built.contains(&(package.name.as_str(), package.version.as_str())));
    Ok(packages)
}

/// The name and version at the start of a line such as `bytes v1.12.0 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", typed(command)))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {stderr}",
        typed(command)
    );
    Ok(output.stdout)
}

fn as_crate(root: &Path, package: Package) -> Result<Crate> {
    let manifest = Path::new(&package.manifest_path);
    let folder = manifest.parent().context("a manifest lies in a folder")?;
    let folder = folder
        .strip_prefix(root)
        .context("our crates lie in the workspace")?;
    // Under both names, so that a renamed dependency is neither unused nor a way around an arrow.
    let names = |dependency: &Dependency| {
        [Some(dependency.name.clone()), dependency.rename.clone()]
            .into_iter()
            .flatten()
    };
    let benches = package
        .targets
        .iter()
        .filter(|target| target.kind.iter().any(|k| k == "bench"));
    Ok(Crate {
        folder: folder.to_string_lossy().into_owned(),
        uses: package.dependencies.iter().flat_map(names).collect(),
        ships: package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.is_none())
            .flat_map(names)
            .collect(),
        benches_untested: benches
            .filter(|target| !target.test)
            .map(|target| target.name.clone())
            .collect(),
        name: package.name,
    })
}

/// The names in `[workspace.dependencies]` of the root manifest.
fn dependency_names(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse().context("cannot parse Cargo.toml")?;
    let table = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let table = table.and_then(toml::Value::as_table);
    Ok(table
        .context("Cargo.toml has no [workspace.dependencies]")?
        .keys()
        .cloned()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_knows_its_own_crates_and_where_they_lie() {
        let tree = Tree::read(&crate::command::root()).expect("the repository can be read");
        let crates = metadata(&["--no-deps"]).expect("cargo metadata works without network");
        let crates: Vec<Crate> = crates
            .into_iter()
            .map(|package| as_crate(&crate::command::root(), package).unwrap())
            .collect();
        let xtask = crates
            .iter()
            .find(|one| one.name == "xtask")
            .expect("xtask is a member");
        assert_eq!(
            (xtask.folder.as_str(), xtask.short()),
            ("tools/xtask", "xtask")
        );
        assert!(xtask.ships.contains("anyhow"));
        assert!(
            dependency_names(tree.text("Cargo.toml"))
                .unwrap()
                .contains("anyhow")
        );
    }

    #[test]
    fn a_line_of_the_tree_names_a_package() {
        let check = |line, expected| assert_eq!(name_and_version(line), expected);
        check("bytes v1.12.0", Some(("bytes", "1.12.0")));
        check("xtask v0.1.0 (/sheaf/xtask)", Some(("xtask", "0.1.0")));
        check("bytes feature \"default\"", None);
        check("", None);
    }

    #[test]
    fn a_manifest_without_a_dependency_table_is_refused() {
        let error = dependency_names("[workspace]\nmembers = []").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Cargo.toml has no [workspace.dependencies]"
        );
    }
}
