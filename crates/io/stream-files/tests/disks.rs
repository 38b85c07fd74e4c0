//! Several disks of one writer, on real folders: names, failures, and where records go.

mod common;

use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{
    Catalogue, CatalogueLock, Disks, DisksEvent, Engine, EngineConfig, IoMode, Record,
};
use sheaf_write::{
    Assignment, DiskNews, Intake, IntakeConfig, LeftOut, Overload, Place, Planned, Space, StreamId,
    Want, disk_nodes,
};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Record of one number.
#[derive(Debug, PartialEq, Eq)]
struct Number([u8; 8]);

impl Record for Number {
    fn slices(&self) -> Vec<&[u8]> {
        vec![&self.0]
    }
}

fn walk(reader: &mut dyn Read) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    let found = reader.take(8).read_to_end(&mut bytes)?;
    Ok((found == 8).then_some(8))
}

/// Disks, and the bell of their workers.
struct Test {
    disks: Disks<Number>,
    rung: Receiver<()>,
    now: Timestamp,
    next: u64,
    written: BTreeSet<u64>,
    news: Vec<DiskNews>,
}

fn nodes_of(folders: &[&Path]) -> Vec<String> {
    let found = folders.iter().map(|folder| {
        let catalogue = Catalogue::is_in(folder).then(|| Catalogue::read(folder));
        let catalogue = catalogue?.expect("a catalogue");
        catalogue.newest_node().expect("a node")
    });
    disk_nodes("epn-0", &found.collect::<Vec<_>>()).expect("folders of their own")
}

impl Test {
    /// Opens two streams of the classes 1 and 2 on `folders`.
    fn open(folders: &[&Path], overload: Overload) -> Self {
        let (sender, rung) = sync_channel(1);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            // A wake that is pending already need not be repeated.
            let _ = sender.try_send(());
        });
        let engines = nodes_of(folders).into_iter().zip(folders);
        let engines = engines.map(|(node, folder)| {
            let (engine, _) =
                Engine::open(engine_config(folder, node), &walk, &wake).expect("an engine");
            engine
        });
        let intake = Intake::new(IntakeConfig {
            disks: u32::try_from(folders.len()).expect("a few"),
            assignment: Assignment::named("round-robin").expect("in the table"),
            overload,
            classes: vec![1, 2],
            queue_bytes: 1 << 20,
            queue_records: 100,
            queue_high_percent: 75,
            space: Space {
                min_bytes: 100,
                low_bytes: 200,
            },
            slow: Duration::from_secs(1000),
            seed: 1,
        });
        Self {
            disks: Disks::new(intake.expect("a good one"), engines.collect()),
            rung,
            now: Timestamp(1),
            next: 0,
            written: BTreeSet::new(),
            news: Vec::new(),
        }
    }

    /// Brings one record of each stream. Returns where they go.
    fn bring(&mut self, block: u64) -> Vec<Planned> {
        let wants = [0, 1].map(|stream| Want {
            place: Place {
                run: 7,
                stream: StreamId(stream),
                block,
            },
            bytes: 8,
        });
        let plan = self.disks.plan(self.now, &wants).expect("there is room");
        for (planned, want) in plan.iter().zip(wants) {
            let number = self.next;
            self.next += 1;
            if let Planned::Write(disk) = planned {
                let record = Number(number.to_le_bytes());
                let taken = self.disks.append(self.now, *disk, want.place, record);
                taken.expect("a stream that there is");
            }
        }
        plan
    }

    /// Waits until `is_done` holds.
    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        loop {
            self.disks.turn(self.now);
            while let Some(event) = self.disks.poll() {
                match event {
                    DisksEvent::Written(record) => {
                        let number = u64::from_le_bytes(record.0);
                        assert!(self.written.insert(number), "{number} is written once");
                    }
                    DisksEvent::Trouble { .. } => {}
                    DisksEvent::Changed(news) => self.news.push(news),
                }
            }
            if is_done(self) {
                return;
            }
            self.rung.recv_timeout(PATIENCE).expect("the workers work");
        }
    }

    fn finish(mut self) {
        let now = self.now;
        assert!(self.disks.finish(move || now, |_| PATIENCE), "all closed");
        for stream in [0, 1].map(StreamId) {
            let fates = self.disks.fates(stream);
            assert!(fates.is_balanced() && fates.in_flight == 0, "{fates:?}");
        }
    }
}

fn engine_config(folder: &Path, node: String) -> EngineConfig {
    let mut config = common::config(folder, &["calib", "physics"]);
    config.writer.node = node;
    (config.writer.workers, config.mode) = (1, Some(IoMode::Buffered));
    config
}

