//! Farm that an experiment needs.

use sheaf_node::config::{
    Ack, FarmConfig, FileSink, LedgerBackend, MembershipBackend, SinkConfig, SourceConfig,
    StreamsDurability, StreamsSink, Threads, VerifySink, WritersSink,
};
use sheaf_protocol::{NodeId, Role};
use sheaf_scheduler::Mode;
use sheaf_stf_builder::GeneratorConfig;
use sheaf_stf_builder::flp::WhenFull;
use std::path::Path;

/// Where the nodes of a farm stand, and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// All on the loopback device.
    Loopback,
    /// Each in a network namespace of its own, joined by a bridge, and with a certificate: nothing talks in the clear.
    Namespaces,
    /// On the loopback device; STFs, and what the first FLP and the first EPN say to the ICN, pass a relay.
    Relays,
    /// On the loopback device; every node reaches every `ZooKeeper` server through a relay of its own.
    KeeperRelays,
}

/// Sink of the EPNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Compute their digests.
    Verify,
    /// Write a file a TF.
    Files,
    /// Write a file a TF and wait until it is on the disk.
    SyncedFiles,
    /// As before, and a TF counts as built only then (`epn.ack = "stored"`).
    Stored,
    /// Write a file a TF; EPN 0 has a disk of this many bytes of its own.
    SmallDisk(u64),
    /// Write files of streams, synced every 100 ms.
    Streams,
    /// As before; EPN 0 has a disk of this many bytes of its own.
    StreamsOnSmallDisk(u64),
    /// Write files of streams to two disks.
    StreamsOnTwoDisks,
    /// As before; the first disk of EPN 0 has this many bytes.
    StreamsOnSmallAndLarge(u64),
    /// Hand TFs to two writer nodes, which write files of streams.
    Writers,
}

/// Writer nodes of a farm that has some.
const WRITERS: u16 = 2;

impl Consumer {
    /// Whether TFs go to files of streams.
    pub(crate) fn has_streams(self) -> bool {
        matches!(
            self,
            Self::Streams | Self::StreamsOnSmallDisk(_) | Self::Writers
        ) || self.has_two_disks()
    }

    /// Number of writer nodes.
    pub(crate) fn writers(self) -> u16 {
        match self {
            Self::Writers => WRITERS,
            _ => 0,
        }
    }

    /// Whether these go to two disks of each EPN.
    pub(crate) fn has_two_disks(self) -> bool {
        matches!(
            self,
            Self::StreamsOnTwoDisks | Self::StreamsOnSmallAndLarge(_)
        )
    }
}

/// How some nodes see time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// As it is.
    True,
    /// The wall clock of EPN 0 and FLP 0 can be set.
    Settable,
    /// The monotonic clocks of EPN 0 and FLP 0 are this many seconds ahead.
    Ahead(u32),
}

/// Silence of a writer node in ms after which EPNs leave it.
const SILENCE_MS: u64 = 200;
/// How long ZooKeeper waits for a node that says nothing, in ms: the shortest that servers grant without being asked.
const SESSION_MS: u64 = 400;
/// The folder of certificates of a farm that is not on the loopback device.
pub(crate) const CERTIFICATES: &str = "cert";

/// A farm of paced sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of FLPs.
    pub flps: u16,
    /// Number of EPNs.
    pub epns: u16,
    /// Number of ICNs.
    pub icns: u16,
    /// Payload of an STF.
    pub stf_bytes: u64,
    /// TFs a second.
    pub rate_hz: f64,
    /// Where they stand.
    pub ground: Ground,
    /// Consumers of the TFs.
    pub consumer: Consumer,
    /// How they see time.
    pub clocks: Clocks,
    /// Where verdicts are kept.
    pub ledger: LedgerBackend,
    /// STFs that an FLP keeps; `None`: as many as it does by default.
    pub hold_stfs: Option<u32>,
    /// Threads that move STFs in each node.
    pub threads: Threads,
}

impl Shape {
    /// Two FLPs, three EPNs, one ICN on the loopback device: 200 TFs a second of 2 × 16 KiB.
    pub const SMALL: Self = Self {
        flps: 2,
        epns: 3,
        icns: 1,
        stf_bytes: 16 << 10,
        rate_hz: 200.0,
        ground: Ground::Loopback,
        consumer: Consumer::Verify,
        clocks: Clocks::True,
        ledger: LedgerBackend::Memory,
        hold_stfs: None,
        threads: Threads::Count(1),
    };

    /// The same farm with its nodes standing elsewhere.
    #[must_use]
    pub const fn on(self, ground: Ground) -> Self {
        Self { ground, ..self }
    }

