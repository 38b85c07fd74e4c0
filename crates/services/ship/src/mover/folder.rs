//! A folder, as of another disk or a file system of many machines.

use super::{DestinationError, Made, MoveError, Mover, Stored};
use crate::pace::{Pace, PacedFile};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, ErrorKind};
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

fn at_destination(error: &io::Error) -> MoveError {
    MoveError::Destination(error.to_string())
}

/// Copies through a buffer of our own: a copy within the kernel would pass by the sum.
pub(super) fn copy_all(from: &mut impl io::Read, to: &mut impl io::Write) -> Result<(), MoveError> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from
            .read(&mut piece)
            .map_err(|error| MoveError::Source(error.to_string()))?;
        if count == 0 {
            return Ok(());
        }
        let written = to.write_all(&piece[..count]);
        written.map_err(|error| at_destination(&error))?;
    }
}

impl Mover for Folder {
    fn copy(&self, source: &Path, name: &str, pace: &Pace) -> Result<Stored, MoveError> {
        let opened = PacedFile::open(source, pace);
        let mut from = opened.map_err(|error| MoveError::Source(error.to_string()))?;
        let part = self.0.join(format!(".{name}.part"));
        let mut to = File::create(&part).map_err(|error| at_destination(&error))?;
        copy_all(&mut from, &mut to)?;
        let synced = to
            .sync_all()
            .and_then(|()| {
                // What is read back shall come from the disk. A file system that cannot do that is read as it can.
                let _ = fadvise(&to, 0, None, Advice::DontNeed);
                std::fs::rename(&part, self.0.join(name))
            })
            .and_then(|()| File::open(&self.0)?.sync_all());
        synced.map_err(|error| at_destination(&error))?;
        let sums = from.sums();
        Ok(Stored {
            bytes: sums.bytes,
            adler32: sums.adler32,
        })
    }

    fn remove(&self, name: &str, _: &Pace) -> Result<(), MoveError> {
        std::fs::remove_file(self.0.join(name)).map_err(|error| at_destination(&error))
    }

    fn stored(&self, name: &str, pace: &Pace) -> Result<Option<Stored>, MoveError> {
        // Read at its own speed: the limit is for what goes over the way.
        let free = Pace::default();
        let mut file = match PacedFile::open(&self.0.join(name), &free) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| at_destination(&error))?,
        };
        if pace.is_ending() {
            return Err(MoveError::Destination("the shipper ends".to_owned()));
        }
        copy_all(&mut file, &mut io::sink())
            .map_err(|error| MoveError::Destination(error.to_string()))?;
        let sums = file.sums();
        Ok(Some(Stored {
            bytes: sums.bytes,
            adler32: sums.adler32,
        }))
    }
}
