//! `sheaf config`: is a farm file good, and what does it mean with all defaults filled in.

use crate::json_file::JsonFlag;
use anyhow::Context as _;
use serde_json::json;
#[cfg(feature = "monitor")]
use sheaf_monitor::config::Problem;
use sheaf_node::budget::Budget;
use sheaf_node::config::{ConfigError, FarmConfig, keys};
use sheaf_protocol::Role;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check a farm file, or print it with all defaults filled in.
///
/// Exit status: 0 if the file is good, 1 if not. Errors go to standard error, one a line, each as
/// `file:line: key: found …, expected …`; with --json of `check`, to standard output. Warnings of `check` go there as
/// well and leave the file good: ports that are in use now, no certificate of an operator.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a farm file, and print every error in it.
    Check {
        /// Read this farm file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Check files, certificates, memory and ports for this role on this machine; may be repeated.
        #[arg(long = "role", value_name = "ROLE", value_enum, default_values = ["icn", "flp", "epn"])]
        roles: Vec<Place>,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Print a farm file with all defaults filled in. The output is a farm file.
    Show {
        /// Read this farm file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Print a farm file with every key, its default and a comment.
    Example {
        #[command(flatten)]
        flag: JsonFlag,
    },
}

/// Role whose files have to be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    Icn,
    Flp,
    Epn,
    Writer,
    /// No role.
    None,
}

impl Place {
    fn role(self) -> Option<Role> {
        match self {
            Self::Icn => Some(Role::Icn),
            Self::Flp => Some(Role::Flp),
            Self::Epn => Some(Role::Epn),
            Self::Writer => Some(Role::Writer),
            Self::None => None,
        }
    }
}

