//! One record of the verdict log, and its bytes.
//!
//! The log is what an ICN that takes over knows of the run: it replays the records, oldest first. A record says
//! what was decided, never what a node holds; that is asked of the nodes.

use crate::checkpoint::{Checkpoint, CheckpointForm, SummedSource, SummedTarget};
use crate::codec::{DecodeError, Reader, Writer};
use crate::control::Control;
use crate::id::{Attempt, EpnId, FlpId, RosterId, RunId, Source, Target, TfId};
use crate::verdict::{DropReason, Verdict};
use crate::wire::{Kinds, Layout, Name, Numbers, Wire, wire_enum};

/// One record of the verdict log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A run begins; everything before is of former runs.
    Opened {
        /// The run.
        run: RunId,
    },
    /// From a TF on, these sources make a TF whole. A later record with the same or an earlier `first` replaces it.
    Roster {
        /// The name by which assignments call it. Never given to another list.
        id: RosterId,
        /// The first TF of it.
        first: TfId,
        /// The sources, by FLP id.
        members: Vec<Source>,
    },
    /// The verdict on a TF. There is one a TF, which amendments follow.
    Verdict {
        /// The TF.
        tf: TfId,
        /// The assignment that was built, within the term of the ICN that decided; 0 if there was none.
        attempt: Attempt,
        /// Verdict on the TF.
        verdict: Verdict,
        /// Payload bytes of the built TF, 0 for a dropped one.
        bytes: u64,
    },
    /// An amendment: the EPN of a built TF died before it said that its consumer has it.
    Abandoned {
        /// The TF.
        tf: TfId,
        /// The EPN.
        target: Target,
    },
    /// An amendment: the EPN of a built TF gave it back, since no consumer took it. The TF is dropped.
    Undelivered {
        /// The TF.
        tf: TfId,
        /// The EPN.
        target: Target,
    },
    /// An amendment: the EPN of the verdict died before it acknowledged, and another EPN has built the TF from the
    /// holds of the FLPs. This verdict replaces the former one; the delivery is marked. Delivery at least once only.
    Redelivered {
        /// The TF.
        tf: TfId,
        /// As in [`Verdict`](Self::Verdict).
        attempt: Attempt,
        /// Verdict on the TF: complete or incomplete.
        verdict: Verdict,
        /// Payload bytes of the built TF.
        bytes: u64,
    },
    /// Built TFs that are with their consumers: no node has to be notified of them any more.
    Done {
        /// First TF and first TF behind, ascending, without overlap.
        ranges: Vec<(TfId, TfId)>,
    },
    /// TFs that are none of this run: the ids of its sources begin behind them, or have gone on behind them. The first
    /// TF of the run is the end of such a range that begins at TF 0.
    Passed {
        /// The first TF passed over.
        first: TfId,
        /// The first TF behind.
        end: TfId,
    },
    /// Time of the run, in ns since its first TF was due.
    Clock {
        /// Nanoseconds.
        elapsed_ns: u64,
    },
    /// Request to end the run. `stop_at` is the first TF that is not to be made, once it is agreed on.
    Stopping {
        /// The first TF not to make.
        stop_at: Option<TfId>,
    },
    /// An operator changed what an EPN gets.
    Set {
        /// The EPN, in whatever life.
        epn: EpnId,
        /// Share of the work in thousandths.
        weight_milli: u32,
        /// Whether it gets anything new.
        enabled: bool,
    },
    /// Every TF of the run is decided and done, and the nodes may go.
    Over,
    /// The EPNs that may get work, under a reaction to failures that fixes their list. A later one replaces it.
    Listed {
        /// The EPNs, in whatever life, ascending.
        epns: Vec<EpnId>,
    },
    /// A checkpoint begins: the first record of an append that sums up all before it in the run. The others are the
    /// seven kinds below, and rosters, settings, the list, the clock and the stop as they are in force.
    Checkpoint(Box<Checkpoint>),
    /// Of a checkpoint: TFs above its floor that are decided and done.
    Released {
        /// First TF and first TF behind, ascending, without overlap.
        ranges: Vec<(TfId, TfId)>,
    },
    /// Of a checkpoint: the books of FLPs.
    Sources {
        /// By FLP.
        sources: Vec<SummedSource>,
    },
    /// Of a checkpoint: the accounting of EPNs.
    Targets {
        /// Assignments after the first one of a built TF.
        reassigned: u64,
        /// By EPN.
        targets: Vec<SummedTarget>,
    },
    /// Of a checkpoint: a verdict that the books count already, on a TF that is not with its consumer yet.
    Undone {
        /// The TF.
        tf: TfId,
        /// As in [`Verdict`](Self::Verdict).
        attempt: Attempt,
        /// Verdict on the TF.
        verdict: Verdict,
        /// Payload bytes of the built TF.
        bytes: u64,
    },
    /// Of a checkpoint: as [`Undone`](Self::Undone), a verdict that is an amendment of kind
    /// [`Redelivered`](Self::Redelivered).
    UndoneRedelivered {
        /// The TF.
        tf: TfId,
        /// As in [`Verdict`](Self::Verdict).
        attempt: Attempt,
        /// Verdict on the TF.
        verdict: Verdict,
        /// Payload bytes of the built TF.
        bytes: u64,
    },
    /// Of a checkpoint: number of TFs with an amendment of kind [`Redelivered`](Self::Redelivered). Left out if 0.
    RedeliveredTotal {
        /// TFs.
        tfs: u64,
    },
    /// Of a checkpoint: a [`Verdict`](Self::Verdict) or an amendment of one that it sums up, repeated
    /// because its writer did not know that it is durable, and so may have notified no node.
    Again(Box<Record>),
}

