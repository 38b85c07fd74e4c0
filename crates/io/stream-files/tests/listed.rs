//! Files of records whose bytes do not tell where they end: the list beside a file does, until it is closed.

mod common;

use sheaf_protocol::{Timestamp, splitmix};
use sheaf_stream_files::{
    Catalogue, Durability, Engine, EngineConfig, EngineEvent, FileState, Found, IoMode, Record,
    compare_sums,
};
use sheaf_write::{Place, StreamId};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Record without head and tail, zeros among its bytes.
#[derive(Debug)]
struct Bare(Vec<u8>);

impl Bare {
    fn new(number: u64, bytes: u64) -> Self {
        let byte = |at: u64| splitmix::hash(number << 32 | at).to_le_bytes()[0] & 0x81;
        Self((0..bytes).map(byte).collect())
    }
}

impl Record for Bare {
    fn slices(&self) -> Vec<&[u8]> {
        let (first, rest) = self.0.split_at(self.0.len() / 3);
        vec![first, rest]
    }

    fn tells_its_end(&self) -> bool {
        false
    }
}

/// Finds no record: the bytes tell nothing.
fn walk(_: &mut dyn Read) -> io::Result<Option<u64>> {
    Ok(None)
}

fn config(folder: &Path, mode: IoMode, durability: Durability) -> EngineConfig {
    let mut config = common::config(folder, &["bare"]);
    config.writer.segment_bytes = 10;
    (config.mode, config.durability) = (Some(mode), durability);
    config
}

fn open(config: EngineConfig) -> (Engine<Bare>, Receiver<()>, Vec<Found>) {
    let (sender, wakes) = sync_channel(1);
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
    });
    let (engine, found) = Engine::open(config, &walk, &wake).expect("opens");
    (engine, wakes, found)
}

/// Writes records of these sizes, and returns when all are acknowledged.
fn write(engine: &mut Engine<Bare>, wakes: &Receiver<()>, sizes: &[u64]) {
    let place = Place {
        run: 7,
        stream: StreamId(0),
        block: 0,
    };
    for (number, bytes) in (0..).zip(sizes) {
        let record = Bare::new(number, *bytes);
        engine
            .append(Timestamp(0), place, record)
            .expect("a record that fits");
    }
    while engine.held() != (0, 0) {
        wakes.recv_timeout(PATIENCE).expect("workers report");
        engine.turn(Timestamp(0));
        while let Some(event) = engine.poll() {
            assert!(matches!(event, EngineEvent::Written(_)), "{event:?}");
        }
    }
}

fn bytes_of(sizes: &[u64]) -> Vec<u8> {
    let all = (0..).zip(sizes);
    all.flat_map(|(number, bytes)| Bare::new(number, *bytes).0)
        .collect()
}

/// Copies a folder as a crash leaves it.
fn crashed(folder: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, to.path().join(name)).expect("copied");
    }
    to
}

fn with_end(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == end))
        .collect()
}

/// Bytes of the only file after a start, which is as its catalogue says; none if there is no file.
fn kept(folder: &Path, mode: IoMode, records: u64) -> Vec<u8> {
    let (engine, _, found) = open(config(folder, mode, Durability::Close));
    drop(engine);
    assert_eq!(found[0].records, records, "{found:?}");
    assert!(with_end(folder, "records").is_empty(), "a list is left");
    let rows = Catalogue::read(folder).expect("a catalogue").rows(None);
    let rows = rows.expect("rows");
    let Some(row) = rows.first() else {
        assert!(with_end(folder, "part").is_empty(), "a file is left");
        return Vec::new();
    };
    assert_eq!((rows.len(), row.state), (1, FileState::Recovered));
    compare_sums(folder, row).expect("as the catalogue says");
    std::fs::read(folder.join(&row.file)).expect("the file is there")
}

#[test]
fn a_crash_keeps_what_was_acknowledged_and_a_cut_anywhere_the_whole_records_before() {
    let sizes = [9, 1, 12, 6];
    let all = bytes_of(&sizes);
    for mode in [IoMode::Direct, IoMode::Buffered] {
        for durability in [Durability::None, Durability::Record] {
            let folder = tempfile::tempdir().expect("a folder");
            let (mut engine, wakes, _) = open(config(folder.path(), mode, durability));
            write(&mut engine, &wakes, &sizes);
            // Behind the records lies space that was set aside.
            assert_eq!(
                kept(crashed(folder.path()).path(), mode, 4),
                all,
                "{mode:?} {durability:?}"
            );
            drop(engine);
            if durability == Durability::Record {
                continue;
            }
            let ends = sizes.iter().scan(0, |end, bytes| {
                *end += bytes;
                Some(*end)
            });
            let ends: Vec<u64> = ends.collect();
            for cut in 0..all.len() {
                let mut whole = ends.iter().filter(|end| **end <= cut as u64);
                let records = whole.clone().count() as u64;
                let bytes = whole.next_back().copied().unwrap_or(0) as usize;
                for is_set_aside in [false, true] {
                    let copy = crashed(folder.path());
                    let [part] = with_end(copy.path(), "part").try_into().expect("one file");
                    let mut left = all[..cut].to_vec();
                    if is_set_aside {
                        left.resize(4096, 0);
                        // A record that ends in zeros is whole all the same.
                        if left.starts_with(&all[..all.len().min(cut + 1)]) {
                            continue;
                        }
                    }
                    std::fs::write(&part, left).expect("written");
                    assert_eq!(kept(copy.path(), mode, records), &all[..bytes], "{cut}");
                }
            }
        }
    }
}

#[test]
fn a_closed_file_has_no_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), IoMode::Buffered, Durability::Close);
    let (mut engine, wakes, _) = open(config);
    write(&mut engine, &wakes, &[10, 100, 1000]);
    assert_eq!(with_end(folder.path(), "records").len(), 1);
    assert!(engine.finish(|| Timestamp(0), PATIENCE), "all is closed");
    assert!(with_end(folder.path(), "records").is_empty());
    let rows = Catalogue::read(folder.path()).expect("a catalogue");
    let rows = rows.rows(None).expect("rows");
    assert_eq!((rows.len(), rows[0].records), (1, 3));
    compare_sums(folder.path(), &rows[0]).expect("as the catalogue says");
    let path = folder.path().join(&rows[0].file);
    let mut bytes = std::fs::read(&path).expect("the file is there");
    assert_eq!(bytes, bytes_of(&[10, 100, 1000]));
    bytes[500] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    compare_sums(folder.path(), &rows[0]).expect_err("a byte is another one");
}
