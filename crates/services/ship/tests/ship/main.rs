//! Files that an engine has written, shipped to folders that work, fail, and are not what they seem.

mod s3;

use sheaf_protocol::{Timestamp, splitmix};
use sheaf_ship::{
    Access, Backoff, DeleteRule, Destination, Progress, ShipConfig, ShipError, Shipper,
};
use sheaf_stream_files::{
    Catalogue, Durability, Engine, EngineConfig, Labels, Record, ShipState, Shipments, side_car,
};
use sheaf_write::{
    Assignment, Kinds, Limits, Place, StreamConfig, StreamId, Template, WriterConfig,
};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a record, whatever they are.
struct Plain(Vec<u8>);

impl Record for Plain {
    fn slices(&self) -> Vec<&[u8]> {
        vec![&self.0]
    }
}

/// Finder of records for a folder that no crash has left: it is never called.
fn walk(_: &mut dyn Read) -> io::Result<Option<u64>> {
    Ok(None)
}

/// Writes `files` closed files into a folder, of 1000, 2000 and so on bytes.
fn write(folder: &Path, files: u64) {
    let kinds = Kinds {
        crc32c: false,
        xxh3: false,
    };
    write_files(folder, files, 1000, kinds);
}

/// Writes `files` closed files into a folder, of `unit` bytes, twice as many, and so on, with checksums of `kinds`.
fn write_files(folder: &Path, files: u64, unit: usize, kinds: Kinds) {
    let limits = Limits {
        bytes: u64::MAX,
        records: u64::MAX,
        age: Duration::MAX,
    };
    let config = EngineConfig {
        folder: folder.to_owned(),
        writer: WriterConfig {
            project: "test".to_owned(),
            node: "w-0".to_owned(),
            template: Template::parse(Template::DEFAULT).expect("the default is good"),
            workers: 2,
            assignment: Assignment::named("open-rate").expect("it is there"),
            segment_bytes: 1 << 20,
            record_bytes_max: u64::MAX,
            kinds,
            sync_every: None,
            streams: vec![StreamConfig {
                name: "main".to_owned(),
                limits,
            }],
            seed: 1,
        },
        durability: Durability::Close,
        mode: None,
        queue_bytes: 64 << 20,
        queue_records: 100,
        labels: Labels::default(),
        worker_bytes_per_s: None,
    };
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(|| {});
    let (mut engine, _) = Engine::open(config, &walk, &wake).expect("opens");
    for block in 0..files {
        let place = Place {
            run: 1,
            stream: StreamId(0),
            block,
        };
        let length = unit * (block as usize + 1);
        let bytes = (0..length).map(|at| (at as u64 * 31 + block) as u8);
        let record = Plain(bytes.collect());
        assert!(engine.append(Timestamp(0), place, record).is_ok());
    }
    assert!(engine.finish(|| Timestamp(0), Duration::from_secs(60)));
}

fn config() -> ShipConfig {
    ShipConfig {
        parallel: 2,
        bytes_per_s: None,
        backoff: Backoff {
            first: Duration::from_millis(1),
            last: Duration::from_millis(20),
        },
        delete: None,
        is_once: true,
        seed: 3,
    }
}

const DELETE: DeleteRule = DeleteRule {
    free_below: u64::MAX,
    age_min: Duration::ZERO,
};

fn to(folder: &Path) -> Destination {
    let address = folder.display().to_string();
    Destination::open(&address, &Access::default()).expect("a folder that is there")
}

fn ship(folder: &Path, destinations: &[&Path], config: ShipConfig) -> Progress {
    let destinations = destinations.iter().map(|folder| to(folder)).collect();
    ship_to(folder, destinations, config)
}

fn ship_to(folder: &Path, destinations: Vec<Destination>, config: ShipConfig) -> Progress {
    let mut shipper = Shipper::open(&[folder.to_owned()], destinations, config).expect("opens");
    shipper.run(&|| false, |_| {}).expect("ships")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".tf"))
        .collect();
    names.sort();
    names
}

fn name(block: u64) -> String {
    format!("test.00000001.main.b{block:05}.w-0.0000.tf")
}

