//! Page of the command line, made of the commands that the program parses.

use crate::short_names::SHORT;
use clap::{Arg, Command};
use std::fmt::Write as _;

const HEAD: &str = "\
# Command line

This page is written by `sheaf reference cli`; a test compares it with the program.

Exit status of every command, unless its section says otherwise: 0 if it did what was asked, 1 if it failed, 2 if the
command line or a farm file is wrong.

`--json` has one rule. A command whose result is a report takes `--json FILE`, where `-` is the standard output; text
for people then goes to the standard error. A command whose result is its output takes `--json` without a value, and
prints JSON in place of text. Commands without it: `sheaf run`, whose output is JSON lines already, and
`sheaf completions` and `sheaf reference`, whose output is a text for a shell or a file.

`--quiet` leaves out progress, in `sheaf sim`, `sheaf lab` and `sheaf bench` as well; errors and results are printed.

";

/// Writes the page about `root`, the whole command line.
pub(super) fn page(mut root: Command) -> String {
    root.build();
    let mut page = HEAD.to_owned();
    page += "## Global options\n\nEvery command takes these.\n\n";
    for option in root.get_arguments().filter(|arg| arg.is_global_set()) {
        page += &line_of(option);
    }
    page += "\n## Short names\n\n| command | is |\n| --- | --- |\n";
    for (name, own) in SHORT {
        let _ = writeln!(page, "| `sheaf {name}` | `sheaf {own}` |");
    }
    page.push('\n');
    for command in visible(&root) {
        write_command(&mut page, command, "sheaf");
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let commands = command.get_subcommands();
    commands.filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn write_command(page: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let _ = writeln!(page, "## `{name}`\n");
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let _ = writeln!(page, "{}\n", about.to_string().trim());
    }
    let shown = |arg: &&Arg| !arg.is_global_set() && !arg.is_hide_set() && !is_built_in(arg);
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    for argument in &arguments {
        *page += &line_of(argument);
    }
    if !arguments.is_empty() {
        page.push('\n');
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let examples = examples.trim_start_matches("Examples:\n").trim_end();
        let _ = writeln!(page, "```\n{examples}\n```\n");
    }
    for command in visible(command) {
        write_command(page, command, &name);
    }
}

fn is_built_in(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version")
}

/// Line of a list: the argument as it is typed, its meaning, its default, its values.
fn line_of(argument: &Arg) -> String {
    let mut typed = String::new();
    if let Some(short) = argument.get_short() {
        let _ = write!(typed, "-{short}, ");
    }
    if let Some(long) = argument.get_long() {
        let _ = write!(typed, "--{long}");
    }
    if argument.get_action().takes_values() {
        let space = if argument.is_positional() { "" } else { " " };
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
        let _ = write!(typed, "{space}{}", names.join(" "));
    }
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut line = format!("- `{typed}`: {}", help.trim().replace('\n', " "));
    if !argument.get_action().takes_values() {
        return line + "\n";
    }
    if !line.ends_with('.') {
        line.push('.');
    }
    let defaults: Vec<_> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if !defaults.is_empty() {
        let _ = write!(line, " Default: `{}`.", defaults.join(","));
    }
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        let _ = write!(line, " Values: {}.", values.join(", "));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::CommandFactory as _;

    /// Calls `check` with each command that people see, and its name.
    fn each(command: &Command, name: &str, check: &mut impl FnMut(&str, &Command)) {
        check(name, command);
        for command in visible(command) {
            each(command, &format!("{name} {}", command.get_name()), check);
        }
    }

    #[test]
    fn the_first_line_of_every_help_text_fits_a_terminal() {
        let mut long = Vec::new();
        each(&Cli::command(), "sheaf", &mut |name, command| {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            if about.is_empty() || about.chars().count() > 80 {
                long.push(format!("{name}: {about}"));
            }
        });
        assert_eq!(long, Vec::<String>::new());
    }

    #[test]
    fn every_command_has_a_section() {
        let page = page(Cli::command());
        each(&Cli::command(), "sheaf", &mut |name, _| {
            assert!(
                name == "sheaf" || page.contains(&format!("## `{name}`\n")),
                "{name}"
            );
        });
    }
}
