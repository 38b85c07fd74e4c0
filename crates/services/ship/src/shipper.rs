//! The program: takes files from catalogues, lets threads copy them, and notes what is done.

use crate::mover::{Checksum, Destination, MoveError, Stored};
use crate::pace::Pace;
use crate::plan::{Backoff, Candidate, DeleteRule, Filling};
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_stream_files::{
    CatalogueError, FileLock, ShipState, ShipTotal, Shipment, Shipments, free_bytes, lock_file,
    side_car,
};
use sheaf_write::Sums;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tracing::{info, warn};

/// Name of the file whose lock keeps other shippers off a folder.
const LOCK: &str = ".sheaf-ship.lock";
/// Time between two looks for files that were closed.
const LOOK: Duration = Duration::from_millis(500);
/// Files that are looked at for one round of deleting.
const DELETED_MAX: u32 = 1000;
/// Time between two looks at how fast a disk fills.
const FILLING_EVERY: Duration = Duration::from_secs(60);
/// Time until a disk is full below which that is said.
const FULL_SOON: Duration = Duration::from_secs(3600);

/// Settings of a shipper.
#[derive(Clone, Copy, Debug)]
pub struct ShipConfig {
    /// Copies at once.
    pub parallel: u32,
    /// Bandwidth of all copies together, in bytes a second; `None`: as fast as it goes.
    pub bytes_per_s: Option<u64>,
    /// Pauses after failed copies.
    pub backoff: Backoff,
    /// When files that all destinations have go from the disk; `None`: never.
    pub delete: Option<DeleteRule>,
    /// Whether the shipper ends when nothing waits any more; else it looks for further files until it is stopped.
    pub is_once: bool,
    /// Seed of the pauses.
    pub seed: u64,
}

/// Why a shipper cannot begin.
#[derive(Debug, Error)]
pub enum ShipError {
    /// The catalogue cannot be used.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Another shipper has the folder.
    #[error("another program ships the files of {}", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be written.
    #[error("cannot use the directory {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The operating system gives no thread.
    #[error("cannot start a thread that copies: {0}")]
    Thread(io::Error),
}

/// How far a shipper is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files and bytes by state, of each destination.
    pub totals: Vec<(String, Vec<ShipTotal>)>,
    /// Bytes that were copied by this program.
    pub copied_bytes: u64,
    /// Failed attempts of this program.
    pub failed_attempts: u64,
    /// Files that this program has deleted.
    pub deleted_files: u64,
}

impl Progress {
    /// Adds the files of one folder to those on their way to `destination`.
    pub fn add(&mut self, destination: &str, totals: &[ShipTotal]) {
        let known = self
            .totals
            .iter()
            .position(|(address, _)| address == destination);
        let at = known.unwrap_or_else(|| {
            self.totals.push((destination.to_owned(), Vec::new()));
            self.totals.len() - 1
        });
        let sums = &mut self.totals[at].1;
        for total in totals {
            match sums.iter_mut().find(|sum| sum.state == total.state) {
                Some(sum) => {
                    sum.files += total.files;
                    sum.bytes += total.bytes;
                }
                None => sums.push(*total),
            }
        }
        sums.sort_by_key(|sum| sum.state);
    }

    /// Counts files in one of `states`, over all destinations.
    #[must_use]
    pub fn files(&self, states: &[ShipState]) -> u64 {
        self.in_states(states).map(|total| total.files).sum()
    }

    /// Counts the bytes of files in one of `states`, over all destinations.
    #[must_use]
    pub fn bytes(&self, states: &[ShipState]) -> u64 {
        self.in_states(states).map(|total| total.bytes).sum()
    }

    fn in_states(&self, states: &[ShipState]) -> impl Iterator<Item = &ShipTotal> {
        let totals = self.totals.iter().flat_map(|(_, totals)| totals);
        totals.filter(|total| states.contains(&total.state))
    }
}

