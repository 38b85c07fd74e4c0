//! Contract of planes.

use crate::error::PlaneError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sheaf_serve::{Flow, Wanted};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Way in which the machine carries services out.
pub trait Plane: Send {
    /// Makes the machine follow `wanted`. What was there of the service before is replaced as a whole, except that
    /// connections that began while their slot was on the move stay known until it has moved.
    ///
    /// # Errors
    ///
    /// Why not; the machine follows what it followed before.
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError>;

    /// Reads from the machine what it follows; `None` if it has nothing of the service.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError>;

    /// Counts what has gone to each server, by name.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError>;

    /// Lists the connections of clients that go on, with the name of their server. Only planes that say so in their
    /// [row](crate::Registration::lists_connections) know them.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    fn connections(&mut self, _service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        Ok(BTreeMap::new())
    }

    /// Whether what was carried out last is out of date on the side of the machine, for instance because a server has
    /// another network card now, and has to be applied again.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn is_out_of_date(&mut self, _service: &str) -> Result<bool, PlaneError> {
        Ok(false)
    }

    /// Tries what the plane needs of the machine, and changes nothing. Returns what was found, if there is something to
    /// try.
    ///
    /// # Errors
    ///
    /// What is missing.
    fn try_out(&mut self) -> Result<Option<String>, PlaneError> {
        Ok(None)
    }

    /// Removes all that the plane made of the service.
    ///
    /// # Errors
    ///
    /// Why something is left.
    fn undo(&mut self, service: &str) -> Result<(), PlaneError>;
}

/// Options of planes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneConfig {
    /// Network interface at which packets of clients come in.
    pub interface: String,
    /// Longest time in seconds that connections may stay known whose slot is on the move.
    pub fresh_s: u64,
    /// Folder of what planes leave running or noted, of this director alone.
    pub folder: PathBuf,
    /// Options of the plane `tc`.
    pub bpf: BpfConfig,
}

/// Place where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BpfMode {
    /// Ingress of tc: any interface, also virtual ones; packets that the card has joined stay joined.
    #[default]
    Tc,
    /// XDP in the driver of the card, before the kernel makes anything of a packet. One service for each interface.
    Xdp,
    /// XDP behind the driver: any interface, slower than `tc`.
    XdpGeneric,
}

/// Options of the plane `tc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BpfConfig {
    /// Place where the program runs: `tc`, `xdp` or `xdp-generic`.
    pub mode: BpfMode,
    /// File of the program; `sheaf-direct.bpf.o` beside the command or in /usr/lib/sheaf by default.
    pub program: Option<PathBuf>,
}

/// State that a machine follows, by names of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// Server of each slot; none where a plane has a hash of its own.
    pub slots: Vec<String>,
    /// Slots on the move.
    pub moving: BTreeMap<u32, String>,
    /// Connections that stay where they are, and those that began while their slot was on the move.
    pub flows: BTreeMap<Flow, String>,
    /// Shares of new connections, where a plane has a hash of its own.
    pub weights: BTreeMap<String, u32>,
}

/// Packets and bytes that have gone to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Counted {
    /// Packets from clients, or connections where a plane sees no packets.
    pub packets: u64,
    /// Bytes from clients.
    pub bytes: u64,
}
