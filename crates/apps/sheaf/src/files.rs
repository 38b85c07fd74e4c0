//! `sheaf files`: files of streams that writers have written.

mod check;
mod list;
mod read;

use anyhow::Context as _;
use sheaf_stream_files::Catalogue;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List, read and check the files of the sink "streams".
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf files list /data --stream main --state closed
  sheaf files read /data/epn-0/sheaf.00000042.main.b00000.epn-0.0000.tf --tf 100..200
  sheaf files check /data")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Read(read::Args),
    Check(check::Args),
}

/// Runs the command.
///
/// # Errors
///
/// A folder or file that cannot be read, or a result that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List(args) => list::run(args),
        Command::Read(args) => read::run(args),
        Command::Check(args) => check::run(args),
    }
}

/// Opens the catalogues of `folders`: that of each, or those of the folders in it, as an EPN has one of its own.
///
/// # Errors
///
/// A folder without a catalogue in it or below it, or one that cannot be read.
pub(crate) fn catalogues(folders: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, Catalogue)>> {
    let mut found = Vec::new();
    for folder in folders {
        let mut below = if Catalogue::is_in(folder) {
            vec![folder.clone()]
        } else {
            folders_below(folder)?
        };
        below.sort();
        anyhow::ensure!(
            !below.is_empty(),
            "found no catalogue in {} or a folder in it, expected one of the sink \"streams\"",
            folder.display()
        );
        for folder in below {
            let catalogue = Catalogue::read(&folder)?;
            found.push((folder, catalogue));
        }
    }
    Ok(found)
}

/// Lists the folders in `folder` that have a catalogue.
fn folders_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut below = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if Catalogue::is_in(&path) {
            below.push(path);
        }
    }
    Ok(below)
}
