//! Files of streams: the TFs of an EPN or a writer node go to files by stream and block, written by several threads.

mod counters;
mod find;
mod format;
mod places;
mod record;
mod select;
mod tell;
mod thread;

use super::handle::SinkHandle;
use super::{Opening, SinkError, SinkKind};
use crate::check::{Check, ConfigError, path_for};
pub(super) use counters::METRICS;
pub use places::StreamsOverload;
use places::{QUEUE_HIGH_PERCENT, names_of};
pub(super) use select::Selection;
use select::StreamTable;
use serde::{Deserialize, Serialize};
use sheaf_formats::StreamFormat;
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::{EpnId, NodeId};
use sheaf_stream_files::{Durability, EngineConfig, IoMode, Labels};
use sheaf_write::{
    Assignment, FileName, Kinds, Limits, StreamConfig, SyncEvery, Template, TemplateError,
    WriterConfig, assignments, check_word,
};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use thread::Setup;
pub(super) use thread::{ReturnEntry, StreamThread};

/// The `[epn.sink]` table with `kind = "streams"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamsSink {
    /// Where the files are made, in a folder for each EPN: `epn-0` and so on. It must be there. `{epn}` stands for the
    /// index of the EPN.
    pub directory: PathBuf,
    /// More directories, each on a disk of its own: a new file goes to one of all of them. One that fails, is slow or
    /// full gets no new files.
    pub directories: Vec<PathBuf>,
    /// How files are assigned to the directories.
    pub disk_assignment: String,
    /// Age in ms of the oldest TF that waits for a disk from which on the disk counts as slow.
    pub slow_ms: u64,
    /// Treatment of TFs that the disks do not take.
    pub overload: StreamsOverload,
    /// Where TFs go that the disks do not take, with the overload "spill".
    pub spill_directory: PathBuf,
    /// Project, in file names.
    pub project: String,
    /// Template of file names. `{ext}` is "tf", "stf" or "raw", by the format of the stream.
    pub template: String,
    /// Threads that write, for each directory.
    pub workers: u32,
    /// How files, or their segments, are assigned to the threads.
    pub assignment: String,
    /// MiB after which the next thread takes over a file, with the assignment "striped".
    pub segment_mib: u32,
    /// TFs of a block: each stream begins a file for each block of the run.
    pub block_tfs: u64,
    /// A file with this many MiB gets no further TF.
    pub file_mib: u64,
    /// A file of this age, in seconds, gets no further TF.
    pub file_s: u64,
    /// When data is made durable.
    pub durability: StreamsDurability,
    /// MiB of a file after which it is synced, with the durability "every".
    pub sync_mib: u64,
    /// Time in ms after which a file is synced, with the durability "every".
    pub sync_ms: u64,
    /// Way to the disk.
    pub io: StreamsIo,
    /// MiB that may be with the threads of a directory at once.
    pub queue_mib: u64,
    /// Percent of that from which on the lowest class of streams is shed, with the overload "shed".
    pub queue_high_percent: u32,
    /// MiB of a disk that stay free: one with less gets nothing. 0: the disk may be filled.
    pub free_min_mib: u64,
    /// MiB that a disk which had less than `free_min_mib` has to have free to get TFs again; below it the lowest class
    /// of streams is shed, with the overload "shed". 0: a quarter more than `free_min_mib`.
    pub free_low_mib: u64,
    /// Checksums of files beside Adler-32: "crc32c", "xxh3" (not with "striped").
    pub checksums: Vec<Checksum>,
    /// Places of the checksums of closed files beside the catalogue: "json", "xattr".
    pub labels: Vec<StreamsLabel>,
    /// Streams; none: one that is called "main" with all TFs.
    #[serde(rename = "stream")]
    pub streams: Vec<Selection>,
}

impl Default for StreamsSink {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            directories: Vec::new(),
            disk_assignment: "open-rate".to_owned(),
            slow_ms: 5000,
            overload: StreamsOverload::Block,
            spill_directory: PathBuf::new(),
            project: "sheaf".to_owned(),
            template: Template::DEFAULT.to_owned(),
            workers: 2,
            assignment: "striped".to_owned(),
            segment_mib: 16,
            block_tfs: 10_000,
            file_mib: 4096,
            file_s: 600,
            durability: StreamsDurability::Close,
            sync_mib: 64,
            sync_ms: 1000,
            io: StreamsIo::Auto,
            queue_mib: 256,
            queue_high_percent: QUEUE_HIGH_PERCENT,
            free_min_mib: 256,
            free_low_mib: 0,
            checksums: Vec::new(),
            labels: Vec::new(),
            streams: Vec::new(),
        }
    }
}