/// Folder of one writer.
struct Place {
    folder: PathBuf,
    shipments: Arc<Mutex<Shipments>>,
    /// Version of the catalogue whose closed files are all known.
    seen: Option<i64>,
    filling: Filling,
    _lock: FileLock,
}

impl Place {
    fn shipments(&self) -> MutexGuard<'_, Shipments> {
        lock(&self.shipments)
    }
}

fn lock(shipments: &Mutex<Shipments>) -> MutexGuard<'_, Shipments> {
    shipments.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file on its way.
struct Task {
    place: usize,
    destination: usize,
    path: PathBuf,
    shipment: Shipment,
    shipments: Arc<Mutex<Shipments>>,
}

/// How an attempt ended.
enum Ending {
    Verified,
    /// The file on this disk is not what was written.
    Damaged(String),
    /// Another file of that name is at the destination, and no copy of ours was begun.
    Occupied(String),
    Failed(String),
    Stopped,
}

/// Ships the files of some folders to some destinations.
pub struct Shipper {
    places: Vec<Place>,
    destinations: Arc<Vec<Destination>>,
    config: ShipConfig,
    pace: Arc<Pace>,
    rng: Xoshiro256PlusPlus,
    failed_attempts: u64,
    deleted_files: u64,
    filling_at: Option<Instant>,
}

impl std::fmt::Debug for Shipper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shipper")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Returns the time of the wall clock, in ns since 1970.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

impl Shipper {
    /// Opens the catalogues of `folders`, and takes up what a former life has left.
    ///
    /// # Errors
    ///
    /// [`ShipError`], before anything is copied.
    pub fn open(
        folders: &[PathBuf],
        destinations: Vec<Destination>,
        config: ShipConfig,
    ) -> Result<Self, ShipError> {
        let mut places = Vec::new();
        for folder in folders {
            let place = open_place(folder)?;
            for destination in &destinations {
                place.shipments().requeue(&destination.address)?;
            }
            places.push(place);
        }
        let mut shipper = Self {
            places,
            destinations: Arc::new(destinations),
            config,
            pace: Arc::new(Pace::new(config.bytes_per_s)),
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            failed_attempts: 0,
            deleted_files: 0,
            filling_at: None,
        };
        for at in 0..shipper.places.len() {
            let left = shipper.places[at].shipments().deletable()?;
            for shipment in left {
                shipper.delete(at, &shipment)?;
            }
        }
        Ok(shipper)
    }

    /// Ships until `stop` says so, or until nothing waits if that is asked for. `tell` is called twice a second.
    ///
    /// # Errors
    ///
    /// [`ShipError`] if there is no thread, or the catalogue cannot be used any more.
    pub fn run(
        &mut self,
        stop: &dyn Fn() -> bool,
        mut tell: impl FnMut(&Progress),
    ) -> Result<Progress, ShipError> {
        // Never full: no more files are on their way than there are threads.
        let parallel = self.config.parallel.max(1) as usize;
        let (tasks, orders) = sync_channel::<Task>(parallel);
        let (sender, endings) = sync_channel(parallel);
        let orders = Arc::new(Mutex::new(orders));
        let mut threads = Vec::new();
        for number in 0..parallel {
            let (orders, sender) = (Arc::clone(&orders), sender.clone());
            let (destinations, pace) = (Arc::clone(&self.destinations), Arc::clone(&self.pace));
            let thread = std::thread::Builder::new()
                .name(format!("ship-{number}"))
                .spawn(move || copy_all(&orders, &sender, &destinations, &pace))
                .map_err(ShipError::Thread)?;
            threads.push(thread);
        }
        let ended = self.coordinate(stop, &tasks, &endings, &mut tell);
        drop(tasks);
        self.pace.end();
        for thread in threads {
            // A panic there has been reported by its own thread.
            drop(thread.join());
        }
        while let Ok((task, ending)) = endings.try_recv() {
            self.note(&task, ending)?;
        }
        ended?;
        self.progress().map_err(ShipError::from)
    }

