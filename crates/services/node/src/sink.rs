//! Who gets the TFs of an EPN: nobody, a check, files, or a consumer process.
//!
//! A [`Sink`] hands one TF over, and takes as long as its consumer does. [`SinkHandle`] puts a thread and a
//! bounded queue between it and the node, so that a slow consumer stops no stream. When the queue is full the
//! node keeps the TF; its memory stays booked, the EPN's credits dry up, and the ICN places TFs elsewhere:
//! back-pressure all the way, and no TF is lost. A consumer that is gone, or a full disk, is the same: the TF
//! is kept and tried again until it is taken.

mod discard;
mod disk;
mod file;
mod patience;
mod shm;
mod stf_files;
mod store;
mod store_worker;
mod unix;
mod vectored;
mod verify;
mod worker;
mod zmq;

pub use discard::Discard;
pub use disk::{Disk, DiskFile, RealDisk};
pub use file::TfFiles;
pub use patience::Patience;
pub use shm::Memory;
pub use stf_files::StfFiles;
pub use store::{Recovered, TfStore};
pub use unix::Consumer;
pub use verify::Verify;
pub use zmq::Outlet;

use crate::config::{FileSink, SinkConfig, for_index, path_for};
use crate::event::PartEvent;
use crate::source::Wake;
use crate::zmq::ZmqError;
use bytes::Bytes;
use sheaf_metrics::Registry;
use sheaf_protocol::control::Recover;
use sheaf_protocol::{Attempt, EpnId, Incarnation, RunId, Target, TfId, crc32c};
use sheaf_protocol::{Part, Tf};
use shm::ShmWorker;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store_worker::{Lanes, Order, StoreWorker};
use thiserror::Error;
use worker::Worker;

/// Hands TFs over, one at a time.
pub trait Sink: Send {
    /// Name in a farm file and in logs, such as `"verify"`.
    fn name(&self) -> &'static str;

    /// Whether handing over takes no time worth a thread of its own.
    fn is_instant(&self) -> bool {
        false
    }

    /// Hands `tf` over. The answer means that the consumer has all of it.
    ///
    /// Waits for the consumer by `patience` only, which ends when the node does.
    ///
    /// # Errors
    ///
    /// [`DeliverError`] if it was not handed over. The same TF comes again.
    fn deliver(&mut self, tf: &Tf<Bytes>, patience: &Patience) -> Result<Delivery, DeliverError>;

    /// Looks after its consumers while there is no TF. Gives how soon it wants to do so again; `None`: not before the
    /// next TF.
    fn idle(&mut self) -> Option<Duration> {
        None
    }
}

/// What a sink saw of a TF that it handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The STFs in it.
    pub parts: Vec<PartEvent>,
    /// What is wrong with them. The TF is delivered all the same: its bytes are what the FLPs sent.
    pub faults: Vec<String>,
}

