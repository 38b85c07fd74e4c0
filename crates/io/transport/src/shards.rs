//! An endpoint with several event loops: one for control streams, in the thread of the caller, and others for bulk
//! data, each in a thread of its own.
//!
//! Every loop is a [`Tcp`] over the same arena. Connections that [carry bulk data](Transport::connect_bulk) are dealt
//! to the loops of data, a new one to that with the fewest, and stay there; so the frames of one connection keep their
//! order. Pulses and all other control messages have a loop of their own and never wait behind data. The caller sees
//! one endpoint: orders go to the loops, and events come back, in batches (`passage`).
//!
//! Without loops of data it is a [`Tcp`] and nothing more.

mod line;
mod passage;
mod remote;
mod worker;

use crate::arena::Arena;
use crate::handover::Holdings;
use crate::tcp::{
    CloseNotice, REFUSALS_MAX, Refusal, Security, SocketOptions, Stats, Tcp, TcpConfig, Waker,
};
use crate::transport::{
    ConnId, ConnectError, Event, Frame, ListenError, ListenerId, SendError, Transport, WhenFull,
};
use line::Line;
use passage::{News, Order, Passage};
use remote::{Pushed, Remote};
use rustc_hash::FxHashMap;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use sheaf_auth::Identity;
use sheaf_protocol::Limits;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// Most loops of data of one endpoint.
pub const LOOPS_MAX: usize = 64;

/// Orders that are kept for one loop before they are passed on in any case.
const ORDERS_MAX: usize = 256;

/// Ids that a loop gives to sockets of its own begin here; those of connections count up from 0.
const OWN_IDS: u64 = 1 << 56;

/// Event loops for bulk data of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// Number of loops, [`LOOPS_MAX`] at most. With 0 all connections are served in the thread of the caller.
    pub count: usize,
    /// CPUs by number, one for each loop in turn. Without any, loops run wherever the caller may.
    pub cpus: Vec<usize>,
}

impl From<usize> for Loops {
    fn from(count: usize) -> Self {
        let cpus = Vec::new();
        Self { count, cpus }
    }
}

/// Calls `start` on `cpu`, where the threads stay that it starts. The caller goes on where it was.
fn on_cpu<T>(cpu: Option<usize>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cpu) = cpu else {
        return start();
    };
    let mut only = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        let found = format!("found CPU {cpu}, expected 0 to {}", CpuSet::MAX_CPU - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, found));
    }
    only.set(cpu);
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

/// A [`Transport`] over TCP and Unix sockets with any number of event loops for bulk data.
pub struct Sharded {
    /// Loop of the caller.
    control: Tcp,
    loops: Vec<Loop>,
    /// Connections that the loops serve.
    remotes: FxHashMap<ConnId, Remote>,
    /// Connections of these that keep something for their loop.
    keeping: Vec<ConnId>,
    /// News that were taken, to be gone through; its memory is used again.
    news: Vec<News>,
    refusals: Vec<Refusal>,
    /// Counts of what the loops have never seen.
    stats: Stats,
}

/// One loop of data.
struct Loop {
    passage: Arc<Passage>,
    waker: Waker,
    /// Orders that are not passed on yet.
    orders: Vec<Order>,
    /// Connections that it serves.
    conns: usize,
    thread: Option<JoinHandle<()>>,
    /// Id that the kernel has for the thread.
    thread_id: u32,
}

impl Loop {
    fn order(&mut self, order: Order) {
        self.orders.push(order);
        if self.orders.len() >= ORDERS_MAX {
            self.pass_orders();
        }
    }

    fn pass_orders(&mut self) {
        if !self.orders.is_empty() {
            self.passage.order(&mut self.orders);
            // Fails only without an event descriptor, which the loop has had since it was made.
            let _ = self.waker.wake();
        }
    }
}

