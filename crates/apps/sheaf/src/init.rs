//! `sheaf init`: the files of a new farm, and what to do with them.

mod ask;
mod files;

use crate::fail;
use crate::json_file::{self, JsonFlag};
use anyhow::Context as _;
use files::{Farm, Place};
use serde::Serialize;
use sheaf_node::config::{SinkConfig, SourceConfig};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make the files of a new farm, and say what to do with them.
///
/// Asks on a terminal for what no flag says; with --yes, and without a terminal, defaults are taken. All nodes are on
/// this machine, and `start.sh` starts them, unless hosts are given: then each host has one node of a role, there are
/// certificates for all of them, and an inventory for the playbooks of deploy/ansible. Files that are there stay, and
/// the command fails, unless --force is given. Exit status: 0 if all files were written, 1 if one could not be, 2 if
/// the command line is wrong; nothing is written then.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf init                                       asks, and writes into this folder
  sheaf init north --flps 4 --epns 8 --yes         a farm on this machine, into the folder north
  sheaf init north --source unix:/run/readout-{flp}.sock --sink file:/data --yes
  sheaf init north --icn-host daq0 --flp-hosts daq1,daq2 --epn-hosts epn1,epn2,epn3 --yes")]
pub(crate) struct Args {
    /// Write into this folder, which is made if it is not there.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Make a farm with this many FLPs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    flps: Option<u16>,
    /// Make a farm with this many EPNs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    epns: Option<u16>,
    /// Put the ICN on this host.
    #[arg(long, value_name = "HOST", requires_all = ["flp_hosts", "epn_hosts"])]
    icn_host: Option<String>,
    /// Put one FLP on each of these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires_all = ["icn_host", "epn_hosts"], conflicts_with = "flps")]
    flp_hosts: Vec<String>,
    /// Put one EPN on each of these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires_all = ["icn_host", "flp_hosts"], conflicts_with = "epns")]
    epn_hosts: Vec<String>,
    /// Take STFs from this source: KIND, or KIND:PLACE (docs/reference/config.md).
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Give TFs to this sink: KIND, or KIND:PLACE (docs/reference/config.md).
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// Use this name of the farm: a-z, 0-9, '-' and '.'.
    #[arg(long, value_name = "NAME", default_value = "farm")]
    name: String,
    /// Make no certificates: nodes of several hosts speak in the clear.
    #[arg(long, requires = "icn_host")]
    insecure: bool,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
    /// Ask nothing.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Result for programs.
#[derive(Serialize)]
struct Made<'a> {
    schema: u32,
    flps: usize,
    epns: usize,
    /// Files, below the folder.
    files: Vec<&'a Path>,
    /// Commands that come next.
    next: &'a [String],
}

/// Runs the command.
///
/// # Errors
///
/// What is wrong with the arguments, or that a file cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let asks = !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let farm = wanted(args, asks)?;
    let (written, next) = farm.write(&args.folder, args.force)?;
    let made = Made {
        schema: 1,
        flps: farm.place.flps(),
        epns: farm.place.epns(),
        files: written.iter().map(PathBuf::as_path).collect(),
        next: &next,
    };
    let mut text = String::new();
    for file in &written {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "wrote {}", args.folder.join(file).display());
    }
    let _ = writeln!(text, "next:");
    for command in &next {
        let _ = writeln!(text, "  {command}");
    }
    json_file::print_either(args.flag.json, &made, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the farm that the arguments, and answers where they are silent, describe.
fn wanted(args: &Args, asks: bool) -> anyhow::Result<Farm> {
    let number = |given: Option<u16>, what: &str, usual: u16| match given {
        Some(number) => Ok(number),
        None if asks => ask::number(what, usual),
        None => Ok(usual),
    };
    let word = |given: &Option<String>, what: &str, kinds: String, usual: &str| match given {
        Some(word) => Ok(word.clone()),
        None if asks => ask::word(what, &kinds, usual),
        None => Ok(usual.to_owned()),
    };
    let place = match &args.icn_host {
        Some(icn) => Place::Hosts {
            icn: icn.clone(),
            flps: args.flp_hosts.clone(),
            epns: args.epn_hosts.clone(),
        },
        None => Place::Here {
            flps: number(args.flps, "FLPs, which have the data", 2)?,
            epns: number(args.epns, "EPNs, which get whole timeframes", 3)?,
        },
    };
    let names = |kinds: &[sheaf_node::config::Kind]| {
        let all: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        all.join(", ")
    };
    let source = word(
        &args.source,
        "Source of the data",
        names(SourceConfig::KINDS),
        "generator",
    )?;
    let sink = word(
        &args.sink,
        "Sink of timeframes",
        names(SinkConfig::KINDS),
        "verify",
    )?;
    // Commands of an operator are given in any folder.
    let certificates = std::path::absolute(args.folder.join(files::CERTIFICATES))
        .with_context(|| format!("cannot find {}", args.folder.display()))?;
    let certificates = Some(certificates).filter(|_| args.icn_host.is_some() && !args.insecure);
    let farm = Farm {
        name: args.name.clone(),
        place,
        source: files::source_table(&source).map_err(fail::bad_use)?,
        sink: files::sink_table(&sink).map_err(fail::bad_use)?,
        certificates,
    };
    // Before anything is written.
    farm.check().map_err(fail::bad_use)?;
    Ok(farm)
}