/// Why a TF was not handed over now.
#[derive(Debug, Error)]
pub enum DeliverError {
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says, such as that the disk is full.
        source: io::Error,
    },
    /// Nobody takes it.
    #[error("no consumer is connected at {}", path.display())]
    NoConsumer {
        /// Where a consumer can connect.
        path: PathBuf,
    },
    /// The consumer, or the wait for it, failed.
    #[error("the consumer at {} cannot be reached: {source}", path.display())]
    Consumer {
        /// Where the consumer connected.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// Why a sink cannot be opened.
#[derive(Debug, Error)]
pub enum SinkError {
    /// The folder for files is not there, or cannot be looked through.
    #[error("cannot use the directory {}: {source}", path.display())]
    Directory {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Nobody can listen there.
    #[error("cannot listen for a consumer at {}: {source}", path.display())]
    Listen {
        /// The path of the socket.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// There is no socket for its consumers.
    #[error("cannot hand TFs on by ZeroMQ: {0}")]
    Zmq(#[from] ZmqError),
    /// There is no thread for it.
    #[error("cannot start the thread of the sink: {0}")]
    Thread(io::Error),
}

/// Opens the sink of `epn` as `config` says, for TFs that lie in `memory`. What it counts goes to `registry`; `wake`
/// and `queue_tfs` are as for [`SinkHandle::spawn`].
///
/// # Errors
///
/// [`SinkError`] if its folder, its socket or its thread cannot be had.
pub fn open(
    (config, queue_tfs): (&SinkConfig, u32),
    epn: EpnId,
    memory: Memory,
    registry: &Arc<Registry>,
    wake: Wake,
) -> Result<SinkHandle, SinkError> {
    let sink: Box<dyn Sink> = match config {
        SinkConfig::Discard(_) => Box::new(Discard),
        SinkConfig::Verify(_) => Box::new(Verify),
        SinkConfig::File(file) => Box::new(TfFiles::open(
            path_for(&file.directory, epn.into()),
            epn,
            file.fsync,
        )?),
        SinkConfig::StfFile(file) => Box::new(StfFiles::open(
            path_for(&file.directory, epn.into()),
            epn,
            file.fsync,
            file.roll_bytes,
        )?),
        SinkConfig::Unix(unix) => Box::new(Consumer::listen(path_for(&unix.path, epn.into()))?),
        SinkConfig::Zmq(zmq) => {
            let endpoint = for_index(&zmq.endpoint, epn.into());
            Box::new(Outlet::open(zmq, &endpoint, epn, registry)?)
        }
        SinkConfig::Shm(shm) => {
            let path = path_for(&shm.path, epn.into());
            let worker = ShmWorker::spawn(shm, path, memory, registry, queue_tfs, wake)?;
            let inner = Inner::Shared(worker);
            return Ok(SinkHandle { inner });
        }
    };
    SinkHandle::spawn(sink, queue_tfs, wake)
}

/// Opens the storage of an EPN for ack level `stored`.
///
/// # Errors
///
/// [`SinkError`] if its folder cannot be had.
pub fn open_store(config: &FileSink, target: Target) -> Result<TfStore, SinkError> {
    TfStore::open(path_for(&config.directory, target.epn.into()), target)
}

/// What became of a TF that a [`SinkHandle`] took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// It was handed over.
    Delivered {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
        /// The assignment that it was built for.
        attempt: Attempt,
        /// Payload bytes.
        bytes: u64,
        /// The STFs in it. All sinks but `discard` and `shm` compute the digests from the bytes; those two repeat what
        /// was stated, which the transport has compared.
        parts: Vec<PartEvent>,
        /// FLPs of the roster without an STF in it.
        missing: Vec<u16>,
        /// What the sink found wrong.
        faults: Vec<String>,
    },
    /// Its memory was given back. Comes after [`Delivered`](Self::Delivered).
    Freed {
        /// Payload bytes.
        bytes: u64,
    },
    /// After [`Failed`](Self::Failed): it works again.
    Resumed,
    /// It survives a crash, or need not any more.
    Stored {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
    },
    /// A TF of a former life is published, or is not there.
    Recovered {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
        /// The life that the verdict names.
        incarnation: Incarnation,
        /// What was found.
        found: Option<Recovered>,
    },
    /// It cannot be handed over now, and is tried again. Comes at most once a second.
    Failed {
        /// The TF.
        tf: TfId,
        /// Why, and how often it was tried.
        error: String,
        /// Whether it is a file that cannot be written: then nothing can be stored now.
        is_storage: bool,
    },
}

impl SinkEvent {
    fn delivered(tf: &Tf<Bytes>, delivery: Delivery) -> Self {
        Self::Delivered {
            run: tf.run,
            tf: tf.tf,
            attempt: tf.attempt,
            bytes: tf.bytes(),
            parts: delivery.parts,
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            faults: delivery.faults,
        }
    }
}

/// A sink as the node sees it: a queue in, events out.
pub struct SinkHandle {
    inner: Inner,
}

enum Inner {
    Inline {
        sink: Box<dyn Sink>,
        events: VecDeque<SinkEvent>,
        events_max: usize,
    },
    Threaded(Worker),
    Shared(ShmWorker),
    Storing(StoreWorker),
    StoringInline(Box<(TfStore, Lanes)>),
}

impl std::fmt::Debug for SinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SinkHandle").finish_non_exhaustive()
    }
}

impl SinkHandle {
    /// Runs `sink` in a thread of its own, unless it is instant. At most `queue_tfs` TFs are with it at once, the one
    /// in its hands included. `wake` is called when [`poll`](Self::poll) has something new.
    ///
    /// # Errors
    ///
    /// [`SinkError::Thread`] if the operating system gives no thread.
    pub fn spawn(sink: Box<dyn Sink>, queue_tfs: u32, wake: Wake) -> Result<Self, SinkError> {
        if sink.is_instant() {
            return Ok(Self::inline(sink, queue_tfs));
        }
        let worker = Worker::spawn(sink, queue_tfs, wake).map_err(SinkError::Thread)?;
        Ok(Self {
            inner: Inner::Threaded(worker),
        })
    }

    /// Runs `sink` in the calls of [`offer`](Self::offer), whatever it is: for tests without threads.
    #[must_use]
    pub fn inline(sink: Box<dyn Sink>, queue_tfs: u32) -> Self {
        let events_max = 2 * queue_tfs.max(1) as usize;
        Self {
            inner: Inner::Inline {
                sink,
                events: VecDeque::new(),
                events_max,
            },
        }
    }

    /// Nobody, in the calls of [`offer`](Self::offer): for tests and benches.
    #[must_use]
    pub fn discard() -> Self {
        Self::inline(Box::new(Discard), u32::from(u16::MAX))
    }

    /// Stores TFs before they are committed, in a thread of its own. `wake` is called as for [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// [`SinkError::Thread`] if the operating system gives no thread.
    pub fn spawn_store(store: TfStore, wake: Wake) -> Result<Self, SinkError> {
        let worker = StoreWorker::spawn(store, wake).map_err(SinkError::Thread)?;
        Ok(Self {
            inner: Inner::Storing(worker),
        })
    }

    /// Stores TFs in the calls of [`poll`](Self::poll): for tests without threads. What fails is tried with each.
    #[must_use]
    pub fn inline_store(store: TfStore) -> Self {
        Self {
            inner: Inner::StoringInline(Box::new((store, Lanes::default()))),
        }
    }

    fn lanes(&mut self, put: impl FnOnce(&mut Lanes)) {
        match &mut self.inner {
            Inner::Storing(worker) => worker.with(put),
            Inner::StoringInline(inner) => put(&mut inner.1),
            Inner::Inline { .. } | Inner::Threaded(_) | Inner::Shared(_) => {
                debug_assert!(false, "only a sink that stores is asked to");
            }
        }
    }

    /// Writes a TF so that it survives a crash; [`SinkEvent::Stored`] follows. Of a sink that stores only, as the
    /// next two.
    pub fn store(&mut self, tf: Tf<Bytes>) {
        self.lanes(|lanes| lanes.store(tf));
    }

    /// Removes what this life, or what former lives have stored of a TF.
    pub fn unstore(&mut self, run: RunId, tf: TfId, by_former: bool) {
        self.lanes(|lanes| lanes.order(Order::Unstore { run, tf, by_former }));
    }

    /// Publishes what a former life has stored of a TF; [`SinkEvent::Recovered`] follows.
    pub fn recover(&mut self, run: RunId, item: Recover) {
        self.lanes(|lanes| lanes.order(Order::Recover { run, item }));
    }

    /// Takes a TF.
    ///
    /// # Errors
    ///
    /// The TF itself if the queue is full. There is room again when [`poll`](Self::poll) has given an event.
    pub fn offer(&mut self, tf: Tf<Bytes>) -> Result<(), Tf<Bytes>> {
        match &mut self.inner {
            Inner::Threaded(worker) => worker.offer(tf),
            Inner::Shared(worker) => worker.offer(tf),
            Inner::Storing(_) | Inner::StoringInline(_) => {
                self.lanes(|lanes| lanes.order(Order::Publish(tf)));
                Ok(())
            }
            Inner::Inline {
                events, events_max, ..
            } if events.len() >= *events_max => Err(tf),
            Inner::Inline { sink, events, .. } => match sink.deliver(&tf, &Patience::none()) {
                Ok(delivery) => {
                    let bytes = tf.bytes();
                    events.push_back(SinkEvent::delivered(&tf, delivery));
                    drop(tf);
                    events.push_back(SinkEvent::Freed { bytes });
                    Ok(())
                }
                Err(error) => {
                    events.push_back(SinkEvent::Failed {
                        tf: tf.tf,
                        is_storage: matches!(error, DeliverError::Write { .. }),
                        error: error.to_string(),
                    });
                    Err(tf)
                }
            },
        }
    }

    /// The next event, if there is one now.
    pub fn poll(&mut self) -> Option<SinkEvent> {
        match &mut self.inner {
            Inner::Threaded(worker) => worker.poll(),
            Inner::Shared(worker) => worker.poll(),
            Inner::Storing(worker) => worker.poll(),
            Inner::StoringInline(inner) => {
                let (store, lanes) = &mut **inner;
                lanes.work_inline(store);
                lanes.events.pop_front()
            }
            Inner::Inline { events, .. } => events.pop_front(),
        }
    }

    /// Hands over what is in the queue, as far as the consumer takes it without being waited for, and ends. A
    /// consumer that is away, or takes nothing for a second, is given up; then a warning says how many TFs are
    /// left. Events can be polled afterwards; no TF is taken any more.
    pub fn finish(&mut self) {
        match &mut self.inner {
            Inner::Threaded(worker) => worker.finish(),
            Inner::Shared(worker) => worker.finish(),
            Inner::Storing(worker) => worker.finish(),
            Inner::Inline { .. } | Inner::StoringInline(_) => {}
        }
    }
}

/// What is known of a part without looking at its bytes.
fn stated(part: &Part<Bytes>) -> PartEvent {
    PartEvent {
        flp: part.source.flp.0,
        incarnation: part.source.incarnation.0,
        bytes: part.bytes,
        digest: part.digest,
    }
}

/// The digests of all payloads, taken again from their bytes.
pub(crate) fn recomputed(tf: &Tf<Bytes>) -> Delivery {
    let mut delivery = Delivery::default();
    for part in &tf.parts {
        let found = PartEvent {
            bytes: part.payload.len() as u64,
            digest: crc32c(&part.payload),
            ..stated(part)
        };
        let flp = part.source.flp;
        if found.bytes != part.bytes {
            delivery.faults.push(format!(
                "{flp}: payload has {} bytes, expected {}",
                found.bytes, part.bytes
            ));
        }
        if found.digest != part.digest {
            delivery.faults.push(format!(
                "{flp}: payload has CRC-32C {:08x}, expected {:08x}",
                found.digest, part.digest
            ));
        }
        delivery.parts.push(found);
    }
    delivery
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{FlpId, Incarnation, PayloadFormat, RunId, Source};
    use sheaf_transport::handover::Holdings;
    use sheaf_transport::{Arena, ArenaOptions};
    use std::sync::mpsc::{Receiver, sync_channel};

    /// A TF of opaque payloads, of FLP 0 and so on, without FLP 9.
    pub(super) fn tf(id: u64, payloads: &[&[u8]]) -> Tf<Bytes> {
        let part = |(flp, payload): (u16, &&[u8])| Part {
            source: Source {
                flp: FlpId(flp),
                incarnation: Incarnation(100 + u64::from(flp)),
            },
            format: PayloadFormat::Opaque,
            digest: crc32c(payload),
            bytes: payload.len() as u64,
            payload: Bytes::copy_from_slice(payload),
        };
        Tf {
            run: RunId(0xabc),
            tf: TfId(id),
            attempt: Attempt(2),
            parts: (0..).zip(payloads).map(part).collect(),
            missing: vec![FlpId(9)],
        }
    }

    /// What a sink that looks at the bytes says of `tf`.
    pub(super) fn delivered(tf: &Tf<Bytes>) -> SinkEvent {
        SinkEvent::delivered(tf, recomputed(tf))
    }

    /// Memory that can be shared, of an EPN to which nobody has lent any.
    pub(super) fn memory() -> Memory {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: true,
        };
        Memory {
            arena: Arena::new(4 << 20, options).unwrap(),
            holdings: Holdings::default(),
        }
    }

    /// Where the waker puts its calls, and the test waits for them.
    pub(super) struct Wakes(Receiver<()>);

    pub(super) fn wakes() -> (Wake, Wakes) {
        let (sender, receiver) = sync_channel(1);
        let wake = Box::new(move || {
            let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
        });
        (wake, Wakes(receiver))
    }

    impl Wakes {
        /// The next event, when it comes.
        pub(super) fn next(&self, sink: &mut SinkHandle) -> SinkEvent {
            loop {
                match sink.poll() {
                    Some(event) => return event,
                    None => self
                        .0
                        .recv_timeout(Duration::from_secs(30))
                        .expect("the sink wakes its node"),
                }
            }
        }
    }

    #[test]
    fn an_instant_sink_needs_no_thread() {
        let wake = Box::new(|| panic!("there is no other thread"));
        let mut sink = SinkHandle::spawn(Box::new(Discard), 1, wake).unwrap();
        let first = tf(7, &[b"ab", b"c"]);
        sink.offer(first.clone()).unwrap();
        let full = sink.offer(tf(8, &[])).unwrap_err();
        assert_eq!(sink.poll(), Some(delivered(&first)));
        assert_eq!(sink.poll(), Some(SinkEvent::Freed { bytes: 3 }));
        sink.offer(full).unwrap();
        sink.finish();
        assert!(matches!(
            sink.poll(),
            Some(SinkEvent::Delivered { tf: TfId(8), .. })
        ));
    }

    #[test]
    fn a_sink_is_opened_by_its_kind() {
        for (text, expected) in [
            ("kind = \"discard\"", "discard"),
            ("kind = \"verify\"", "verify"),
            ("kind = \"file\"\ndirectory = \"DIR\"", "file"),
            ("kind = \"stf-file\"\ndirectory = \"DIR\"", "stf-file"),
            ("kind = \"unix\"\npath = \"DIR/{epn}\"", "unix"),
            ("kind = \"shm\"\npath = \"DIR/{epn}\"", "shm"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let text = text.replace("DIR", folder.path().to_str().unwrap());
            let config: SinkConfig = toml::from_str(&text).unwrap();
            let wake = Box::new(|| {});
            let _sink = open((&config, 1), EpnId(4), memory(), &Arc::default(), wake).unwrap();
            assert_eq!(config.kind(), expected);
            assert_eq!(
                folder.path().join("4").exists(),
                ["unix", "shm"].contains(&expected)
            );
        }
    }
}
