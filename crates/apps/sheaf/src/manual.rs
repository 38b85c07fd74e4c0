//! `sheaf manual`: manual pages for `man`, derived from the commands.

use crate::fail;
use anyhow::Context as _;
use clap_mangen::Man;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the manual page of a command, or write those of all commands.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf manual | man -l -                   the page of the program
  sheaf manual run icn | man -l -           the page of one command
  sheaf manual --write /usr/share/man/man1  all pages, for man sheaf-run-icn and others")]
pub(crate) struct Args {
    /// Print the page of this command, such as `run icn`; without it that of the program.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write a page for each command into this directory, which is made if it is not there.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    write: Option<PathBuf>,
}

/// Prints or writes pages of `program`, the whole command line.
///
/// # Errors
///
/// A command that is not there, or a place that cannot be written to.
pub(crate) fn run(args: &Args, program: clap::Command) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.write {
        let cannot = || format!("cannot write pages into {}", folder.display());
        std::fs::create_dir_all(folder).with_context(cannot)?;
        clap_mangen::generate_to(program, folder).with_context(cannot)?;
        return Ok(ExitCode::SUCCESS);
    }
    let page = page(program, &args.command)?;
    std::io::stdout()
        .write_all(&page)
        .context("cannot write the page")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the page of the command that `words` name.
fn page(mut program: clap::Command, words: &[String]) -> anyhow::Result<Vec<u8>> {
    program.build();
    let mut command = &program;
    for word in words {
        let name = command.get_name();
        let within = command.get_subcommands().filter(|it| !it.is_hide_set());
        let within: Vec<_> = within.collect();
        let found = within.iter().find(|it| it.get_name() == word);
        command = found.ok_or_else(|| {
            let names: Vec<_> = within.iter().map(|it| it.get_name()).collect();
            let expected = match names.is_empty() {
                true => "no more words".to_owned(),
                false => format!("one of: {}", names.join(" ")),
            };
            fail::bad_use(format!("found {word:?} behind {name}, expected {expected}"))
        })?;
    }
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::CommandFactory as _;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_page_has_the_options_and_examples_of_its_command() {
        let text = String::from_utf8(page(Cli::command(), &words("run flp")).unwrap()).unwrap();
        for part in [".TH sheaf-run-flp 1", "\\-\\-index", "Examples", "SIGTERM"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = page(Cli::command(), &words("run icm")).unwrap_err();
        let expected = "found \"icm\" behind run, expected one of: icn flp epn writer bridge";
        assert!(error.to_string().starts_with(expected), "{error}");
        let error = page(Cli::command(), &words("top now")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "found \"now\" behind top, expected no more words"
        );
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("man1");
        let args = Args {
            command: Vec::new(),
            write: Some(place.clone()),
        };
        run(&args, Cli::command()).unwrap();
        for name in ["sheaf.1", "sheaf-run-icn.1", "sheaf-lab-paper.1"] {
            assert!(place.join(name).exists(), "{name}");
        }
        assert!(!place.join("sheaf-reference.1").exists());
    }
}
