//! A file that is being uploaded: it has its name only when all of it is there.
//!
//! Without a name until then, where the file system can do that (`O_TMPFILE`), so that not even a crash leaves a part
//! behind; elsewhere as `.NAME.<random>.part`.

use crate::path::TreePath;
use crate::sums::{self, KINDS};
use crate::tree::{Tree, TreeError};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fstat, linkat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use sheaf_write::{Summing, Sums};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Most bytes of the name in a temporary name, of which dots, random digits and the end take the rest of 255.
const NAME_BYTES_MAX: usize = 200;
/// Permissions of new files, as far as the umask allows.
const MODE: Mode = Mode::from_raw_mode(0o666);

/// File that is being uploaded.
#[derive(Debug)]
pub(crate) struct Upload {
    folder: OwnedFd,
    name: String,
    file: File,
    /// Temporary name, if it has one.
    temporary: Option<String>,
    summing: Summing,
}

impl Upload {
    /// Begins the file that is to be at `path`.
    ///
    /// # Errors
    ///
    /// [`TreeError`]; [`TreeError::NotFound`] if there is no folder for it.
    pub(crate) fn begin(tree: &Tree, path: &TreePath) -> Result<Self, TreeError> {
        let (folder, name) = tree.folder_of(path)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let unnamed = openat(&folder, ".", flags | OFlags::TMPFILE, MODE);
        let (file, temporary) = match unnamed {
            Ok(file) => (file, None),
            // File systems without such files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                let temporary = temporary_name(&name);
                let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (openat(&folder, &temporary, create, MODE)?, Some(temporary))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            folder,
            name,
            file: file.into(),
            temporary,
            summing: Summing::new(KINDS),
        })
    }

    /// Returns whether the disk has room for `bytes` more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        // A file system that does not say how much is free refuses the write itself.
        rustix::fs::fstatvfs(&self.file).map_or(true, |stat| {
            stat.f_bavail.saturating_mul(stat.f_frsize) >= bytes
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// [`TreeError`], such as a full disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        self.summing.update(bytes);
        Ok(self.file.write_all(bytes)?)
    }

    /// Checksums of what was written.
    pub(crate) fn sums(&self) -> Sums {
        self.summing.sums()
    }

    /// Gives the file its name, in place of one that has it. With `is_synced` it is on the disk when this returns, with
    /// `is_new` no other may have the name.
    ///
    /// # Errors
    ///
    /// [`TreeError`]; then nothing has changed under the name. [`TreeError::Exists`] if another file has it.
    pub(crate) fn finish(mut self, is_synced: bool, is_new: bool) -> Result<Sums, TreeError> {
        let sums = self.sums();
        sums::note(&self.file, &sums);
        if is_synced {
            rustix::fs::fsync(&self.file)?;
        }
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => self.link()?,
        };
        // From here on it has a name that `drop` removes if the next step fails.
        self.temporary = Some(temporary.clone());
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, is_new);
        renameat_with(&self.folder, &temporary, &self.folder, &self.name, flags)?;
        self.temporary = None;
        if is_synced {
            rustix::fs::fsync(&self.folder)?;
        }
        Ok(sums)
    }

    /// Gives a file without a name a temporary one.
    fn link(&self) -> Result<String, TreeError> {
        let temporary = temporary_name(&self.name);
        // By its entry in /proc, as the call for a descriptor alone needs a capability (open(2), O_TMPFILE).
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        linkat(rustix::fs::CWD, path, &self.folder, &temporary, flags)?;
        Ok(temporary)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What cannot be removed is hidden from clients all the same.
            let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
        }
    }
}

/// Draws a temporary name for `name`.
fn temporary_name(name: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES_MAX);
    format!(
        ".{}.{:016x}.part",
        &name[..end],
        crate::chance::draw() as u64
    )
}

/// Copies a file within the tree, with its checksums if they are known.
///
/// # Errors
///
/// [`TreeError`]; nothing has changed at `to` then.
pub(crate) fn copy(
    tree: &Tree,
    from: &TreePath,
    to: &TreePath,
    is_synced: bool,
    is_new: bool,
) -> Result<(), TreeError> {
    let found = tree.read(from)?;
    if found.is_folder() {
        return Err(TreeError::NotAFile);
    }
    let mut upload = Upload::begin(tree, to)?;
    if !upload.has_room(found.size()) {
        return Err(TreeError::Full);
    }
    let mut reader = &found.file;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut reader, &mut buffer)? {
            0 => break,
            got => upload.write(&buffer[..got])?,
        }
    }
    let stat = fstat(&upload.file)?;
    debug_assert_eq!(stat.st_size.unsigned_abs(), upload.sums().bytes);
    crate::properties::copy(&found.file, &upload.file);
    upload.finish(is_synced, is_new).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str) -> TreePath {
        TreePath::of_target(target).expect("a path")
    }

    fn names(folder: &std::path::Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let mut upload = Upload::begin(&tree, &path("/a")).unwrap();
        upload.write(b"Wiki").unwrap();
        assert!(!folder.path().join("a").exists());
        drop(upload);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let mut upload = Upload::begin(&tree, &path("/a")).unwrap();
        upload.write(b"Wiki").unwrap();
        upload.write(b"pedia").unwrap();
        assert_eq!(upload.finish(true, true).unwrap().adler32, 0x11e6_0398);
        assert_eq!(names(folder.path()), ["a"]);
        let second = Upload::begin(&tree, &path("/a")).unwrap();
        assert_eq!(second.finish(false, true).unwrap_err(), TreeError::Exists);
        assert_eq!(
            std::fs::read(folder.path().join("a")).unwrap(),
            b"Wikipedia"
        );
        let third = Upload::begin(&tree, &path("/a")).unwrap();
        third.finish(false, false).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_named_part_is_removed_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let long = format!("/{}", "é".repeat(127));
        let mut upload = Upload::begin(&tree, &path(&long)).unwrap();
        upload.temporary = Some(upload.link().unwrap());
        assert!(names(folder.path())[0].ends_with(".part"));
        drop(upload);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let none = Upload::begin(&tree, &path("/none/a")).unwrap_err();
        assert_eq!(none, TreeError::NotFound);
    }
}
