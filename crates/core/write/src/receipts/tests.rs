use super::*;
use sheaf_protocol::{Attempt, EpnId, Incarnation, RunId, TfId};

fn id(tf: u64) -> HandoffId {
    HandoffId {
        run: RunId(1),
        tf: TfId(tf),
        attempt: Attempt(1),
    }
}

fn epn(index: u16, life: u64) -> Target {
    Target {
        epn: EpnId(index),
        incarnation: Incarnation(life),
    }
}

fn record(copy: u32) -> Record {
    Record {
        copy: id(7).copy(copy),
        is_redelivered: false,
        is_held: false,
        is_committed: false,
        may_be_here: false,
        parts: 0,
        bytes: 0,
        missing: Vec::new(),
        elsewhere: Vec::new(),
    }
}

/// A record that names writers with an earlier copy.
fn moved(copy: u32, elsewhere: &[u16]) -> Record {
    Record {
        elsewhere: elsewhere.to_vec(),
        ..record(copy)
    }
}

fn held(copy: u32) -> Record {
    Record {
        is_held: true,
        ..record(copy)
    }
}

fn row(copy: u32, state: CopyState) -> CopyRow {
    CopyRow {
        copy,
        state,
        elsewhere: BTreeSet::new(),
        held: None,
    }
}

impl Receipts<u8> {
    fn empty() -> Self {
        Self::new([], 2)
    }

    /// Takes TF 7 on the stream `to`, of life 1 of EPN 0.
    fn take(&mut self, to: u8, record: &Record) -> Received {
        self.handle_record(to, epn(0, 1), record, Vec::new)
    }

    fn void(&mut self, to: u8, copy: u32) -> Vec<String> {
        self.handle_void(to, &id(7).copy(copy));
        self.orders()
    }

    fn written(&mut self) -> Vec<String> {
        self.handle_written(id(7), Vec::new());
        self.orders()
    }

    fn returned(&mut self) -> Vec<String> {
        self.handle_returned(id(7));
        self.orders()
    }

    fn publish(&mut self, to: u8, copy: u32) -> Vec<String> {
        self.handle_publish(to, &id(7).copy(copy));
        self.orders()
    }

    /// Orders, as `keep written 1 (0) held`: the row of copy 1, with another copy at writer 0, and held; `published 3`
    /// in place of `held`: the third that was published, from 0.
    fn orders(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.poll()).map(words).collect()
    }
}

fn words(action: ReceiptAction<u8>) -> String {
    match action {
        ReceiptAction::Keep { row: None, .. } => "remove".to_owned(),
        ReceiptAction::Keep { row: Some(row), .. } => {
            let mut words = format!("keep {} {}", row.state.name(), row.copy);
            if !row.elsewhere.is_empty() {
                let others: Vec<String> = row.elsewhere.iter().map(u16::to_string).collect();
                words += &format!(" ({})", others.join(" "));
            }
            match row.held.map(|held| held.published) {
                Some(None) => words += " held",
                Some(Some(number)) => words += &format!(" published {number}"),
                None => {}
            }
            words
        }
        ReceiptAction::Written { to, tf } => format!("{to} written {}", tf.copy.copy),
        ReceiptAction::Voided { to, copy } => format!("{to} voided {}", copy.copy),
        ReceiptAction::Published { to, copy } => format!("{to} published {}", copy.copy),
        ReceiptAction::Recall { .. } => "recall".to_owned(),
    }
}

#[test]
fn a_tf_that_comes_again_is_written_once_and_its_last_stream_is_answered() {
    let mut receipts = Receipts::empty();
    assert_eq!(receipts.take(1, &record(0)), Received::Write);
    assert_eq!(receipts.take(2, &record(0)), Received::Known);
    assert_eq!(receipts.writing(), 1);
    assert_eq!(receipts.written(), ["2 written 0"]);
    assert_eq!(receipts.take(3, &record(0)), Received::Known);
    assert_eq!(receipts.orders(), ["3 written 0"], "no row is needed");
    assert_eq!(receipts.writing(), 0);
}

#[test]
fn a_tf_that_may_be_in_the_files_is_looked_for_there() {
    let mut receipts = Receipts::empty();
    let again = Record {
        may_be_here: true,
        ..record(0)
    };
    assert_eq!(receipts.take(1, &again), Received::WriteMissing);
}

#[test]
fn a_copy_lower_than_the_one_that_counts_is_stale() {
    let mut receipts = Receipts::empty();
    receipts.take(1, &moved(2, &[0]));
    receipts.written();
    assert_eq!(receipts.take(1, &record(1)), Received::Stale);
    assert!(receipts.orders().is_empty());
    // One that was void before it came.
    let mut receipts = Receipts::empty();
    assert_eq!(receipts.void(2, 1), ["keep void 1", "2 voided 1"]);
    assert_eq!(receipts.take(1, &record(0)), Received::Stale);
    assert_eq!(receipts.take(1, &record(1)), Received::Write);
    assert_eq!(receipts.orders(), ["keep pending 1"]);
    assert_eq!(receipts.written(), ["keep written 1", "1 written 1"]);
}

