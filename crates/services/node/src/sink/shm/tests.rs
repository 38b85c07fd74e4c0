use super::super::tests::{Wakes, memory, opening, tf, wakes};
use super::super::{Delivery, SinkConfig, SinkHandle, open, recomputed};
use super::*;
use crate::consume::{Consumer as Borrower, Next, faults};
use crate::sink::StreamsSink;
use crate::sink::streams::Selection;
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_metrics::Registry;
use sheaf_protocol::{RunId, TfId};
use std::path::Path;

const PATIENCE: Duration = Duration::from_secs(30);

struct Test {
    sink: SinkHandle,
    wakes: Wakes,
    memory: Memory,
    registry: Arc<Registry>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn test(queue_tfs: u32, config: &ShmSink) -> Test {
    test_at(Ack::Built, queue_tfs, config)
}

fn test_at(ack: Ack, queue_tfs: u32, config: &ShmSink) -> Test {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let path_of_config = path.clone();
    let config = SinkConfig::Shm(ShmSink {
        path: path_of_config,
        ..config.clone()
    });
    let (memory, registry) = (memory(), Arc::<Registry>::default());
    let (wake, wakes) = wakes();
    let opening = Opening {
        ack,
        ..opening(queue_tfs, memory.clone(), registry.clone(), wake)
    };
    let sink = open(&config, opening).unwrap();
    Test {
        sink,
        wakes,
        memory,
        registry,
        path,
        _folder: folder,
    }
}

/// TFs stay where they were offered, however slow the machine is.
fn patient() -> ShmSink {
    ShmSink {
        reclaim_ms: 3_600_000,
        ..ShmSink::default()
    }
}

impl Test {
    /// A TF whose payload lies in the memory of the EPN.
    fn tf(&self, id: u64, payload: &[u8]) -> Tf<Bytes> {
        let mut tf = tf(id, &[payload, b""]);
        let mut block = self.memory.arena.allocate(payload.len()).unwrap();
        block.as_mut().copy_from_slice(payload);
        tf.parts[0].payload = block.freeze();
        tf
    }

    fn offer(&mut self, ids: std::ops::Range<u64>) {
        for id in ids {
            let tf = self.tf(id, &id.to_le_bytes());
            self.sink.offer(tf).unwrap();
        }
    }

    fn consumer(&self) -> Borrower {
        Borrower::connect(&self.path, PATIENCE).unwrap()
    }

    fn expect_taken(&mut self, id: u64) {
        match self.wakes.next(&mut self.sink) {
            SinkEvent::Delivered { tf, .. } => assert_eq!(tf, TfId(id)),
            other => panic!("TF {id} was taken, not {other:?}"),
        }
    }

    fn expect_freed(&mut self) {
        let event = self.wakes.next(&mut self.sink);
        assert!(
            matches!(event, SinkEvent::Freed { bytes: 8, .. }),
            "{event:?}"
        );
    }

