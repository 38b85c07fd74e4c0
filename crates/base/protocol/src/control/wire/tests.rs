//! Every kind of message survives the wire; nothing else is taken for one.

use super::*;
use proptest::prelude::*;

fn envelope() -> Envelope {
    Envelope {
        run: RunId(0x1122),
        minor: 0,
        sender: NodeId {
            role: Role::Epn,
            index: 4,
        },
        incarnation: Incarnation(5),
        term: Term(6),
        sequence: 7,
    }
}

fn one_of_each() -> Vec<Control> {
    let tf = TfId(11);
    let target = Target {
        epn: EpnId(2),
        incarnation: Incarnation(3),
    };
    let source = Source {
        flp: FlpId(8),
        incarnation: Incarnation(9),
    };
    vec![
        Control::Hello(Hello {
            data_address: "127.0.0.1:7100".to_owned(),
            capacity_bytes: 1,
            slots: 2,
            stf_bytes_max: 3,
            weight_milli: 1000,
            is_durable: true,
            decided_tfs: 4,
            committed_end: TfId(5),
            nonce: 6,
        }),
        Control::Challenge { nonce: 1 << 63 },
        Control::Stored(vec![tf]),
        Control::NotStored(vec![tf, TfId(12)]),
        Control::Discard(vec![tf]),
        Control::Offer(vec![Offered { tf, bytes: 1 << 40 }]),
        Control::Withdrawn(vec![tf]),
        Control::Grant(vec![tf, TfId(12)]),
        Control::Recover(vec![Recover {
            tf,
            incarnation: Incarnation(3),
            missing: vec![FlpId(1)],
            parts: vec![FlpId(0)],
        }]),
        Control::Rejected {
            code: Code::TooBig,
            detail: "body of 4294967295 bytes, at most 64".to_owned(),
        },
        Control::Leaving,
        Control::Slots(vec![SlotHeld { tf, bytes: 6 }]),
        Control::Standby,
        Control::Fenced,
        Control::Ledger(vec![1, 2, 3].into()),
        Control::Order(Order::Report),
        Control::Order(Order::Drain { epn: EpnId(3) }),
        Control::Order(Order::Set {
            epn: EpnId(3),
            weight_milli: Some(2000),
            enabled: None,
        }),
        Control::Order(Order::Stop),
        Control::Order(Order::Status),
        Control::Order(Order::Restart { term: Term(7) }),
        Control::Status {
            left: 2,
            part: b"{}".to_vec().into(),
        },
        Control::Answer {
            done: true,
            detail: "epn:3 drains".to_owned(),
        },
        Control::Announce(vec![Announced { tf, bytes: 5 }]),
        Control::Skipped(vec![Skipped {
            tf,
            reason: DropReason::Oversize,
        }]),
        Control::Stopped { next: tf },
        Control::Ended { next: tf },
        Control::FlpPulse(FlpPulse {
            held_stfs: 1,
            epns_digest: 0x1234_5678,
            ..FlpPulse::default()
        }),
        Control::Unreachable { target },
        Control::Built(vec![Built {
            tf,
            attempt: Attempt(1),
            missing: vec![FlpId(1), FlpId(2)],
            bytes: 9,
            first_byte_age_ns: 10,
            last_byte_age_ns: 11,
        }]),
        Control::CommitAck {
            tfs: vec![tf, TfId(12)],
            consumed: Consumed {
                sink_bytes: 4,
                ..Consumed::default()
            },
        },
        Control::Corrupt { tf, flp: FlpId(1) },
        Control::EpnPulse(EpnPulse {
            released_version: 8,
            storage_full: true,
            ..EpnPulse::default()
        }),
        Control::Freed(Consumed {
            sink_bytes: 1,
            freed_bytes: 2,
            busy_ns: 3,
        }),
        Control::Welcome(Welcome {
            pulse_ns: 20,
            stf_bytes_max: 30,
        }),
        Control::Refused {
            detail: "flp:3 is not in this farm".to_owned(),
            incarnation_min: 7,
        },
        Control::Release(Release {
            version: 3,
            floor: tf,
            ranges: vec![(TfId(20), TfId(25))],
        }),
        Control::IcnPulse {
            elapsed_ns: 5,
            run_delay_ns: 6,
        },
        Control::Dismissed,
        Control::Start(Start {
            first: tf,
            end: TfId(u64::MAX),
            elapsed_ns: 4,
            origin: TfId(3),
        }),
        Control::Position(Position {
            first: tf,
            counter: Counter::Ahead,
            refused_stfs: 2,
        }),
        Control::Pace(vec![tf]),
        Control::Stop,
        Control::StopAt { next: tf },
        Control::Epns(vec![EpnAddress {
            target,
            address: "[::1]:7".to_owned(),
        }]),
        Control::Roster {
            id: RosterId(1),
            members: vec![source],
        },
        Control::SourceGone {
            source,
            roster: RosterId(1),
        },
        Control::SourceBack {
            source,
            roster: RosterId(1),
        },
        Control::Commit(vec![Commit {
            tf,
            is_redelivered: true,
            missing: vec![FlpId(1)],
        }]),
        Control::Absent(vec![Absent {
            tf,
            flps: vec![FlpId(3)],
        }]),
        Control::Assign(vec![Assign {
            tf,
            attempt: Attempt(2),
            target,
            roster: RosterId(1),
        }]),
    ]
}

