//! Names that commands had before release 0.2: each is read as its new name for one release, with a warning.

use crate::command::Cli;
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

/// An old name that was found on the command line, and the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renamed {
    old: &'static str,
    new: &'static str,
}

impl fmt::Display for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old, new } = self;
        write!(
            f,
            "`sheaf {old}` is now `sheaf {new}`; the old name goes with release 0.3"
        )
    }
}

/// Replaces an old name in `words`, the program's own name first, by the new one.
pub(crate) fn translate(mut words: Vec<OsString>) -> (Vec<OsString>, Option<Renamed>) {
    let at = command_at(&words);
    for &(old, new) in RENAMED {
        let length = old.split(' ').count();
        let found = words.iter().skip(at).take(length);
        if found.eq(old.split(' ')) {
            words.splice(at..at + length, new.split(' ').map(OsString::from));
            return (words, Some(Renamed { old, new }));
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
        let (words, renamed) = translate(line.split(' ').map(OsString::from).collect());
        let words: Vec<String> = words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        (words.join(" "), renamed.map(|renamed| renamed.to_string()))
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
            "sheaf lab attend flp",
            "sheaf --log-format",
        ] {
            assert_eq!(read(line), (line.to_owned(), None));
        }
    }
}
