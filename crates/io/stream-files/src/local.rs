//! Folder on a disk of this machine.

use crate::buffer::{BLOCK, Buffer};
use crate::folder::{Folder, PART, StoredFile};
use crate::label::{Label, Labels};
use rustix::fs::{Advice, FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with};
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Way in which bytes get to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Straight from memory (`O_DIRECT`), without the page cache.
    Direct,
    /// As [`Direct`](Self::Direct), several writes of a thread at once, by io_uring.
    Uring,
    /// By the page cache.
    Buffered,
}

impl IoMode {
    /// Name in logs, reports and farm files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Uring => "uring",
            Self::Buffered => "buffered",
        }
    }

    /// Returns the way with this [name](Self::name).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [Self::Direct, Self::Uring, Self::Buffered].into_iter();
        all.find(|mode| mode.name() == name)
    }
}

/// Tries what `folder` can do with a file that is removed again.
///
/// io_uring is not chosen, as it is no faster than plain direct writes of several threads, see
/// `docs/results/write.md`.
///
/// # Errors
///
/// Error of the operating system if nothing can be written there at all.
pub fn probe(folder: &Path) -> io::Result<IoMode> {
    let path = folder.join(format!(".sheaf-probe-{}{PART}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.open(&path)?;
    options.custom_flags(direct_flag());
    let mut buffer = Buffer::new();
    buffer.fill(&[0; BLOCK]);
    let written = options.open(&path).and_then(|file| {
        buffer
            .pieces()
            .try_for_each(|(at, piece, _)| file.write_all_at(piece, at))
    });
    std::fs::remove_file(&path)?;
    Ok(match written {
        Ok(()) => IoMode::Direct,
        Err(_) => IoMode::Buffered,
    })
}

fn direct_flag() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

/// Returns the bytes that the disk of `folder` has free for this process.
///
/// # Errors
///
/// Error of the operating system.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Folder of the machine.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    pub(crate) path: PathBuf,
    pub(crate) labels: Labels,
}

impl Folder for LocalFolder {
    fn create(&self, name: &str, is_direct: bool) -> io::Result<Box<dyn StoredFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let plain = options.open(&path)?;
        let direct = is_direct.then(|| {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(direct_flag());
            options.open(&path)
        });
        Ok(Box::new(LocalFile {
            plain,
            // A file that has just been made and cannot be opened so is written through the cache.
            direct: direct.and_then(Result::ok),
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let mut options = OpenOptions::new();
        let plain = options.read(true).write(true).open(self.path.join(name))?;
        let direct = None;
        Ok(Box::new(LocalFile { plain, direct }))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.path.join(name).try_exists()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is no text is none of a writer.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        let cwd = rustix::fs::CWD;
        match renameat_with(cwd, &from, cwd, &to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // A file system without that flag: the name was free when the file was made, and the folder is locked.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.try_exists()? => {
                std::fs::rename(&from, &to)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn label(&self, label: &Label<'_>) -> io::Result<()> {
        label.put(&self.path, self.labels)
    }
}

/// Open descriptors of a file.
#[derive(Debug)]
struct LocalFile {
    plain: File,
    direct: Option<File>,
}

impl StoredFile for LocalFile {
    fn set_aside(&self, from: u64, bytes: u64) -> io::Result<()> {
        Ok(fallocate(
            &self.plain,
            FallocateFlags::empty(),
            from,
            bytes,
        )?)
    }

    fn write_at(&self, bytes: &[u8], at: u64, is_whole: bool) -> io::Result<()> {
        let direct = self.direct.as_ref().filter(|_| is_whole);
        direct.unwrap_or(&self.plain).write_all_at(bytes, at)
    }

    fn direct(&self) -> Option<BorrowedFd<'_>> {
        self.direct.as_ref().map(AsFd::as_fd)
    }

    fn begin_write_back(&self, range: Range<u64>) {
        // The kernel begins to write dirty pages of the range, and drops clean ones: those of the call before. It is
        // advice: what fails shows at the next sync.
        let from = range.start.saturating_sub(range.end - range.start);
        let length = NonZeroU64::new(range.end - from);
        let _ = rustix::fs::fadvise(&self.plain, from, length, Advice::DontNeed);
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.plain.read_at(bytes, at)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.plain.metadata()?.len())
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.plain.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync_data()
    }
}
