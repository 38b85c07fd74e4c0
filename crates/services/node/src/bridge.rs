//! A stand-in for the ICN and the EPNs of O2-Balancer2, so that its FLPs feed a farm.
//!
//! The bridge publishes heartbeats and a list of channels with itself as the only one, so those FLPs push their data to
//! the bridge. The data of each FLP are forwarded to one FLP of the farm, whose source is `zmq`. EPNs of O2-Balancer2
//! stand behind the sinks of the farm; their messages on the feedback channel are counted here. Layout of the messages:
//! [`o2_balancer`](crate::zmq::o2_balancer); order of the messages: `docs/how-to/zmq.md`.
//!
//! O2-Balancer2 has no back-pressure: an FLP that cannot send throws away. So a heartbeat waits until data have come
//! for all but a few of those before it, and memory is bounded.

use crate::clock::Clock;
use crate::health::{Health, Standing};
use crate::http::{self, MetricsError, Page};
use crate::program::Build;
use crate::security::is_outside;
use crate::shutdown::Shutdown;
use crate::usage;
use crate::zmq::o2_balancer::{O2Channel, O2Data, SIZE};
use crate::zmq::{Link, ZmqError, ZmqMethod};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use sheaf_metrics::Registry;
use sheaf_protocol::{RunId, Term};
use sheaf_zmtp::{
    Endpoint, HighWater, Limits, Message, PeerId, SendError, SocketConfig, SocketType,
};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::{info, warn};

/// The one channel in the configuration of FLPs.
const CHANNEL: u64 = 1;
/// Period at which channels are announced again to FLPs that do not connect.
const CONFIGURE_EVERY: Duration = Duration::from_secs(5);
/// Messages that are taken before other sockets have their turn.
const MESSAGES_A_TURN: usize = 64;
/// How long a request to end may stay unseen.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the data of the last heartbeats and what EPNs say of them are awaited, and FLPs of the farm to take them.
const DRAIN: Duration = Duration::from_secs(5);
/// EPNs whose acknowledgements are counted one by one, and bytes of a name.
const EPNS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 32;

/// Configuration of a bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeConfig {
    /// Where heartbeats are published: FLPs of O2-Balancer2 subscribe there.
    pub heartbeats: String,
    /// Where its EPNs register and acknowledge.
    pub feedback: String,
    /// Where its FLPs push their data.
    pub data: String,
    /// Address that FLPs push to, if different from where the bridge listens.
    pub advertise: Option<SocketAddrV4>,
    /// Where the FLPs of the farm take STFs, by index.
    pub flps: Vec<String>,
    /// Heartbeats a second.
    pub rate_hz: f64,
    /// The first heartbeat.
    pub first: u64,
    /// Heartbeats to publish; 0: no end.
    pub iterations: u64,
    /// Heartbeats whose data have not come from all FLPs. One more waits.
    pub ahead_max: u64,
    /// Bytes of a message of data.
    pub message_bytes_max: u64,
    /// Where metrics are served; without it, nowhere.
    pub metrics: Option<String>,
    /// Program that runs.
    pub build: Build,
    /// Whether it may be reached from other machines: nothing is encrypted, and no peer authenticates.
    pub insecure: bool,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        Self {
            heartbeats: "tcp://127.0.0.1:5005".to_owned(),
            feedback: "tcp://127.0.0.1:5000".to_owned(),
            data: "tcp://127.0.0.1:5555".to_owned(),
            advertise: None,
            flps: Vec::new(),
            rate_hz: 50.0,
            first: 0,
            iterations: 0,
            ahead_max: 64,
            message_bytes_max: 64 << 20,
            metrics: None,
            build: Build::default(),
            insecure: false,
        }
    }
}

