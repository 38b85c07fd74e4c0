//! Parts of a process that every role needs: transport, memory, metrics, logs.

use super::{RoleError, RoleOptions};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::config::{FarmConfig, KernelTlsConfig, MembershipBackend, StreamsSink};
use crate::event::EventLog;
use crate::health::Health;
use crate::http::{self, Page};
use crate::registry::{self, Discovery};
use crate::reporting::Reporting;
use crate::shutdown::Shutdown;
use crate::{cards, granted, memory_nodes, reject, security, usage};
use sheaf_auth::Tls;
use sheaf_membership::Member;
use sheaf_metrics::Registry;
use sheaf_protocol::{Limits, NodeId, Role, Timestamp, crc32c_kernel};
use sheaf_transport::{Arena, ArenaOptions, Loops, Security, Sharded, Tcp, TcpConfig, Waker};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Descriptors of a process beside its connections and its page: logs, sources, sinks, the ledger.
const FILES_BESIDE: u64 = 128;
/// Descriptors of an event loop of data: epoll, its wake, the listener of lanes, and one that joins.
const FILES_OF_LOOP: usize = 4;
/// Arena of an endpoint to which peers send no payloads.
const BESIDE_ARENA_BYTES: usize = 2 << 20;

/// Parts of a second endpoint of a process.
pub(super) struct Beside {
    tcp: TcpConfig,
    security: Security,
    arena: ArenaOptions,
}

impl Beside {
    /// Makes the endpoint.
    pub(super) fn open(self) -> io::Result<Tcp> {
        let arena = Arena::new(BESIDE_ARENA_BYTES, self.arena).map_err(io::Error::other)?;
        let mut transport = Tcp::with_security(self.tcp, arena, self.security)?;
        transport.set_close_notice(reject::close_notice);
        Ok(transport)
    }
}

/// Logs who protects the records of TLS sessions, and why.
fn log_kernel_tls(wanted: KernelTlsConfig, tcp: &TcpConfig) {
    match tcp.kernel_tls.decide() {
        (true, reason) => info!(reason, "The kernel protects the records of TLS sessions"),
        (false, reason) if wanted == KernelTlsConfig::On => {
            warn!(
                reason,
                "The kernel cannot protect the records of TLS sessions: the node does"
            );
        }
        (false, reason) => info!(reason, "The node protects the records of TLS sessions"),
    }
}

/// Parts that every role needs.
pub(super) struct Process {
    pub(super) clock: Clock,
    pub(super) arena: Arc<Arena>,
    transport: Option<Sharded>,
    beside: Option<Beside>,
    pub(super) waker: Waker,
    pub(super) registry: Arc<Registry>,
    node: NodeId,
    pub(super) log: Option<EventLog>,
    /// The name of the level of security in force.
    pub(super) level: &'static str,
    pub(super) health: Arc<Health>,
    page_tls: Option<Tls>,
    reporting: Option<Reporting>,
}

