//! `sheaf new`: a policy, source or sink of one's own, as a package with its tests.

mod templates;

use crate::fail;
use crate::json_file::{self, JsonFlag};
use anyhow::Context as _;
use serde::Serialize;
use sheaf_placement::policy;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use templates::{TEMPLATES, Template};

/// Make a package of a policy, source or sink of your own, with its tests.
///
/// The package works as it is, and its tests hold it to the contract of its kind; change it from there. Sheaf itself is
/// not changed: the program of the package registers the policy, source or sink at one place. A package in Python needs
/// the Python package of Sheaf (`make wheel`), a crate in Rust needs its source tree. Exit status: 0 if all files were
/// written, 1 if one could not be, 2 if the command line is wrong; nothing is written then.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf new policy nearest                      a package in Python, into the folder nearest
  sheaf new source my-readout                   the STFs of an FLP
  sheaf new sink my-analysis                    the end of the TFs of an EPN
  sheaf new policy nearest --language rust --sheaf ~/sheaf")]
pub(crate) struct Args {
    /// Make a package of this kind.
    #[arg(value_enum)]
    kind: Kind,
    /// Use this name: a letter a-z, then a-z, 0-9, '-' and '_'.
    name: String,
    /// Write it in this language; sources and sinks are in Python.
    #[arg(long, value_enum, default_value = "python")]
    language: Language,
    /// Write into this folder, which is made; the name if left out.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Use this source tree of Sheaf for a crate in Rust; the one around this folder if left out.
    #[arg(long, value_name = "FOLDER")]
    sheaf: Option<PathBuf>,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Which EPN gets the next TF.
    Policy,
    /// The STFs of an FLP.
    Source,
    /// The end of the TFs of an EPN.
    Sink,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Source => "source",
            Self::Sink => "sink",
        }
    }
}

/// Language of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    Python,
    Rust,
}

/// Result for programs.
#[derive(Serialize)]
struct Made<'a> {
    schema: u32,
    folder: &'a Path,
    /// Files, below the folder.
    files: Vec<String>,
    /// Commands that come next.
    next: Vec<String>,
}

