//! Sinks: destinations of the TFs of an EPN: none, a check, files, or a consumer process.
//!
//! A [`Sink`] delivers one TF, and takes as long as its consumer does. [`SinkHandle`] puts a thread and a
//! bounded queue between it and the node, so that a slow consumer stops no stream. When the queue is full the
//! node keeps the TF; its memory stays booked, the EPN's credits dry up, and the ICN places TFs elsewhere:
//! back-pressure all the way, and no TF is lost. A consumer that is gone, or a full disk, is the same: the TF
//! is kept and tried again until it is taken.

mod ack;
mod discard;
mod disk;
mod file;
mod handle;
mod patience;
mod queue;
mod shm;
mod stf_files;
mod store;
mod store_worker;
mod streams;
mod unix;
mod vectored;
mod verify;
mod worker;
mod writers;
mod zmq;

pub use ack::Ack;
pub use discard::{Discard, DiscardSink};
pub use disk::{Disk, DiskFile, RealDisk};
pub use file::{FileSink, TfFiles};
pub use handle::SinkHandle;
pub use patience::Patience;
pub use shm::ShmSink;
pub use stf_files::{StfFileSink, StfFiles};
pub use store::{Recovered, TfStore};
pub use streams::{StreamsDurability, StreamsOverload, StreamsSink};
pub use unix::{Consumer, UnixSink};
pub use verify::{Verify, VerifySink};
pub use writers::WritersSink;
pub use zmq::{Outlet, ZmqLayout, ZmqOutlet, ZmqSink};

use crate::check::{Check, ConfigError};
use crate::event::{FileEvent, PartEvent, StreamEvent};
use crate::kinds::{Kind, kinds};
use crate::source::Wake;
use crate::zmq::ZmqError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_metrics::Registry;
use sheaf_protocol::{Attempt, Incarnation, NodeId, RunId, Target, TfId, crc32c};
use sheaf_protocol::{Part, Tf};
use sheaf_transport::handover::Holdings;
use sheaf_transport::{Arena, Tcp};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

kinds! {
    /// The `[epn.sink]` table: the consumer of the TFs of an EPN, by its `kind`.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
    SinkConfig: SinkKind {
        Discard(DiscardSink) = "discard", "counts TFs and releases their memory";
        Verify(VerifySink) = "verify", "recomputes every CRC-32C and walks every payload, then discards";
        File(FileSink) = "file" at "directory", "writes one file a TF" see "docs/reference/tf-file.md";
        StfFile(StfFileSink) = "stf-file" at "directory", "writes files of many TFs as DataDistribution does"
            see "docs/reference/stf-file.md";
        Streams(StreamsSink) = "streams" at "directory", "writes files of many TFs by stream and block, with several threads"
            see "docs/how-to/write.md";
        Unix(UnixSink) = "unix" at "path", "writes whole TFs to the consumer process at a Unix socket"
            see "docs/reference/tf-file.md";
        Shm(ShmSink) = "shm" at "path", "lends TFs to consumer processes, which read them in the memory of the EPN"
            see "docs/how-to/shm.md";
        Zmq(ZmqSink) = "zmq" at "endpoint", "sends TFs to programs that speak ZeroMQ" see "docs/how-to/zmq.md";
        Writers(WritersSink) = "writers", "sends TFs to the writer nodes of the farm, which write them to files"
            see "docs/how-to/write.md";
    }
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self::Discard(DiscardSink {})
    }
}

/// Sink on a command line that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("found `{found}`, expected {expected}")]
pub struct SinkWordsError {
    /// The words found.
    pub found: String,
    /// All sinks, with what they need.
    pub expected: String,
}

impl SinkConfig {
    /// Reads a sink from a command line: `KIND`, or `KIND:PLACE` where the kind needs a place. Paths become absolute.
    ///
    /// # Errors
    ///
    /// [`SinkWordsError`] if there is no such kind, or if a place is missing or too much.
    pub fn of_words(words: &str) -> Result<Self, SinkWordsError> {
        let refused = || SinkWordsError {
            found: words.to_owned(),
            expected: Self::all_words(),
        };
        let (name, place) = match words.split_once(':') {
            Some((name, place)) => (name, Some(place).filter(|place| !place.is_empty())),
            None => (words, None),
        };
        let is_meant = |kind: &&Kind| kind.name == name && kind.place.is_some() == place.is_some();
        let kind = Self::KINDS.iter().find(is_meant).ok_or_else(refused)?;
        let mut table = toml::Table::new();
        table.insert("kind".to_owned(), name.into());
        if let (Some(key), Some(place)) = (kind.place, place) {
            let absolute = (key != ENDPOINT)
                .then(|| std::path::absolute(place).ok())
                .flatten();
            let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
            let place = absolute.unwrap_or_else(|| place.to_owned());
            table.insert(key.to_owned(), place.into());
        }
        table.try_into().map_err(|_| refused())
    }

