//! How is a store copied while it works?
//!
//! Files that fjall has finished never change, so they are linked where the disk can. What points to them is copied and
//! compared afterwards: if the tables were rearranged meanwhile, the copy is made again.

use crate::disk::Disk;
use crate::log::{io, sync_dir};
use crate::store::StoreError;
use crate::tables::format_text;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Attempts until a copy during which tables were not rearranged.
const ATTEMPTS: usize = 20;

/// Files of fjall that say which tables count; all others are written once.
fn is_pointer(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "current")
}

/// Files of which the name alone counts: the lock, and the journal, to which nothing is written.
///
/// The journal has to be there: without one fjall 3.1 opens tables with its numbers of versions at 0, so that records
/// written later count as older.
fn is_empty(path: &Path) -> bool {
    let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
    is_journal || path.file_name().is_some_and(|name| name == "lock")
}

impl Disk {
    /// Copies the store into `dir`, which must not be there yet: all that is committed, and nothing else.
    ///
    /// Tables and closed files of the log are hard links where `dir` is on the same disk. Queries and appends go on,
    /// commits wait.
    ///
    /// # Errors
    ///
    /// If the directory exists or cannot be written, or if the tables do not rest.
    pub fn snapshot(&self, dir: &Path) -> Result<(), StoreError> {
        let _upkeep = self.lock_upkeep();
        let log = self.lock_log();
        std::fs::create_dir(dir).map_err(io("create", dir))?;
        let (from, to) = (self.tables.dir().join("tables"), dir.join("tables"));
        for _ in 0..ATTEMPTS {
            let before = pointers(&from)?;
            let copied = copy(&from, &to)?;
            if copied && pointers(&from)? == before && pointers(&to)? == before {
                log.copy(&dir.join("log"))?;
                let path = dir.join("format");
                std::fs::write(&path, format_text()).map_err(io("write", &path))?;
                return sync_dir(dir);
            }
            std::fs::remove_dir_all(&to).map_err(io("remove", &to))?;
        }
        Err(StoreError::Io {
            what: format!("copy {}", from.display()),
            source: ErrorKind::ResourceBusy.into(),
        })
    }
}

/// Content of all pointers below `dir`, by their place in it.
fn pointers(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, StoreError> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for path in entries(&dir.join(&folder))? {
            let place = folder.join(path.file_name().unwrap_or_default());
            if path.is_dir() {
                folders.push(place);
            } else if is_pointer(&path) {
                match std::fs::read(&path) {
                    Ok(bytes) => _ = found.insert(place, bytes),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(io("read", &path)(error)),
                }
            }
        }
    }
    Ok(found)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // A partition that was dropped meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("read", dir)(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(io("read", dir))
}

/// Copies a folder. Returns `false` if a file went away meanwhile.
fn copy(from: &Path, to: &Path) -> Result<bool, StoreError> {
    std::fs::create_dir(to).map_err(io("create", to))?;
    for path in entries(from)? {
        let into = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            if !copy(&path, &into)? {
                return Ok(false);
            }
            continue;
        }
        if is_empty(&path) {
            std::fs::File::create_new(&into).map_err(io("create", &into))?;
            continue;
        }
        if !is_pointer(&path) && std::fs::hard_link(&path, &into).is_ok() {
            continue;
        }
        match std::fs::copy(&path, &into) {
            Ok(_) => {
                let synced = std::fs::File::open(&into).and_then(|file| file.sync_all());
                synced.map_err(io("sync", &into))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io("copy", &path)(error)),
        }
    }
    sync_dir(to)?;
    Ok(true)
}
