//! The inputs that the corpus begins with: messages of every kind, the heads of real files, short histories.
//!
//! `cargo run -p sheaf-fuzz --example seeds` writes them; a test holds the corpus against them.

mod http;
mod memory;
mod monitoring;
mod zeromq;

use crate::tables;
use bytes::Bytes;
use sheaf_formats::sample::o2_tf;
use sheaf_formats::stf_file::{TfImage, TfName};
use sheaf_node::sink::{SinkHandle, TfFiles};
use sheaf_node::source::RecordHeader;
use sheaf_protocol::{
    Attempt, Control, DataHello, EpnId, FlpId, Incarnation, PayloadFormat, Prefix, Record, RunId,
    Source, Stf, StfHeader, Target, Term, TfId, WireKind, crc32c,
};
use sheaf_protocol::{Part, Tf};
use sheaf_verdict_log::entry::Entry;
use sheaf_verdict_log::majority::Message;
use std::path::{Path, PathBuf};

/// Bytes of a seed at most: longer inputs only slow the engines down.
const BYTES_MAX: usize = 4096;

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The target that it is for.
    pub target: &'static str,
    /// File name in the folder of the target.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// The folder of this crate in the present checkout.
#[must_use]
pub fn folder() -> PathBuf {
    // Asked when it runs: a build folder may be shared between checkouts.
    let ours = std::env::var_os("CARGO_MANIFEST_DIR");
    ours.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// All seeds.
///
/// # Errors
///
/// If a file of `testdata/` or `config/` cannot be read.
pub fn all() -> std::io::Result<Vec<Seed>> {
    let mut seeds = wire();
    seeds.extend(histories());
    seeds.extend(ledger());
    seeds.extend(disk()?);
    seeds.extend(http::all());
    seeds.extend(memory::all());
    seeds.extend(zeromq::all());
    seeds.extend(monitoring::all());
    seeds.extend(files(&folder().join("../.."))?);
    Ok(seeds)
}

fn seed(target: &'static str, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Seed {
    Seed {
        target,
        name: name.into(),
        bytes: bytes.into(),
    }
}

/// Messages between ICNs, a member that is elected and one that follows, and directories that were tampered with.
fn ledger() -> Vec<Seed> {
    let term = Term(7);
    let mut entries = Entry::of(Term(6), 4, &[Record::Over]);
    entries.push(Entry::no_op(term, 5));
    let messages = [
        (
            "ask-vote",
            Message::AskVote {
                term,
                is_pre_vote: true,
                last_index: 3,
                last_term: Term(2),
            },
        ),
        (
            "vote",
            Message::Vote {
                term,
                asked: Term(8),
                is_pre_vote: false,
                is_granted: true,
            },
        ),
        (
            "install",
            Message::Install {
                term,
                round: 9,
                base_index: 40,
                base_term: Term(6),
            },
        ),
        (
            "checkpoint",
            Message::Append {
                term,
                round: 9,
                previous_index: 3,
                previous_term: Term(2),
                commit: 1,
                entries: Entry::of(Term(6), 4, &Record::samples()),
            },
        ),
        (
            "append",
            Message::Append {
                term,
                round: 9,
                previous_index: 3,
                previous_term: Term(2),
                commit: 1,
                entries,
            },
        ),
        (
            "appended",
            Message::Appended {
                term,
                round: 9,
                outcome: Ok(5),
            },
        ),
        ("campaign", Message::Campaign { term }),
        ("ask-state", Message::AskState { term, nonce: 5 }),
        (
            "state",
            Message::State {
                term,
                nonce: 1,
                last_index: 2,
                is_leader: true,
            },
        ),
    ];
    let encoded = |(name, message): (&str, Message)| seed("ledger_message", name, message.encode());
    let mut seeds: Vec<Seed> = messages.into_iter().map(encoded).collect();
    // Streams stand, others are blank, time passes, one says yes twice; or one leads and sends entries.
    let joins = [
        0, 0, 1, 0, 0, 2, 3, 0, 15, 1, 0, 7, 0, 0, 0, 0, 15, 2, 0, 7, 0, 0, 0, 0, 3, 9, 5, 200,
    ];
    let votes = [6, 1, 0, 1, 1, 1, 0, 3, 5, 6, 1, 1, 1, 1, 0, 0, 3, 9];
    let follows = [
        6, 1, 1, 2, 0, 0, 2, 1, 1, 5, 0, 4, 3, 6, 1, 1, 2, 2, 1, 1, 1, 6, 2,
    ];
    seeds.push(seed(
        "majority",
        "joins-and-is-elected",
        [&joins[..], &votes].concat(),
    ));
    seeds.push(seed(
        "majority",
        "joins-and-follows",
        [&joins[..], &follows].concat(),
    ));
    let tampered: [(&str, &[u8]); 4] = [
        ("untouched", &[]),
        ("flipped", &[12, 0, 40]),
        ("torn-without-mark", &[0, 2, 1, 0, 200]),
        ("without-state", &[0, 1]),
    ];
    seeds.extend(tampered.map(|(name, bytes)| seed("ledger_files", name, bytes)));
    seeds
}

/// Encoded messages and headers, bare and in their frames.
fn wire() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let framed = |kind, name: &str, head: &[u8], body_bytes| {
        let prefix = Prefix::new(kind, head, body_bytes).encode();
        seed("frame", name, [&prefix[..], head].concat())
    };
    let mut former = "";
    let mut number = 1;
    let messages = Control::samples();
    for control in &messages {
        number = if control.name() == former {
            number + 1
        } else {
            1
        };
        former = control.name();
        let name = if number == 1 {
            former.to_owned()
        } else {
            format!("{former}-{number}")
        };
        let head = control.encode(&tables::envelope());
        seeds.push(framed(WireKind::Control, &name, &head, 0));
        seeds.push(seed("control", name, head));
    }
    let stf = Stf::new(
        TfId(7),
        PayloadFormat::RdhPages,
        Bytes::from_static(b"payload"),
    );
    let head = StfHeader::of(&stf, RunId(9), source(), Attempt(2)).encode();
    seeds.push(framed(WireKind::Stf, "stf", &head, stf.bytes()));
    seeds.push(seed("stf_header", "stf", head));
    let hello = DataHello {
        run: RunId(9),
        source: source(),
        target: target(),
        nonce: 5,
    }
    .encode();
    seeds.push(framed(WireKind::DataHello, "data-hello", &hello, 0));
    let hello_prefix = Prefix::new(WireKind::DataHello, &hello, 0).encode();
    let stf_prefix = Prefix::new(WireKind::Stf, &head, stf.bytes()).encode();
    let streamed = [
        &[7][..],
        &hello_prefix,
        &hello,
        &stf_prefix,
        &head,
        &stf.payload,
    ]
    .concat();
    seeds.push(seed("stream", "hello-and-stf", streamed));
    seeds.push(seed("data_hello", "data-hello", hello));
    seeds
}