/// Reason why a bridge does not begin, or cannot go on.
#[derive(Debug, Error)]
pub enum BridgeError {
    /// An endpoint off loopback, without permission to send in the clear.
    #[error(
        "{endpoint} is not loopback, and nothing of a bridge is encrypted: allow it with --insecure"
    )]
    Outside {
        /// The endpoint.
        endpoint: String,
    },
    /// FLPs cannot get an address to push to: they know IPv4 addresses only.
    #[error("no FLP can connect to {endpoint}: set --advertise to an IPv4 address that FLPs reach")]
    Advertise {
        /// Where it listens.
        endpoint: String,
    },
    /// A socket cannot be had.
    #[error(transparent)]
    Zmq(#[from] ZmqError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The operating system does not say what is ready.
    #[error("the event loop failed: {0}")]
    Io(#[from] io::Error),
}

/// Endpoints at which a bridge listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// Where heartbeats are published.
    pub heartbeats: String,
    /// Where EPNs speak.
    pub feedback: String,
    /// Where data come.
    pub data: String,
}

/// Counts of what a bridge has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BridgeReport {
    /// Heartbeats published.
    pub heartbeats: u64,
    /// Heartbeats that were late because data of earlier ones had not arrived.
    pub delayed: u64,
    /// How often the channels were configured.
    pub configured: u64,
    /// Messages forwarded to each FLP of the farm.
    pub stfs: Vec<u64>,
    /// Messages that were none of this layout.
    pub refused: u64,
    /// EPNs that registered.
    pub registrations: u64,
    /// Acknowledgements by the name of the EPN.
    pub acknowledgements: BTreeMap<String, u64>,
}

/// Runs a bridge until its heartbeats are over, or `shutdown` is requested. `tell` is called when it listens.
///
/// # Errors
///
/// [`BridgeError`].
pub fn run_o2(
    config: &BridgeConfig,
    shutdown: &Shutdown,
    tell: impl FnOnce(&Listening),
) -> Result<BridgeReport, BridgeError> {
    let mut bridge = Bridge::open(config)?;
    tell(&Listening {
        heartbeats: bridge.heartbeats.endpoint.to_string(),
        feedback: bridge.feedback.endpoint.to_string(),
        data: bridge.data.endpoint.to_string(),
    });
    bridge.run(shutdown)?;
    bridge.finish()?;
    Ok(bridge.report)
}

/// One FLP of O2-Balancer2 and the FLP of the farm that gets its data.
struct Lane {
    link: Link,
    /// Peer that pushes for the channel now.
    peer: Option<PeerId>,
    /// The first heartbeat whose data have not come.
    next: u64,
}

struct Bridge<'a> {
    config: &'a BridgeConfig,
    heartbeats: Link,
    feedback: Link,
    data: Link,
    lanes: Vec<Lane>,
    /// Data that the FLP of a lane has no room for. While there are any, nothing more is read.
    waiting: Option<(usize, Message)>,
    /// Where FLPs push to.
    channel: O2Channel,
    configured: Option<Instant>,
    /// The heartbeat that comes next.
    next: u64,
    /// When it is due; none while FLPs are missing.
    due: Option<Instant>,
    is_late: bool,
    report: BridgeReport,
    health: Arc<Health>,
    clock: Clock,
}