// The number of each kind in the log, its name and its fields. A number is never given out twice.
wire_enum! {
    Record: u8 = "kind of record", "kind of record", "1 to 21";
    1 "opened" Opened { run: RunId };
    2 "roster" Roster { id: RosterId, first: TfId, members: Vec<Source> = "roster" };
    3 "verdict" Verdict { tf: TfId, attempt: Attempt, bytes: u64 = "TF bytes", verdict: Verdict };
    4 "abandoned" Abandoned { tf: TfId, target: Target };
    5 "done" Done { ranges: Vec<(TfId, TfId)> = "done ranges" };
    6 "clock" Clock { elapsed_ns: u64 = "elapsed ns" };
    7 "stopping" Stopping { stop_at: Option<TfId> = "TF id" if "stop agreed" };
    8 "set" Set { epn: EpnId, weight_milli: u32 = "weight", enabled: bool = "enabled" };
    9 "over" Over;
    10 "listed" Listed { epns: Vec<EpnId> = "listed EPNs" };
    11 "checkpoint" Checkpoint(head: CheckpointForm);
    12 "released" Released { ranges: Vec<(TfId, TfId)> = "released ranges" };
    13 "sources" Sources { sources: Vec<SummedSource> = "summed sources" };
    14 "undone" Undone { tf: TfId, attempt: Attempt, bytes: u64 = "TF bytes", verdict: Verdict };
    15 "again" Again(record: Restated);
    16 "passed" Passed { first: TfId, end: TfId };
    17 "targets" Targets { reassigned: u64 = "reassigned TFs", targets: Vec<SummedTarget> = "summed targets" };
    18 "undelivered" Undelivered { tf: TfId, target: Target };
    19 "redelivered" Redelivered { tf: TfId, attempt: Attempt, bytes: u64 = "TF bytes", verdict: Verdict };
    20 "undone-redelivered" UndoneRedelivered { tf: TfId, attempt: Attempt, bytes: u64 = "TF bytes", verdict: Verdict };
    21 "redelivered-total" RedeliveredTotal { tfs: u64 = "redelivered TFs" };
}

wire_enum! {
    Verdict: u8 = "verdict", "verdict", "1 (complete), 2 (incomplete) or 3 (dropped)";
    1 "complete" Complete { target: Target };
    2 "incomplete" Incomplete { target: Target, missing: Vec<FlpId> = "missing FLPs" };
    3 "dropped" Dropped { reason: DropReason };
}

/// The record inside [`Record::Again`]. One level only: a record that nests without end would exhaust the stack of
/// its reader.
struct Restated;

impl Wire for Restated {
    type Value = Box<Record>;

    const BYTES_MIN: usize = 1;
    const IS_FIXED: bool = false;
    const VARIANTS: usize = 4;

    fn write(value: &Self::Value, out: &mut Writer<'_>) {
        Record::write(value, out);
    }

    fn read(input: &mut Reader<'_>, name: Name) -> Result<Self::Value, DecodeError> {
        let what = "kind of a restated record";
        match input.peek(what)? {
            3 | 4 | 18 | 19 => Record::read(input, name).map(Box::new),
            found => Err(DecodeError::Invalid {
                what,
                found: u64::from(found),
                expected: "3 (verdict), 4 (abandoned), 18 (undelivered) or 19 (redelivered)",
            }),
        }
    }

