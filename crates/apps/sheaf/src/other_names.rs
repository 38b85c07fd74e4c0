//! Names that commands have beside their own: those from before release 0.2, each read as its new name for one release,
//! with a warning, and short ones, which stay.

use crate::command::Cli;
use crate::short_names::SHORT;
use clap::CommandFactory as _;
use std::ffi::OsString;
use std::fmt;

/// Old name, new name. A longer old name stands before a shorter one with the same beginning.
const RENAMED: &[(&str, &str)] = &[
    ("flp", "run flp"),
    ("icn", "run icn"),
    ("epn set", "ctl set"),
    ("epn", "run epn"),
    ("gateway", "run bridge"),
    ("drain", "ctl drain"),
    ("stop", "ctl stop"),
    ("inspect", "data inspect"),
    ("convert", "data convert"),
    ("consume", "data consume"),
    ("verify", "data verify"),
];

/// A name of a command that is not its own, found on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    name: &'static str,
    own: &'static str,
    is_old: bool,
}

impl Other {
    /// Returns whether the name goes with the next release, so that each use deserves a warning.
    pub(crate) fn is_old(&self) -> bool {
        self.is_old
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, own, is_old } = self;
        match is_old {
            true => write!(
                f,
                "`sheaf {name}` is now `sheaf {own}`; the old name goes with release 0.3"
            ),
            false => write!(f, "`sheaf {name}` is short for `sheaf {own}`"),
        }
    }
}

/// Replaces another name in `words`, the program's own name first, by the command's own.
pub(crate) fn translate(mut words: Vec<OsString>) -> (Vec<OsString>, Option<Other>) {
    let at = command_at(&words);
    let old = RENAMED.iter().map(|row| (row, true));
    let short = SHORT.iter().map(|row| (row, false));
    for (&(name, own), is_old) in old.chain(short) {
        let length = name.split(' ').count();
        let found = words.iter().skip(at).take(length);
        if found.eq(name.split(' ')) {
            let next = words.get(at + length).and_then(|word| word.to_str());
            let wants_help = words[at - 1] == "help" || matches!(next, Some("-h" | "--help"));
            let own_words = own.split(' ');
            let own_words = own_words.filter(|word| !wants_help || !word.starts_with('-'));
            words.splice(at..at + length, own_words.map(OsString::from));
            return (words, Some(Other { name, own, is_old }));
        }
    }
    (words, None)
}

/// Returns the place of the command: behind the program's name, global options and the word `help`.
fn command_at(words: &[OsString]) -> usize {
    let cli = Cli::command();
    let takes_value = |word: &str| {
        let mut options = cli.get_arguments();
        let long = word.strip_prefix("--");
        long.is_some()
            && options.any(|option| option.get_long() == long && option.get_action().takes_values())
    };
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        at += match word {
            "help" => 1,
            _ if takes_value(word) => 2,
            _ if word.starts_with('-') => 1,
            _ => break,
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line that `line` is read as, and the warning.
    fn read(line: &str) -> (String, Option<String>) {
        let (words, other) = translate(line.split(' ').map(OsString::from).collect());
        let words: Vec<String> = words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        (words.join(" "), other.map(|other| other.to_string()))
    }

    #[test]
    fn every_old_name_is_read_as_a_command_that_exists() {
        for (old, new) in RENAMED {
            let (line, warning) = read(&format!("sheaf {old} --help"));
            assert_eq!(line, format!("sheaf {new} --help"));
            let expected =
                format!("`sheaf {old}` is now `sheaf {new}`; the old name goes with release 0.3");
            assert_eq!(warning, Some(expected));
            let mut command = &Cli::command();
            for word in new.split(' ') {
                command = command.find_subcommand(word).unwrap();
            }
        }
    }

    #[test]
    fn every_short_name_is_read_as_a_command_that_exists() {
        for (line, expected) in [
            ("sheaf read a.tf --json", "sheaf files read a.tf --json"),
            ("sheaf -v read a.tf", "sheaf -v files read a.tf"),
            ("sheaf write fsck /data", "sheaf files check /data"),
            (
                "sheaf write replay a.csv --seed 2",
                "sheaf sim write --trace a.csv --seed 2",
            ),
            ("sheaf write replay", "sheaf sim write --trace"),
            ("sheaf write replay --help", "sheaf sim write --help"),
            ("sheaf help write replay", "sheaf help sim write"),
        ] {
            let (line, told) = read(line);
            assert_eq!(line, expected);
            assert!(told.unwrap().contains(" is short for `sheaf "));
        }
        for (_, own) in SHORT {
            let mut command = &Cli::command();
            for word in own.split(' ') {
                command = match word.strip_prefix("--") {
                    Some(option) => {
                        let mut options = command.get_arguments();
                        assert!(options.any(|it| it.get_long() == Some(option)), "{own}");
                        command
                    }
                    None => command.find_subcommand(word).unwrap(),
                };
            }
        }
    }

    #[test]
    fn an_old_name_is_found_behind_global_options_only() {
        for (line, expected) in [
            ("sheaf -v flp --index 0", "sheaf -v run flp --index 0"),
            (
                "sheaf --log-format json epn",
                "sheaf --log-format json run epn",
            ),
            (
                "sheaf --log-format=json epn",
                "sheaf --log-format=json run epn",
            ),
            ("sheaf help verify", "sheaf help data verify"),
            ("sheaf epn set epn:1", "sheaf ctl set epn:1"),
        ] {
            let (line, warning) = read(line);
            assert_eq!(line, expected);
            assert!(warning.is_some(), "{line}");
        }
        for line in [
            "sheaf",
            "sheaf -v",
            "sheaf data verify",
            "sheaf files read",
            "sheaf write",
            "sheaf sim write",
            "sheaf lab attend flp",
            "sheaf --log-format",
        ] {
            assert_eq!(read(line), (line.to_owned(), None));
        }
    }
}