fn source() -> Source {
    Source {
        flp: FlpId(3),
        incarnation: Incarnation(4),
    }
}

fn target() -> Target {
    Target {
        epn: EpnId(2),
        incarnation: Incarnation(3),
    }
}

/// A record of a feed and a TF as the `file` sink writes it.
fn disk() -> std::io::Result<Vec<Seed>> {
    let format = PayloadFormat::RdhPages;
    let record = RecordHeader {
        format,
        tf: TfId(7),
        payload_bytes: 7,
    }
    .encode();
    let part = |flp, payload: &'static [u8]| Part {
        source: Source {
            flp: FlpId(flp),
            incarnation: Incarnation(4),
        },
        format,
        digest: crc32c(payload),
        bytes: payload.len() as u64,
        payload: Bytes::from_static(payload),
    };
    let parts = vec![part(0, b"payload"), part(2, b""), part(3, b"another")];
    let (run, tf, missing) = (RunId(9), TfId(7), vec![FlpId(1)]);
    let tf = Tf {
        run,
        tf,
        attempt: Attempt(2),
        is_redelivered: false,
        parts,
        missing,
    };
    let folder = std::env::temp_dir().join(format!("sheaf-seeds-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let written = write_tf(&folder, tf);
    std::fs::remove_dir_all(&folder)?;
    Ok(vec![
        seed("feed_record", "record", record),
        seed("tf_file", "three-parts", written?),
    ])
}

/// The bytes of `tf` as the sink writes them into `folder`.
fn write_tf(folder: &Path, tf: Tf<Bytes>) -> std::io::Result<Vec<u8>> {
    let path = folder.join(format!("run-{}/tf-{:012}.tf", tf.run, tf.tf.0));
    let sink = TfFiles::open(folder.to_owned(), EpnId(0), false).map_err(std::io::Error::other)?;
    // The queue is empty, so the TF is taken; whether it was written, the file tells.
    let _ = SinkHandle::inline(Box::new(sink), 1).offer(tf);
    std::fs::read(path)
}

/// Short histories for the targets that read operations: codes as in their `step`.
fn histories() -> Vec<Seed> {
    let builder: [(&str, &[u8]); 2] = [
        // Join, roster of one, assign TF 5, its STF, commit, the consumer takes it and releases it.
        (
            "one-tf",
            &[
                0, 2, 8, 1, 1, 0, 0, 9, 1, 5, 1, 1, 1, 0, 0, 5, 0, 0, 1, 10, 0, 0, 11, 1, 5, 0, 14,
                15,
            ],
        ),
        // The STF comes first, its stream opens and closes, its source is gone, time passes.
        (
            "source-gone",
            &[
                0, 2, 1, 0, 0, 5, 1, 0, 1, 9, 0, 0, 5, 1, 0, 6, 0, 7, 1, 0, 13, 30,
            ],
        ),
    ];
    let scheduler: [(&str, &[u8]); 2] = [
        // Data-driven: FLP 0 and EPN 0 join, TF 5 is announced, built, acknowledged.
        (
            "one-tf",
            &[
                0, 0, 2, 1, 0, 1, 1, 0, 0, 50, 1, 0, 200, 4, 0, 14, 2, 0, 0, 0, 1, 5, 9, 9, 0, 0,
                0, 1, 5, 0, 0, 9, 0, 0, 9, 0, 0, 3, 1, 5, 0,
            ],
        ),
        // Paced: both join, time passes, an EPN dies, the run is stopped.
        (
            "paced",
            &[
                1, 1, 0, 1, 0, 1, 1, 0, 0, 50, 1, 0, 200, 4, 0, 14, 60, 14, 60, 3, 0, 0, 3, 14, 60,
                13, 15, 14, 63,
            ],
        ),
    ];
    let named = |target| move |(name, ops): (&str, &[u8])| seed(target, name, ops);
    builder
        .into_iter()
        .map(named("builder"))
        .chain(scheduler.into_iter().map(named("scheduler")))
        .collect()
}

/// The heads of real files, as the targets that read such files want them.
fn files(root: &Path) -> std::io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    let folders: [(&'static str, u8, &str, &str); 5] = [
        ("rdh", 1, "testdata/alice-its-rdh7", ""),
        ("km3net", 2, "testdata/km3net-daq", ""),
        ("xtc2", 3, "testdata/lcls-xtc2", ""),
        ("xtc2", 3, "testdata/lcls-xtc2/intg_det", "intg-"),
        ("xtc2", 3, "testdata/lcls-xtc2/mixed_rate", "mixed-"),
    ];
    for (target, format, folder, prefix) in folders {
        for (stem, mut bytes) in read_folder(&root.join(folder))? {
            let name = format!("{prefix}{stem}");
            bytes.truncate(BYTES_MAX - 8);
            seeds.push(seed(
                "check_stf",
                name.clone(),
                [&[format], &bytes[..]].concat(),
            ));
            let how = [2, 0, 0, 0, 0, 0, 0, 1];
            match target {
                "rdh" => seeds.push(seed("cut", name.clone(), [&how, &bytes[..]].concat())),
                _ => seeds.push(seed(
                    target,
                    format!("{name}-cut"),
                    [&how, &bytes[..]].concat(),
                )),
            }
            seeds.push(seed(target, name, bytes));
        }
    }
    seeds.extend(stf_files(&std::fs::read(
        root.join("testdata/alice-its-rdh7/10_rdh.raw"),
    )?));
    let example = std::fs::read(root.join("config/example.toml"))?;
    seeds.extend(tables(&String::from_utf8_lossy(&example)));
    Ok(seeds)
}

/// TF files of DataDistribution: two TFs of `pages` and of other parts, and one that is cut.
fn stf_files(pages: &[u8]) -> Vec<Seed> {
    let tf = |counter| {
        let name = TfName {
            run: 9,
            counter,
            write_time_ms: 1_700_000_000_000,
        };
        let parts = [
            (FlpId(0), PayloadFormat::RdhPages, pages),
            (FlpId(1), PayloadFormat::RdhPages, &pages[..pages.len() - 1]),
            (FlpId(2), PayloadFormat::Opaque, b"payload"),
        ];
        let image = TfImage::new(name, &parts);
        let payloads = parts.map(|(_, _, payload)| payload);
        let bytes: Vec<u8> = image.slices(&payloads).flatten().copied().collect();
        bytes
    };
    let cut = tf(1);
    let one = TfImage::new(
        TfName {
            run: 9,
            counter: 2,
            write_time_ms: 0,
        },
        &[],
    );
    vec![
        seed("stf_file", "cut", &cut[..cut.len() / 2]),
        seed("stf_file", "empty", one.heads),
        seed("stf_file", "three-parts", cut.clone()),
        seed(
            "stf_file",
            "all-headers",
            [o2_tf(1, 9, 1), o2_tf(2, 9, 2)].concat(),
        ),
        seed("check_stf", "o2-blocks", [&[4], &cut[..]].concat()),
    ]
}

/// A farm file by its tables, each a file of its own and short of comments: the whole is too long a seed.
fn tables(text: &str) -> Vec<Seed> {
    let bare: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "))
        .collect();
    let mut seeds = vec![seed("farm_file", "whole", bare.join("\n") + "\n")];
    for table in bare.chunk_by(|_, next| !next.starts_with('[')) {
        let name = table[0].trim_matches(['[', ']']).replace('.', "-");
        seeds.push(seed("farm_file", name, table.join("\n") + "\n"));
    }
    seeds
}

/// Names without ending and bytes of the files in a folder, by name.
fn read_folder(folder: &Path) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let path = entry.path();
            let stem = path.file_stem().unwrap_or_default();
            files.push((
                stem.to_string_lossy().replace('.', "-"),
                std::fs::read(&path)?,
            ));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::DecodeError;
    use std::collections::BTreeSet;

    /// The code of a message stands behind its envelope.
    const KIND_AT: usize = 36;

    #[test]
    fn every_kind_of_message_has_a_seed() {
        let codes = Control::samples().into_iter().map(|control| {
            let head = control.encode(&tables::envelope());
            u16::from_le_bytes([head[KIND_AT], head[KIND_AT + 1]])
        });
        let codes: BTreeSet<u16> = codes.collect();
        let mut head = Control::Stop.encode(&tables::envelope());
        let known = (0..=u16::MAX).filter(|code| {
            head[KIND_AT..].copy_from_slice(&code.to_le_bytes());
            let unknown = matches!(
                Control::decode(&head),
                Err(DecodeError::Invalid {
                    what: "kind of control message",
                    ..
                })
            );
            !unknown
        });
        assert_eq!(known.collect::<BTreeSet<u16>>(), codes);
    }

    #[test]
    fn names_are_distinct_and_seeds_short() {
        let seeds = all().expect("the data of the repository can be read");
        let names: BTreeSet<(&str, &str)> = seeds
            .iter()
            .map(|seed| (seed.target, seed.name.as_str()))
            .collect();
        assert_eq!(names.len(), seeds.len());
        assert!(seeds.iter().all(|seed| seed.bytes.len() <= BYTES_MAX));
    }
}
