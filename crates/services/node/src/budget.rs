//! How much memory a node may take.

use crate::config::FarmConfig;
use sheaf_protocol::{NodeId, Role};

/// Heap that may stand in for a full arena, in bytes.
pub(crate) const HEAP_BYTES_MAX: u64 = 64 << 20;
/// Memory of a node beside payloads: its code, its stacks, its accounting, the buffers and the heads of frames that its
/// streams hold. Measured: 12 to 17 MiB in farms of eight nodes.
const PROGRAM_BYTES: u64 = 32 << 20;

/// Memory budget of a node, in bytes, part by part. The node logs it at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Payloads: STFs that are held or built.
    pub(crate) arena: u64,
    /// Payloads on the heap while the arena is full.
    pub(crate) heap: u64,
    /// Memory of the source: the pool that a generator takes payloads from, or messages of ZeroMQ. Recorded files are
    /// read as they are needed or mapped, and not counted.
    pub(crate) source: u64,
    /// All else.
    pub(crate) program: u64,
}

impl Budget {
    /// That of `node`, whose arena has `arena` bytes.
    pub(crate) fn of(config: &FarmConfig, node: NodeId, arena: u64) -> Self {
        let source = match node.role {
            Role::Flp => config
                .flp
                .source
                .table()
                .bytes_beside(config.flp.stf_bytes_max),
            Role::Icn | Role::Epn | Role::Operator => 0,
        };
        Self {
            arena,
            heap: HEAP_BYTES_MAX,
            source,
            program: PROGRAM_BYTES,
        }
    }

    /// The sum.
    pub(crate) fn total(&self) -> u64 {
        let parts = [self.arena, self.heap, self.source, self.program];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use sheaf_protocol::{EpnId, FlpId};
    use sheaf_stf_builder::GeneratorConfig;

    #[test]
    fn a_budget_is_the_sum_of_its_parts_and_only_an_flp_has_a_source() {
        let mut config = FarmConfig::default();
        config.flp.source = SourceConfig::Generator(GeneratorConfig {
            pool_bytes: 5 << 20,
            ..GeneratorConfig::default()
        });
        let total = |node| Budget::of(&config, node, 3 << 20).total() >> 20;
        assert_eq!(total(FlpId(0).into()), 3 + 64 + 5 + 32);
        assert_eq!(total(EpnId(0).into()), 3 + 64 + 32);
        assert_eq!(Budget::of(&config, NodeId::ICN, u64::MAX).total(), u64::MAX);
    }
}
