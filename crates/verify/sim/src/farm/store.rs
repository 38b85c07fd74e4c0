//! Disk of an EPN that stores before it reports: it outlives processes, may be full, and loses unsynced data when the
//! machine dies. A TF that becomes visible on it for good counts as delivered.

use crate::dice::Dice;
use crate::taken::Taken;
use sheaf_formats::tf_file::read_tf_file;
use sheaf_node::event::PartEvent;
use sheaf_node::sink::{Disk, DiskFile};
use sheaf_protocol::crc32c;
use sheaf_transport::memory::Network;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Folder of the EPN. It exists.
pub(super) const ROOT: &str = "/store";

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// Bytes that a power failure leaves.
    safe_bytes: usize,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    files: BTreeMap<u64, File>,
    made: u64,
    names: BTreeMap<PathBuf, u64>,
    /// Names that a power failure leaves, and the changes since: each step happens or does not.
    safe_names: BTreeMap<PathBuf, u64>,
    journal: Vec<Vec<(PathBuf, Option<u64>)>>,
    /// Files with the names of committed TFs that may vanish again.
    unseen: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    is_full: bool,
    /// Steps after which the process dies.
    steps_left: Option<u32>,
    is_stopped: bool,
    taken: Vec<Taken>,
}

/// Disk of an EPN. Clones are the same disk.
#[derive(Clone, Debug)]
pub(super) struct StoreDisk {
    state: Arc<Mutex<State>>,
    /// Network, which carries nothing of a process after its death.
    network: Network,
    name: String,
}

impl StoreDisk {
    pub(super) fn new(seed: u64, network: Network, name: String) -> Self {
        let state = State {
            dice: Dice::new(seed),
            files: BTreeMap::new(),
            made: 0,
            names: BTreeMap::new(),
            safe_names: BTreeMap::new(),
            journal: Vec::new(),
            unseen: BTreeSet::new(),
            folders: BTreeSet::from([ROOT.into()]),
            is_full: false,
            steps_left: None,
            is_stopped: false,
            taken: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            network,
            name,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether writes fail from now on.
    pub(super) fn set_full(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    /// Lets the process die after `steps` more, or go on for ever.
    pub(super) fn limit_steps(&self, steps: Option<u32>) {
        let state = &mut *self.state();
        state.steps_left = steps;
        state.is_stopped = false;
    }

    /// Returns whether the process died at one of its steps.
    pub(super) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Kills the machine. Of the names that were not synced the first few are left, and any of the bytes.
    pub(super) fn fail_power(&self) {
        let state = &mut *self.state();
        let left = state.dice.range(0, state.journal.len() as u64) as usize;
        for step in std::mem::take(&mut state.journal).into_iter().take(left) {
            set_names(&mut state.safe_names, step);
        }
        state.names.clone_from(&state.safe_names);
        for file in state.files.values_mut() {
            let unsafe_bytes = (file.bytes.len() - file.safe_bytes) as u64;
            let left = file.safe_bytes + state.dice.range(0, unsafe_bytes) as usize;
            file.bytes.truncate(left);
            file.safe_bytes = left;
        }
    }

    /// Takes the TFs that have become visible for good since the last call.
    pub(super) fn take(&self) -> Vec<Taken> {
        std::mem::take(&mut self.state().taken)
    }

    /// Counts one step. The one at which the process dies does not happen, and none after it.
    fn step(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        match &mut state.steps_left {
            Some(0) => {
                state.is_stopped = true;
                drop(state);
                self.network.limit_frames(&self.name, 0);
                Err(io::Error::other("the process is dead"))
            }
            left => {
                if let Some(left) = left {
                    *left -= 1;
                }
                Ok(state)
            }
        }
    }
}

impl State {
    fn change(&mut self, step: Vec<(PathBuf, Option<u64>)>) {
        set_names(&mut self.names, step.clone());
        self.journal.push(step);
    }

    /// Makes a file visible for good.
    fn deliver(&mut self, path: &Path) {
        let file = self.names.get(path).and_then(|id| self.files.get(id));
        let Some(Ok(tf)) = file.map(|file| read_tf_file(&file.bytes)) else {
            return;
        };
        let parts = tf.parts.iter().map(|part| PartEvent {
            flp: part.source.flp.0,
            incarnation: part.source.incarnation.0,
            bytes: part.payload.len() as u64,
            digest: crc32c(part.payload),
        });
        let taken = Taken {
            run: tf.run,
            tf: tf.tf,
            is_redelivered: tf.is_redelivered,
            parts: parts.collect(),
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
        };
        self.taken.push(taken);
    }
}

fn set_names(names: &mut BTreeMap<PathBuf, u64>, step: Vec<(PathBuf, Option<u64>)>) {
    for (path, file) in step {
        match file {
            Some(file) => names.insert(path, file),
            None => names.remove(&path),
        };
    }
}

struct OpenFile {
    disk: StoreDisk,
    file: u64,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.step()?;
        if state.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = self.file;
        // As a kernel may: not all at once.
        let some = match state.dice.chance(30) {
            true => bytes.len().div_ceil(2),
            false => bytes.len(),
        };
        if let Some(file) = state.files.get_mut(&file) {
            file.bytes.extend_from_slice(&bytes[..some]);
        }
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for OpenFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.step()?;
        if let Some(file) = state.files.get_mut(&self.file) {
            file.safe_bytes = file.bytes.len();
        }
        Ok(())
    }
}

impl Disk for StoreDisk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.step()?;
        if !path
            .parent()
            .is_some_and(|folder| state.folders.contains(folder))
        {
            return Err(ErrorKind::NotFound.into());
        }
        state.made += 1;
        let file = state.made;
        state.files.insert(file, File::default());
        state.change(vec![(path.to_owned(), Some(file))]);
        drop(state);
        let disk = self.clone();
        Ok(Box::new(OpenFile { disk, file }))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        let file = *state.names.get(from).ok_or(ErrorKind::NotFound)?;
        if from == to {
            return Ok(());
        }
        state.change(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]);
        if to.extension().is_some_and(|extension| extension == "tf") {
            state.unseen.insert(to.to_owned());
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        if state.names.contains_key(path) {
            state.change(vec![(path.to_owned(), None)]);
        }
        Ok(())
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        self.step()?.folders.insert(path.to_owned());
        Ok(())
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        let state = &mut *state;
        let is_in = |name: &PathBuf| name.parent() == Some(path);
        for step in std::mem::take(&mut state.journal) {
            match step.iter().any(|(name, _)| is_in(name)) {
                true => set_names(&mut state.safe_names, step),
                false => state.journal.push(step),
            }
        }
        for name in std::mem::take(&mut state.unseen) {
            match is_in(&name) {
                true => state.deliver(&name),
                false => _ = state.unseen.insert(name),
            }
        }
        Ok(())
    }

    fn names(&mut self, folder: &Path, of_folders: bool) -> io::Result<Vec<String>> {
        let state = self.step()?;
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let is_in = |path: &&PathBuf| path.parent() == Some(folder);
        Ok(match of_folders {
            true => state
                .folders
                .iter()
                .filter(is_in)
                .filter_map(name)
                .collect(),
            false => state.names.keys().filter(is_in).filter_map(name).collect(),
        })
    }

    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let state = self.step()?;
        let file = state.names.get(path).and_then(|id| state.files.get(id));
        Ok(file.map(|file| file.bytes.clone()))
    }
}