    /// The same farm with another consumer.
    #[must_use]
    pub const fn to(self, consumer: Consumer) -> Self {
        Self { consumer, ..self }
    }

    /// The same farm with `icns` ICNs that keep verdicts so.
    #[must_use]
    pub const fn led_by(self, icns: u16, ledger: LedgerBackend) -> Self {
        Self {
            icns,
            ledger,
            ..self
        }
    }

    /// Bytes of a TF.
    #[must_use]
    pub fn tf_bytes(&self) -> u64 {
        u64::from(self.flps) * self.stf_bytes
    }

    /// STFs that an FLP keeps by default.
    #[must_use]
    pub fn default_hold_stfs(&self) -> u32 {
        FarmConfig::default().flp.hold_stfs_max
    }

    /// Writer nodes of the farm.
    pub(crate) fn writers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.consumer.writers()).map(|index| NodeId {
            role: Role::Writer,
            index,
        })
    }

    /// The farm file, but for addresses. Files of TFs and of the verdict log go to `folder`.
    ///
    /// The farm of a cell is a detector: it does not wait, and an incomplete TF counts as lost.
    pub(crate) fn config(&self, folder: &Path) -> FarmConfig {
        let mut config = FarmConfig::default();
        config.run.flps = self.flps.into();
        config.run.epns = self.epns.into();
        if self.ground == Ground::Namespaces {
            config.security.directory = Some(folder.join(CERTIFICATES));
        }
        config.icn.ledger.backend = self.ledger;
        if self.ledger.has_files() {
            config.icn.ledger.directory = folder.join("icn-{icn}");
        }
        if self.ledger == LedgerBackend::Zookeeper {
            config.membership.backend = MembershipBackend::Zookeeper;
            config.membership.session_ms = SESSION_MS;
        }
        let scheduler = &mut config.icn.scheduler;
        // Each EPN has TFs when a fault hits it, whatever was measured of it.
        scheduler.policy = "round-robin".to_owned();
        scheduler.mode = Mode::Paced;
        scheduler.paced_rate_hz = self.rate_hz;
        scheduler.stf_bytes_max = self.stf_bytes;
        scheduler.tf_bytes_max = self.tf_bytes();
        config.flp.stf_bytes_max = self.stf_bytes;
        config.flp.when_full = WhenFull::DropNewest;
        config.flp.source = SourceConfig::Generator(GeneratorConfig {
            bytes_mean: self.stf_bytes,
            pool_bytes: (2 * self.stf_bytes).max(1 << 20),
            ..GeneratorConfig::default()
        });
        // About a second of what one EPN gets: nodes start fast, and a full one is seen soon.
        let share = self.tf_bytes() as f64 * self.rate_hz / f64::from(self.epns);
        config.epn.build.capacity_bytes = (share as u64).max(8 * self.tf_bytes());
        config.epn.sink = match self.consumer {
            Consumer::Verify => SinkConfig::Verify(VerifySink {}),
            Consumer::Files | Consumer::SyncedFiles | Consumer::Stored | Consumer::SmallDisk(_) => {
                SinkConfig::File(FileSink {
                    directory: folder.join("epn-{epn}"),
                    fsync: matches!(self.consumer, Consumer::SyncedFiles | Consumer::Stored),
                })
            }
            Consumer::Streams
            | Consumer::StreamsOnSmallDisk(_)
            | Consumer::StreamsOnTwoDisks
            | Consumer::StreamsOnSmallAndLarge(_) => {
                let second = folder.join("second-{epn}");
                let has_second = self.consumer.has_two_disks();
                SinkConfig::Streams(StreamsSink {
                    directory: folder.join("epn-{epn}"),
                    directories: has_second.then_some(second).into_iter().collect(),
                    ..streams()
                })
            }
            Consumer::Writers => {
                config.writer.files = Some(StreamsSink {
                    directory: folder.to_owned(),
                    ..streams()
                });
                config.writer.capacity_bytes = config.epn.build.capacity_bytes;
                SinkConfig::Writers(WritersSink {
                    silence_ms: SILENCE_MS,
                    ..WritersSink::default()
                })
            }
        };
        if self.consumer == Consumer::Stored {
            config.epn.ack = Ack::Stored;
        }
        config.node.threads = self.threads;
        config.transport.huge_pages = false;
        // What stays in memory passes no relay.
        config.transport.shared_memory = self.ground != Ground::Relays;
        config
    }
}

/// Files of streams of which several a second are closed.
fn streams() -> StreamsSink {
    StreamsSink {
        slow_ms: 300,
        durability: StreamsDurability::Every,
        sync_ms: 100,
        block_tfs: 50,
        queue_mib: 16,
        free_min_mib: 0,
        ..StreamsSink::default()
    }
}
