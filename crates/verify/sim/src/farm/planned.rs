//! Steps that a farm has planned.

use crate::options::Fault;
use sheaf_protocol::NodeId;

/// Planned action.
#[derive(Clone, Debug)]
pub(super) enum PlannedStep {
    Inject(Fault),
    Thaw(usize, u64),
    Heal(NodeId, NodeId),
    Start(usize),
    StartAs(usize, u64),
    EndTwin(usize),
    Quicken(usize),
    SinkUp(usize),
    DiskWorks(usize),
    RegistryBack,
    RegistryHeals(usize),
    StormEnds,
    Calm,
    Settled,
    Stop,
}