impl<'a> Bridge<'a> {
    fn open(config: &'a BridgeConfig) -> Result<Self, BridgeError> {
        if let Some(endpoint) = outside(config).filter(|_| !config.insecure) {
            return Err(BridgeError::Outside { endpoint });
        }
        let registry = Arc::<Registry>::default();
        let clock = Clock::start();
        let health = Arc::new(Health::new(&"bridge", clock));
        if let Some(address) = &config.metrics {
            usage::export_build(&registry, config.build);
            let page = Page {
                registry: registry.clone(),
                health: health.clone(),
                build: config.build,
                others: Vec::new(),
                tls: None,
            };
            http::serve(address, page)?;
        }
        let bind = |role, socket_type, socket, endpoint: &str| {
            let at = (endpoint, ZmqMethod::Bind);
            Link::open(role, socket_type, socket, at, registry.clone())
        };
        let small = SocketConfig {
            limits: Limits {
                frame_bytes_max: SIZE as u64,
                message_bytes_max: 2 * SIZE as u64,
                parts_max: 2,
            },
            ..SocketConfig::default()
        };
        let large = SocketConfig {
            limits: Limits {
                frame_bytes_max: config.message_bytes_max,
                message_bytes_max: config.message_bytes_max.saturating_add(SIZE as u64),
                ..Limits::default()
            },
            peers_max: config.flps.len(),
            ..SocketConfig::default()
        };
        let data = bind("data", SocketType::Pull, large, &config.data)?;
        let channel = O2Channel {
            channel: CHANNEL,
            address: reachable(config.advertise, &data.endpoint)?,
        };
        let lanes = config.flps.iter().map(|endpoint| {
            let socket = SocketConfig {
                limits: Limits {
                    frame_bytes_max: u64::MAX,
                    message_bytes_max: u64::MAX,
                    ..Limits::default()
                },
                high_water: HighWater {
                    messages: 8,
                    ..HighWater::default()
                },
                ..SocketConfig::default()
            };
            let at = (endpoint.as_str(), ZmqMethod::Connect);
            let link = Link::open("flp", SocketType::Push, socket, at, registry.clone())?;
            Ok(Lane {
                link,
                peer: None,
                next: config.first,
            })
        });
        let lanes = lanes.collect::<Result<Vec<Lane>, ZmqError>>()?;
        Ok(Self {
            heartbeats: bind(
                "heartbeats",
                SocketType::Pub,
                small.clone(),
                &config.heartbeats,
            )?,
            feedback: bind("feedback", SocketType::Pull, small, &config.feedback)?,
            data,
            report: BridgeReport {
                stfs: vec![0; lanes.len()],
                ..BridgeReport::default()
            },
            lanes,
            waiting: None,
            channel,
            configured: None,
            next: config.first,
            due: None,
            is_late: false,
            health,
            clock,
            config,
        })
    }

    fn run(&mut self, shutdown: &Shutdown) -> io::Result<()> {
        let mut end: Option<Instant> = None;
        loop {
            self.note_health();
            let is_busy = self.forward();
            self.hear_feedback();
            let now = Instant::now();
            let wake = self.beat(now);
            if end.is_none() && (shutdown.is_requested() || self.is_over()) {
                end = Some(now + DRAIN);
            }
            if let Some(end) = end
                && (shutdown.is_requested() || self.is_drained() || now >= end)
            {
                return Ok(());
            }
            let timeout = match (is_busy, wake) {
                (true, _) => Duration::ZERO,
                (false, Some(wake)) => wake.saturating_duration_since(now).min(LOOK_EVERY),
                (false, None) => LOOK_EVERY,
            };
            self.wait(timeout)?;
        }
    }

    fn note_health(&self) {
        self.health.turn(self.clock.now());
        let is_ready = self.due.is_some();
        self.health.stand(Standing {
            phase: if is_ready { "running" } else { "waiting" },
            is_ready,
            run: RunId(0),
            term: Term(0),
        });
    }

    fn is_over(&self) -> bool {
        self.config.iterations > 0 && self.report.heartbeats >= self.config.iterations
    }

    /// Whether the data of all heartbeats have come and, if there are EPNs here, they have said so.
    fn is_drained(&self) -> bool {
        let acknowledged: u64 = self.report.acknowledgements.values().sum();
        let has_epns = self.report.registrations > 0;
        self.lanes.iter().all(|lane| lane.next >= self.next)
            && self.waiting.is_none()
            && (!has_epns || acknowledged >= self.report.heartbeats)
    }

    /// Forwards data, as much as there is room for. `true`: there is more at once.
    fn forward(&mut self) -> bool {
        for _ in 0..MESSAGES_A_TURN {
            if let Some((lane, message)) = self.waiting.take() {
                match self.lanes[lane].link.socket.try_send(message) {
                    Ok(_) => self.report.stfs[lane] += 1,
                    Err(SendError::Full(message)) => {
                        self.waiting = Some((lane, message));
                        return false;
                    }
                    Err(error) => self.data.refuse("unsent", &error),
                }
            }
            let Some((peer, message)) = self.data.socket.try_recv() else {
                return false;
            };
            match self.judge(peer, &message) {
                Ok(lane) => self.waiting = Some((lane, message)),
                Err(why) => {
                    self.report.refused += 1;
                    self.data.refuse("data", &why);
                }
            }
        }
        true
    }

