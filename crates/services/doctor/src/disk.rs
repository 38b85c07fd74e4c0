//! The speed of a folder, by files that are removed again.

use rustix::fs::statvfs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Small records that are written and made durable one by one.
const RECORDS: usize = 20;
const RECORD_BYTES: usize = 4 << 10;
/// Bytes of the large file.
const LARGE_BYTES: usize = 64 << 20;
const WRITE_BYTES: usize = 1 << 20;

/// Speed and space of a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// Bytes that an ordinary user may still write.
    pub(crate) free: u64,
    /// Median and longest time until a record of 4 KiB is durable.
    pub(crate) durable: (Duration, Duration),
    /// Bytes a second of 64 MiB that were made durable; `None` if there is no room for them.
    pub(crate) bytes_per_s: Option<f64>,
}

impl Speed {
    /// Measures `folder`.
    ///
    /// # Errors
    ///
    /// What the operating system answers, if it cannot be written to.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let space = statvfs(folder)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let mut file = tempfile::tempfile_in(folder)?;
        let mut times = Vec::with_capacity(RECORDS);
        for _ in 0..RECORDS {
            let since = Instant::now();
            file.write_all(&[1; RECORD_BYTES])?;
            file.sync_data()?;
            times.push(since.elapsed());
        }
        times.sort();
        let bytes_per_s = match free > 4 * LARGE_BYTES as u64 {
            true => Some(large(folder)?),
            false => None,
        };
        Ok(Self {
            free,
            durable: (times[RECORDS / 2], times[RECORDS - 1]),
            bytes_per_s,
        })
    }
}

fn large(folder: &Path) -> io::Result<f64> {
    let mut file = tempfile::tempfile_in(folder)?;
    let block = vec![1; WRITE_BYTES];
    let since = Instant::now();
    for _ in 0..LARGE_BYTES / WRITE_BYTES {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    Ok(LARGE_BYTES as f64 / since.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_and_left_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let speed = Speed::of(folder.path()).expect("it can be written to");
        assert!(
            speed.free > 0 && speed.durable.0 <= speed.durable.1,
            "{speed:?}"
        );
        let left = std::fs::read_dir(folder.path())
            .expect("the folder")
            .count();
        assert_eq!(left, 0);
        let error = Speed::of(Path::new("/none")).expect_err("it is not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