    /// Lists all sinks as they stand on a command line, such as `file:DIRECTORY`.
    fn all_words() -> String {
        let all: Vec<String> = Self::KINDS.iter().map(Kind::words).collect();
        format!("one of {}", all.join(", "))
    }
}

/// Key of the place that is no path.
const ENDPOINT: &str = "endpoint";

/// Kind of sink: the `[epn.sink]` table with this `kind`, what is checked of it, and the sink made of it.
///
/// A kind is its file, with this trait for its table, and its line in the table of [`SinkConfig`].
pub(crate) trait SinkKind {
    /// Reports values that make no sense, whatever the machine.
    fn check(&self, _check: &mut Check) {}

    /// Looks for the folder that EPN `node` needs on this machine.
    fn check_files(&self, _node: NodeId) -> Option<ConfigError> {
        None
    }

    /// Returns the network address at which EPN `node` delivers TFs in the clear.
    fn address(&self, _node: NodeId) -> Option<String> {
        None
    }

    /// Whether TFs can be stored before they are committed, for `epn.ack = "stored"`.
    fn stores(&self) -> bool {
        false
    }

    /// Whether the sink knows when a consumer has finished with a TF, for `epn.ack = "processed"`.
    fn sees_the_end(&self) -> bool {
        false
    }

    /// Whether TFs go to the writer nodes of the farm.
    fn needs_writers(&self) -> bool {
        false
    }

    /// Whether consumers map the memory of the EPN.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Returns the number of descriptors that the consumers may need at once.
    fn descriptors_max(&self) -> usize {
        0
    }

    /// Opens the sink.
    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError>;
}

/// Surroundings in which the sink of an EPN is opened.
pub struct Opening {
    /// The EPN and its life.
    pub target: Target,
    /// When a TF counts as built.
    pub ack: Ack,
    /// TFs that may be with the sink at once.
    pub queue_tfs: u32,
    /// Memory in which TFs lie.
    pub memory: Memory,
    /// Registry of what the sink counts.
    pub registry: Arc<Registry>,
    /// Called when [`SinkHandle::poll`] has something new.
    pub wake: Wake,
    /// The way to the writer nodes of the farm; `None` where there is none, as in a writer node itself.
    pub writers: Option<WriterAccess>,
}

/// Way to the writer nodes of a farm.
pub struct WriterAccess {
    /// Where they listen, by index.
    pub addresses: Vec<String>,
    /// Makes an endpoint of its own for the streams to them, guarded as those of the node.
    pub transport: Box<dyn FnOnce() -> io::Result<Tcp> + Send>,
}

/// Memory of an EPN, to be shared with its consumers.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Arena of the EPN.
    pub arena: Arc<Arena>,
    /// Memory that FLPs of this machine have lent to the EPN.
    pub holdings: Holdings,
}

/// Delivers TFs, one at a time.
pub trait Sink: Send {
    /// Name in a farm file and in logs, such as `"verify"`.
    fn name(&self) -> &'static str;

    /// Whether a delivery takes no time worth a thread of its own.
    fn is_instant(&self) -> bool {
        false
    }

    /// Delivers `tf`. The answer means that the consumer has all of it.
    ///
    /// Waits for the consumer by `patience` only, which ends when the node does.
    ///
    /// # Errors
    ///
    /// [`DeliverError`] if it was not delivered. The same TF comes again.
    fn deliver(&mut self, tf: &Tf<Bytes>, patience: &Patience) -> Result<Delivery, DeliverError>;

    /// Returns a TF, delivered as [`is_held`](Delivery::is_held), that the consumer has finished with, and its bytes.
    /// Of a sink without a thread only.
    fn finished(&mut self) -> Option<(RunId, TfId, u64)> {
        None
    }

    /// Looks after its consumers while there is no TF. Gives how soon it wants to do so again; `None`: not before the
    /// next TF.
    fn idle(&mut self) -> Option<Duration> {
        None
    }
}

