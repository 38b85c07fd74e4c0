//! Files shipped to a bucket of a real server, SeaweedFS, which is killed, lies behind a bad line, and refuses.

mod relay;
mod store;

use super::{CHILD, DELETE, config, name, names, ship_to, write_files};
use relay::{Line, Relay};
use sheaf_ship::{Access, Backoff, Destination, DestinationError, S3Access, ShipConfig, Shipper};
use sheaf_stream_files::{ShipState, Shipments};
use sheaf_write::Kinds;
use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use store::{BUCKET, Store};
use tempfile::TempDir;

/// Bytes of a part: the fewest that S3 takes.
const PART: u64 = 5 << 20;
/// Bytes of the smallest file; the third one has three parts.
const UNIT: usize = 4_000_000;
const FILES: u64 = 3;
const SUMMED: Kinds = Kinds {
    crc32c: true,
    xxh3: false,
};

fn access(endpoint: &str) -> Access {
    Access {
        s3: S3Access {
            endpoint: Some(endpoint.to_owned()),
            keys: Some(store::keys()),
            part_bytes: Some(PART),
            ..S3Access::default()
        },
        ..Access::default()
    }
}

fn bucket(endpoint: &str) -> Destination {
    Destination::open(&address(), &access(endpoint)).expect("the bucket is there")
}

fn address() -> String {
    format!("s3://{BUCKET}/raw")
}

fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let read = |block| std::fs::read(folder.join(name(block))).expect("written");
    (0..FILES).map(read).collect()
}

/// A store, and a folder of files with their contents; `None` without a server.
fn store_and_files() -> Option<(Store, TempDir, Vec<Vec<u8>>)> {
    let store = Store::start()?;
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), FILES, UNIT, SUMMED);
    let contents = contents(folder.path());
    Some((store, folder, contents))
}

/// All files are in the bucket as they were written, and no part of an upload besides.
#[track_caller]
fn check(store: &Store, contents: &[Vec<u8>]) {
    for (bytes, block) in contents.iter().zip(0..) {
        let found = store.get(&format!("raw/{}", name(block)));
        assert!(found.as_ref() == Some(bytes), "{}", name(block));
    }
    assert_eq!(store.uploads(), 0);
}

#[test]
fn files_are_shipped_to_a_bucket_whole_and_in_parts() {
    let Some(store) = Store::start() else {
        return;
    };
    // The checksum of the store is compared with that of the catalogue, or of the copy.
    for (kinds, prefix) in [(SUMMED, "summed/a b"), (Kinds::default(), "plain")] {
        let folder = tempfile::tempdir().expect("a folder");
        write_files(folder.path(), FILES, UNIT, kinds);
        let contents = contents(folder.path());
        let to = |prefix: &str| {
            let address = format!("s3://{BUCKET}/{prefix}/");
            Destination::open(&address, &access(&store.endpoint())).expect("the bucket is there")
        };
        let ship = |config| ship_to(folder.path(), vec![to(prefix)], config);
        let progress = ship(config());
        assert_eq!(progress.files(&[ShipState::Verified]), FILES);
        assert_eq!((progress.failed_attempts, progress.deleted_files), (0, 0));
        assert_eq!(progress.copied_bytes, UNIT as u64 * 6);
        let delete = ShipConfig {
            delete: Some(DELETE),
            ..config()
        };
        let progress = ship(delete);
        assert_eq!((progress.copied_bytes, progress.deleted_files), (0, FILES));
        assert_eq!(names(folder.path()), Vec::<String>::new());
        for (bytes, block) in contents.iter().zip(0..) {
            let found = store.get(&format!("{prefix}/{}", name(block)));
            assert!(found.as_ref() == Some(bytes), "{prefix}/{}", name(block));
        }
    }
    assert_eq!(store.uploads(), 0);
}

