//! The thread between an EPN and the engine that writes its files.

use super::counters::Counters;
use super::find::Finder;
use super::record::{Shared, TfRecord};
use super::select::StreamTable;
use super::tell::Teller;
use super::walk;
use crate::clock::Clock;
use crate::sink::queue::Queue;
use crate::sink::{Opening, SinkError, SinkEvent};
use crate::source::Wake;
use bytes::Bytes;
use sheaf_formats::stf_file::TfName;
use sheaf_placement::TargetId;
use sheaf_protocol::{RunId, Tf, TfId, Timestamp};
use sheaf_stream_files::{Disks, DisksEvent, Engine, EngineConfig, EngineError, Found, free_bytes};
use sheaf_transport::handover::Answer;
use sheaf_verdict_log::event::StreamEvent;
use sheaf_write::{
    DiskNews, HandoffId, Intake, IntakeConfig, LeftOut, Place, Planned, StreamId, Want,
};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// A TF, and what a consumer said of it when it gave it back.
#[derive(Clone)]
struct Item {
    tf: Tf<Bytes>,
    /// None of a TF that no consumer has had.
    answer: Option<Answer>,
    /// Whether files may have it already.
    may_be_here: bool,
}

impl Item {
    fn id(&self) -> HandoffId {
        HandoffId::of_tf(&self.tf)
    }
}