impl Process {
    pub(super) fn start(
        config: &FarmConfig,
        node: NodeId,
        options: &RoleOptions,
        shutdown: &Shutdown,
    ) -> Result<Self, RoleError> {
        let log = match &options.events {
            Some(path) => EventLog::append_to(path, config.log.rotation()).map_err(|source| {
                RoleError::Events {
                    path: path.clone(),
                    source,
                }
            })?,
            None => EventLog::none(),
        };
        memory_nodes::prefer(&options.data_cpus);
        let metrics = page_address(config, node.role, options);
        let security = security::open(
            config,
            node,
            options.listen.as_deref(),
            metrics.map(String::as_str),
        )?;
        let level = security::level(&security);
        let is_local = security::is_local(config, node, options.listen.as_deref());
        let page_tls = security::of_page(config, &security);
        let loops = Loops {
            count: config.node.loops(node.role),
            cpus: options.data_cpus.clone(),
        };
        if loops.count == 0 && !loops.cpus.is_empty() {
            return Err(RoleError::NoDataThreads);
        }
        let budget = Budget::of(config, node);
        let bytes = usize::try_from(budget.arena).unwrap_or(usize::MAX);
        let options = match node.role {
            Role::Flp => config.transport.lent_arena(),
            // Its consumers look at it.
            Role::Epn if config.epn.sink.table().shares_memory() => config.transport.shared_arena(),
            _ => config.transport.arena(),
        };
        let arena = Arena::new(bytes, options)?;
        memory_nodes::log(&arena);
        let limits = Limits {
            body_bytes_max: config.icn.scheduler.stf_bytes_max,
            ..Limits::default()
        };
        let tcp = TcpConfig {
            limits,
            heap_bytes_max: budget.heap,
            ..config.transport.tcp()
        };
        let files = raise_files(config, node.role, metrics.is_some())?;
        let queue_bytes_max = tcp.queue_bytes_max;
        let beside = Beside {
            // Its peers send control messages only.
            tcp: TcpConfig {
                awaits_admission: false,
                shared_memory: false,
                heap_bytes_max: 0,
                ..tcp.clone()
            },
            security: security.clone(),
            arena: config.transport.arena(),
        };
        if node.role != Role::Icn && !is_local {
            cards::log(&loops.cpus);
        }
        if matches!(security, Security::Tls { .. }) {
            log_kernel_tls(config.transport.kernel_tls, &tcp);
        }
        if loops.count > 0 {
            info!(threads = loops.count, cpus = ?loops.cpus, "Threads of their own move data");
        }
        let mut transport = Sharded::new(tcp, &arena, &security, loops)?;
        transport.set_close_notice(reject::close_notice);
        let waker = transport.waker();
        let of_shutdown = waker.clone();
        shutdown.set_waker(move || wake(&of_shutdown));
        info!(
            budget_bytes = budget.total(),
            start_bytes = budget.at_start,
            arena_bytes = budget.arena,
            heap_bytes = budget.heap,
            source_bytes = budget.source,
            heads_bytes = budget.heads,
            connections_bytes = budget.connections,
            ledger_bytes = budget.ledger,
            program_bytes = budget.program,
            queue_bytes_max_each = queue_bytes_max,
            connections_max = connections_max(config),
            files,
            "Memory budget"
        );
        // Throughput depends on these, and the kernel need not give what was asked for.
        let sockets = transport.socket_options();
        info!(
            congestion = sockets.congestion_control,
            send_buffer_bytes = sockets.send_buffer_bytes,
            receive_buffer_bytes = sockets.receive_buffer_bytes,
            "Sockets"
        );
        info!(kernel = crc32c_kernel(), "CRC-32C");
        granted::warn_of_shortfalls(&config.transport, sockets, &arena, is_local);
        let clock = Clock::start();
        let health = Arc::new(Health::new(&node, clock));
        Ok(Self {
            clock,
            arena,
            transport: Some(transport),
            beside: Some(beside),
            waker,
            registry: Arc::new(Registry::default()),
            node,
            log: Some(log),
            level,
            health,
            page_tls,
            reporting: None,
        })
    }

    pub(super) fn transport(&mut self) -> &mut Sharded {
        self.transport
            .as_mut()
            .expect("taken only when the node begins")
    }

    /// Takes what a second endpoint is made of.
    pub(super) fn take_beside(&mut self) -> Beside {
        self.beside.take().expect("taken once")
    }

    pub(super) fn take_transport(&mut self) -> Sharded {
        self.transport.take().expect("taken once")
    }

    /// The registry of the farm file, with this node in it.
    pub(super) fn discovery(
        &self,
        config: &FarmConfig,
        me: Member,
        interest: &[Role],
    ) -> Result<Option<Discovery>, RoleError> {
        let waker = self.waker.clone();
        let registry = registry::open(config, me.node, interest, Box::new(move || wake(&waker)))?;
        Ok(registry.map(|registry| Discovery::new(registry, self.clock.now(), me)))
    }

    /// Serves the page of the process, and reports its metrics, if the farm file or the options say where.
    pub(super) fn publish(
        &mut self,
        config: &FarmConfig,
        options: &RoleOptions,
    ) -> Result<(), RoleError> {
        usage::export_build(&self.registry, options.build);
        self.reporting = Some(Reporting::start(
            config,
            self.node,
            &options.metrics_to,
            &self.registry,
            &self.health,
        )?);
        let Some(address) = page_address(config, self.node.role, options) else {
            return Ok(());
        };
        let page = Page {
            registry: self.registry.clone(),
            health: self.health.clone(),
            build: options.build,
            others: other_pages(config, address),
            tls: self.page_tls.clone(),
        };
        http::serve(address, page)?;
        Ok(())
    }
}

impl Process {
    /// Follows the run that the node stands in, where its metrics are reported.
    pub(super) fn follow_run(&mut self) {
        let run = self.health.standing().run;
        if let Some(reporting) = &mut self.reporting {
            reporting.stand_in(run);
        }
    }

    /// Follows `config` in the keys of metrics that may change while the node runs.
    pub(super) fn reconfigure(&self, config: &FarmConfig) {
        if let Some(reporting) = &self.reporting {
            reporting.reconfigure(config);
        }
    }
}

/// Returns where a process of `role` serves its page.
fn page_address<'a>(
    config: &'a FarmConfig,
    role: Role,
    options: &'a RoleOptions,
) -> Option<&'a String> {
    let of_role = match role {
        Role::Flp => &config.flp.metrics,
        Role::Epn => &config.epn.metrics,
        Role::Writer => &config.writer.metrics,
        Role::Icn | Role::Operator => &config.icn.metrics,
    };
    options.metrics.as_ref().or(of_role.as_ref())
}

