//! Engines on real files: records, workers, crashes, and what a folder has afterwards.

mod common;

use proptest::prelude::*;
use sheaf_protocol::{Timestamp, splitmix};
use sheaf_stream_files::{
    Catalogue, Durability, Engine, EngineConfig, EngineError, EngineEvent, FileState, Found,
    IoMode, Labels, Record, side_car,
};
use sheaf_write::{Assignment, Kinds, Place, StreamId, Summing, SyncEvery, assignments};
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Read, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in front of the content of a record: its length and its number.
const HEAD: usize = 12;

/// Record in a format of the tests: length, number, content, and a byte that closes it.
#[derive(Debug)]
struct Numbered {
    stream: u16,
    number: u64,
    bytes: Vec<u8>,
}

impl Numbered {
    fn new(stream: u16, number: u64, content: usize) -> Self {
        let length = u32::try_from(content).expect("a small record");
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend((0..content).map(|at| (number as usize * 31 + at) as u8));
        bytes.push(0xee);
        Self {
            stream,
            number,
            bytes,
        }
    }
}

impl Record for Numbered {
    fn slices(&self) -> Vec<&[u8]> {
        let (head, content) = self.bytes.split_at(HEAD);
        vec![head, content]
    }

    /// The files of the second stream have lists of their records.
    fn tells_its_end(&self) -> bool {
        self.stream == 0
    }
}

/// Reads a record of the tests.
fn walk(reader: &mut dyn Read) -> io::Result<Option<u64>> {
    let mut head = Vec::new();
    if reader.take(HEAD as u64).read_to_end(&mut head)? < HEAD {
        return Ok(None);
    }
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let mut content = Vec::new();
    let found = reader
        .take(u64::from(length) + 1)
        .read_to_end(&mut content)?;
    let is_whole = found as u64 == u64::from(length) + 1 && content.last() == Some(&0xee);
    Ok(is_whole.then_some((HEAD + found) as u64))
}

/// Numbers of the records in bytes.
fn numbers(mut bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let head = bytes[..HEAD].to_vec();
        let length = walk(&mut bytes).expect("memory").expect("a whole record");
        assert!(length > HEAD as u64);
        numbers.push(u64::from_le_bytes(
            head[4..].try_into().expect("eight bytes"),
        ));
    }
    numbers
}

fn config(folder: &Path, assignment: &str, mode: Option<IoMode>) -> EngineConfig {
    let mut config = common::config(folder, &["main", "calib"]);
    config.writer.assignment = Assignment::named(assignment).expect(assignment);
    config.mode = mode;
    config
}

/// Engine with what it has acknowledged.
struct Bench {
    engine: Engine<Numbered>,
    wakes: Receiver<()>,
    acknowledged: BTreeMap<u16, Vec<u64>>,
}

