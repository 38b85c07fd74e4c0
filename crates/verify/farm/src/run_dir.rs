//! The directory of one farm: farm file, data, logs, event logs.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Reasons why there is no directory for a farm.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The directory cannot be made.
    #[error("cannot make {}", path.display())]
    Make {
        /// Path of the directory.
        path: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the directory.
        path: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The directory holds something already: another one is needed.
    #[error("{} is not empty, expected a new or an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// All names that were tried among the temporary files are taken.
    #[error("cannot make a new directory in {}", .0.display())]
    NoName(PathBuf),
}

/// Directory of one farm. Removed when dropped, unless it is kept.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    is_kept: bool,
}

impl RunDir {
    /// Makes the directory `wanted`, which must be new or empty and is kept; else one among the temporary files.
    ///
    /// # Errors
    ///
    /// [`RunDirError`], which says what stands in the way.
    pub fn make(wanted: Option<&Path>) -> Result<Self, RunDirError> {
        let path = match wanted {
            Some(path) => path.to_owned(),
            None => return Self::make_temporary(),
        };
        let make = |source| RunDirError::Make {
            path: path.clone(),
            source,
        };
        let read = |source| RunDirError::Read {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(&path).map_err(make)?;
        if fs::read_dir(&path).map_err(read)?.next().is_some() {
            return Err(RunDirError::NotEmpty(path));
        }
        Ok(Self {
            path: path.canonicalize().map_err(read)?,
            is_kept: true,
        })
    }

    fn make_temporary() -> Result<Self, RunDirError> {
        let base = std::env::temp_dir();
        for number in 0..1000 {
            let path = base.join(format!("sheaf-demo-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        is_kept: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(RunDirError::Make { path, source }),
            }
        }
        Err(RunDirError::NoName(base))
    }

    /// Returns the path of the file `name` in the directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of a directory that is kept.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        self.is_kept.then_some(self.path.as_path())
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the disk of the directory is full, as far as the kernel tells.
    #[must_use]
    pub fn is_full(&self) -> bool {
        rustix::fs::statvfs(&self.path).is_ok_and(|disk| disk.f_blocks > 0 && disk.f_bavail == 0)
    }

    /// Keeps the directory: something went wrong that its files may explain.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "Cannot remove temporary files");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_goes_away_with_its_files() {
        let dir = RunDir::make(None).unwrap();
        let file = dir.file("a");
        fs::write(&file, "x").unwrap();
        assert_eq!(dir.kept(), None);
        drop(dir);
        assert!(!file.parent().unwrap().exists());
    }

    #[test]
    fn a_wanted_directory_stays_and_must_be_empty() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("a/b");
        let dir = RunDir::make(Some(&wanted)).unwrap();
        fs::write(dir.file("x"), "x").unwrap();
        drop(dir);
        assert!(wanted.join("x").exists());
        let error = RunDir::make(Some(&wanted)).unwrap_err().to_string();
        assert!(
            error.contains("is not empty, expected a new or an empty directory"),
            "{error}"
        );
    }
}