/// Returns the pages that the farm file names, without the one at `own` and those that no browser can connect to.
fn other_pages(config: &FarmConfig, own: &str) -> Vec<(&'static str, String)> {
    let named = [
        ("icn", &config.icn.metrics),
        ("flp", &config.flp.metrics),
        ("epn", &config.epn.metrics),
        ("writer", &config.writer.metrics),
    ];
    let can_connect = |address: &String| {
        let socket = address.parse::<std::net::SocketAddr>();
        address != own && socket.is_ok_and(|socket| !socket.ip().is_unspecified())
    };
    let named = named
        .into_iter()
        .filter_map(|(role, address)| Some((role, address.clone()?)));
    named.filter(|(_, address)| can_connect(address)).collect()
}

/// The ICNs of the farm file; none if a registry will tell.
pub(super) fn icns_to_begin_with(config: &FarmConfig) -> Result<Vec<String>, RoleError> {
    if config.membership.backend == MembershipBackend::Zookeeper {
        return Ok(Vec::new());
    }
    resolve_all(&config.icn.all_addresses())
}

pub(super) fn resolve_all(addresses: &[String]) -> Result<Vec<String>, RoleError> {
    addresses.iter().map(|address| resolve(address)).collect()
}

/// Returns the connections that a process may have at once: those that it accepts, and its own to all nodes.
fn connections_max(config: &FarmConfig) -> usize {
    config.transport.tcp().accepted_max + config.run.flps as usize + config.run.epns as usize
}

/// Returns the descriptors that a process of `role` needs for its connections, the consumers of its sink, and its page.
#[must_use]
pub fn files_needed(config: &FarmConfig, role: Role, has_page: bool) -> u64 {
    let consumers = match role {
        Role::Epn => config.epn.sink.table().descriptors_max(),
        Role::Writer => {
            let files = config.writer.files.as_ref();
            files.map_or(0, StreamsSink::files_max)
        }
        Role::Icn | Role::Flp | Role::Operator => 0,
    };
    let of_page = if has_page { http::FILES } else { 0 };
    let of_loops = FILES_OF_LOOP * config.node.loops(role);
    (connections_max(config) + consumers + of_page + of_loops) as u64 + FILES_BESIDE
}

/// Raises the limit of descriptors to what the process needs. Returns how many it may have.
fn raise_files(config: &FarmConfig, role: Role, has_page: bool) -> Result<u64, RoleError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = files_needed(config, role, has_page);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let found = current.unwrap_or(u64::MAX);
    if found >= needed {
        return Ok(found);
    }
    let limit = maximum.unwrap_or(u64::MAX);
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    if limit < needed || setrlimit(Resource::Nofile, raised).is_err() {
        return Err(RoleError::Files {
            needed,
            limit,
            connections_max: connections_max(config),
        });
    }
    Ok(needed)
}

/// Turns a host name into an address, once, at the start.
pub(super) fn resolve(address: &str) -> Result<String, RoleError> {
    let failed = |source| RoleError::Resolve {
        address: address.to_owned(),
        source,
    };
    let found = sheaf_transport::tcp::resolve(address).map_err(failed)?;
    if found.ip().is_some_and(|ip| ip.is_unspecified()) {
        return Err(RoleError::Unspecified {
            address: address.to_owned(),
        });
    }
    Ok(found.to_string())
}

pub(super) fn wake(waker: &Waker) {
    if let Err(error) = waker.wake() {
        warn!(%error, "Cannot wake the event loop");
    }
}

/// Something that happens every so often.
pub(super) struct Every {
    period: Duration,
    last: Timestamp,
}

impl Every {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            last: Timestamp(0),
        }
    }

    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let due = now.since(self.last) >= self.period;
        if due {
            self.last = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SinkConfig;

    #[test]
    fn the_descriptors_of_the_page_are_claimed_at_the_start() {
        let mut config = FarmConfig::default();
        (config.run.flps, config.run.epns) = (3, 5);
        let without = files_needed(&config, Role::Epn, false);
        assert_eq!(without, 4096 + 8 + FILES_BESIDE);
        let with_page = files_needed(&config, Role::Epn, true);
        assert_eq!(with_page, without + http::FILES as u64);
        config.epn.sink = SinkConfig::of_words("shm:/run/epn").expect("a sink");
        let consumers = config.epn.sink.table().descriptors_max() as u64;
        assert!(consumers > 0);
        assert_eq!(files_needed(&config, Role::Epn, false), without + consumers);
    }

    #[test]
    fn a_page_names_the_others_that_a_browser_can_connect_to() {
        let mut config = FarmConfig::default();
        config.icn.metrics = Some("10.0.0.1:9100".to_owned());
        config.flp.metrics = Some("0.0.0.0:9101".to_owned());
        config.epn.metrics = Some("10.0.0.2:9102".to_owned());
        let expected = [("icn", "10.0.0.1:9100".to_owned())];
        assert_eq!(other_pages(&config, "10.0.0.2:9102"), expected);
    }
}