    fn sample(numbers: &mut Numbers, variant: usize) -> Self::Value {
        let tf = TfId::sample(numbers, variant);
        let target = Target::sample(numbers, variant);
        Box::new(match variant % 4 {
            0 => Record::Verdict {
                tf,
                attempt: Attempt::sample(numbers, variant),
                verdict: Verdict::Complete { target },
                bytes: u64::sample(numbers, variant),
            },
            1 => Record::Abandoned { tf, target },
            2 => Record::Undelivered { tf, target },
            _ => Record::Redelivered {
                tf,
                attempt: Attempt::sample(numbers, variant),
                verdict: Verdict::Complete { target },
                bytes: u64::sample(numbers, variant),
            },
        })
    }

    fn layout() -> String {
        "the record: 3 verdict, 4 abandoned, 18 undelivered or 19 redelivered".to_owned()
    }
}

impl Record {
    /// Most ranges in one [`Done`](Self::Done); writers split.
    pub const RANGES_MAX: usize = Control::ENTRIES_MAX;

    /// Returns whether the encoded records in `bytes` begin with a checkpoint.
    #[must_use]
    pub fn is_checkpoint_first(bytes: &[u8]) -> bool {
        bytes.first() == Some(&11)
    }

    /// Appends the bytes of the record.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        Self::write(self, &mut Writer::new(bytes));
    }

    /// Reads one record off the front of `bytes`; returns it and the rest.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first field that is cut, too long or no record's; nothing is allocated beyond the
    /// bytes that are there.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut input = Reader::new(bytes);
        let record = Self::read(&mut input, Name::NONE)?;
        let left = input.left();
        Ok((record, &bytes[bytes.len() - left..]))
    }

    /// Reads the records that fill `bytes` exactly.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), of the first record that is none.
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (record, rest) = Self::decode(bytes)?;
            records.push(record);
            bytes = rest;
        }
        Ok(records)
    }

    /// Returns the name of the kind, such as `"verdict"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind_name()
    }

    /// Returns a record of every kind and form, for test vectors and fuzz seeds.
    #[must_use]
    pub fn samples() -> Vec<Self> {
        <Self as Kinds>::samples()
    }

    /// Returns the layouts of all records in the order of their numbers, for `docs/reference/protocol.md`.
    #[must_use]
    pub fn layouts() -> Vec<Layout> {
        <Self as Kinds>::layouts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    fn one_of_each() -> Vec<Record> {
        let (tf, target) = (
            TfId(7),
            Target {
                epn: EpnId(2),
                incarnation: Incarnation(3),
            },
        );
        let verdict = |verdict| Record::Verdict {
            tf,
            attempt: Attempt(1),
            verdict,
            bytes: 9,
        };
        let missing = vec![FlpId(1), FlpId(4)];
        let members = vec![Source {
            flp: FlpId(0),
            incarnation: Incarnation(5),
        }];
        vec![
            Record::Opened { run: RunId(1) },
            Record::Roster {
                id: RosterId(1),
                first: TfId(0),
                members,
            },
            verdict(Verdict::Complete { target }),
            verdict(Verdict::Incomplete { target, missing }),
            verdict(Verdict::Dropped {
                reason: DropReason::Operator,
            }),
            Record::Abandoned { tf, target },
            Record::Undelivered { tf, target },
            Record::Done {
                ranges: vec![(TfId(0), TfId(7))],
            },
            Record::Clock { elapsed_ns: 5 },
            Record::Passed {
                first: TfId(0),
                end: tf,
            },
            Record::Stopping { stop_at: None },
            Record::Stopping { stop_at: Some(tf) },
            Record::Set {
                epn: EpnId(3),
                weight_milli: 2000,
                enabled: false,
            },
            Record::Over,
            Record::Listed {
                epns: vec![EpnId(1), EpnId(3)],
            },
            Record::Checkpoint(Box::new(Checkpoint {
                run: RunId(1),
                frontier: TfId(9),
                last_roster: RosterId(2),
                floor: TfId(5),
                complete: 3,
                incomplete: 1,
                dropped: [1; DropReason::ALL.len()],
                abandoned: 1,
                bytes: 77,
            })),
            Record::Released {
                ranges: vec![(TfId(6), TfId(8))],
            },
            Record::Sources {
                sources: vec![SummedSource {
                    flp: FlpId(3),
                    built: 4,
                }],
            },
            Record::Targets {
                reassigned: 2,
                targets: vec![SummedTarget {
                    epn: EpnId(3),
                    built: 4,
                    delivered: 3,
                }],
            },
            Record::Undone {
                tf,
                attempt: Attempt(2),
                verdict: Verdict::Complete { target },
                bytes: 8,
            },
            Record::Redelivered {
                tf,
                attempt: Attempt(3),
                verdict: Verdict::Complete { target },
                bytes: 8,
            },
            Record::UndoneRedelivered {
                tf,
                attempt: Attempt(3),
                verdict: Verdict::Complete { target },
                bytes: 8,
            },
            Record::RedeliveredTotal { tfs: 4 },
            Record::Again(Box::new(verdict(Verdict::Complete { target }))),
            Record::Again(Box::new(Record::Abandoned { tf, target })),
        ]
    }

    #[test]
    fn every_record_is_read_back() {
        let records = one_of_each();
        let mut bytes = Vec::new();
        records
            .iter()
            .for_each(|record| record.encode_into(&mut bytes));
        assert_eq!(Record::decode_all(&bytes), Ok(records));
    }

    #[test]
    fn a_cut_record_is_named_and_nothing_else() {
        for record in one_of_each() {
            let mut bytes = Vec::new();
            record.encode_into(&mut bytes);
            for cut in 1..bytes.len() {
                let error = Record::decode(&bytes[..cut]).unwrap_err();
                assert!(
                    matches!(error, DecodeError::Truncated { .. }),
                    "{record:?} at {cut}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [&[0][..], &[17], &[4; 7], &[7, 2, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(Record::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_is_named() {
        let check = |bytes: &[u8], expected: &str| {
            let error = Record::decode(bytes).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        check(&[11, 3], "version of a checkpoint is 3, expected 1 or 2");
        let mut bytes = Vec::new();
        Record::Checkpoint(Box::default()).encode_into(&mut bytes);
        assert!(Record::is_checkpoint_first(&bytes));
        // The floor stands behind version, run, frontier and roster.
        bytes[22] = 7;
        check(
            &bytes,
            "floor of a checkpoint is 7, expected at most the frontier",
        );
        // A record of these that holds itself would never end.
        check(
            &[15, 15, 15],
            "kind of a restated record is 15, expected 3 (verdict), 4 (abandoned), 18 (undelivered) or 19 (redelivered)",
        );
        check(
            &[12, 255, 255, 255, 255],
            "released ranges has 4294967295 entries, at most 8192 are allowed",
        );
    }

    /// A checkpoint as the first version wrote it, with ten reasons that it did not count.
    #[test]
    fn a_checkpoint_of_version_1_is_read() {
        let mut bytes = vec![11, 1];
        let numbers = |bytes: &mut Vec<u8>, numbers: &[u64]| {
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        };
        numbers(&mut bytes, &[1, 9]);
        bytes.extend(2_u32.to_le_bytes());
        numbers(&mut bytes, &[5, 3, 1]);
        numbers(&mut bytes, &[0, 7, 0, 0, 0, 0, 0, 0, 0, 8]);
        numbers(&mut bytes, &[1, 77]);
        let mut dropped = [0; DropReason::ALL.len()];
        dropped[DropReason::SourceOverrun.index()] = 7;
        dropped[DropReason::Operator.index()] = 8;
        let expected = Record::Checkpoint(Box::new(Checkpoint {
            run: RunId(1),
            frontier: TfId(9),
            last_roster: RosterId(2),
            floor: TfId(5),
            complete: 3,
            incomplete: 1,
            dropped,
            abandoned: 1,
            bytes: 77,
        }));
        assert_eq!(Record::decode(&bytes), Ok((expected, &[][..])));
    }

    /// The bytes of every sample as the first encoder wrote them: a log of an old node is read as long as no line of
    /// the file changes.
    #[test]
    fn every_sample_has_the_bytes_of_its_vector() {
        let vectors = crate::wire::vectors(include_str!("../vectors/record.txt"));
        let samples = Record::samples();
        assert_eq!(
            samples.len(),
            vectors.len(),
            "a line in vectors/record.txt for each sample"
        );
        for (record, (name, expected)) in samples.into_iter().zip(vectors) {
            let mut bytes = Vec::new();
            record.encode_into(&mut bytes);
            assert_eq!(record.name(), name);
            assert_eq!(bytes, expected, "{record:?}");
            assert_eq!(Record::decode(&bytes), Ok((record, &[][..])));
        }
    }
}