/// Numbers in all files of a folder, and the names of the files.
fn content(folder: &Path) -> (BTreeSet<u64>, Vec<String>) {
    let rows = Catalogue::read(folder).expect("a catalogue").rows(None);
    let (mut numbers, mut names) = (BTreeSet::new(), Vec::new());
    for row in rows.expect("rows") {
        let bytes = std::fs::read(folder.join(&row.file)).expect("a closed file");
        for number in bytes.chunks(8) {
            numbers.insert(u64::from_le_bytes(number.try_into().expect("8 bytes")));
        }
        names.push(row.file);
    }
    (numbers, names)
}

fn write(disk: u32) -> Planned {
    Planned::Write(TargetId(disk))
}

#[test]
fn disks_share_the_files_under_names_of_their_own_through_a_restart() {
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("made"));
    let paths = [folders[0].path(), folders[1].path()];
    let mut test = Test::open(&paths, Overload::Block);
    assert_eq!(test.bring(0), [write(0), write(1)]);
    assert_eq!(test.bring(0), [write(0), write(1)], "where their files are");
    test.wait(|test| test.written.len() == 4);
    test.finish();
    // The same folders in another order: each keeps its name.
    let paths = [paths[1], paths[0]];
    let mut test = Test::open(&paths, Overload::Block);
    test.bring(0);
    test.wait(|test| test.written.len() == 2);
    test.finish();
    let all = paths.map(content);
    let names: Vec<&String> = all.iter().flat_map(|(_, names)| names).collect();
    let distinct: BTreeSet<&&String> = names.iter().collect();
    assert_eq!((names.len(), distinct.len()), (4, 4), "{names:?}");
    assert!(all[0].1.iter().all(|name| name.contains(".epn-0-d1.")));
    assert!(all[1].1.iter().all(|name| name.contains(".epn-0.")));
}

#[test]
fn a_disk_that_fails_is_left_out_and_loses_nothing() {
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("made"));
    let paths = [folders[0].path(), folders[1].path()];
    let mut test = Test::open(&paths, Overload::Block);
    let lock = CatalogueLock::take(paths[0]).expect("it is free");
    assert_eq!(test.bring(0), [write(0), write(1)]);
    test.wait(|test| !test.news.is_empty() && test.written.len() == 1);
    let failing = DiskNews::LeftOut(TargetId(0), LeftOut::Failing);
    assert_eq!(test.news, [failing], "named once");
    assert_eq!(
        test.written,
        [1].into(),
        "what is on it is not acknowledged"
    );
    assert!(!test.disks.error(TargetId(0)).is_empty());
    for _ in 0..5 {
        assert_eq!(test.bring(0), [write(1), write(1)]);
    }
    test.wait(|test| test.written.len() == 11);
    drop(lock);
    test.wait(|test| test.written.len() == 12);
    // It has to be well for a while.
    assert_eq!(test.bring(1), [write(1), write(1)]);
    test.now = test.now + Duration::from_secs(6);
    test.wait(|test| test.news.len() == 2 && test.written.len() == 14);
    assert_eq!(test.news[1], DiskNews::Back(TargetId(0)));
    test.finish();
    let (first, second) = (content(paths[0]).0, content(paths[1]).0);
    assert_eq!(first, [0].into());
    assert_eq!(second, (1..14).collect());
}

#[test]
fn the_lowest_class_is_shed_and_the_directory_for_overload_is_used_when_space_runs_out() {
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("made"));
    let paths = [folders[0].path(), folders[1].path()];
    let mut test = Test::open(&paths, Overload::Spill);
    assert_eq!(test.bring(0), [write(0), write(0)]);
    test.disks.set_free(TargetId(0), Some(99));
    assert_eq!(test.bring(0), [write(1), write(1)]);
    test.disks.set_free(TargetId(0), Some(1000));
    assert_eq!(test.bring(0), [write(0), write(0)]);
    test.wait(|test| test.written.len() == 6);
    test.finish();
    assert_eq!(content(paths[1]).0, [2, 3].into());

    let mut test = Test::open(&paths[..1], Overload::Shed);
    test.disks.set_free(TargetId(0), Some(150));
    let plan = test.bring(3);
    assert!(
        matches!(plan[..], [Planned::Shed(_), Planned::Write(_)]),
        "{plan:?}"
    );
    test.wait(|test| test.written.len() == 1);
    let fates = test.disks.fates(StreamId(0));
    assert_eq!((fates.announced, fates.shed, fates.written), (1, 1, 0));
    test.finish();
}