impl Bench {
    fn open(config: EngineConfig) -> Result<(Self, Vec<Found>), EngineError> {
        let (sender, wakes) = sync_channel(1);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
        });
        let (engine, found) = Engine::open(config, &walk, &wake)?;
        let bench = Self {
            engine,
            wakes,
            acknowledged: BTreeMap::new(),
        };
        Ok((bench, found))
    }

    fn append(&mut self, block: u64, record: Numbered) {
        while !self.engine.has_room(record.bytes()) {
            self.wait();
        }
        let place = Place {
            run: 7,
            stream: StreamId(record.stream),
            block,
        };
        self.engine
            .append(Timestamp(0), place, record)
            .expect("a record that fits");
    }

    fn wait(&mut self) {
        self.wakes.recv_timeout(PATIENCE).expect("workers report");
        self.take(Timestamp(0));
    }

    fn take(&mut self, now: Timestamp) {
        self.engine.turn(now);
        while let Some(event) = self.engine.poll() {
            match event {
                EngineEvent::Written(record) => {
                    let of_stream = self.acknowledged.entry(record.stream).or_default();
                    of_stream.push(record.number);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn await_all(&mut self) {
        while self.engine.held() != (0, 0) {
            self.wait();
        }
    }

    fn finish(&mut self) {
        assert!(
            self.engine.finish(|| Timestamp(0), PATIENCE),
            "all is closed"
        );
        self.take(Timestamp(0));
    }
}

/// Records of the closed files of a folder, by stream; each file is compared with its row.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u64>> {
    let catalogue = Catalogue::read(folder).expect("a catalogue");
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut rows = catalogue.rows(None).expect("rows");
    // Rows are in the order in which workers have made the files.
    rows.sort_by_key(|row| (row.name.block, row.name.seq));
    for row in rows {
        assert_ne!(row.state, FileState::Open, "{row:?}");
        let bytes = std::fs::read(folder.join(&row.file)).expect("the file is there");
        let mut summing = Summing::new(Kinds {
            crc32c: row.sums.crc32c.is_some(),
            xxh3: false,
        });
        summing.update(&bytes);
        assert_eq!(row.sums.compare(&summing.sums()), Ok(()), "{row:?}");
        let numbers = numbers(&bytes);
        assert_eq!(numbers.len() as u64, row.records, "{row:?}");
        found.entry(row.name.stream).or_default().extend(numbers);
    }
    found
}

#[test]
fn records_stand_in_their_files_in_order_whoever_writes_them() {
    for assignment in assignments() {
        for mode in [IoMode::Direct, IoMode::Uring, IoMode::Buffered] {
            let folder = tempfile::tempdir().expect("a folder");
            let config = config(folder.path(), assignment.name, Some(mode));
            let (mut bench, found) = match Bench::open(config) {
                Err(EngineError::Uring(error)) => {
                    println!("skipped: io_uring cannot be used here: {error}");
                    continue;
                }
                opened => opened.expect("opens"),
            };
            assert_eq!(found, []);
            let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            for number in 0..400_u64 {
                let stream = u16::from(number % 5 == 0);
                let name = ["main", "calib"][usize::from(stream)];
                expected.entry(name.to_owned()).or_default().push(number);
                let content = (number as usize * 7919) % 9000;
                bench.append(number / 150, Numbered::new(stream, number, content));
            }
            bench.finish();
            assert_eq!(bench.engine.held(), (0, 0));
            assert_eq!(
                contents(folder.path()),
                expected,
                "{} {mode:?}",
                assignment.name
            );
            // In the order of each file; a file may be ahead of that of the block before it.
            for (stream, acknowledged) in &bench.acknowledged {
                let name = ["main", "calib"][usize::from(*stream)];
                let mut by_block = acknowledged.clone();
                by_block.sort_by_key(|number| number / 150);
                assert_eq!(by_block, expected[name]);
            }
        }
    }
}

#[test]
fn checksums_stand_beside_closed_files_if_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), "striped", None);
    config.labels = Labels {
        json: true,
        xattr: true,
    };
    let mut bench = match Bench::open(config) {
        Ok((bench, _)) => bench,
        Err(EngineError::Attributes { .. }) => {
            println!("skipped: files of this folder can have no extended attributes");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for number in 0..100 {
        bench.append(0, Numbered::new(0, number, 1000));
    }
    bench.finish();
    let rows = Catalogue::read(folder.path()).expect("readable").rows(None);
    let rows = rows.expect("rows");
    let [row] = rows.as_slice() else {
        panic!("one file: {rows:?}");
    };
    let (adler32, crc32c) = (row.sums.adler32, row.sums.crc32c.expect("asked for"));
    let text = std::fs::read_to_string(folder.path().join(side_car(&row.file))).expect("there");
    for expected in [
        format!("\"file\": \"{}\"", row.file),
        format!("\"adler32\": \"{adler32:08x}\""),
        format!("\"crc32c\": \"{crc32c:08x}\""),
        "\"records\": 100".to_owned(),
        "\"xxh3\": null".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected} in {text}");
    }
    let attribute = |key: &str| {
        let mut value = [0; 32];
        let path = folder.path().join(&row.file);
        let bytes = rustix::fs::getxattr(path, format!("user.sheaf.{key}"), &mut value);
        bytes.map(|bytes| String::from_utf8_lossy(&value[..bytes]).into_owned())
    };
    assert_eq!(attribute("adler32"), Ok(format!("{adler32:08x}")));
    assert_eq!(attribute("records"), Ok("100".to_owned()));
    assert_eq!(attribute("xxh3"), Err(rustix::io::Errno::NODATA));
}

#[test]
fn two_writers_do_not_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_bench, _) = Bench::open(config(folder.path(), "striped", None)).expect("opens");
    let refused = Bench::open(config(folder.path(), "striped", None))
        .err()
        .expect("refused");
    assert!(
        refused.to_string().starts_with("another writer has "),
        "{refused}"
    );
    let gone = Bench::open(config(Path::new("/no/such/folder"), "striped", None))
        .err()
        .expect("refused");
    assert!(
        gone.to_string()
            .starts_with("cannot use the directory /no/such/folder"),
        "{gone}"
    );
}

#[test]
fn names_that_are_taken_are_not_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for life in 0..3 {
        let (mut bench, _) = Bench::open(config(folder.path(), "open-rate", None)).expect("opens");
        bench.append(0, Numbered::new(0, life, 10));
        bench.finish();
    }
    assert_eq!(contents(folder.path())["main"], [0, 1, 2]);
}

/// Copies a folder as a crash leaves it: all that was written, and nothing of what would have come.
fn copied(folder: &Path, to: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, to.join(name)).expect("copied");
    }
}