impl Sharded {
    /// Creates an endpoint with `loops` event loops for bulk data, and one in the thread of the caller. Bodies are
    /// placed in `arena`. With 0 all connections are served in the thread of the caller.
    ///
    /// # Errors
    ///
    /// If the operating system gives no epoll, event descriptor, socket or thread, or a CPU of `loops` is none that
    /// this process may use.
    pub fn new(
        config: TcpConfig,
        arena: &Arc<Arena>,
        security: &Security,
        loops: impl Into<Loops>,
    ) -> io::Result<Self> {
        let Loops { count, cpus } = loops.into();
        let loops = count.min(LOOPS_MAX);
        let each = |most: usize| most.div_ceil(loops.max(1)).max(1);
        let of_loop = TcpConfig {
            greeting_max: each(config.greeting_max),
            handshakes_max: each(config.handshakes_max),
            heap_bytes_max: config.heap_bytes_max / loops.max(1) as u64,
            ..config.clone()
        };
        // What the loops have is not there twice.
        let of_caller = TcpConfig {
            heap_bytes_max: if loops > 0 { 0 } else { config.heap_bytes_max },
            ..config
        };
        let control = Tcp::with_security(of_caller, Arc::clone(arena), security.clone())?;
        let mut sharded = Self {
            control,
            loops: Vec::new(),
            remotes: FxHashMap::default(),
            keeping: Vec::new(),
            news: Vec::new(),
            refusals: Vec::new(),
            stats: Stats::default(),
        };
        let mut cpus = cpus.into_iter().map(Some).cycle();
        for index in 0..loops {
            let mut tcp = Tcp::with_security(of_loop.clone(), Arc::clone(arena), security.clone())?;
            tcp.serve_others(OWN_IDS);
            tcp.share_holdings(sharded.control.holdings());
            let waker = tcp.waker();
            let passage = Arc::new(Passage::new(sharded.control.ringer()));
            let worker = Worker::new(tcp, Arc::clone(&passage));
            let thread = std::thread::Builder::new().name(format!("sheaf-data-{index}"));
            let (told, thread_id) = sync_channel(1);
            let run = move || {
                let _ = told.send(gettid().as_raw_nonzero().get().unsigned_abs());
                worker.run();
            };
            let thread = on_cpu(cpus.next().flatten(), || thread.spawn(run))?;
            let thread_id = thread_id.recv().map_err(io::Error::other)?;
            sharded.loops.push(Loop {
                passage,
                waker,
                orders: Vec::new(),
                conns: 0,
                thread: Some(thread),
                thread_id,
            });
        }
        Ok(sharded)
    }

    /// Returns the event loops for bulk data.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// Returns the ids that the kernel has for the threads of the loops, as in `/proc/self/task`.
    pub fn thread_ids(&self) -> impl Iterator<Item = u32> {
        self.loops.iter().map(|one| one.thread_id)
    }

    /// Returns the connections of each loop of data.
    pub fn connections_by_loop(&self) -> impl Iterator<Item = usize> {
        self.loops.iter().map(|one| one.conns)
    }

