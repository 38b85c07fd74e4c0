//! The thread between an EPN and the engine that writes its files.

use super::counters::Counters;
use super::record::{Shared, TfRecord};
use super::select::StreamTable;
use super::walk;
use crate::clock::Clock;
use crate::sink::queue::Queue;
use crate::sink::{Opening, SinkError, SinkEvent, recomputed, taken_back};
use crate::source::Wake;
use bytes::Bytes;
use sheaf_formats::stf_file::TfName;
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::{RunId, Tf, TfId, Timestamp};
use sheaf_stream_files::{Engine, EngineConfig, EngineError, EngineEvent, Found, free_bytes};
use sheaf_write::{Place, StreamId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// Longest time without a look at the age of files and at their syncs.
const TICK: Duration = Duration::from_millis(50);
/// Period at which metrics are brought up to date.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// Time between two looks at the free space.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long files may take to be closed when the node ends.
const FINISH: Duration = Duration::from_secs(20);

#[derive(Default)]
struct State {
    queue: VecDeque<Tf<Bytes>>,
    /// TFs that the thread has taken and not delivered.
    taken: usize,
    events: VecDeque<SinkEvent>,
    /// Whether a worker has reported since the thread looked.
    is_rung: bool,
    is_ending: bool,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    bell: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node's side.
pub(super) struct StreamThread {
    desk: Arc<Desk>,
    tfs_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl StreamThread {
    pub(super) fn spawn(
        config: EngineConfig,
        table: StreamTable,
        (block_tfs, free_min_bytes): (u64, u64),
        opening: Opening,
    ) -> Result<Self, SinkError> {
        let desk = Arc::new(Desk::default());
        let ring: Arc<dyn Fn() + Send + Sync> = {
            let desk = Arc::clone(&desk);
            Arc::new(move || {
                desk.lock().is_rung = true;
                desk.bell.notify_one();
            })
        };
        let folder = config.folder.clone();
        let streams = &config.writer.streams;
        let streams = streams.iter().map(|stream| stream.name.clone()).collect();
        let opened = Engine::open(config, &walk, &ring);
        let (engine, found) = opened.map_err(|error| match error {
            EngineError::Folder { folder, source } => SinkError::Directory {
                path: folder,
                source,
            },
            other => SinkError::Streams(other.to_string()),
        })?;
        tell_recovered(&found);
        info!(
            directory = %folder.display(),
            io = engine.mode().name(),
            "TFs are written to files of streams"
        );
        let hands = Hands {
            desk: Arc::clone(&desk),
            engine,
            table,
            block_tfs,
            wake: opening.wake,
            clock: Clock::start(),
            has_trouble: false,
            newest: TfId(0),
            counters: Counters::new(opening.registry, streams),
            counted_at: None,
            free_min_bytes,
            is_low: false,
            looked_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || hands.run())
            .map_err(SinkError::Thread)?;
        Ok(Self {
            desk,
            tfs_max: opening.queue_tfs.max(1) as usize,
            thread: Some(thread),
        })
    }
}

fn tell_recovered(found: &[Found]) {
    let (mut records, mut cut_bytes, mut read_bytes) = (0, 0, 0);
    for file in found {
        records += file.records;
        cut_bytes += file.cut_bytes;
        read_bytes += file.read_bytes;
    }
    if !found.is_empty() {
        info!(
            files = found.len(),
            records,
            cut_bytes,
            read_bytes,
            "Files of an earlier life are closed behind their last whole TF"
        );
    }
}

impl Queue for StreamThread {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        let mut state = self.desk.lock();
        let is_full = state.queue.len() + state.taken >= self.tfs_max
            || state.events.len() >= 2 * self.tfs_max;
        if is_full || state.is_ending {
            return Err(tf);
        }
        state.queue.push_back(tf);
        drop(state);
        self.desk.bell.notify_one();
        Ok(())
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.desk.lock().events.pop_front()
    }

    fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        let mut state = self.desk.lock();
        for tf in taken_back(&mut state.queue, run, tfs) {
            state.events.push_back(SinkEvent::returned(&tf));
        }
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.desk.lock().is_ending = true;
        self.desk.bell.notify_one();
        if thread.join().is_err() {
            warn!("The thread of the sink has panicked");
        }
    }
}

impl Drop for StreamThread {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The thread's side.
struct Hands {
    desk: Arc<Desk>,
    engine: Engine<TfRecord>,
    table: StreamTable,
    block_tfs: u64,
    wake: Wake,
    clock: Clock,
    /// Whether writing fails now.
    has_trouble: bool,
    /// The last TF that was taken.
    newest: TfId,
    counters: Counters,
    counted_at: Option<Timestamp>,
    /// Bytes of the disk that have to be free for a TF to be taken.
    free_min_bytes: u64,
    /// Whether the disk has less.
    is_low: bool,
    looked_at: Option<Timestamp>,
}

impl Hands {
    fn run(mut self) {
        loop {
            let is_over = {
                let state = self.desk.lock();
                let is_stopped = self.has_trouble || self.is_low;
                let is_over =
                    |state: &State| state.is_ending && (state.queue.is_empty() || is_stopped);
                let has_room = |tf: &Tf<Bytes>| !self.is_low && self.engine.has_room(tf.bytes());
                let has_nothing = |state: &mut State| {
                    let has_work = state.queue.front().is_some_and(has_room);
                    !state.is_rung && !has_work && !is_over(state)
                };
                let waited = self.desk.bell.wait_timeout_while(state, TICK, has_nothing);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                state.is_rung = false;
                is_over(&state)
            };
            let now = self.clock.now();
            self.look_at_space(now);
            self.take();
            self.engine.turn(now);
            self.report();
            if self
                .counted_at
                .is_none_or(|at| now.since(at) >= COUNT_EVERY)
            {
                self.counted_at = Some(now);
                self.counters.export(now, &self.engine);
            }
            if is_over {
                break;
            }
        }
        let clock = self.clock;
        let patience = if self.has_trouble { TICK } else { FINISH };
        let is_closed = self.engine.finish(move || clock.now(), patience);
        self.report();
        self.counters.export(self.clock.now(), &self.engine);
        let (records, _) = self.engine.held();
        let tfs = self.desk.lock().queue.drain(..).count();
        if !is_closed || records > 0 || tfs > 0 {
            warn!(
                files = self.engine.open_files(),
                records,
                tfs,
                "The sink ends with files that are not closed; the next start of the EPN closes them"
            );
        }
    }

    /// Stops taking TFs while the disk has less free than it should keep, and says so.
    fn look_at_space(&mut self, now: Timestamp) {
        let is_due = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        if self.free_min_bytes == 0 || !is_due {
            return;
        }
        self.looked_at = Some(now);
        // A folder that cannot be asked cannot be written either, and the workers report that.
        let Ok(free) = free_bytes(self.engine.folder()) else {
            return;
        };
        let is_low = free < self.free_min_bytes;
        if is_low == self.is_low {
            return;
        }
        self.is_low = is_low;
        let event = if is_low {
            SinkEvent::Failed {
                tf: self.newest,
                error: format!(
                    "{} has {free} bytes free, free_min_mib keeps {}",
                    self.engine.folder().display(),
                    self.free_min_bytes
                ),
                is_storage: true,
            }
        } else if self.has_trouble {
            return;
        } else {
            SinkEvent::Resumed
        };
        self.desk.lock().events.push_back(event);
        (self.wake)();
    }

    /// Takes TFs from the queue while there is room for them.
    fn take(&mut self) {
        loop {
            let mut state = self.desk.lock();
            let Some(bytes) = state.queue.front().map(Tf::bytes) else {
                return;
            };
            if self.is_low || !self.engine.has_room(bytes) {
                return;
            }
            let tf = state.queue.pop_front().expect("it was looked at");
            state.taken += 1;
            drop(state);
            self.append(tf);
        }
    }

    fn append(&mut self, tf: Tf<Bytes>) {
        let now = self.clock.now();
        self.newest = tf.tf;
        let selected: Vec<(StreamId, Tf<Bytes>)> = self.table.select(&tf).collect();
        // The number that files of DataDistribution have, too: the low half of the id.
        let run = TfName::new(tf.run, tf.tf, 0).run.into();
        let block = tf.tf.0 / self.block_tfs;
        let whole = Arc::new(Shared {
            delivery: OnceLock::new(),
            tf,
        });
        for (stream, part) in selected {
            let place = Place { run, stream, block };
            let record = TfRecord {
                head: tf_file_head(&part),
                part,
                whole: Arc::clone(&whole),
            };
            // Streams are those of the table, and no record is too large.
            if let Err((refused, _)) = self.engine.append(now, place, record) {
                warn!(tf_id = whole.tf.tf.0, %refused, "A stream does not take a TF");
            }
        }
        // Of a TF that no stream wants this is the last hold: it is done with.
        self.release(whole);
    }

    fn report(&mut self) {
        let mut has_news = false;
        while let Some(event) = self.engine.poll() {
            has_news = true;
            match event {
                EngineEvent::Written(record) => {
                    let TfRecord { part, whole, .. } = record;
                    drop(part);
                    self.release(whole);
                }
                EngineEvent::Trouble(error) => {
                    self.has_trouble = true;
                    self.counters.failures += 1;
                    self.desk.lock().events.push_back(SinkEvent::Failed {
                        tf: self.newest,
                        error,
                        is_storage: true,
                    });
                }
                EngineEvent::Healed => {
                    self.has_trouble = false;
                    if !self.is_low {
                        self.desk.lock().events.push_back(SinkEvent::Resumed);
                    }
                }
            }
        }
        if has_news {
            (self.wake)();
        }
    }

    /// Releases one hold of a TF. After the last one the node is notified: all streams have what they want of it.
    fn release(&mut self, whole: Arc<Shared>) {
        let Some(Shared { tf, delivery }) = Arc::into_inner(whole) else {
            return;
        };
        let delivery = delivery.into_inner().unwrap_or_else(|| recomputed(&tf));
        let delivered = SinkEvent::delivered(&tf, delivery);
        let bytes = tf.bytes();
        drop(tf);
        let mut state = self.desk.lock();
        state.taken -= 1;
        state.events.push_back(delivered);
        state.events.push_back(SinkEvent::Freed { bytes });
        drop(state);
        (self.wake)();
    }
}