    fn coordinate(
        &mut self,
        stop: &dyn Fn() -> bool,
        tasks: &SyncSender<Task>,
        endings: &Receiver<(Task, Ending)>,
        tell: &mut impl FnMut(&Progress),
    ) -> Result<(), ShipError> {
        let mut away = 0;
        let (mut progress, mut is_noted) = (self.progress()?, false);
        loop {
            let mut is_news = self.enqueue()?;
            while away < self.config.parallel.max(1) as usize
                && let Some(task) = self.next_task()?
            {
                // The threads live as long as the sender does.
                let _ = tasks.send(task);
                away += 1;
                is_news = true;
            }
            is_news |= self.delete_some()?;
            self.look_at_disks();
            if is_news || is_noted {
                progress = self.progress()?;
            }
            progress.copied_bytes = self.pace.copied();
            tell(&progress);
            let waiting = progress.files(&[ShipState::Queued, ShipState::Copying]);
            if stop() || (self.config.is_once && waiting == 0 && away == 0) {
                return Ok(());
            }
            is_noted = false;
            let due = Instant::now() + LOOK;
            while let Ok((task, ending)) =
                endings.recv_timeout(due.saturating_duration_since(Instant::now()))
            {
                away -= 1;
                is_noted = true;
                self.note(&task, ending)?;
                if let Some(task) = self.next_task()? {
                    let _ = tasks.send(task);
                    away += 1;
                }
            }
        }
    }

    /// Takes up files that were closed since the last call. Returns whether there were some.
    fn enqueue(&mut self) -> Result<bool, CatalogueError> {
        let mut taken_up = 0;
        for place in &mut self.places {
            let version = place.shipments().version()?;
            if place.seen == Some(version) {
                continue;
            }
            for destination in self.destinations.iter() {
                let (address, now_ns) = (&destination.address, wall_ns());
                taken_up += place.shipments().enqueue(address, now_ns)?;
            }
            place.seen = Some(version);
        }
        Ok(taken_up > 0)
    }

    /// Takes the file that is due longest, over all folders and destinations.
    fn next_task(&self) -> Result<Option<Task>, CatalogueError> {
        let now_ns = wall_ns();
        let mut first: Option<(i64, usize, usize)> = None;
        for (at, place) in self.places.iter().enumerate() {
            for (to, destination) in self.destinations.iter().enumerate() {
                let next = place.shipments().next_due_ns(&destination.address)?;
                let is_first = |next_ns| first.is_none_or(|(first_ns, ..)| next_ns < first_ns);
                if let Some(next_ns) =
                    next.filter(|next_ns| *next_ns <= now_ns && is_first(*next_ns))
                {
                    first = Some((next_ns, at, to));
                }
            }
        }
        let Some((_, at, destination)) = first else {
            return Ok(None);
        };
        let (place, address) = (&self.places[at], &self.destinations[destination].address);
        let taken = place.shipments().take(address, now_ns)?;
        Ok(taken.map(|shipment| Task {
            place: at,
            destination,
            path: place.folder.join(&shipment.row.file),
            shipment,
            shipments: Arc::clone(&place.shipments),
        }))
    }

