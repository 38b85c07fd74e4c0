//! STFs from outside: any readout can feed an FLP by the standard input, a Unix socket or TCP.
//!
//! A thread reads records (`docs/reference/feed.md`) from one producer at a time and puts them into a short queue. When
//! the FLP does not take them, the thread waits, the kernel's buffers fill, and the producer waits too. A record
//! that is none ends its connection, is logged and counted, and the next producer is served. A producer that is silent
//! for long while another one waits is replaced.

mod calls;
mod patience;
mod payloads;
mod room;

use super::Wake;
use super::record::{RecordError, read_record};
use super::stop::{Stop, Stopper, Waited, stop_cord};
pub(super) use calls::Calls;
use patience::{Patience, Producer, keep_alive};
pub(super) use payloads::Payloads;
pub(super) use room::Room;
use rustix::event::PollFlags;
use sheaf_protocol::{RunId, Stf, TfId};
use sheaf_transport::Arena;
use sheaf_transport::unix::UnixSocket;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// STFs that wait for the FLP. When there are more, the producer waits.
pub(crate) const QUEUE_STFS: usize = 8;
/// Default of the silence of a producer, in ms, after which one that waits takes its place.
pub(super) const IDLE_TIMEOUT_MS: u64 = 30_000;
/// How long to wait after a connection could not be accepted, for instance because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Output of a feed for the FLP.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// The next STF, in the order in which its producer wrote it.
    Stf(Stf),
    /// As before, of a producer that does not say which TF it is of: the next one. The id in it means nothing.
    Counted(Stf),
    /// TFs before this one of which there is no STF yet are given up: a producer did not give them in time.
    GivenUp(TfId),
    /// The producer of all STFs since the last one of these has gone: its name.
    Left(String),
    /// Nothing now.
    Nothing,
    /// Nothing any more. Only the standard input ends; a socket waits for the next producer.
    Ended,
}

/// Counts of a feed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Producers that connected.
    pub producers: u64,
    /// STFs that were read.
    pub stfs: u64,
    /// Producers that were cut off because of what they sent.
    pub refused: u64,
    /// Producers that were silent while another one waited, which took their place.
    pub replaced: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) producers: AtomicU64,
    pub(super) stfs: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) replaced: AtomicU64,
}

/// State of a feed in its thread.
pub(super) struct Hands {
    pub(super) stfs: SyncSender<Fed>,
    pub(super) stop: Stop,
    pub(super) counts: Arc<Counts>,
    pub(super) wake: Wake,
    /// Tells that the FLP has taken an STF.
    pub(super) room: Arc<Room>,
}

impl Hands {
    /// Nothing more comes.
    pub(super) fn end(self) {
        let Self { stfs, wake, .. } = self;
        drop(stfs); // First the end, then the wake: the woken thread has to find it.
        wake();
    }
}

