//! A folder, as of another disk or a file system of many machines.

use super::{DestinationError, Made, MoveError, Mover, Stored, sum};
use crate::pace::{Pace, open_paced};
use rustix::fs::{Advice, fadvise};
use sheaf_write::Sums;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make(address: &str) -> Made {
        let path = PathBuf::from(address);
        let probe = path.join(format!(".sheaf-ship-{}", std::process::id()));
        let tried = File::create(&probe).and_then(|_| std::fs::remove_file(&probe));
        tried.map_err(|error| DestinationError::Folder {
            path: path.clone(),
            error: error.to_string(),
        })?;
        Ok(Box::new(Self(path)))
    }
}

impl Mover for Folder {
    fn copy(
        &self,
        source: &Path,
        name: &str,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Sums, MoveError> {
        let mut from = open_paced(source, pace).map_err(MoveError::Source)?;
        let part = self.0.join(format!(".{name}.part"));
        let mut to = File::create(&part).map_err(MoveError::at_destination)?;
        // Not `io::copy`: it does not say which side fails.
        let mut piece = vec![0; PIECE];
        loop {
            let count = from.read(&mut piece).map_err(MoveError::Source)?;
            if count == 0 {
                break;
            }
            let written = to.write_all(&piece[..count]);
            written.map_err(MoveError::at_destination)?;
        }
        let read = from.sums();
        let named = if expected.compare(&read).is_ok() {
            to.sync_all().and_then(|()| {
                // What is read back shall come from the disk. A file system that cannot do that is read as it can.
                let _ = fadvise(&to, 0, None, Advice::DontNeed);
                std::fs::rename(&part, self.0.join(name))?;
                File::open(&self.0)?.sync_all()
            })
        } else {
            std::fs::remove_file(&part)
        };
        named.map_err(MoveError::at_destination)?;
        Ok(read)
    }

    fn remove(&self, name: &str, _: &Pace) -> Result<(), MoveError> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(MoveError::at_destination),
        }
    }

    fn stored(&self, name: &str, _: &Sums, _: &Pace) -> Result<Option<Stored>, MoveError> {
        // Read at its own speed: the limit is for what goes over the way.
        let stored = match File::open(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.and_then(sum),
        };
        let stored = stored.map_err(MoveError::at_destination)?;
        Ok(Some(stored.into()))
    }
}
