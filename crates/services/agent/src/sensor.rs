//! Sensors: one row of [`SENSORS`] a kind, one file each beside this one.

mod cgroup;
mod clock;
mod cpu;
mod disk;
mod files;
mod filesystem;
mod memory;
mod network;
mod pressure;
mod process;
mod stack;
mod temperature;
mod throttle;

use crate::config::AgentConfig;
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::ParseError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Readings between two looks at which devices there are.
const RESCAN_EVERY: u32 = 30;

/// Kind of sensor.
#[derive(Debug)]
pub struct Kind {
    /// Name in farm files.
    pub name: &'static str,
    /// Description, a sentence.
    pub help: &'static str,
    /// Metrics that it sets.
    pub metrics: &'static [Metric],
    pub(crate) open: fn(&Place, &AgentConfig) -> Opened,
}

/// A sensor, or the reason why a machine does not have it.
pub(crate) type Opened = Result<Box<dyn Sensor>, Missing>;

/// All kinds of sensors.
pub const SENSORS: &[Kind] = &[
    cpu::KIND,
    memory::KIND,
    pressure::KIND,
    disk::KIND,
    filesystem::KIND,
    network::KIND,
    stack::KIND,
    files::KIND,
    temperature::KIND,
    clock::KIND,
    throttle::KIND,
    cgroup::KIND,
    process::KIND,
];

/// Sensor that is open.
pub(crate) trait Sensor: fmt::Debug + Send {
    /// Reads the sensor into `sheet`.
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError>;
}

/// Reason why a machine does not have a sensor.
#[derive(Debug, Error)]
pub(crate) enum Missing {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Nothing(&'static str),
}

/// Reason why a sensor cannot be read.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Folder with `proc` and `sys`.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.to_owned())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn open(&self, path: &str) -> Result<KeptFile, Missing> {
        let path = self.path(path);
        KeptFile::open(&path).map_err(|source| Missing::Open { path, source })
    }
}

/// Reads `file` and hands its text to `take`.
fn with<T>(
    file: &mut KeptFile,
    take: impl FnOnce(&str) -> Result<T, ParseError>,
) -> Result<T, ReadError> {
    let path = file.path().to_owned();
    match file.read() {
        Ok(text) => Ok(take(&text)?),
        Err(source) => Err(ReadError::Read { path, source }),
    }
}

/// Counts readings, and says when devices are looked for again.
#[derive(Debug, Default)]
struct Rescan(u32);

impl Rescan {
    fn is_due(&mut self) -> bool {
        self.0 += 1;
        self.0.is_multiple_of(RESCAN_EVERY)
    }
}

#[cfg(test)]
mod tests;