#[test]
fn files_are_shipped_to_all_destinations_and_then_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), 5);
    let all: Vec<String> = (0..5).map(name).collect();
    let contents: Vec<Vec<u8>> = all
        .iter()
        .map(|name| std::fs::read(folder.path().join(name)).expect("written"))
        .collect();
    let progress = ship(folder.path(), &[first.path(), second.path()], config());
    assert_eq!(progress.files(&[ShipState::Verified]), 10);
    assert_eq!((progress.failed_attempts, progress.deleted_files), (0, 0));
    assert_eq!(names(folder.path()), all);
    for place in [first.path(), second.path()] {
        assert_eq!(names(place), all);
        for (name, bytes) in all.iter().zip(&contents) {
            assert_eq!(std::fs::read(place.join(name)).expect("there"), *bytes);
        }
    }
    // Nothing is copied twice; with a rule all go, as both have them, and with a file goes its side-car.
    std::fs::write(folder.path().join(side_car(&all[0])), "{}").expect("written");
    let delete = ShipConfig {
        delete: Some(DELETE),
        ..config()
    };
    let progress = ship(folder.path(), &[first.path(), second.path()], delete);
    assert_eq!((progress.copied_bytes, progress.deleted_files), (0, 5));
    assert_eq!(names(folder.path()), Vec::<String>::new());
    // What comes later is shipped, and what is gone is not missed.
    let mut shipped = Vec::new();
    let catalogue = Catalogue::read(folder.path()).expect("readable");
    let wanted = sheaf_stream_files::Wanted::default();
    catalogue
        .each(&wanted, |row, state| {
            shipped.push((row.file.clone(), state));
        })
        .expect("rows");
    let deleted = all.into_iter().map(|name| (name, Some(ShipState::Deleted)));
    assert_eq!(shipped, deleted.collect::<Vec<_>>());
}

#[test]
fn a_file_that_one_destination_lacks_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), 2);
    ship(folder.path(), &[first.path()], config());
    // The second one has another file of that name, which is not ours to replace.
    std::fs::write(second.path().join(name(1)), "of others").expect("written");
    let config = ShipConfig {
        delete: Some(DELETE),
        is_once: false,
        ..config()
    };
    let destinations = vec![to(first.path()), to(second.path())];
    let mut shipper =
        Shipper::open(&[folder.path().to_owned()], destinations, config).expect("opens");
    let is_tried = std::cell::Cell::new(false);
    let progress = shipper.run(&|| is_tried.get(), |progress| {
        is_tried.set(progress.failed_attempts > 2 && progress.deleted_files == 1);
    });
    let progress = progress.expect("ships");
    assert_eq!(progress.deleted_files, 1);
    assert_eq!(names(folder.path()), [name(1)]);
    let kept = std::fs::read(second.path().join(name(1))).expect("there");
    assert_eq!(kept, b"of others");
}

#[test]
fn what_others_have_put_there_is_never_replaced_whatever_failed_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = tempfile::tempdir().expect("a folder");
    write(folder.path(), 1);
    let address = store.path().display().to_string();
    {
        // An attempt that did not come as far as a copy, and a death in the next one.
        let shipments = Shipments::open(folder.path()).expect("opens");
        shipments.enqueue(&address, 1).expect("noted");
        let taken = shipments.take(&address, 5).expect("read").expect("waits");
        shipments
            .retry(taken.id, &address, (6, 7), "away")
            .expect("noted");
        assert!(shipments.take(&address, 8).expect("read").is_some());
    }
    std::fs::write(store.path().join(name(0)), "of others").expect("written");
    let config = ShipConfig {
        is_once: false,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to(store.path())], config).expect("opens");
    let is_tried = std::cell::Cell::new(false);
    let progress = shipper.run(&|| is_tried.get(), |progress| {
        is_tried.set(progress.failed_attempts > 2);
    });
    assert_eq!(progress.expect("runs").files(&[ShipState::Queued]), 1);
    let kept = std::fs::read(store.path().join(name(0))).expect("there");
    assert_eq!(kept, b"of others");
}

#[test]
fn a_file_that_was_to_go_elsewhere_as_well_is_not_deleted_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(folder.path(), 2);
    // The second destination has one of them, and was to get the other one.
    let other = second.path().display().to_string();
    {
        let shipments = Shipments::open(folder.path()).expect("opens");
        shipments.enqueue(&other, 1).expect("noted");
        let taken = shipments.take(&other, 5).expect("read").expect("waits");
        let state = ShipState::Verified;
        shipments
            .set(taken.id, &other, state, 6, None)
            .expect("noted");
    }
    let delete = ShipConfig {
        delete: Some(DELETE),
        ..config()
    };
    assert_eq!(
        ship(folder.path(), &[first.path()], delete).deleted_files,
        1
    );
    assert_eq!(names(folder.path()), [name(1)]);
    let progress = ship(folder.path(), &[first.path(), second.path()], delete);
    assert_eq!(progress.deleted_files, 1);
    assert_eq!(names(second.path()), [name(1)]);
}

