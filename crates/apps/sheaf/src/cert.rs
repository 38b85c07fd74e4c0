//! `sheaf cert`: the private CA of a farm, and the certificates of its nodes.

use crate::fail;
use anyhow::Context as _;
use serde::Serialize;
use sheaf_auth::{
    Authority, CertFiles, Certificate, IdentityError, Moment, NameError, Validity, parse_node,
};
use sheaf_protocol::NodeId;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Longest validity that may be asked for, in days: beyond, certificates have no dates.
const DAYS_MAX: i64 = 36_500;

/// Make certificates for the nodes of a farm, and show them.
///
/// A farm that is not on loopback alone needs them (docs/how-to/security.md): a private certificate authority (CA),
/// and one certificate a node, which proves its role and index to the others. Private keys are written with mode 0600.
/// ca.key can make a certificate for any node: keep it off the nodes of the farm.
///
/// Exit status: 0 if it was done, 1 if it cannot be done, 2 if the command line is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf cert init --farm north --dir certs                 the CA of a farm
  sheaf cert issue icn:0 flp:0 flp:1 epn:0 --dir certs     a certificate and a key for each node
  sheaf cert show certs/epn-0.pem                          whose it is, and until when it holds")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make the CA of a farm: ca.pem for every node, ca.key for no node.
    Init {
        /// Use this name of the farm: a-z, 0-9, '-' and '.'.
        #[arg(long, value_name = "NAME", default_value = "farm")]
        farm: String,
        #[command(flatten)]
        place: Place,
        /// Make the CA valid for this many days. No certificate of a node is valid longer.
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = days())]
        days: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Make a certificate and a private key for each node, such as epn-3.pem.
    Issue {
        /// Issue for these nodes, such as icn:0, flp:12, epn:3 or operator:0.
        #[arg(value_name = "NODE", required = true, value_parser = parse_one)]
        nodes: Vec<NodeId>,
        #[command(flatten)]
        place: Place,
        /// Make the certificates valid for this many days.
        #[arg(long, value_name = "N", default_value_t = 365, value_parser = days())]
        days: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Show the content of certificates, without a check of signature and dates.
    Show {
        /// Show these PEM files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Print one JSON array instead.
        #[arg(long)]
        json: bool,
    },
}

/// Where the files are.
#[derive(Debug, clap::Args)]
struct Place {
    /// Keep the CA in this directory, which is created for its owner alone.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
    /// Replace existing files. Certificates made with them before are refused from then on.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Print one JSON array instead.
    #[arg(long)]
    json: bool,
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=DAYS_MAX)
}

fn parse_one(text: &str) -> Result<NodeId, NameError> {
    parse_node(text)
}

/// Runs the command.
///
/// # Errors
///
/// What is wrong with the arguments or the files.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (shown, is_json) = match &args.command {
        Command::Init {
            farm,
            place,
            days,
            output,
        } => (init(farm, place, *days)?, output.json),
        Command::Issue {
            nodes,
            place,
            days,
            output,
        } => (issue(nodes, place, *days)?, output.json),
        Command::Show { files, json } => {
            let all = files.iter().map(|file| Certificate::load(file));
            (all.collect::<Result<_, _>>()?, *json)
        }
    };
    let text = if is_json {
        let all: Vec<Shown<'_>> = shown.iter().map(Shown::of).collect();
        let mut text = serde_json::to_string_pretty(&all).context("cannot write JSON")?;
        text.push('\n');
        text
    } else {
        let parts: Vec<String> = shown.iter().map(describe).collect();
        parts.join("\n")
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        outcome => outcome.context("cannot write to the standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(farm: &str, place: &Place, days: u32) -> anyhow::Result<Vec<Certificate>> {
    let authority = Authority::new(farm, Validity::of_days(days)).map_err(|error| match error {
        IdentityError::Name(name) => fail::bad_use(format!("--farm: {name}")),
        other => other.into(),
    })?;
    authority.save(&place.dir, place.force)?;
    Ok(vec![Certificate::load(
        &place.dir.join(CertFiles::CA_CERTIFICATE),
    )?])
}

fn issue(nodes: &[NodeId], place: &Place, days: u32) -> anyhow::Result<Vec<Certificate>> {
    let authority =
        Authority::load(&place.dir).context("cannot use the CA; sheaf cert init makes one")?;
    let mut made = Vec::new();
    for node in nodes {
        let files = CertFiles::in_directory(&place.dir, *node);
        authority
            .issue(*node, Validity::of_days(days))?
            .save(&files, place.force)?;
        made.push(Certificate::load(&files.certificate)?);
    }
    Ok(made)
}

/// A certificate for machines.
#[derive(Serialize)]
struct Shown<'a> {
    file: &'a Path,
    subject: &'a str,
    issuer: &'a str,
    /// `ca`, `icn`, `flp`, `epn`, `operator` or `unknown`.
    role: String,
    index: Option<u16>,
    farm: Option<&'a str>,
    names: &'a [String],
    not_before: String,
    not_after: String,
    not_after_unix_s: i64,
    /// Whether it holds now, as the clock of this machine says.
    holds: bool,
    sha256: &'a str,
}

impl<'a> Shown<'a> {
    fn of(certificate: &'a Certificate) -> Self {
        let identity = certificate.identity.as_ref();
        Self {
            file: &certificate.path,
            subject: &certificate.subject,
            issuer: &certificate.issuer,
            role: role_of(certificate),
            index: identity.map(|identity| identity.node.index),
            farm: identity.map(|identity| identity.farm.as_str()),
            names: &certificate.names,
            not_before: certificate.validity.not_before.to_string(),
            not_after: certificate.validity.not_after.to_string(),
            not_after_unix_s: certificate.validity.not_after.0,
            holds: certificate.check_validity(Moment::now()).is_ok(),
            sha256: &certificate.fingerprint,
        }
    }
}

fn role_of(certificate: &Certificate) -> String {
    match &certificate.identity {
        Some(identity) => identity.node.role.to_string(),
        None if certificate.is_authority => "ca".to_owned(),
        None => "unknown".to_owned(),
    }
}

fn describe(certificate: &Certificate) -> String {
    let state = match certificate.check_validity(Moment::now()) {
        Ok(()) => "holds now",
        Err(IdentityError::Expired { .. }) => "EXPIRED",
        Err(_) => "NOT YET VALID",
    };
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name:<12} {value}").expect("writing to a String does not fail");
    };
    line("file", &certificate.path.display().to_string());
    line("subject", &certificate.subject);
    line("issuer", &certificate.issuer);
    line("role", &role_of(certificate));
    if let Some(identity) = &certificate.identity {
        line("index", &identity.node.index.to_string());
    }
    for name in &certificate.names {
        line("name", name);
    }
    line("from", &certificate.validity.not_before.to_string());
    let until = format!("{} ({state})", certificate.validity.not_after);
    line("until", &until);
    line("sha256", &certificate.fingerprint);
    text
}
