//! The disk of the collector: real files in a folder, and the answers, delays and losses of a simulated disk.
//!
//! A step of the log or the tables is asked for before it happens ([`Space`]), so the disk can refuse it, take its
//! time, or be the last thing that the collector does. What was written to the log and not synced survives the death
//! of the process and not that of the machine. Tables are durable when their step is done, as fjall promises.

use crate::dice::Dice;
use sheaf_sample_store::{Space, Step};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk; its clones are one disk.
#[derive(Clone, Debug, Default)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether there is no room.
    pub(super) is_full: bool,
    /// Syncs of the log that are refused from now on.
    pub(super) syncs_refused: u64,
    /// Time of each step, in ms.
    pub(super) step_ms: i64,
    /// Time that steps have taken since this was taken.
    pub(super) spent_ms: i64,
    /// Steps that happen before the collector dies in the next one.
    pub(super) dies_after: Option<u64>,
    /// Set when it has died: nothing happens any more.
    pub(super) is_dead: bool,
    /// Faults of steps so far.
    pub(super) faults: u64,
    /// Bytes of each file of the log that survive a loss of power.
    synced: BTreeMap<PathBuf, u64>,
    /// Removed files whose names may come back.
    removed: BTreeMap<PathBuf, Vec<u8>>,
}

impl SimDisk {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does to the files what a loss of power does.
    pub(super) fn lose_power(&self, dice: &mut Dice) -> io::Result<()> {
        let mut state = self.lock();
        for (path, &synced) in &state.synced {
            let Ok(length) = std::fs::metadata(path).map(|found| found.len()) else {
                continue;
            };
            if length <= synced {
                continue;
            }
            let file = OpenOptions::new().write(true).open(path)?;
            let kept = dice.range(synced, length);
            file.set_len(kept)?;
            if dice.chance(30) {
                // The length of the file reached the disk, and its last bytes did not.
                file.set_len(length)?;
            }
        }
        for (path, bytes) in std::mem::take(&mut state.removed) {
            if dice.chance(50) {
                state.synced.insert(path.clone(), bytes.len() as u64);
                std::fs::write(path, bytes)?;
            }
        }
        // What is there now is what the disk has.
        for (path, synced) in &mut state.synced {
            if let Ok(found) = std::fs::metadata(path) {
                *synced = found.len();
            }
        }
        Ok(())
    }
}

impl State {
    fn step(&mut self, step: Step<'_>) -> io::Result<()> {
        if self.is_dead {
            return Err(io::Error::other("the collector is dead"));
        }
        if let Some(left) = &mut self.dies_after {
            if *left == 0 {
                self.is_dead = true;
                return Err(io::Error::other("the collector has died"));
            }
            *left -= 1;
        }
        self.spent_ms += self.step_ms;
        match step {
            Step::LogSync(_) if self.syncs_refused > 0 => {
                self.syncs_refused -= 1;
                self.faults += 1;
                return Err(ErrorKind::StorageFull.into());
            }
            Step::LogBegin(file) => {
                self.synced.insert(file.to_owned(), 0);
                self.removed.clear();
            }
            Step::LogSync(file) => {
                let length = std::fs::metadata(file)?.len();
                self.synced.insert(file.to_owned(), length);
            }
            Step::LogCut { file, length } => {
                self.synced.insert(file.to_owned(), length);
            }
            Step::LogRemove(file) => {
                self.synced.remove(file);
                self.removed.insert(file.to_owned(), std::fs::read(file)?);
            }
            Step::LogWrite { .. } | Step::Tables(_) | Step::TableRemove(_) => {}
        }
        Ok(())
    }
}

impl Space for SimDisk {
    fn before(&self, step: Step<'_>) -> io::Result<()> {
        self.lock().step(step)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.lock().is_full { 10 } else { 1 << 40 })
    }
}
