//! Files of one directory of the operating system.

use sheaf_verdict_log::storage::Disk;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A directory of the operating system.
#[derive(Clone, Debug)]
pub struct OsDisk {
    folder: Arc<Path>,
    /// Files that stay open while they are written: the kernel reports an error of its own write-back to processes that
    /// had the file open then, and may have forgotten it for later ones.
    open: Arc<Mutex<BTreeMap<String, Arc<File>>>>,
    _lock: Option<Arc<Lock>>,
}

/// Lock, released when this is dropped, also for the copies that processes have which were forked meanwhile.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If that fails, the lock ends with the last copy of the open file.
        let _ = self.0.unlock();
    }
}

/// Upper bound of files that are open for writing; the log writes to two, and a third is being replaced.
const OPEN_MAX: usize = 4;

impl OsDisk {
    /// Name of the file whose lock keeps other processes off.
    pub const LOCK: &'static str = "lock";

    /// Takes a directory for this process alone; creates it if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] if another process has it.
    pub fn lock(folder: &Path) -> io::Result<Self> {
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
            // The name of the directory itself has to last as well.
            if let Some(above) = folder.parent() {
                let above = if above.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    above
                };
                File::open(above)?.sync_all()?;
            }
        }
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let lock = options.open(folder.join(Self::LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::from(ErrorKind::WouldBlock),
            TryLockError::Error(error) => error,
        })?;
        Ok(Self {
            _lock: Some(Arc::new(Lock(lock))),
            ..Self::look(folder)
        })
    }

    /// Opens a directory for reading only; another process may be writing there.
    #[must_use]
    pub fn look(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            open: Arc::default(),
            _lock: None,
        }
    }

    fn writer(&self, name: &str) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(Arc::clone(file));
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = Arc::new(options.open(self.folder.join(name))?);
        if open.len() == OPEN_MAX {
            // The lowest name is the oldest segment, which is whole and synced.
            open.pop_first();
        }
        open.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn close(&self, name: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(name);
    }
}

impl Disk for OsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn read_at(&self, name: &str, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.folder.join(name))?;
        let left = file.metadata()?.len().saturating_sub(offset);
        let mut bytes = vec![0; bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writer(name)?.write_all_at(bytes, offset)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.writer(name)?.sync_data()
    }

    fn truncate(&self, name: &str, bytes: u64) -> io::Result<()> {
        self.writer(name)?.set_len(bytes)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.close(from);
        self.close(to);
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.close(name);
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
