//! A deterministic network inside one process, for tests and the simulator.
//!
//! Time is virtual, and every fault comes out of one seed: the same seed and the same calls give the same
//! events. Nothing waits; [`Transport::poll`] returns what has arrived by the present virtual time, and
//! [`Network::advance_to`] makes time pass.
//!
//! It is kinder than TCP in nothing that its users may rely on, and on request much worse: single frames of
//! a standing connection can be lost, doubled or overtaken, so that a test sees what the layers above make of it.

mod faults;
mod world;

pub use faults::Faults;

use crate::transport::{
    ConnId, ConnectError, Event, Frame, ListenError, ListenerId, SendError, Transport, WhenFull,
};
use bytes::Bytes;
use sheaf_protocol::{Limits, Timestamp};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use world::World;

/// The bounds of a memory network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The largest frame that is sent.
    pub limits: Limits,
    /// Bytes under way on one connection in one direction, until the receiver polls. One frame is always taken.
    pub queue_bytes_max: u64,
    /// Behaviour of a full queue, unless set for the connection.
    pub when_full: WhenFull,
    /// Longest wait of a connection for an answer.
    pub connect_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            queue_bytes_max: 8 << 20,
            when_full: WhenFull::Block,
            connect_limit: Duration::from_secs(3),
        }
    }
}

/// One endpoint of one network. A restarted process has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId(usize);

impl EndpointId {
    /// Counts the endpoints of a network in the order in which they were made, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// Manner in which an endpoint dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process dies and its machine lives: peers see a reset, and new connections are refused.
    Seen,
    /// The machine is gone: peers see nothing, and new connections time out.
    Silent,
}

/// Counts of frames on a network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames taken from senders.
    pub sent: u64,
    /// Frames delivered to receivers, the second of two included.
    pub delivered: u64,
    /// Frames that were lost, cut off, or on the way to the dead.
    pub vanished: u64,
    /// Frames that were sent twice.
    pub duplicated: u64,
    /// Frames that others could overtake.
    pub reordered: u64,
    /// Connections that were reset.
    pub resets: u64,
    /// Frames that full queues dropped.
    pub dropped: u64,
    /// Frames that were damaged.
    pub corrupted: u64,
}

/// A network. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<World>>);

/// One endpoint of a [`Network`], and the [`Transport`] of the node that lives there.
///
/// Addresses are any text; one that ends in ":0" gets a port of its own. Dropping an endpoint kills it.
#[derive(Debug)]
pub struct Memory {
    network: Network,
    index: usize,
}

impl Network {
    /// Creates a network at time 0 with the default [`Settings`].
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with_settings(seed, faults, Settings::default())
    }

    /// Creates a network at time 0.
    #[must_use]
    pub fn with_settings(seed: u64, faults: Faults, settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(World::new(seed, faults, settings))))
    }

    /// Returns a new endpoint. A killed one of the same name is replaced: its process has been restarted.
    ///
    /// # Panics
    ///
    /// If an endpoint of that name lives.
    #[must_use]
    pub fn endpoint(&self, name: &str) -> Memory {
        let index = self.world().endpoint(name);
        let index = index.unwrap_or_else(|| panic!("an endpoint \"{name}\" lives already"));
        Memory {
            network: self.clone(),
            index,
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world().now
    }

    /// Lets time pass until `now` and delivers what is due by then. Time never goes back.
    pub fn advance_to(&self, now: Timestamp) {
        let mut world = self.world();
        world.now = world.now.max(now);
        world.deliver();
    }

    /// Returns when the next thing arrives somewhere, if anything is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.world().next_due()
    }

    /// Changes the faults for what is sent from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.world().faults = faults;
    }

    /// Lets everything vanish on the way from endpoint `from` to endpoint `to`, but not back.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.world().cut(from, to);
    }

    /// Lets everything vanish between two endpoints, what is under way included. No connection closes.
    pub fn cut(&self, a: &str, b: &str) {
        let mut world = self.world();
        world.cut(a, b);
        world.cut(b, a);
    }

    /// Breaks all connections between two endpoints: both see a reset.
    pub fn reset(&self, a: &str, b: &str) {
        self.world().reset(a, b);
    }

    /// Ends a cut, both ways. What vanished does not come back.
    pub fn heal(&self, a: &str, b: &str) {
        let mut world = self.world();
        world.heal(a, b);
        world.heal(b, a);
    }

    /// Ends an endpoint, if it lives. What it sent before still arrives.
    pub fn kill(&self, name: &str, death: Death) {
        let mut world = self.world();
        if let Some(index) = world.find(name) {
            world.kill(index, death);
        }
    }

    /// The machine of a dead endpoint is up again, though no process is started on it: it answers with resets.
    pub fn power_up(&self, name: &str) {
        self.world().power_up(name);
    }

    /// Stops the process of an endpoint: what is for it waits, and its peers notice nothing.
    pub fn freeze(&self, name: &str) {
        self.world().freeze(name, true);
    }

    /// Lets the process of an endpoint go on.
    pub fn thaw(&self, name: &str) {
        self.world().freeze(name, false);
    }

    /// Lets an endpoint get out `frames` more frames; what it sends beyond that vanishes. Its process dies between
    /// two messages: see [`frames_left`](Self::frames_left), and kill it then.
    pub fn limit_frames(&self, name: &str, frames: u32) {
        self.world().limit_frames(name, frames);
    }

    /// Returns how many frames a limited endpoint still gets out; `None` if it is not limited.
    #[must_use]
    pub fn frames_left(&self, name: &str) -> Option<u32> {
        self.world().frames_left(name)
    }

    /// Heads of the frames whose bodies were damaged since the last call, oldest first.
    #[must_use]
    pub fn take_corrupted(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.world().corrupted)
    }

    /// Connections that are open on at least one side whose endpoint lives.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.world().open_connections()
    }

    /// Returns what has happened so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.world().totals
    }

    /// Puts the endpoints for which something has come since their last poll into `news`, each once, in the order
    /// in which they were made. Frozen ones are left out until they thaw.
    pub fn news(&self, news: &mut Vec<EndpointId>) {
        self.world().news(news);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Which endpoint of its network it is.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        EndpointId(self.index)
    }
}

impl Drop for Memory {
    /// The process ends, and its peers see it.
    fn drop(&mut self) {
        self.network.world().kill(self.index, Death::Seen);
    }
}

impl Transport for Memory {
    fn listen(&mut self, address: &str) -> Result<(ListenerId, String), ListenError> {
        self.network
            .world()
            .listen(self.index, address)
            .ok_or_else(|| ListenError::Io {
                address: address.to_owned(),
                source: ErrorKind::AddrInUse.into(),
            })
    }

    fn connect(&mut self, address: &str) -> Result<ConnId, ConnectError> {
        Ok(self.network.world().connect(self.index, address))
    }

    fn send(&mut self, conn: ConnId, frame: Frame) -> Result<(), SendError> {
        self.network.world().send(self.index, conn, frame)
    }

    fn set_when_full(&mut self, conn: ConnId, when_full: WhenFull) {
        self.network
            .world()
            .set_when_full(self.index, conn, when_full);
    }

    fn close(&mut self, conn: ConnId) {
        self.network.world().close(self.index, conn);
    }

    fn finish(&mut self, conn: ConnId) {
        self.network.world().finish(self.index, conn);
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        self.network.world().queued_bytes(self.index, conn)
    }

    /// Never waits, whatever `timeout` says.
    fn poll(&mut self, events: &mut Vec<Event>, _timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        self.network.world().poll(self.index, events);
        Ok(())
    }
}
