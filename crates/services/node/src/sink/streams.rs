//! Files of streams: the TFs of an EPN go to files by stream and block, written by several threads.

mod counters;
mod record;
mod select;
mod thread;

use super::handle::SinkHandle;
use super::{Opening, SinkError, SinkKind};
use crate::check::{Check, ConfigError, check_directory, path_for};
pub(super) use counters::METRICS;
use select::{Selection, StreamTable};
use serde::{Deserialize, Serialize};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::{EpnId, NodeId};
use sheaf_stream_files::{Durability, EngineConfig, IoMode};
use sheaf_write::{
    Assignment, Kinds, Limits, StreamConfig, SyncEvery, Template, WriterConfig, assignments,
    check_word,
};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use thread::StreamThread;

/// The `[epn.sink]` table with `kind = "streams"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamsSink {
    /// Where the files are made, in a folder for each EPN: `epn-0` and so on. It must be there. `{epn}` stands for the
    /// index of the EPN.
    pub directory: PathBuf,
    /// Project, in file names.
    pub project: String,
    /// Template of file names.
    pub template: String,
    /// Threads that write.
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
    /// MiB that may be with the threads at once.
    pub queue_mib: u64,
    /// MiB of the disk that stay free: with less, no TF is taken. 0: the disk may be filled.
    pub free_min_mib: u64,
    /// Checksums of files beside Adler-32: "crc32c", "xxh3" (not with "striped").
    pub checksums: Vec<Checksum>,
    /// Streams; none: one that is called "main" with all TFs.
    #[serde(rename = "stream")]
    pub streams: Vec<Selection>,
}

impl Default for StreamsSink {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
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
            free_min_mib: 256,
            checksums: Vec::new(),
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

const MIB: u64 = 1 << 20;

impl StreamsSink {
    /// Returns the configuration of the brain for EPN `epn`.
    fn writer(&self, epn: EpnId) -> Result<WriterConfig, String> {
        let template = Template::parse(&self.template).map_err(|error| error.to_string())?;
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
            node: node_name(epn),
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
            seed: u64::from(epn.0),
        })
    }
}

impl SinkKind for StreamsSink {
    fn check(&self, check: &mut Check) {
        let directory = &self.directory;
        check.that(
            !directory.as_os_str().is_empty(),
            "epn.sink.directory",
            "none",
            "a directory that is there",
        );
        if let Err(error) = Template::parse(&self.template) {
            check.that(
                false,
                "epn.sink.template",
                &self.template,
                error.to_string(),
            );
        }
        if let Err(error) = check_word("project", &self.project) {
            check.that(false, "epn.sink.project", &self.project, error.to_string());
        }
        let names: Vec<&str> = assignments().iter().map(|row| row.name).collect();
        check.that(
            names.contains(&self.assignment.as_str()),
            "epn.sink.assignment",
            &self.assignment,
            format!("one of {}", names.join(", ")),
        );
        let is_striped = self.assignment == "striped";
        check.that(
            !(is_striped && self.checksums.contains(&Checksum::Xxh3)),
            "epn.sink.checksums",
            "xxh3",
            "crc32c alone with the assignment striped: XXH3 of segments cannot be combined",
        );
        for (key, found, least, most) in [
            ("epn.sink.workers", u64::from(self.workers), 1, 256),
            ("epn.sink.segment_mib", self.segment_mib.into(), 1, 1024),
            ("epn.sink.block_tfs", self.block_tfs, 1, u64::MAX),
            ("epn.sink.file_mib", self.file_mib, 1, 1 << 24),
            ("epn.sink.file_s", self.file_s, 1, 1 << 32),
            ("epn.sink.sync_mib", self.sync_mib, 1, 1 << 20),
            ("epn.sink.sync_ms", self.sync_ms, 1, 1 << 32),
            ("epn.sink.queue_mib", self.queue_mib, 1, 1 << 20),
            ("epn.sink.free_min_mib", self.free_min_mib, 0, 1 << 30),
        ] {
            check.that(
                (least..=most).contains(&found),
                key,
                found,
                format!("{least} to {most}"),
            );
        }
        StreamTable::check(&self.streams, check);
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        check_directory("epn.sink.directory", &path_for(&self.directory, node))
    }

    fn descriptors_max(&self) -> usize {
        // Two blocks of each stream, each file by two descriptors; the catalogue, the lock and the folder.
        4 * self.streams.len().max(1) + 16
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let epn = opening.target.epn;
        let node = node_name(epn);
        let folder = path_for(&self.directory, epn.into()).join(&node);
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
        let config = EngineConfig {
            folder,
            writer: self.writer(epn).map_err(SinkError::Streams)?,
            durability: match self.durability {
                StreamsDurability::None => Durability::None,
                StreamsDurability::Close => Durability::Close,
                StreamsDurability::Every => Durability::Every,
                StreamsDurability::Record => Durability::Record,
            },
            mode: match self.io {
                StreamsIo::Auto => None,
                StreamsIo::Direct => Some(IoMode::Direct),
                StreamsIo::Buffered => Some(IoMode::Buffered),
            },
            queue_bytes: self.queue_mib * MIB,
            queue_records: 8192,
            worker_bytes_per_s: None,
        };
        let table = StreamTable::new(&self.streams);
        let thread = StreamThread::spawn(
            config,
            table,
            (self.block_tfs, self.free_min_mib.saturating_mul(MIB)),
            opening,
        )?;
        Ok(SinkHandle::new(thread))
    }
}

/// Name of an EPN in file names, and of its folder.
fn node_name(epn: EpnId) -> String {
    format!("epn-{}", epn.0)
}

/// Reads a TF of a file whose end may be missing.
fn walk(reader: &mut dyn Read) -> io::Result<Option<u64>> {
    Ok(match next_tf(reader)? {
        NextTf::Whole(_, bytes) => Some(bytes),
        NextTf::Broken(_) | NextTf::End => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::SinkConfig;
    use super::*;

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
        let writer = sink.writer(EpnId(3)).expect("a writer");
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
}