/// When what is written is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsDurability {
    /// When the kernel does it.
    None,
    /// When a file is closed.
    #[default]
    Close,
    /// Every so many MiB or ms.
    Every,
    /// Before a TF counts as delivered.
    Record,
}

/// Way to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsIo {
    /// Direct if the folder can.
    #[default]
    Auto,
    /// Past the page cache.
    Direct,
    /// Past the page cache, several writes of a thread at once, by io_uring.
    Uring,
    /// By the page cache.
    Buffered,
}

/// Checksum of a file beside Adler-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// CRC-32C.
    Crc32c,
    /// XXH3 with 64 bits.
    Xxh3,
}

/// Place of the checksums of a closed file beside the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsLabel {
    /// A side-car, `NAME.json`.
    Json,
    /// Extended attributes of the file.
    Xattr,
}

const MIB: u64 = 1 << 20;
/// Name of the table of a sink in a farm file.
const TABLE: &str = "epn.sink";
/// TFs that may be with the threads of a directory at once.
const QUEUE_RECORDS: u32 = 8192;

impl StreamsSink {
    /// Returns the template, with the formats of the streams.
    fn template(&self) -> Result<Template, TemplateError> {
        let formats = StreamTable::formats(&self.streams);
        let extensions = formats.map(|(name, format)| (name, format.extension().to_owned()));
        Ok(Template::parse(&self.template)?.with_extensions(extensions.collect()))
    }

    /// Reports a stream whose files would have names of another format; the template stands at `key`.
    fn check_names(&self, key: &str, template: &Template, check: &mut Check) {
        for (stream, format) in StreamTable::formats(&self.streams) {
            let name = template.name(&FileName {
                project: self.project.clone(),
                run: 0,
                stream: stream.clone(),
                block: 0,
                node: node_name(EpnId(0).into()),
                seq: 0,
            });
            check.that(
                StreamFormat::of_file(&name) == format,
                key,
                &self.template,
                format!(
                    "one that ends in `.{{ext}}`: the stream {stream} has the format {:?}, and a file called \
                     {name} has not",
                    format.name()
                ),
            );
        }
    }

    /// Returns the configuration of the brain of a disk, which is called `node` in file names.
    fn writer(&self, seed: u64, node: String) -> Result<WriterConfig, String> {
        let template = self.template().map_err(|error| error.to_string())?;
        let assignment = Assignment::named(&self.assignment).map_err(|error| error.to_string())?;
        let limits = Limits {
            bytes: self.file_mib.saturating_mul(MIB),
            records: u64::MAX,
            age: Duration::from_secs(self.file_s),
        };
        let has = |wanted| self.checksums.contains(&wanted);
        let streams = StreamTable::names(&self.streams).map(|name| StreamConfig { name, limits });
        Ok(WriterConfig {
            project: self.project.clone(),
            node,
            template,
            workers: self.workers,
            assignment,
            segment_bytes: u64::from(self.segment_mib) * MIB,
            record_bytes_max: u64::MAX,
            kinds: Kinds {
                crc32c: has(Checksum::Crc32c),
                xxh3: has(Checksum::Xxh3),
            },
            sync_every: (self.durability == StreamsDurability::Every).then_some(SyncEvery {
                bytes: self.sync_mib.saturating_mul(MIB),
                time: Duration::from_millis(self.sync_ms),
            }),
            streams: streams.collect(),
            seed,
        })
    }

    /// Returns the configuration of the engine of a disk.
    fn engine(&self, seed: u64, folder: PathBuf, node: String) -> Result<EngineConfig, String> {
        Ok(EngineConfig {
            folder,
            writer: self.writer(seed, node)?,
            durability: match self.durability {
                StreamsDurability::None => Durability::None,
                StreamsDurability::Close => Durability::Close,
                StreamsDurability::Every => Durability::Every,
                StreamsDurability::Record => Durability::Record,
            },
            mode: match self.io {
                StreamsIo::Auto => None,
                StreamsIo::Direct => Some(IoMode::Direct),
                StreamsIo::Uring => Some(IoMode::Uring),
                StreamsIo::Buffered => Some(IoMode::Buffered),
            },
            queue_bytes: self.queue_mib * MIB,
            queue_records: QUEUE_RECORDS,
            labels: Labels {
                json: self.labels.contains(&StreamsLabel::Json),
                xattr: self.labels.contains(&StreamsLabel::Xattr),
            },
            worker_bytes_per_s: None,
        })
    }