    /// FLP that the data belong to.
    fn judge(&mut self, peer: PeerId, message: &Message) -> Result<usize, String> {
        let [head, _, ..] = message.parts() else {
            return Err("data have one part, expected two: O2Data, and the payload".to_owned());
        };
        let head = O2Data::decode(head).map_err(|error| error.to_string())?;
        if head.configures || !(self.config.first..self.next).contains(&head.heartbeat) {
            let (first, next) = (self.config.first, self.next);
            return Err(format!(
                "data of heartbeat {}, expected one of {first} to {next}",
                head.heartbeat
            ));
        }
        let lane = self.lane_of(peer).ok_or("data of one FLP too many")?;
        let next = &mut self.lanes[lane].next;
        *next = (*next).max(head.heartbeat + 1);
        Ok(lane)
    }

    /// Returns the lane of a peer: its own, or the first free one. There are no more peers than lanes.
    fn lane_of(&mut self, peer: PeerId) -> Option<usize> {
        let own = self.lanes.iter().position(|lane| lane.peer == Some(peer));
        own.or_else(|| {
            let free = self.lanes.iter().position(|lane| lane.peer.is_none())?;
            self.lanes[free].peer = Some(peer);
            info!(lane = free, "An FLP of O2-Balancer2 has a lane");
            Some(free)
        })
    }

    fn hear_feedback(&mut self) {
        while let Some((_, message)) = self.feedback.socket.try_recv() {
            if let Err(why) = self.count_feedback(&message) {
                self.report.refused += 1;
                self.feedback.refuse("feedback", &why);
            }
        }
    }

    fn count_feedback(&mut self, message: &Message) -> Result<(), String> {
        match message.parts() {
            [name] if name.len() <= NAME_BYTES_MAX => {
                let mut name = String::from_utf8_lossy(name).escape_debug().to_string();
                let counts = &mut self.report.acknowledgements;
                if counts.len() >= EPNS_MAX && !counts.contains_key(&name) {
                    "others".clone_into(&mut name);
                }
                *counts.entry(name).or_default() += 1;
                Ok(())
            }
            [head, channel] => {
                let error = |error: crate::zmq::o2_balancer::O2Error| error.to_string();
                let head = O2Data::decode(head).map_err(error)?;
                let channel = O2Channel::decode(channel).map_err(error)?;
                if !head.configures {
                    return Err("a registration that does not configure".to_owned());
                }
                self.report.registrations += 1;
                let (index, address) = (channel.channel, channel.address);
                info!(index, %address, "An EPN of O2-Balancer2 registers");
                Ok(())
            }
            parts => Err(format!(
                "feedback has {} parts, expected an acknowledgement or a registration",
                parts.len()
            )),
        }
    }

