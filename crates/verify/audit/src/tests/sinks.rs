//! Tests of the files of sinks as evidence: what was delivered stands in them once, and nothing else does.

use super::super::*;
use super::part;
use super::run::*;
use sheaf_protocol::NodeId;
use sheaf_verdict_log::event::{Event, FileEvent, StreamEvent};
use std::collections::BTreeMap;

type Files = BTreeMap<String, Stored>;
type Spoil = fn(&mut Files);

/// Returns the files that the EPNs of [`Run::good`] write.
fn files() -> Files {
    let tf = |(id, flps, missing): (u64, &[u16], &[u16])| {
        let stored = Stored::Tf {
            tf: id,
            run: RUN.to_string(),
            redelivered: false,
            parts: flps.iter().map(|flp| part(*flp)).collect(),
            missing: missing.to_vec(),
            streams: Vec::new(),
        };
        (format!("tf-{id}.tf"), stored)
    };
    let both: &[u16] = &[0, 1];
    let tfs: [(u64, &[u16], &[u16]); 5] = [
        (0, both, &[]),
        (1, both, &[]),
        (2, both, &[]),
        (3, &[0], &[1]),
        (6, &[0], &[]),
    ];
    tfs.into_iter().map(tf).collect()
}

fn check(run: &Run, files: Files, expected: &[(Kind, &str)]) {
    let mut evidence = run.evidence(true);
    evidence.begin_sinks();
    for (place, stored) in files {
        evidence.add_stored(place, stored);
    }
    let found = audit(&mut evidence, &Options::default()).contradictions;
    let kinds: Vec<Kind> = found.iter().map(|found| found.kind).collect();
    let expected_kinds: Vec<Kind> = expected.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, expected_kinds, "{found:#?}");
    for (found, (_, text)) in found.iter().zip(expected) {
        assert!(found.text.contains(text), "{text:?} is not in {found:?}");
    }
}

fn parts_of(stored: &mut Stored) -> &mut Vec<sheaf_verdict_log::event::PartEvent> {
    let Stored::Tf { parts, .. } = stored else {
        panic!("a TF file")
    };
    parts
}

#[test]
fn each_damage_of_a_tf_file_is_found() {
    let run = Run::good();
    check(&run, files(), &[]);
    let missing = (
        Kind::SinkMissing,
        "TF 2, which epn:0 (incarnation 200) delivered, stands in no file",
    );
    let spoils: &[(Spoil, &[(Kind, &str)])] = &[
        (|files| drop(files.remove("tf-2.tf")), &[missing]),
        (
            |files| {
                let damage = "TF file is cut: 10 of at least 48 bytes".to_owned();
                files.insert("tf-2.tf".to_owned(), Stored::DamagedTf { tf: 2, damage });
            },
            &[(Kind::SinkDamaged, "tf-2.tf: TF file is cut")],
        ),
        (
            |files| parts_of(files.get_mut("tf-2.tf").unwrap())[1].digest ^= 1,
            &[(
                Kind::SinkDamaged,
                "tf-2.tf: the part of flp:1 (incarnation 101) has 11 bytes with CRC-32C 00000009, which is not what \
                 was delivered",
            )],
        ),
        (
            |files| {
                parts_of(files.get_mut("tf-2.tf").unwrap()).pop();
            },
            &[(
                Kind::SinkDamaged,
                "tf-2.tf: has 1 parts, expected the 2 that were delivered",
            )],
        ),
        (
            |files| {
                let again = files["tf-2.tf"].clone();
                files.insert("tf-2-again.tf".to_owned(), again);
            },
            &[(
                Kind::SinkTwice,
                "TF 2 stands in 2 files: tf-2-again.tf, tf-2.tf",
            )],
        ),
        (
            |files| {
                let Some(Stored::Tf { run, .. }) = files.get_mut("tf-2.tf") else {
                    panic!("a TF file")
                };
                *run = "bb".to_owned();
            },
            &[(
                Kind::SinkForeign,
                "tf-2.tf is of run bb, expected 00000000000000aa",
            )],
        ),
        (
            |files| {
                let mut other = files["tf-2.tf"].clone();
                let Stored::Tf { tf, .. } = &mut other else {
                    panic!("a TF file")
                };
                *tf = 4;
                files.insert("tf-4.tf".to_owned(), other);
            },
            &[(
                Kind::SinkForeign,
                "tf-4.tf has TF 4, which no EPN delivered",
            )],
        ),
    ];
    for (spoil, expected) in spoils {
        let mut files = files();
        spoil(&mut files);
        check(&run, files, expected);
    }
}

