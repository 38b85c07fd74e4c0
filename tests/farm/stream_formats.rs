//! Streams of each format, written by a farm and read by what reads such files.

use crate::harness::{farm_turn, sheaf, start, write};
use crate::stf_files::{tfs_of, through_a_farm};
use crate::streams::{json_of, tfs_by_python};
use serde_json::Value;
use sheaf_formats::sample::hbf;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TFS: u32 = 20;
const ORBITS_PER_TF: u32 = 4;
/// System ids.
const ITS: u8 = 32;
const TPC: u8 = 3;
/// Bytes of an HBF of the sample.
const PAGE: usize = 80;

/// Raw data of two links of the ITS and one of the TPC, with an HBF of one page for each link and orbit: as many links
/// as the farm that reads them again has FLPs.
fn raw(system_id: u8) -> Vec<u8> {
    let links: &[u8] = if system_id == ITS { &[1, 2] } else { &[3] };
    let orbits = 1..=TFS * ORBITS_PER_TF;
    let of_orbit = |orbit| {
        links.iter().flat_map(move |link| {
            let mut page = hbf(orbit, *link);
            page[5] = system_id;
            page
        })
    };
    orbits.flat_map(of_orbit).collect()
}

/// Pages by link and orbit: TFs stand in the order in which they were delivered.
fn in_order(bytes: &[u8]) -> Vec<&[u8]> {
    let mut pages: Vec<&[u8]> = bytes.chunks(PAGE).collect();
    pages.sort_by_key(|page| (page[12], page[20..24].iter().rev().collect::<Vec<_>>()));
    pages
}

/// Runs a farm of two FLPs with raw data of the ITS and the TPC, whose EPN writes `streams` into `files`.
fn run(at: &Path, files: &Path, streams: &str) {
    let place = at.display();
    let inputs = [("its", ITS), ("tpc", TPC)].map(|(name, system_id)| {
        let path = at.join(name);
        std::fs::write(&path, raw(system_id)).unwrap();
        path
    });
    std::fs::create_dir(files).unwrap();
    let text = format!(
        "[run]\nflps = 2\nepns = 1\ntimeframes = {TFS}\n\
         [icn]\naddress = \"unix:{place}/icn.sock\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"file\"\nfiles = {inputs:?}\norbits_per_tf = {ORBITS_PER_TF}\n\
         [epn]\nlisten = \"unix:{place}/epn.sock\"\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [epn.sink]\nkind = \"streams\"\ndirectory = {files:?}\n{streams}"
    );
    let config = write(at, "farm.toml", &text);
    let icn = start(at, &config, "icn", 0, &[]);
    let epn = start(at, &config, "epn", 0, &[]);
    let flps = [0, 1].map(|flp| start(at, &config, "flp", flp, &[]));
    for node in [icn, epn].into_iter().chain(flps) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
    }
}

/// The closed file of each stream, and its records.
fn files_of(files: &str) -> BTreeMap<String, (PathBuf, u64)> {
    let rows = json_of(&["files", "list", files, "--json"]);
    let of = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        assert_eq!(row["state"], "closed", "{row:#}");
        let path = Path::new(&text("directory")).join(text("file"));
        (
            text("stream"),
            (path, row["records"].as_u64().expect("a number")),
        )
    };
    let found: BTreeMap<_, _> = rows.iter().map(of).collect();
    assert_eq!(found.len(), rows.len(), "one file a stream");
    found
}

const STREAMS: &str = "[[epn.sink.stream]]\nname = \"main\"\n\
    [[epn.sink.stream]]\nname = \"o2\"\nformat = \"stf-file\"\n\
    [[epn.sink.stream]]\nname = \"its\"\nformat = \"raw\"\nflps = [0]\n\
    [[epn.sink.stream]]\nname = \"tpc\"\ndetectors = [\"TPC\"]\n";

