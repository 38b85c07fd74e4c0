//! `sheaf files`: files of streams that writers have written, listed, read, checked, served and fetched.

mod check;
mod get;
mod list;
mod read;
mod serve;

use crate::fail;
use crate::logging::Usual;
use anyhow::Context as _;
use sheaf_stream_files::Catalogue;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List, read, check, serve and fetch the files of the sink "streams".
///
/// Without a command it lists, as `sheaf files list` does.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
#[command(override_usage = "sheaf files [OPTIONS] <DIR>...\n       sheaf files <COMMAND>")]
#[command(after_help = "\
Examples:
  sheaf files /data
  sheaf files list /data --stream main --state closed
  sheaf files read /data/epn-0/sheaf.00000042.main.b00000.epn-0.0000.tf --tf 100..200
  sheaf files check /data
  sheaf files serve /data
  sheaf files get http://127.0.0.1:8080/sheaf.00000042.main.b00000.epn-0.0000.tf")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: Option<list::Args>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Read(read::Args),
    Check(check::Args),
    Serve(Box<serve::Args>),
    Get(Box<get::Args>),
}

impl Args {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        match &self.command {
            Some(Command::Serve(args)) => args.usual(),
            _ => Usual::Warn,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// A folder or file that cannot be read, or a result that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.command, &args.list) {
        // Global options may stand there, so the parser does not refuse all.
        (Some(_), Some(_)) => Err(fail::bad_use(
            "found a list to print in front of a command, expected its arguments behind it",
        )),
        (None, Some(args)) | (Some(Command::List(args)), None) => list::run(args),
        (Some(Command::Read(args)), None) => read::run(args),
        (Some(Command::Check(args)), None) => check::run(args),
        (Some(Command::Serve(args)), None) => serve::run(args),
        (Some(Command::Get(args)), None) => get::run(args),
        (None, None) => Err(fail::bad_use("found no DIR, expected folders with files")),
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