    fn note(&mut self, task: &Task, ending: Ending) -> Result<(), CatalogueError> {
        let destination = &self.destinations[task.destination].address;
        let shipments = self.places[task.place].shipments();
        let (id, file) = (task.shipment.id, task.shipment.row.file.as_str());
        let now_ns = wall_ns();
        match ending {
            Ending::Verified => {
                info!(file, %destination, bytes = task.shipment.row.sums.bytes, "A file is shipped and verified");
                shipments.set(id, destination, ShipState::Verified, now_ns, None)
            }
            Ending::Damaged(error) => {
                warn!(file, %error, "A file is not what was written; it is not shipped and not deleted");
                shipments.set(id, destination, ShipState::Damaged, now_ns, Some(&error))
            }
            Ending::Stopped => shipments.set(id, destination, ShipState::Queued, now_ns, None),
            Ending::Occupied(error) => {
                self.failed_attempts += 1;
                warn!(file, %destination, %error, "A file is not shipped: the destination has another one of that name");
                let next_ns = now_ns.saturating_add(nanos(self.config.backoff.last));
                shipments.retry(id, destination, (now_ns, next_ns), &error)
            }
            Ending::Failed(error) => {
                self.failed_attempts += 1;
                let attempts = task.shipment.attempts + 1;
                let pause = self.config.backoff.pause(attempts, &mut self.rng);
                warn!(file, %destination, attempts, again_s = pause.as_secs_f64(), %error, "A file could not be shipped");
                let next_ns = now_ns.saturating_add(nanos(pause));
                shipments.retry(id, destination, (now_ns, next_ns), &error)
            }
        }
    }

    /// Deletes files that all destinations have, by the rule. Returns whether there were some.
    fn delete_some(&mut self) -> Result<bool, ShipError> {
        let Some(rule) = self.config.delete else {
            return Ok(false);
        };
        let before = self.deleted_files;
        let addresses = self.destinations.iter().map(|one| one.address.clone());
        let addresses: Vec<String> = addresses.collect();
        for at in 0..self.places.len() {
            let place = &self.places[at];
            let Ok(free) = free_bytes(&place.folder) else {
                continue;
            };
            if free >= rule.free_below {
                continue;
            }
            let shipped = place.shipments().shipped(&addresses, DELETED_MAX)?;
            let candidates: Vec<Candidate> = shipped
                .iter()
                .map(|shipment| Candidate {
                    id: shipment.id,
                    bytes: shipment.row.sums.bytes,
                    closed_ns: shipment.row.closed_ns.unwrap_or(i64::MAX),
                })
                .collect();
            let chosen = rule.choose(&candidates, free, wall_ns());
            for shipment in shipped.iter().filter(|one| chosen.contains(&one.id)) {
                let (id, state) = (shipment.id, ShipState::Deletable);
                self.places[at].shipments().set_all(id, state, wall_ns())?;
                self.delete(at, shipment)?;
            }
        }
        Ok(self.deleted_files > before)
    }

    fn delete(&mut self, at: usize, shipment: &Shipment) -> Result<(), ShipError> {
        let place = &self.places[at];
        let failed = |source| ShipError::Folder {
            folder: place.folder.clone(),
            source,
        };
        for name in [shipment.row.file.clone(), side_car(&shipment.row.file)] {
            match std::fs::remove_file(place.folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                Ok(()) | Err(_) => {}
            }
        }
        let synced = File::open(&place.folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed)?;
        let (id, state) = (shipment.id, ShipState::Deleted);
        place.shipments().set_all(id, state, wall_ns())?;
        info!(file = %shipment.row.file, "A file that is shipped is deleted here");
        self.deleted_files += 1;
        Ok(())
    }

    /// Says it if a disk will be full soon.
    fn look_at_disks(&mut self) {
        let is_due = self
            .filling_at
            .is_none_or(|at| at.elapsed() >= FILLING_EVERY);
        if !is_due {
            return;
        }
        self.filling_at = Some(Instant::now());
        for place in &mut self.places {
            let Ok(free) = free_bytes(&place.folder) else {
                continue;
            };
            let left = place.filling.look(wall_ns(), free);
            if let Some(left) = left.filter(|left| *left < FULL_SOON) {
                warn!(
                    directory = %place.folder.display(),
                    free_mib = free >> 20,
                    full_in_min = left.as_secs() / 60,
                    "The disk will be full soon: it is written faster than it is shipped and deleted"
                );
            }
        }
    }

    fn progress(&self) -> Result<Progress, CatalogueError> {
        let mut progress = Progress {
            totals: Vec::new(),
            copied_bytes: self.pace.copied(),
            failed_attempts: self.failed_attempts,
            deleted_files: self.deleted_files,
        };
        for destination in self.destinations.iter() {
            for place in &self.places {
                let totals = place.shipments().totals(&destination.address)?;
                progress.add(&destination.address, &totals);
            }
        }
        Ok(progress)
    }
}