#[test]
fn files_of_each_format_are_read_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (at, files) = (folder.path(), folder.path().join("files"));
    {
        let _turn = farm_turn();
        run(at, &files, STREAMS);
    }
    let (place, files) = (at.to_str().unwrap(), files.to_str().unwrap());
    let found = files_of(files);
    let records = found.values().map(|(_, records)| *records);
    assert_eq!(records.collect::<Vec<_>>(), [u64::from(TFS); 4]);
    let path = |stream: &str| found[stream].0.to_str().unwrap();
    for (stream, end) in [
        ("main", ".tf"),
        ("o2", ".stf"),
        ("its", ".raw"),
        ("tpc", ".tf"),
    ] {
        assert!(path(stream).ends_with(end), "{}", path(stream));
    }
    let read = |path: &str| std::fs::read(path).unwrap();

    // Payloads alone are what was read, and all of its HBFs are found.
    let its = read(path("its"));
    assert!(in_order(&its) == in_order(&raw(ITS)), "pages differ");
    // TFs stand in the order of their delivery, which packet counters may show: the exit status is not looked at.
    let inspected = sheaf(&["data", "inspect", path("its"), "--json"]);
    let inspected: Value = serde_json::from_str(&inspected.stdout[0]).expect("a line of JSON");
    assert_eq!(inspected["format"], "rdh");
    for count in ["pages", "hbf_opened", "hbf_closed"] {
        assert_eq!(inspected[count], 2 * TFS * ORBITS_PER_TF, "{count}");
    }

    // All pages of both detectors are in the file of DataDistribution's format,
    let all = at.join("all.raw");
    let words = [
        "data",
        "convert",
        "--to",
        "raw",
        path("o2"),
        all.to_str().unwrap(),
    ];
    assert!(sheaf(&words).status.success());
    let expected = [raw(ITS), raw(TPC)].concat();
    assert!(
        in_order(&read(all.to_str().unwrap())) == in_order(&expected),
        "pages differ"
    );
    // and a farm that reads it gives the same TFs.
    let stf = read(path("o2"));
    let again = at.join("again");
    std::fs::create_dir(&again).unwrap();
    {
        let _turn = farm_turn();
        let output = through_a_farm(&again, path("o2"), "blocks", TFS as usize);
        assert!(tfs_of(&output) == tfs_of(&stf), "TFs differ");
    }

    // The stream of a detector has the STFs of its FLP.
    let tfs = json_of(&["files", "read", path("tpc"), "--json"]);
    assert_eq!(tfs.len(), TFS as usize);
    assert!(tfs.iter().all(|tf| tf["flps"] == serde_json::json!([1])));
    let to = at.join("to");
    std::fs::create_dir(&to).unwrap();
    let words = [
        "files",
        "read",
        path("o2"),
        "--tf",
        "7",
        "--json",
        "--to",
        to.to_str().unwrap(),
    ];
    let tfs = json_of(&words);
    assert_eq!((tfs.len(), &tfs[0]["tf"]), (1, &7.into()));
    let one = to.join("tf-000000000007.stf");
    assert!(tfs_of(&stf).contains(&read(one.to_str().unwrap()).as_slice()));
    for words in [
        &["files", "read", path("its")][..],
        &["files", "read", path("o2"), "--flp", "0"],
    ] {
        assert_eq!(sheaf(words).status.code(), Some(2), "{words:?}");
    }

    // All is as the catalogue and the logs say, until a byte changes.
    assert_eq!(tfs_by_python(files), Some(2 * u64::from(TFS)));
    let check = ["files", "check", files];
    let verify = ["data", "verify", place, "--sink", files];
    assert!(sheaf(&check).status.success());
    let verified = sheaf(&verify);
    assert_eq!(verified.status.code(), Some(0), "{:#?}", verified.stdout);
    let told = "1 of these files are of the format raw";
    assert!(
        verified.stdout.iter().any(|line| line.contains(told)),
        "{:#?}",
        verified.stdout
    );
    for stream in ["o2", "its"] {
        let good = read(path(stream));
        let mut bad = good.clone();
        let last = bad.len() - 1;
        bad[last] ^= 1;
        std::fs::write(path(stream), bad).unwrap();
        for words in [&check[..], &verify] {
            assert_eq!(sheaf(words).status.code(), Some(1), "{stream} {words:?}");
        }
        std::fs::write(path(stream), good).unwrap();
    }
    assert!(sheaf(&check).status.success());
}

#[test]
fn several_streams_of_a_format_without_digests_are_compared_with_their_catalogue_alone() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let (at, files) = (folder.path(), folder.path().join("files"));
    let streams = "[[epn.sink.stream]]\nname = \"main\"\nflps = [0]\n\
        [[epn.sink.stream]]\nname = \"one\"\nformat = \"stf-file\"\nflps = [1]\n\
        [[epn.sink.stream]]\nname = \"tenth\"\nformat = \"stf-file\"\nevery = 10\n";
    run(at, &files, streams);
    let files = files.to_str().unwrap();
    let records: Vec<u64> = files_of(files).into_values().map(|it| it.1).collect();
    assert_eq!(records, [u64::from(TFS), u64::from(TFS), 2]);
    let verified = sheaf(&["data", "verify", at.to_str().unwrap(), "--sink", files]);
    assert_eq!(verified.status.code(), Some(0), "{:#?}", verified.stdout);
    let told = "22 of these TFs are in several streams of the format stf-file";
    assert!(
        verified.stdout.iter().any(|line| line.contains(told)),
        "{:#?}",
        verified.stdout
    );
}
