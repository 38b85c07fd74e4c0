//! Memory that a node may take, part by part. A node logs it at its start and takes its arena from it; `sheaf config
//! check` prints the same sums.

use crate::config::FarmConfig;
use crate::security;
use crate::source::Place;
use sheaf_protocol::{FlpId, NodeId, Role};
use std::fmt;

/// Heap that may stand in for a full arena of an EPN or a writer, in bytes. No other role gets payloads from its peers.
const HEAP_BYTES_MAX: u64 = 64 << 20;
/// Code, stacks, buffers and metrics. Measured: 12 to 17 MiB in farms of eight nodes.
const PROGRAM_BYTES: u64 = 32 << 20;
/// Arena of a process that moves no STFs.
const CONTROL_ARENA_BYTES: u64 = 1 << 20;
/// Arenas are whole huge pages.
const PAGE_BYTES: u64 = 2 << 20;
/// Records of one STF in the hold of an FLP: its place in tables, its announce, the head of its frame.
const STF_BYTES: u64 = 512;
/// Records of one TF beside those of its STFs.
const TF_BYTES: u64 = 1 << 10;
/// Records of one STF of a TF in an EPN, with the head of its frame, and in the ICN.
const PART_BYTES: u64 = 256;
const ANNOUNCE_BYTES: u64 = 64;
/// One connection, with heads that come in pieces and frames that wait; and its TLS session.
const CONNECTION_BYTES: u64 = 16 << 10;
const SESSION_BYTES: u64 = 64 << 10;
/// Event loop of data: its buffers, and heads of frames that the node has not taken.
const LOOP_BYTES: u64 = 2 << 20;
/// Bytes that were read of one FLP while an EPN has no room for them.
const BACKLOG_BYTES: u64 = 256 << 10;
/// Lane between two nodes of one machine.
const LANE_BYTES: u64 = 1280 << 10;
/// Connections that wait for their acceptance.
const GREETING_MAX: u64 = 512;
/// Nodes of the same machine that are reckoned with where others are elsewhere.
const LOCAL_MAX: u64 = 8;
/// One record of the verdict log between two checkpoints, which are written while the next one begins.
const RECORD_BYTES: u64 = 256;
/// Least of the verdict log: its buffers.
const LEDGER_BYTES: u64 = 4 << 20;

/// Memory budget of a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Payloads of STFs: those that are held, built, lent, or on their way in. Taken at the start.
    pub arena: u64,
    /// Payloads on the heap while the arena of an EPN is full.
    pub heap: u64,
    /// Memory of the source: recorded files and the pool of a generator, taken at the start; messages of ZeroMQ that
    /// have not come whole.
    pub source: u64,
    /// Heads of frames, and the records of STFs and TFs in hand.
    pub heads: u64,
    /// Connections of other nodes: their buffers, TLS sessions, and lanes of shared memory.
    pub connections: u64,
    /// Records of the verdict log since its last checkpoint; of an ICN.
    pub ledger: u64,
    /// Code, stacks, metrics and logs.
    pub program: u64,
    /// Of arena and source, the bytes that are taken at the start.
    pub at_start: u64,
}

