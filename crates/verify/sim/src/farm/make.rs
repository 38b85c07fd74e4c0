//! Starts of processes: the shipped nodes with the options of the seed.

use super::TortureFarm;
use super::pieces::Pieces;
use super::planned::PlannedStep;
use super::seat::{COMMITS_MAX, Node, commits_ms};
use super::store;
use crate::invariant::Invariant;
use crate::options::{Ack, Log, Options};
use crate::trace::Line;
use crate::watch::{Found, found};
use bytes::Bytes;
use sheaf_membership::LivenessConfig;
use sheaf_metrics::Registry;
use sheaf_node::challenge::Nonces;
use sheaf_node::config::PayloadDigest;
use sheaf_node::epn::{EpnNode, EpnParts};
use sheaf_node::event::EventLog;
use sheaf_node::flp::{FlpNode, FlpParts};
use sheaf_node::icn::{IcnNode, IcnParts};
use sheaf_node::sink::{SinkHandle, TfStore};
use sheaf_node::source::Input;
use sheaf_node::uplink::Uplink;
use sheaf_protocol::control::Hello;
use sheaf_protocol::splitmix::mix;
use sheaf_protocol::{EpnId, FlpId, Incarnation, NodeId, Role, RunId, Source, Target};
use sheaf_scheduler::{Mode, RunPlan, SchedulerConfig};
use sheaf_stf_builder::HeapSlots;
use sheaf_stf_builder::flp::{Flp, FlpConfig, Pace};
use sheaf_tf_builder::{BuildConfig, TfBuilder};
use sheaf_transport::Transport;
use sheaf_transport::memory::Memory;
use sheaf_verdict_log::Ledger;
use sheaf_verdict_log::file::FileLedger;
use sheaf_verdict_log::majority::{MajorityConfig, MajorityLedger};
use sheaf_verdict_log::memory::MemoryLedger;
use sheaf_verdict_log::storage::{SimStorage, StorageError};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a process whose disk fails is started again.
const RESTART_AFTER: Duration = Duration::from_millis(50);
/// TFs that fit a consumer's queue.
const QUEUE_TFS: u32 = 64;

