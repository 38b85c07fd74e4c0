//! An FLP of the prior systems.

use super::queue::Lanes;
use super::wire::{self, FRAMING, MESSAGE, Message};
use super::{NodeConfig, NodeReport};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_sim::prior::{EpnList, Way};
use sheaf_testbed::clock;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long ZeroMQ waits before it connects again.
const RECONNECT: Duration = Duration::from_millis(100);
/// How long a writer waits for room in the kernel before it looks whether the run is over.
const LOOK: Duration = Duration::from_secs(2);

/// Obeys heartbeats until the ICN says that there are no more, then sends what waits.
///
/// # Errors
///
/// What sockets give, and `InvalidData` for a heartbeat to a channel that it was never told: the prior FLP ended, too.
pub(super) fn run(config: &NodeConfig) -> io::Result<NodeReport> {
    let control = super::icn::find(config.control)?;
    let hello = |is_ready| Message::Flp {
        index: config.index.into(),
        is_ready,
    };
    hello(false).write(&control)?;
    let mut outputs: Vec<Output> = Vec::new();
    let mut report = NodeReport::default();
    let mut way = Way::new(config.rules.private_iterators);
    let mut list = EpnList::all(0);
    let mut begin = None;
    while let Some(message) = Message::read(&control)? {
        match message {
            Message::Channels { count } => {
                outputs = connect_all(&control, count, config)?;
                list = EpnList::all(u16::try_from(outputs.len()).unwrap_or(u16::MAX));
                hello(true).write(&control)?;
            }
            Message::Heartbeat { heartbeat, channel } => {
                begin.get_or_insert_with(Instant::now);
                let named = u16::try_from(channel).unwrap_or(u16::MAX);
                let target = way.target(named, &list);
                let Some(output) = outputs.get(usize::from(target)) else {
                    return Err(wire::invalid(format!(
                        "heartbeat {heartbeat} for channel {channel}, which was never announced"
                    )));
                };
                if !output.lanes.try_push(0, heartbeat) {
                    report.queue_full += 1;
                }
                note(&mut report.targets, heartbeat, target);
                let waiting: usize = outputs.iter().map(|output| output.lanes.waiting()).sum();
                report.peak_bytes = report.peak_bytes.max(waiting as u64 * config.bytes);
            }
            Message::End => break,
            other => return Err(wire::invalid(format!("{other:?} from the ICN"))),
        }
    }
    for output in &outputs {
        output.is_ending.store(true, Ordering::SeqCst);
        output.lanes.end(0);
        output.lanes.close();
    }
    for output in outputs {
        // A writer that panicked has said so.
        let _ = output.thread.join();
        report.unsent += output.unsent.load(Ordering::SeqCst);
    }
    Message::End.write(&control)?;
    Ok(report)
}

/// Writes down to where `heartbeat` went.
fn note(targets: &mut Vec<u16>, heartbeat: u64, target: u16) {
    let at = usize::try_from(heartbeat).unwrap_or(usize::MAX);
    // No run is longer than that; later heartbeats are not compared.
    if at < 10_000_000 {
        targets.resize(targets.len().max(at + 1), u16::MAX);
        targets[at] = target;
    }
}

/// The way to one EPN: a queue of so many messages, and a thread that writes.
struct Output {
    lanes: Arc<Lanes<u64>>,
    is_ending: Arc<AtomicBool>,
    unsent: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

fn connect_all(control: &TcpStream, count: u64, config: &NodeConfig) -> io::Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for _ in 0..count {
        let Some(Message::Channel { index, address }) = Message::read(control)? else {
            return Err(wire::invalid("the list of channels is cut".to_owned()));
        };
        outputs.push(connect(index, address.into(), config)?);
    }
    Ok(outputs)
}

fn connect(index: u64, address: SocketAddr, config: &NodeConfig) -> io::Result<Output> {
    let most = usize::try_from(config.rules.queue_messages_max).unwrap_or(usize::MAX);
    let lanes = Arc::new(Lanes::new(most));
    lanes.add();
    let is_ending = Arc::new(AtomicBool::new(false));
    let unsent = Arc::new(AtomicU64::new(0));
    let mut writer = Writer {
        address,
        connection: Some(wire::connect(address)?),
        buffer: vec![b'a'; FRAMING + MESSAGE + usize::try_from(config.bytes).unwrap_or(0)],
        stall: Stall::draw(index, config),
        is_ending: is_ending.clone(),
    };
    let (queue, lost) = (lanes.clone(), unsent.clone());
    let thread = thread::spawn(move || {
        while let Some(heartbeat) = queue.pop() {
            if !writer.send(heartbeat) {
                lost.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    Ok(Output {
        lanes,
        is_ending,
        unsent,
        thread,
    })
}

/// A stream that stops once: what a packet that was lost at the wrong moment does to TCP.
struct Stall {
    at: Option<Duration>,
    time: Duration,
    begin: Option<Instant>,
}

impl Stall {
    fn draw(channel: u64, config: &NodeConfig) -> Self {
        let stalls = &config.rules.start_stalls;
        let seed = config.seed.wrapping_mul(1_000_003) ^ (u64::from(config.index) << 32) ^ channel;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let is_hit = rng.random_range(0.0..1.0) < stalls.probability;
        let at = Duration::try_from_secs_f64(rng.random_range(0.0..1.0) * stalls.within_s)
            .unwrap_or_default();
        Self {
            at: is_hit.then_some(at),
            time: Duration::from_millis(stalls.ms),
            begin: None,
        }
    }

    fn pass(&mut self) {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        if self.at.is_some_and(|at| begin.elapsed() >= at) {
            self.at = None;
            clock::pause(self.time);
        }
    }
}

struct Writer {
    address: SocketAddr,
    connection: Option<TcpStream>,
    buffer: Vec<u8>,
    stall: Stall,
    is_ending: Arc<AtomicBool>,
}

impl Writer {
    /// Sends the message of `heartbeat`; `false` if there is no receiver, and the run is over.
    fn send(&mut self, heartbeat: u64) -> bool {
        self.stall.pass();
        let head = Message::Heartbeat {
            heartbeat,
            channel: 0,
        };
        self.buffer[2..2 + MESSAGE].copy_from_slice(&head.encode());
        loop {
            let connection = match self.connection.take() {
                Some(connection) => Some(connection),
                None => wire::connect(self.address).ok(),
            };
            if let Some(mut connection) = connection
                && self.write_all(&mut connection).is_ok()
            {
                self.connection = Some(connection);
                return true;
            }
            if self.is_ending.load(Ordering::SeqCst) {
                return false;
            }
            clock::pause(RECONNECT);
        }
    }

    fn write_all(&self, connection: &mut TcpStream) -> io::Result<()> {
        connection.set_write_timeout(Some(LOOK))?;
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            match connection.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The receiver has not read for so long: at the end of the run that is the end.
                    if self.is_ending.load(Ordering::SeqCst) {
                        return Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
