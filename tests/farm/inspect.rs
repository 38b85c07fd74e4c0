//! Files that are larger than the memory of the process that inspects them.

use sheaf_formats::Rdh;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

/// Address space that the program gets, in KiB: a tenth of the files.
const MEMORY_KIB: u64 = 512 << 10;
const FILE_BYTES: u64 = 5 << 30;

/// Inspects `path` with little memory; returns its JSON.
fn inspect(path: &Path) -> serde_json::Value {
    let limited = format!("ulimit -v {MEMORY_KIB} && exec \"$0\" data inspect --json \"$1\"");
    let done = Command::new("sh")
        .args(["-c", &limited, crate::harness::PROGRAM])
        .arg(path)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {stderr}", path.display());
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A file of `size` bytes in `folder` with `pieces` and nothing but zeros, which take no room on the disk, between.
fn sparse(
    folder: &Path,
    name: &str,
    size: u64,
    pieces: impl IntoIterator<Item = (u64, Vec<u8>)>,
) -> std::path::PathBuf {
    let path = folder.join(name);
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for (at, bytes) in pieces {
        file.write_all_at(&bytes, at).unwrap();
    }
    path
}

#[test]
fn files_that_are_larger_than_memory_are_inspected() {
    let folder = tempfile::tempdir().unwrap();
    let half = FILE_BYTES / 2;

    let datagram = |extent: u64| {
        let mut head = vec![0; 24];
        head[11] = 2;
        head[20..].copy_from_slice(&u32::try_from(extent).unwrap().to_le_bytes());
        head
    };
    let heads = [(0, datagram(half - 12)), (half, datagram(half - 12))];
    let found = inspect(&sparse(folder.path(), "a.xtc2", FILE_BYTES, heads));
    assert_eq!(
        (&found["format"], &found["datagrams"]),
        (&"xtc2".into(), &2.into())
    );

    let record = |bytes: u64| {
        let mut head = vec![0; 30];
        head[..4].copy_from_slice(&u32::try_from(bytes).unwrap().to_le_bytes());
        head[4..8].copy_from_slice(&10001_u32.to_le_bytes());
        head
    };
    let quarter = FILE_BYTES / 4;
    let heads = (0..4).map(|number| (number * quarter, record(quarter)));
    let found = inspect(&sparse(folder.path(), "a.dat", FILE_BYTES, heads));
    assert_eq!(
        (&found["format"], &found["records"]),
        (&"km3net".into(), &4.into())
    );

    // One TF with an index entry and a block of all that is left.
    let header = |name: &[u8; 20], payload: u64| {
        let mut head = vec![0; 96];
        head[..4].copy_from_slice(b"O2O2");
        (head[4], head[12]) = (96, 3);
        head[16..24].copy_from_slice(b"DataHead");
        head[32..52].copy_from_slice(name);
        head[72..80].copy_from_slice(&payload.to_le_bytes());
        head
    };
    let clusters = b"CLUSTERS\0\0\0\0\0\0\0\0TRD\0";
    let block = FILE_BYTES - (96 + 24 + 96 + 48);
    let meta = [1, FILE_BYTES, 1_700_000_000_000]
        .map(u64::to_le_bytes)
        .concat();
    let entry = [&clusters[..], &[1, 0, 0, 0], &[0; 16], &block.to_le_bytes()].concat();
    let tf = [
        header(b"FILE_STF_META\0\0\0FLP\0", 24),
        meta,
        header(b"FILE_STF_INDEX\0\0***\0", 48),
        entry,
        header(clusters, block - 96),
    ];
    let found = inspect(&sparse(
        folder.path(),
        "a.tf",
        FILE_BYTES,
        [(0, tf.concat())],
    ));
    assert_eq!(
        found["equipment"],
        serde_json::json!([["TRD", "CLUSTERS", 0, 1]])
    );
    assert_eq!(found["faults"], serde_json::json!([]));

    // Every page takes a block of the disk: three times the memory will do.
    let page_bytes: u64 = 65_472;
    let page = Rdh {
        version: 7,
        offset_to_next: 65_472,
        memory_bytes: 65_472,
        stop_bit: 1,
        ..Rdh::default()
    };
    let pages = 3 * (MEMORY_KIB << 10) / page_bytes;
    let page = |number: u64| Rdh {
        orbit: u32::try_from(number).unwrap(),
        packet_counter: number.to_le_bytes()[0],
        ..page
    };
    let heads = (0..pages).map(|number| (number * page_bytes, page(number).encode().to_vec()));
    let found = inspect(&sparse(folder.path(), "a.raw", pages * page_bytes, heads));
    assert_eq!(
        (&found["format"], &found["pages"]),
        (&"rdh".into(), &pages.into())
    );
    assert_eq!(found["faults"], serde_json::json!([]));
}
