//! Configuration that the tests of engines begin with.

use sheaf_stream_files::{Durability, EngineConfig, Labels};
use sheaf_write::{Assignment, Kinds, Limits, StreamConfig, Template, WriterConfig};
use std::path::Path;
use std::time::Duration;

/// Returns the configuration of an engine in `folder` for `streams` without limits, striped over three workers, synced
/// at the close.
pub(crate) fn config(folder: &Path, streams: &[&str]) -> EngineConfig {
    let limits = Limits {
        bytes: u64::MAX,
        records: u64::MAX,
        age: Duration::MAX,
    };
    let streams = streams.iter().map(|name| StreamConfig {
        name: (*name).to_owned(),
        limits,
    });
    EngineConfig {
        folder: folder.to_owned(),
        writer: WriterConfig {
            project: "test".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT).expect("the default is good"),
            workers: 3,
            assignment: Assignment::named("striped").expect("in the table"),
            segment_bytes: 10_000,
            record_bytes_max: u64::MAX,
            kinds: Kinds {
                crc32c: true,
                xxh3: false,
            },
            sync_every: None,
            streams: streams.collect(),
            seed: 1,
        },
        durability: Durability::Close,
        mode: None,
        queue_bytes: 1 << 20,
        queue_records: 100,
        labels: Labels::default(),
        worker_bytes_per_s: None,
    }
}
