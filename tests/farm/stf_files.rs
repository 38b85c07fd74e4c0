//! Files of DataDistribution through a farm: what goes in at the FLPs comes out at the EPN.

use crate::harness::{Running, farm_turn, write};
use sheaf_formats::Findings;
use sheaf_formats::sample::{hbf, o2_tf};
use sheaf_formats::stf_file::{FileTf, FileTfs, TfImage, TfName};
use sheaf_protocol::{FlpId, PayloadFormat};
use std::path::Path;

const FLPS: usize = 3;

/// Runs a farm of run 540123 that reads `file` as `payload` and writes its TFs into a folder; returns the bytes
/// of all files there.
pub(crate) fn through_a_farm(folder: &Path, file: &str, payload: &str, tfs: usize) -> Vec<u8> {
    let (at, out) = (folder.display(), folder.join("out"));
    std::fs::create_dir(&out).unwrap();
    let config = write(
        folder,
        "farm.toml",
        &format!(
            "[run]\nnumber = 540123\nflps = {FLPS}\nepns = 1\ntimeframes = {tfs}\n\
             [icn]\naddress = \"unix:{at}/icn.sock\"\n\
             [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
             [flp.source]\nkind = \"stf-file\"\nfiles = [{file:?}]\npayload = \"{payload}\"\n\
             [epn]\nlisten = \"unix:{at}/epn.sock\"\n\
             [epn.sink]\nkind = \"stf-file\"\ndirectory = {out:?}\n\
             [epn.build]\ncapacity_bytes = 16777216\n\
             [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
        ),
    );
    let node = |role: &str, index: usize| {
        let index = index.to_string();
        Running::start(&["run", role, "--config", &config, "--index", &index])
    };
    let icn = Running::start(&["run", "icn", "--config", &config]);
    let epn = node("epn", 0);
    epn.await_line("listening");
    let flps = (0..FLPS).map(|flp| node("flp", flp));
    let nodes: Vec<Running> = [icn, epn].into_iter().chain(flps).collect();
    for node in nodes {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
    }
    let runs = std::fs::read_dir(&out).unwrap();
    let files = runs.flat_map(|run| std::fs::read_dir(run.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = files.iter().map(|file| std::fs::read(file).unwrap());
    read.collect::<Vec<_>>().concat()
}

/// Returns the bytes of each TF, sorted: those of a farm stand in the order in which they were delivered.
pub(crate) fn tfs_of(file: &[u8]) -> Vec<&[u8]> {
    let (mut tfs, mut findings) = (FileTfs::new(file), Findings::default());
    let found = std::iter::from_fn(|| tfs.next_good(&mut findings));
    let mut found: Vec<&[u8]> = found
        .map(|tf| &file[tf.offset..tf.offset + tf.bytes])
        .collect();
    assert_eq!(findings.faults, []);
    found.sort_unstable();
    found
}

#[test]
fn blocks_of_any_kind_come_out_of_a_farm_byte_for_byte() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let input: Vec<u8> = (1..=30)
        .flat_map(|counter| o2_tf(u64::from(counter), 540_123, counter))
        .collect();
    let path = folder.path().join("in.tf");
    std::fs::write(&path, &input).unwrap();
    let tfs = tfs_of(&input);
    let output = through_a_farm(folder.path(), path.to_str().unwrap(), "blocks", tfs.len());
    assert!(tfs_of(&output) == tfs, "TFs differ from those that went in");
}

#[test]
fn pages_get_the_number_of_the_run() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let input: Vec<u8> = (1..=10).flat_map(tf_of_pages).collect();
    let path = folder.path().join("in.tf");
    std::fs::write(&path, &input).unwrap();
    let output = through_a_farm(folder.path(), path.to_str().unwrap(), "pages", 10);
    let expected = |tf: &FileTf| (tf.run(), tf.payload_bytes());
    let (mut tfs, mut findings) = (FileTfs::new(&output), Findings::default());
    let found: Vec<_> = std::iter::from_fn(|| tfs.next_good(&mut findings))
        .map(|tf| expected(&tf))
        .collect();
    assert_eq!(found, [(540_123, 4 * 80); 10]);
    assert_eq!(findings.faults, []);
    let out = folder.path().join("out");
    let run = std::fs::read_dir(out).unwrap().next().unwrap().unwrap();
    assert!(
        run.file_name().to_str().unwrap().ends_with("00083ddb"),
        "{run:?}"
    );
    for file in std::fs::read_dir(run.path()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("o2_rawtf_run00540123_tf"), "{name}");
    }
}

/// A TF of another run, of four links.
fn tf_of_pages(counter: u32) -> Vec<u8> {
    let pages: Vec<u8> = (0..4).flat_map(|link| hbf(counter, link)).collect();
    let name = TfName {
        run: 7,
        counter,
        write_time_ms: 1,
    };
    let image = TfImage::new(name, &[(FlpId(0), PayloadFormat::RdhPages, &pages)]);
    image.slices(&[&pages]).flatten().copied().collect()
}