    fn count(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.registry.encode(&mut text);
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().parse().unwrap()
    }
}

fn next(consumer: &mut Borrower) -> Tf<Bytes> {
    match consumer.next(Some(PATIENCE)).unwrap() {
        Next::Tf(tf) => tf.into_tf(),
        other => panic!("no TF: {other:?}"),
    }
}

#[test]
fn a_tf_is_delivered_when_it_is_taken_and_freed_when_it_is_dropped() {
    let mut test = test(8, &patient());
    let offered = test.tf(7, b"payload!");
    test.sink.offer(offered.clone()).unwrap();
    assert_eq!(test.sink.poll(), None);
    let mut consumer = test.consumer();
    let taken = next(&mut consumer);
    assert_eq!(taken, offered);
    assert_ne!(
        taken.parts[0].payload.as_ptr(),
        offered.parts[0].payload.as_ptr()
    );
    assert!(faults(&taken).is_empty());
    let delivery = Delivery {
        is_held: true,
        ..recomputed(&offered)
    };
    assert_eq!(
        test.wakes.next(&mut test.sink),
        SinkEvent::delivered(&offered, delivery)
    );
    assert_eq!(test.sink.poll(), None, "the consumer still looks at it");
    drop(taken);
    test.expect_freed();
    assert_eq!(
        (
            test.count("node_shm_taken_total"),
            test.count("node_shm_copied_bytes_total")
        ),
        (1, 0)
    );
    test.sink.finish();
    assert!(matches!(consumer.next(Some(PATIENCE)).unwrap(), Next::End));
    assert!(!test.path.exists());
}

#[test]
fn without_a_consumer_tfs_wait_and_it_is_told() {
    let mut test = test(2, &patient());
    test.offer(0..2);
    let third = test.tf(2, b"x");
    assert!(test.sink.offer(third).is_err(), "two may wait");
    let error = format!("no consumer is connected at {}", test.path.display());
    let failed = SinkEvent::Failed {
        tf: TfId(0),
        error,
        is_storage: false,
    };
    assert_eq!(test.wakes.next(&mut test.sink), failed);
    let mut consumer = test.consumer();
    assert_eq!(
        (next(&mut consumer).tf, next(&mut consumer).tf),
        (TfId(0), TfId(1))
    );
    let mut events: Vec<SinkEvent> = (0..5).map(|_| test.wakes.next(&mut test.sink)).collect();
    events.retain(|event| !matches!(event, SinkEvent::Failed { .. }));
    assert!(events.contains(&SinkEvent::Resumed));
}

#[test]
fn what_a_dead_consumer_has_not_taken_goes_to_the_next_in_order() {
    let mut test = test(8, &patient());
    let mut first = test.consumer();
    test.offer(0..4);
    let taken = next(&mut first);
    test.expect_taken(0);
    // It says that it leaves, and its socket closes. `sheaf data consume` is killed in the farm tests.
    drop(taken);
    drop(first);
    test.expect_freed();
    let mut second = test.consumer();
    for id in 1..4 {
        let tf = next(&mut second);
        assert_eq!(tf.tf, TfId(id));
        test.expect_taken(id);
        drop(tf);
        test.expect_freed();
    }
    assert_eq!(test.memory.arena.used_bytes(), 0);
}

#[test]
fn at_ack_level_processed_another_consumer_gets_what_a_dead_one_had() {
    let mut test = test_at(Ack::Processed, 1, &patient());
    let mut consumer = test.consumer();
    test.offer(7..8);
    let taken = next(&mut consumer);
    assert!(!taken.is_redelivered);
    test.expect_taken(7);
    consumer.die();
    let mut consumer = test.consumer();
    let again = next(&mut consumer);
    assert_eq!((again.tf, again.is_redelivered), (TfId(7), true));
    let event = test.wakes.next(&mut test.sink);
    assert!(
        matches!(event, SinkEvent::TakenAgain { tf: TfId(7), .. }),
        "{event:?}"
    );
    drop(again);
    test.expect_freed();
    // What a dead process holds is no return.
    drop(taken);
    // It is finished, and the next TF is new.
    test.offer(8..9);
    assert!(!next(&mut consumer).is_redelivered);
    test.expect_taken(8);
    test.expect_freed();
    assert_eq!(test.memory.arena.used_bytes(), 0);
}

#[test]
fn a_tf_with_which_three_consumers_have_died_goes_to_no_other() {
    let mut test = test_at(Ack::Processed, 2, &patient());
    test.offer(0..2);
    let mut had = Vec::new();
    for deaths in 0..3 {
        let mut consumer = test.consumer();
        let taken = next(&mut consumer);
        assert_eq!((taken.tf, taken.is_redelivered), (TfId(0), deaths > 0));
        if deaths == 0 {
            test.expect_taken(0);
        } else {
            let event = test.wakes.next(&mut test.sink);
            assert!(matches!(event, SinkEvent::TakenAgain { .. }), "{event:?}");
        }
        consumer.die();
        had.push(taken);
    }
    test.expect_freed();
    assert_eq!(next(&mut test.consumer()).tf, TfId(1));
}

#[test]
fn tfs_are_shared_out_by_bytes_and_nobody_has_more_than_allowed() {
    let config = ShmSink {
        consumer_bytes_max: 16,
        ..patient()
    };
    let mut test = test(64, &config);
    let mut both = [test.consumer(), test.consumer()];
    test.offer(0..1);
    // Both are known to the sink once it has given to one and heard from it.
    let mut had: Vec<Vec<Tf<Bytes>>> = vec![vec![], vec![]];
    let mut waiting = 0;
    test.offer(1..7);
    while had.iter().map(Vec::len).sum::<usize>() < 4 {
        for (consumer, had) in both.iter_mut().zip(&mut had) {
            if let Next::Tf(tf) = consumer.next(Some(Duration::from_millis(5))).unwrap() {
                had.push(tf.into_tf());
            }
        }
        waiting += 1;
        assert!(waiting < 6000, "{had:?}");
    }
    assert_eq!([had[0].len(), had[1].len()], [2, 2]);
    for consumer in &mut both {
        let nothing = consumer.next(Some(Duration::ZERO)).unwrap();
        assert!(matches!(nothing, Next::Nothing), "16 bytes are with each");
    }
    drop(had.remove(0));
    assert_eq!(
        (next(&mut both[0]).tf, next(&mut both[0]).tf),
        (TfId(4), TfId(5))
    );
}

#[test]
fn what_a_slow_consumer_leaves_lying_goes_to_another() {
    let config = ShmSink {
        reclaim_ms: 1,
        ..ShmSink::default()
    };
    let mut test = test(64, &config);
    let mut stuck = test.consumer();
    test.offer(0..1);
    let first = next(&mut stuck);
    test.expect_taken(0);
    test.offer(1..10); // With the stuck one, or not offered to any consumer yet.
    let mut quick = test.consumer();
    let mut had: Vec<u64> = (1..10).map(|_| next(&mut quick).tf.0).collect();
    had.sort_unstable();
    assert!(had.into_iter().eq(1..10));
    let nothing = stuck.next(Some(Duration::ZERO)).unwrap();
    assert!(matches!(nothing, Next::Nothing));
    drop(first);
}

#[test]
fn what_two_stopped_consumers_leave_lying_goes_from_one_to_the_other() {
    let config = ShmSink {
        reclaim_ms: 5,
        ..ShmSink::default()
    };
    let mut test = test(64, &config);
    let mut first = test.consumer();
    test.offer(0..1);
    let _kept = next(&mut first);
    test.expect_taken(0);
    let mut second = test.consumer();
    test.offer(1..2);
    // From the third time on one is still passed over when the other has left it lying for long enough.
    let began = Instant::now();
    while test.count("node_shm_called_back_total") < 6 {
        assert!(began.elapsed() < PATIENCE, "the memory is not reclaimed");
        std::thread::yield_now();
    }
    let taken = loop {
        let consumers = [&mut first, &mut second];
        let nexts =
            consumers.map(|consumer| consumer.next(Some(Duration::from_millis(1))).unwrap());
        let tf = nexts.into_iter().find_map(|next| match next {
            Next::Tf(tf) => Some(tf.tf),
            _ => None,
        });
        if let Some(tf) = tf {
            break tf;
        }
        assert!(began.elapsed() < PATIENCE, "the consumer has not got it");
    };
    assert_eq!(taken, TfId(1));
}

#[test]
fn what_is_offered_last_is_still_given_to_who_waits_for_it() {
    for _ in 0..10 {
        let mut test = test(8, &patient());
        let mut consumer = test.consumer();
        let thread = std::thread::spawn(move || {
            let mut had = 0;
            while let Next::Tf(_) = consumer.next(Some(PATIENCE)).unwrap() {
                had += 1;
            }
            had
        });
        test.offer(0..3);
        test.sink.finish();
        assert_eq!(thread.join().unwrap(), 3);
        for id in 0..3 {
            while let Some(event) = test.sink.poll() {
                if let SinkEvent::Delivered { run, tf, .. } = event {
                    assert_eq!((run, tf), (RunId(0xabc), TfId(id)));
                    break;
                }
            }
        }
        assert_eq!(test.memory.arena.used_bytes(), 0);
    }
}

#[test]
fn the_same_line_is_told_once_a_second_with_how_many_it_stands_for() {
    let (mut line, began) = (Seldom::default(), Instant::now());
    let mut at = |ms: u64| line.is_due(began + Duration::from_millis(ms));
    let told = [at(0), at(1), at(999), at(1000), at(2000)];
    assert_eq!(told, [Some(0), None, None, Some(2), Some(0)]);
}

#[test]
fn a_consumer_that_leaves_with_tfs_in_its_hands_gets_no_more() {
    let mut test = test(8, &patient());
    let mut consumer = test.consumer();
    test.offer(0..3);
    let kept = next(&mut consumer);
    test.expect_taken(0);
    drop(consumer);
    let mut other = test.consumer();
    assert_eq!(
        (next(&mut other).tf, next(&mut other).tf),
        (TfId(1), TfId(2))
    );
    assert_eq!(kept.parts[0].payload, 0_u64.to_le_bytes()[..]);
}

#[test]
fn one_consumer_too_many_is_turned_away() {
    let config = ShmSink {
        consumers_max: 1,
        ..patient()
    };
    let test = test(8, &config);
    let _one = test.consumer();
    let error = Borrower::connect(&test.path, PATIENCE)
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("connection reset"), "{error}");
    let taken = open_at(&test.path).err().unwrap().to_string();
    assert!(
        taken.starts_with("cannot listen for a consumer at"),
        "{taken}"
    );
}

