//! The store on the disk of this machine: opening, and what a driver calls.

use crate::config::Config;
use crate::head::{Borders, Head, Seal, Stuck};
use crate::layers::read_chunk;
use crate::level::Kind;
use crate::log::{Group, Log, io};
use crate::space::{FileSystem, Space};
use crate::store::{Appended, SeriesId, Stats, Store, StoreError};
use crate::tables::{OpenError, Tables, WRITING};
use sheaf_samples::{Labels, Sample};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod upkeep;

use upkeep::Upkeep;

/// Samples in a directory: head log, chunks and buckets in tables, newest samples in memory.
///
/// The layout and what survives what stand in `docs/reference/sample-store.md`. Locks are taken in the order of the
/// fields.
pub struct Disk {
    pub(crate) config: Config,
    space: Arc<dyn Space>,
    pub(crate) upkeep: Mutex<Upkeep>,
    pub(crate) log: Mutex<Log>,
    pub(crate) head: RwLock<Head>,
    pub(crate) tables: Tables,
    log_bytes_damaged: u64,
    pub(crate) chunks_sealed: AtomicU64,
    pub(crate) samples_sealed: AtomicU64,
}

impl Disk {
    /// Opens the store in `dir`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If the directory is no store or one of another version, if another process has it open, or if it cannot be read.
    pub fn open(dir: &Path, config: Config) -> Result<Self, OpenError> {
        Self::open_with(dir, config, Box::new(FileSystem))
    }

    /// Opens the store in `dir` on a disk that answers otherwise.
    ///
    /// # Errors
    ///
    /// As of [`open`](Self::open).
    pub fn open_with(dir: &Path, config: Config, space: Box<dyn Space>) -> Result<Self, OpenError> {
        let space: Arc<dyn Space> = Arc::from(space);
        let tables = Tables::open(dir, &config, space.clone())?;
        let mut head = Head::new(read_borders(&tables)?);
        let through = read_series(&tables, &mut head)?;
        if tables.mark(WRITING)? == Some(1) {
            adopt_chunks(&tables, &mut head)?;
        }
        let at_least = through.iter().max().map_or(0, |group| group + 1);
        let (log, replayed) = Log::open(
            &dir.join("log"),
            space.clone(),
            at_least,
            |number, group| {
                replay(&mut head, &through, config.series_max, number, group);
            },
        )?;
        head.next_group = log.next();
        Ok(Self {
            config,
            space,
            upkeep: Mutex::default(),
            log: Mutex::new(log),
            head: RwLock::new(head),
            tables,
            log_bytes_damaged: replayed.bytes_damaged,
            chunks_sealed: AtomicU64::new(0),
            samples_sealed: AtomicU64::new(0),
        })
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Head> {
        self.head.read().expect("no panic while it is held")
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Head> {
        self.head.write().expect("no panic while it is held")
    }

    pub(crate) fn lock_log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no panic while it is held")
    }

    /// Makes everything appended so far durable, into the reserve of the disk as well.
    pub(crate) fn commit_group(&self) -> Result<(), StoreError> {
        let mut log = self.lock_log();
        let mut group = std::mem::take(&mut self.write().group);
        let committed = log.commit(&mut group);
        let mut head = self.write();
        head.next_group = log.next();
        head.stuck = match &committed {
            Ok(()) => None,
            Err(StoreError::Full { .. }) => Some(Stuck::Full),
            Err(_) => Some(Stuck::Failed),
        };
        if head.group.ids.capacity() == 0 && head.group.series.is_empty() {
            // Empty, with room for as many samples as before.
            head.group = group;
        }
        committed
    }

    /// Fails if less room is left than the reserve.
    pub(crate) fn check_space(&self) -> Result<(), StoreError> {
        let dir = self.tables.dir();
        let free = self.space.free_bytes(dir).map_err(io("ask", dir))?;
        let reserve = self.config.reserve_bytes;
        if free < reserve {
            return Err(StoreError::Full { free, reserve });
        }
        Ok(())
    }
}

/// Reads all series and seals. Returns by series the last group whose samples are in chunks.
fn read_series(tables: &Tables, head: &mut Head) -> Result<Vec<u64>, StoreError> {
    tables.series(|id, payload| {
        let labels = payload
            .ok()
            .and_then(|bytes| Labels::from_bytes(bytes).ok());
        if let Some(before) = id.checked_sub(1) {
            head.add_lost_series(before);
        }
        match labels {
            Some(labels) if head.index.len() == id => _ = head.add_series(labels),
            _ => head.add_lost_series(id),
        }
    })?;
    head.written_series = head.index.len();
    let mut through = vec![0; head.series.len()];
    tables.seals(|id, payload| {
        let seal = payload.ok().and_then(Seal::decode);
        let at = usize::try_from(id).expect("32 bits fit");
        if let Some(seal) = seal
            && let Some(through) = through.get_mut(at)
        {
            *through = seal.through_group;
            let series = head.of_mut(id);
            series.first_ms = seal.first_ms;
            series.last_ms = seal.sealed_to_ms;
            series.sealed_to_ms = seal.sealed_to_ms;
            head.newest_ms = head.newest_ms.max(seal.sealed_to_ms);
        }
    })?;
    Ok(through)
}

/// Takes chunks that a death left without their seals for sealed: the log repeats their samples as late ones, which
/// are merged with them. Sealed as new they would overlap them.
fn adopt_chunks(tables: &Tables, head: &mut Head) -> Result<(), StoreError> {
    for id in 0..head.index.len() {
        let sealed_to_ms = head.of(id).sealed_to_ms;
        for number in tables.partitions(Kind::Raw).into_iter().rev() {
            let last_ms = (number + 1) * Kind::Raw.partition_ms() - 1;
            if last_ms < sealed_to_ms {
                break;
            }
            let Some((start_ms, frame)) = tables.before(Kind::Raw, id, last_ms)? else {
                continue;
            };
            let mut samples = Vec::new();
            // A damaged chunk is found by a check; no seal spoke of it.
            let _ = read_chunk(
                id,
                start_ms,
                frame.as_ref(),
                i64::MIN,
                i64::MAX,
                &mut samples,
            );
            if let Some(last) = samples.last() {
                let series = head.of_mut(id);
                series.sealed_to_ms = series.sealed_to_ms.max(last.at_ms);
                series.last_ms = series.last_ms.max(last.at_ms);
                head.newest_ms = head.newest_ms.max(last.at_ms);
            }
            break;
        }
    }
    Ok(())
}

fn replay(head: &mut Head, through: &[u64], series_max: u32, number: u64, group: Group) {
    for (id, labels) in group.series {
        // A gap is a group that was damaged.
        if let Some(before) = id.checked_sub(1).filter(|&before| before < series_max) {
            head.add_lost_series(before);
        }
        if id == head.index.len() {
            head.add_series(labels);
        }
    }
    let rows = group.ids.iter().zip(group.times).zip(group.values);
    // Buckets of what was dropped have all its samples.
    let kept_from_ms = head.borders.dropped_to(Kind::Raw);
    let is_kept =
        |((id, at_ms), _): &((&u32, i64), f64)| **id < series_max && *at_ms >= kept_from_ms;
    for ((&id, at_ms), value) in rows.filter(is_kept) {
        head.add_lost_series(id);
        let at = usize::try_from(id).expect("32 bits fit");
        if through.get(at).is_none_or(|&through| through < number) {
            head.replay(id, number, Sample { at_ms, value });
        }
    }
}

fn read_borders(tables: &Tables) -> Result<Borders, StoreError> {
    let mut borders = Borders::new();
    for kind in Kind::ALL {
        let name = format!("dropped.{}", kind.name());
        if let Some(to_ms) = tables.mark(&name)? {
            borders.set_dropped_to(kind, to_ms);
        }
    }
    borders.ten_seconds_to = tables.mark("derived.10s")?.unwrap_or(i64::MIN);
    borders.hours_to = tables.mark("derived.1h")?.unwrap_or(i64::MIN);
    Ok(borders)
}

impl Store for Disk {
    fn intern(&self, labels: &Labels) -> Result<SeriesId, StoreError> {
        if let Some(id) = self.read().index.id(labels) {
            return Ok(SeriesId(id));
        }
        let mut head = self.write();
        if let Some(id) = head.index.id(labels) {
            return Ok(SeriesId(id));
        }
        let limit = self.config.series_max;
        if head.index.len() >= limit {
            return Err(StoreError::TooManySeries { limit });
        }
        let id = head.add_series(labels.clone());
        head.group.series.push((id, labels.clone()));
        Ok(SeriesId(id))
    }