#[test]
fn a_file_that_is_not_what_was_written_is_named_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = tempfile::tempdir().expect("a folder");
    write(folder.path(), 3);
    let path = folder.path().join(name(1));
    let mut bytes = std::fs::read(&path).expect("written");
    bytes[700] ^= 1;
    std::fs::write(&path, &bytes).expect("damaged");
    std::fs::remove_file(folder.path().join(name(2))).expect("gone");
    let config = ShipConfig {
        delete: Some(DELETE),
        ..config()
    };
    let progress = ship(folder.path(), &[store.path()], config);
    assert_eq!(progress.files(&[ShipState::Damaged]), 2);
    assert_eq!(progress.files(&[ShipState::Deleted]), 1);
    assert_eq!(names(store.path()), [name(0)]);
    assert_eq!(names(folder.path()), [name(1)]);
}

#[test]
fn a_destination_that_is_away_costs_nothing_but_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let parent = tempfile::tempdir().expect("a folder");
    let (store, away) = (parent.path().join("store"), parent.path().join("away"));
    std::fs::create_dir(&store).expect("made");
    write(folder.path(), 4);
    let config = ShipConfig {
        is_once: false,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to(&store)], config).expect("opens");
    std::fs::rename(&store, &away).expect("away");
    let is_back = std::cell::Cell::new(false);
    let is_done = std::cell::Cell::new(false);
    let progress = shipper.run(&|| is_done.get(), |progress| {
        if !is_back.get() && progress.failed_attempts >= 4 {
            assert_eq!(progress.files(&[ShipState::Verified]), 0);
            std::fs::rename(&away, &store).expect("back");
            is_back.set(true);
        }
        is_done.set(progress.files(&[ShipState::Verified]) == 4);
    });
    assert!(progress.expect("ships").failed_attempts >= 4);
    assert_eq!(names(&store).len(), 4);
}

#[test]
fn a_shipper_that_died_anywhere_is_taken_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = tempfile::tempdir().expect("a folder");
    write(folder.path(), 4);
    let address = store.path().display().to_string();
    {
        let shipments = Shipments::open(folder.path()).expect("opens");
        assert_eq!(shipments.enqueue(&address, 1).expect("noted"), 4);
        assert_eq!(shipments.enqueue(&address, 2).expect("noted"), 0);
        // Died: while it copied one, when it had copied one, and between the two steps of deleting one.
        let mut taken = (0..3).map(|_| shipments.take(&address, 5).expect("read").expect("waits"));
        let (copying, copied, deleting) = (
            taken.next().unwrap(),
            taken.next().unwrap(),
            taken.next().unwrap(),
        );
        drop(taken);
        shipments.begin_copy(copying.id, &address).expect("noted");
        let whole = std::fs::read(folder.path().join(&copying.row.file)).expect("written");
        std::fs::write(store.path().join(&copying.row.file), &whole[..500]).expect("a part");
        let from = folder.path().join(&copied.row.file);
        std::fs::copy(from, store.path().join(&copied.row.file)).expect("copied");
        let from = folder.path().join(&deleting.row.file);
        std::fs::copy(&from, store.path().join(&deleting.row.file)).expect("copied");
        let state = ShipState::Deletable;
        shipments.set_all(deleting.id, state, 6).expect("noted");
        std::fs::remove_file(from).expect("removed");
    }
    let progress = ship(folder.path(), &[store.path()], config());
    assert_eq!(progress.files(&[ShipState::Verified]), 3);
    assert_eq!(progress.files(&[ShipState::Deleted]), 1);
    assert_eq!(progress.deleted_files, 1);
    for block in 0..4 {
        let length = std::fs::metadata(store.path().join(name(block)))
            .expect("there")
            .len();
        assert_eq!(length, 1000 * (block + 1));
    }
}

#[test]
fn one_shipper_has_a_folder_and_a_catalogue_must_be_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let folders = [folder.path().to_owned()];
    let refused = Shipper::open(&folders, Vec::new(), config()).expect_err("no catalogue");
    assert!(
        refused.to_string().contains("catalogue.sqlite"),
        "{refused}"
    );
    assert!(!folder.path().join("catalogue.sqlite").exists());
    write(folder.path(), 1);
    let _first = Shipper::open(&folders, Vec::new(), config()).expect("opens");
    let second = Shipper::open(&folders, Vec::new(), config());
    assert!(
        matches!(second, Err(ShipError::Locked { .. })),
        "{second:?}"
    );
}

