//! `sheaf reference`: pages of `docs/reference` that are derived from the program.
//!
//! A page is a row of [`PAGES`]: the whole file, or tables between markers in a file that people write. A test compares
//! each with the committed file; `sheaf reference --write .` rewrites all of them.

mod backends;
mod cli;
mod codes;
mod config;
mod doctor;
mod events;
mod gateway;
mod marked;
mod metrics;
mod systems;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use marked::Table;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// File of the repository that the program writes, or has tables in.
struct Page {
    /// Argument of the command.
    name: &'static str,
    /// File, from the root of the repository.
    file: &'static str,
    content: Content,
}

/// Part of a page that is derived.
enum Content {
    /// The whole file, about the whole command line.
    Whole(fn(clap::Command) -> String),
    /// Tables between markers.
    Tables(fn() -> Vec<Table>),
}

/// All pages that are derived from the program.
const PAGES: &[Page] = &[
    Page {
        name: "cli",
        file: "docs/reference/cli.md",
        content: Content::Whole(cli::page),
    },
    Page {
        name: "codes",
        file: "docs/reference/codes.md",
        content: Content::Tables(codes::tables),
    },
    Page {
        name: "config",
        file: "docs/reference/config.md",
        content: Content::Tables(config::tables),
    },
    Page {
        name: "doctor",
        file: "docs/how-to/doctor.md",
        content: Content::Tables(doctor::tables),
    },
    Page {
        name: "example",
        file: "config/example.toml",
        content: Content::Whole(|_| sheaf_node::config::keys::example()),
    },
    Page {
        name: "events",
        file: "docs/reference/events.md",
        content: Content::Tables(events::tables),
    },
    Page {
        name: "gateway",
        file: "docs/reference/gateway.md",
        content: Content::Tables(gateway::tables),
    },
    Page {
        name: "metrics",
        file: "docs/reference/metrics.md",
        content: Content::Tables(metrics::tables),
    },
    Page {
        name: "systems",
        file: "docs/explanation/simulator.md",
        content: Content::Tables(systems::tables),
    },
    Page {
        name: "backends",
        file: "docs/how-to/metrics-from-your-program.md",
        content: Content::Tables(backends::tables),
    },
];

impl Page {
    /// Returns the file of the repository at `root` as the program writes it.
    fn rewritten(&self, root: &Path, program: clap::Command) -> anyhow::Result<String> {
        match self.content {
            Content::Whole(write) => Ok(write(program)),
            Content::Tables(tables) => {
                let path = root.join(self.file);
                let page = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                marked::replace(&page, self.name, &tables())
                    .with_context(|| path.display().to_string())
            }
        }
    }

    /// Returns what is derived, alone.
    fn printed(&self, program: clap::Command) -> String {
        match self.content {
            Content::Whole(write) => write(program),
            Content::Tables(tables) => marked::print(self.name, &tables()),
        }
    }
}

/// Print a page of the reference, or rewrite all pages.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf reference cli > docs/reference/cli.md
  sheaf reference metrics                      the tables of docs/reference/metrics.md
  sheaf reference --write .                    rewrite all pages of this repository")]
pub(crate) struct Args {
    /// Print this page.
    #[arg(value_name = "PAGE", value_parser = PossibleValuesParser::new(PAGES.iter().map(|page| page.name)))]
    #[arg(required_unless_present = "root", conflicts_with = "root")]
    page: Option<String>,
    /// Rewrite all pages of the repository at this place.
    #[arg(id = "root", long = "write", value_name = "DIRECTORY")]
    root: Option<PathBuf>,
}

/// Prints a page about `program`, the whole command line, or writes all.
///
/// # Errors
///
/// The reason why the standard output or a page cannot be written to.
pub(crate) fn run(args: &Args, program: clap::Command) -> anyhow::Result<ExitCode> {
    if let Some(root) = &args.root {
        for page in PAGES {
            let path = root.join(page.file);
            std::fs::write(&path, page.rewritten(root, program.clone())?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let name = args.page.as_deref().unwrap_or_default();
    let page = PAGES.iter().find(|page| page.name == name);
    let page = page.with_context(|| format!("there is no page {name}"))?;
    std::io::stdout()
        .write_all(page.printed(program).as_bytes())
        .context("cannot write the page")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn every_page_in_the_tree_is_what_the_program_writes() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        for page in PAGES {
            let found = std::fs::read_to_string(root.join(page.file)).unwrap_or_default();
            let expected = page.rewritten(root, Cli::command());
            assert!(
                found == expected.unwrap(),
                "{} differs; write it by `cargo xtask reference` (`sheaf reference --write .`)",
                page.file
            );
        }
    }
}