    fn append(&self, batch: &[(SeriesId, Sample)]) -> Result<Appended, StoreError> {
        let mut head = self.write();
        let reserve = self.config.reserve_bytes;
        match head.stuck {
            Some(Stuck::Full) => return Err(StoreError::Full { free: 0, reserve }),
            Some(Stuck::Failed) => return Err(StoreError::Uncommitted),
            None => {}
        }
        let batch_bytes = size_of_val(batch) as u64;
        let (found, limit) = (head.bytes() + batch_bytes, self.config.head_bytes_max);
        let waiting = head.group.ids.len() + batch.len();
        if found > limit || waiting > self.config.uncommitted_max {
            return Err(StoreError::Busy { found, limit });
        }
        Ok(head.append(&self.config, batch))
    }

    fn commit(&self) -> Result<(), StoreError> {
        if let Err(error) = self.check_space() {
            self.write().stuck = Some(Stuck::Full);
            return Err(error);
        }
        self.commit_group()
    }

    fn maintain(&self, now_ms: i64) -> Result<(), StoreError> {
        self.keep_up(now_ms)
    }

    fn stats(&self) -> Stats {
        let (log_bytes, stuck) = {
            let log = self.lock_log();
            (log.bytes(), log.stuck_samples())
        };
        let head = self.read();
        let flushing = head.flushing.as_ref().map_or(0, |flushing| flushing.bytes);
        Stats {
            series: u64::from(head.index.len()),
            head_samples: head.samples,
            head_bytes: head.bytes(),
            uncommitted_samples: (head.group.ids.len() + stuck) as u64,
            unflushed_bytes: head.pending.bytes + flushing,
            chunks_sealed: self.chunks_sealed.load(Relaxed),
            samples_sealed: self.samples_sealed.load(Relaxed),
            log_bytes,
            table_bytes: self.tables.bytes(),
            log_bytes_damaged: self.log_bytes_damaged,
            appended: head.appended,
        }
    }
}