/// Runs the command on standard output and error.
///
/// # Errors
///
/// If standard output cannot be written to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut out, mut errors) = (io::stdout().lock(), io::stderr().lock());
    match &args.command {
        Command::Check { file, roles, flag } => {
            let roles: Vec<Role> = roles.iter().filter_map(|place| place.role()).collect();
            check(file, &roles, flag.json, &mut out, &mut errors)
        }
        Command::Show { file, flag } => show(file, flag.json, &mut out, &mut errors),
        Command::Example { flag } => {
            let text = if flag.json {
                keys_as_json()? + "\n"
            } else {
                keys::example()
            };
            out.write_all(text.as_bytes())
                .context("cannot write to standard output")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns everything that is wrong in the table of the collector.
#[cfg(feature = "monitor")]
fn of_monitor(config: &FarmConfig, file: &Path) -> Vec<ConfigError> {
    match crate::monitor::of_farm(config, file) {
        Ok(config) => {
            let problems = config.problems().into_iter();
            let error = |one: Problem| ConfigError::new(one.key, one.found, one.expected);
            problems.map(error).collect()
        }
        Err(error) => vec![ConfigError::new(
            "monitor",
            error,
            "a table as in monitor.md",
        )],
    }
}

/// Returns everything that is wrong in the table of the agent.
fn of_agent(config: &FarmConfig) -> Vec<ConfigError> {
    match crate::agent::of_farm(config) {
        Ok(config) => {
            let problems = config.problems().into_iter();
            let error =
                |one: sheaf_agent::Problem| ConfigError::new(one.key, one.found, one.expected);
            problems.map(error).collect()
        }
        Err(error) => vec![ConfigError::new("agent", error, "a table as in agent.md")],
    }
}

fn check(
    file: &Path,
    roles: &[Role],
    is_json: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let (mut wrong, warnings, budgets) = match FarmConfig::load_for(file, roles) {
        Ok(config) => {
            let mut found = config.check_machine(roles);
            #[cfg(feature = "monitor")]
            found.errors.extend(of_monitor(&config, file));
            found.errors.extend(of_agent(&config));
            let budget = |role: &Role| (*role, config.memory_budget(*role));
            let budgets: Vec<(Role, Budget)> = roles.iter().map(budget).collect();
            (found.errors, found.warnings, budgets)
        }
        Err(found) => (found.0, Vec::new(), Vec::new()),
    };
    for error in &mut wrong {
        error.file.get_or_insert_with(|| file.to_owned());
    }
    let is_good = wrong.is_empty();
    if is_json {
        let value = json!({
            "file": file,
            "good": is_good,
            "errors": wrong.iter().map(as_json).collect::<Vec<_>>(),
            "warnings": warnings.iter().map(as_json).collect::<Vec<_>>(),
            "memory": budgets.iter().map(budget_as_json).collect::<serde_json::Map<_, _>>(),
        });
        writeln!(out, "{value}").context("cannot write to standard output")?;
    } else {
        for error in &wrong {
            writeln!(errors, "{error}").context("cannot write to standard error")?;
        }
        let name = file.display();
        for warning in &warnings {
            writeln!(errors, "{name}: warning: {warning}")
                .context("cannot write to standard error")?;
        }
        if is_good {
            writeln!(out, "{name}: good").context("cannot write to standard output")?;
            for (role, budget) in &budgets {
                writeln!(out, "{name}: memory of one {role}: {budget}")
                    .context("cannot write to standard output")?;
            }
        }
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the name of a role, and the parts of its memory budget with their sum.
fn budget_as_json((role, budget): &(Role, Budget)) -> (String, serde_json::Value) {
    let sums = [
        ("budget_bytes", budget.total()),
        ("start_bytes", budget.at_start),
    ];
    let parts = sums.into_iter().chain(budget.parts());
    let parts = parts.map(|(name, bytes)| (name.to_owned(), bytes.into()));
    (role.to_string(), serde_json::Value::Object(parts.collect()))
}

fn as_json(error: &ConfigError) -> serde_json::Value {
    json!({
        "line": error.line,
        "key": error.key,
        "found": error.found,
        "expected": error.expected,
    })
}

fn show(
    file: &Path,
    is_json: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    match FarmConfig::load(file) {
        Ok(config) => {
            let text = if is_json {
                serde_json::to_string(&config).context("the farm file cannot be written as JSON")?
                    + "\n"
            } else {
                config
                    .to_toml()
                    .context("the farm file cannot be written as TOML")?
            };
            write!(out, "{text}").context("cannot write to standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(found) => {
            writeln!(errors, "{found}").context("cannot write to standard error")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Returns the registrations of all keys.
fn keys_as_json() -> anyhow::Result<String> {
    let keys = keys::TABLES.iter().flat_map(|table| table.keys);
    let keys: Vec<_> = keys
        .map(|key| {
            json!({
                "key": key.path,
                "unit": key.unit,
                "default": key.default_value(),
                "range": key.range(),
                "names": key.names(),
                "about": key.description(),
            })
        })
        .collect();
    serde_json::to_string(&keys).context("the keys cannot be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Command = fn(&Path, &mut Vec<u8>, &mut Vec<u8>) -> anyhow::Result<ExitCode>;

    const CHECK: Command =
        |file, out, errors| check(file, &[Role::Flp, Role::Epn], false, out, errors);
    const SHOW: Command = |file, out, errors| show(file, false, out, errors);

    /// Writes `text` to a farm file; `expected` is what the command prints to output and error about file F in
    /// folder D.
    fn run(command: Command, text: &str, status: ExitCode, expected: [&str; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("farm.toml");
        std::fs::write(&file, text).unwrap();
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let found = command(&file, &mut out, &mut errors).unwrap();
        let (file, folder) = (
            file.display().to_string(),
            folder.path().display().to_string(),
        );
        let printed = [out, errors].map(|text| {
            let text = String::from_utf8(text).unwrap();
            text.replace(&file, "F").replace(&folder, "D")
        });
        assert_eq!(printed, expected);
        assert_eq!(format!("{found:?}"), format!("{status:?}"));
    }

    #[test]
    fn a_good_file_is_good() {
        let text = "[flp.source]\nkind = \"generator\"\n";
        let config = FarmConfig::parse_for(text, Path::new("F"), &[]).unwrap();
        let [flp, epn] = [Role::Flp, Role::Epn].map(|role| config.memory_budget(role));
        let expected =
            format!("F: good\nF: memory of one flp: {flp}\nF: memory of one epn: {epn}\n");
        run(CHECK, text, ExitCode::SUCCESS, [&expected, ""]);
    }

    #[test]
    fn all_errors_come_with_their_lines() {
        let text = "[run]\nflps = 0\n[flp.source]\nfiles = [\"no.raw\"]\nkind = \"file\"\n";
        let expected = "F:2: run.flps: found 0, expected 1 to 65535\n\
                        F:4: flp.source.files[0]: found no.raw (No such file or directory (os error 2)), \
                        expected a file that can be read\n";
        run(CHECK, text, ExitCode::FAILURE, ["", expected]);
    }

    #[test]
    fn errors_for_machines_are_on_the_standard_output() {
        let check: Command = |file, out, errors| check(file, &[], true, out, errors);
        let value = |good, errors: &str| {
            format!(
                "{{\"errors\":[{errors}],\"file\":\"F\",\"good\":{good},\"memory\":{{}},\"warnings\":[]}}\n"
            )
        };
        run(check, "", ExitCode::SUCCESS, [&value(true, ""), ""]);
        let error = r#"{"expected":"1 to 65535","found":"0","key":"run.flps","line":1}"#;
        let expected = value(false, error);
        run(check, "run.flps = 0\n", ExitCode::FAILURE, [&expected, ""]);
    }

    #[test]
    fn what_is_shown_is_the_same_farm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("farm.toml");
        std::fs::write(&file, "[epn]\nweight = 2\n").unwrap();
        let config = FarmConfig::load(&file).unwrap();
        let shown = config.to_toml().unwrap();
        let shown = shown.replace(&folder.path().display().to_string(), "D");
        run(SHOW, "[epn]\nweight = 2\n", ExitCode::SUCCESS, [&shown, ""]);
        run(SHOW, &shown, ExitCode::SUCCESS, [&shown, ""]);
    }
}
