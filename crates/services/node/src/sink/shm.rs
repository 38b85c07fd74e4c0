//! Consumer processes of this machine that look at TFs where they lie: nothing is copied.
//!
//! Several may be connected. Each TF goes to one of them, to the one that has the fewest bytes at that moment. It
//! counts as delivered when the consumer has taken it, which consumers report before they read it; until then it
//! can be called back, from a consumer that has died or is slow, and goes to another one. What a consumer had taken
//! when it died is gone with it, but at ack level `processed`: then another one gets it, marked. The memory of a TF is
//! back when its consumer has dropped it, and until then is missing from the EPN's credits.
//!
//! With files of streams behind it, a TF that a consumer has returned goes to them, with the tags and the product that
//! came with it. It counts as delivered when they have it. One whose consumer died has the tag [`UNANSWERED`].

mod again;
mod consumer;
mod counters;
mod table;
mod troubles;

pub(super) use counters::METRICS;
pub use table::ShmSink;

use super::queue::Queue;
use super::streams::{ReturnEntry, StreamThread};
use super::worker::Failures;
use super::{
    Ack, DeliverError, Delivery, Memory, Opening, SinkError, SinkEvent, stated_of, taken_back,
};
use crate::check::path_for;
use crate::source::Wake;
use again::Again;
use bytes::Bytes;
use consumer::{Consumer, Seldom};
use counters::Counters;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::{RunId, Tf, TfId};
use sheaf_transport::handover::{Answer, Answers, Gave, Left, Lender};
use sheaf_transport::unix::UnixSocket;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use troubles::Troubles;

/// How long a consumer is waited for before its absence is logged.
const CONSUMER_WAIT: Duration = Duration::from_secs(1);
/// How long consumers have to take what is offered, and to release what they took, when the node ends.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_WAIT: Duration = Duration::from_secs(1);
/// When a TF is tried again that could not be offered for want of memory or descriptors.
const SHORT_WAIT: Duration = Duration::from_millis(100);
/// Tag of a TF that its consumer has not given back: it died, or the EPN ended before.
const UNANSWERED: &str = "unanswered";

/// State shared by node and thread.
#[derive(Default)]
struct State {
    queue: VecDeque<Tf<Bytes>>,
    /// TFs in the queue, and those that the thread has and no consumer has taken.
    untaken: usize,
    events: VecDeque<SinkEvent>,
    is_ending: bool,
    /// TFs to be given back that no consumer has been offered.
    recalled: Option<(RunId, BTreeSet<TfId>)>,
}