    /// Publishes what is due. Gives when something is due again.
    fn beat(&mut self, now: Instant) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let flps = self.lanes.len();
        let are_there = self.data.socket.peers() == flps;
        if self.heartbeats.socket.subscribers() < flps || !are_there {
            self.due = None;
            return self.configure(now);
        }
        let period = Duration::from_secs_f64(1.0 / self.config.rate_hz);
        let mut due = *self.due.get_or_insert_with(|| {
            info!(flps, "All FLPs of O2-Balancer2 are there: heartbeats");
            now
        });
        while due <= now && !self.is_over() {
            let behind = self.lanes.iter().map(|lane| lane.next).min();
            if self.next - behind.unwrap_or(self.next) >= self.config.ahead_max {
                self.is_late = true;
                return Some(now + LOOK_EVERY);
            }
            self.publish_heartbeat();
            due += period;
            if std::mem::take(&mut self.is_late) {
                self.report.delayed += 1;
                // What was missed is not made up for: the farm is as fast as this.
                due = due.max(now);
            }
        }
        self.due = Some(due);
        Some(due)
    }

    fn publish_heartbeat(&mut self) {
        let head = O2Data {
            heartbeat: self.next,
            channel: CHANNEL,
            configures: false,
        };
        if let Err(error) = self.heartbeats.socket.try_send(head.encode().into()) {
            warn!(%error, "A heartbeat is not published");
        }
        self.next += 1;
        self.report.heartbeats += 1;
    }

    /// Tells subscribers where to push to, once all are there, and again if they do not come.
    fn configure(&mut self, now: Instant) -> Option<Instant> {
        let again = self.configured.map(|last| last + CONFIGURE_EVERY);
        if again.is_some_and(|again| now < again) {
            return again;
        }
        if self.heartbeats.socket.subscribers() < self.lanes.len() {
            return None;
        }
        let head = O2Data {
            configures: true,
            ..O2Data::default()
        };
        let message = Message::new(vec![head.encode(), self.channel.encode()]);
        if let Err(error) = self.heartbeats.socket.try_send(message) {
            warn!(%error, "Channels are not published");
        }
        self.report.configured += 1;
        self.configured = Some(now);
        info!(address = %self.channel.address, "FLPs of O2-Balancer2 get the address to push to");
        Some(now + CONFIGURE_EVERY)
    }

    fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        let ours = [&mut self.heartbeats, &mut self.feedback, &mut self.data];
        ours.into_iter()
            .chain(self.lanes.iter_mut().map(|lane| &mut lane.link))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = self
            .links()
            .map(|link| link.idle_time())
            .fold(timeout, Duration::min);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let links: Vec<&Link> = self.links().map(|link| &*link).collect();
        let mut fds: Vec<PollFd<'_>> = links
            .iter()
            .map(|link| PollFd::from_borrowed_fd(link.socket.as_fd(), PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for link in self.links() {
            link.socket.drive()?;
        }
        for peer in self.data.look() {
            let lane = self.lanes.iter_mut().find(|lane| lane.peer == Some(peer));
            if let Some(lane) = lane {
                lane.peer = None;
            }
        }
        self.heartbeats.look();
        self.feedback.look();
        for lane in &mut self.lanes {
            lane.link.look();
        }
        Ok(())
    }

    /// FLPs of the farm get what is on its way, and FLPs of O2-Balancer2 the last heartbeats.
    fn finish(&mut self) -> io::Result<()> {
        let end = Instant::now() + DRAIN;
        while self.forward() || self.waiting.is_some() {
            if Instant::now() >= end {
                warn!("Data are left that no FLP of the farm has taken");
                break;
            }
            self.wait(LOOK_EVERY)?;
        }
        self.hear_feedback();
        for link in self.links() {
            let left = end.saturating_duration_since(Instant::now());
            link.socket.finish(left)?;
        }
        Ok(())
    }
}

/// Returns the address on which another process could listen.
fn outside(config: &BridgeConfig) -> Option<String> {
    let ours = [&config.heartbeats, &config.feedback, &config.data];
    let endpoints = ours.into_iter().chain(&config.flps);
    let addresses = endpoints.filter_map(|endpoint| endpoint.parse::<Endpoint>().ok()?.host_port());
    let mut all = addresses.chain(config.metrics.clone());
    all.find(|address| is_outside(address))
}

/// Returns the address that FLPs connect to.
fn reachable(
    advertise: Option<SocketAddrV4>,
    bound: &Endpoint,
) -> Result<SocketAddrV4, BridgeError> {
    let own = bound.host_port().and_then(|address| address.parse().ok());
    let found: Option<SocketAddrV4> = advertise.or(own);
    found
        .filter(|address| !address.ip().is_unspecified())
        .ok_or_else(|| BridgeError::Advertise {
            endpoint: bound.to_string(),
        })
}
