//! Conversions of whole files, from a folder to a folder.

use super::*;
use clap::Parser;
use sheaf_formats::sample::{hbf, o2_tf};
use sheaf_formats::stf_file::{TfImage, TfName};

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// Runs `sheaf data convert` with `words`, of which those with `@` are files of `folder`.
fn convert(folder: &Path, words: &str) -> Result<ExitCode, String> {
    let place = folder.display().to_string() + "/";
    let words = words.split(' ').map(|word| word.replace('@', &place));
    let command = Command::parse_from(std::iter::once("convert".to_owned()).chain(words));
    run(&command.args).map_err(|error| fail::message(&error))
}

/// Returns a TF of four links of pages, and of clusters of another detector if `has_clusters`.
fn tf(counter: u32, has_clusters: bool) -> Vec<u8> {
    let pages: Vec<u8> = (0..4).flat_map(|link| hbf(counter, link)).collect();
    let clusters = b"clusters";
    let mut parts: Vec<(FlpId, PayloadFormat, &[u8])> =
        vec![(FlpId(0), PayloadFormat::RdhPages, &pages)];
    if has_clusters {
        parts.push((FlpId(9), PayloadFormat::Opaque, clusters));
    }
    let name = TfName {
        run: 540_123,
        counter,
        write_time_ms: 1_700_000_000_000,
    };
    let slices: Vec<&[u8]> = parts.iter().map(|(_, _, payload)| *payload).collect();
    let image = TfImage::new(name, &parts);
    let mut bytes: Vec<u8> = image.slices(&slices).flatten().copied().collect();
    while let Some(at) = bytes
        .windows(16)
        .position(|at| at == b"SHEAF_OPAQUE\0\0\0\0")
    {
        bytes[at..at + 20].copy_from_slice(b"CLUSTERS\0\0\0\0\0\0\0\0TRD\0");
    }
    bytes
}

#[test]
fn a_file_of_any_blocks_is_the_same_after_a_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let seed = rand_seed();
    println!("seed {seed}");
    let input: Vec<u8> = (0..40)
        .flat_map(|at| o2_tf(seed + at, 7, u32::try_from(at).unwrap() + 1))
        .chain(tf(41, true))
        .collect();
    std::fs::write(file("in.tf"), &input).unwrap();
    for (words, name) in [
        ("--to stf @in.tf @same.tf", "same.tf"),
        ("--to stf @same.tf @again.tf", "again.tf"),
    ] {
        convert(folder.path(), words).unwrap();
        assert!(
            std::fs::read(file(name)).unwrap() == input,
            "{words}, seed {seed}"
        );
    }
    // Over Sheaf's own files, whichever FLPs have which blocks.
    for flps in 1..4 {
        convert(
            folder.path(),
            &format!("--to tf --flps {flps} @in.tf @tfs-{flps}"),
        )
        .unwrap();
        let mut tfs: Vec<String> = std::fs::read_dir(file(&format!("tfs-{flps}")))
            .unwrap()
            .map(|entry| format!("@tfs-{flps}/{}", entry.unwrap().file_name().display()))
            .collect();
        tfs.sort();
        let words = format!("--to stf {} @back-{flps}.tf", tfs.join(" "));
        convert(folder.path(), &words).unwrap();
        let back = std::fs::read(file(&format!("back-{flps}.tf"))).unwrap();
        assert!(back == input, "{flps} FLPs, seed {seed}");
    }
}

/// A seed from the environment, or the one that all runs have.
fn rand_seed() -> u64 {
    let given = std::env::var("SHEAF_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("SHEAF_SEED is a number"))
}

#[test]
fn what_pages_cannot_express_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("pages.tf"), tf(1, false)).unwrap();
    std::fs::write(file("mixed.tf"), [tf(1, false), tf(2, true)].concat()).unwrap();
    let refused =
        "TF 2: TF has a block of TRD/CLUSTERS/0x9, expected RDH pages alone: blocks of RAWDATA";
    for words in [
        "--to raw @mixed.tf @out",
        "--to tf --payload pages @mixed.tf @tfs",
    ] {
        let error = convert(folder.path(), words).unwrap_err();
        assert!(error.ends_with(refused), "{words}: {error}");
    }
    // The same from a file of Sheaf.
    convert(folder.path(), "--to tf @mixed.tf @blocks").unwrap();
    let error = convert(folder.path(), "--to raw @blocks/tf-000000000001.tf @out").unwrap_err();
    let refused = "the STF of flp:0 in TF 1: TF has a block of TRD/CLUSTERS/0x9";
    assert!(error.contains(refused), "{error}");
    assert!(!file("out").exists() && !file("out.part").exists());
    let pages: Vec<u8> = (0..4).flat_map(|link| hbf(1, link)).collect();
    for (words, name) in [
        ("--to raw @pages.tf @a.raw", "a.raw"),
        ("--to raw @blocks/tf-000000000000.tf @b.raw", "b.raw"),
    ] {
        convert(folder.path(), words).unwrap();
        assert!(std::fs::read(file(name)).unwrap() == pages, "{words}");
    }
    convert(folder.path(), "--to tf --payload pages @pages.tf @pages").unwrap();
    let bytes = std::fs::read(file("pages/tf-000000000000.tf")).unwrap();
    let part = &read_tf_file(&bytes).unwrap().parts[0];
    assert_eq!(part.format, PayloadFormat::RdhPages);
    assert!(part.payload == pages);
}

#[test]
fn whole_stfs_of_sheaf_go_back_to_their_flps() {
    let folder = tempfile::tempdir().unwrap();
    let raw = hbf(1, 2);
    let parts: [(FlpId, PayloadFormat, &[u8]); 2] = [
        (FlpId(0), PayloadFormat::RdhPages, &raw),
        (FlpId(4), PayloadFormat::Opaque, b"opaque"),
    ];
    let image = TfImage::new(TfName::new(RunId(7), TfId(0), 1), &parts);
    let bytes: Vec<u8> = image
        .slices(&[&raw, b"opaque"])
        .flatten()
        .copied()
        .collect();
    std::fs::write(folder.path().join("in.tf"), bytes).unwrap();
    convert(folder.path(), "--to tf @in.tf @tfs").unwrap();
    let bytes = std::fs::read(folder.path().join("tfs/tf-000000000000.tf")).unwrap();
    let tf = read_tf_file(&bytes).unwrap();
    let found: Vec<_> = tf
        .parts
        .iter()
        .map(|part| (part.source.flp, part.format))
        .collect();
    assert_eq!(
        found,
        [(FlpId(0), O2Blocks), (FlpId(4), PayloadFormat::Opaque)]
    );
    assert_eq!(tf.parts[1].payload, b"opaque");
}

#[test]
fn what_is_larger_than_memory_or_never_ends_is_refused() {
    let expected = "expected at most 1000";
    let large = tempfile::NamedTempFile::new().unwrap();
    large.as_file().set_len(3 << 40).unwrap();
    for path in [large.path(), Path::new("/dev/zero")] {
        let error = read_up_to(path, 1000).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    large.as_file().set_len(1000).unwrap();
    assert_eq!(read_up_to(large.path(), 1000).unwrap().len(), 1000);
}

#[test]
fn what_is_of_no_known_format_is_refused_by_its_first_bytes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "nothing that is known").unwrap();
    let error = convert(folder.path(), "--to raw @notes.txt @out").unwrap_err();
    assert!(
        error.contains("no known format: the file starts with [6e, 6f,"),
        "{error}"
    );
}
