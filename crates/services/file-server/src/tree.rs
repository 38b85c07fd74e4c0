//! The folder that is served. Every path is resolved by the kernel below it (`openat2`), so that no `..`, no symbolic
//! link and no race of a rename leads out.

use crate::condition::{Version, whole_seconds};
use crate::path::{TreePath, is_hidden};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How often a path is resolved again that was renamed meanwhile.
const RESOLVE_TRIES: u32 = 8;

/// Reason why a path cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TreeError {
    /// Nothing has this name, or a file stands where a folder would have to.
    #[error("there is no such file")]
    NotFound,
    /// Symbolic link out of the folder, or one that begins with a slash.
    #[error("the path leads out of the folder")]
    Outside,
    /// Permissions of the file system.
    #[error("the server may not do this with the file")]
    Denied,
    /// Device, pipe or socket.
    #[error("this is neither a file nor a folder")]
    NotAFile,
    /// Exists already.
    #[error("there is such a file already")]
    Exists,
    /// Longer than the file system allows.
    #[error("the path is too long")]
    TooLong,
    /// Disk or quota.
    #[error("the disk is full")]
    Full,
    /// Descriptors or memory.
    #[error("the server has too many files open")]
    Busy,
    /// Anything else that the kernel reports.
    #[error("the file system failed: {0}")]
    Failed(Errno),
}

impl TreeError {
    /// Status code of the answer.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Outside | Self::Denied | Self::NotAFile => 403,
            Self::Exists => 409,
            Self::TooLong => 414,
            Self::Failed(_) => 500,
            Self::Busy => 503,
            Self::Full => 507,
        }
    }
}

impl From<Errno> for TreeError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound,
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied,
            Errno::NXIO | Errno::NODEV | Errno::ISDIR => Self::NotAFile,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Busy,
            other => Self::Failed(other),
        }
    }
}

impl From<io::Error> for TreeError {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Failed(Errno::IO), Self::from)
    }
}

/// Open file or folder.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: File,
    pub(crate) stat: Stat,
}

impl Found {
    /// Returns whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        is_folder(&self.stat)
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        size(&self.stat)
    }

    /// Version by which clients name it.
    pub(crate) fn version(&self) -> Version {
        version(&self.stat)
    }
}

pub(crate) fn is_folder(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()
}

pub(crate) fn size(stat: &Stat) -> u64 {
    stat.st_size.unsigned_abs()
}

/// Returns the version of a file: copies with equal size and time on several servers have equal tags.
pub(crate) fn version(stat: &Stat) -> Version {
    let (size, seconds, ns) = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    Version {
        etag: format!("\"{size:x}-{seconds:x}.{ns:x}\""),
        modified: whole_seconds(seconds),
    }
}

/// Folder that is served.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

impl Tree {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    ///
    /// The reason of the kernel: there is no such folder, or `openat2` is missing (Linux before 5.6, or forbidden in a
    /// container).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, path, flags, Mode::empty())?;
        let tree = Self {
            root,
            path: path.to_owned(),
        };
        let root = TreePath::of_target("/").expect("a slash is a path");
        tree.resolve(&root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(tree)
    }

    /// Opens a folder that is empty and has no name, so that nothing is ever in it.
    ///
    /// # Errors
    ///
    /// The reason of the kernel why there can be none.
    pub(crate) fn nothing() -> io::Result<Self> {
        let name = format!("sheaf-nothing-{:032x}", crate::chance::draw());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        let tree = Self::open(&path);
        std::fs::remove_dir(&path)?;
        tree
    }

