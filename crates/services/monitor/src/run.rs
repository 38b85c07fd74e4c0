//! Start and end of a collector.

use crate::alarms::{AlarmsHandle, Begin, FarmOrders, Running};
use crate::config::MonitorConfig;
use crate::datagrams::{self, Door, Receiver};
use crate::error::MonitorError;
use crate::forward::Forwards;
use crate::http;
use crate::keep::{Keeper, Kept};
use crate::metrics::Counts;
use crate::peers::Peers;
use crate::queue::Queue;
use crate::scrape;
use crate::security::Guard;
use crate::shard::{Common, Shard};
use crate::shared::Shared;
use crate::signatures::Collectd;
use crate::sources::Board;
use crate::stop::Stop;
use sheaf_intake::Protocol;
use sheaf_metrics::Registry;
use sheaf_processing::{Pipeline, Role};
use sheaf_query::Source;
use sheaf_sample_store::{Disk, Memory};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::info;

/// A collector that runs.
pub struct Monitor {
    http: SocketAddr,
    udp: Vec<SocketAddr>,
    statsd: Vec<SocketAddr>,
    collectd: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    kept: Arc<Kept>,
    queue: Arc<Queue>,
    stop: Stop,
    /// Threads that bring samples; they end before the store does.
    bringers: Vec<JoinHandle<()>>,
    alarms: Running,
    keeper: JoinHandle<()>,
}

impl Monitor {
    /// Address of HTTP, with the actual port.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// UDP addresses, with the actual ports.
    #[must_use]
    pub fn udp(&self) -> &[SocketAddr] {
        &self.udp
    }

    /// UDP addresses of StatsD, with the actual ports.
    #[must_use]
    pub fn statsd(&self) -> &[SocketAddr] {
        &self.statsd
    }

    /// UDP addresses of collectd, with the actual ports.
    #[must_use]
    pub fn collectd(&self) -> &[SocketAddr] {
        &self.collectd
    }

    /// TCP addresses of line protocol, with the actual ports.
    #[must_use]
    pub fn tcp(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// The store, for queries of the same process.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        &*self.kept.store
    }

    /// Way to give its alarms other rules.
    #[must_use]
    pub fn alarms(&self) -> AlarmsHandle {
        self.alarms.handle()
    }

    /// Stops receiving, takes what is in the sockets, commits, and returns.
    pub fn end(self) {
        self.stop.set();
        for thread in self.bringers {
            join(thread);
        }
        for thread in self.alarms.end() {
            join(thread);
        }
        self.queue.close();
        join(self.keeper);
        info!("The collector has ended; all samples that it took are committed");
    }
}

fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        // A bug of this program: its message is not lost, and the process ends as if nothing had caught it.
        std::panic::resume_unwind(panic);
    }
}

/// Starts a collector and returns while it runs.
///
/// # Errors
///
/// [`MonitorError`] if something of the configuration makes no sense or cannot be had. Nothing runs then.
pub fn start(config: &MonitorConfig, registry: Arc<Registry>) -> Result<Monitor, MonitorError> {
    start_with(config, registry, None)
}

/// As [`start`], with the farm that alarms may give orders to.
///
/// # Errors
///
/// As of [`start`].
pub fn start_with(
    config: &MonitorConfig,
    registry: Arc<Registry>,
    farm: Option<Box<dyn FarmOrders>>,
) -> Result<Monitor, MonitorError> {
    let problems = config.problems();
    if !problems.is_empty() {
        return Err(MonitorError::Config(problems));
    }
    let stop = Stop::default();
    // Everything that can fail comes before the first thread.
    let guard = Arc::new(Guard::open(&config.security, &registry)?);
    let collectd = Collectd::open(&config.collectd)?;
    let targets = scrape::places(&config.scrape)?;
    let ([udp, statsd, of_collectd], doors) = doors(config)?;
    let (http_at, http_listener) = listen(&config.http)?;
    let streams = config.tcp.iter().map(|at| listen(at));
    let streams: Vec<(SocketAddr, TcpListener)> = streams.collect::<Result<_, _>>()?;
    let tcp = streams.iter().map(|(address, _)| *address).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(8)
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(MonitorError::Thread)?;
    let peers = Peers::open(&config.peer, &registry, runtime.handle().clone())?;
    let kept = Arc::new(open(config)?);
    let samples_max = config.queue_samples_max as usize;
    let begin = Begin::new(&config.alarms, &config.data, samples_max, doors.len() + 1)
        .map_err(MonitorError::Config)?;
    let destinations = &config.processing.destinations;
    let alarms_at = destinations.iter().position(|one| one == "alarms");
    let counts = Arc::new(Counts::new(registry.clone()));
    let queue = Arc::new(Queue::new(config.queue_samples_max as usize));
    let board = Arc::new(Board::new(doors.len() + 1));
    let forwards = Forwards::start(config, &counts.registry, &stop)?;
    let shard = |number| -> Result<Shard, MonitorError> {
        let pipeline = Pipeline::new(&config.processing, Role::Whole)?;
        let mut shard = Shard::new(
            number,
            &config.intake,
            pipeline,
            Common {
                store: kept.store.clone(),
                queue: queue.clone(),
                counts: counts.clone(),
                board: board.clone(),
            },
            (begin.tap(), begin.reports(), alarms_at),
        );
        shard.set_collectd(&collectd);
        if let Some(names) = &forwards.names {
            shard.set_routes(names);
        }
        Ok(shard)
    };
    let shards: Vec<Shard> = (0..=doors.len()).map(shard).collect::<Result<_, _>>()?;

    let keeper = Keeper {
        kept: kept.clone(),
        queue: queue.clone(),
        counts: counts.clone(),
        forwards,
        commit_every: Duration::from_millis(config.commit_ms),
        drops_oldest: config.store.drop_oldest_when_full,
    };
    let keeper = spawn("keep", move || keeper.run())?;
    let desk = begin.desk();
    let (beside, store) = (peers.clone(), kept.store.clone());
    let wider = Box::new(move || Box::new(beside.beside(store.clone())) as Box<dyn Source>);
    let alarms = begin
        .start(kept.store.clone(), wider, registry, farm)
        .map_err(MonitorError::Thread)?;
    let mut shards = shards.into_iter();
    let of_http = shards.next().expect("one more than there are receivers");
    let mut bringers = Vec::new();
    for (number, (doors, shard)) in doors.into_iter().zip(shards).enumerate() {
        let receiver = Receiver::new(doors, shard, queue.clone(), guard.clone(), stop.clone());
        bringers.push(spawn(&format!("receive-{number}"), move || receiver.run())?);
    }
    let shared = Arc::new(Shared {
        config: config.clone(),
        kept: kept.clone(),
        queue: queue.clone(),
        counts,
        board,
        shard: Mutex::new(of_http),
        desk,
        guard,
        peers,
        stop: stop.clone(),
    });
    bringers.push(spawn("http", move || {
        runtime.block_on(http::serve(shared, http_listener, streams, targets));
    })?);
    info!(address = %http_at, "Serving pages, queries and writes over HTTP");
    Ok(Monitor {
        http: http_at,
        udp,
        statsd,
        collectd: of_collectd,
        tcp,
        kept,
        queue,
        stop,
        bringers,
        alarms,
        keeper,
    })
}

