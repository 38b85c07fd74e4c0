use super::*;
use bytes::Bytes;
use sheaf_formats::stf_file::TfImage;
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::{FlpId, Incarnation, Part, PayloadFormat, Source, Tf, crc32c};
use sheaf_stream_files::FileState;
use sheaf_write::{FileName, Sums};
use std::io::Write as _;
use tempfile::TempDir;

const PAYLOAD: &[u8] = b"0123456789";

fn id(tf: u64, attempt: u32) -> HandoffId {
    HandoffId {
        run: RunId(1),
        tf: TfId(tf),
        attempt: Attempt(attempt),
    }
}

/// A TF as it stands in a file of TFs.
fn in_tf_file(id: HandoffId) -> Vec<u8> {
    let part = Part {
        source: Source {
            flp: FlpId(0),
            incarnation: Incarnation(1),
        },
        format: PayloadFormat::Opaque,
        digest: crc32c(PAYLOAD),
        bytes: PAYLOAD.len() as u64,
        payload: Bytes::from_static(PAYLOAD),
    };
    let tf = Tf {
        run: id.run,
        tf: id.tf,
        attempt: id.attempt,
        is_redelivered: false,
        parts: vec![part],
        missing: Vec::new(),
    };
    [&tf_file_head(&tf), PAYLOAD].concat()
}

/// A TF as it stands in a file of DataDistribution.
fn in_stf_file(id: HandoffId) -> Vec<u8> {
    let name = TfName::new(id.run, id.tf, 0);
    let image = TfImage::new(name, &[(FlpId(0), PayloadFormat::Opaque, PAYLOAD)]);
    let slices: Vec<&[u8]> = image.slices(&[PAYLOAD]).collect();
    slices.concat()
}

/// A folder with a catalogue, and a finder.
struct Bench {
    folder: TempDir,
    catalogue: Catalogue,
    finder: Finder,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            catalogue: Catalogue::open(folder.path()).expect("a catalogue"),
            folder,
            finder: Finder::default(),
        }
    }

    /// Makes a file of stream `main` and block 3 with these bytes, and a row for it.
    fn add(&self, file: &str, state: FileState, bytes: &[u8]) {
        let row = FileRow {
            file: file.to_owned(),
            name: FileName {
                project: "test".to_owned(),
                run: 1,
                stream: "main".to_owned(),
                block: 3,
                node: "writer-0".to_owned(),
                seq: 0,
            },
            state,
            opened_ns: 0,
            closed_ns: None,
            records: 0,
            sums: Sums {
                bytes: 0,
                adler32: 1,
                crc32c: None,
                xxh3: None,
            },
        };
        self.catalogue.add(&row).expect("it is noted");
        let end = if state == FileState::Open {
            ".part"
        } else {
            ""
        };
        self.append(&format!("{file}{end}"), bytes);
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("it is opened");
        file.write_all(bytes).expect("it is written");
    }

    fn has(&mut self, id: HandoffId) -> bool {
        self.has_at((1, "main", 3), id)
    }

    fn has_at(&mut self, place: (u64, &str, u64), id: HandoffId) -> bool {
        let folder = self.folder.path();
        self.finder.has(&[folder], place, id)
    }
}

#[test]
fn a_tf_is_found_in_a_closed_file_and_in_one_that_is_open() {
    for state in [FileState::Closed, FileState::Open, FileState::Recovered] {
        let mut bench = Bench::new();
        let bytes = [7, 8].map(|tf| in_tf_file(id(tf, 1))).concat();
        bench.add("a.tf", state, &bytes);
        let found = [7, 8, 9].map(|tf| bench.has(id(tf, 1)));
        assert_eq!(found, [true, true, false], "{state:?}");
    }
}

#[test]
fn a_tf_of_another_assignment_is_another_one() {
    let mut bench = Bench::new();
    bench.add("a.tf", FileState::Closed, &in_tf_file(id(7, 1)));
    assert_eq!(
        [1, 2].map(|attempt| bench.has(id(7, attempt))),
        [true, false]
    );
}

#[test]
fn files_of_other_runs_streams_and_blocks_are_left_alone() {
    let mut bench = Bench::new();
    bench.add("a.tf", FileState::Closed, &in_tf_file(id(7, 1)));
    for place in [(2, "main", 3), (1, "calib", 3), (1, "main", 4)] {
        assert!(!bench.has_at(place, id(7, 1)), "{place:?}");
    }
}

#[test]
fn a_tf_is_found_in_a_file_of_datadistribution_by_run_and_counter() {
    let mut bench = Bench::new();
    let bytes = [7, 8].map(|tf| in_stf_file(id(tf, 1))).concat();
    let name = format!("a.{}", StreamFormat::StfFile.extension());
    bench.add(&name, FileState::Closed, &bytes);
    // These files know no assignments.
    let found = [id(7, 1), id(8, 2), id(9, 1)].map(|id| bench.has(id));
    assert_eq!(found, [true, true, false]);
    let other = HandoffId {
        run: RunId(2),
        ..id(7, 1)
    };
    assert!(!bench.has(other));
}

#[test]
fn a_file_that_grows_is_read_on() {
    let mut bench = Bench::new();
    let next = in_tf_file(id(8, 1));
    let (begin, rest) = next.split_at(next.len() / 2);
    let whole = in_tf_file(id(7, 1));
    bench.add("a.tf", FileState::Open, &[&whole, begin].concat());
    assert!(bench.has(id(7, 1)));
    assert!(!bench.has(id(8, 1)), "half of it is there");
    bench.append("a.tf.part", rest);
    assert!(bench.has(id(8, 1)));
    // It gets its final name, and is read on from where it was.
    let place = bench.folder.path().to_owned();
    std::fs::rename(place.join("a.tf.part"), place.join("a.tf")).expect("it is renamed");
    bench.append("a.tf", &in_tf_file(id(9, 1)));
    assert_eq!([7, 8, 9].map(|tf| bench.has(id(tf, 1))), [true; 3]);
}

#[test]
fn a_file_that_was_shipped_and_removed_is_no_fault() {
    let mut bench = Bench::new();
    bench.add("a.tf", FileState::Closed, &in_tf_file(id(7, 1)));
    std::fs::remove_file(bench.folder.path().join("a.tf")).expect("it is removed");
    assert!(!bench.has(id(7, 1)));
}