fn nanos(pause: Duration) -> i64 {
    i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)
}

fn open_place(folder: &Path) -> Result<Place, ShipError> {
    let shipments = Shipments::open(folder)?;
    let failed = |source| ShipError::Folder {
        folder: folder.to_owned(),
        source,
    };
    let lock = lock_file(&folder.join(LOCK)).map_err(|error| match error {
        TryLockError::WouldBlock => ShipError::Locked {
            folder: folder.to_owned(),
        },
        TryLockError::Error(source) => failed(source),
    })?;
    Ok(Place {
        folder: folder.to_owned(),
        shipments: Arc::new(Mutex::new(shipments)),
        seen: None,
        filling: Filling::default(),
        _lock: lock,
    })
}

/// Work of a thread: copies what it is given until there is nothing more.
fn copy_all(
    orders: &Mutex<Receiver<Task>>,
    endings: &SyncSender<(Task, Ending)>,
    destinations: &[Destination],
    pace: &Pace,
) {
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = order else {
            return;
        };
        let ending = match ship(&destinations[task.destination], &task, pace) {
            Ok(ending) => ending,
            Err(_) if pace.is_ending() => Ending::Stopped,
            Err(MoveError::Source(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ending::Damaged(error.to_string())
            }
            Err(error) => Ending::Failed(error.to_string()),
        };
        if endings.send((task, ending)).is_err() {
            return;
        }
    }
}

/// Copies a file, and compares what the destination has then with the catalogue.
fn ship(destination: &Destination, task: &Task, pace: &Pace) -> Result<Ending, MoveError> {
    let expected = &task.shipment.row.sums;
    let (mover, name) = (&destination.mover, task.shipment.row.file.as_str());
    match mover.stored(name, expected, pace)? {
        // Copied by a life that died before it could note so.
        Some(stored) if stored.is(expected) => return Ok(Ending::Verified),
        Some(stored) if task.shipment.copies == 0 => {
            return Ok(Ending::Occupied(differs("there is", expected, stored)));
        }
        // What a copy of ours has left.
        Some(_) | None => {}
    }
    let begun = lock(&task.shipments).begin_copy(task.shipment.id, &destination.address);
    begun.map_err(MoveError::at_destination)?;
    let read = mover.copy(&task.path, name, expected, pace)?;
    if let Err(error) = expected.compare(&read) {
        let mut text = format!("read a file whose {error}");
        // A damaged file shall not be taken for a good one.
        if let Err(error) = mover.remove(name, pace) {
            text += &format!("; the destination has it still: {error}");
        }
        return Ok(Ending::Damaged(text));
    }
    // Known now, also where the catalogue does not have it.
    let crc32c = expected.crc32c.or(read.crc32c);
    let expected = &Sums {
        crc32c,
        ..*expected
    };
    match mover.stored(name, expected, pace)? {
        Some(stored) if stored.is(expected) => Ok(Ending::Verified),
        Some(stored) => Ok(Ending::Failed(differs(
            "the destination has",
            expected,
            stored,
        ))),
        None => Ok(Ending::Failed(
            "the destination does not have it after the copy".to_owned(),
        )),
    }
}

fn differs(what: &str, expected: &Sums, found: Stored) -> String {
    let (name, sum, wanted) = match found.checksum {
        Checksum::Adler32(sum) => ("Adler-32", sum, Some(expected.adler32)),
        Checksum::Crc32c(sum) => ("CRC-32C", sum, expected.crc32c),
    };
    let wanted = wanted.map_or_else(|| "none".to_owned(), |sum| format!("{sum:08x}"));
    format!(
        "{what} {} bytes with {name} {sum:08x}, expected {} with {wanted}",
        found.bytes, expected.bytes
    )
}