#[test]
fn descriptors_of_all_consumers_are_asked_for() {
    let config = ShmSink {
        consumers_max: 40,
        ..patient()
    };
    assert_eq!(SinkConfig::Shm(config).table().descriptors_max(), 120);
    assert_eq!(SinkConfig::default().table().descriptors_max(), 0);
}

fn open_at(path: &Path) -> Result<SinkHandle, SinkError> {
    let path = path.to_owned();
    let config = SinkConfig::Shm(ShmSink { path, ..patient() });
    open(
        &config,
        opening(1, memory(), Arc::default(), Box::new(|| {})),
    )
}

#[test]
fn the_end_waits_for_nobody_for_long_and_leaves_looked_at_memory_alone() {
    let mut test = test(8, &patient());
    let mut consumer = test.consumer();
    test.offer(0..2);
    let kept = next(&mut consumer);
    test.expect_taken(0);
    test.sink.finish();
    assert_eq!(test.sink.poll(), None);
    assert_eq!(kept.parts[0].payload, 0_u64.to_le_bytes()[..]);
    assert_eq!(
        test.memory.arena.used_bytes(),
        64 << 10,
        "its block is not used again"
    );
    assert!(matches!(consumer.next(Some(PATIENCE)).unwrap(), Next::End));
}

/// A TF in a file: its id and its payloads.
type WrittenTf = (u64, Vec<Vec<u8>>);