/// A thread that reads STFs, and the queue between it and the FLP.
pub struct Feed {
    /// Taken when the feed is dropped, so that a waiting thread finds the other end closed.
    stfs: Option<Receiver<Fed>>,
    room: Arc<Room>,
    stopper: Option<Stopper>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
    address: Option<SocketAddr>,
    has_ids: bool,
    /// Heartbeats for the program that the FLP is a part of.
    calls: Option<Arc<Calls>>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// Reads the standard input until it ends, into `memory`. `wake` is called for each STF and at the end.
    ///
    /// # Errors
    ///
    /// If there is no standard input, or no thread can be had.
    pub fn stdin(stf_bytes_max: u64, memory: &Arc<Arena>, wake: Wake) -> io::Result<Self> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        let origin = Origin::Once(stdin.into());
        let mut feed = Self::start(origin, stf_bytes_max, Duration::ZERO, memory, wake)?;
        // Another process may take what was ready to be read: then the thread waits where no stop reaches it.
        feed.thread = None;
        Ok(feed)
    }

    /// Listens at a Unix socket, and reads into `memory`. `wake` is called for each STF. A producer that is silent for
    /// `idle_timeout` is replaced by one that waits; zero: never.
    ///
    /// # Errors
    ///
    /// If the process cannot listen at `path`, or no thread can be had.
    pub fn unix(
        path: &Path,
        stf_bytes_max: u64,
        idle_timeout: Duration,
        memory: &Arc<Arena>,
        wake: Wake,
    ) -> io::Result<Self> {
        let socket = UnixSocket::bind(path)?;
        info!(path = %path.display(), "Listening for STFs");
        Self::start(
            Origin::Unix(socket),
            stf_bytes_max,
            idle_timeout,
            memory,
            wake,
        )
    }

    /// Listens at a TCP address, and reads into `memory`. `wake` is called for each STF. A producer that is silent for
    /// `idle_timeout` is replaced by one that waits; zero: never.
    ///
    /// # Errors
    ///
    /// If the process cannot listen at `address`, or no thread can be had.
    pub fn tcp(
        address: &str,
        stf_bytes_max: u64,
        idle_timeout: Duration,
        memory: &Arc<Arena>,
        wake: Wake,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        info!(%address, "Listening for STFs");
        let mut feed = Self::start(
            Origin::Tcp(listener),
            stf_bytes_max,
            idle_timeout,
            memory,
            wake,
        )?;
        feed.address = Some(address);
        Ok(feed)
    }

    fn start(
        origin: Origin,
        stf_bytes_max: u64,
        idle_timeout: Duration,
        memory: &Arc<Arena>,
        wake: Wake,
    ) -> io::Result<Self> {
        let payloads = Payloads::new(memory.clone())?;
        Self::spawn(wake, move |hands| {
            let reading = Reading {
                hands,
                payloads,
                stf_bytes_max,
                idle_timeout,
            };
            reading.run(&origin);
        })
    }

    /// A feed whose thread does `work`.
    pub(super) fn spawn(wake: Wake, work: impl FnOnce(Hands) + Send + 'static) -> io::Result<Self> {
        let (mut feed, hands) = Self::with_hands(wake)?;
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || work(hands))?;
        feed.thread = Some(thread);
        Ok(feed)
    }

    /// A feed without a thread, and what feeds it.
    pub(super) fn with_hands(wake: Wake) -> io::Result<(Self, Hands)> {
        let (sender, stfs) = sync_channel(QUEUE_STFS);
        let (stopper, stop) = stop_cord()?;
        let (counts, room) = (Arc::new(Counts::default()), Arc::new(Room::new()?));
        let hands = Hands {
            stfs: sender,
            stop,
            counts: counts.clone(),
            wake,
            room: room.clone(),
        };
        let feed = Self {
            stfs: Some(stfs),
            room,
            stopper: Some(stopper),
            thread: None,
            counts,
            address: None,
            has_ids: true,
            calls: None,
        };
        Ok((feed, hands))
    }

    /// Returns what is ready now.
    pub fn try_next(&mut self) -> Fed {
        match self.stfs.as_ref().map(Receiver::try_recv) {
            Some(Ok(fed)) => {
                self.room.wake();
                fed
            }
            Some(Err(TryRecvError::Empty)) => Fed::Nothing,
            Some(Err(TryRecvError::Disconnected)) | None => Fed::Ended,
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> FeedStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FeedStats {
            producers: load(&self.counts.producers),
            stfs: load(&self.counts.stfs),
            refused: load(&self.counts.refused),
            replaced: load(&self.counts.replaced),
        }
    }

    /// Returns whether producers give the TF ids; without them, the FLP counts.
    #[must_use]
    pub fn has_ids(&self) -> bool {
        self.has_ids
    }

    pub(super) fn set_counted(&mut self) {
        self.has_ids = false;
    }

    pub(super) fn set_address(&mut self, address: Option<SocketAddr>) {
        self.address = address;
    }

    pub(super) fn set_calls(&mut self, calls: Arc<Calls>) {
        self.calls = Some(calls);
    }

    /// Returns whether the FLP is part of the program that feeds it: the FLP leaves the farm when that has ended.
    #[must_use]
    pub fn is_program(&self) -> bool {
        self.calls.is_some()
    }

    /// Returns whether the program that feeds it awaits heartbeats, and begins wherever the run does.
    #[must_use]
    pub fn awaits_heartbeats(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.is_awaited())
    }

    /// Notes which TFs the heartbeats of `run` have called for.
    pub fn note_called(&self, run: RunId, called: Range<TfId>) {
        if let Some(calls) = &self.calls {
            calls.note(run, called);
        }
    }

    /// Where it listens for TCP, with the actual port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stopper = None;
        self.stfs = None;
        if let Some(calls) = &self.calls {
            calls.end();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// Where producers come from.
enum Origin {
    Once(File),
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Origin {
    /// Returns what is readable while a producer waits; `None` if there is only one.
    fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Once(_) => None,
            Self::Unix(socket) => Some(socket.as_fd()),
            Self::Tcp(listener) => Some(listener.as_fd()),
        }
    }

    /// Returns the next producer.
    fn accept(&self) -> io::Result<Producer> {
        let (peer, stream) = match self {
            Self::Once(_) => return Err(io::ErrorKind::WouldBlock.into()),
            Self::Unix(socket) => ("a Unix socket".to_owned(), OwnedFd::from(socket.accept()?)),
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                keep_alive(&stream)?;
                (peer.to_string(), stream.into())
            }
        };
        let stream = stream.into();
        Ok(Producer { peer, stream })
    }
}

