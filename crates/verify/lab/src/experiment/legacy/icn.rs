//! The ICN of the prior systems.

use super::limiter::Pace;
use super::queue::Lanes;
use super::wire::{self, Message};
use super::{NodeConfig, NodeReport};
use sheaf_sim::prior::{self, Choice, EpnList, Turn};
use sheaf_testbed::clock;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// How long nodes may take to come.
const START_MAX: Duration = Duration::from_secs(20);
/// How long FLPs may take to send what waits, and EPNs to acknowledge it.
const LATE_MAX: Duration = Duration::from_secs(45);
/// Messages that wait for a subscriber at most: FairMQ's default.
const QUEUE_MAX: usize = 1000;

/// A connection to the ICN: it may not be there yet.
///
/// # Errors
///
/// What connecting gave last.
pub(super) fn find(address: SocketAddr) -> io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match wire::connect(address) {
            Err(_) if begin.elapsed() < START_MAX => clock::pause(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

/// When an acknowledgement came, of which heartbeat, over which connection.
type Ack = (Instant, u64, usize);

/// Something that a connection said, or that it is over (`None`).
struct Heard {
    connection: usize,
    at: Instant,
    message: Option<Message>,
}

struct Icn {
    heard: Receiver<Heard>,
    /// The writing ends of all connections, by number.
    connections: Vec<TcpStream>,
    comers: Receiver<TcpStream>,
    flps: BTreeMap<u64, usize>,
    epns: BTreeMap<u64, (usize, SocketAddrV4)>,
    acks: Vec<Ack>,
    ready: u16,
    over: Vec<usize>,
}

/// Waits for all nodes, publishes heartbeats, counts until the cut-off, and goes on counting what is late.
///
/// # Errors
///
/// What sockets give, and `TimedOut` if not all nodes come.
pub(super) fn run(config: &NodeConfig) -> io::Result<NodeReport> {
    let listener = wire::listen(config.control)?;
    // All that can be said of every heartbeat, and of nodes that come and go.
    let said_max = usize::try_from(config.heartbeats)
        .unwrap_or(0)
        .saturating_mul(2)
        .saturating_add(4096);
    let mut icn = Icn::at(listener, said_max);
    icn.await_that("all nodes", START_MAX, |icn| {
        icn.flps.len() == usize::from(config.flps) && icn.epns.len() == usize::from(config.epns)
    })?;
    icn.send_channels()?;
    icn.await_that("all FLPs", START_MAX, |icn| icn.ready == config.flps)?;

    let queues: Vec<Arc<Lanes<Message>>> = icn
        .flps
        .values()
        .map(|at| publish(&icn.connections[*at]))
        .collect::<io::Result<_>>()?;
    let choice = match config.is_fixed {
        true => Choice::Fixed,
        false => Choice::RoundRobin,
    };
    // The list of channels took one turn, and the first call steps on: heartbeat 0 goes to the third EPN.
    let mut rules = prior::Icn::new(choice, Turn::at(2), config.epns);
    // The list is made once: a dead EPN keeps its turn.
    let list = EpnList::all(config.epns);
    let mut pace = Pace::new(config.rate_hz, config.has_dead_band);
    let mut sent = Vec::new();
    for _ in 0..config.heartbeats {
        pace.wait();
        // Neither choice draws.
        let chosen = rules.beat(&list, |_| 0);
        let (heartbeat, channel) = (chosen.number, chosen.epn.into());
        sent.push(Instant::now());
        for queue in &queues {
            // PUB drops what a subscriber does not take.
            queue.try_push(0, Message::Heartbeat { heartbeat, channel });
        }
    }
    // The limiter waits after the last one, too.
    pace.wait();
    clock::pause(Duration::from_millis(config.rules.cutoff_ms));
    let cut = Instant::now();

    for queue in &queues {
        queue.push(0, Message::End);
        queue.end(0);
        queue.close();
    }
    let flps: Vec<usize> = icn.flps.values().copied().collect();
    icn.await_that("FLPs to send what waits", LATE_MAX, |icn| {
        flps.iter().all(|flp| icn.over.contains(flp))
    })?;
    for (at, _) in icn.epns.values() {
        // A node that is gone needs no notice.
        let _ = icn.connections[*at].shutdown(Shutdown::Write);
    }
    let epns: Vec<usize> = icn.epns.values().map(|(at, _)| *at).collect();
    // One that hangs never ends; what it has not said by now it will not say.
    let _ = icn.await_that("EPNs", Duration::from_secs(10), |icn| {
        epns.iter().all(|epn| icn.over.contains(epn))
    });
    Ok(icn.report(&sent, cut))
}

/// The queue to a subscriber, and the thread that empties it.
fn publish(connection: &TcpStream) -> io::Result<Arc<Lanes<Message>>> {
    let queue = Arc::new(Lanes::<Message>::new(QUEUE_MAX));
    queue.add();
    let (lanes, connection) = (queue.clone(), connection.try_clone()?);
    thread::spawn(move || {
        while let Some(message) = lanes.pop() {
            // A subscriber that is gone gets nothing.
            let _ = message.write(&connection);
        }
    });
    Ok(queue)
}

impl Icn {
    /// A thread that takes connections, and one for each that listens.
    fn at(listener: TcpListener, said_max: usize) -> Self {
        let (tell, heard) = mpsc::sync_channel(said_max);
        let (come, comers) = mpsc::sync_channel(4096);
        thread::spawn(move || {
            for (number, connection) in listener.incoming().map_while(Result::ok).enumerate() {
                let Ok(reader) = connection.try_clone() else {
                    continue;
                };
                let tell = tell.clone();
                // The main thread is there as long as the process is.
                let _ = come.send(connection);
                thread::spawn(move || listen(&reader, number, &tell));
            }
        });
        Self {
            heard,
            connections: Vec::new(),
            comers,
            flps: BTreeMap::new(),
            epns: BTreeMap::new(),
            acks: Vec::new(),
            ready: 0,
            over: Vec::new(),
        }
    }

    fn await_that(
        &mut self,
        what: &str,
        patience: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> io::Result<()> {
        let begin = Instant::now();
        while !is_so(self) {
            let left = patience.saturating_sub(begin.elapsed());
            let Ok(heard) = self.heard.recv_timeout(left) else {
                let text = format!("waited {} s for {what}", patience.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            };
            self.take_in(&heard);
        }
        Ok(())
    }

    fn take_in(&mut self, heard: &Heard) {
        self.connections.extend(self.comers.try_iter());
        match heard.message {
            Some(Message::Flp { is_ready: true, .. }) => self.ready += 1,
            Some(Message::Flp { index, .. }) => {
                self.flps.entry(index).or_insert(heard.connection);
            }
            Some(Message::Channel { index, address }) => {
                // One that comes again is not sent to FLPs: the list is made once.
                self.epns
                    .entry(index)
                    .or_insert((heard.connection, address));
            }
            Some(Message::Ack { heartbeat }) => {
                self.acks.push((heard.at, heartbeat, heard.connection));
            }
            Some(Message::End) | None => self.over.push(heard.connection),
            Some(Message::Heartbeat { .. } | Message::Channels { .. }) => {}
        }
    }

    fn send_channels(&self) -> io::Result<()> {
        for at in self.flps.values() {
            let mut connection = &self.connections[*at];
            let count = self.epns.len() as u64;
            Message::Channels { count }.write(&mut connection)?;
            for (index, (_, address)) in &self.epns {
                let channel = Message::Channel {
                    index: *index,
                    address: *address,
                };
                channel.write(&mut connection)?;
            }
        }
        Ok(())
    }

    fn report(&mut self, sent: &[Instant], cut: Instant) -> NodeReport {
        while let Ok(heard) = self.heard.try_recv() {
            self.take_in(&heard);
        }
        let since = |later: Instant, at: Instant| {
            u64::try_from(later.saturating_duration_since(at).as_nanos()).unwrap_or(u64::MAX)
        };
        let first = sent.first().copied().unwrap_or(cut);
        let last = sent.last().copied().unwrap_or(cut);
        let (counted, late): (Vec<Ack>, Vec<Ack>) =
            self.acks.iter().copied().partition(|(at, ..)| *at <= cut);
        let latency = |(at, heartbeat, _): &Ack| {
            let sent = sent.get(usize::try_from(*heartbeat).ok()?)?;
            Some(at.saturating_duration_since(*sent).as_secs_f64() * 1e6)
        };
        let by_epn =
            |connection: usize| counted.iter().filter(|(.., at)| *at == connection).count() as u64;
        NodeReport {
            heartbeats: sent.len() as u64,
            generation_ns: since(last, first),
            span_ns: counted
                .iter()
                .map(|(at, ..)| since(*at, first))
                .max()
                .unwrap_or(0),
            acks: counted.len() as u64,
            late: late.len() as u64,
            latencies_us: counted.iter().filter_map(latency).collect(),
            acks_by_epn: self.epns.values().map(|(at, _)| by_epn(*at)).collect(),
            ..NodeReport::default()
        }
    }
}

fn listen(connection: &TcpStream, number: usize, tell: &SyncSender<Heard>) {
    loop {
        // A connection that breaks is over.
        let message = Message::read(connection).ok().flatten();
        let heard = Heard {
            connection: number,
            at: Instant::now(),
            message,
        };
        let is_over = message.is_none();
        // The listener ends with the process.
        if tell.send(heard).is_err() || is_over {
            return;
        }
    }
}
