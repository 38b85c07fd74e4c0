//! Everything that CI runs, as one program: `cargo xtask check`.
//!
//! `check` runs the stages one after the other, all in the one profile `ci`, and ends with a table of
//! what each took. `tidy` holds the repository against what it says about itself: crate arrows, code
//! map, links, licences. There are no other scripts that CI depends on.

mod background;
mod check;
mod fuzz;
mod tally;
mod tidy;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
Usage: cargo xtask check [--only STAGE...] [--skip STAGE...]
       cargo xtask tidy

check  runs all that CI runs; stages: fetch fmt tidy clippy doc test torture mutants fuzz
       faults; torture and the build of the fuzz targets go on while the tests run
tidy   holds the repository against what it says about itself
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
        ("tidy", []) => tidy::run(&root()),
        // What `check` begins early.
        ("fuzz-build", []) => fuzz::build_only(),
        ("help" | "--help" | "-h", []) => {
            print!("{USAGE}");
            Ok(true)
        }
        _ => bail!("cannot understand {:?}\n\n{USAGE}", args.join(" ")),
    }
}

/// The folder of the workspace.
///
/// Asked when it runs, not when it is compiled: a build folder may be moved or shared between checkouts.
fn root() -> PathBuf {
    let ours = std::env::var_os("CARGO_MANIFEST_DIR");
    let ours = ours.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    ours.ancestors()
        .nth(2)
        .expect("xtask lies two folders inside the workspace")
        .to_owned()
}

/// The same cargo that runs us, in the folder of the workspace.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_INCREMENTAL", "0");
    command
}

/// `command` as one would type it, for messages.
fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = [program].into_iter().chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