    /// Checks a table that stands at `table`. Consumers give TFs back if `has_consumers`.
    pub(crate) fn check_at(&self, table: &str, has_consumers: bool, check: &mut Check) {
        let key = |key: &str| format!("{table}.{key}");
        self.check_places(table, check);
        match self.template() {
            Ok(template) => self.check_names(&key("template"), &template, check),
            Err(error) => check.fail(&key("template"), &self.template, error.to_string()),
        }
        if let Err(error) = check_word("project", &self.project) {
            check.that(false, &key("project"), &self.project, error.to_string());
        }
        let names: Vec<&str> = assignments().iter().map(|row| row.name).collect();
        check.that(
            names.contains(&self.assignment.as_str()),
            &key("assignment"),
            &self.assignment,
            format!("one of {}", names.join(", ")),
        );
        let is_striped = self.assignment == "striped";
        check.that(
            !(is_striped && self.checksums.contains(&Checksum::Xxh3)),
            &key("checksums"),
            "xxh3",
            "crc32c alone with the assignment striped: XXH3 of segments cannot be combined",
        );
        for (name, found, least, most) in [
            ("workers", u64::from(self.workers), 1, 256),
            ("segment_mib", self.segment_mib.into(), 1, 1024),
            ("block_tfs", self.block_tfs, 1, u64::MAX),
            ("file_mib", self.file_mib, 1, 1 << 24),
            ("file_s", self.file_s, 1, 1 << 32),
            ("sync_mib", self.sync_mib, 1, 1 << 20),
            ("sync_ms", self.sync_ms, 1, 1 << 32),
            ("queue_mib", self.queue_mib, 1, 1 << 20),
            ("free_min_mib", self.free_min_mib, 0, 1 << 30),
        ] {
            check.that(
                (least..=most).contains(&found),
                &key(name),
                found,
                format!("{least} to {most}"),
            );
        }
        StreamTable::check(&self.streams, &key("stream"), has_consumers, check);
    }

    /// Checks what the files of a writer node, at `table`, cannot have: TFs come again there after a crash, and a file
    /// of payloads alone does not tell which it has.
    pub(crate) fn check_of_writer(&self, table: &str, check: &mut Check) {
        for (stream, format) in StreamTable::formats(&self.streams) {
            check.that(
                format != StreamFormat::Raw,
                &format!("{table}.stream"),
                format!("format = \"raw\" of {stream}"),
                "tf or stf-file: a file of payloads alone does not tell whether it has a TF that comes again",
            );
        }
    }

    /// Looks for the folders that `node` needs on this machine, for a table that stands at `table`.
    pub(crate) fn check_folder(&self, table: &str, node: NodeId) -> Option<ConfigError> {
        self.check_directories(table, node)
    }

    /// Returns the number of descriptors of the files.
    pub(crate) fn files_max(&self) -> usize {
        // Two blocks of each stream, each file by two descriptors and one of its list of records; the catalogue, the
        // lock and the folder.
        (6 * self.streams.len().max(1) + 16) * self.places().len().max(1)
    }
}

impl SinkKind for StreamsSink {
    fn check(&self, check: &mut Check) {
        self.check_at(TABLE, false, check);
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        self.check_folder(TABLE, node)
    }

    fn descriptors_max(&self) -> usize {
        self.files_max()
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let node = opening.target.epn.into();
        self.open_for(node, opening)
    }
}

impl StreamsSink {
    /// Opens the sink of `node`, an EPN or a writer.
    pub(crate) fn open_for(&self, node: NodeId, opening: Opening) -> Result<SinkHandle, SinkError> {
        Ok(SinkHandle::new(self.begin(node, opening)?))
    }

    /// Returns the folder of `node` in the first directory, whose catalogue has what concerns all disks.
    pub(crate) fn first_folder(&self, node: NodeId) -> PathBuf {
        let first = self
            .places()
            .first()
            .map_or_else(PathBuf::new, |(_, path)| path_for(path, node));
        first.join(node_name(node))
    }

    /// Opens the folders of `node` and begins the thread between it and the files.
    pub(super) fn begin(&self, of: NodeId, opening: Opening) -> Result<StreamThread, SinkError> {
        let (node, seed) = (node_name(of), u64::from(of.index));
        let mut folders = Vec::new();
        for (_, directory) in self.places() {
            let folder = path_for(directory, of).join(&node);
            // Not the directory itself: if that is gone, a disk is not mounted.
            match std::fs::create_dir(&folder) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(SinkError::Directory {
                        path: folder,
                        source,
                    });
                }
                Ok(()) | Err(_) => {}
            }
            folders.push(folder);
        }
        let names = names_of(&node, &folders).map_err(SinkError::Streams)?;
        let engines = folders.into_iter().zip(names);
        let engines = engines.map(|(folder, name)| self.engine(seed, folder, name));
        let engines: Result<Vec<EngineConfig>, String> = engines.collect();
        let table = StreamTable::new(&self.streams);
        let intake = self.intake(table.classes(), seed);
        let setup = Setup {
            engines: engines.map_err(SinkError::Streams)?,
            intake: intake.map_err(SinkError::Streams)?,
            table,
            block_tfs: self.block_tfs,
        };
        StreamThread::spawn(setup, opening)
    }
}