    /// Returns what has been counted so far, over all loops.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.control.stats();
        stats.add(self.stats);
        for one in &self.loops {
            stats.add(one.passage.stats());
        }
        stats
    }

    /// Returns the peers turned away since the last call, as [`Tcp::take_refusals`] does.
    pub fn take_refusals(&mut self) -> Vec<Refusal> {
        let mut refusals = self.control.take_refusals();
        refusals.append(&mut self.refusals);
        refusals
    }

    /// Sets what is said to peers whose connections end for what they did.
    pub fn set_close_notice(&mut self, close_notice: CloseNotice) {
        self.control.set_close_notice(close_notice);
        for one in &mut self.loops {
            one.order(Order::CloseNotice(close_notice));
        }
    }

    /// Returns the socket options in force, as [`Tcp::socket_options`] does.
    #[must_use]
    pub fn socket_options(&self) -> &SocketOptions {
        self.control.socket_options()
    }

    /// Returns the largest frame that is accepted, as [`Tcp::limits`] does.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.control.limits()
    }

    /// Returns a handle that ends the sleep in [`poll`](Transport::poll) from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.control.waker()
    }

    /// Has bodies that lie in `arena` lent to peers on this machine, as [`Tcp::lend`] does; `bytes_max` are lent at
    /// once over all loops.
    pub fn lend(&mut self, arena: &Arc<Arena>, bytes_max: u64) {
        let Some(lendable) = self.control.lend_one(arena, bytes_max) else {
            return;
        };
        for one in &mut self.loops {
            one.order(Order::Lend(lendable.clone()));
        }
    }

    /// Returns what peers have lent to this endpoint, as [`Tcp::holdings`] does.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        self.control.holdings()
    }

    /// Gives a new connection to the loop with the fewest, of several to the one that has moved the fewest bytes.
    fn deal(&mut self, conn: ConnId, order: impl FnOnce(Arc<Line>) -> Order) {
        let loops = self.loops.iter().enumerate();
        let least = loops.min_by_key(|(_, one)| (one.conns, one.passage.moved_bytes()));
        let Some((at, _)) = least else { return };
        let config = self.control.config();
        let remote = Remote::new(at, config.queue_bytes_max, config.when_full);
        let one = &mut self.loops[at];
        one.conns += 1;
        one.order(order(remote.line()));
        self.remotes.insert(conn, remote);
    }

    fn pass_orders(&mut self) {
        for one in &mut self.loops {
            one.pass_orders();
        }
    }

    /// Passes on what connections have kept for their loops: frames that a full queue could have dropped, and ends
    /// behind them.
    fn pass_kept(&mut self) {
        self.keeping.sort_unstable();
        self.keeping.dedup();
        let (remotes, loops) = (&mut self.remotes, &mut self.loops);
        self.keeping.retain(|conn| {
            let Some(remote) = remotes.get_mut(conn) else {
                return false;
            };
            for order in remote.orders_due(*conn) {
                loops[remote.at()].order(order);
            }
            remote.keeps()
        });
    }

    /// Passes on the end of a connection, behind all that it keeps.
    fn pass_end(&mut self, conn: ConnId) {
        let Some(remote) = self.remotes.get_mut(&conn) else {
            return;
        };
        for order in remote.orders_due(conn) {
            self.loops[remote.at()].order(order);
        }
        if remote.keeps() {
            self.keeping.push(conn);
        }
    }

    /// Takes the news of all loops, and puts events into `events`.
    fn take_news(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut news = std::mem::take(&mut self.news);
        for at in 0..self.loops.len() {
            self.loops[at].passage.take_news(&mut news)?;
            for one in news.drain(..) {
                self.handle(one, events);
            }
        }
        self.news = news;
        Ok(())
    }

    fn handle(&mut self, news: News, events: &mut Vec<Event>) {
        match news {
            News::Event { conn, event } => {
                let remote = self.remotes.get(&conn);
                let is_end = matches!(event, Event::Closed { .. });
                if remote.is_some_and(|remote| is_end || !remote.is_closing()) {
                    events.push(event);
                }
            }
            News::Proved { conn, identity } => {
                if let Some(remote) = self.remotes.get_mut(&conn) {
                    remote.identity = Some(*identity);
                }
            }
            News::Left { conn } => {
                let Some(remote) = self.remotes.get_mut(&conn) else {
                    return;
                };
                for order in remote.orders_due(conn) {
                    self.loops[remote.at()].order(order);
                }
                if remote.has_become_writable() {
                    events.push(Event::Writable { conn });
                }
            }
            News::PeerEnded { conn } => {
                if let Some(remote) = self.remotes.get_mut(&conn) {
                    remote.handle_peer_end();
                    self.pass_end(conn);
                }
            }
            News::Gone { conn } => {
                if let Some(remote) = self.remotes.remove(&conn) {
                    self.loops[remote.at()].conns -= 1;
                    self.control.end_dealt(conn);
                }
            }
            News::Refused(refusal) => {
                if self.refusals.len() < REFUSALS_MAX {
                    self.refusals.push(refusal);
                }
            }
        }
    }
}

