//! Clients of a load on sockets: one epoll loop, level-triggered, without threads.

mod client;
mod socket;
mod stream;

use crate::bucket::Bucket;
use crate::exchange::{Exchange, Rules};
use crate::fate::{Failure, Fate};
use crate::outcome::{Account, Outcome};
use crate::plan::{Load, Method};
use crate::tls::{self, TlsError};
use client::{Client, State};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustls::client::ClientConfig;
pub(crate) use socket::request;
use socket::{Interest, failure_of};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::Stream;
use thiserror::Error;

/// Most events taken at once.
const EVENTS: usize = 1024;
/// Most bytes of a body taken at once.
const PIECE_BYTES: usize = 1 << 20;
/// Pause of a client after a failure, so that a service that refuses all is not asked without end.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Reasons why a load cannot be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is nothing to ask for.
    #[error("found no target, expected at least one")]
    NoTarget,
    /// A range that is larger than its object, or of one whose size is not stated.
    #[error("found ranges of {range} bytes of objects of {} bytes, expected less", .object.map_or("unknown".to_owned(), |bytes| bytes.to_string()))]
    Range {
        /// Bytes of a range.
        range: u64,
        /// Bytes of an object.
        object: Option<u64>,
    },
    /// Targets are encrypted, and clients cannot be.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system gives no epoll, or ends it.
    #[error("cannot await events: {0}")]
    Epoll(#[from] Errno),
}

/// Edge of the measured window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The window opens.
    Opened,
    /// The window closes.
    Closed,
}

/// Runs `load` to its end. `on_mark` is called when the window opens and closes.
///
/// # Errors
///
/// All of [`RunError`]; what happens to single clients is in the outcome.
pub fn run(load: &Load, on_mark: &mut dyn FnMut(Mark)) -> Result<Outcome, RunError> {
    if load.targets.is_empty() {
        return Err(RunError::NoTarget);
    }
    if let Some(range) = load.range_bytes
        && load.object_bytes.is_none_or(|object| range > object)
    {
        let object = load.object_bytes;
        return Err(RunError::Range { range, object });
    }
    Engine::new(load)?.run(on_mark)
}

struct Engine<'a> {
    load: &'a Load,
    rules: Rules,
    epoll: OwnedFd,
    clients: Vec<Client>,
    /// Earliest time at which each client wants to be looked at, and at times later ones.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    account: Account,
    /// Connections, made or in the making.
    held: u32,
    /// Target of the next transfer.
    turn: usize,
    /// Names of targets, for answers that name no server.
    target_names: Vec<usize>,
    random: Xoshiro256PlusPlus,
    /// For encrypted targets, if there are some.
    tls: Option<Arc<ClientConfig>>,
    /// Never read, and written by TLS alone: else the kernel discards what would come here.
    sink: Vec<u8>,
    piece: Vec<u8>,
    zeros: Vec<u8>,
}

impl<'a> Engine<'a> {
    fn new(load: &'a Load) -> Result<Self, RunError> {
        let now = Instant::now();
        let mut account = Account::new(load.clients);
        let names = load.targets.iter().map(|target| target.address.to_string());
        let target_names = names.map(|name| account.names.index_of(&name)).collect();
        let begin_of = |client: u32| {
            let share = f64::from(client) / f64::from(load.clients.max(1));
            now + load.ramp.mul_f64(share)
        };
        let clients: Vec<Client> = (0..load.clients)
            .map(|client| Client::new(begin_of(client)))
            .collect();
        let is_encrypted = load.targets.iter().any(|target| target.is_tls);
        let tls = is_encrypted.then(|| tls::config(&load.tls)).transpose()?;
        let mut engine = Self {
            load,
            tls,
            rules: Rules::of(load),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timers: BinaryHeap::with_capacity(clients.len()),
            clients,
            account,
            held: 0,
            turn: load.first_target,
            target_names,
            random: Xoshiro256PlusPlus::seed_from_u64(load.seed),
            sink: vec![0; PIECE_BYTES],
            piece: vec![0; 4096],
            zeros: if load.method == Method::Put {
                vec![0; 256 << 10]
            } else {
                Vec::new()
            },
        };
        for index in 0..engine.clients.len() {
            engine.queue(index);
        }
        Ok(engine)
    }

