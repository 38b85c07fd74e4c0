use super::*;
use crate::assign::assignments;
use crate::checksum::Summing;
use proptest::prelude::*;
use std::collections::BTreeSet;

const KINDS: Kinds = Kinds {
    crc32c: true,
    xxh3: false,
};
const NEVER: Limits = Limits {
    bytes: u64::MAX,
    records: u64::MAX,
    age: Duration::MAX,
};

fn config(assignment: &str, workers: u32, limits: Limits) -> WriterConfig {
    WriterConfig {
        project: "test".to_owned(),
        node: "epn-0".to_owned(),
        template: Template::parse(Template::DEFAULT).expect("the default is good"),
        workers,
        assignment: Assignment::named(assignment).expect(assignment),
        segment_bytes: 64,
        record_bytes_max: 1000,
        kinds: KINDS,
        sync_every: None,
        streams: ["main", "calib"]
            .map(|name| StreamConfig {
                name: name.to_owned(),
                limits,
            })
            .to_vec(),
        seed: 1,
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}

fn place(stream: u16, block: u64) -> Place {
    Place {
        run: 1,
        stream: StreamId(stream),
        block,
    }
}

/// Disk in memory with workers whose queues are done when a test says so.
struct Bench {
    writer: Writer<Vec<u8>>,
    now: Timestamp,
    names: BTreeMap<FileId, FileName>,
    bytes: BTreeMap<FileId, Vec<u8>>,
    queues: Vec<VecDeque<Action<Vec<u8>>>>,
    /// Sums of the segments under way.
    summing: BTreeMap<(FileId, u32), Summing>,
    closed: BTreeMap<String, (Vec<u8>, ClosedFile)>,
    checkpoints: Vec<Checkpoint>,
}

impl Bench {
    fn new(config: WriterConfig) -> Self {
        let workers = config.workers as usize;
        Self {
            writer: Writer::new(config).expect("a good configuration"),
            now: at(0),
            names: BTreeMap::new(),
            bytes: BTreeMap::new(),
            queues: (0..workers).map(|_| VecDeque::new()).collect(),
            summing: BTreeMap::new(),
            closed: BTreeMap::new(),
            checkpoints: Vec::new(),
        }
    }

    fn record(&mut self, place: Place, bytes: &[u8]) {
        self.writer
            .handle_record(self.now, place, bytes.len() as u64, bytes.to_vec())
            .expect("a record that fits");
        self.sort();
    }

    /// Gives orders to the workers.
    fn sort(&mut self) {
        while let Some(action) = self.writer.poll_action() {
            let worker = match &action {
                Action::Open(opened) => {
                    self.names.insert(opened.file, opened.name.clone());
                    self.bytes.insert(opened.file, Vec::new());
                    continue;
                }
                Action::Write { segment, .. } => segment.worker,
                Action::Sync { worker, .. } | Action::Close { worker, .. } => *worker,
            };
            self.queues[worker.0 as usize].push_back(action);
        }
    }

    /// Does the next order of a worker; `false` if it has none.
    fn work(&mut self, worker: usize) -> bool {
        let Some(action) = self.queues[worker].pop_front() else {
            return false;
        };
        match action {
            Action::Open(_) => unreachable!("done at once"),
            Action::Write {
                segment,
                offset,
                payload,
            } => {
                let file = self.bytes.get_mut(&segment.file).expect("open");
                let (from, to) = (offset as usize, offset as usize + payload.len());
                file.resize(file.len().max(to), 0);
                file[from..to].copy_from_slice(&payload);
                let summing = self
                    .summing
                    .entry((segment.file, segment.index))
                    .or_insert_with(|| Summing::new(KINDS));
                summing.update(&payload);
                let sums = summing.sums();
                self.writer.handle_written(self.now, segment, 1, sums);
            }
            Action::Sync { checkpoint, .. } => {
                let file = &self.bytes[&checkpoint.file];
                assert_eq!(
                    checkpoint.sums,
                    sums_of(&file[..checkpoint.sums.bytes as usize])
                );
                self.checkpoints.push(checkpoint);
                self.writer.handle_synced(self.now, checkpoint.file);
            }
            Action::Close { closed, .. } => {
                let bytes = self.bytes.remove(&closed.file).expect("closed once");
                assert_eq!(closed.sums, sums_of(&bytes));
                let name = self
                    .writer
                    .config()
                    .template
                    .name(&self.names[&closed.file]);
                let former = self.closed.insert(name, (bytes, closed));
                assert_eq!(former, None, "two files of one name");
                self.writer.handle_closed(closed.file);
            }
        }
        self.sort();
        true
    }

    fn work_all(&mut self) {
        while (0..self.queues.len()).any(|worker| self.work(worker)) {}
    }

    fn finish(&mut self) {
        self.writer.handle_finish();
        self.sort();
        self.work_all();
        assert_eq!(self.writer.open_files(), 0);
    }

    /// Names of closed files with their bytes as text.
    fn files(&self) -> Vec<String> {
        let files = self.closed.iter();
        files
            .map(|(name, (bytes, _))| format!("{name}: {}", String::from_utf8_lossy(bytes)))
            .collect()
    }
}

fn sums_of(bytes: &[u8]) -> Sums {
    let mut summing = Summing::new(KINDS);
    summing.update(bytes);
    summing.sums()
}

#[test]
fn a_stream_and_a_block_have_a_file_of_their_own() {
    let mut bench = Bench::new(config("open-rate", 2, NEVER));
    bench.record(place(0, 1), b"a");
    bench.record(place(1, 1), b"b");
    bench.record(place(0, 1), b"c");
    bench.record(place(0, 2), b"d");
    bench.finish();
    assert_eq!(
        bench.files(),
        [
            "test.00000001.calib.b00001.epn-0.0000.tf: b",
            "test.00000001.main.b00001.epn-0.0000.tf: ac",
            "test.00000001.main.b00002.epn-0.0000.tf: d",
        ]
    );
}

#[test]
fn a_block_ends_when_the_one_after_the_next_begins_and_a_late_record_gets_a_further_file() {
    let mut bench = Bench::new(config("open-rate", 1, NEVER));
    for (block, bytes) in [(1, b"a"), (2, b"b"), (1, b"c"), (3, b"d"), (1, b"e")] {
        bench.record(place(0, block), bytes);
        bench.work_all();
    }
    assert_eq!(
        bench.files(),
        ["test.00000001.main.b00001.epn-0.0000.tf: ac"]
    );
    bench.writer.handle_block_ended(1, 1);
    bench.sort();
    bench.work_all();
    assert_eq!(
        bench.files()[1],
        "test.00000001.main.b00001.epn-0.0001.tf: e"
    );
    // A new run, whatever its number, ends all files of the former one.
    bench.record(
        Place {
            run: 0,
            ..place(1, 0)
        },
        b"f",
    );
    bench.work_all();
    assert_eq!(bench.closed.len(), 4);
}

#[test]
fn files_are_closed_by_bytes_by_records_and_by_age() {
    let limits = Limits {
        bytes: 4,
        records: 3,
        age: Duration::from_secs(10),
    };
    let mut bench = Bench::new(config("round-robin", 1, limits));
    for bytes in ["abc", "def", "g", "h", "i", "j"] {
        bench.record(place(0, 0), bytes.as_bytes());
    }
    bench.work_all();
    let contents = |bench: &Bench| -> Vec<String> {
        let files = bench.files();
        let text = |file: &String| file.rsplit(' ').next().unwrap_or_default().to_owned();
        files.iter().map(text).collect()
    };
    assert_eq!(contents(&bench), ["abcdef", "ghi"]);
    for (ms, closed) in [(9_999, 2), (10_000, 3)] {
        bench.now = at(ms);
        bench.writer.handle_tick(bench.now);
        bench.sort();
        bench.work_all();
        assert_eq!(bench.closed.len(), closed);
    }
    assert_eq!(contents(&bench)[2], "j");
}

#[test]
fn what_is_taken_is_written_or_in_flight() {
    let mut bench = Bench::new(config("striped", 2, NEVER));
    for _ in 0..5 {
        bench.record(place(0, 0), &[7; 50]);
    }
    let told = |bench: &Bench| {
        let counts = bench.writer.counts(StreamId(0));
        let flying = bench.writer.in_flight(StreamId(0));
        assert_eq!(counts.taken_records, counts.written_records + flying.0);
        assert_eq!(counts.taken_bytes, counts.written_bytes + flying.1);
        (counts.written_records, flying.0)
    };
    assert_eq!(told(&bench), (0, 5));
    assert!(bench.work(1));
    assert_eq!(told(&bench), (1, 4));
    let too_large = bench
        .writer
        .handle_record(at(0), place(0, 0), 1001, vec![0; 1001])
        .expect_err("too large");
    assert_eq!(
        too_large.0.to_string(),
        "record of 1001 bytes, expected at most 1000"
    );
    let unknown = bench
        .writer
        .handle_record(at(0), place(2, 0), 1, vec![0])
        .expect_err("no such stream");
    assert_eq!(
        unknown.0.to_string(),
        "record of stream 2, expected one of the 2 that are configured"
    );
    bench.finish();
    assert_eq!(told(&bench), (5, 0));
    assert_eq!(bench.writer.counts(StreamId(0)).refused_records, 1);
}

#[test]
fn a_hot_stream_is_written_by_all_workers_in_segments() {
    let mut bench = Bench::new(config("striped", 4, NEVER));
    for record in 0..16_u8 {
        bench.record(place(0, 0), &[record; 32]);
    }
    let queued: Vec<usize> = bench.queues.iter().map(VecDeque::len).collect();
    assert_eq!(queued, [4; 4]);
    // The last worker is the fastest.
    for worker in [3, 3, 3, 3, 1, 1, 1, 1, 0, 2, 0, 2] {
        assert!(bench.work(worker));
    }
    bench.finish();
    let (bytes, closed) = bench.closed.values().next().expect("one file");
    let expected: Vec<u8> = (0..16).flat_map(|record| [record; 32]).collect();
    assert_eq!((bytes, closed.records, closed.segments), (&expected, 16, 8));
}

#[test]
fn a_pinned_stream_goes_to_its_worker_and_the_others_by_the_assignment() {
    for name in ["round-robin", "open-rate", "striped"] {
        let mut writer: Writer<()> = Writer::new(config(name, 3, NEVER)).expect("a writer");
        writer
            .pin(StreamId(0), TargetId(2))
            .expect("there are three");
        let mut seen = BTreeMap::new();
        for number in 0..60 {
            for stream in 0..2 {
                let taken = writer.handle_record(at(number), place(stream, number / 10), 50, ());
                assert_eq!(taken, Ok(()));
            }
            while let Some(action) = writer.poll_action() {
                if let Action::Write { segment, .. } = action {
                    let stream = writer.stream_of(segment.file).expect("it is open");
                    let workers: &mut BTreeSet<u32> = seen.entry(stream).or_default();
                    workers.insert(segment.worker.0);
                }
            }
        }
        assert_eq!(seen[&StreamId(0)], BTreeSet::from([2]), "{name}");
        assert_ne!(seen[&StreamId(1)], BTreeSet::from([2]), "{name}");
        let refused = writer
            .pin(StreamId(0), TargetId(3))
            .unwrap_err()
            .to_string();
        assert_eq!(refused, "found 3 as a worker, expected 0 to 2");
        assert!(writer.pin(StreamId(2), TargetId(0)).is_err(), "{name}");
    }
}

#[test]
fn a_sync_covers_what_is_written_without_a_gap() {
    let mut config = config("striped", 2, NEVER);
    config.sync_every = Some(SyncEvery {
        bytes: 100,
        time: Duration::from_secs(1),
    });
    let mut bench = Bench::new(config);
    for record in 0..6_u8 {
        bench.record(place(0, 0), &[record; 40]);
    }
    // Segments of two records: 0 and 2 with worker 0, 1 with worker 1.
    assert!(bench.work(0));
    assert!(bench.work(1));
    bench.now = at(1000);
    bench.writer.handle_tick(bench.now);
    bench.sort();
    bench.work_all();
    bench.finish();
    let prefixes = bench.checkpoints.iter();
    let prefixes: Vec<(u64, u64)> = prefixes.map(|it| (it.records, it.sums.bytes)).collect();
    assert_eq!(prefixes[0], (1, 40), "the second record is not written yet");
    assert!(prefixes.is_sorted(), "{prefixes:?}");
}

#[test]
fn configurations_that_contradict_themselves_are_refused() {
    let refusal = |change: &dyn Fn(&mut WriterConfig)| {
        let mut config = config("striped", 2, NEVER);
        change(&mut config);
        let refused = Writer::<()>::new(config).expect_err("refused");
        refused.to_string()
    };
    let xxh3 = refusal(&|config| config.kinds.xxh3 = true);
    assert!(xxh3.contains("xxh3 with assignment `striped`"), "{xxh3}");
    let two = refusal(&|config| config.streams[1].name = "main".to_owned());
    assert_eq!(two, "two streams are called `main`");
    let none = refusal(&|config| config.workers = 0);
    assert_eq!(none, "found 0 workers, expected 1 to 1024");
    let word = refusal(&|config| config.node = "epn.0".to_owned());
    assert!(word.contains("found node `epn.0`"), "{word}");
}

/// Step of a random run: a record (stream, block, bytes), or work of a worker.
#[derive(Clone, Debug)]
enum Step {
    Record(u16, u64, usize),
    Work(usize),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u16..2, 0_u64..4, 0_usize..200).prop_map(|(s, b, n)| Step::Record(s, b, n)),
        4 => (0_usize..4).prop_map(Step::Work),
        1 => Just(Step::Tick),
    ]
}

