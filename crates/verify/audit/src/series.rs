//! Files of one event log, which goes on in a new file behind a limit of size or age.

use sheaf_verdict_log::event::Event;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// Longest first line that is looked at, in bytes.
const FIRST_LINE_BYTES_MAX: u64 = 4096;

/// Returns the files of the event log at `path`, oldest first: those whose names end with a number, and the one at
/// `path`, in the order that their first lines give. Empty if there is none.
///
/// # Errors
///
/// The error of reading the folder or a file.
pub fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let entries = match std::fs::read_dir(folder.unwrap_or(Path::new("."))) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if is_of(&name, path.file_name().unwrap_or_default()) {
            let file = path.with_file_name(&name);
            files.push((
                part_of(&file)?,
                name == path.file_name().unwrap_or_default(),
                file,
            ));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, _, file)| file).collect())
}

/// Returns the paths of all event logs in `dir`, sorted, each once however many files it has.
///
/// # Errors
///
/// The error of reading the folder.
pub fn logs_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut logs = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if let Some(log) = log_of(&name) {
            logs.insert(dir.join(log));
        }
    }
    Ok(logs.into_iter().collect())
}

/// Returns the name of the log that a file called `name` is of: `epn-0.events` for that and `epn-0.events.000003`.
fn log_of(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let (log, number) = name.rsplit_once('.')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    match number {
        "events" => Some(name),
        _ if is_number && log.ends_with(".events") => Some(log),
        _ => None,
    }
}

/// Returns whether a file called `name` is of the log called `log`, whatever that name is.
fn is_of(name: &OsStr, log: &OsStr) -> bool {
    let rest = name.as_encoded_bytes().strip_prefix(log.as_encoded_bytes());
    rest.is_some_and(|rest| match rest {
        [] => true,
        [b'.', number @ ..] => !number.is_empty() && number.iter().all(u8::is_ascii_digit),
        _ => false,
    })
}

/// Returns the number of a file in its series, from its first line.
fn part_of(file: &Path) -> io::Result<u64> {
    let mut line = Vec::new();
    let first = File::open(file)?.take(FIRST_LINE_BYTES_MAX);
    BufReader::new(first).read_until(b'\n', &mut line)?;
    Ok(match serde_json::from_slice(&line) {
        Ok(Event::Continued { part }) => part,
        _ => 1,
    })
}
