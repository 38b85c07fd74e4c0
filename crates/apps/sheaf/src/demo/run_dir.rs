//! The directory of one demo: farm file, data, logs, event logs.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Goes away with the demo, unless somebody wants to keep it.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    is_kept: bool,
}

impl RunDir {
    /// `wanted`, which must be new or empty, and is kept; or a new one for temporary files.
    ///
    /// # Errors
    ///
    /// What stands in the way.
    pub(crate) fn make(wanted: Option<&Path>) -> anyhow::Result<Self> {
        let path = match wanted {
            Some(path) => path.to_owned(),
            None => return Self::make_temporary(),
        };
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut entries =
            fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if entries.next().is_some() {
            bail!(
                "{} is not empty, expected a new or an empty directory",
                path.display()
            );
        }
        Ok(Self {
            path: path.canonicalize()?,
            is_kept: true,
        })
    }

    fn make_temporary() -> anyhow::Result<Self> {
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
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", path.display()));
                }
            }
        }
        bail!("cannot make a new directory in {}", base.display())
    }

    /// The path of the file `name` in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where it is, if it stays.
    pub(crate) fn kept(&self) -> Option<&Path> {
        self.is_kept.then_some(self.path.as_path())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing more can be written there, as far as the kernel tells.
    pub(crate) fn is_full(&self) -> bool {
        rustix::fs::statvfs(&self.path).is_ok_and(|disk| disk.f_blocks > 0 && disk.f_bavail == 0)
    }

    /// It stays: something went wrong that its files may explain.
    pub(crate) fn keep(&mut self) {
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