impl Budget {
    /// Returns that of `node` in the farm of `config`.
    #[must_use]
    pub fn of(config: &FarmConfig, node: NodeId) -> Self {
        let (flps, epns) = (u64::from(config.run.flps), u64::from(config.run.epns));
        let icns = config.icn.all_addresses().len() as u64;
        let queued =
            u64::from(config.epn.build.tfs_in_building_max) + u64::from(config.epn.queue_tfs);
        let base = Self {
            arena: CONTROL_ARENA_BYTES,
            program: PROGRAM_BYTES,
            ..Self::default()
        };
        let (budget, peers, backlogs, lanes) = match node.role {
            Role::Flp => {
                let place = Place {
                    flp: FlpId(node.index),
                    flps: config.run.flps,
                    stf_bytes_max: config.flp.stf_bytes_max,
                };
                let budget = Self {
                    arena: config.flp.arena_bytes(&config.transport),
                    source: config.flp.source.table().bytes_beside(&place),
                    heads: u64::from(config.flp.hold_stfs_max) * STF_BYTES,
                    ..base
                };
                (budget, epns + icns, 0, epns)
            }
            Role::Epn => {
                let budget = Self {
                    arena: config.epn.arena_bytes(),
                    heap: HEAP_BYTES_MAX,
                    heads: product(queued, TF_BYTES + product(flps, PART_BYTES)),
                    ..base
                };
                (budget, flps + icns, flps, flps)
            }
            Role::Icn => {
                let tfs = u64::from(config.icn.scheduler.queue_tfs_max) + product(epns, queued);
                let records = config.icn.ledger.checkpoint_records;
                let budget = Self {
                    heads: product(tfs, TF_BYTES + product(flps, ANNOUNCE_BYTES)),
                    ledger: LEDGER_BYTES.saturating_add(product(2 * RECORD_BYTES, records)),
                    ..base
                };
                (budget, flps + epns + icns, 0, 0)
            }
            Role::Writer => {
                let tfs = u64::from(config.writer.queue_tfs);
                let budget = Self {
                    arena: config.writer.arena_bytes(),
                    heap: HEAP_BYTES_MAX,
                    heads: product(tfs, TF_BYTES + product(flps, PART_BYTES)),
                    ..base
                };
                (budget, epns, epns, 0)
            }
            Role::Operator => (base, icns, 0, 0),
        };
        let session = match config.security.has_certificates() {
            true => SESSION_BYTES,
            false => 0,
        };
        let lanes = match config.transport.shared_memory {
            true if security::is_local(config, node, None) => lanes,
            true => lanes.min(LOCAL_MAX),
            false => 0,
        };
        let of_connections = [
            product(peers + GREETING_MAX, CONNECTION_BYTES + session),
            product(backlogs, BACKLOG_BYTES),
            product(lanes, LANE_BYTES),
            product(config.node.loops(node.role) as u64, LOOP_BYTES),
        ];
        let arena = product(budget.arena.div_ceil(PAGE_BYTES), PAGE_BYTES);
        // What comes from outside takes memory when it comes.
        let is_read_first = node.role == Role::Flp && !config.flp.source.is_fed();
        let read_first = if is_read_first { budget.source } else { 0 };
        Self {
            arena,
            connections: sum(of_connections),
            at_start: sum([arena, read_first]),
            ..budget
        }
    }

    /// Returns the parts, each by its name.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("arena_bytes", self.arena),
            ("heap_bytes", self.heap),
            ("source_bytes", self.source),
            ("heads_bytes", self.heads),
            ("connections_bytes", self.connections),
            ("ledger_bytes", self.ledger),
            ("program_bytes", self.program),
        ]
    }

    /// Returns the sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        sum(self.parts().map(|(_, bytes)| bytes))
    }
}

/// The sum and the parts that are not zero, as a log has fields.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, at_start) = (self.total(), self.at_start);
        write!(f, "budget_bytes={total} start_bytes={at_start}")?;
        for (name, bytes) in self.parts().into_iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, " {name}={bytes}")?;
        }
        Ok(())
    }
}

fn product(one: u64, other: u64) -> u64 {
    one.saturating_mul(other)
}

fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use sheaf_protocol::EpnId;
    use sheaf_stf_builder::GeneratorConfig;

    #[test]
    fn a_budget_is_the_sum_of_its_parts_and_each_role_has_its_own() {
        let mut config = FarmConfig::default();
        config.flp.source = SourceConfig::Generator(GeneratorConfig {
            pool_bytes: 5 << 20,
            ..GeneratorConfig::default()
        });
        let of = |node| Budget::of(&config, node);
        let (flp, epn, icn) = (of(FlpId(0).into()), of(EpnId(0).into()), of(NodeId::ICN));
        assert_eq!((flp.source, flp.heap, flp.ledger), (5 << 20, 0, 0));
        assert_eq!(flp.at_start, flp.arena + flp.source);
        assert_eq!((epn.source, epn.heap, epn.ledger), (0, 64 << 20, 0));
        assert_eq!((icn.source, icn.heap, icn.arena), (0, 0, 2 << 20));
        assert!(icn.ledger > LEDGER_BYTES);
        for budget in [flp, epn, icn] {
            let parts = [
                budget.arena,
                budget.heap,
                budget.source,
                budget.heads,
                budget.connections,
                budget.ledger,
                budget.program,
            ];
            assert_eq!(budget.total(), parts.iter().sum::<u64>());
            assert!(budget.heads > 0 && budget.connections > 0);
        }
        let text = epn.to_string();
        let expected = format!(
            "budget_bytes={0} start_bytes={1} arena_bytes={1}",
            epn.total(),
            epn.arena
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(!text.contains("source_bytes"), "{text}");
    }

    #[test]
    fn more_than_there_are_bytes_is_no_overflow() {
        let mut config = FarmConfig::default();
        config.flp.hold_bytes = u64::MAX;
        config.icn.ledger.checkpoint_records = u64::MAX;
        assert_eq!(Budget::of(&config, FlpId(0).into()).total(), u64::MAX);
        assert_eq!(Budget::of(&config, NodeId::ICN).total(), u64::MAX);
    }
}
