//! `sheaf completions`: scripts that complete the command line in a shell.

use anyhow::Context as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Print a script that completes the command line in a shell.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf completions bash > /etc/bash_completion.d/sheaf
  sheaf completions zsh > ~/.zfunc/_sheaf
  sheaf completions fish > ~/.config/fish/completions/sheaf.fish")]
pub(crate) struct Args {
    /// Print the script of this shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script for `program`, the whole command line.
///
/// # Errors
///
/// The reason why the standard output cannot be written to.
pub(crate) fn run(args: &Args, program: clap::Command) -> anyhow::Result<ExitCode> {
    std::io::stdout()
        .write_all(&script(args.shell, program))
        .context("cannot write the script")?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell, mut program: clap::Command) -> Vec<u8> {
    use clap_complete::aot::{self, generate};
    let mut text = Vec::new();
    match shell {
        Shell::Bash => generate(aot::Bash, &mut program, "sheaf", &mut text),
        Shell::Zsh => generate(aot::Zsh, &mut program, "sheaf", &mut text),
        Shell::Fish => generate(aot::Fish, &mut program, "sheaf", &mut text),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn scripts_know_the_commands_of_a_group() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(script(shell, Cli::command())).unwrap();
            assert!(
                text.contains("inspect") && text.contains("drain"),
                "{shell:?}"
            );
        }
    }
}