    fn run(mut self, on_mark: &mut dyn FnMut(Mark)) -> Result<Outcome, RunError> {
        let opens = Instant::now() + self.load.ramp + self.load.warm_up;
        let mut opened = None;
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let now = Instant::now();
            if opened.is_none() && now >= opens {
                opened = Some(now);
                on_mark(Mark::Opened);
            }
            let since = opened.map(|opened| now - opened);
            if let Some(since) = since.filter(|since| *since >= self.load.window) {
                on_mark(Mark::Closed);
                return Ok(self.finish(now, since));
            }
            self.account.set_window(since);
            self.fire(now);
            let edge = opened.map_or(opens, |opened| opened + self.load.window);
            let next = self
                .timers
                .peek()
                .map_or(edge, |Reverse((at, _))| edge.min(*at));
            let wait = next.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(wait).map_err(|_| Errno::INVAL)?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64()).expect("it was an index");
                self.handle(index, event.flags, now);
            }
        }
    }

    /// Ends all transfers under way.
    fn finish(mut self, now: Instant, length: Duration) -> Outcome {
        self.account.set_window(None);
        for index in 0..self.clients.len() {
            if self.clients[index].state != State::Idle {
                let latency = now - self.clients[index].began;
                let server = self.server(index);
                self.account.add_fate(Fate::Cut, server, latency);
            }
        }
        self.account.finish(length)
    }

    /// Looks at the clients whose time has come.
    fn fire(&mut self, now: Instant) {
        while let Some(Reverse((at, index))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let client = &mut self.clients[index];
            if client.queued == Some(at) {
                client.queued = None;
            }
            if client.wake > now {
                self.queue(index);
                continue;
            }
            match client.state {
                State::Idle => self.begin(index, now),
                State::Paused => {
                    client.state = State::Running;
                    client.wake = now + self.load.idle_timeout;
                    self.queue(index);
                    self.look(index, now);
                    // What TLS has read already makes no event.
                    let stream = self.clients[index].stream.as_ref();
                    if stream.is_some_and(Stream::has_buffer) {
                        self.receive(index, now, false);
                    }
                }
                State::Connecting => self.fail(index, Failure::NoConnection, now),
                State::Running => self.fail(index, Failure::Stalled, now),
            }
        }
    }

    /// Makes sure that the client `index` is looked at when it wants to be.
    fn queue(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.queued.is_none_or(|queued| queued > client.wake) {
            client.queued = Some(client.wake);
            self.timers.push(Reverse((client.wake, index)));
        }
    }

    fn handle(&mut self, index: usize, flags: epoll::EventFlags, now: Instant) {
        let is_hung = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        match self.clients[index].state {
            // The server has closed a connection that waits for its next request.
            State::Idle => self.close(index),
            State::Connecting => self.connected(index, now),
            State::Running => {
                if flags.contains(epoll::EventFlags::OUT) && !is_hung {
                    self.send(index, now);
                }
                // It may have failed, or be paused.
                let is_running = self.clients[index].state == State::Running;
                if is_running && (flags.contains(epoll::EventFlags::IN) || is_hung) {
                    self.receive(index, now, false);
                }
            }
            // Not asked for, so it is the end of the connection: the rest is taken, or the error.
            State::Paused => {
                self.clients[index].state = State::Running;
                self.receive(index, now, true);
            }
        }
    }

    /// Begins the next transfer of the client `index`.
    fn begin(&mut self, index: usize, now: Instant) {
        self.account.add_start();
        let client = &mut self.clients[index];
        client.began = now;
        client.is_reused = client.stream.is_some();
        if !client.is_reused {
            client.target = self.turn % self.load.targets.len();
            self.turn += 1;
        }
        if client.bucket.is_none() {
            let rate = self.load.rate_bytes_per_s;
            client.bucket = rate.map(|rate| Bucket::new(rate, now));
        }
        self.ask(index);
        if self.clients[index].is_reused {
            self.start(index, now);
        } else {
            self.connect(index, now);
        }
    }

    /// Writes the request of the client `index`.
    fn ask(&mut self, index: usize) {
        let range = self.load.range_bytes.zip(self.load.object_bytes);
        let range = range.map(|(range, object)| {
            let first = self.random.random_range(0..=object - range);
            (first, first + range.max(1) - 1)
        });
        let number = self.load.first_client as usize + index;
        let client = &mut self.clients[index];
        client.request = socket::request(self.load, client.target, number, range);
        let body = match self.load.method {
            Method::Put => self.load.object_bytes.unwrap_or(0),
            Method::Get | Method::Head => 0,
        };
        client.exchange = Exchange::new(client.request.len() as u64 + body);
        client.has_first_byte = false;
    }

    fn connect(&mut self, index: usize, now: Instant) {
        let target = &self.load.targets[self.clients[index].target];
        match Stream::connect(target, self.load, self.tls.as_ref()) {
            Ok(stream) => {
                let added = epoll::add(
                    &self.epoll,
                    &stream,
                    epoll::EventData::new_u64(index as u64),
                    Interest::Out.flags(),
                );
                let client = &mut self.clients[index];
                client.state = State::Connecting;
                client.stream = Some(stream);
                client.interest = Interest::Out;
                client.wake = now + self.load.connect_timeout;
                self.held += 1;
                match added {
                    Ok(()) => self.queue(index),
                    Err(_) => self.fail(index, Failure::NoRoom, now),
                }
            }
            Err(error) => self.fail(index, failure_of(error), now),
        }
    }

    fn connected(&mut self, index: usize, now: Instant) {
        let client = &self.clients[index];
        let Some(stream) = &client.stream else {
            return;
        };
        if let Err(error) = stream.check() {
            self.fail(index, failure_of(error), now);
            return;
        }
        self.account.add_connection(now - client.began, self.held);
        self.start(index, now);
    }

    /// Sends the request over the connection that the client `index` has.
    fn start(&mut self, index: usize, now: Instant) {
        let client = &mut self.clients[index];
        client.state = State::Running;
        client.asked = now;
        client.wake = now + self.load.idle_timeout;
        self.queue(index);
        self.send(index, now);
    }

    /// Asks for the events that the client `index` waits for.
    fn look(&mut self, index: usize, now: Instant) {
        let client = &mut self.clients[index];
        let Some(stream) = &client.stream else {
            return;
        };
        let interest = match client.state {
            State::Paused => Interest::None,
            _ if client.exchange.unsent() > 0 || stream.wants_write() => Interest::Both,
            _ => Interest::In,
        };
        if client.interest == interest {
            return;
        }
        client.interest = interest;
        let data = epoll::EventData::new_u64(index as u64);
        if epoll::modify(&self.epoll, stream, data, interest.flags()).is_err() {
            self.fail(index, Failure::NoRoom, now);
        }
    }

    fn send(&mut self, index: usize, now: Instant) {
        let client = &mut self.clients[index];
        let unsent = client.exchange.unsent();
        let Some(stream) = &mut client.stream else {
            return;
        };
        if unsent == 0 {
            match stream.flush() {
                Ok(()) => self.look(index, now),
                Err(error) => self.fail(index, failure_of(error), now),
            }
            return;
        }
        let body = match self.load.method {
            Method::Put => self.load.object_bytes.unwrap_or(0),
            Method::Get | Method::Head => 0,
        };
        // The request stands before the body.
        let head_left = usize::try_from(unsent.saturating_sub(body)).unwrap_or(0);
        let sent = if head_left > 0 {
            stream.send(&client.request[client.request.len() - head_left..])
        } else {
            let allowed = match &mut client.bucket {
                Some(bucket) => bucket.allowed(now),
                None => u64::MAX,
            };
            if allowed == 0 {
                self.pause(index, now);
                return;
            }
            let bytes = unsent.min(allowed).min(self.zeros.len() as u64);
            stream.send(&self.zeros[..usize::try_from(bytes).unwrap_or(0)])
        };
        match sent {
            Ok(bytes) => {
                let of_body = if head_left > 0 { 0 } else { bytes as u64 };
                client.exchange.handle_sent(bytes as u64, of_body);
                if let Some(bucket) = &mut client.bucket {
                    bucket.take(of_body);
                }
                client.wake = now + self.load.idle_timeout;
                let server = self.server(index);
                self.account.add_bytes(server, of_body);
                self.look(index, now);
            }
            Err(Errno::AGAIN | Errno::INTR) => self.look(index, now),
            // An answer may have come before the server closed.
            Err(Errno::PIPE) => self.receive(index, now, true),
            Err(error) => self.fail(index, failure_of(error), now),
        }
    }

    /// Takes what has come for the client `index`. `is_last`: no further event will tell of it, so the rate does not
    /// count.
    fn receive(&mut self, index: usize, now: Instant, is_last: bool) {
        // One piece an event, so that all get their turn; more where no event tells of the rest.
        while self.receive_piece(index, now, is_last) {}
    }

    /// Takes one piece. Returns whether another one has to be looked for.
    fn receive_piece(&mut self, index: usize, now: Instant, is_last: bool) -> bool {
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else {
            return false;
        };
        let allowed = match &mut client.bucket {
            Some(bucket) if !is_last && self.load.method != Method::Put => bucket.allowed(now),
            _ => u64::MAX,
        };
        if allowed == 0 {
            self.pause(index, now);
            return false;
        }
        let before = client.exchange.moved();
        let discardable = client.exchange.discardable().min(allowed);
        let received = if discardable > 0 {
            let most = usize::try_from(discardable).unwrap_or(usize::MAX);
            stream.discard(&mut self.sink, most)
        } else {
            let room = client.exchange.head_room().min(self.piece.len());
            stream.receive(&mut self.piece[..room])
        };
        let has_more = is_last || stream.has_buffer();
        let bytes = match received {
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => {
                if is_last {
                    self.fail(index, Failure::Reset, now);
                } else {
                    // TLS may have something to say.
                    self.look(index, now);
                }
                return false;
            }
            Err(error) => {
                self.fail(index, failure_of(error), now);
                return false;
            }
        };
        let took = if bytes == 0 {
            client.exchange.handle_end()
        } else {
            if !client.has_first_byte {
                client.has_first_byte = true;
                self.account.add_first_byte(now - client.asked);
            }
            if let Some(bucket) = &mut client.bucket {
                bucket.take(bytes as u64);
            }
            client.wake = now + self.load.idle_timeout;
            if discardable > 0 {
                client.exchange.handle_discarded(bytes as u64, &self.rules)
            } else {
                client.exchange.handle_bytes(
                    &self.piece[..bytes],
                    &self.rules,
                    &mut self.account.names,
                )
            }
        };
        let moved = client.exchange.moved() - before;
        let is_done = client.exchange.is_done();
        let is_unsent = client.exchange.unsent() > 0;
        let server = self.server(index);
        self.account.add_bytes(server, moved);
        match took {
            Err(failure) => self.fail(index, failure, now),
            // A success for half an upload is none.
            Ok(()) if is_done && is_unsent => self.fail(index, Failure::BadAnswer, now),
            Ok(()) if is_done => self.end(index, Fate::Finished, now),
            Ok(()) => return has_more,
        }
        false
    }

    /// Lets the client `index` wait until its rate allows more.
    fn pause(&mut self, index: usize, now: Instant) {
        let client = &mut self.clients[index];
        let Some(bucket) = &client.bucket else {
            return;
        };
        client.state = State::Paused;
        client.wake = bucket.ready_at();
        self.queue(index);
        self.look(index, now);
    }

    fn fail(&mut self, index: usize, failure: Failure, now: Instant) {
        let client = &self.clients[index];
        let is_closed = matches!(failure, Failure::NoAnswer | Failure::Reset);
        if client.is_reused && client.exchange.is_unanswered() && is_closed {
            // The server closed while the request was under way, as it may: asked again on a connection of its own.
            self.account.add_reconnect();
            self.close(index);
            self.clients[index].is_reused = false;
            self.ask(index);
            self.connect(index, now);
            return;
        }
        self.end(index, Fate::Failed(failure), now);
    }

    fn end(&mut self, index: usize, fate: Fate, now: Instant) {
        let server = self.server(index);
        let client = &mut self.clients[index];
        self.account.add_fate(fate, server, now - client.began);
        client.state = State::Idle;
        let is_finished = fate == Fate::Finished;
        if !(is_finished && self.load.keeps_alive && client.exchange.keeps_alive()) {
            self.close(index);
        }
        let mut pause = self.load.think;
        if !pause.is_zero() {
            pause = pause.mul_f64(self.random.random_range(0.5..1.5));
        }
        if !is_finished {
            pause = pause.max(AFTER_FAILURE);
        }
        // By the timer also without a pause: no client is called from within itself, however fast it fails.
        self.clients[index].wake = now + pause;
        self.queue(index);
    }

    fn close(&mut self, index: usize) {
        // Dropped, it leaves the epoll by itself.
        if self.clients[index].stream.take().is_some() {
            self.held -= 1;
        }
    }

    fn server(&self, index: usize) -> usize {
        let client = &self.clients[index];
        let target = self.target_names[client.target];
        client.exchange.server().unwrap_or(target)
    }
}
