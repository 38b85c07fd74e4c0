//! A delivered TF, as consumers and disks of the harness record it for the invariants.

use sheaf_node::event::PartEvent;
use sheaf_protocol::{RunId, TfId};

/// A delivered TF, with the content of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) run: RunId,
    pub(crate) tf: TfId,
    pub(crate) is_redelivered: bool,
    pub(crate) parts: Vec<PartEvent>,
    pub(crate) missing: Vec<u16>,
}
