//! `sheaf reference`: pages of `docs/reference` that are derived from the program.
//!
//! A page is a row of [`PAGES`]. A test compares each with the committed file.

mod cli;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use std::io::Write as _;
use std::process::ExitCode;

/// Page of `docs/reference` that the program writes.
struct Page {
    /// Name of the file without `.md`, and argument of the command.
    name: &'static str,
    /// Writes the page about `program`, the whole command line.
    write: fn(clap::Command) -> String,
}

/// All pages that are derived from the program.
const PAGES: &[Page] = &[Page {
    name: "cli",
    write: cli::page,
}];

/// Print a page of the reference.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf reference cli > docs/reference/cli.md")]
pub(crate) struct Args {
    /// Print this page.
    #[arg(value_name = "PAGE", value_parser = PossibleValuesParser::new(PAGES.iter().map(|page| page.name)))]
    page: String,
}

/// Prints a page about `program`, the whole command line.
///
/// # Errors
///
/// The reason why the standard output cannot be written to.
pub(crate) fn run(args: &Args, program: clap::Command) -> anyhow::Result<ExitCode> {
    let page = PAGES.iter().find(|page| page.name == args.page);
    let page = page.with_context(|| format!("there is no page {}", args.page))?;
    std::io::stdout()
        .write_all((page.write)(program).as_bytes())
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
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference");
        for Page { name, write } in PAGES {
            let found = std::fs::read_to_string(format!("{root}/{name}.md")).unwrap_or_default();
            assert!(
                found == write(Cli::command()),
                "docs/reference/{name}.md differs; write it by `sheaf reference {name} > docs/reference/{name}.md`"
            );
        }
    }
}