/// The node's side.
pub(super) struct ShmWorker {
    state: Arc<Mutex<State>>,
    tfs_max: usize,
    /// A byte: there is something in `state`.
    waker: UnixStream,
    thread: Option<JoinHandle<u64>>,
    /// Files for what consumers give back.
    files: Option<StreamThread>,
    troubles: Troubles,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing between lock and unlock can panic half-way.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the node.
fn ring(wake: &Mutex<Wake>) {
    (wake.lock().unwrap_or_else(PoisonError::into_inner))();
}

impl ShmWorker {
    /// Listens for consumers. At most `opening.queue_tfs` TFs wait to be taken.
    fn spawn(config: &ShmSink, opening: Opening) -> Result<Self, SinkError> {
        let path = path_for(&config.path, opening.target.epn.into());
        let (waker, rung) = UnixStream::pair().map_err(SinkError::Thread)?;
        for end in [&waker, &rung] {
            end.set_nonblocking(true).map_err(SinkError::Thread)?;
        }
        let wake = Arc::new(Mutex::new(opening.wake));
        let files = config.write.as_ref().map(|write| {
            let (node, bell) = (wake.clone(), waker.try_clone().map_err(SinkError::Thread)?);
            let opening = Opening {
                wake: Box::new(move || {
                    ring(&node);
                    // There may be room for TFs that consumers could get. A full socket wakes the thread as well.
                    let _ = (&bell).write(&[0]);
                }),
                target: opening.target,
                ack: opening.ack,
                queue_tfs: opening.queue_tfs,
                memory: opening.memory.clone(),
                registry: opening.registry.clone(),
                writers: None,
            };
            write.begin(opening.target.epn.into(), opening)
        });
        let files = files.transpose()?;
        let socket = UnixSocket::bind_packets(&path).map_err(|source| SinkError::Listen {
            path: path.clone(),
            source: source.into(),
        })?;
        let state = Arc::new(Mutex::new(State::default()));
        let hands = Hands {
            state: state.clone(),
            rung,
            socket,
            path,
            memory: opening.memory,
            consumers_max: usize::from(config.consumers_max),
            consumer_bytes_max: config.consumer_bytes_max,
            slow_after: Duration::from_millis(config.reclaim_ms),
            answers: config.answers(),
            intake: files.as_ref().map(StreamThread::return_entry),
            again: Again::new(opening.ack == Ack::Processed),
            consumers: Vec::new(),
            queue: VecDeque::new(),
            alone_since: Instant::now(),
            deaf_until: None,
            turned_away: Seldom::default(),
            short: Seldom::default(),
            failures: Failures::default(),
            has_failed: false,
            counters: Arc::new(Counters::new(&opening.registry)),
            wake,
        };
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || hands.run())
            .map_err(SinkError::Thread)?;
        Ok(Self {
            state,
            tfs_max: opening.queue_tfs.max(1) as usize,
            waker,
            thread: Some(thread),
            files,
            troubles: Troubles::default(),
        })
    }

    fn wake(&self) {
        // A full socket wakes the thread as well.
        let _ = (&self.waker).write(&[0]);
    }
}

impl Queue for ShmWorker {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        let mut state = lock(&self.state);
        let is_full = state.untaken >= self.tfs_max || state.events.len() >= 2 * self.tfs_max;
        if is_full || state.is_ending {
            return Err(tf);
        }
        state.queue.push_back(tf);
        state.untaken += 1;
        drop(state);
        self.wake();
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        loop {
            let own = lock(&self.state).events.pop_front();
            let (event, is_of_files) = match own {
                Some(event) => (event, false),
                None => (self.files.as_mut()?.poll()?, true),
            };
            let event = self.troubles.merge(event, is_of_files);
            if event.is_some() {
                return event;
            }
        }
    }

    fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        lock(&self.state).recalled = Some((run, tfs.clone()));
        self.wake();
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        lock(&self.state).is_ending = true;
        self.wake();
        match thread.join() {
            Ok(0) => {}
            Ok(tfs) => warn!(tfs, "The sink ends with TFs that no consumer has taken"),
            Err(_) => warn!("The thread of the sink has panicked"),
        }
        // Behind the last TF that came back.
        if let Some(files) = &mut self.files {
            files.finish();
        }
    }
}

impl Drop for ShmWorker {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The thread's side.
struct Hands {
    state: Arc<Mutex<State>>,
    rung: UnixStream,
    socket: UnixSocket,
    path: PathBuf,
    memory: Memory,
    consumers_max: usize,
    consumer_bytes_max: u64,
    slow_after: Duration,
    /// Answers that consumers may give to TFs.
    answers: Option<Answers>,
    /// Way to the files for what they give back.
    intake: Option<ReturnEntry>,
    again: Again,
    consumers: Vec<Consumer>,
    queue: VecDeque<Tf<Bytes>>,
    /// When there was a consumer last.
    alone_since: Instant,
    /// Time of the next attempt after a failed accept.
    deaf_until: Option<Instant>,
    turned_away: Seldom,
    short: Seldom,
    failures: Failures,
    has_failed: bool,
    counters: Arc<Counters>,
    wake: Arc<Mutex<Wake>>,
}

impl Hands {
    /// Returns the number of TFs that no consumer took in the end.
    fn run(mut self) -> u64 {
        while !self.is_asked_to_end() {
            // One time for all of a turn: what becomes due meanwhile is due in the next.
            let now = Instant::now();
            self.turn(now);
            self.notify_if_alone(now);
            self.sleep(now, None);
        }
        self.end()
    }