#[test]
fn every_message_survives_the_wire() {
    for control in one_of_each() {
        let bytes = control.encode(&envelope());
        assert_eq!(Control::decode(&bytes), Ok((envelope(), control)));
    }
}

#[test]
fn every_cut_of_every_message_is_refused() {
    for control in one_of_each() {
        let bytes = control.encode(&envelope());
        for cut in 0..bytes.len() {
            assert!(
                Control::decode(&bytes[..cut]).is_err(),
                "{} cut at {cut}",
                control.name()
            );
        }
        let mut longer = bytes;
        longer.push(0);
        let refused = Control::decode(&longer).unwrap_err();
        assert_eq!(
            refused,
            DecodeError::Trailing {
                what: control.name(),
                left: 1
            }
        );
    }
}

#[test]
fn a_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
    let mut bytes = Control::Pace(vec![TfId(1)]).encode(&envelope());
    let count_at = bytes.len() - 12;
    bytes[count_at..count_at + 4].copy_from_slice(&8000_u32.to_le_bytes());
    let refused = Control::decode(&bytes).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "message is cut: paced TFs needs 64000 bytes, 8 are left"
    );
    bytes[count_at..count_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let refused = Control::decode(&bytes).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "paced TFs has 4294967295 entries, at most 8192 are allowed"
    );
}

#[test]
fn a_text_with_an_escape_sequence_cannot_reach_a_terminal() {
    let control = Control::Refused {
        detail: "a\u{1b}[31mb".to_owned(),
        incarnation_min: 0,
    };
    let (_, read) = Control::decode(&control.encode(&envelope())).unwrap();
    assert_eq!(
        read,
        Control::Refused {
            detail: "a [31mb".to_owned(),
            incarnation_min: 0,
        }
    );
    let mut forged = Control::Refused {
        detail: "aXb".to_owned(),
        incarnation_min: 0,
    }
    .encode(&envelope());
    let at = forged.len() - 2 - size_of::<u64>();
    forged[at] = 0x1b;
    assert_eq!(
        Control::decode(&forged),
        Err(DecodeError::Text { what: "refusal" })
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        let _ = Control::decode(&bytes);
    }

    #[test]
    fn changed_messages_are_read_or_refused_without_a_panic(
        which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let messages = one_of_each();
        let mut bytes = which.get(&messages).encode(&envelope());
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok((envelope, control)) = Control::decode(&bytes) {
            prop_assert_eq!(Control::decode(&control.encode(&envelope)), Ok((envelope, control)));
        }
    }
}

/// The bytes of every sample as the first encoder wrote them: an old peer and a new one understand each other as long
/// as no line of the file changes.
#[test]
fn every_sample_has_the_bytes_of_its_vector() {
    let vectors = crate::wire::vectors(include_str!("../../../vectors/control.txt"));
    let samples = Control::samples();
    assert_eq!(
        samples.len(),
        vectors.len(),
        "a line in vectors/control.txt for each sample"
    );
    for (control, (name, bytes)) in samples.into_iter().zip(vectors) {
        assert_eq!(control.name(), name);
        assert_eq!(control.encode(&envelope()), bytes, "{control:?}");
        assert_eq!(Control::decode(&bytes), Ok((envelope(), control)));
    }
}

#[test]
fn numbers_ascend_and_none_is_given_out_twice() {
    let layouts = Control::layouts();
    assert!(layouts.is_sorted_by(|a, b| a.code < b.code));
}

#[test]
fn the_minor_version_stands_where_older_builds_write_0_and_do_not_look() {
    let older = Control::Leaving.encode(&envelope());
    let minor = 9;
    let newer = Control::Leaving.encode(&Envelope {
        minor,
        ..envelope()
    });
    let differing: Vec<usize> = (0..older.len())
        .filter(|at| older[*at] != newer[*at])
        .collect();
    assert_eq!(differing, [33]);
    assert_eq!((older[33], newer[33]), (0, minor));
    let (envelope, _) = Control::decode(&newer).unwrap();
    assert_eq!(envelope.minor, minor);
}

#[test]
fn no_message_is_of_a_later_minor_version_than_the_build() {
    let latest = Control::samples().iter().map(Control::since).max();
    assert_eq!(latest, Some(crate::version::MINOR));
}