impl Transport for Sharded {
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.control.listen(address)
    }

    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        self.control.connect(address)
    }

    fn listen_bulk(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        let (listener, actual) = self.control.listen_bulk(address)?;
        if !self.loops.is_empty() {
            self.control.deal_at(listener);
        }
        Ok((listener, actual))
    }

    fn connect_bulk(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        if self.loops.is_empty() {
            return self.control.connect_bulk(address);
        }
        let peer = self.control.aim(address, true)?;
        let conn = self.control.next_conn();
        self.deal(conn, |line| Order::Connect { conn, peer, line });
        Ok(conn)
    }

    fn identity(&self, conn: ConnId) -> Option<&Identity> {
        match self.remotes.get(&conn) {
            Some(remote) => remote.identity.as_ref(),
            None => self.control.identity(conn),
        }
    }

    fn admit(&mut self, conn: ConnId, head_bytes_max: u32) {
        match self.remotes.get(&conn) {
            // One that is finished already takes nothing more of its peer.
            Some(remote) if remote.is_open() => self.loops[remote.at()].order(Order::Admit {
                conn,
                head_bytes_max,
            }),
            Some(_) => {}
            None => self.control.admit(conn, head_bytes_max),
        }
    }

    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError> {
        let Some(remote) = self.remotes.get_mut(&conn) else {
            return self.control.send(conn, frame);
        };
        frame
            .check(&self.control.config().limits)
            .map_err(SendError::TooLarge)?;
        match remote.push(frame) {
            Pushed::Passed(frame) => {
                self.loops[remote.at()].order(Order::Send { conn, frame });
                Ok(())
            }
            Pushed::Kept { dropped } => {
                self.keeping.push(conn);
                self.stats.frames_dropped += dropped.frames;
                self.stats.bytes_dropped += dropped.bytes;
                Ok(())
            }
            Pushed::Full(frame) => {
                self.stats.frames_held_back += 1;
                Err(SendError::Full(frame))
            }
            Pushed::Closed => Err(SendError::Closed),
        }
    }

    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull) {
        match self.remotes.get_mut(&conn) {
            Some(remote) => remote.set_when_full(when_full),
            None => self.control.set_when_full(conn, when_full),
        }
    }

    fn close(&mut self, conn: ConnId) {
        let Some(remote) = self.remotes.get_mut(&conn) else {
            return self.control.close(conn);
        };
        if remote.close() {
            self.loops[remote.at()].order(Order::Close { conn });
        }
    }

    fn finish(&mut self, conn: ConnId) {
        let Some(remote) = self.remotes.get_mut(&conn) else {
            return self.control.finish(conn);
        };
        remote.finish();
        self.pass_end(conn);
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        match self.remotes.get(&conn) {
            Some(remote) => remote.queued_bytes(),
            None => self.control.queued_bytes(conn),
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        if self.loops.is_empty() {
            return self.control.poll(events, timeout);
        }
        self.pass_kept();
        self.pass_orders();
        let has_news = self.loops.iter().any(|one| one.passage.has_news());
        let timeout = match has_news {
            true => Some(Duration::ZERO),
            false => timeout,
        };
        self.control.poll(events, timeout)?;
        for dealt in self.control.take_dealt() {
            let conn = dealt.conn;
            self.deal(conn, |line| Order::Adopt { dealt, line });
        }
        self.take_news(events)?;
        self.pass_orders();
        Ok(())
    }
}

impl Drop for Sharded {
    fn drop(&mut self) {
        for one in &mut self.loops {
            one.pass_orders();
            one.passage.end();
            let _ = one.waker.wake();
        }
        for one in &mut self.loops {
            if let Some(thread) = one.thread.take() {
                // A loop that has panicked has said so, and its connections are closed.
                let _ = thread.join();
            }
        }
    }
}

impl std::fmt::Debug for Sharded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharded")
            .field("control", &self.control)
            .field("loops", &self.loops.len())
            .field("remotes", &self.remotes.len())
            .finish_non_exhaustive()
    }
}
