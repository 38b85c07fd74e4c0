//! A role as a process: a node on TCP and the real clock, from its configuration to its last message.
//!
//! Each `run_…` is a function of its configuration and of a [`Shutdown`]: it opens the sockets, makes the parts of its
//! node and gives the node to the one `Driver`, which polls, handles and takes turns until the node has drained.

mod driver;
mod manager;
mod nodes;
mod process;
mod reload;

use crate::challenge::Nonces;
use crate::clock::{new_incarnation, new_run};
use crate::config::{FarmConfig, LedgerBackend, MembershipBackend, for_index};
use crate::epn::{EpnError, EpnNode, EpnParts};
use crate::event::EventLog;
use crate::flp::{DATA_ADDRESSES_BETWEEN, FlpError, FlpNode, FlpParts};
use crate::http::MetricsError;
pub use crate::icn::IcnEnd;
use crate::icn::{IcnError, IcnNode, IcnParts};
use crate::ledger::{self, LedgerError};
pub use crate::program::Build;
use crate::registry::RegistryError;
use crate::security::SecurityError;
use crate::shutdown::Shutdown;
use crate::sink::{self, SinkError, WriterAccess};
use crate::slots::ArenaSlots;
use crate::source::{self, Input, ProgramEnd, SourceError};
use crate::status::FarmStatus;
use crate::uplink::Uplink;
use crate::writer::{WriterNode, WriterParts};
use driver::Driver;
use nodes::ReportingIcn;
use process::{Every, Process, icns_to_begin_with, resolve, resolve_all, wake};