/// Runs a collector until `stop` is set. `tell` is called when it runs.
///
/// # Errors
///
/// As of [`start`].
pub fn run(
    config: &MonitorConfig,
    registry: Arc<Registry>,
    stop: &Stop,
    tell: impl FnOnce(&Monitor),
) -> Result<(), MonitorError> {
    run_with(config, registry, None, stop, tell)
}

/// As [`run`], with the farm that alarms may give orders to.
///
/// # Errors
///
/// As of [`start`].
pub fn run_with(
    config: &MonitorConfig,
    registry: Arc<Registry>,
    farm: Option<Box<dyn FarmOrders>>,
    stop: &Stop,
    tell: impl FnOnce(&Monitor),
) -> Result<(), MonitorError> {
    let monitor = start_with(config, registry, farm)?;
    tell(&monitor);
    let waiting = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(MonitorError::Thread)?;
    waiting.block_on(stop.wait());
    monitor.end();
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, MonitorError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(MonitorError::Thread)
}

fn open(config: &MonitorConfig) -> Result<Kept, MonitorError> {
    let settings = config.store.settings();
    if config.data.as_os_str().is_empty() {
        info!("Samples are kept in memory: they end with this process");
        return Ok(Kept {
            store: Arc::new(Memory::new(settings)),
            disk: None,
            is_full: AtomicBool::new(false),
        });
    }
    let folder = config.data.clone();
    let opened = Disk::open(&folder, settings);
    let disk = Arc::new(opened.map_err(|source| MonitorError::Store {
        folder: folder.clone(),
        source,
    })?);
    info!(folder = %folder.display(), "Samples are kept on disk");
    Ok(Kept {
        store: disk.clone(),
        disk: Some(disk),
        is_full: AtomicBool::new(false),
    })
}

/// UDP addresses of line protocol, of StatsD and of collectd.
type Addresses = [Vec<SocketAddr>; 3];

/// Opens the sockets of each receiver. The Unix sockets are those of the first.
fn doors(config: &MonitorConfig) -> Result<(Addresses, Vec<Vec<Door>>), MonitorError> {
    let mut all: Vec<Vec<Door>> = (0..config.receivers).map(|_| Vec::new()).collect();
    let mut addresses = Addresses::default();
    let lists = [
        (&config.udp, datagrams::LINES),
        (&config.statsd, Protocol::StatsD),
        (&config.collectd.udp, Protocol::Collectd),
    ];
    for ((list, protocol), addresses) in lists.into_iter().zip(&mut addresses) {
        for at in list {
            let failed = |source| MonitorError::Listen {
                at: at.clone(),
                source,
            };
            let mut address: SocketAddr = at.parse().expect("problems() read it");
            for receiver in &mut all {
                let buffer_bytes = config.receive_buffer_bytes;
                let door = Door::udp(address, protocol, buffer_bytes).map_err(failed)?;
                // Port 0 becomes one port for all of them.
                address = door.address().unwrap_or(address);
                receiver.push(door);
            }
            addresses.push(address);
        }
    }
    for path in &config.unix {
        let failed = |source| MonitorError::Listen {
            at: path.display().to_string(),
            source,
        };
        all[0].push(Door::unix(path).map_err(failed)?);
    }
    Ok((addresses, all))
}

fn listen(at: &str) -> Result<(SocketAddr, TcpListener), MonitorError> {
    let failed = |source: io::Error| MonitorError::Listen {
        at: at.to_owned(),
        source,
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((address, listener))
}
