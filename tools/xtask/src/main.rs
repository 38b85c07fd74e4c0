//! Everything that CI runs, as one program: `cargo xtask check`.
//!
//! `check` runs the stages one after the other, all in the one profile `ci`, and ends with a table of
//! what each took. `tidy` holds the repository against what it says about itself: crate arrows, code
//! map, links, licences. There are no other scripts that CI depends on.

mod background;
mod book;
mod check;
mod command;
mod fuzz;
mod miri;
mod nightly;
mod pages;
mod structure;
mod tally;
mod tidy;

use anyhow::{Result, bail};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask check [--only STAGE...] [--skip STAGE...]
       cargo xtask tidy
       cargo xtask book
       cargo xtask reference
       cargo xtask structure [FOLDER]

check  runs all that CI runs; stages: fetch fmt tidy book pages clippy doc test browser torture
       mutants miri fuzz faults; torture and the build of the fuzz targets go on while the tests run
tidy   holds the repository against what it says about itself
book   builds the book of docs/ into target/book; warnings are errors
reference  rewrites what docs/ and config/ have of the code's registrations; tests compare it
structure  prints figures of a source tree as JSON: files, lines, circles, phrases
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs what `args` ask for; `false` if it found something wrong.
fn run(args: &[String]) -> Result<bool> {
    let (command, rest) = args
        .split_first()
        .map_or(("help", args), |(name, rest)| (name, rest));
    match (command, rest) {
        ("check", rest) => check::run(&check::select(rest)?),
        ("structure", rest @ ([] | [_])) => {
            let root = rest.first().map_or_else(command::root, Into::into);
            structure::print(&root)?;
            Ok(true)
        }
        ("tidy", []) => tidy::run(&command::root()),
        ("reference", []) => reference().map(|()| true),
        ("book", []) => book::build().map(|()| true),
        // What `check` begins early.
        ("fuzz-build", []) => fuzz::build_only(),
        ("help" | "--help" | "-h", []) => {
            print!("{USAGE}");
            Ok(true)
        }
        _ => bail!("cannot understand {:?}\n\n{USAGE}", args.join(" ")),
    }
}

/// Rewrites the pages, tables and vectors that are derived from the code.
fn reference() -> Result<()> {
    let run = |words: &str| command::succeed(command::cargo().args(words.split(' ')));
    let profile = "run --profile ci --package";
    run(&format!("{profile} sheaf -- reference --write ."))?;
    run(&format!("{profile} sheaf-fuzz --example seeds"))
}