#[test]
fn a_bucket_is_reached_by_tls_with_the_authority_of_its_server_alone() {
    let Some(store) = Store::start() else {
        return;
    };
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_files(folder.path(), FILES, 1000, SUMMED);
    let (endpoint, ca) = store.secured();
    let mut access = access(&endpoint);
    let error = Destination::open(&address(), &access).expect_err("no authority");
    assert!(error.to_string().contains("needs --ca FILE"), "{error}");
    access.ca = Some(ca);
    let to = Destination::open(&address(), &access).expect("the bucket is there");
    let progress = ship_to(folder.path(), vec![to], config());
    assert_eq!(progress.files(&[ShipState::Verified]), FILES);
    assert_eq!(progress.failed_attempts, 0);
    check(&store, &contents(folder.path()));
    // A server that another authority knows is as one that does not answer.
    store::certify(other.path());
    access.ca = Some(other.path().join("ca.pem"));
    let to = Destination::open("s3://shipped/other", &access).expect("it may answer later");
    let is_once = false;
    let config = ShipConfig {
        is_once,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to], config).expect("opens");
    let is_tried = Cell::new(false);
    let progress = shipper.run(&|| is_tried.get(), |progress| {
        is_tried.set(progress.failed_attempts > 0);
    });
    assert_eq!(progress.expect("runs").files(&[ShipState::Queued]), FILES);
}

#[test]
fn a_bucket_that_is_not_there_and_wrong_keys_are_refused_by_name() {
    let Some(store) = Store::start() else {
        return;
    };
    let good = access(&store.endpoint());
    let refused = |address: &str, access: &Access| {
        let error = Destination::open(address, access).expect_err(address);
        assert!(
            matches!(error, DestinationError::Refused { .. }),
            "{error:?}"
        );
        error.to_string()
    };
    let error = refused("s3://no-such-bucket/raw", &good);
    assert!(error.contains("404 NoSuchBucket"), "{error}");
    for (change_id, code) in [
        (true, "InvalidAccessKeyId"),
        (false, "SignatureDoesNotMatch"),
    ] {
        let mut keys = store::keys();
        let changed = if change_id {
            &mut keys.id
        } else {
            &mut keys.secret
        };
        *changed = "wrong".to_owned();
        let mut wrong = good.clone();
        wrong.s3.keys = Some(keys);
        let error = refused(&address(), &wrong);
        assert!(error.contains(&format!("403 {code}")), "{error}");
    }
    let mut without = good;
    without.s3.keys = None;
    let error = Destination::open(&address(), &without).expect_err("no keys");
    assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
}

#[test]
fn keys_that_change_while_files_are_shipped_cost_nothing_but_time() {
    let Some(store) = Store::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), FILES, 1000, SUMMED);
    let file = folder.path().join("credentials");
    let give = |secret: &str| {
        let id = store::keys().id;
        let text =
            format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        std::fs::write(&file, text).expect("written");
    };
    give(&store::keys().secret);
    let mut access = access(&store.endpoint());
    access.s3.keys = None;
    access.s3.credentials_file = Some(file.clone());
    let to = Destination::open(&address(), &access).expect("the keys are good");
    give("wrong");
    let config = ShipConfig {
        delete: Some(DELETE),
        is_once: false,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let mut shipper = Shipper::open(&folders, vec![to], config).expect("opens");
    let (is_good, is_done) = (Cell::new(false), Cell::new(false));
    let progress = shipper.run(&|| is_done.get(), |progress| {
        if !is_good.get() && progress.failed_attempts > 2 {
            assert_eq!(progress.deleted_files, 0);
            give(&store::keys().secret);
            is_good.set(true);
        }
        is_done.set(progress.deleted_files == FILES);
    });
    assert!(progress.expect("ships").failed_attempts > 2);
}

