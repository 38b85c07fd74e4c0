//! `sheaf alarms`: checks files of rules and routes, and runs scenarios, without a collector.

use crate::fail;
use crate::json_file::JsonFlag;
use anyhow::Context as _;
use serde_json::json;
use sheaf_alarms::{AlarmsConfig, Routing, RuleFile, ScenarioFile, run_scenario, sheaf_rules};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check rules and routes of alarms, and test rules by scenarios.
///
/// Exit status: 0 if all is as expected, 1 if not; findings go to the standard error as `file:line: found, expected`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf alarms check rules.yml                      what is wrong in a file of rules
  sheaf alarms check rules.yml --routes routes.yml  the same, and in a file of routes
  sheaf alarms test scenario.yml                    samples in, transitions and orders expected")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Check files of rules and routes; print every finding in them.
    Check {
        /// Check these files of rules; without any, those that come with this program.
        #[arg(value_name = "RULES")]
        rules: Vec<PathBuf>,
        /// Check this file of routes as well.
        #[arg(long, value_name = "FILE")]
        routes: Option<PathBuf>,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Run scenario files: samples and sources in virtual time, and what has to follow.
    Test {
        /// Run these files; the rules that they name are relative to them.
        #[arg(value_name = "SCENARIO", required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        flag: JsonFlag,
    },
}

/// Outcome of a command: how much was looked at, and what is wrong.
#[derive(Debug, Default)]
struct Report {
    rules: usize,
    scenarios: usize,
    findings: Vec<String>,
}

/// Runs the command.
///
/// # Errors
///
/// A file that cannot be read, or an output that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (report, is_json) = match &args.action {
        Action::Check {
            rules,
            routes,
            flag,
        } => (check(rules, routes.as_deref())?, flag.json),
        Action::Test { files, flag } => (test(files)?, flag.json),
    };
    let is_good = report.findings.is_empty();
    let mut out = std::io::stdout().lock();
    if is_json {
        let value = json!({
            "good": is_good,
            "rules": report.rules,
            "scenarios": report.scenarios,
            "findings": report.findings,
        });
        writeln!(out, "{value}").context("cannot write to standard output")?;
    } else {
        let mut errors = std::io::stderr().lock();
        for finding in &report.findings {
            writeln!(errors, "{finding}").context("cannot write to standard error")?;
        }
        if is_good {
            let (rules, scenarios) = (report.rules, report.scenarios);
            writeln!(out, "good: {rules} rules, {scenarios} scenarios")
                .context("cannot write to standard output")?;
        }
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| fail::bad_use(format!("{}: {error}", path.display())))
}

fn count(file: &RuleFile) -> usize {
    file.groups.iter().map(|group| group.rules.len()).sum()
}

fn check(rules: &[PathBuf], routes: Option<&Path>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut take = |parsed: Result<RuleFile, sheaf_alarms::Findings>| match parsed {
        Ok(file) => report.rules += count(&file),
        Err(findings) => report
            .findings
            .extend(findings.0.iter().map(ToString::to_string)),
    };
    if rules.is_empty() && routes.is_none() {
        take(sheaf_rules());
    }
    for path in rules {
        take(RuleFile::parse(&path.display().to_string(), &read(path)?));
    }
    if let Some(path) = routes
        && let Err(findings) = Routing::parse(&path.display().to_string(), &read(path)?)
    {
        report
            .findings
            .extend(findings.0.iter().map(ToString::to_string));
    }
    Ok(report)
}

fn test(files: &[PathBuf]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for path in files {
        let name = path.display().to_string();
        let parsed = match ScenarioFile::parse(&name, &read(path)?) {
            Ok(parsed) => parsed,
            Err(findings) => {
                report
                    .findings
                    .extend(findings.0.iter().map(ToString::to_string));
                continue;
            }
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut rules = Vec::new();
        for file in &parsed.rule_files {
            let file = folder.join(file);
            match RuleFile::parse(&file.display().to_string(), &read(&file)?) {
                Ok(file) => rules.push(file),
                Err(findings) => report
                    .findings
                    .extend(findings.0.iter().map(ToString::to_string)),
            }
        }
        report.rules += rules.iter().map(count).sum::<usize>();
        if !report.findings.is_empty() {
            continue;
        }
        for scenario in &parsed.scenarios {
            report.scenarios += 1;
            let config = AlarmsConfig::default();
            let outcome = run_scenario(scenario, &rules, parsed.interval_ms, &config);
            let failed = outcome.failures.iter();
            let failed = failed.map(|one| format!("{name}: {}: {one}", scenario.name));
            report.findings.extend(failed);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_and_failures_are_named_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let rules = "groups: [{name: g, rules: [{alert: A, expr: x > 1, online: true}]}]";
        let good = write("rules.yml", rules);
        let bad = write("bad.yml", &rules.replace("x > 1", "x >"));
        let report = check(&[good, bad], None).unwrap();
        assert_eq!((report.rules, report.findings.len()), (1, 1));
        assert!(report.findings[0].contains("bad.yml:1"), "{report:?}");
        let scenario = "rule_files: [rules.yml]\ntests:\n- name: t\n  interval: 1s\n  \
            input_series: [{series: x, values: '0 2'}]\n  transitions: [{at: 1s, alert: A, to: firing}]\n";
        let report = test(&[write("s.yml", scenario)]).unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        assert_eq!((report.rules, report.scenarios), (1, 1));
        let other = scenario.replace("to: firing", "to: resolved");
        let report = test(&[write("s.yml", &other)]).unwrap();
        assert!(!report.findings.is_empty());
        assert!(check(&[], None).unwrap().rules > 10);
    }
}