/// Parts of the first TF of the queue that streams want, and what is wanted of a writer for each.
struct Selected {
    of: HandoffId,
    parts: Vec<Tf<Bytes>>,
    wants: Vec<Want>,
    /// Streams whose files have it already.
    here: Vec<StreamId>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    /// TFs that the thread has taken and not delivered.
    taken: usize,
    /// Most of these that wait for disks which are left out: they keep no others from being taken.
    stuck: usize,
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
pub(in crate::sink) struct StreamThread {
    desk: Arc<Desk>,
    tfs_max: usize,
    thread: Option<JoinHandle<()>>,
}

/// All that a sink is made of.
pub(super) struct Setup {
    /// Engines, one for each disk.
    pub(super) engines: Vec<EngineConfig>,
    pub(super) intake: IntakeConfig,
    pub(super) table: StreamTable,
    pub(super) block_tfs: u64,
}

impl StreamThread {
    pub(super) fn spawn(setup: Setup, opening: Opening) -> Result<Self, SinkError> {
        let desk = Arc::new(Desk::default());
        let ring: Arc<dyn Fn() + Send + Sync> = {
            let desk = Arc::clone(&desk);
            Arc::new(move || {
                desk.lock().is_rung = true;
                desk.bell.notify_one();
            })
        };
        let intake = Intake::new(setup.intake);
        let intake = intake.map_err(|error| SinkError::Streams(error.to_string()))?;
        let names: Vec<String> = setup.table.all_names().collect();
        let mut engines = Vec::new();
        for config in setup.engines {
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
                directory = %engine.folder().display(),
                io = engine.mode().name(),
                "TFs are written to files of streams"
            );
            engines.push(engine);
        }
        let folders = engines.iter().map(|engine| engine.folder().to_owned());
        let folders: Vec<PathBuf> = folders.collect();
        let hands = Hands {
            desk: Arc::clone(&desk),
            free: vec![None; engines.len()],
            disks: Disks::new(intake, engines),
            table: setup.table,
            block_tfs: setup.block_tfs,
            wake: opening.wake,
            clock: Clock::start(),
            is_stopped: false,
            is_blocked: false,
            selected: None,
            newest: TfId(0),
            counters: Counters::new(opening.registry, names.clone(), &folders),
            teller: Teller::new(folders),
            names,
            counted_at: None,
            looked_at: None,
            finder: Finder::default(),
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

/// Way into the files for TFs that consumers have given back.
#[derive(Clone)]
pub(in crate::sink) struct ReturnEntry {
    desk: Arc<Desk>,
    tfs_max: usize,
}

impl ReturnEntry {
    /// Whether TFs may be given to consumers, which are to be written when they come back.
    pub(in crate::sink) fn has_room(&self) -> bool {
        self.desk.lock().queue.len() < self.tfs_max
    }

    /// Takes a TF that a consumer has given back. The memory of the EPN bounds how many there are.
    pub(in crate::sink) fn take(&self, tf: Tf<Bytes>, answer: Answer) {
        let answer = Some(answer);
        let may_be_here = false;
        self.desk.lock().queue.push_back(Item {
            tf,
            answer,
            may_be_here,
        });
        self.desk.bell.notify_one();
    }
}

impl StreamThread {
    /// Returns the way in for TFs that consumers have given back.
    pub(in crate::sink) fn return_entry(&self) -> ReturnEntry {
        ReturnEntry {
            desk: Arc::clone(&self.desk),
            tfs_max: self.tfs_max,
        }
    }
}

impl StreamThread {
    fn push(&mut self, tf: Tf<Bytes>, may_be_here: bool) -> Result<(), Tf<Bytes>> {
        let mut state = self.desk.lock();
        let taken = state.taken.saturating_sub(state.stuck);
        let is_full =
            state.queue.len() + taken >= self.tfs_max || state.events.len() >= 2 * self.tfs_max;
        if is_full || state.is_ending {
            return Err(tf);
        }
        state.queue.push_back(Item {
            tf,
            answer: None,
            may_be_here,
        });
        drop(state);
        self.desk.bell.notify_one();
        Ok(())
    }
}

impl Queue for StreamThread {
    fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.push(tf, false)
    }

    fn offer_again(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        self.push(tf, true)
    }

    fn recall_one(&mut self, id: HandoffId) {
        let mut state = self.desk.lock();
        if let Some(at) = state.queue.iter().position(|item| item.id() == id)
            && let Some(item) = state.queue.remove(at)
        {
            state.events.push_back(SinkEvent::returned(&item.tf));
        }
    }

    fn poll(&mut self) -> Option<SinkEvent> {
        self.desk.lock().events.pop_front()
    }

    fn recall(&mut self, run: RunId, tfs: &BTreeSet<TfId>) {
        let mut state = self.desk.lock();
        // What a consumer has had is not taken back.
        let is_back =
            |item: &Item| item.answer.is_none() && item.tf.run == run && tfs.contains(&item.tf.tf);
        let queue = std::mem::take(&mut state.queue);
        let (back, kept): (VecDeque<Item>, _) = queue.into_iter().partition(is_back);
        state.queue = kept;
        for item in back {
            state.events.push_back(SinkEvent::returned(&item.tf));
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
    disks: Disks<TfRecord>,
    table: StreamTable,
    /// Names of the streams.
    names: Vec<String>,
    block_tfs: u64,
    wake: Wake,
    clock: Clock,
    /// Whether no disk takes anything: all fail or are full.
    is_stopped: bool,
    /// Whether the first TF of the queue has to wait.
    is_blocked: bool,
    selected: Option<Selected>,
    /// The last TF that was taken.
    newest: TfId,
    counters: Counters,
    teller: Teller,
    counted_at: Option<Timestamp>,
    /// Bytes that each disk has free, as far as it says.
    free: Vec<Option<u64>>,
    looked_at: Option<Timestamp>,
    finder: Finder,
}

impl Hands {
    fn run(mut self) {
        loop {
            let is_over = {
                let state = self.desk.lock();
                let is_stopped = self.is_stopped;
                let is_over =
                    |state: &State| state.is_ending && (state.queue.is_empty() || is_stopped);
                // There is room again when a worker has reported, or at the next tick.
                let is_blocked = self.is_blocked;
                let has_nothing = |state: &mut State| {
                    let has_work = !state.queue.is_empty() && !is_blocked;
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
            self.disks.turn(now);
            self.report(now);
            if self
                .counted_at
                .is_none_or(|at| now.since(at) >= COUNT_EVERY)
            {
                self.counted_at = Some(now);
                self.counters.export(now, &self.disks, &self.free);
            }
            if is_over {
                break;
            }
        }
        let clock = self.clock;
        let patience = |fails: bool| if fails { TICK } else { FINISH };
        let is_closed = self.disks.finish(move || clock.now(), patience);
        let now = self.clock.now();
        self.report(now);
        self.counters.export(now, &self.disks, &self.free);
        let (records, _) = self.disks.held();
        let tfs = self.desk.lock().queue.drain(..).count();
        if !is_closed || records > 0 || tfs > 0 {
            warn!(
                files = self.disks.open_files(),
                records,
                tfs,
                "The sink ends with files that are not closed; the next start of the node closes them"
            );
        }
    }

    /// Asks all disks for their free space.
    fn look_at_space(&mut self, now: Timestamp) {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        for (at, free) in (0..).zip(&mut self.free) {
            let disk = TargetId(at);
            // A folder that cannot be asked cannot be written either, and the workers report that.
            *free = free_bytes(self.disks.engine(disk).folder()).ok();
            self.disks.set_free(disk, *free);
        }
    }

    /// Takes TFs from the queue while there is a way for them.
    fn take(&mut self) {
        self.is_blocked = false;
        while self.select_first() {
            let now = self.clock.now();
            let mut state = self.desk.lock();
            let first = state.queue.front().map(Item::id);
            // The first one may have been taken back meanwhile.
            let selected = self.selected.take();
            let Some(selected) = selected.filter(|selected| Some(selected.of) == first) else {
                continue;
            };
            let Some(plan) = self.disks.plan(now, &selected.wants) else {
                self.selected = Some(selected);
                self.is_blocked = true;
                return;
            };
            let item = state.queue.pop_front().expect("it was looked at");
            state.taken += 1;
            drop(state);
            let Selected {
                parts, wants, here, ..
            } = selected;
            let ways = parts.into_iter().zip(wants).zip(plan);
            let ways = ways.map(|((part, want), planned)| (part, want.place, planned));
            self.append(now, item, ways.collect(), &here);
        }
    }

    /// Selects the parts of the first TF of the queue, unless that is done; `false` if there is none. The node does not
    /// wait for it: the bytes of a product and the heads of payloads are read for that.
    fn select_first(&mut self) -> bool {
        let Item {
            tf,
            answer,
            may_be_here,
        } = {
            let state = self.desk.lock();
            let Some(first) = state.queue.front() else {
                self.selected = None;
                return false;
            };
            let is_done = |selected: &Selected| selected.of == first.id();
            if self.selected.as_ref().is_some_and(is_done) {
                return true;
            }
            first.clone()
        };
        // The number that files of DataDistribution have, too: the low half of the id.
        let run = TfName::new(tf.run, tf.tf, 0).run.into();
        let block = tf.tf.0 / self.block_tfs;
        let want = |(stream, part): (StreamId, Tf<Bytes>)| {
            let place = Place { run, stream, block };
            let bytes = part.bytes();
            (part, Want { place, bytes })
        };
        let answer = answer.unwrap_or_default();
        let of = HandoffId::of_tf(&tf);
        let selected = self.table.select(&tf, &answer);
        let (mut parts, mut wants): (Vec<_>, Vec<_>) = selected.map(want).unzip();
        let here = match may_be_here {
            true => self.take_out_found(of, &mut parts, &mut wants),
            false => Vec::new(),
        };
        self.selected = Some(Selected {
            of,
            parts,
            wants,
            here,
        });
        true
    }

    /// Takes out what stands in files that are closed or still open, and returns its streams. A file that cannot be
    /// read has nothing.
    fn take_out_found(
        &mut self,
        id: HandoffId,
        parts: &mut Vec<Tf<Bytes>>,
        wants: &mut Vec<Want>,
    ) -> Vec<StreamId> {
        let Self {
            disks,
            names,
            finder,
            ..
        } = self;
        let folders: Vec<&Path> = disks.engines().map(|(_, engine)| engine.folder()).collect();
        let mut found = Vec::new();
        for at in (0..wants.len()).rev() {
            let Place { run, stream, block } = wants[at].place;
            let name = names[usize::from(stream.0)].as_str();
            if finder.has(&folders, (run, name, block), id) {
                found.push(stream);
                parts.remove(at);
                wants.remove(at);
            }
        }
        found
    }

    /// Gives the parts of a TF to their disks, as planned.
    fn append(
        &mut self,
        now: Timestamp,
        item: Item,
        ways: Vec<(Tf<Bytes>, Place, Planned)>,
        here: &[StreamId],
    ) {
        let Item { tf, answer, .. } = item;
        self.newest = tf.tf;
        let fate = |(_, place, planned): &(Tf<Bytes>, Place, Planned)| StreamEvent {
            stream: self.names[usize::from(place.stream.0)].clone(),
            shed: match planned {
                Planned::Shed(reason) => Some(reason.name().to_owned()),
                Planned::Write(_) => None,
            },
            refused: None,
        };
        // Streams that have it already are behind the others, whose places are counted.
        let of_here = here.iter().map(|stream| StreamEvent {
            stream: self.names[usize::from(stream.0)].clone(),
            shed: None,
            refused: None,
        });
        let fates = ways.iter().map(fate).chain(of_here).collect();
        let whole = Arc::new(Shared::new(tf, answer.is_some(), fates));
        for (at, (part, place, planned)) in ways.into_iter().enumerate() {
            let Planned::Write(disk) = planned else {
                continue;
            };
            let (format, is_logged) = self.table.format(place.stream);
            let record = TfRecord::new(format, is_logged, part, Arc::clone(&whole));
            // Streams are those of the table, and no record is too large.
            if let Err((refused, _)) = self.disks.append(now, disk, place, record) {
                warn!(tf_id = whole.tf.tf.0, %refused, "A stream does not take a TF");
                whole.refuse(at, refused.to_string());
            }
        }
        // Of a TF that no stream wants, or gets, this is the last hold: it is done with.
        self.release(whole);
    }

    fn report(&mut self, now: Timestamp) {
        let mut has_news = false;
        while let Some(event) = self.disks.poll() {
            match event {
                DisksEvent::Written(record) => {
                    has_news = true;
                    let TfRecord { part, whole, .. } = record;
                    drop(part);
                    self.release(whole);
                }
                // Counted by disk, and said when the disk is left out for it.
                DisksEvent::Trouble { .. } => {}
                DisksEvent::Changed(news) => {
                    let error = match news {
                        DiskNews::LeftOut(disk, LeftOut::Failing) => self.disks.error(disk),
                        _ => "",
                    };
                    self.teller.tell(now, news, error);
                }
            }
        }
        let is_stopped = !self.disks.intake().can_write();
        if std::mem::replace(&mut self.is_stopped, is_stopped) != is_stopped {
            has_news = true;
            let event = if is_stopped {
                SinkEvent::Failed {
                    tf: self.newest,
                    error: self.why_stopped(),
                    is_storage: true,
                }
            } else {
                SinkEvent::Resumed
            };
            self.desk.lock().events.push_back(event);
        }
        self.desk.lock().stuck = self.stuck();
        if has_news {
            (self.wake)();
        }
    }

    /// Counts the records that wait for disks which fail or are slow, while another disk works.
    fn stuck(&self) -> usize {
        let intake = self.disks.intake();
        let is_faulty = |disk| {
            let left_out = intake.left_out(disk);
            matches!(left_out, Some(LeftOut::Failing | LeftOut::Slow))
        };
        let all = self.disks.engines();
        let faulty: Vec<u64> = all
            .filter(|(disk, _)| is_faulty(*disk))
            .map(|(_, engine)| engine.held().0)
            .collect();
        if faulty.len() == self.free.len() {
            return 0;
        }
        usize::try_from(faulty.iter().sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Returns why no disk takes anything.
    fn why_stopped(&self) -> String {
        let min = self.disks.intake().config().space.min_bytes;
        let why = self.disks.engines().zip(&self.free);
        let why = why.map(|((disk, engine), free)| {
            let folder = engine.folder().display();
            match free {
                Some(free) if *free < min => {
                    format!("{folder} has {free} bytes free, free_min_mib keeps {min}")
                }
                Some(_) | None => format!("{folder}: {}", self.disks.error(disk)),
            }
        });
        why.collect::<Vec<String>>().join("; ")
    }

    /// Releases one hold of a TF. After the last one the node is notified: all streams have what they want of it.
    fn release(&mut self, whole: Arc<Shared>) {
        let Some(whole) = Arc::into_inner(whole) else {
            return;
        };
        let (tf, delivery) = whole.into_delivered();
        let delivered = SinkEvent::delivered(&tf, delivery);
        let bytes = tf.bytes();
        drop(tf);
        let mut state = self.desk.lock();
        state.taken -= 1;
        state.events.push_back(delivered);
        state.events.push_back(SinkEvent::freed(bytes));
        drop(state);
        (self.wake)();
    }
}