pub use process::files_needed;
pub use reload::Reader;
use sheaf_membership::Member;
pub use sheaf_metrics::Backend;
use sheaf_metrics::ReporterError;
use sheaf_placement::UnknownPolicy;
use sheaf_protocol::control::Hello;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role, Source, Target};
use sheaf_scheduler::SchedulerConfig;
use sheaf_stf_builder::flp::Flp;
use sheaf_stream_files::{CatalogueError, CopyTable};
use sheaf_tf_builder::TfBuilder;
use sheaf_transport::{Arena, ArenaError, ListenError, Transport as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tracing::info;

/// Options of a process beside the farm file.
#[derive(Default)]
pub struct RoleOptions {
    /// Where the metrics are served; overrides the farm file.
    pub metrics: Option<String>,
    /// Back ends that the metrics are sent to; none for those of the farm file.
    pub metrics_to: Vec<Backend>,
    /// Where an ICN listens; overrides the farm file.
    pub listen: Option<String>,
    /// Where the event log is appended.
    pub events: Option<PathBuf>,
    /// Called with the actual address when the process listens (ICN and EPN).
    pub on_listening: Option<AddressSink>,
    /// How often the ICN reports the farm, and to whom.
    pub on_status: Option<(Duration, StatusSink)>,
    /// CPUs of the threads that move data, one for each in turn; none: wherever the process may run.
    pub data_cpus: Vec<usize>,
    /// Program that runs.
    pub build: Build,
    /// Lowest incarnation that the process may take: above that of an earlier life that a clock ran ahead of.
    pub incarnation_min: u64,
    /// Reads the farm file again at SIGHUP; without it the file stays as it was at the start.
    pub reader: Option<Reader>,
    /// Whether a lone ICN that is asked to end keeps its run for its next life.
    pub keep_run: bool,
    /// Where the program that an FLP is a part of awaits its end of the source `program`.
    pub program: Option<ProgramEnd>,
}

/// Takes the address that a process listens at.
pub type AddressSink = Box<dyn FnOnce(&str)>;

/// Takes status lines.
pub type StatusSink = Box<dyn FnMut(&FarmStatus)>;

/// Why a role cannot begin or go on.
#[derive(Debug, Error)]
pub enum RoleError {
    /// An address cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A host name has no address.
    #[error("cannot find the address of {address}: {source}")]
    Resolve {
        /// The name.
        address: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// An address that no other node can connect to.
    #[error(
        "no node can connect to {address}: set `advertise` in [epn] to the address that FLPs reach"
    )]
    Unspecified {
        /// The address.
        address: String,
    },
    /// Missing or invalid certificates.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The process may not have as many descriptors as its connections need.
    #[error(
        "{connections_max} connections need {needed} file descriptors, the limit of this process is {limit}: raise it \
         (ulimit -Hn, LimitNOFILE=), or lower transport.connections_max"
    )]
    Files {
        /// Descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
        /// Connections of peers, and to nodes of the farm.
        connections_max: usize,
    },
    /// The memory cannot be had.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The metrics cannot be sent.
    #[error(transparent)]
    Reporting(#[from] ReporterError),
    /// The source cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The sink cannot be opened.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The policy does not exist.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The event log cannot be opened.
    #[error("cannot open the event log {path}: {source}", path = path.display())]
    Events {
        /// Path.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The FLP was refused.
    #[error(transparent)]
    Flp(#[from] FlpError),
    /// The EPN was refused.
    #[error(transparent)]
    Epn(#[from] EpnError),
    /// The ICN cannot go on.
    #[error(transparent)]
    Icn(#[from] IcnError),
    /// CPUs were given for threads that the node does not have.
    #[error(
        "CPUs for threads of data (--data-cpus) were given, and this node has none: its own thread moves data with \
         node.threads = 1, and an ICN moves none"
    )]
    NoDataThreads,
    /// The farm file names fewer ICNs.
    #[error("--index {icn}: the farm file has {icns} ICNs (icn.addresses), and the first is 0")]
    NoSuchIcn {
        /// The index asked for.
        icn: u16,
        /// How many there are.
        icns: usize,
    },
    /// The farm file names fewer writers.
    #[error(
        "--index {writer}: the farm file has {writers} writers (writer.addresses), and the first is 0"
    )]
    NoSuchWriter {
        /// The index asked for.
        writer: u16,
        /// How many there are.
        writers: usize,
    },
    /// The farm file says nothing of the files of writers.
    #[error("the farm file has no table [writer.files]: it says where writers have their files")]
    NoFiles,
    /// The catalogue of a writer cannot be used.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The registry of the farm cannot be used.
    #[error(transparent)]
    Membership(#[from] RegistryError),
    /// The verdict log cannot be opened.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The event loop failed.
    #[error("the event loop failed: {0}")]
    Io(#[from] io::Error),
}

impl RoleError {
    /// Returns the lowest incarnation with which the same process could join, if its clock was set back since an
    /// earlier life of the node.
    #[must_use]
    pub fn incarnation_min(&self) -> Option<u64> {
        let refusal = match self {
            Self::Flp(FlpError::Refused(refusal)) | Self::Epn(EpnError::Refused(refusal)) => {
                refusal
            }
            _ => return None,
        };
        (refusal.incarnation_min > 0).then_some(refusal.incarnation_min)
    }
}

/// Runs the ICN of a farm until its run is over, or goes on without this process. Returns which of them.
///
/// # Errors
///
/// [`RoleError`] before the first message if something it needs cannot be had.
pub fn run_icn(
    config: &FarmConfig,
    icn: u16,
    mut options: RoleOptions,
    shutdown: &Shutdown,
) -> Result<IcnEnd, RoleError> {
    let mut process = Process::start(
        config,
        NodeId {
            role: Role::Icn,
            index: icn,
        },
        &options,
        shutdown,
    )?;
    let addresses = config.icn.all_addresses();
    let own = addresses.get(usize::from(icn));
    let own = options
        .listen
        .as_ref()
        .or(own)
        .ok_or(RoleError::NoSuchIcn {
            icn,
            icns: addresses.len(),
        })?;
    let (_, address) = process.transport().listen(own)?;
    process.publish(config, &options)?;
    info!(address, policy = config.icn.scheduler.policy, "ICN listens");
    if let Some(tell) = options.on_listening.take() {
        tell(&address);
    }
    let peers = match config.icn.ledger.backend {
        LedgerBackend::Majority => resolve_all(&addresses)?,
        _ => Vec::new(),
    };
    let waker = process.waker.clone();
    let ledger = ledger::open(config, icn, Box::new(move || wake(&waker)))?;
    let parts = IcnParts {
        icn,
        peers,
        ledger,
        scheduler: config.scheduler(),
        plan: config.run.plan(),
        new_run: new_run(config.run.number),
        liveness: config.icn.liveness,
        stf_bytes_max: config.icn.scheduler.stf_bytes_max,
        duration: config.run.duration(),
        checkpoint_records: config.icn.ledger.checkpoint_records,
        incarnation: new_incarnation(options.incarnation_min),
        nonces: Nonces::of_kernel(),
        log: process.log.take().unwrap_or_else(EventLog::none),
        registry: process.registry.clone(),
    };
    // Only a registry has to know where others can connect to.
    let is_found = config.membership.backend == MembershipBackend::Zookeeper;
    let found_at = is_found.then(|| resolve(&address));
    let me = Member {
        node: NodeId {
            role: Role::Icn,
            index: icn,
        },
        incarnation: parts.incarnation,
        address: found_at.transpose()?.unwrap_or_default(),
    };
    let discovery = process.discovery(config, me, &[])?;
    let report = options.on_status;
    let mut node = IcnNode::new(process.take_transport(), parts)?;
    node.set_security(process.level);
    if own.ends_with(":0") && !is_found {
        node.refuse_restart("the ICN listens at a port that the kernel chose (port 0): no node would find its next life");
    }
    let node = ReportingIcn {
        node,
        report: report.map(|(period, sink)| (Every::new(period), sink)),
        health: process.health.clone(),
        keep_run: options.keep_run,
        shutdown: shutdown.clone(),
    };
    let end = Driver::new(&mut process, node, discovery, shutdown)
        .reloading(config, options.reader)
        .run()?
        .node
        .end();
    match end {
        IcnEnd::Over => info!("The run is over"),
        IcnEnd::Left => info!("Ends before the run, which goes on"),
        IcnEnd::Restart => info!("Starts again; the run goes on"),
    }
    Ok(end)
}

/// Runs one FLP until it is dismissed, or has drained after a shutdown.
///
/// # Errors
///
/// [`RoleError`] if something it needs cannot be had, or if the ICN refuses it.
pub fn run_flp(
    config: &FarmConfig,
    flp: FlpId,
    mut options: RoleOptions,
    shutdown: &Shutdown,
) -> Result<(), RoleError> {
    let mut process = Process::start(config, flp.into(), &options, shutdown)?;
    let lent_bytes_max = config.flp.lent_bytes_max(&config.transport);
    let arena = process.arena.clone();
    process.transport().lend(&arena, lent_bytes_max);
    let waker = process.waker.clone();
    let waker = Box::new(move || wake(&waker));
    let registry = process.registry.clone();
    let opening = source::Opening {
        flp,
        flps: config.run.flps,
        stf_bytes_max: config.flp.stf_bytes_max,
        memory: &arena,
        pool: config.transport.lent_arena(),
        wake: waker,
        registry: &registry,
        // Payloads that stay in that memory may be lent as often as they are asked for.
        lend: &mut |pool: &Arc<Arena>| process.transport().lend(pool, u64::MAX),
        program: options.program.take(),
    };
    let input = source::open(&config.flp.source, opening)?;
    process.publish(config, &options)?;
    let stf_bytes_max = match &input {
        Input::Made(source) => source.bytes_max().min(config.flp.stf_bytes_max),
        Input::Fed(_) => config.flp.stf_bytes_max,
    };
    let source = Source {
        flp,
        incarnation: new_incarnation(options.incarnation_min),
    };
    let hello = Hello {
        data_address: String::new(),
        capacity_bytes: config.flp.hold_bytes,
        slots: config.flp.hold_stfs_max,
        stf_bytes_max,
        weight_milli: 1000,
        is_durable: false,
        ..Hello::default()
    };
    let brain = config.flp.brain(config.icn.scheduler.mode);
    let parts = FlpParts {
        source,
        brain: Flp::new(brain, source, stf_bytes_max),
        input,
        slots: Box::new(ArenaSlots(process.arena.clone())),
        uplink: Uplink::new(
            icns_to_begin_with(config)?,
            flp.into(),
            source.incarnation,
            hello,
        )
        .noted_in(process.health.clone()),
        log: process.log.take().unwrap_or_else(EventLog::none),
    };
    info!(%flp, source = config.flp.source.kind(), stf_bytes_max, "FLP begins");
    let me = Member {
        node: flp.into(),
        incarnation: source.incarnation,
        address: String::new(),
    };
    let discovery = process.discovery(config, me, &[Role::Icn])?;
    let node = FlpNode::new(process.take_transport(), parts);
    Driver::new(&mut process, node, discovery, shutdown)
        .reloading(config, options.reader)
        .run()?;
    info!(%flp, "FLP ends");
    Ok(())
}

/// Runs one EPN until it is dismissed, or has drained after a shutdown.
///
/// # Errors
///
/// [`RoleError`] if something it needs cannot be had, or if the ICN refuses it.
pub fn run_epn(
    config: &FarmConfig,
    epn: EpnId,
    mut options: RoleOptions,
    shutdown: &Shutdown,
) -> Result<(), RoleError> {
    let mut process = Process::start(config, epn.into(), &options, shutdown)?;
    let own = |text: &str| for_index(text, epn.into());
    let transport = process.transport();
    let (_, address) = transport.listen_bulk(&own(&config.epn.listen))?;
    let mut others = Vec::new();
    for other in &config.epn.listen_also {
        let (_, actual) = transport.listen_bulk(&own(other))?;
        others.push(actual);
    }
    process.publish(config, &options)?;
    let waker = process.waker.clone();
    let target = Target {
        epn,
        incarnation: new_incarnation(options.incarnation_min),
    };
    let mut brain = TfBuilder::new(config.epn.build);
    let writers = resolve_all(&config.writer.addresses)?;
    let beside = process.take_beside();
    let opening = sink::Opening {
        target,
        ack: config.epn.ack,
        queue_tfs: config.epn.queue_tfs,
        memory: sink::Memory {
            arena: process.arena.clone(),
            holdings: process.transport().holdings(),
        },
        registry: process.registry.clone(),
        wake: Box::new(move || wake(&waker)),
        writers: (!writers.is_empty()).then(|| WriterAccess {
            addresses: writers,
            transport: Box::new(move || beside.open()),
        }),
    };
    let mut sink = sink::open(&config.epn.sink, opening)?;
    if let Some(former) = sink.take_former() {
        brain.store_first(former);
    }
    let told = config.epn.advertise.as_deref().map(own);
    let mut data_addresses = vec![resolve(told.as_ref().unwrap_or(&address))?];
    for other in &others {
        data_addresses.push(resolve(other)?);
    }
    let data_address = data_addresses.join(DATA_ADDRESSES_BETWEEN);
    let hello = Hello {
        data_address: data_address.clone(),
        capacity_bytes: config.epn.build.capacity_bytes,
        slots: config.epn.build.tfs_in_building_max,
        stf_bytes_max: 0,
        weight_milli: config.epn.weight_milli(),
        is_durable: brain.stores_first(),
        ..Hello::default()
    };
    info!(%epn, address, ?others, sink = config.epn.sink.kind(), "EPN listens");
    if let Some(tell) = options.on_listening.take() {
        tell(&address);
    }
    let acks_processed = config.epn.ack == sink::Ack::Processed;
    let parts = EpnParts {
        acks_processed,
        digest: config.epn.digest,
        target,
        brain,
        sink,
        uplink: Uplink::new(
            icns_to_begin_with(config)?,
            epn.into(),
            target.incarnation,
            hello,
        )
        .noted_in(process.health.clone()),
        nonces: Nonces::of_kernel(),
        log: process.log.take().unwrap_or_else(EventLog::none),
    };
    let me = Member {
        node: epn.into(),
        incarnation: target.incarnation,
        address: data_address,
    };
    let discovery = process.discovery(config, me, &[Role::Icn])?;
    let node = EpnNode::new(process.take_transport(), parts);
    Driver::new(&mut process, node, discovery, shutdown)
        .reloading(config, options.reader)
        .run()?;
    info!(%epn, "EPN ends");
    Ok(())
}

/// Returns how many published TFs of each EPN a writer remembers: those of four lives, each of which leaves as many as
/// the ICN commits to an EPN without an acknowledgement.
fn published_max(scheduler: &SchedulerConfig) -> usize {
    4 * scheduler.commits_most() as usize
}

/// Runs one writer node until a shutdown, when it has written what it has.
///
/// # Errors
///
/// [`RoleError`] if something it needs cannot be had.
pub fn run_writer(
    config: &FarmConfig,
    writer: u16,
    mut options: RoleOptions,
    shutdown: &Shutdown,
) -> Result<(), RoleError> {
    let node = NodeId {
        role: Role::Writer,
        index: writer,
    };
    let addresses = &config.writer.addresses;
    let own = addresses.get(usize::from(writer));
    let own = options.listen.clone().or(own.cloned());
    let own = own.ok_or(RoleError::NoSuchWriter {
        writer,
        writers: addresses.len(),
    })?;
    let files = config.writer.files.as_ref().ok_or(RoleError::NoFiles)?;
    let mut process = Process::start(config, node, &options, shutdown)?;
    let incarnation = new_incarnation(options.incarnation_min);
    let waker = process.waker.clone();
    let opening = sink::Opening {
        // The files of a writer have TFs of many EPNs.
        target: Target {
            epn: EpnId(writer),
            incarnation,
        },
        ack: sink::Ack::Built,
        queue_tfs: config.writer.queue_tfs,
        memory: sink::Memory {
            arena: process.arena.clone(),
            holdings: process.transport().holdings(),
        },
        registry: process.registry.clone(),
        wake: Box::new(move || wake(&waker)),
        writers: None,
    };
    let sink = files.open_for(node, opening)?;
    let copies = CopyTable::open(&files.first_folder(node))?;
    // Open files and catalogue first: a TF that comes is for them.
    let (_, address) = process.transport().listen_bulk(&own)?;
    process.publish(config, &options)?;
    info!(writer, address, "Writer listens");
    if let Some(tell) = options.on_listening.take() {
        tell(&address);
    }
    let parts = WriterParts {
        index: writer,
        incarnation,
        sink,
        rows: copies.rows()?,
        published_max: published_max(&config.icn.scheduler),
        keeper: Box::new(copies),
        capacity_bytes: config.writer.capacity_bytes,
        window_bytes: config.writer.window_bytes(config.run.epns),
        window_tfs: config.writer.window_tfs,
        pulse: Duration::from_millis(config.writer.pulse_ms),
        nonces: Nonces::of_kernel(),
        log: process.log.take().unwrap_or_else(EventLog::none),
    };
    let node = WriterNode::new(process.take_transport(), parts).noted_in(process.health.clone());
    Driver::new(&mut process, node, None, shutdown)
        .reloading(config, options.reader)
        .run()?;
    info!(writer, "Writer ends");
    Ok(())
}