/// Observations of a sink about a TF that it delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The STFs in it.
    pub parts: Vec<PartEvent>,
    /// Faults of the parts. The TF is delivered all the same: its bytes are those that the FLPs sent.
    pub faults: Vec<String>,
    /// The TF as it stands in a file, if the sink lays it out in another format.
    pub file: Option<FileEvent>,
    /// Streams that were to have something of it, if the sink has streams.
    pub streams: Vec<StreamEvent>,
    /// Whether its consumer has it now, and works on it until [`SinkEvent::Freed`].
    pub is_held: bool,
}

/// Why a TF was not delivered now.
#[derive(Debug, Error)]
pub enum DeliverError {
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the operating system, such as a full disk.
        source: io::Error,
    },
    /// No consumer takes the TF.
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
        /// Error of the operating system.
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
        /// Error of the operating system.
        source: io::Error,
    },
    /// The address cannot be listened at.
    #[error("cannot listen for a consumer at {}: {source}", path.display())]
    Listen {
        /// The path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// There is no socket for its consumers.
    #[error("cannot hand TFs on by ZeroMQ: {0}")]
    Zmq(#[from] ZmqError),
    /// The files of streams cannot be had.
    #[error("{0}")]
    Streams(String),
    /// The writer nodes cannot be had.
    #[error("cannot hand TFs to writer nodes: {0}")]
    Writers(String),
    /// There is no thread for it.
    #[error("cannot start the thread of the sink: {0}")]
    Thread(io::Error),
}

/// Lists the metrics of sinks that have some, by the kind of sink.
pub(crate) fn metrics() -> [(&'static str, Vec<sheaf_metrics::Metric>); 3] {
    [
        ("streams", streams::METRICS.to_vec()),
        ("writers", writers::METRICS.to_vec()),
        ("shm", shm::METRICS.to_vec()),
    ]
}

/// Opens the sink that `config` describes.
///
/// # Errors
///
/// [`SinkError`] if its folder, its socket or its thread cannot be had.
pub fn open(config: &SinkConfig, opening: Opening) -> Result<SinkHandle, SinkError> {
    config.table().open(opening)
}

/// Result of a TF that a [`SinkHandle`] took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// Delivered.
    Delivered {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
        /// The assignment that it was built for.
        attempt: Attempt,
        /// Whether it is marked: an EPN that died may have delivered it before.
        is_redelivered: bool,
        /// Payload bytes.
        bytes: u64,
        /// The STFs in it. All sinks but `discard`, `shm` and `writers` compute the digests from the bytes; those
        /// repeat what was stated, which the transport has compared.
        parts: Vec<PartEvent>,
        /// FLPs of the roster without an STF in it.
        missing: Vec<u16>,
        /// The TF as it stands in a file, if the sink lays it out in another format.
        file: Option<FileEvent>,
        /// Streams that were to have something of it, if the sink has streams.
        streams: Vec<StreamEvent>,
        /// Faults that the sink found.
        faults: Vec<String>,
        /// Whether its consumer has it now, and works on it until [`Freed`](Self::Freed).
        is_held: bool,
    },
    /// Memory released. Comes after [`Delivered`](Self::Delivered).
    Freed {
        /// Payload bytes.
        bytes: u64,
        /// The run and the TF, of one that a consumer held.
        held: Option<(RunId, TfId)>,
    },
    /// Taken by another consumer, as the one that held it has died. Comes after [`Delivered`](Self::Delivered), before
    /// [`Freed`](Self::Freed).
    TakenAgain {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
    },
    /// Taken back by [`SinkHandle::recall`]: no consumer has the TF, and its memory is released.
    Returned {
        /// The run.
        run: RunId,
        /// The TF.
        tf: TfId,
        /// The assignment that it was built for.
        attempt: Attempt,
        /// Payload bytes.
        bytes: u64,
    },
    /// After [`Failed`](Self::Failed): it works again.
    Resumed,
    /// Durable, or no longer needed to be.
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
        /// Value found.
        found: Option<Recovered>,
    },
    /// Delivery failed for now, and is tried again. Comes at most once a second.
    Failed {
        /// The TF.
        tf: TfId,
        /// Why, and how often it was tried.
        error: String,
        /// Whether it is a file that cannot be written: then nothing can be stored now.
        is_storage: bool,
    },
}