    fn turn(&mut self, now: Instant) {
        self.accept(now);
        self.take_in(now);
        self.call_back_from_slow(now);
        self.give(now);
    }

    /// Takes in what the node has put into the queue, and tells whether it ends.
    fn is_asked_to_end(&mut self) -> bool {
        let mut rings = [0; 64];
        while matches!((&self.rung).read(&mut rings), Ok(1..)) {}
        let (tfs, is_ending, recalled) = {
            let mut state = lock(&self.state);
            let recalled = state.recalled.take();
            (std::mem::take(&mut state.queue), state.is_ending, recalled)
        };
        self.queue.extend(tfs);
        if let Some((run, mut tfs)) = recalled {
            tfs.retain(|tf| !self.again.has(run, *tf));
            let back = taken_back(&mut self.queue, run, &tfs);
            let events = back.iter().map(SinkEvent::returned).collect();
            self.notify(events, back.len());
        }
        is_ending
    }

    fn accept(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| now < until) {
            return;
        }
        self.deaf_until = None;
        loop {
            let socket = match self.socket.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Who waits there would wake us at once, again and again.
                    self.deaf_until = Some(now + ACCEPT_WAIT);
                    warn!(%error, "No consumer can connect");
                    return;
                }
            };
            let pid = rustix::net::sockopt::socket_peercred(&socket).ok();
            let pid = pid.map(|peer| peer.pid.as_raw_nonzero().get());
            if self.consumers.len() >= self.consumers_max {
                if let Some(untold) = self.turned_away.is_due(now) {
                    let consumers = self.consumers_max;
                    warn!(consumers, pid, untold, "One consumer too many has come");
                }
                continue;
            }
            let own = vec![self.memory.arena.clone()];
            let holdings = self.memory.holdings.clone();
            match Lender::new(socket.into(), own, holdings, self.answers) {
                Ok(lender) => {
                    info!(path = %self.path.display(), pid, "A consumer takes TFs");
                    self.consumers.push(Consumer {
                        lender,
                        pid,
                        bytes: 0,
                        idle_since: None,
                        slow_until: None,
                        strikes: 0,
                    });
                }
                Err(error) => {
                    if let Some(untold) = self.turned_away.is_due(now) {
                        warn!(%error, pid, untold, "A consumer is turned away");
                    }
                }
            }
            self.counters.consumers.set_u64(self.consumers.len() as u64);
        }
    }

    /// Reads what the consumers have done.
    fn take_in(&mut self, now: Instant) {
        let (mut events, mut taken_tfs, mut index) = (Vec::new(), 0, 0);
        let (intake, counters) = (self.intake.clone(), Arc::clone(&self.counters));
        while let Some(consumer) = self.consumers.get_mut(index) {
            let (mut taken, mut back_bytes) = (0, 0);
            let heard = {
                // Both write there, one after the other.
                let told = std::cell::RefCell::new(&mut events);
                let again = std::cell::RefCell::new(&mut self.again);
                consumer.lender.take_in(
                    |tf| {
                        taken += 1;
                        if intake.is_none() {
                            told.borrow_mut().push(again.borrow().taken(tf));
                        }
                    },
                    |tf, answer| {
                        let bytes = tf.bytes();
                        back_bytes += bytes;
                        counters.note(&answer);
                        match &intake {
                            Some(intake) => intake.take(tf, answer),
                            None => {
                                let held = Some((tf.run, tf.tf));
                                again.borrow_mut().end(tf.run, tf.tf);
                                drop(tf);
                                told.borrow_mut().push(SinkEvent::Freed { bytes, held });
                            }
                        }
                    },
                )
            };
            consumer.bytes -= back_bytes;
            if taken > 0 {
                (consumer.slow_until, consumer.strikes) = (None, 0);
                let has_more = consumer.lender.untaken() > 0;
                consumer.idle_since = has_more.then_some(now);
            }
            taken_tfs += taken;
            let pid = consumer.pid;
            match heard {
                Ok(true) => index += 1,
                Ok(false) => {
                    let consumer = self.consumers.swap_remove(index);
                    let left = self.part(now, consumer, &mut events, &mut taken_tfs);
                    let (taken, untaken) = left;
                    info!(pid, taken, untaken, "A consumer has gone");
                }
                Err(error) => {
                    warn!(pid, %error, "A consumer is shut out");
                    let consumer = self.consumers.swap_remove(index);
                    self.part(now, consumer, &mut events, &mut taken_tfs);
                }
            }
        }
        self.counters.taken.add(taken_tfs as u64);
        self.notify(events, taken_tfs);
    }

    /// Takes what `consumer` leaves: how many TFs it had, and how many it had not taken yet.
    fn part(
        &mut self,
        now: Instant,
        consumer: Consumer,
        events: &mut Vec<SinkEvent>,
        taken_tfs: &mut usize,
    ) -> (usize, usize) {
        let Left { untaken, taken } = consumer.lender.part();
        let counts = (taken.len(), untaken.len());
        let mut once_more = Vec::new();
        for (tf, is_told) in taken {
            *taken_tfs += usize::from(!is_told);
            if let Some(intake) = &self.intake {
                intake.take(tf, Answer::tagged(UNANSWERED));
                continue;
            }
            if !is_told {
                events.push(self.again.taken(&tf));
            }
            match self.again.give_again(tf) {
                Ok(tf) => once_more.push(tf),
                Err(tf) => {
                    let (bytes, held) = (tf.bytes(), Some((tf.run, tf.tf)));
                    self.again.end(tf.run, tf.tf);
                    drop(tf);
                    events.push(SinkEvent::Freed { bytes, held });
                }
            }
        }
        self.counters.gone.add(counts.0 as u64);
        self.requeue(untaken);
        lock(&self.state).untaken += once_more.len();
        self.queue_first(once_more);
        self.counters.consumers.set_u64(self.consumers.len() as u64);
        self.alone_since = now;
        counts
    }

    /// Orders TFs that were offered before ahead of the others.
    fn requeue(&mut self, untaken: Vec<Tf<Bytes>>) {
        self.counters.called_back.add(untaken.len() as u64);
        self.queue_first(untaken);
    }

    fn queue_first(&mut self, tfs: Vec<Tf<Bytes>>) {
        for tf in tfs.into_iter().rev() {
            self.queue.push_front(tf);
        }
    }

    /// Calls back what lies with consumers that take nothing, if others do, or that leave.
    fn call_back_from_slow(&mut self, now: Instant) {
        let slow_after = self.slow_after;
        let has_others = self.consumers.iter().any(|consumer| {
            let is_slow = consumer.is_slow(now) || consumer.is_idle(now, slow_after);
            !consumer.lender.is_leaving() && !is_slow
        });
        let mut untaken = Vec::new();
        for consumer in &mut self.consumers {
            let is_leaving = consumer.lender.is_leaving();
            let is_over = is_leaving || (consumer.is_idle(now, slow_after) && has_others);
            if !is_over || consumer.lender.untaken() == 0 {
                continue;
            }
            let back = consumer.lender.call_back();
            consumer.bytes -= back.iter().map(Tf::bytes).sum::<u64>();
            consumer.idle_since = None;
            if !back.is_empty() && !is_leaving {
                consumer.slow_until = Some(now + slow_after * 2_u32.pow(consumer.strikes.min(6)));
                consumer.strikes += 1;
                let (pid, tfs) = (consumer.pid, back.len());
                warn!(pid, tfs, "A consumer takes nothing; its TFs go to another");
            }
            untaken.extend(back);
        }
        self.requeue(untaken);
    }

    /// Offers what waits, each TF to the consumer with the fewest bytes that has room for it. Nothing while the files
    /// have not written what has come back.
    fn give(&mut self, now: Instant) {
        while self.intake.as_ref().is_none_or(ReturnEntry::has_room)
            && let Some(tf) = self.queue.pop_front()
        {
            let choices = self.choices(now, tf.bytes());
            let mut left = Some(tf);
            for index in choices {
                left = left.and_then(|tf| self.give_to(now, index, tf));
            }
            if let Some(tf) = left {
                self.queue.push_front(tf);
                break;
            }
            if self.has_failed {
                self.has_failed = false;
                self.failures = Failures::default();
                self.notify(vec![SinkEvent::Resumed], 0);
            }
        }
        let lent: u64 = self.consumers.iter().map(|consumer| consumer.bytes).sum();
        self.counters.lent_bytes.set_u64(lent);
    }

    /// The consumers that may get a TF of `bytes`, the best first. One that is slow gets something only where there is
    /// no other.
    fn choices(&self, now: Instant, bytes: u64) -> Vec<usize> {
        let max = self.consumer_bytes_max;
        let has_quick = self
            .consumers
            .iter()
            .any(|consumer| !consumer.lender.is_leaving() && !consumer.is_slow(now));
        let mut choices: Vec<usize> = (0..self.consumers.len())
            .filter(|index| {
                let consumer = &self.consumers[*index];
                consumer.takes(bytes, max) && !(has_quick && consumer.is_slow(now))
            })
            .collect();
        choices.sort_by_key(|index| self.consumers[*index].bytes);
        choices
    }

    /// Offers a TF to one consumer. Returns it if that cannot be.
    fn give_to(&mut self, now: Instant, index: usize, tf: Tf<Bytes>) -> Option<Tf<Bytes>> {
        let consumer = &mut self.consumers[index];
        let (pid, bytes) = (consumer.pid, tf.bytes());
        let head = tf_file_head(&tf);
        // Handles of the payloads, which are the same bytes.
        let bodies: Vec<Bytes> = tf.parts.iter().map(|part| part.payload.clone()).collect();
        let copied_before = consumer.lender.copied_bytes();
        let gave = consumer.lender.give(tf, &head, bodies.iter());
        let copied = consumer.lender.copied_bytes() - copied_before;
        self.counters.copied_bytes.add(copied);
        match gave {
            Ok(Gave::Offered) => {
                consumer.bytes += bytes;
                consumer.idle_since.get_or_insert(now);
                None
            }
            Ok(Gave::Full(tf)) => {
                if let Some(error) = consumer.lender.shortage()
                    && let Some(untold) = self.short.is_due(now)
                {
                    warn!(pid, %error, untold, "A consumer cannot be given a TF now; it is tried again");
                }
                Some(tf)
            }
            Err((error, tf)) => {
                warn!(pid, %error, "A consumer cannot be given a TF, and gets no more");
                consumer.lender.close();
                Some(tf)
            }
        }
    }

    fn notify_if_alone(&mut self, now: Instant) {
        if !self.consumers.is_empty() {
            self.alone_since = now;
        }
        let Some(tf) = self.queue.front().map(|tf| tf.tf) else {
            return;
        };
        if now.saturating_duration_since(self.alone_since) < CONSUMER_WAIT {
            return;
        }
        let path = self.path.clone();
        if let Some(error) = self.failures.add(&DeliverError::NoConsumer { path }) {
            self.has_failed = true;
            let event = SinkEvent::Failed {
                tf,
                error,
                is_storage: false,
            };
            self.notify(vec![event], 0);
        }
    }

    fn notify(&self, events: Vec<SinkEvent>, taken: usize) {
        if events.is_empty() && taken == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.untaken -= taken;
        state.events.extend(events);
        drop(state);
        ring(&self.wake);
    }

    /// Returns the next deadline after `now`, once due work is done.
    fn due(&self, now: Instant) -> Option<Instant> {
        let (consumers, waits) = (&self.consumers, !self.queue.is_empty());
        let is_out = |consumer: &Consumer| consumer.lender.untaken() > 0;
        let has_untaken = waits || consumers.iter().any(is_out);
        let slow = |consumer: &Consumer| consumer.idle_since.map(|since| since + self.slow_after);
        let slow = consumers.iter().filter_map(slow);
        // Then it can be given what waits, or what lies with another one that takes nothing.
        let again = consumers.iter().filter_map(|consumer| consumer.slow_until);
        let again = again.filter(|_| has_untaken);
        let alone = (waits && consumers.is_empty()).then(|| now + CONSUMER_WAIT);
        let mut shortages = consumers.iter().map(|consumer| consumer.lender.shortage());
        let is_short = waits && shortages.any(|shortage| shortage.is_some());
        let short = is_short.then(|| now + SHORT_WAIT);
        let due = slow.chain(again).chain(alone).chain(short);
        due.chain(self.deaf_until).filter(|due| *due > now).min()
    }

    /// Sleeps until the node, a consumer or a new one has something to say, or something is [due](Self::due) that was
    /// not at `now`; at most until `until`.
    fn sleep(&mut self, now: Instant, until: Option<Instant>) {
        for consumer in &mut self.consumers {
            // A consumer that breaks the rules is found out in the next turn.
            if !matches!(consumer.lender.sleep(), Ok(true)) {
                return;
            }
        }
        let due = self.due(now).into_iter().chain(until).min();
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.rung.as_fd(), PollFlags::IN)];
        if self.deaf_until.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN));
        }
        for consumer in &self.consumers {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, consumer.lender.wants_writable());
            fds.push(PollFd::from_borrowed_fd(consumer.lender.socket(), flags));
        }
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => warn!(%error, "Consumers cannot be waited for"),
        }
    }

    /// Offers what is left, and waits for what is out, for a moment.
    fn end(mut self) -> u64 {
        let until = Instant::now() + LAST_WAIT;
        loop {
            let now = Instant::now();
            self.turn(now);
            let is_out = |consumer: &Consumer| consumer.bytes > 0 || consumer.lender.untaken() > 0;
            let is_taking = |consumer: &Consumer| !consumer.lender.is_leaving();
            let may_give = !self.queue.is_empty() && self.consumers.iter().any(is_taking);
            if now >= until || !(may_give || self.consumers.iter().any(is_out)) {
                break;
            }
            self.sleep(now, Some(until));
            self.is_asked_to_end(); // It is: the waker must not stay readable for ever.
        }
        let (mut untaken, mut lent) = (self.queue.len() as u64, 0_u64);
        let (mut events, mut taken_tfs) = (Vec::new(), 0);
        for consumer in std::mem::take(&mut self.consumers) {
            let left = consumer.lender.part();
            untaken += left.untaken.len() as u64;
            lent += left.taken.len() as u64;
            for (tf, is_told) in left.taken {
                taken_tfs += usize::from(!is_told);
                match &self.intake {
                    Some(intake) => intake.take(tf.clone(), Answer::tagged(UNANSWERED)),
                    None if !is_told => events.push(self.again.taken(&tf)),
                    None => {}
                }
                // The consumer still looks at it. Its memory must not be used for anything else while it does, and this
                // process ends: it is never released here.
                std::mem::forget(tf);
            }
        }
        self.counters.taken.add(taken_tfs as u64);
        self.notify(events, taken_tfs);
        if lent > 0 {
            warn!(tfs = lent, "Consumers still have TFs when the sink ends");
        }
        untaken
    }
}

/// Returns the stated digests of the parts, which the transport has compared: reading the bytes is left to the
/// consumer.
fn delivered(tf: &Tf<Bytes>) -> SinkEvent {
    let delivery = Delivery {
        is_held: true,
        ..stated_of(tf)
    };
    SinkEvent::delivered(tf, delivery)
}

#[cfg(test)]
mod tests;
