//! Programs of BPF: found as a file, loaded, and read back from the kernel.

use super::image::{CONFIG_BYTES, Key, SERVERS_BYTES, SLOTS_BYTES, Sections, Table};
use super::shared::{COUNTERS, NOTES, Names, Shared, chain, kernel};
use crate::error::PlaneError;
use crate::plane::BpfMode;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, Xdp, loaded_programs};
use aya::{EbpfError, EbpfLoader, Pod};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Name of the file.
const FILE: &str = "sheaf-direct.bpf.o";
/// Folder of an installed file.
const FOLDER: &str = "/usr/lib/sheaf";
/// Programs in the file, and their names in the kernel.
const TC: &str = "sheaf_tc";
const XDP: &str = "sheaf_xdp";
/// Last lines of the verifier that an error quotes.
const LINES_QUOTED: usize = 4;

/// Pins: place of the server, and whether first packets wait, as two halves.
type Pins<T> = HashMap<T, Key, [u16; 2]>;

/// Returns the path of the file: the one asked for, or the first that is there.
///
/// # Errors
///
/// [`PlaneError::NoProgram`] with the places that were looked at.
pub fn find(asked: Option<&Path>) -> Result<PathBuf, PlaneError> {
    let mut places: Vec<PathBuf> = asked.map(Path::to_owned).into_iter().collect();
    if places.is_empty() {
        let own = std::env::current_exe().unwrap_or_default();
        if let Some(folder) = own.parent() {
            places.push(folder.join(FILE));
            // Beside the folders of profiles of cargo.
            places.extend(folder.parent().map(|up| up.join("bpf").join(FILE)));
        }
        places.push(Path::new(FOLDER).join(FILE));
    }
    let found = places.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| {
        let places = places.iter().map(|path| path.display().to_string());
        PlaneError::NoProgram {
            places: places.collect::<Vec<_>>().join(", "),
        }
    })
}

/// Program in the kernel.
pub(super) struct Loaded {
    pub(super) fd: ProgramFd,
    /// Number in the kernel.
    pub(super) id: u32,
    /// Maps that it has taken over.
    pub(super) shared: Shared,
}

/// Loader of a file.
pub(super) struct Loader {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Loader of the next program: each reads the types of the kernel, 5 MB of which this program needs none.
    next: Option<JoinHandle<EbpfLoader<'static>>>,
}

impl Loader {
    pub(super) fn open(path: PathBuf) -> Result<Self, PlaneError> {
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self {
                path,
                bytes,
                next: None,
            }),
            Err(error) => Err(PlaneError::File { path, error }),
        }
    }

    /// Loads the program of a table, with pins, and with the maps of the service that are named.
    pub(super) fn load(
        &mut self,
        mode: BpfMode,
        sections: &Sections,
        pins: &[(Key, [u16; 2])],
        names: &Names,
        service: &str,
    ) -> Result<Loaded, PlaneError> {
        let Sections {
            config,
            servers,
            slots,
        } = sections;
        let loader = self.next.take().and_then(|thread| thread.join().ok());
        let mut loader: EbpfLoader<'_> = loader.unwrap_or_default();
        let loaded = loader
            .btf(None)
            .override_global("CONFIG", config, true)
            .override_global("SERVER", &servers[..], true)
            .override_global("SLOT", &slots[..], true)
            .map_max_entries("pin", u32::try_from(pins.len()).unwrap_or(u32::MAX).max(1))
            .map_pin_path(NOTES, names.path(NOTES, service))
            .map_pin_path(COUNTERS, names.path(COUNTERS, service))
            .load(&self.bytes);
        // Without a thread, the next one is made when it is needed.
        let thread = std::thread::Builder::new().name("serve-bpf".to_owned());
        self.next = thread.spawn(EbpfLoader::new).ok();
        let mut ebpf = loaded.map_err(|error| self.refused(&error))?;
        let mut fill = || {
            let mut map: Pins<_> = HashMap::try_from(named(ebpf.map_mut("pin"))?)?;
            for (key, pin) in pins {
                map.insert(key, pin, 0)?;
            }
            Shared::of(|name| ebpf.take_map(name))
        };
        let shared = fill().map_err(kernel("maps of the BPF program"))?;
        let mut load = || -> Result<_, ProgramError> {
            let (fd, info) = match mode {
                BpfMode::Tc => {
                    let program = ebpf.program_mut(TC).ok_or(ProgramError::NotLoaded)?;
                    let program: &mut SchedClassifier = program.try_into()?;
                    program.load()?;
                    (program.fd()?.try_clone(), program.info()?)
                }
                BpfMode::Xdp | BpfMode::XdpGeneric => {
                    let program = ebpf.program_mut(XDP).ok_or(ProgramError::NotLoaded)?;
                    let program: &mut Xdp = program.try_into()?;
                    program.load()?;
                    (program.fd()?.try_clone(), program.info()?)
                }
            };
            let fd = fd.map_err(ProgramError::IOError)?;
            Ok((fd, info.id()))
        };
        match load() {
            Ok((fd, id)) => Ok(Loaded { fd, id, shared }),
            Err(error) => Err(self.refused(&EbpfError::ProgramError(error))),
        }
    }

    fn refused(&self, error: &EbpfError) -> PlaneError {
        let text = match error {
            EbpfError::ProgramError(ProgramError::LoadError {
                io_error,
                verifier_log,
            }) => {
                let log = verifier_log.to_string();
                let mut last: Vec<&str> = log.trim().lines().rev().take(LINES_QUOTED).collect();
                last.reverse();
                format!("{io_error}; the verifier: {}", last.join("; "))
            }
            error => chain(error),
        };
        PlaneError::Program {
            path: self.path.clone(),
            text,
        }
    }
}

