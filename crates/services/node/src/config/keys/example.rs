//! `config/example.toml`, made of the registrations.

use super::{TABLES, in_one_line};
use std::fmt::Write as _;

/// Columns of a comment.
const COLUMNS: usize = 118;

const HEAD: &str = "\
# A farm in one file. Every key stands here with its default, so an empty file means the same.
# `sheaf config check FILE` names all that is wrong with a file, `sheaf config show FILE` prints it with
# all defaults filled in. Keys that are commented out have no default. More: docs/reference/config.md.
# Written by `sheaf config example` from the registrations in the code.
";

/// Returns a farm file with every key, its default and its description.
#[must_use]
pub fn example() -> String {
    let mut text = HEAD.to_owned();
    for table in TABLES {
        text.push('\n');
        comment(&mut text, &in_one_line(table.about));
        let _ = writeln!(text, "[{}]", table.name);
        for key in table.keys {
            let names = key.names();
            let mut about = key.description();
            // A description that explains the names has them.
            if !names.iter().all(|name| about.contains(name.as_str())) {
                let _ = write!(about, " One of {}.", names.join(", "));
            }
            comment(&mut text, &about);
            let name = key.path.rsplit('.').next().unwrap_or_default();
            let _ = match (key.sample, key.default_value()) {
                (Some(sample), _) => writeln!(text, "# {name} = {sample}"),
                (None, Some(value)) => writeln!(text, "{name} = {value}"),
                (None, None) => writeln!(text, "# {name} ="),
            };
        }
    }
    text
}

/// Adds `words` as a comment of lines that fit a screen.
pub fn comment(text: &mut String, words: &str) {
    let mut line = "#".to_owned();
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(text, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}