impl TortureFarm<'_> {
    /// Starts the process of a seat, which does not live, with an incarnation.
    pub(super) fn start_as(&mut self, index: usize, life: u64) -> Result<(), Found> {
        let now = self.network.now();
        let seat = &self.seats[index];
        let (id, incarnation) = (seat.node, Incarnation(life));
        let log = EventLog::to_memory(seat.log.clone());
        if let Some(store) = &seat.store {
            // The life before may have left in order while it was to die at one of its next steps.
            store.limit_steps(None);
        }
        self.seats[index].keepers.clear();
        let seat = &self.seats[index];
        let transport = self.network.endpoint(&seat.name);
        let endpoint = transport.id();
        let mut node = match id.role {
            Role::Icn => match self.icn(transport, index, incarnation, log)? {
                Some(icn) => Node::Icn(Box::new(icn)),
                None => return Ok(()),
            },
            Role::Flp => Node::Flp(Box::new(self.flp(
                transport,
                FlpId(id.index),
                incarnation,
                log,
            ))),
            _ => Node::Epn(Box::new(self.epn(
                transport,
                index,
                EpnId(id.index),
                incarnation,
                log,
            )?)),
        };
        let found_at = match id.role {
            Role::Icn => icn_address(id.index),
            Role::Epn => epn_address(EpnId(id.index), incarnation),
            _ => String::new(),
        };
        if let Some(discovery) = self.discovery(index, incarnation, &found_at) {
            node.discover(discovery);
        }
        let at = endpoint.index();
        if self.endpoints.len() <= at {
            self.endpoints.resize(at + 1, 0);
        }
        self.endpoints[at] = index;
        let seat = &mut self.seats[index];
        seat.begin(now, node, life, endpoint);
        self.trace
            .add(|| Line::new(now, &seat.name, vec![], format!("starts, life {life}")));
        Ok(())
    }

    fn icn(
        &mut self,
        mut transport: Memory,
        index: usize,
        incarnation: Incarnation,
        log: EventLog,
    ) -> Result<Option<IcnNode<Memory>>, Found> {
        let options = self.options;
        let config = SchedulerConfig {
            policy: options.policy.to_owned(),
            reaction: options.reaction,
            reset_ms: 300,
            seed: options.seed,
            mode: options.mode,
            paced_rate_hz: if options.rate_hz > 0.0 {
                options.rate_hz
            } else {
                200.0
            },
            incomplete: options.incomplete,
            tf_bytes_max: u64::from(options.flps) * (options.stf_bytes_max() + 1),
            queue_tfs_max: options.queue_tfs_max,
            commits_max: COMMITS_MAX,
            commits_ms: commits_ms(options.seed),
            tf_deadline_ms: options.tf_deadline_ms,
            unreachable_timeout_ms: options.stf_timeout_ms,
            stf_bytes_max: options.stf_bytes_max(),
            epns_are_durable: options.ack == Ack::Stored,
            delivery: options.delivery,
            ..SchedulerConfig::default()
        };
        let plan = RunPlan {
            flps: u32::from(options.flps),
            epns: u32::from(options.epns),
            timeframes: options.timeframes,
            ..RunPlan::default()
        };
        let icn = self.seats[index].node.index;
        let address = icn_address(icn);
        let Some(ledger) = self.ledger(index)? else {
            // Its disk does not let it begin: it tries again, as a service manager has it do.
            let now = self.network.now();
            self.plan(now + RESTART_AFTER, PlannedStep::Start(index));
            return Ok(None);
        };
        listen(&mut transport, &address)?;
        let parts = IcnParts {
            icn,
            // Only members of a log of their own send messages to each other.
            peers: match options.log {
                Log::Majority => icn_addresses(options),
                Log::Memory | Log::File | Log::ZooKeeper => Vec::new(),
            },
            ledger,
            scheduler: config,
            plan,
            // As a process draws it: an ICN that finds its last run over opens another one.
            new_run: RunId(mix(options.seed ^ (incarnation.0 << 40)) | 1),
            liveness: LivenessConfig::default(),
            stf_bytes_max: options.stf_bytes_max(),
            duration: None,
            checkpoint_records: options.checkpoint_records,
            incarnation,
            nonces: nonces(
                options,
                NodeId {
                    role: Role::Icn,
                    index: icn,
                },
                incarnation,
            ),
            log,
            registry: Arc::new(Registry::default()),
        };
        match IcnNode::new(transport, parts) {
            Ok(icn) => Ok(Some(icn)),
            Err(error) => found(Invariant::NoPanic, None, error.to_string()),
        }
    }

    /// Returns the log of the ICN in a seat; `None` if its disk fails now.
    fn ledger(&mut self, index: usize) -> Result<Option<Box<dyn Ledger>>, Found> {
        if let Some(ledger) = self.zookeeper_ledger(index) {
            return Ok(Some(ledger));
        }
        let (options, seat) = (self.options, &self.seats[index]);
        if options.log == Log::Memory {
            return Ok(Some(Box::new(MemoryLedger::new())));
        }
        let opened = SimStorage::open(&seat.disk).and_then(|storage| {
            Ok::<Box<dyn Ledger>, StorageError>(match options.log {
                Log::Memory | Log::File | Log::ZooKeeper => Box::new(FileLedger::open(storage)?),
                Log::Majority => {
                    let (icn, seed) = (seat.node.index, options.seed ^ self.lives.count());
                    let config = MajorityConfig::new(icn, options.log.icns(), seed);
                    Box::new(MajorityLedger::new(config, storage)?)
                }
            })
        });
        match opened {
            Ok(ledger) => Ok(Some(ledger)),
            Err(StorageError::Io { .. }) => Ok(None),
            Err(error) => found(
                Invariant::NoPanic,
                None,
                format!("{} cannot begin: {error}", seat.name),
            ),
        }
    }

    fn flp(
        &self,
        transport: Memory,
        flp: FlpId,
        incarnation: Incarnation,
        log: EventLog,
    ) -> FlpNode<Memory> {
        let options = self.options;
        let source = Source { flp, incarnation };
        let pace = match (options.mode, options.rate_hz) {
            (Mode::Paced, _) => Pace::Icn,
            (Mode::DataDriven, 0.0) => Pace::Max,
            (Mode::DataDriven, rate_hz) => Pace::RateHz(rate_hz),
        };
        let config = FlpConfig {
            pace,
            when_full: options.when_full,
            hold_bytes: options.hold_bytes(),
            hold_stfs_max: options.hold_stfs,
            push: options.push,
            eager_bytes: options.eager_bytes,
            ..FlpConfig::default()
        };
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: options.hold_bytes(),
            slots: options.hold_stfs,
            stf_bytes_max: options.stf_bytes_max(),
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let pieces = Pieces::new(self.pool.clone(), source, options.stf_bytes);
        let parts = FlpParts {
            source,
            brain: Flp::new(config, source, options.stf_bytes_max()),
            input: Input::Made(Box::new(pieces)),
            slots: Box::new(HeapSlots),
            uplink: uplink(options, flp.into(), incarnation, hello),
            log,
        };
        FlpNode::new(transport, parts)
    }

    fn epn(
        &self,
        mut transport: Memory,
        index: usize,
        epn: EpnId,
        incarnation: Incarnation,
        log: EventLog,
    ) -> Result<EpnNode<Memory>, Found> {
        let options = self.options;
        let address = epn_address(epn, incarnation);
        listen(&mut transport, &address)?;
        let config = BuildConfig {
            capacity_bytes: options.capacity_bytes(),
            tfs_in_building_max: options.slots,
            stf_timeout_ms: options.stf_timeout_ms,
            grants_max: options.grants_max,
            ..BuildConfig::default()
        };
        let hello = Hello {
            data_address: address,
            capacity_bytes: config.capacity_bytes,
            slots: config.tfs_in_building_max,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: options.ack == Ack::Stored,
            ..Hello::default()
        };
        let target = Target { epn, incarnation };
        let mut brain = TfBuilder::<Bytes>::new(config);
        let seat = &self.seats[index];
        let sink = match &seat.store {
            Some(disk) => {
                let store = TfStore::open_on(Box::new(disk.clone()), store::ROOT.into(), target);
                let store = match store {
                    Ok(store) => store,
                    Err(error) => return found(Invariant::NoPanic, None, error.to_string()),
                };
                brain.store_first(store.former());
                SinkHandle::inline_store(store)
            }
            None => {
                seat.consumer.begin(options.work);
                SinkHandle::inline(Box::new(seat.consumer.clone()), QUEUE_TFS)
            }
        };
        let parts = EpnParts {
            acks_processed: options.ack == Ack::Processed,
            digest: PayloadDigest::default(),
            target,
            brain,
            sink,
            uplink: uplink(options, epn.into(), incarnation, hello),
            nonces: nonces(options, epn.into(), incarnation),
            log,
        };
        Ok(EpnNode::new(transport, parts))
    }
}