/// Name of a node in file names, and of its folder, such as `epn-3`.
fn node_name(node: NodeId) -> String {
    format!("{}-{}", node.role, node.index)
}

/// Reads a TF of a file whose end may be missing. Files of other formats than Sheaf's have lists of their records.
fn walk(reader: &mut dyn Read) -> io::Result<Option<u64>> {
    Ok(match next_tf(reader)? {
        NextTf::Whole(_, bytes) => Some(bytes),
        NextTf::Broken(_) | NextTf::End => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{memory, opening, tf, wakes};
    use super::super::{SinkConfig, SinkEvent};
    use super::*;
    use sheaf_stream_files::Catalogue;
    use sheaf_verdict_log::event::StreamEvent;
    use std::sync::Arc;

    /// Compares the errors of a table, one a line, or none.
    #[track_caller]
    fn check(keys: &str, expected: &[&str]) {
        let text = format!("kind = \"streams\"\ndirectory = \"/data\"\n{keys}");
        let config: SinkConfig = toml::from_str(&text).expect("a table");
        let mut check = Check::default();
        config.table().check(&mut check);
        let found: Vec<String> = check.errors.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{keys}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{keys}: {found}");
        }
    }

    #[test]
    fn the_defaults_are_good_and_make_a_writer() {
        check("", &[]);
        let sink = StreamsSink::default();
        let writer = sink.writer(3, node_name(EpnId(3).into()));
        let writer = writer.expect("a writer");
        assert_eq!((writer.node.as_str(), writer.streams.len()), ("epn-3", 1));
    }

    #[test]
    fn tables_that_cannot_work_are_refused_before_anything_is_written() {
        check("template = \"{run}.{stream}.tf\"", &["lacks {block}"]);
        check("project = \"a.b\"", &["found project `a.b`"]);
        check(
            "assignment = \"fair\"",
            &["one of round-robin, random, window"],
        );
        check(
            "checksums = [\"xxh3\"]",
            &["XXH3 of segments cannot be combined"],
        );
        check("checksums = [\"xxh3\"]\nassignment = \"open-rate\"", &[]);
        check("workers = 0\nqueue_mib = 0", &["1 to 256", "1 to 1048576"]);
        check(
            "[[stream]]\nname = \"a\"\n[[stream]]\nname = \"a\"\nevery = 0",
            &["a name for each stream", "every = 1 or more"],
        );
        check("[[stream]]\nname = \"a/b\"", &["found stream `a/b`"]);
    }

    #[test]
    fn directories_that_are_one_and_watermarks_in_the_wrong_order_are_refused() {
        check("directories = [\"/disk1\", \"/disk2\"]", &[]);
        check(
            "directories = [\"/disk1\", \"/data\"]",
            &["found /data, expected a directory that is not /data,"],
        );
        check(
            "directories = [\"/data/more\"]",
            &["found /data/more, expected a directory that is not /data,"],
        );
        check("directories = [\"\"]", &["found an empty path"]);
        check(
            "overload = \"spill\"",
            &["epn.sink.spill_directory: found ``"],
        );
        check(
            "spill_directory = \"/spill\"",
            &["found `/spill`, expected a directory with the overload spill"],
        );
        check("overload = \"spill\"\nspill_directory = \"/spill\"", &[]);
        check(
            "overload = \"spill\"\nspill_directory = \"/data\"",
            &["epn.sink.spill_directory: found /data, expected a directory that is not /data"],
        );
        check(
            "free_min_mib = 100\nfree_low_mib = 100",
            &["epn.sink.free_low_mib: found 100, expected more than the 100"],
        );
        check("free_min_mib = 100\nfree_low_mib = 101", &[]);
        check("queue_high_percent = 100", &["1 to 99"]);
        check("slow_ms = 0", &["epn.sink.slow_ms"]);
        check(
            "disk_assignment = \"striped\"",
            &["epn.sink.disk_assignment: found striped, expected one of round-robin"],
        );
    }

    #[test]
    fn streams_are_shed_by_classes_that_differ() {
        check("overload = \"shed\"", &["streams of two classes or more"]);
        let streams = |class| {
            format!(
                "overload = \"shed\"\n[[stream]]\nname = \"a\"\nclass = 1\n[[stream]]\nname = \"b\"\nclass = {class}"
            )
        };
        check(&streams(1), &["streams of two classes or more"]);
        check(&streams(2), &[]);
    }

    /// Opens the sink of EPN 4 on a new folder, with these keys.
    fn opened(keys: &str) -> (tempfile::TempDir, SinkHandle, super::super::tests::Wakes) {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().display();
        let text = format!("kind = \"streams\"\ndirectory = \"{directory}\"\n{keys}");
        let config: SinkConfig = toml::from_str(&text).expect("a table");
        let (wake, wakes) = wakes();
        let opening = opening(4, memory(), Arc::default(), wake);
        let sink = super::super::open(&config, opening).expect("a sink");
        (folder, sink, wakes)
    }

    #[test]
    fn a_stream_that_is_shed_is_named_in_the_delivery_and_has_no_file() {
        let (folder, mut sink, wakes) = opened(
            "overload = \"shed\"\nfree_min_mib = 1\nfree_low_mib = 1000000000\n\
             [[stream]]\nname = \"main\"\nclass = 1\n[[stream]]\nname = \"calib\"\n",
        );
        sink.offer(tf(7, &[b"abc"])).expect("there is room");
        let SinkEvent::Delivered { streams, .. } = wakes.next(&mut sink) else {
            panic!("the TF is delivered")
        };
        let fate = |stream: &str, shed: Option<&str>| StreamEvent {
            stream: stream.to_owned(),
            shed: shed.map(str::to_owned),
            refused: None,
        };
        assert_eq!(streams, [fate("main", None), fate("calib", Some("space"))]);
        sink.finish();
        let rows = Catalogue::read(&folder.path().join("epn-4")).expect("a catalogue");
        let rows = rows.rows(None).expect("rows");
        let found: Vec<(&str, u64)> = rows
            .iter()
            .map(|row| (row.name.stream.as_str(), row.records))
            .collect();
        assert_eq!(found, [("main", 1)]);
    }

    #[test]
    fn a_disk_without_room_blocks_and_the_storage_is_reported_as_full() {
        let (_folder, mut sink, wakes) = opened("free_min_mib = 1000000000\n");
        sink.offer(tf(7, &[b"abc"]))
            .expect("there is room in memory");
        let SinkEvent::Failed {
            error, is_storage, ..
        } = wakes.next(&mut sink)
        else {
            panic!("nothing can be stored")
        };
        assert!(
            is_storage && error.contains("free_min_mib keeps"),
            "{error}"
        );
        sink.finish();
        assert_eq!(sink.poll(), None, "the TF is not delivered");
    }

    #[test]
    fn streams_of_each_format_have_names_that_tell_it() {
        let streams = "[[stream]]\nname = \"a\"\n[[stream]]\nname = \"b\"\nformat = \"stf-file\"\n\
                       [[stream]]\nname = \"c\"\nformat = \"raw\"\nflps = [3]\ndetectors = [\"TPC\"]\n";
        check(streams, &[]);
        check(
            &format!("template = \"{{run}}.{{stream}}.{{block}}.{{node}}.{{seq}}.tf\"\n{streams}"),
            &[
                "one that ends in `.{ext}`: the stream b has the format \"stf-file\"",
                "the stream c has the format \"raw\", and a file called 0.c.0.epn-0.0.tf has not",
            ],
        );
        check(
            "template = \"{run}.{block}.{node}.{seq}.{stream}\"\n[[stream]]\nname = \"raw\"",
            &["the stream raw has the format \"tf\""],
        );
    }

    #[test]
    fn formats_and_detectors_that_cannot_work_are_refused() {
        for flps in ["", "flps = [0, 1]"] {
            check(
                &format!("[[stream]]\nname = \"a\"\nformat = \"raw\"\n{flps}"),
                &["expected one FLP: payloads of several cannot be told apart"],
            );
        }
        check(
            "[[stream]]\nname = \"a\"\ndetectors = [\"ITS\", \"TPX\"]",
            &["found the detector \"TPX\", expected one of TPC, TRD, TOF"],
        );
        let text = "kind = \"streams\"\n[[stream]]\nname = \"a\"\nformat = \"root\"";
        let refused = toml::from_str::<SinkConfig>(text).expect_err("no such format");
        assert!(
            refused.to_string().contains("`tf`, `stf-file`, `raw`"),
            "{refused}"
        );
    }
}