/// TFs of each stream in the closed files of `folder`: their ids and payloads, by the name of the stream.
fn written(folder: &Path) -> std::collections::BTreeMap<String, Vec<WrittenTf>> {
    let mut streams = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "tf") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let stream = name.split('.').nth(2).unwrap().to_owned();
        let mut reader = io::BufReader::new(std::fs::File::open(&path).unwrap());
        let tfs: &mut Vec<_> = streams.entry(stream).or_default();
        while let NextTf::Whole(tf, _) = next_tf(&mut reader).unwrap() {
            let payloads = tf.parts.iter().map(|part| part.payload.to_vec());
            tfs.push((tf.tf.0, payloads.collect()));
        }
    }
    streams
}

#[test]
fn what_consumers_give_back_is_written_by_tag_and_as_product() {
    let files = tempfile::tempdir().unwrap();
    let stream = |name: &str, tags: &[&str], product| Selection {
        name: name.to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        product,
        ..Selection::default()
    };
    let config = ShmSink {
        write: Some(StreamsSink {
            directory: files.path().to_owned(),
            streams: vec![
                stream("muon", &["muon"], false),
                stream("made", &[], true),
                stream("debug", &[UNANSWERED], false),
            ],
            free_min_mib: 0,
            ..StreamsSink::default()
        }),
        ..patient()
    };
    let mut test = test(4, &config);
    test.offer(0..4);
    let mut consumer = test.consumer();
    let mut take = || match consumer.next(Some(PATIENCE)).unwrap() {
        Next::Tf(tf) => tf,
        other => panic!("no TF: {other:?}"),
    };
    let [first, second, third, kept] = [take(), take(), take(), take()];
    let refused = first.give_back("Muon").unwrap_err();
    assert!(refused.to_string().contains("found the tags \"Muon\""));
    second.give_back_with("muon", b"made of 1").unwrap();
    third.give_back("jet,muon").unwrap();
    let mut delivered = Vec::new();
    while delivered.len() < 3 {
        if let SinkEvent::Delivered { tf, parts, .. } = test.wakes.next(&mut test.sink) {
            assert_eq!(parts.len(), 2);
            delivered.push(tf.0);
        }
    }
    delivered.sort_unstable();
    assert_eq!(delivered, [0, 1, 2], "the consumer has TF 3");
    // The queue has room again: those that a consumer has taken do not wait.
    let (began, mut next) = (Instant::now(), Some(test.tf(4, b"payload!")));
    while let Some(tf) = next.take() {
        assert!(began.elapsed() < PATIENCE, "the queue stays full");
        next = test.sink.offer(tf).err();
        std::thread::yield_now();
    }
    test.sink.finish();
    let mut last = std::iter::from_fn(|| test.sink.poll());
    assert!(last.any(|event| matches!(event, SinkEvent::Delivered { tf: TfId(3), .. })));
    assert_eq!(kept.parts[0].payload, 3_u64.to_le_bytes()[..]);
    let whole = |id: u64| (id, vec![id.to_le_bytes().to_vec(), Vec::new()]);
    let expected = [
        ("debug".to_owned(), vec![whole(3)]),
        ("made".to_owned(), vec![(1, vec![b"made of 1".to_vec()])]),
        ("muon".to_owned(), vec![whole(1), whole(2)]),
    ];
    assert_eq!(written(&files.path().join("epn-4")), expected.into());
    let counts = ["node_shm_tagged_total", "node_shm_product_bytes_total"];
    assert_eq!(counts.map(|name| test.count(name)), [2, 9]);
}

#[test]
fn tags_without_files_are_refused_where_they_are_given() {
    let mut test = test(8, &patient());
    test.offer(0..1);
    let mut consumer = test.consumer();
    let Next::Tf(tf) = consumer.next(Some(PATIENCE)).unwrap() else {
        panic!("a TF was offered");
    };
    let refused = tf.give_back("muon").unwrap_err().to_string();
    assert!(refused.contains("[epn.sink.write]"), "{refused}");
    test.expect_taken(0);
    test.expect_freed();
}