#[test]
fn a_killed_epn_may_have_written_what_it_did_not_report() {
    let run = Run::good();
    let mut files = files();
    let tf5 = |digest: u32| {
        let mut parts = vec![part(0), part(1)];
        parts[0].digest ^= digest;
        let (run, missing) = (RUN.to_string(), Vec::new());
        Stored::Tf {
            tf: 5,
            run,
            redelivered: false,
            parts,
            missing,
            streams: Vec::new(),
        }
    };
    files.insert("tf-5.tf".to_owned(), tf5(0));
    check(&run, files.clone(), &[]);
    files.insert("tf-5.tf".to_owned(), tf5(1));
    let expected =
        "tf-5.tf: the part of flp:0 has 10 bytes with CRC-32C 00000000, which is not what it made";
    check(&run, files, &[(Kind::SinkDamaged, expected)]);
}

#[test]
fn some_stfs_of_a_tf_are_compared_alone() {
    let run = Run::good();
    let partial = |tf: u64, parts: Vec<sheaf_verdict_log::event::PartEvent>| Stored::Partial {
        tf,
        run: RUN.to_string(),
        parts,
        streams: Vec::new(),
    };
    let mut files = files();
    files.insert("tf-0.tf".to_owned(), partial(0, vec![part(1)]));
    files.insert("tf-1.tf".to_owned(), partial(1, Vec::new()));
    check(&run, files.clone(), &[]);
    let mut changed = part(1);
    changed.digest ^= 1;
    files.insert("tf-0.tf".to_owned(), partial(0, vec![changed]));
    files.insert("tf-99.tf".to_owned(), partial(99, Vec::new()));
    let damaged = "tf-0.tf: the part of flp:1";
    let foreign = "tf-99.tf has TF 99, which no EPN delivered";
    let expected = [(Kind::SinkDamaged, damaged), (Kind::SinkForeign, foreign)];
    check(&run, files.clone(), &expected);
    files.remove("tf-1.tf");
    let missing = "TF 1, which";
    let expected = [expected[0], expected[1], (Kind::SinkMissing, missing)];
    check(&run, files, &expected);
}

#[test]
fn tfs_in_files_of_datadistribution_are_known_by_their_digest() {
    let mut run = Run::good();
    let mut files = Files::new();
    let mut digest = 0;
    for node in [EPN0, EPN1] {
        let node: NodeId = node;
        for line in run.log(node) {
            if let Event::Delivered { tf, file, .. } = line {
                digest += 1;
                let image = FileEvent { bytes: 100, digest };
                *file = Some(image);
                files.insert(format!("byte {tf}"), Stored::Image(image));
            }
        }
    }
    check(&run, files.clone(), &[]);
    // One TF of the killed EPN is not in its log, and none of the files need be that one.
    let odd = |digest| {
        let bytes = 100;
        Stored::Image(FileEvent { bytes, digest })
    };
    files.insert("byte 5".to_owned(), odd(77));
    check(&run, files.clone(), &[]);
    files.insert("byte 2".to_owned(), odd(78));
    let missing = "TF 2, which epn:0 (incarnation 200) delivered, stands in no file";
    let foreign =
        "byte 2: a TF of 100 bytes with CRC-32C 0000004e, which no EPN wrote: damaged or foreign";
    check(
        &run,
        files.clone(),
        &[(Kind::SinkForeign, foreign), (Kind::SinkMissing, missing)],
    );
    files.insert("byte 2".to_owned(), files["byte 0"].clone());
    let twice = "with CRC-32C 00000001, delivered 1 times, stands in 2 places: byte 0, byte 2";
    check(
        &run,
        files,
        &[(Kind::SinkTwice, twice), (Kind::SinkMissing, missing)],
    );
}

/// Fate in a stream: `shed` with a reason, or written.
fn fate(stream: &str, shed: Option<&str>) -> StreamEvent {
    StreamEvent {
        stream: stream.to_owned(),
        shed: shed.map(str::to_owned),
        refused: None,
    }
}

