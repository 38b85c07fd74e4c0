//! State of alarms on disk: written beside, synchronised and renamed, so that there is always a whole one. A thread of
//! its own writes while alarms go on: a disk that is slow holds up none.

use sheaf_alarms::Alarms;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Way to the thread that writes; it has room for one state, the one that it writes.
pub(super) struct Saver {
    states: SyncSender<Vec<u8>>,
    progress: Arc<Progress>,
}

/// How far the thread is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    is_writing: AtomicBool,
    took_ns: AtomicU64,
}

impl Saver {
    pub(super) fn new(states: SyncSender<Vec<u8>>, progress: Arc<Progress>) -> Self {
        Self { states, progress }
    }

    /// Returns whether the thread writes an earlier state; a further one waits until it is done.
    pub(super) fn is_busy(&self) -> bool {
        self.progress.is_writing.load(Ordering::Acquire)
    }

    /// Time of the latest write.
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.progress.took_ns.load(Ordering::Relaxed))
    }

    /// Hands over a state to write.
    pub(super) fn save(&self, bytes: Vec<u8>) {
        self.progress.is_writing.store(true, Ordering::Release);
        // There is room while the thread is not busy; it lives as long as this sender.
        let _ = self.states.try_send(bytes);
    }

    /// Hands over the last state, and waits for room.
    pub(super) fn save_last(self, bytes: Vec<u8>) {
        let _ = self.states.send(bytes);
    }
}

/// Writes states until there will be no more.
pub(super) fn run(saved: &Saved, states: &Receiver<Vec<u8>>, progress: &Progress) {
    while let Ok(bytes) = states.recv() {
        let begin = Instant::now();
        saved.write(&bytes);
        let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        progress.took_ns.store(took, Ordering::Relaxed);
        progress.is_writing.store(false, Ordering::Release);
    }
}

/// The file of state, if the collector keeps anything.
pub(super) struct Saved {
    path: Option<PathBuf>,
}

impl Saved {
    /// State in the folder of the store; empty: none is kept.
    pub(super) fn new(data: &Path) -> Self {
        let path = (!data.as_os_str().is_empty()).then(|| data.join("alarms").join("state"));
        Self { path }
    }

    /// Gives `alarms` what an earlier process saved.
    pub(super) fn restore(&self, now_ms: i64, alarms: &mut Alarms) {
        let Some(path) = &self.path else {
            return;
        };
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                error!(path = %path.display(), %error, "The state of alarms cannot be read");
                return;
            }
        };
        match alarms.restore(now_ms, &bytes) {
            Ok(restored) => info!(
                alerts = restored.alerts,
                without_rule = restored.alerts_without_rule,
                pause_ms = restored.pause_ms,
                "Alarms go on where they were"
            ),
            Err(error) => {
                let kept = path.with_extension("damaged");
                let moved = std::fs::rename(path, &kept);
                error!(%error, kept = %kept.display(), is_kept = moved.is_ok(), "Alarms begin without their state");
            }
        }
    }

    /// Writes `bytes`; what is there stays until they are on the disk.
    fn write(&self, bytes: &[u8]) {
        if let Some(path) = &self.path
            && let Err(error) = write(path, bytes)
        {
            warn!(path = %path.display(), %error, "The state of alarms is not saved");
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}