#[test]
fn a_crash_loses_nothing_that_was_acknowledged_and_reads_only_what_was_not_synced() {
    for assignment in ["open-rate", "striped"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = config(folder.path(), assignment, None);
        config.durability = Durability::Every;
        config.writer.sync_every = Some(SyncEvery {
            bytes: 50_000,
            time: Duration::MAX,
        });
        let (mut bench, _) = Bench::open(config.clone()).expect("opens");
        for number in 0..200 {
            bench.append(0, Numbered::new(0, number, 2000));
        }
        bench.await_all();
        // The last sync, if one is under way.
        let crashed = tempfile::tempdir().expect("a folder");
        copied(folder.path(), crashed.path());
        // Half a record behind them, as a write that the crash has cut.
        let part = std::fs::read_dir(crashed.path())
            .expect("a folder")
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "part"))
            .expect("an open file");
        let mut bytes = std::fs::read(&part).expect("read");
        let whole: u64 = (0..200)
            .map(|number| Numbered::new(0, number, 2000).bytes())
            .sum();
        // In place of the space that was set aside.
        bytes.truncate(usize::try_from(whole).expect("a small file"));
        bytes.extend(&Numbered::new(0, 200, 2000).bytes[..1500]);
        std::fs::write(&part, bytes).expect("written");
        let config = EngineConfig {
            folder: crashed.path().to_owned(),
            ..config
        };
        let (mut next, found) = Bench::open(config).expect("opens");
        let [one] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (one.records, one.bytes, one.cut_bytes, one.is_adopted),
            (200, whole, 1500, false)
        );
        assert!(one.read_bytes < whole, "{one:?}");
        next.append(0, Numbered::new(0, 200, 2000));
        next.finish();
        drop(next);
        let expected: Vec<u64> = (0..=200).collect();
        assert_eq!(contents(crashed.path())["main"], expected);
        bench.finish();
    }
}

#[test]
fn files_without_a_row_are_adopted_and_others_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let record = Numbered::new(0, 5, 100).bytes;
    std::fs::write(path("test.00000007.main.b00000.w-0.0000.tf.part"), &record).expect("written");
    std::fs::write(path("test.00000007.main.b00001.w-0.0000.tf.part"), b"none").expect("written");
    std::fs::write(path("of-another-program.part"), b"x").expect("written");
    let (bench, found) = Bench::open(config(folder.path(), "striped", None)).expect("opens");
    drop(bench);
    let told: Vec<(u64, bool)> = found.iter().map(|it| (it.records, it.is_adopted)).collect();
    assert_eq!(told, [(1, true), (0, true)]);
    assert_eq!(contents(folder.path())["main"], [5]);
    assert!(path("of-another-program.part").exists());
    assert!(!path("test.00000007.main.b00001.w-0.0000.tf.part").exists());
}

#[test]
fn a_damaged_catalogue_is_named_and_no_file_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bench, _) = Bench::open(config(folder.path(), "open-rate", None)).expect("opens");
    bench.append(0, Numbered::new(0, 1, 100));
    bench.finish();
    drop(bench);
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.path().join(format!("catalogue.sqlite{end}")));
    }
    let catalogue = folder.path().join("catalogue.sqlite");
    let bytes = std::fs::metadata(&catalogue).expect("it is there").len() as usize;
    std::fs::write(&catalogue, vec![0xa5; bytes]).expect("written");
    let before: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let error = Bench::open(config(folder.path(), "open-rate", None)).err();
    let error = error.expect("no catalogue").to_string();
    assert!(error.contains("catalogue.sqlite"), "{error}");
    for name in before {
        assert!(folder.path().join(&name).exists(), "{name:?}");
    }
    assert_eq!(
        std::fs::read(&catalogue).expect("it is there"),
        vec![0xa5; bytes]
    );
}

#[test]
fn a_name_that_something_else_has_is_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bench, _) = Bench::open(config(folder.path(), "open-rate", None)).expect("opens");
    let taken = "test.00000007.main.b00000.w-0.0000.tf.part";
    std::fs::create_dir(folder.path().join(taken)).expect("made");
    bench.append(0, Numbered::new(0, 1, 100));
    bench.finish();
    assert_eq!(contents(folder.path())["main"], [1]);
    assert!(folder.path().join(taken).is_dir());
}

/// Folder of the child that is killed, and the first number of its records, by the parent's word.
const CHILD: &str = "SHEAF_WRITE_CHILD";
/// Kills of the test below: some in CI, 500 by hand.
const KILLS: &str = "SHEAF_KILLS";

/// Kills after which the folder is a new one: all of it is read after each.
const KILLS_OF_A_FOLDER: u64 = 20;

