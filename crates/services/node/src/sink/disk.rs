//! The file operations that storing needs, so that a test can fail or stop each of them.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// A file being written.
pub trait DiskFile: Write {
    /// Comes back when every byte survives a power loss.
    ///
    /// # Errors
    ///
    /// What the operating system says. Nothing is known about the bytes then; they are written again.
    fn sync(&mut self) -> io::Result<()>;
}

/// Operations of a [`TfStore`](super::TfStore) on a disk, one step at a time.
///
/// # Contract
///
/// `rename` replaces what has the name, and does so at once for every reader. Names survive a power loss after
/// `sync_folder`, bytes after [`DiskFile::sync`].
pub trait Disk: Send {
    /// An empty file at `path`, whatever was there.
    ///
    /// # Errors
    ///
    /// What the operating system says, as for all that follow.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name.
    ///
    /// # Errors
    ///
    /// As above.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. It is no error if there is none.
    ///
    /// # Errors
    ///
    /// As above.
    fn remove(&mut self, path: &Path) -> io::Result<()>;

    /// Makes a folder. It is no error if it is there.
    ///
    /// # Errors
    ///
    /// As above.
    fn make_folder(&mut self, path: &Path) -> io::Result<()>;

    /// Comes back when the names in the folder survive a power loss.
    ///
    /// # Errors
    ///
    /// As above.
    fn sync_folder(&mut self, path: &Path) -> io::Result<()>;

    /// The names in a folder, of files or of folders.
    ///
    /// # Errors
    ///
    /// As above.
    fn names(&mut self, folder: &Path, of_folders: bool) -> io::Result<Vec<String>>;

    /// All bytes of a file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As above.
    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Disk for RealDisk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(path)?))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        unless(ErrorKind::NotFound, std::fs::remove_file(path))
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        unless(ErrorKind::AlreadyExists, std::fs::create_dir(path))
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn names(&mut self, folder: &Path, of_folders: bool) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() == of_folders
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn unless(kind: ErrorKind, done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == kind => Ok(()),
        done => done,
    }
}
