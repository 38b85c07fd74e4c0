//! Files of a simulated disk: the view of a process, and the state after a power failure.

use crate::storage::Disk;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The unit that a disk writes whole.
const SECTOR: usize = 512;

/// Behaviour of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// How long a batch takes, from this to its double.
    pub latency: Duration,
    /// One batch in this many takes [`slow`](Self::slow) in addition; 0 for none.
    pub slow_once_in: u32,
    /// Additional time of a slow batch.
    pub slow: Duration,
    /// One step (write, sync, rename …) in this many fails with EIO; 0 for none.
    pub error_once_in: u32,
    /// Whether every write fails with ENOSPC.
    pub is_full: bool,
}

impl Default for DiskFaults {
    /// Returns a disk without faults: 1 ms.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(700),
            slow_once_in: 0,
            slow: Duration::ZERO,
            error_once_in: 0,
            is_full: false,
        }
    }
}

/// Totals of the events of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTotals {
    /// Steps that change something: writes, syncs, cuts, renames, removals.
    pub steps: u64,
    /// Steps that failed by EIO or ENOSPC.
    pub errors: u64,
    /// Batches that took long.
    pub slow: u64,
    /// Processes that ended in the middle of a batch.
    pub torn: u64,
    /// Power failures.
    pub power_failures: u64,
}

/// A simulated disk with one directory. Clones are the same disk; it outlives the processes that use it.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Xoshiro256PlusPlus,
    faults: DiskFaults,
    totals: DiskTotals,
    files: BTreeMap<u64, File>,
    made: u64,
    names: BTreeMap<String, u64>,
    /// Names that a power failure leaves, and the changes since.
    durable_names: BTreeMap<String, u64>,
    not_durable: Vec<BTreeMap<String, u64>>,
    /// The step at which the process dies.
    dies_at: Option<u64>,
    is_dead: bool,
}

#[derive(Debug, Default)]
struct File {
    /// Content that a process sees.
    bytes: Vec<u8>,
    /// Content that was synced.
    durable: Vec<u8>,
    /// First byte that may differ, and the end of the bytes that the next sync writes.
    dirty_from: usize,
}

fn failed(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

impl SimDisk {
    /// Returns a blank disk; equal seeds and equal calls give equal faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults: DiskFaults::default(),
            totals: DiskTotals::default(),
            files: BTreeMap::new(),
            made: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            not_durable: Vec::new(),
            dies_at: None,
            is_dead: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the behaviour of the disk from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state().faults = faults;
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn totals(&self) -> DiskTotals {
        self.state().totals
    }

    /// Fails the power of the machine, after its process has ended: of bytes that were not synced, any sectors may be
    /// left.
    pub fn fail_power(&self) {
        let state = &mut *self.state();
        state.totals.power_failures += 1;
        // Names are journalled: a prefix of the changes lasts.
        let lasts = state.rng.random_range(0..=state.not_durable.len());
        if lasts > 0 {
            state
                .durable_names
                .clone_from(&state.not_durable[lasts - 1]);
        }
        state.not_durable.clear();
        state.names.clone_from(&state.durable_names);
        state
            .files
            .retain(|id, _| state.names.values().any(|named| named == id));
        for file in state.files.values_mut() {
            file.fail_power(&mut state.rng);
        }
    }

    /// Replaces the disk by a blank one.
    pub fn wipe(&self) {
        let state = &mut *self.state();
        state.files.clear();
        state.names.clear();
        state.durable_names.clear();
        state.not_durable.clear();
    }

    /// Flips a bit of a file, as bad memory or a bad sector may; `false` if the file has no such byte.
    pub fn flip_bit(&self, name: &str, byte: usize, bit: u8) -> bool {
        let state = &mut *self.state();
        let file = state.names.get(name).and_then(|id| state.files.get_mut(id));
        let Some(file) = file else { return false };
        for bytes in [&mut file.durable, &mut file.bytes] {
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        }
        byte < file.bytes.len()
    }

    /// Lets the process die at its `steps`-th step from now.
    pub fn die_at(&self, steps: u64) {
        let state = &mut *self.state();
        state.dies_at = Some(state.totals.steps + steps);
    }

    /// Lets the process die somewhere in its present batch.
    pub(super) fn die_soon(&self) {
        let state = &mut *self.state();
        let steps = state.rng.random_range(0..8);
        state.dies_at = Some(state.totals.steps + steps);
        state.totals.torn += 1;
    }

    pub(crate) fn end_process(&self) {
        let state = &mut *self.state();
        state.dies_at = None;
        state.is_dead = true;
    }

    pub(crate) fn start_process(&self) {
        let state = &mut *self.state();
        state.dies_at = None;
        state.is_dead = false;
    }

    /// Returns whether the process has come to the step at which it had to die.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    pub(super) fn latency(&self) -> Duration {
        let state = &mut *self.state();
        let faults = state.faults;
        let mut takes = faults.latency + faults.latency.mul_f64(state.rng.random_range(0.0..1.0));
        if state.once_in(faults.slow_once_in) {
            state.totals.slow += 1;
            takes += faults.slow.mul_f64(state.rng.random_range(0.1..1.0));
        }
        takes
    }
}