/// Returns the good run, in which EPNs write the streams `main` and `calib` and shed `calib` of TF 2, and its files.
fn run_of_streams() -> (Run, Files) {
    let mut run = Run::good();
    for node in [EPN0, EPN1] {
        for line in run.log(node) {
            if let Event::Delivered { tf, streams, .. } = line {
                let shed = (*tf == 2).then_some("queue");
                *streams = vec![fate("main", None), fate("calib", shed)];
            }
        }
    }
    let mut files = files();
    for (name, stored) in &mut files {
        let Stored::Tf { streams, .. } = stored else {
            panic!("a TF file")
        };
        streams.push("main".to_owned());
        if name != "tf-2.tf" {
            streams.push("calib".to_owned());
        }
    }
    (run, files)
}

fn streams_of<'a>(files: &'a mut Files, name: &str) -> &'a mut Vec<String> {
    match files.get_mut(name) {
        Some(Stored::Tf { streams, .. }) => streams,
        other => panic!("expected a TF file, found {other:?}"),
    }
}

#[test]
fn a_tf_is_in_no_file_of_a_stream_for_a_logged_reason_alone() {
    let (run, files) = run_of_streams();
    check(&run, files.clone(), &[]);
    // A TF with fewer parts, as the stream that was shed had the others.
    let mut fewer = files.clone();
    parts_of(fewer.get_mut("tf-2.tf").expect("a file")).pop();
    check(&run, fewer, &[]);
    let mut lost = files.clone();
    streams_of(&mut lost, "tf-0.tf").pop();
    let text = "TF 0, which epn:0 (incarnation 200) delivered, stands in no file of stream calib";
    check(&run, lost, &[(Kind::SinkMissing, text)]);
    let mut unsaid = files.clone();
    streams_of(&mut unsaid, "tf-2.tf").push("calib".to_owned());
    let text = "tf-2.tf: stream calib has TF 2, which epn:0 (incarnation 200) did not write there";
    check(&run, unsaid, &[(Kind::SinkForeign, text)]);
    let mut gone = files;
    gone.remove("tf-2.tf");
    let text = "TF 2, which epn:0 (incarnation 200) delivered, stands in no file of stream main";
    check(&run, gone, &[(Kind::SinkMissing, text)]);
}

#[test]
fn no_tf_is_looked_for_in_files_that_do_not_tell_theirs() {
    let (run, mut files) = run_of_streams();
    for name in ["tf-0.tf", "tf-1.tf", "tf-3.tf", "tf-6.tf"] {
        streams_of(&mut files, name).pop();
    }
    let partial = Stored::Partial {
        tf: 0,
        run: RUN.to_string(),
        parts: vec![part(1)],
        streams: vec!["main".to_owned()],
    };
    files.insert("tf-0.tf".to_owned(), partial);
    let found = |files: &Files| {
        let mut evidence = run.evidence(true);
        evidence.begin_sinks();
        evidence.add_untold_stream("calib");
        for (place, stored) in files {
            evidence.add_stored(place.clone(), stored.clone());
        }
        audit(&mut evidence, &Options::default()).contradictions
    };
    assert!(found(&files).is_empty(), "{:#?}", found(&files));
    // In the others one is.
    files.remove("tf-0.tf");
    let found = found(&files);
    let text = "TF 0, which epn:0 (incarnation 200) delivered, stands in no file of stream main";
    assert!(
        found.len() == 1 && found[0].text.contains(text),
        "{found:#?}"
    );
}

#[test]
fn a_tf_that_all_streams_shed_is_in_no_file() {
    let (mut run, mut files) = run_of_streams();
    for line in run.log(EPN0) {
        if let Event::Delivered { tf: 2, streams, .. } = line {
            *streams = vec![fate("main", Some("space")), fate("calib", Some("disk"))];
        }
    }
    files.remove("tf-2.tf");
    check(&run, files, &[]);
    let found = audit(&mut run.evidence(true), &Options::default());
    let main = &found.streams["main"];
    assert_eq!(main.announced, main.written + 1);
    assert_eq!(main.shed, [("space".to_owned(), 1)].into());
    assert_eq!(found.streams["calib"].shed, [("disk".to_owned(), 1)].into());
}

#[test]
fn streams_are_shed_for_reasons_of_the_list() {
    let (mut run, files) = run_of_streams();
    for line in run.log(EPN0) {
        if let Event::Delivered { tf: 2, streams, .. } = line {
            streams[1].shed = Some("mood".to_owned());
        }
    }
    let text = "was shed from stream calib for Some(\"mood\")";
    check(&run, files, &[(Kind::BadReason, text)]);
}
