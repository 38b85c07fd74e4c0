//! A disk in memory that knows what a crash leaves of it.

use super::super::super::disk::{Disk, DiskFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// State that a crash loses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// The process only: everything written is there.
    Process,
    /// The power: bytes and names that were not synced.
    Everything,
    /// The power: bytes that were not synced. Names happen to be on the disk already.
    Bytes,
}

impl Loss {
    pub(super) const ALL: [Self; 3] = [Self::Process, Self::Everything, Self::Bytes];
}

#[derive(Clone, Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    safe_folders: BTreeSet<PathBuf>,
    steps: u64,
    stop_at: Option<u64>,
    fail_at: Option<(u64, ErrorKind)>,
    is_full: bool,
    is_stopped: bool,
    has_failed: bool,
}

impl State {
    /// One more step. The one at which the process is killed does not happen, and none after it.
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.is_stopped || self.stop_at == Some(self.steps - 1) {
            self.is_stopped = true;
            return Err(io::Error::other("stopped"));
        }
        if let Some((at, kind)) = self.fail_at
            && at == self.steps - 1
        {
            self.has_failed = true;
            return Err(kind.into());
        }
        Ok(())
    }
}

/// A handle to the disk; clones are the same disk.
#[derive(Clone, Debug)]
pub(super) struct Model(Arc<Mutex<State>>);

/// Whether a failure that was ordered has happened.
pub(super) struct Failure(Model);

impl Failure {
    pub(super) fn has_happened(&self) -> bool {
        self.0.0.lock().unwrap().has_failed
    }
}

impl Model {
    pub(super) fn new(root: &str) -> Self {
        let mut state = State::default();
        state.folders.insert(root.into());
        state.safe_folders.insert(root.into());
        Self(Arc::new(Mutex::new(state)))
    }

    /// The process is killed instead of its step `step` from now.
    pub(super) fn stop_at(&self, step: u64) {
        let mut state = self.0.lock().unwrap();
        state.stop_at = Some(state.steps + step);
    }

    pub(super) fn fail_at(&self, step: u64, kind: ErrorKind) -> Failure {
        let mut state = self.0.lock().unwrap();
        state.fail_at = Some((state.steps + step, kind));
        Failure(self.clone())
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = is_full;
    }

    /// Returns the disk for the next process, and whether the former one was stopped.
    pub(super) fn crash(&self, loss: Loss) -> bool {
        let state = &mut *self.0.lock().unwrap();
        match loss {
            Loss::Process => {}
            Loss::Everything => {
                state.names = state.safe_names.clone();
                state.folders = state.safe_folders.clone();
            }
            Loss::Bytes => {}
        }
        if !matches!(loss, Loss::Process) {
            for inode in &mut state.inodes {
                let half = inode.bytes[..inode.bytes.len() / 2].to_vec();
                inode.bytes = inode.synced.clone().unwrap_or(half);
            }
        }
        state.stop_at = None;
        std::mem::take(&mut state.is_stopped)
    }

    /// Turns over one bit of every file.
    pub(super) fn damage(&self, at: usize) {
        for inode in &mut self.0.lock().unwrap().inodes {
            inode.bytes[at] ^= 1;
        }
    }

    /// All files with their bytes, by path.
    pub(super) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.0.lock().unwrap();
        let bytes = |inode: &usize| state.inodes[*inode].bytes.clone();
        let names = state.names.iter();
        names
            .map(|(path, inode)| (path.clone(), bytes(inode)))
            .collect()
    }
}

struct ModelFile {
    disk: Model,
    inode: usize,
}

impl Write for ModelFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let state = &mut *self.disk.0.lock().unwrap();
        let stopped = state.step();
        // What stops or fails half-way has written something.
        let bytes = &bytes[..bytes.len().div_ceil(2)];
        state.inodes[self.inode].bytes.extend_from_slice(bytes);
        stopped?;
        if state.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for ModelFile {
    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.0.lock().unwrap();
        state.step()?;
        let inode = &mut state.inodes[self.inode];
        inode.synced = Some(inode.bytes.clone());
        Ok(())
    }
}

impl Disk for Model {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        if !state.folders.contains(path.parent().unwrap()) {
            return Err(ErrorKind::NotFound.into());
        }
        // An open file is emptied in place.
        let inode = *state.names.entry(path.to_owned()).or_insert_with(|| {
            state.inodes.push(Inode::default());
            state.inodes.len() - 1
        });
        state.inodes[inode].bytes.clear();
        let disk = self.clone();
        Ok(Box::new(ModelFile { disk, inode }))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        let inode = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        state.names.remove(path);
        Ok(())
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        state.folders.insert(path.to_owned());
        Ok(())
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        let is_in = |name: &Path| name.parent() == Some(path);
        state.safe_names.retain(|name, _| !is_in(name));
        let here = state.names.iter().filter(|(name, _)| is_in(name));
        let here: Vec<_> = here.map(|(name, inode)| (name.clone(), *inode)).collect();
        state.safe_names.extend(here);
        let folders: Vec<_> = state.folders.iter().filter(|f| is_in(f)).cloned().collect();
        state.safe_folders.extend(folders);
        Ok(())
    }

    fn names(&mut self, folder: &Path, of_folders: bool) -> io::Result<Vec<String>> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_in = |path: &&PathBuf| path.parent() == Some(folder);
        Ok(if of_folders {
            state.folders.iter().filter(is_in).map(name).collect()
        } else {
            state.names.keys().filter(is_in).map(name).collect()
        })
    }

    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let state = &mut *self.0.lock().unwrap();
        state.step()?;
        let inode = state.names.get(path).copied();
        Ok(inode.map(|inode| state.inodes[inode].bytes.clone()))
    }
}
