//! Note of a service: names that the kernel does not know.

use crate::error::PlaneError;
use serde::{Deserialize, Serialize};
use sheaf_serve::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Services of the kernel that belong to one of Sheaf, and the names of their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    /// Virtual addresses with their port.
    pub(super) services: BTreeSet<SocketAddr>,
    /// Names of servers by address and port.
    pub(super) servers: BTreeMap<SocketAddr, String>,
}

impl Note {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let services = wanted.addresses.iter();
        let places = wanted.servers.values().flat_map(|place| {
            let own = place.addresses.iter();
            own.map(|own| (SocketAddr::new(*own, place.port), place.name.clone()))
        });
        Self {
            services: services
                .map(|own| SocketAddr::new(*own, wanted.port))
                .collect(),
            servers: places.collect(),
        }
    }

    /// Reads the note; `None` if there is none.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, PlaneError> {
        let failed = |error| PlaneError::File {
            path: path.to_owned(),
            error,
        };
        match fs::read(path) {
            Ok(bytes) => {
                let note = serde_json::from_slice(&bytes);
                note.map(Some).map_err(|error| failed(error.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the note, as a whole or not.
    pub(super) fn save(&self, path: &Path) -> Result<(), PlaneError> {
        let part = path.with_extension("part");
        let write = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&part, serde_json::to_vec(self)?)?;
            fs::rename(&part, path)
        };
        write().map_err(|error: io::Error| PlaneError::File {
            path: path.to_owned(),
            error,
        })
    }
}