#[test]
fn a_void_of_lower_copies_leaves_the_one_that_counts() {
    let mut receipts = Receipts::empty();
    receipts.take(1, &moved(2, &[0]));
    receipts.orders();
    assert_eq!(receipts.void(2, 2), ["2 voided 2"], "while it is written");
    receipts.written();
    assert_eq!(receipts.void(2, 1), ["2 voided 1"]);
    assert_eq!(receipts.void(2, 3), ["keep void 3", "2 voided 3"]);
}

#[test]
fn voids_of_two_epns_while_a_tf_is_written_are_both_answered() {
    let in_flight = || {
        let mut receipts = Receipts::empty();
        receipts.take(1, &record(0));
        assert_eq!(receipts.void(2, 1), ["recall"]);
        assert!(receipts.void(3, 2).is_empty(), "it is recalled");
        receipts
    };
    let answers = ["keep void 2", "2 voided 1", "3 voided 2"];
    assert_eq!(in_flight().returned(), answers);
    // It had begun: what is written is not acknowledged.
    assert_eq!(in_flight().written(), answers);
    let mut receipts = in_flight();
    assert_eq!(receipts.take(1, &record(1)), Received::Stale);
    // A later copy answers both, and is looked for, as the one before may get into the files.
    assert_eq!(receipts.take(4, &moved(2, &[0])), Received::WriteMissing);
    let orders = ["2 voided 1", "3 voided 2", "keep pending 2 (0)"];
    assert_eq!(receipts.orders(), orders);
    assert!(receipts.returned().is_empty());
    assert_eq!(receipts.writing(), 1);
    assert_eq!(receipts.written(), ["keep written 2 (0)", "4 written 2"]);
}

#[test]
fn a_tf_that_is_written_when_a_later_copy_is_taken_back_is_acknowledged() {
    let mut receipts = Receipts::empty();
    receipts.take(1, &record(0));
    assert_eq!(receipts.void(1, 1), ["recall"]);
    assert_eq!(
        receipts.take(2, &moved(2, &[0])),
        Received::WriteMissing,
        "the recall is not carried out yet"
    );
    assert_eq!(receipts.orders(), ["1 voided 1", "keep pending 2 (0)"]);
    // The threads have begun with the first copy, and the recall finds the second.
    assert!(receipts.written().is_empty(), "the second is with them");
    let orders = ["keep written 2 (0)", "2 written 2"];
    assert_eq!(receipts.returned(), orders);
    assert_eq!(receipts.writing(), 0);
}

#[test]
fn a_tf_that_is_stored_is_held_until_it_is_published() {
    let mut receipts = Receipts::empty();
    assert_eq!(receipts.take(1, &held(0)), Received::Write);
    assert_eq!(receipts.orders(), ["keep pending 0 held"]);
    assert!(receipts.held_before(epn(0, 2)).is_empty(), "not written");
    assert_eq!(receipts.written(), ["keep written 0 held", "1 written 0"]);
    let of = |epn| receipts.held_before(epn).len();
    assert_eq!([of(epn(0, 1)), of(epn(0, 2)), of(epn(1, 2))], [0, 1, 0]);
    let found = &receipts.held_before(epn(0, 2))[0];
    assert_eq!(
        (found.copy, found.incarnation),
        (id(7).copy(0), Incarnation(1))
    );
    assert!(!found.is_published);
    let orders = ["keep written 0 published 0", "2 published 0"];
    assert_eq!(receipts.publish(2, 0), orders);
    assert_eq!(receipts.publish(2, 0), orders, "once more");
    let found = &receipts.held_before(epn(0, 2))[0];
    assert!(found.is_published, "it is there for a life that asks");
}