/// Moves the TFs of `run` that are among `tfs` out of a queue.
fn taken_back(
    queue: &mut std::collections::VecDeque<Tf<Bytes>>,
    run: RunId,
    tfs: &std::collections::BTreeSet<TfId>,
) -> Vec<Tf<Bytes>> {
    let (back, kept) = std::mem::take(queue)
        .into_iter()
        .partition(|tf: &Tf<Bytes>| tf.run == run && tfs.contains(&tf.tf));
    *queue = kept;
    let back: std::collections::VecDeque<Tf<Bytes>> = back;
    back.into()
}

impl SinkEvent {
    fn returned(tf: &Tf<Bytes>) -> Self {
        Self::Returned {
            run: tf.run,
            tf: tf.tf,
            attempt: tf.attempt,
            bytes: tf.bytes(),
        }
    }

    fn delivered(tf: &Tf<Bytes>, delivery: Delivery) -> Self {
        Self::Delivered {
            run: tf.run,
            tf: tf.tf,
            attempt: tf.attempt,
            is_redelivered: tf.is_redelivered,
            bytes: tf.bytes(),
            parts: delivery.parts,
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            faults: delivery.faults,
            file: delivery.file,
            streams: delivery.streams,
            is_held: delivery.is_held,
        }
    }

    /// Returns the release of `bytes`, of a TF that no consumer held.
    fn freed(bytes: u64) -> Self {
        Self::Freed { bytes, held: None }
    }
}

/// Returns the stated facts of a part, without reading its bytes.
fn stated(part: &Part<Bytes>) -> PartEvent {
    PartEvent {
        flp: part.source.flp.0,
        incarnation: part.source.incarnation.0,
        bytes: part.bytes,
        digest: part.digest,
    }
}

/// The digests of all payloads as stated, which the transport has compared. The bytes are not read for it.
fn stated_of(tf: &Tf<Bytes>) -> Delivery {
    Delivery {
        parts: tf.parts.iter().map(stated).collect(),
        ..Delivery::default()
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
    use sheaf_protocol::{EpnId, FlpId, PayloadFormat, Source};
    use sheaf_transport::ArenaOptions;
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
            is_redelivered: false,
            parts: (0..).zip(payloads).map(part).collect(),
            missing: vec![FlpId(9)],
        }
    }

    /// Returns the observations of a sink that reads the bytes of `tf`.
    pub(super) fn delivered(tf: &Tf<Bytes>) -> SinkEvent {
        SinkEvent::delivered(tf, recomputed(tf))
    }

    /// Returns shareable memory of an EPN that has borrowed none.
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

    /// Surroundings of EPN 4 with a queue for `queue_tfs`.
    pub(super) fn opening(
        queue_tfs: u32,
        memory: Memory,
        registry: Arc<Registry>,
        wake: Wake,
    ) -> Opening {
        Opening {
            target: Target {
                epn: EpnId(4),
                incarnation: Incarnation(1),
            },
            ack: Ack::Built,
            queue_tfs,
            memory,
            registry,
            wake,
            writers: None,
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
        assert_eq!(sink.poll(), Some(SinkEvent::freed(3)));
        sink.offer(full).unwrap();
        sink.finish();
        assert!(matches!(
            sink.poll(),
            Some(SinkEvent::Delivered { tf: TfId(8), .. })
        ));
    }

    #[test]
    fn every_kind_can_be_named_on_a_command_line() {
        for kind in SinkConfig::KINDS {
            let words = match kind.place {
                Some(ENDPOINT) => format!("{}:ipc:///run/s", kind.name),
                Some(_) => format!("{}:/run/s", kind.name),
                None => kind.name.to_owned(),
            };
            assert_eq!(SinkConfig::of_words(&words).unwrap().kind(), kind.name);
        }
        for words in ["", "file", "file:", "discard:x", "fast"] {
            let error = SinkConfig::of_words(words).unwrap_err().to_string();
            let expected =
                format!("found `{words}`, expected one of discard, verify, file:DIRECTORY,");
            assert!(error.starts_with(&expected), "{error}");
        }
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
            let _sink = open(&config, opening(1, memory(), Arc::default(), wake)).unwrap();
            assert_eq!(config.kind(), expected);
            assert_eq!(
                folder.path().join("4").exists(),
                ["unix", "shm"].contains(&expected)
            );
        }
    }
}