fn named(map: Option<&mut Map>) -> Result<&mut Map, MapError> {
    map.ok_or(MapError::KeyNotFound)
}

/// Program in the kernel, with what it does.
pub(super) struct Running {
    pub(super) fd: ProgramFd,
    pub(super) table: Table,
    pub(super) pins: Vec<(Key, u16)>,
    pub(super) shared: Shared,
}

/// Reads the program with this number; `None` if it is none of Sheaf's, or one of another version.
pub(super) fn read(id: u32) -> Result<Option<Running>, PlaneError> {
    // Programs that end while they are listed are none of those that are looked for.
    let mut all = loaded_programs().filter_map(Result::ok);
    let Some(info) = all.find(|info| info.id() == id) else {
        return Ok(None);
    };
    if ![TC, XDP].contains(&info.name_as_str().unwrap_or_default()) {
        return Ok(None);
    }
    let refused = |error: ProgramError| PlaneError::Kernel {
        what: "a BPF program that runs",
        error: io::Error::other(chain(&error)),
    };
    let fd = info.fd().map_err(refused)?;
    let ids = info.map_ids().map_err(refused)?.unwrap_or_default();
    let read = || {
        let mut maps = std::collections::BTreeMap::new();
        for id in ids {
            let data = MapData::from_id(id)?;
            let name = data.info()?.name_as_str().unwrap_or_default().to_owned();
            maps.insert(name, Map::from_map_data(data)?);
        }
        let map = |name: &str| maps.get(name).ok_or(MapError::KeyNotFound);
        let table = Table::decode(
            &bytes::<CONFIG_BYTES>(map(".rodata.config")?)?,
            &bytes::<SERVERS_BYTES>(map(".rodata.server")?)?,
            &bytes::<SLOTS_BYTES>(map(".rodata.slot")?)?,
        );
        let Some(table) = table else { return Ok(None) };
        let mut pins = Vec::new();
        if let Some(map) = maps.get("pin").filter(|_| table.has_pins) {
            let map: Pins<_> = HashMap::try_from(map)?;
            for pin in &map {
                let (key, [place, _]) = pin?;
                pins.push((key, place));
            }
        }
        let shared = Shared::of(|name| maps.remove(name))?;
        Ok(Some((table, pins, shared)))
    };
    match read() {
        Ok(found) => Ok(found.map(|(table, pins, shared)| Running {
            fd,
            table,
            pins,
            shared,
        })),
        // Maps with other sizes or names are those of another version.
        Err(
            MapError::KeyNotFound
            | MapError::InvalidKeySize { .. }
            | MapError::InvalidValueSize { .. }
            | MapError::InvalidMapType { .. },
        ) => Ok(None),
        Err(error) => Err(kernel("maps of a BPF program that runs")(error)),
    }
}

/// Reads a section of a program.
fn bytes<const N: usize>(map: &Map) -> Result<Vec<u8>, MapError>
where
    [u8; N]: Pod,
{
    let map: Array<_, [u8; N]> = Array::try_from(map)?;
    map.get(&0, 0).map(|bytes| bytes.to_vec())
}