/// Runs the command.
///
/// # Errors
///
/// What is wrong with the arguments, or that a file cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let name = Name::of(&args.name, args.kind)?;
    let is_it = |it: &&Template| it.kind == args.kind && it.language == args.language;
    let template = TEMPLATES.iter().find(is_it).ok_or_else(|| {
        let kind = args.kind.word();
        fail::bad_use(format!(
            "--language rust: found a {kind}, expected a policy: a {kind} in Rust is a program around \
             `sheaf_node::readout` or `sheaf_node::consume`, as in crates/services/node/examples"
        ))
    })?;
    let tree = match args.language {
        Language::Python => None,
        Language::Rust => Some(tree(args.sheaf.as_deref())?),
    };
    let folder = args
        .folder
        .clone()
        .unwrap_or_else(|| PathBuf::from(&args.name));
    let has_something = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    anyhow::ensure!(
        !has_something && (folder.is_dir() || !folder.exists()),
        "found {}, expected an empty folder or none",
        folder.display()
    );
    let mut files = Vec::new();
    for (file, text) in template.files {
        let file = name.put_into(file);
        let text = name.put_into(text);
        let text = match &tree {
            Some(tree) if file == "Cargo.toml" => of_tree(&text, tree),
            _ => text,
        };
        let path = folder.join(&file);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        files.push(file);
    }
    if let Some(tree) = &tree {
        // The versions of dependencies that the tree was tested with.
        let (from, to) = (tree.join("Cargo.lock"), folder.join("Cargo.lock"));
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        files.push("Cargo.lock".to_owned());
    }
    let mut next = vec![format!("cd {}", folder.display())];
    next.extend(template.next.iter().map(|command| name.put_into(command)));
    let mut text = String::new();
    for file in &files {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "wrote {}", folder.join(file).display());
    }
    let _ = writeln!(text, "next:");
    for command in &next {
        let _ = writeln!(text, "  {command}");
    }
    let made = Made {
        schema: 1,
        folder: &folder,
        files,
        next,
    };
    json_file::print_either(args.flag.json, &made, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Forms of a name, and those of the template that they replace.
struct Name {
    pairs: [(String, String); 3],
}

impl Name {
    fn of(name: &str, kind: Kind) -> anyhow::Result<Self> {
        let module = name.replace('-', "_");
        // Modules of Python and crates that the package itself needs.
        let is_taken = ["sheaf", "pytest", "tests", "test", "core", "std"].contains(&&*module);
        if !policy::is_name(name) || is_taken {
            let expected = match is_taken {
                true => "a name that no other module has",
                false => "a letter a-z, then a-z, 0-9, '-' and '_', 64 at most",
            };
            return Err(fail::bad_use(format!(
                "name: found {name:?}, expected {expected}"
            )));
        }
        let template = format!("my-{}", kind.word());
        let forms = |name: &str| [name.to_owned(), name.replace('-', "_"), camel(name)];
        let [dashed, snake, camel] = forms(&template);
        let [to_dashed, to_snake, to_camel] = forms(name);
        Ok(Self {
            pairs: [(dashed, to_dashed), (snake, to_snake), (camel, to_camel)],
        })
    }

    /// Puts the name in place of that of the template.
    fn put_into(&self, text: &str) -> String {
        let pairs = self.pairs.iter();
        pairs.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// Returns the name of a class: `my-policy` gives `MyPolicy`.
fn camel(name: &str) -> String {
    let words = name.split(['-', '_']).filter(|word| !word.is_empty());
    let words = words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
    words.collect()
}

/// Returns the source tree of Sheaf: the one given, or the one that this folder is in.
fn tree(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let is_tree = |folder: &Path| folder.join("crates/apps/sheaf/Cargo.toml").is_file();
    let here = std::env::current_dir().context("cannot find this folder")?;
    let found = match given {
        Some(folder) => Some(folder).filter(|folder| is_tree(folder)),
        None => here.ancestors().find(|folder| is_tree(folder)),
    };
    let found = found.ok_or_else(|| {
        let found = given.map_or_else(|| "none around this folder".into(), |it| format!("{it:?}"));
        fail::bad_use(format!(
            "--sheaf: found {found}, expected the source tree of Sheaf, which has crates/apps/sheaf"
        ))
    })?;
    let absolute = fs::canonicalize(found);
    absolute.with_context(|| format!("cannot find {}", found.display()))
}

/// Returns the manifest of a template, which is a member of the workspace of Sheaf, as one of its own.
fn of_tree(manifest: &str, tree: &Path) -> String {
    let paths = format!("path = \"{}/crates/", tree.display());
    let manifest = manifest.replace("path = \"../../../crates/", &paths);
    // Those of Sheaf are not for others.
    let manifest = manifest.replace("license.workspace = true\n", "");
    let manifest = manifest.replace("[lints]\nworkspace = true\n\n", "");
    manifest + "\n# A workspace of its own, wherever it is.\n[workspace]\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_the_place_of_that_of_the_template_in_all_its_forms() {
        let name = Name::of("near-by2", Kind::Policy).expect("a name");
        let put = name.put_into("my-policy my_policy.py MyPolicy my-source policies");
        assert_eq!(put, "near-by2 near_by2.py NearBy2 my-source policies");
        for wrong in [
            "",
            "Near",
            "2nd",
            "a b",
            "-a",
            "sheaf",
            "std",
            &"a".repeat(65),
        ] {
            assert!(Name::of(wrong, Kind::Policy).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_kind_has_a_template_in_python_whose_files_bear_its_name() {
        for kind in [Kind::Policy, Kind::Source, Kind::Sink] {
            let is_it = |it: &&Template| it.kind == kind && it.language == Language::Python;
            let template = TEMPLATES.iter().find(is_it).expect("a template");
            let name = Name::of("north", kind).expect("a name");
            for (file, text) in template.files {
                let (file, text) = (name.put_into(file), name.put_into(text));
                for left in [&file, &text] {
                    assert!(
                        !left.to_lowercase().replace('_', "-").contains("my-"),
                        "{left}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_manifest_names_the_tree_and_is_a_workspace() {
        let manifest = include_str!("../../../../examples/new/policy-rust/Cargo.toml");
        let made = of_tree(manifest, Path::new("/opt/sheaf"));
        assert!(
            !made.contains("workspace = true") && !made.contains("../"),
            "{made}"
        );
        assert!(
            made.contains("path = \"/opt/sheaf/crates/apps/sheaf\""),
            "{made}"
        );
        assert!(made.parse::<toml::Table>().expect("a manifest")["workspace"].is_table());
    }
}