/// Returns the nonces of one life of a node: no other life has the same.
fn nonces(options: &Options, node: NodeId, incarnation: Incarnation) -> Nonces {
    let place = (u64::from(node.index) << 8) | node.role as u64;
    Nonces::seeded(mix(options.seed ^ mix(place) ^ (incarnation.0 << 24)))
}

fn uplink(options: &Options, node: NodeId, incarnation: Incarnation, hello: Hello) -> Uplink {
    let icns = match options.log {
        // The registry tells.
        Log::ZooKeeper => Vec::new(),
        Log::Memory | Log::File | Log::Majority => icn_addresses(options),
    };
    Uplink::new(icns, node, incarnation, hello)
}

fn icn_addresses(options: &Options) -> Vec<String> {
    (0..options.log.icns()).map(icn_address).collect()
}

pub(super) fn icn_address(icn: u16) -> String {
    format!("icn-{icn}:1")
}

pub(super) fn epn_address(epn: EpnId, incarnation: Incarnation) -> String {
    format!("epn-{}-{}:1", epn.0, incarnation.0)
}

fn listen(transport: &mut Memory, address: &str) -> Result<(), Found> {
    match transport.listen(address) {
        Ok(_) => Ok(()),
        Err(error) => found(Invariant::NoPanic, None, error.to_string()),
    }
}
