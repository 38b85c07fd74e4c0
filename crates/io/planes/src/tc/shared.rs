//! Maps that go from program to program: notes of connections, and counters.

use super::image::{self, Counter, Key, Table};
use crate::error::PlaneError;
use crate::plane::Counted;
use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;

/// Names of the maps.
pub(super) const NOTES: &str = "notes";
pub(super) const COUNTERS: &str = "counters";

/// Places of servers by connection.
type Notes = HashMap<MapData, Key, u32>;
/// Counters by place of the server.
type Counters = PerCpuArray<MapData, Counter>;

/// File system of BPF for names of maps, which ends with this process: a loader takes maps that are there by their
/// names alone. No mount shows it.
pub(super) struct Names(OwnedFd);

impl Names {
    pub(super) fn make() -> Result<Self, PlaneError> {
        let make = || {
            let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            let attributes = MountAttrFlags::empty();
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let made = make().map_err(|error| PlaneError::Kernel {
            what: "a file system of BPF (CAP_SYS_ADMIN)",
            error: error.into(),
        });
        made.map(Self)
    }

    /// Returns the path of a map of a service.
    pub(super) fn path(&self, map: &str, service: &str) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{map}-{service}",
            self.0.as_raw_fd()
        ))
    }

    /// Removes the names of a service, so that its next program begins with maps of its own.
    pub(super) fn forget(&self, service: &str) -> Result<(), PlaneError> {
        for map in [NOTES, COUNTERS] {
            let path = self.path(map, service);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(PlaneError::File { path, error });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Maps of a service.
pub(super) struct Shared {
    notes: Notes,
    counters: Counters,
}

impl Shared {
    /// Takes the maps of a program; `map` gives one by its name.
    pub(super) fn of(mut map: impl FnMut(&str) -> Option<Map>) -> Result<Self, MapError> {
        let mut named = |name| map(name).ok_or(MapError::KeyNotFound);
        Ok(Self {
            notes: Notes::try_from(named(NOTES)?)?,
            counters: Counters::try_from(named(COUNTERS)?)?,
        })
    }

    /// Removes all that is of the server that had this place.
    pub(super) fn clear(&mut self, place: u16) -> Result<(), PlaneError> {
        let mut clear = || {
            let cpus = aya::util::nr_cpus().map_err(|(_, error)| MapError::IoError(error))?;
            let zeros = PerCpuValues::try_from(vec![[0; 16]; cpus]).map_err(MapError::IoError)?;
            self.counters.set(place.into(), zeros, 0)
        };
        clear().map_err(kernel("the counter of a server"))?;
        self.forget(|_, at| at != place)
    }

    /// Returns connections with the place of the server where they began.
    pub(super) fn notes(&self) -> Result<Vec<(Flow, u16)>, PlaneError> {
        let mut all = Vec::new();
        for note in &self.notes {
            let (key, place) = note.map_err(kernel("notes of connections"))?;
            all.push((image::flow(&key), u16::try_from(place).unwrap_or(u16::MAX)));
        }
        Ok(all)
    }

    /// Removes notes that `is_needed` does not hold for.
    pub(super) fn forget(
        &mut self,
        is_needed: impl Fn(Flow, u16) -> bool,
    ) -> Result<(), PlaneError> {
        for (flow, place) in self.notes()? {
            if is_needed(flow, place) {
                continue;
            }
            match self.notes.remove(&image::key(flow)) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(kernel("the end of a note of a connection")(error)),
            }
        }
        Ok(())
    }

    /// Returns what has gone to the servers of a table.
    pub(super) fn counted(&self, table: &Table) -> Result<BTreeMap<String, Counted>, PlaneError> {
        let mut counted = BTreeMap::new();
        for (place, server) in &table.servers {
            let values = self.counters.get(&u32::from(*place), 0);
            let values = values.map_err(kernel("counters of a program of BPF"))?;
            counted.insert(server.name.clone(), sum(&values));
        }
        Ok(counted)
    }
}

fn sum(values: &PerCpuValues<Counter>) -> Counted {
    let mut sum = Counted::default();
    for counter in values.iter() {
        let (packets, bytes) = counter.split_at(8);
        let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("8 of 16 bytes"));
        sum.packets += word(packets);
        sum.bytes += word(bytes);
    }
    sum
}

pub(super) fn kernel(what: &'static str) -> impl Fn(MapError) -> PlaneError {
    move |error| PlaneError::Kernel {
        what,
        error: io::Error::other(chain(&error)),
    }
}

/// Returns an error with its sources, on a line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