    /// Path of the folder on this machine.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file or folder for reading.
    ///
    /// # Errors
    ///
    /// [`TreeError`] if there is none, or it may not be read.
    pub(crate) fn read(&self, path: &TreePath) -> Result<Found, TreeError> {
        if path.is_hidden() {
            return Err(TreeError::NotFound);
        }
        // Without NONBLOCK a pipe would keep this thread until someone writes into it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.resolve(path, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        if kind.is_dir() {
        } else if !kind.is_file() {
            return Err(TreeError::NotAFile);
        } else if path.is_folder {
            // `/file/` names a folder that is not there.
            return Err(TreeError::NotFound);
        }
        Ok(Found {
            file: file.into(),
            stat,
        })
    }

    /// Returns the metadata of a file or folder, which need not be readable.
    pub(crate) fn stat(&self, path: &TreePath) -> Result<Stat, TreeError> {
        if path.is_hidden() {
            return Err(TreeError::NotFound);
        }
        Ok(fstat(self.resolve(path, OFlags::PATH, Mode::empty())?)?)
    }

    /// Returns the metadata of what has this name, which may be a symbolic link.
    pub(crate) fn stat_name(&self, path: &TreePath) -> Result<Stat, TreeError> {
        if path.split().is_none() {
            return self.stat(path);
        }
        let (folder, name) = self.folder_of(path)?;
        Ok(statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens the folder that a path is in. Returns it with the last name, which is no hidden one.
    ///
    /// # Errors
    ///
    /// [`TreeError::Denied`] for the folder that is served itself, and for hidden names.
    pub(crate) fn folder_of(&self, path: &TreePath) -> Result<(OwnedFd, String), TreeError> {
        let (folder, name) = path.split().ok_or(TreeError::Denied)?;
        if path.is_hidden() {
            return Err(TreeError::Denied);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = self.resolve(&folder, flags, Mode::empty())?;
        Ok((folder, name.to_owned()))
    }

    /// Makes a folder.
    pub(crate) fn make_folder(&self, path: &TreePath) -> Result<(), TreeError> {
        let (folder, name) = self.folder_of(path)?;
        Ok(mkdirat(&folder, &name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes a file, or a symbolic link.
    pub(crate) fn remove_file(&self, path: &TreePath) -> Result<(), TreeError> {
        let (folder, name) = self.folder_of(path)?;
        Ok(unlinkat(&folder, &name, AtFlags::empty())?)
    }

    /// Removes a folder that is empty.
    pub(crate) fn remove_folder(&self, path: &TreePath) -> Result<(), TreeError> {
        let (folder, name) = self.folder_of(path)?;
        Ok(unlinkat(&folder, &name, AtFlags::REMOVEDIR)?)
    }

    /// Gives a file or folder another name, which with `is_new` no other may have.
    pub(crate) fn rename(
        &self,
        from: &TreePath,
        to: &TreePath,
        is_new: bool,
    ) -> Result<(), TreeError> {
        let (from_folder, from) = self.folder_of(from)?;
        let (to_folder, to) = self.folder_of(to)?;
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, is_new);
        Ok(renameat_with(&from_folder, &from, &to_folder, &to, flags)?)
    }

    /// Returns the bytes of the disk that are used, and all that it has.
    pub(crate) fn room(&self) -> Result<(u64, Option<u64>), TreeError> {
        let root = openat2(
            &self.root,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH,
        )?;
        let stat = rustix::fs::fstatvfs(root)?;
        let of = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let used = of(stat.f_blocks.saturating_sub(stat.f_bfree));
        Ok((used, Some(used.saturating_add(of(stat.f_bavail)))))
    }

    /// Lists a folder without its hidden names: name and metadata, of symbolic links those of what they lead to, unless
    /// `keeps_links`. Left out are links that lead nowhere or out of the folder.
    pub(crate) fn list(
        &self,
        path: &TreePath,
        keeps_links: bool,
    ) -> Result<Vec<(String, Stat)>, TreeError> {
        let folder = self.read(path)?;
        if !folder.is_folder() {
            return Err(TreeError::NotFound);
        }
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder.file)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == ".." || is_hidden(name) {
                continue;
            }
            let stat = if keeps_links {
                statat(&folder.file, name, AtFlags::SYMLINK_NOFOLLOW).map_err(TreeError::from)
            } else {
                self.stat(&path.join(name))
            };
            // What is gone meanwhile, or leads out, is not there for a client.
            if let Ok(stat) = stat {
                entries.push((name.to_owned(), stat));
            }
        }
        Ok(entries)
    }

    fn resolve(&self, path: &TreePath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            tries += 1;
            let flags = flags | OFlags::CLOEXEC;
            match openat2(&self.root, path.relative(), flags, mode, resolve) {
                // A rename on the path while it was resolved (openat2(2)).
                Err(Errno::AGAIN) if tries < RESOLVE_TRIES => {}
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn check(tree: &Tree, target: &str, expected: Result<u64, TreeError>) {
        let path = TreePath::of_target(target).expect("a path");
        let found = tree.read(&path).map(|found| found.size());
        assert_eq!(found, expected, "{target}");
    }

    #[test]
    fn nothing_outside_of_the_folder_is_opened() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let folder = outside.path().join("served");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("sub/file"), "12345").unwrap();
        std::fs::write(at(".hidden"), "x").unwrap();
        std::fs::write(at("open.part"), "x").unwrap();
        symlink("../secret", at("up")).unwrap();
        symlink(outside.path(), at("out")).unwrap();
        symlink("sub/file", at("inside")).unwrap();
        symlink("sub/../../secret", at("around")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/proc/self/root", at("magic")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::RUSR).unwrap();
        let tree = Tree::open(&folder).unwrap();
        check(&tree, "/sub/file", Ok(5));
        check(&tree, "/inside", Ok(5));
        for target in [
            "/up",
            "/out",
            "/out/secret",
            "/around",
            "/loop",
            "/magic/etc/passwd",
        ] {
            check(&tree, target, Err(TreeError::Outside));
        }
        for target in [
            "/none",
            "/.hidden",
            "/open.part",
            "/sub/file/",
            "/sub/file/x",
        ] {
            check(&tree, target, Err(TreeError::NotFound));
        }
        check(&tree, "/pipe", Err(TreeError::NotAFile));
        let root = tree.read(&TreePath::of_target("/").unwrap()).unwrap();
        assert!(root.is_folder());
    }

    #[test]
    fn versions_differ_when_size_or_time_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "1").unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let version = || {
            tree.read(&TreePath::of_target("/a").unwrap())
                .unwrap()
                .version()
        };
        let first = version();
        assert_eq!(version(), first);
        std::fs::write(&path, "12").unwrap();
        assert_ne!(version().etag, first.etag);
        assert!(Tree::open(&path).is_err(), "a file is no folder");
    }
}
