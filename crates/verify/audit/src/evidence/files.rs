//! Event logs as files: one, or a series.

use super::{Evidence, Fate, Log};
use crate::finding::Kind;
use crate::series;
use sheaf_protocol::NodeId;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

impl Evidence {
    /// Adds the event log at `path`. It may hold several lives of its node; `fate` is that of the last one, the ones
    /// before count as killed unless they have a line `end`. `expected` is the node of the log. A node that was killed
    /// before it wrote anything has none.
    ///
    /// # Errors
    ///
    /// The error of reading the file. Faults of its lines are findings of the audit instead.
    pub fn read(&mut self, path: &Path, expected: Option<NodeId>, fate: Fate) -> io::Result<()> {
        let name = path.display().to_string();
        let files = series::files_of(path)?;
        let Some(last) = files.last() else {
            if fate != Fate::Killed {
                let node = expected.map_or(name, |node| node.to_string());
                self.find(Kind::MissingLog, format!("{node} has no event log"));
            }
            return Ok(());
        };
        let mut state = self.begin_log(&name, expected, fate);
        for file in &files {
            state.name = file.display().to_string();
            state.part.has_ended = false;
            let before = state.part.number;
            self.take_in_file(
                BufReader::with_capacity(1 << 20, File::open(file)?),
                &mut state,
            )?;
            let number = state.part.number;
            if number == before {
                let file = &state.name;
                let text =
                    format!("{file} does not begin with `continued`, as a later file of {name}");
                // The first one has no such line.
                if before > 0 {
                    self.find(Kind::WrongLog, text);
                }
                state.part.number += 1;
            }
            if file != last && !state.part.has_ended {
                let text = format!("{} is cut: its last line is not `rotated`", state.name);
                self.find(Kind::GarbledLog, text);
            }
        }
        if state.part.has_ended && last != path {
            let text = format!("{name}: no file goes on behind {}", state.name);
            self.find(Kind::MissingLog, text);
        }
        Ok(())
    }

    /// Adds all event logs in `dir`, that is, its files `*.events` with those of their series, and returns how many
    /// logs there are. Their processes were not watched: see [`Fate::Unknown`].
    ///
    /// # Errors
    ///
    /// The error of reading, with the name of the file.
    pub fn read_dir(&mut self, dir: &Path) -> io::Result<u64> {
        let paths = series::logs_in(dir)?;
        for path in &paths {
            let named = |error| io::Error::other(format!("{}: {error}", path.display()));
            self.read(path, None, Fate::Unknown).map_err(named)?;
        }
        Ok(paths.len() as u64)
    }

    /// Notes that file `part` of a series begins.
    pub(super) fn go_on(&mut self, log: &mut Log, part: u64) {
        let first = log.part.number + 1;
        if part > first {
            let text = format!(
                "files {first} to {} before {} are missing",
                part - 1,
                log.name
            );
            self.find(Kind::MissingLog, text);
        }
        log.part.number = log.part.number.max(part);
    }
}