proptest! {
    /// Any assignment and any order of the workers give the same records in the same order.
    #[test]
    fn files_do_not_depend_on_who_writes_them(
        steps in proptest::collection::vec(step(), 1..120),
        which in 0..assignments().len(),
    ) {
        let limits = Limits { bytes: 700, records: 9, age: Duration::from_millis(300) };
        let mut config = config(assignments()[which].name, 4, limits);
        config.sync_every = Some(SyncEvery { bytes: 150, time: Duration::from_millis(50) });
        let mut bench = Bench::new(config);
        let mut expected: BTreeMap<Place, Vec<u8>> = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Record(stream, block, bytes) => {
                    let record = vec![number as u8; bytes];
                    bench.record(place(stream, block), &record);
                    expected.entry(place(stream, block)).or_default().extend(record);
                }
                Step::Work(worker) => {
                    bench.work(worker);
                }
                Step::Tick => {
                    bench.now = bench.now + Duration::from_millis(100);
                    bench.writer.handle_tick(bench.now);
                    bench.sort();
                }
            }
        }
        bench.finish();
        let mut found: BTreeMap<Place, Vec<u8>> = BTreeMap::new();
        // Names sort by the number of the file.
        for (name, (bytes, closed)) in &bench.closed {
            let values = bench.writer.config().template.read(name).expect("an own name");
            let stream = u16::from(values.stream == "calib");
            prop_assert!(closed.records <= 9);
            found.entry(place(stream, values.block)).or_default().extend(bytes);
        }
        prop_assert_eq!(found, expected);
    }
}