#[test]
fn all_copies_together_keep_the_limit_and_end_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = tempfile::tempdir().expect("a folder");
    write(folder.path(), 3);
    // So slow that only an end that is asked for ends it.
    let config = ShipConfig {
        bytes_per_s: Some(1),
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to(store.path())], config).expect("opens");
    let progress = shipper.run(&|| true, |_| {}).expect("ends");
    assert_eq!(progress.files(&[ShipState::Queued]), 3);
    assert_eq!(names(store.path()), Vec::<String>::new());
}

/// Folders of the child that is killed: `FROM|TO`.
const CHILD: &str = "SHEAF_SHIP_CHILD";
/// Kills of the test below: some in CI, 500 by hand.
const KILLS: &str = "SHEAF_KILLS";
const FILES: u64 = 40;

/// Process of the test below: ships and deletes, and prints a line for each look at how far it is.
#[test]
#[ignore = "a part of the test of kills, which starts it"]
fn a_shipper_that_is_killed() {
    let Ok(words) = std::env::var(CHILD) else {
        return;
    };
    let (from, store) = words.split_once('|').expect("FROM|TO");
    let config = ShipConfig {
        delete: Some(DELETE),
        bytes_per_s: Some(400_000),
        ..config()
    };
    let folders = [Path::new(from).to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to(Path::new(store))], config).expect("opens");
    println!("begins");
    let progress = shipper
        .run(&|| false, |_| println!("looks"))
        .expect("ships");
    assert_eq!(progress.files(&[ShipState::Deleted]), FILES);
    println!("done");
}

/// Every file is here or there, whole; returns how many are here.
fn check_all(from: &Path, store: &Path, contents: &[Vec<u8>]) -> usize {
    let mut here = 0;
    for (block, bytes) in (0..).zip(contents) {
        let name = name(block);
        match std::fs::read(from.join(&name)) {
            Ok(found) => {
                here += 1;
                assert_eq!(found, *bytes, "{name}");
            }
            Err(_) => {
                let found = std::fs::read(store.join(&name));
                assert_eq!(
                    found.ok().as_ref(),
                    Some(bytes),
                    "{name} is in neither place whole"
                );
            }
        }
    }
    here
}

#[test]
fn kills_at_any_time_lose_no_file_and_ship_none_twice() {
    let kills: u64 = std::env::var(KILLS).map_or(12, |text| text.parse().expect("a number"));
    let (mut killed, mut folder_number) = (0, 0_u64);
    while killed < kills {
        folder_number += 1;
        let from = tempfile::tempdir().expect("a folder");
        let store = tempfile::tempdir().expect("a folder");
        write(from.path(), FILES);
        let contents: Vec<Vec<u8>> = (0..FILES)
            .map(|block| std::fs::read(from.path().join(name(block))).expect("written"))
            .collect();
        loop {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .args([
                    "--ignored",
                    "--exact",
                    "--nocapture",
                    "a_shipper_that_is_killed",
                ])
                .env(
                    CHILD,
                    format!("{}|{}", from.path().display(), store.path().display()),
                )
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            let said = lines.map_while(Result::ok);
            let mut said = said.filter(|line| {
                ["begins", "looks", "done"]
                    .iter()
                    .any(|word| line.contains(word))
            });
            assert!(said.next().is_some_and(|line| line.contains("begins")));
            // A few looks, and then some thousand steps of a counter: anywhere within what follows.
            let draw = splitmix::mix(folder_number << 32 | killed);
            let is_done = said
                .by_ref()
                .take((draw % 3) as usize)
                .any(|line| line.contains("done"));
            for step in 0..draw % 1_000_000 {
                std::hint::black_box(step);
            }
            if is_done || killed >= kills {
                assert!(child.wait().expect("ends").success());
                break;
            }
            child.kill().expect("killed");
            child.wait().expect("ends");
            killed += 1;
            check_all(from.path(), store.path(), &contents);
        }
        // Nothing is left here; all is there, and nothing else under its name.
        ship(
            from.path(),
            &[store.path()],
            ShipConfig {
                delete: Some(DELETE),
                ..config()
            },
        );
        assert_eq!(check_all(from.path(), store.path(), &contents), 0);
        assert_eq!(names(store.path()).len() as u64, FILES);
    }
}
