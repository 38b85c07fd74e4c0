//! `sheaf serve backend`: configurations of servers as they are, made of that of their director.

use super::begun;
use crate::fail;
use crate::json_file::{self, JsonFlag};
use anyhow::Context as _;
use sheaf_gateway::{Backend, Folders, GatewayConfig, Rendered, backend, backends};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the configuration of a server behind a director, and how to start it.
///
/// Without a file: the kinds of servers, or what one of them needs. With a file of a director: the configuration of
/// each of its servers, or of one, with the commands that start them and those of clients. Exit status: 0 if it was
/// printed, 1 if a file cannot be written, 2 if the command line or the file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve backend                              kinds of servers
  sheaf serve backend gridftp                      ports, check, way of the data
  sheaf serve backend nginx --config gateway.toml --server s1
  sheaf serve backend --config gateway.toml --server s1 --write /etc/sheaf")]
pub(super) struct BackendArgs {
    /// Name the kind: own, nginx, xrootd, gridftp; that of the service by default.
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// Read services and servers from this file of a director.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take this service alone.
    #[arg(long, value_name = "NAME", requires = "config")]
    service: Option<String>,
    /// Take this server alone.
    #[arg(long, value_name = "NAME", requires = "config")]
    server: Option<String>,
    /// Write the files into this folder, and print commands and remarks.
    #[arg(long, value_name = "DIR", requires = "config")]
    write: Option<PathBuf>,
    /// Have servers keep sockets, ids of processes and logs in this folder.
    #[arg(long, value_name = "DIR", default_value = "/run/sheaf")]
    state: PathBuf,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Runs the command.
///
/// # Errors
///
/// A kind, service or server that there is not, or a file that cannot be read or written.
pub(super) fn run(args: &BackendArgs) -> anyhow::Result<ExitCode> {
    let kind = begun(args.kind.as_deref().map(backend).transpose())?;
    let Some(path) = &args.config else {
        let rows = kind.map_or(backends(), std::slice::from_ref);
        json_file::print_either(args.flag.json, &rows, &described(rows, kind.is_some()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let config = begun(GatewayConfig::load(path))?;
    let absolute = |folder| std::path::absolute(folder).context("the folder has no absolute path");
    let config_folder = args.write.as_ref().map(absolute).transpose()?;
    let folders = Folders {
        config: config_folder.unwrap_or(Folders::default().config),
        state: absolute(&args.state)?,
    };
    let all = rendered(args, kind, &config, &folders)?;
    if args.write.is_some() {
        write(&all, &folders.config)?;
    }
    json_file::print_either(args.flag.json, &all, &shown(&all, args.write.is_none()))?;
    Ok(ExitCode::SUCCESS)
}

fn rendered(
    args: &BackendArgs,
    kind: Option<&Backend>,
    config: &GatewayConfig,
    folders: &Folders,
) -> anyhow::Result<Vec<Rendered>> {
    let is_asked =
        |asked: &Option<String>, name: &str| asked.as_deref().is_none_or(|it| it == name);
    let mut all = Vec::new();
    for service in &config.services {
        if !is_asked(&args.service, &service.name) {
            continue;
        }
        let of_service = begun(service.backend.as_deref().map(backend).transpose())?;
        let Some(kind) = kind.or(of_service) else {
            return Err(fail::bad_use(format!(
                "service {:?} has no key `backend`, expected one, or a KIND",
                service.name
            )));
        };
        for server in &service.servers {
            if is_asked(&args.server, &server.name) {
                let made = kind.render(service, server, config.is_direct_return(), folders);
                all.push(begun(made)?);
            }
        }
    }
    if all.is_empty() {
        let of = |service: &sheaf_serve::ServiceConfig| {
            let names = service.servers.iter();
            let names = names.map(|server| format!("{}/{}", service.name, server.name));
            names.collect::<Vec<_>>()
        };
        let names: Vec<String> = config.services.iter().flat_map(of).collect();
        return Err(fail::bad_use(format!(
            "found no such server, expected one of {}",
            names.join(", ")
        )));
    }
    Ok(all)
}

fn write(all: &[Rendered], folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in all.iter().flat_map(|one| &one.files) {
        std::fs::write(&file.path, &file.text)
            .with_context(|| format!("cannot write {}", file.path))?;
    }
    Ok(())
}

fn described(rows: &[Backend], is_one: bool) -> String {
    let mut text = String::new();
    for row in rows {
        let Backend { name, summary, .. } = row;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<8} {summary}");
        if is_one {
            let check = serde_json::to_string(&row.probe()).unwrap_or_default();
            let _ = writeln!(
                text,
                "  port     {}; further: {}",
                row.port, row.further_ports
            );
            let _ = writeln!(text, "  check    {check}");
            let _ = writeln!(text, "  load     {}", row.load);
            let _ = writeln!(text, "  data     {}", row.data);
            let _ = writeln!(text, "  packages {} (Debian)", row.packages.join(" "));
        }
    }
    text
}

fn shown(all: &[Rendered], has_files: bool) -> String {
    let mut text = String::new();
    for one in all {
        let _ = writeln!(text, "{}/{}: {}", one.service, one.server, one.backend);
        for file in &one.files {
            let _ = writeln!(text, "\n# {}", file.path);
            if has_files {
                text.push_str(&file.text);
            }
        }
        for (what, lines) in [
            ("prepare", &one.prepare),
            ("start", &one.commands),
            ("clients", &one.clients),
            ("remarks", &one.notes),
        ] {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{what}:");
            }
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
        text.push('\n');
    }
    text
}