impl State {
    fn once_in(&mut self, of: u32) -> bool {
        of > 0 && self.rng.random_range(0..of) == 0
    }

    /// Counts one step that changes something. `Err` if it fails; the flag tells whether a part of it is done all the
    /// same.
    fn step(&mut self, needs_space: bool) -> Result<(), (io::Error, bool)> {
        if self.is_dead {
            return Err((failed(EIO), false));
        }
        self.totals.steps += 1;
        if self.dies_at.is_some_and(|at| self.totals.steps > at) {
            self.is_dead = true;
            return Err((failed(EIO), true));
        }
        if needs_space && self.faults.is_full {
            self.totals.errors += 1;
            return Err((failed(ENOSPC), true));
        }
        if self.once_in(self.faults.error_once_in) {
            self.totals.errors += 1;
            return Err((failed(EIO), true));
        }
        Ok(())
    }

    fn whole_step(&mut self) -> io::Result<()> {
        self.step(false).map_err(|(error, _)| error)
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let id = self.names.get(name);
        let file = id.and_then(|id| self.files.get_mut(id));
        file.ok_or_else(|| io::Error::from(ErrorKind::NotFound))
    }

    fn names_changed(&mut self) {
        self.not_durable.push(self.names.clone());
    }
}

impl File {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.dirty_from = self.dirty_from.min(offset);
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn sync(&mut self) {
        // Pages that an earlier failed sync has dropped stay dropped: the system believes that they are clean.
        self.durable.resize(self.dirty_from, 0);
        self.durable
            .extend_from_slice(&self.bytes[self.dirty_from..]);
        self.dirty_from = self.bytes.len();
    }

    fn fail_power(&mut self, rng: &mut impl Rng) {
        let dirty = self.dirty_from.min(self.durable.len());
        let shortest = self.durable.len().min(self.bytes.len());
        let longest = self.durable.len().max(self.bytes.len());
        let mut left = self.durable.clone();
        left.resize(rng.random_range(shortest..=longest), 0);
        // The sector in which the difference begins is written whole or not at all, like the others.
        for start in (dirty / SECTOR * SECTOR..left.len()).step_by(SECTOR) {
            let end = (start + SECTOR).min(left.len()).min(self.bytes.len());
            if start < end && rng.random_range(0..2) == 0 {
                left[start..end].copy_from_slice(&self.bytes[start..end]);
            }
        }
        self.bytes.clone_from(&left);
        self.dirty_from = left.len();
        self.durable = left;
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn read_at(&self, name: &str, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let bytes = &state.file(name)?.bytes;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let end = start.saturating_add(bytes_max).min(bytes.len());
        Ok(bytes[start..end].to_vec())
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| failed(ENOSPC))?;
        let state = &mut *self.state();
        let len = state.file(name).map_or(0, |file| file.bytes.len());
        let outcome = state.step(offset + bytes.len() > len);
        let count = match &outcome {
            Ok(()) => bytes.len(),
            Err((_, false)) => return outcome.map_err(|(error, _)| error),
            Err((_, true)) => state.rng.random_range(0..=bytes.len()),
        };
        if !state.names.contains_key(name) {
            state.made += 1;
            let id = state.made;
            state.names.insert(name.to_owned(), id);
            state.files.insert(id, File::default());
            state.names_changed();
        }
        state.file(name)?.write(offset, &bytes[..count]);
        outcome.map_err(|(error, _)| error)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        let outcome = state.whole_step();
        let is_dead = state.is_dead;
        let file = state.file(name)?;
        match outcome {
            Ok(()) => file.sync(),
            // Linux drops the pages that it could not write and calls them clean.
            Err(_) if !is_dead => file.dirty_from = file.bytes.len(),
            Err(_) => {}
        }
        outcome
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        let state = &mut *self.state();
        state.whole_step()?;
        let file = state.file(name)?;
        let bytes = usize::try_from(bytes).map_err(|_| failed(ENOSPC))?;
        file.dirty_from = file.dirty_from.min(bytes.min(file.bytes.len()));
        file.bytes.resize(bytes, 0);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.state();
        state.whole_step()?;
        let id = state.names.remove(from);
        let id = id.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        state.names.insert(to.to_owned(), id);
        state.names_changed();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.state();
        state.whole_step()?;
        if state.names.remove(name).is_some() {
            state.names_changed();
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let state = &mut *self.state();
        state.whole_step()?;
        state.durable_names.clone_from(&state.names);
        state.not_durable.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/sim").join(name)
    }
}