#[test]
fn a_server_that_is_killed_and_started_again_gets_all_files() {
    let Some((store, folder, contents)) = store_and_files() else {
        return;
    };
    let config = ShipConfig {
        delete: Some(DELETE),
        bytes_per_s: Some(8_000_000),
        is_once: false,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let to = vec![bucket(&store.endpoint())];
    let mut shipper = Shipper::open(&folders, to, config).expect("opens");
    let (store, is_done) = (RefCell::new(store), Cell::new(false));
    let (is_killed, is_back) = (Cell::new(false), Cell::new(false));
    let progress = shipper.run(&|| is_done.get(), |progress| {
        if !is_killed.get() && progress.copied_bytes > 2_000_000 {
            store.borrow_mut().kill();
            is_killed.set(true);
        }
        if is_killed.get() && !is_back.get() && progress.failed_attempts > 0 {
            assert!(progress.deleted_files < FILES);
            store.borrow_mut().start_again();
            is_back.set(true);
        }
        is_done.set(progress.deleted_files == FILES);
    });
    assert!(progress.expect("ships").failed_attempts > 0);
    check(&store.borrow(), &contents);
}

/// Process of the test below: ships to the bucket at the endpoint of the environment, slowly.
#[test]
#[ignore = "a part of the test below, which starts it"]
fn a_shipper_to_a_bucket_that_is_killed() {
    let Ok(words) = std::env::var(CHILD) else {
        return;
    };
    let (from, endpoint) = words.split_once('|').expect("FROM|ENDPOINT");
    let config = ShipConfig {
        bytes_per_s: Some(8_000_000),
        ..config()
    };
    let folders = [Path::new(from).to_owned()];
    let mut shipper = Shipper::open(&folders, vec![bucket(endpoint)], config).expect("opens");
    let progress = shipper.run(&|| false, |progress| {
        println!("copied {}", progress.copied_bytes);
    });
    assert_eq!(
        progress.expect("ships").files(&[ShipState::Verified]),
        FILES
    );
}

#[test]
fn a_shipper_that_is_killed_in_an_upload_leaves_nothing_behind_for_good() {
    let Some((store, folder, contents)) = store_and_files() else {
        return;
    };
    let words = [
        "--ignored",
        "--exact",
        "--nocapture",
        "s3::a_shipper_to_a_bucket_that_is_killed",
    ];
    let mut was_in_parts = false;
    for life in 1..=3_u64 {
        let child = format!("{}|{}", folder.path().display(), store.endpoint());
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(words)
            .env(CHILD, child)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut copied = lines.map_while(Result::ok).filter_map(|line| {
            let (_, number) = line.split_once("copied ")?;
            number.parse::<u64>().ok()
        });
        assert!(copied.any(|copied| copied > 4_000_000 * life));
        child.kill().expect("killed");
        child.wait().expect("ends");
        was_in_parts |= store.uploads() > 0;
    }
    assert!(was_in_parts);
    let delete = ShipConfig {
        delete: Some(DELETE),
        ..config()
    };
    let progress = ship_to(folder.path(), vec![bucket(&store.endpoint())], delete);
    assert_eq!(progress.deleted_files, FILES);
    check(&store, &contents);
}

#[test]
fn what_a_bad_line_damages_is_refused_and_stays_here() {
    let Some((store, folder, contents)) = store_and_files() else {
        return;
    };
    let relay = Relay::start(store.port());
    let config = ShipConfig {
        delete: Some(DELETE),
        is_once: false,
        ..config()
    };
    let folders = [folder.path().to_owned()];
    let to = vec![bucket(&relay.endpoint())];
    let mut shipper = Shipper::open(&folders, to, config).expect("opens");
    relay.set(Line::Damages);
    let is_done = Cell::new(false);
    let progress = shipper.run(&|| is_done.get(), |progress| {
        if relay.line() == Line::Damages {
            assert_eq!(progress.files(&[ShipState::Verified]), 0);
            assert_eq!(progress.deleted_files, 0);
        }
        if progress.failed_attempts > FILES {
            relay.set(Line::Good);
        }
        is_done.set(progress.deleted_files == FILES);
    });
    assert!(progress.expect("ships").failed_attempts > FILES);
    check(&store, &contents);
}

#[test]
fn a_part_that_is_cut_off_is_sent_again_and_not_the_whole_file() {
    let Some((store, folder, contents)) = store_and_files() else {
        return;
    };
    let relay = Relay::start(store.port());
    let to = vec![bucket(&relay.endpoint())];
    relay.set(Line::CutsOnce);
    let config = ShipConfig {
        parallel: 1,
        backoff: Backoff {
            first: Duration::from_secs(600),
            last: Duration::from_secs(600),
        },
        ..config()
    };
    let progress = ship_to(folder.path(), to, config);
    assert_eq!(relay.line(), Line::Good);
    assert_eq!(progress.failed_attempts, 0);
    assert!(progress.copied_bytes > UNIT as u64 * 6);
    check(&store, &contents);
}

#[test]
fn a_store_that_tells_other_checksums_is_read_back() {
    let Some((store, folder, contents)) = store_and_files() else {
        return;
    };
    let relay = Relay::start(store.port());
    relay.set(Line::WrongSums);
    let to = vec![bucket(&relay.endpoint())];
    let progress = ship_to(folder.path(), to, config());
    assert_eq!(progress.files(&[ShipState::Verified]), FILES);
    assert_eq!(progress.failed_attempts, 0);
    check(&store, &contents);
}

#[test]
fn a_damaged_object_is_replaced_if_it_is_ours_and_never_trusted() {
    let Some(store) = Store::start() else {
        return;
    };
    for kinds in [SUMMED, Kinds::default()] {
        let folder = tempfile::tempdir().expect("a folder");
        write_files(folder.path(), FILES, 1000, kinds);
        let contents = contents(folder.path());
        let key = |block| format!("raw/{}", name(block));
        for (bytes, block) in contents.iter().zip(0..) {
            let mut damaged = bytes.clone();
            damaged[500] ^= 1;
            store.put(&key(block), &damaged);
        }
        // A copy of the first one was begun by a life that died; the others are of another program.
        {
            let shipments = Shipments::open(folder.path()).expect("opens");
            shipments.enqueue(&address(), 1).expect("noted");
            let taken = shipments.take(&address(), 5).expect("read").expect("waits");
            assert_eq!(taken.row.file, name(0));
            shipments.begin_copy(taken.id, &address()).expect("noted");
        }
        let config = ShipConfig {
            delete: Some(DELETE),
            is_once: false,
            ..config()
        };
        let folders = [folder.path().to_owned()];
        let to = vec![bucket(&store.endpoint())];
        let mut shipper = Shipper::open(&folders, to, config).expect("opens");
        let is_tried = Cell::new(false);
        let progress = shipper.run(&|| is_tried.get(), |progress| {
            is_tried.set(progress.failed_attempts >= FILES && progress.deleted_files > 0);
        });
        assert_eq!(progress.expect("runs").deleted_files, 1);
        assert_eq!(names(folder.path()), [name(1), name(2)]);
        assert!(store.get(&key(0)).as_ref() == Some(&contents[0]));
        assert!(store.get(&key(1)).as_ref() != Some(&contents[1]));
    }
}

#[test]
fn a_file_that_is_not_what_was_written_never_gets_its_name_in_a_bucket() {
    let Some(store) = Store::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), FILES, UNIT, SUMMED);
    for block in [0, 2] {
        let path = folder.path().join(name(block));
        let mut bytes = std::fs::read(&path).expect("written");
        bytes[700] ^= 1;
        std::fs::write(&path, &bytes).expect("damaged");
    }
    let delete = ShipConfig {
        delete: Some(DELETE),
        ..config()
    };
    let progress = ship_to(folder.path(), vec![bucket(&store.endpoint())], delete);
    assert_eq!(progress.files(&[ShipState::Damaged]), 2);
    assert_eq!(progress.deleted_files, 1);
    for block in [0, 2] {
        assert_eq!(store.get(&format!("raw/{}", name(block))), None);
    }
    assert_eq!(store.uploads(), 0);
}