fn config_of_child(folder: &Path) -> EngineConfig {
    let mut config = config(folder, "striped", None);
    config.durability = Durability::Every;
    config.writer.segment_bytes = 100_000;
    config.writer.sync_every = Some(SyncEvery {
        bytes: 200_000,
        time: Duration::from_millis(20),
    });
    config
}

/// Process of the test below: writes records without end and prints the number of each that is acknowledged.
#[test]
#[ignore = "a part of the test of kills, which starts it"]
fn a_writer_without_end() {
    let Ok(words) = std::env::var(CHILD) else {
        return;
    };
    let (folder, first) = words.split_once('|').expect("FOLDER|FIRST");
    let first: u64 = first.parse().expect("a number");
    let (mut bench, _) = Bench::open(config_of_child(Path::new(folder))).expect("opens");
    let start = std::time::Instant::now();
    let mut told = 0;
    for number in first.. {
        let content = (number as usize * 7919) % 20_000;
        let stream = u16::from(number % 3 == 0);
        bench.append(number / 500, Numbered::new(stream, number, content));
        bench.take(Timestamp(0) + start.elapsed());
        let acknowledged = std::mem::take(&mut bench.acknowledged);
        let lines: String = acknowledged
            .values()
            .flatten()
            .map(|number| format!("{number}\n"))
            .collect();
        told += lines.lines().count();
        // The parent is gone: so is the reason to go on.
        if io::stdout().write_all(lines.as_bytes()).is_err() || told > 10_000_000 {
            return;
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged_and_writes_nothing_twice() {
    let kills: u64 = std::env::var(KILLS).map_or(12, |kills| kills.parse().expect("a number"));
    let mut folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("this test");
    let mut acknowledged = std::collections::BTreeSet::new();
    let (mut first, mut recovered) = (0, 0);
    for kill in 0..kills {
        if kill > 0 && kill % KILLS_OF_A_FOLDER == 0 {
            folder = tempfile::tempdir().expect("a folder");
            acknowledged.clear();
            first = 0;
        }
        let mut child = Command::new(&program)
            .args([
                "--exact",
                "a_writer_without_end",
                "--nocapture",
                "--include-ignored",
            ])
            .env(CHILD, format!("{}|{first}", folder.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test starts itself");
        let mut lines = io::BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // A seeded number of records, then it dies in whatever it does.
        let records = splitmix::hash(kill) % 900;
        let mut last = None;
        for line in lines.by_ref().map_while(Result::ok) {
            // Lines of the test's own frame are no numbers.
            let Ok(number) = line.trim().parse::<u64>() else {
                continue;
            };
            assert!(
                acknowledged.insert(number),
                "{number} is acknowledged twice"
            );
            last = Some(number);
            if number >= first + records {
                break;
            }
        }
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
        for number in lines
            .map_while(Result::ok)
            .filter_map(|line| line.parse().ok())
        {
            assert!(
                acknowledged.insert(number),
                "{number} is acknowledged twice"
            );
            last = Some(number);
        }
        let (bench, found) = Bench::open(config_of_child(folder.path())).expect("opens");
        drop(bench);
        recovered += found.len();
        let numbers: Vec<u64> = contents(folder.path()).into_values().flatten().collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(
            sorted.len(),
            numbers.len(),
            "kill {kill}: a record is there twice"
        );
        let lost: Vec<u64> = acknowledged
            .iter()
            .filter(|number| sorted.binary_search(number).is_err())
            .copied()
            .collect();
        assert_eq!(lost, Vec::<u64>::new(), "kill {kill}");
        // Numbers that were on their way may be there as well.
        first = last.unwrap_or(first) + 1000;
    }
    assert!(recovered > 0, "no kill has met an open file");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A file cut at any byte gives the records in front of it, and its checksums are those of its bytes.
    #[test]
    fn a_file_cut_anywhere_is_closed_behind_its_last_whole_record(
        records in 1_u64..20,
        cut in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for number in 0..records {
            bytes.extend(Numbered::new(0, number, 97 * number as usize).bytes);
            ends.push(bytes.len());
        }
        let cut = cut.index(bytes.len() + 1);
        let name = "test.00000007.main.b00000.w-0.0000.tf.part";
        std::fs::write(folder.path().join(name), &bytes[..cut]).expect("written");
        let (bench, found) = Bench::open(config(folder.path(), "striped", None)).expect("opens");
        drop(bench);
        let whole = ends.iter().filter(|end| **end > 0 && **end <= cut).count() as u64;
        prop_assert_eq!(found[0].records, whole);
        let kept = contents(folder.path()).remove("main").unwrap_or_default();
        prop_assert_eq!(kept, (0..whole).collect::<Vec<_>>());
    }
}
