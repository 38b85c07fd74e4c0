//! A disk in memory: what the kernel has of it, and what survives a cut of power.

use super::options::{DeathOptions, DiskFault};
use crate::dice::Dice;
use crate::trace::Hash;
use sheaf_stream_files::{Folder, StoredFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that a disk writes as a whole.
const SECTOR: u64 = 512;

/// The disk; its clones are one disk.
#[derive(Clone, Debug)]
pub(super) struct SimDisk(Arc<Mutex<State>>);

/// Content of a file.
#[derive(Clone, Debug, Default)]
struct Inode {
    /// As reads see it.
    now: Vec<u8>,
    /// As it is after a cut, whatever else survives.
    durable: Vec<u8>,
    /// Sectors that were written since, and that the kernel still has to write.
    dirty: BTreeSet<u64>,
}

/// Change of names.
#[derive(Clone, Debug)]
enum Change {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug)]
struct State {
    dice: Dice,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the folder was synced, in their order.
    changes: Vec<Change>,
    /// Steps of all lives, and of this one.
    steps: u64,
    life_steps: u64,
    dies_after: Option<u64>,
    is_dead: bool,
    faults: Vec<(u64, DiskFault)>,
    full: u64,
    writes_fail: u64,
    syncs_fail: u64,
    folder_syncs_fail: u64,
    commits_refused: u64,
    injected: u64,
    hash: Hash,
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

impl SimDisk {
    pub(super) fn new(dice: Dice, faults: &[(u64, DiskFault)]) -> Self {
        let mut faults = faults.to_vec();
        faults.reverse();
        Self(Arc::new(Mutex::new(State {
            dice,
            inodes: BTreeMap::new(),
            next_inode: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            steps: 0,
            life_steps: 0,
            dies_after: None,
            is_dead: false,
            faults,
            full: 0,
            writes_fail: 0,
            syncs_fail: 0,
            folder_syncs_fail: 0,
            commits_refused: 0,
            injected: 0,
            hash: Hash::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a life of the process, which ends after so many steps.
    pub(super) fn begin_life(&self, dies_after: Option<u64>) {
        let mut state = self.lock();
        state.is_dead = false;
        state.life_steps = 0;
        state.dies_after = dies_after;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.lock().is_dead
    }

    /// Ends the process, by what happened at another disk.
    pub(super) fn kill(&self) {
        self.lock().is_dead = true;
    }

    /// Ends all faults, now and later.
    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.full = 0;
        state.writes_fail = 0;
        state.syncs_fail = 0;
        state.folder_syncs_fail = 0;
        state.commits_refused = 0;
    }

    /// Faults that were injected, and a hash of all steps.
    pub(super) fn told(&self) -> (u64, u64) {
        let state = self.lock();
        (state.injected, state.hash.value())
    }

    /// Does to the disk what a death does: a process leaves all that the kernel has, a cut what was synced and some of
    /// the rest.
    pub(super) fn die(&self, death: DeathOptions) {
        let mut state = self.lock();
        let state = &mut *state;
        if !death.is_cut {
            return;
        }
        // Changes of names reach the disk in their order, as file systems with a journal write them.
        let kept = match state.changes.len() as u64 {
            0 => 0,
            changes if death.survive_percent == 100 => changes,
            changes => state.dice.range(0, changes),
        };
        for change in state.changes.drain(..).take(kept as usize) {
            apply(&mut state.durable_names, change);
        }
        state.names = state.durable_names.clone();
        let named: BTreeSet<u64> = state.names.values().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
        for inode in state.inodes.values_mut() {
            // Whether the length on the disk is that of before or that of now.
            let is_new_length = state.dice.chance(50);
            if is_new_length {
                inode.durable.resize(inode.now.len(), 0);
            }
            for &sector in &inode.dirty {
                if !state.dice.chance(death.survive_percent) {
                    continue;
                }
                let from = sector * SECTOR;
                let to = (from + SECTOR).min(inode.now.len() as u64);
                let (from, to) = (from as usize, to as usize);
                if from >= to {
                    continue;
                }
                if inode.durable.len() < to {
                    inode.durable.resize(to, 0);
                }
                inode.durable[from..to].copy_from_slice(&inode.now[from..to]);
            }
            inode.now = inode.durable.clone();
            inode.dirty.clear();
        }
    }

    /// Returns all files as reads see them.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let files = state.names.iter();
        files
            .map(|(name, inode)| (name.clone(), state.inodes[inode].now.clone()))
            .collect()
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: Change) {
    match change {
        Change::Create(name, inode) => {
            names.insert(name, inode);
        }
        Change::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
        Change::Remove(name) => {
            names.remove(&name);
        }
    }
}

/// Counter of a fault: whether this step has it.
fn take(count: &mut u64, injected: &mut u64) -> bool {
    let is_due = *count > 0;
    *count = count.saturating_sub(1);
    *injected += u64::from(is_due);
    is_due
}

impl State {
    /// Begins a step. Returns whether the process dies in it; else it happens.
    fn step(&mut self, what: u64) -> io::Result<bool> {
        if self.is_dead {
            return Err(dead());
        }
        self.hash.add(what);
        while let Some((at, _)) = self.faults.last()
            && *at <= self.steps
        {
            let (_, fault) = self.faults.pop().expect("there is one");
            match fault {
                DiskFault::Full(count) => self.full += count,
                DiskFault::WritesFail(count) => self.writes_fail += count,
                DiskFault::SyncsFail(count) => self.syncs_fail += count,
                DiskFault::FolderSyncsFail(count) => self.folder_syncs_fail += count,
                DiskFault::CommitsRefused(count) => self.commits_refused += count,
            }
        }
        self.steps += 1;
        self.life_steps += 1;
        if self.dies_after.is_some_and(|after| self.life_steps > after) {
            self.is_dead = true;
            self.injected += 1;
        }
        Ok(self.is_dead)
    }

    /// A step that happens in full or not at all: half of the deaths in it come afterwards.
    fn change(&mut self, what: u64, change: Change) -> io::Result<()> {
        let dies = self.step(what)?;
        if !dies || self.dice.chance(50) {
            apply(&mut self.names, change.clone());
            self.changes.push(change);
        }
        if dies { Err(dead()) } else { Ok(()) }
    }
}

impl Folder for SimDisk {
    fn create(&self, name: &str, _: bool) -> io::Result<Box<dyn StoredFile>> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.change(1, Change::Create(name.to_owned(), inode))?;
        drop(state);
        let disk = self.clone();
        Ok(Box::new(SimFile { disk, inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let mut state = self.lock();
        if state.step(2)? {
            return Err(dead());
        }
        let inode = *state.names.get(name).ok_or(ErrorKind::NotFound)?;
        drop(state);
        let disk = self.clone();
        Ok(Box::new(SimFile { disk, inode }))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        let state = self.lock();
        if state.is_dead {
            return Err(dead());
        }
        Ok(state.names.contains_key(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.lock();
        if state.is_dead {
            return Err(dead());
        }
        Ok(state.names.keys().cloned().collect())
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        if state.names.contains_key(to) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !state.names.contains_key(from) {
            return Err(ErrorKind::NotFound.into());
        }
        state.change(3, Change::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(name) {
            return Err(ErrorKind::NotFound.into());
        }
        state.change(4, Change::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        let state = &mut *state;
        if state.step(5)? {
            return Err(dead());
        }
        if take(&mut state.folder_syncs_fail, &mut state.injected) {
            return Err(io::Error::other("the folder cannot be synced"));
        }
        state.durable_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn before_commit(&self) -> io::Result<()> {
        let mut state = self.lock();
        let state = &mut *state;
        if state.step(6)? {
            return Err(dead());
        }
        if take(&mut state.commits_refused, &mut state.injected) {
            return Err(io::Error::other("the catalogue is locked"));
        }
        Ok(())
    }

    fn pause(&self, _: Duration) -> bool {
        !self.is_dead()
    }
}

/// File of the disk.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
}

impl SimFile {
    fn with<T>(&self, work: impl FnOnce(&mut State, &mut Inode) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        let state = &mut *state;
        let mut inode = state
            .inodes
            .remove(&self.inode)
            .ok_or(ErrorKind::NotFound)?;
        let result = work(state, &mut inode);
        state.inodes.insert(self.inode, inode);
        result
    }
}

impl Inode {
    fn write(&mut self, bytes: &[u8], at: u64) {
        let end = at as usize + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[at as usize..end].copy_from_slice(bytes);
        self.dirty
            .extend(at / SECTOR..(end as u64).div_ceil(SECTOR));
    }
}

impl StoredFile for SimFile {
    fn set_aside(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.with(|state, inode| {
            if state.step(7)? {
                return Err(dead());
            }
            if state.full > 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            // Files in memory: not all that a disk would set aside.
            let end = (from + bytes.min(8192)) as usize;
            if inode.now.len() < end {
                inode.now.resize(end, 0);
            }
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64, _: bool) -> io::Result<()> {
        self.with(|state, inode| {
            let dies = state.step(8 ^ at << 8)?;
            let is_full = take(&mut state.full, &mut state.injected);
            let fails = take(&mut state.writes_fail, &mut state.injected);
            if dies || is_full || fails {
                let part = state.dice.range(0, bytes.len() as u64) as usize;
                inode.write(&bytes[..part], at);
            } else {
                inode.write(bytes, at);
            }
            match (dies, is_full, fails) {
                (true, ..) => Err(dead()),
                (_, true, _) => Err(ErrorKind::StorageFull.into()),
                (_, _, true) => Err(io::Error::other("the disk fails")),
                _ => Ok(()),
            }
        })
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            if state.is_dead {
                return Err(dead());
            }
            let rest = inode.now.get(at as usize..).unwrap_or_default();
            let count = rest.len().min(bytes.len());
            bytes[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn bytes(&self) -> io::Result<u64> {
        self.with(|_, inode| Ok(inode.now.len() as u64))
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let dies = state.step(9)?;
            if !dies || state.dice.chance(50) {
                inode.now.resize(bytes as usize, 0);
            }
            if dies { Err(dead()) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, inode| {
            let dies = state.step(10)?;
            let fails = take(&mut state.syncs_fail, &mut state.injected);
            if dies || fails {
                // Some sectors were written; after a failure the kernel takes the others for written as well.
                let dirty: Vec<u64> = inode.dirty.iter().copied().collect();
                for sector in dirty {
                    let from = ((sector * SECTOR) as usize).min(inode.now.len());
                    let to = (from + SECTOR as usize).min(inode.now.len());
                    if state.dice.chance(50) {
                        if inode.durable.len() < to {
                            inode.durable.resize(to, 0);
                        }
                        inode.durable[from..to].copy_from_slice(&inode.now[from..to]);
                    } else if dies {
                        continue;
                    }
                    inode.dirty.remove(&sector);
                }
            } else {
                // What a failed sync has forgotten is not written by the next one.
                let length = inode.now.len();
                inode.durable.resize(length, 0);
                let dirty = std::mem::take(&mut inode.dirty);
                for sector in dirty {
                    let from = ((sector * SECTOR) as usize).min(length);
                    let to = (from + SECTOR as usize).min(length);
                    inode.durable[from..to].copy_from_slice(&inode.now[from..to]);
                }
            }
            match (dies, fails) {
                (true, _) => Err(dead()),
                (_, true) => Err(io::Error::other("the disk fails")),
                _ => Ok(()),
            }
        })
    }
}