#[test]
fn rows_of_the_last_published_tfs_of_each_epn_stay() {
    let mut receipts = Receipts::empty();
    let mut orders = Vec::new();
    for tf in 1..=4 {
        let of = Record {
            copy: id(tf).copy(0),
            ..held(0)
        };
        let from = if tf == 3 { epn(1, 1) } else { epn(0, 1) };
        receipts.handle_record(1, from, &of, Vec::new);
        receipts.handle_written(id(tf), Vec::new());
        receipts.orders();
        receipts.handle_publish(1, &id(tf).copy(0));
        orders.extend(receipts.orders());
    }
    let expected = [
        "keep written 0 published 0",
        "1 published 0",
        "keep written 0 published 1",
        "1 published 0",
        "keep written 0 published 0",
        "1 published 0",
        "keep written 0 published 2",
        "remove",
        "1 published 0",
    ];
    assert_eq!(orders, expected);
    let of = |receipts: &Receipts<u8>, epn| -> Vec<u64> {
        let held = receipts.held_before(epn);
        held.iter().map(|held| held.copy.tf.0).collect()
    };
    assert_eq!(of(&receipts, epn(0, 2)), [2, 4]);
    assert_eq!(of(&receipts, epn(1, 2)), [3]);
    // The next life of the writer goes on with the same rows.
    let rows: Vec<(HandoffId, CopyRow)> = receipts.rows.clone().into_iter().collect();
    let mut next: Receipts<u8> = Receipts::new(rows, 2);
    next.handle_publish(1, &id(2).copy(0));
    let of_epn = Receipts::orders(&mut next);
    assert_eq!(of_epn, ["keep written 0 published 3", "1 published 0"]);
    assert_eq!(of(&next, epn(0, 2)), [2, 4]);
    // A void one makes room.
    next.handle_void(1, &id(4).copy(1));
    next.orders();
    assert_eq!(of(&next, epn(0, 2)), [2]);
}

#[test]
fn a_held_tf_has_its_fates_in_streams_from_when_it_is_written() {
    let fates = vec![StreamFate {
        stream: "main".to_owned(),
        ..StreamFate::default()
    }];
    let mut receipts = Receipts::empty();
    receipts.take(1, &held(0));
    receipts.handle_written(id(7), fates.clone());
    assert_eq!(receipts.held_before(epn(0, 2))[0].streams, fates);
    // Void, and stored again before its commit: it is written already.
    receipts.void(2, 1);
    assert_eq!(receipts.take(1, &held(1)), Received::Known);
    let found = &receipts.held_before(epn(0, 2))[0];
    assert_eq!((&found.streams, found.is_published), (&fates, false));
}

#[test]
fn a_committed_tf_from_another_writer_is_there_for_the_next_life() {
    let mut receipts = Receipts::empty();
    let committed = Record {
        is_committed: true,
        ..moved(1, &[0])
    };
    assert_eq!(receipts.take(1, &committed), Received::Write);
    receipts.orders();
    assert!(receipts.held_before(epn(0, 2)).is_empty(), "not written");
    let orders = ["keep written 1 (0) published 0", "1 written 1"];
    assert_eq!(receipts.written(), orders);
    assert!(receipts.held_before(epn(0, 2))[0].is_published);
}

#[test]
fn a_held_tf_that_is_void_is_not_published() {
    let mut receipts = Receipts::empty();
    receipts.take(1, &held(0));
    receipts.written();
    let all = u32::MAX;
    let orders = [format!("keep void {all}"), format!("2 voided {all}")];
    assert_eq!(receipts.void(2, all), orders);
    assert!(receipts.publish(2, 0).is_empty());
    assert!(receipts.held_before(epn(0, 2)).is_empty());
}

#[test]
fn after_a_restart_what_was_not_acknowledged_is_void() {
    let pending = CopyRow {
        elsewhere: [0].into(),
        ..row(1, CopyState::Pending)
    };
    let rows = [
        (id(7), pending),
        (id(8), row(1, CopyState::Written)),
        (id(9), row(1, CopyState::Void)),
    ];
    let mut receipts: Receipts<u8> = Receipts::new(rows, 2);
    assert_eq!(receipts.orders(), ["keep void 1"], "the others stay");
    assert!(receipts.moves().is_empty());
    // Its EPN sends it again.
    assert_eq!(receipts.take(1, &record(0)), Received::Stale);
    let again = Record {
        may_be_here: true,
        ..moved(1, &[0])
    };
    assert_eq!(receipts.take(1, &again), Received::WriteMissing);
    assert_eq!(receipts.orders(), ["keep pending 1 (0)"]);
    assert_eq!(receipts.written(), ["keep written 1 (0)", "1 written 1"]);
}

#[test]
fn moves_are_reported_from_when_they_are_written_until_they_are_settled() {
    let mut receipts = Receipts::empty();
    receipts.take(1, &moved(2, &[0, 3]));
    assert_eq!(receipts.orders(), ["keep pending 2 (0 3)"]);
    assert!(
        receipts.moves().is_empty(),
        "the copies there may count yet"
    );
    receipts.written();
    let of = |copy, from| Move {
        copy: id(7).copy(copy),
        from,
    };
    assert_eq!(receipts.moves(), [of(2, 0), of(2, 3)]);
    receipts.handle_settled(&[of(1, 0), of(2, 3), of(2, 5)]);
    assert_eq!(receipts.orders(), ["keep written 2 (0)"]);
    assert_eq!(receipts.moves(), [of(2, 0)]);
    receipts.handle_settled(&[of(2, 0)]);
    assert_eq!(receipts.orders(), ["keep written 2"]);
    assert!(receipts.moves().is_empty());
}