/// The thread's side of a feed.
struct Reading {
    hands: Hands,
    payloads: Payloads,
    stf_bytes_max: u64,
    idle_timeout: Duration,
}

/// Why a producer is not served any longer.
enum Over {
    /// The next one can be served.
    Producer,
    /// This one is to be served next.
    Next(Producer),
    /// The FLP has gone.
    Feed,
}

impl Reading {
    fn run(mut self, origin: &Origin) {
        match origin {
            Origin::Once(file) => {
                self.serve("the standard input", file, origin);
            }
            Origin::Unix(socket) => self.serve_all(socket.as_fd(), origin),
            Origin::Tcp(listener) => self.serve_all(listener.as_fd(), origin),
        }
        self.hands.end();
    }

    fn serve_all(&mut self, listener: BorrowedFd<'_>, origin: &Origin) {
        loop {
            match self.hands.stop.wait(listener, PollFlags::IN, None) {
                Ok(Waited::Ready) => {}
                Ok(Waited::TimedOut | Waited::Second) => continue,
                Ok(Waited::Stopped) => return,
                Err(error) => {
                    warn!(%error, "Cannot wait for producers any longer");
                    return;
                }
            }
            match origin.accept() {
                Ok(mut producer) => loop {
                    match self.serve(&producer.peer, &producer.stream, origin) {
                        Over::Producer => break,
                        Over::Next(next) => producer = next,
                        Over::Feed => return,
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    warn!(%error, "A producer cannot be accepted");
                    if self.hands.stop.pause(ACCEPT_PAUSE).unwrap_or(true) {
                        return;
                    }
                }
            }
        }
    }

    /// Reads all records of one producer.
    fn serve(&mut self, peer: &str, stream: &File, origin: &Origin) -> Over {
        self.hands.counts.producers.fetch_add(1, Ordering::Relaxed);
        info!(peer, "A producer feeds STFs");
        let mut stream = Patience::new(peer, stream, &self.hands.stop, origin, self.idle_timeout);
        let mut reader = BufReader::with_capacity(64 << 10, &mut stream);
        let mut stfs = 0_u64;
        let mut has_memory = true;
        let mut take = |bytes| {
            let block = self.payloads.take(bytes, &self.hands.stop);
            has_memory = block.is_some();
            block
        };
        let outcome = loop {
            match read_record(&mut reader, self.stf_bytes_max, &mut take) {
                Ok(Some(stf)) => {
                    stfs += 1;
                    self.hands.counts.stfs.fetch_add(1, Ordering::Relaxed);
                    if self.hands.stfs.send(Fed::Stf(stf)).is_err() {
                        return Over::Feed;
                    }
                    (self.hands.wake)();
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let unread = reader.buffer().len() as u64;
        let offset = stream.read_bytes - unread;
        let next = stream.candidate.take();
        match outcome {
            _ if stream.is_stopped || !has_memory => return Over::Feed,
            _ if stream.is_replaced => {
                self.hands.counts.replaced.fetch_add(1, Ordering::Relaxed);
                let silent_s = stream.silent_s();
                let by = next.as_ref().map_or("", |next| &next.peer);
                warn!(
                    peer,
                    silent_s, by, stfs, offset, "A silent producer is replaced by one that waited"
                );
            }
            // The FLP logs it, with what it has taken and refused.
            Ok(()) => {}
            Err(error) => self.refuse(peer, stfs, offset, &error),
        }
        if self.hands.stfs.send(Fed::Left(peer.to_owned())).is_err() {
            return Over::Feed;
        }
        (self.hands.wake)();
        next.map_or(Over::Producer, Over::Next)
    }

    fn refuse(&self, peer: &str, stfs: u64, offset: u64, error: &RecordError) {
        self.hands.counts.refused.fetch_add(1, Ordering::Relaxed);
        warn!(peer, stfs, offset, %error, "A producer is cut off");
    }
}

#[cfg(test)]
pub(super) mod tests;
