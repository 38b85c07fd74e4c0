//! One record of the verdict log, and its bytes.
//!
//! The log is what an ICN that takes over knows of the run: it replays the records, oldest first. A record says
//! what was decided, never what somebody holds; that is asked of the nodes.

use crate::checkpoint::{Checkpoint, SummedSource};
use crate::codec::{DecodeError, Reader, Writer};
use crate::control::Control;
use crate::id::{Attempt, EpnId, FlpId, Incarnation, RosterId, RunId, Source, Target, TfId};
use crate::verdict::{DropReason, Verdict};

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
    /// The verdict on a TF. There is one a TF.
    Verdict {
        /// The TF.
        tf: TfId,
        /// The assignment that was built, within the term of the ICN that decided; 0 if there was none.
        attempt: Attempt,
        /// What was decided.
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
    /// Built TFs that are with their consumers: nobody has to be told anything of them any more.
    Done {
        /// First TF and first TF behind, ascending, without overlap.
        ranges: Vec<(TfId, TfId)>,
    },
    /// How long the run had lasted, in ns since TF 0 was due.
    Clock {
        /// Nanoseconds.
        elapsed_ns: u64,
    },
    /// Somebody wants the run to end. `stop_at` is the first TF that is not to be made, once it is agreed on.
    Stopping {
        /// The first TF not to make.
        stop_at: Option<TfId>,
    },
    /// An operator changed what an EPN gets.
    Set {
        /// The EPN, in whatever life.
        epn: EpnId,
        /// Its share of the work in thousandths.
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
    /// four kinds below, and rosters, settings, the list, the clock and the stop as they are in force.
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
    /// Of a checkpoint: a verdict that the books count already, on a TF that is not with its consumer yet.
    Undone {
        /// The TF.
        tf: TfId,
        /// As in [`Verdict`](Self::Verdict).
        attempt: Attempt,
        /// What was decided.
        verdict: Verdict,
        /// Payload bytes of the built TF.
        bytes: u64,
    },
    /// Of a checkpoint: a [`Verdict`](Self::Verdict) or [`Abandoned`](Self::Abandoned) that it sums up, said again
    /// because its writer had not heard that it is durable, and so may have told nobody.
    Again(Box<Record>),
}

/// The code of each kind in the log. A number is never given out twice.
mod kind {
    pub(super) const OPENED: u8 = 1;
    pub(super) const ROSTER: u8 = 2;
    pub(super) const VERDICT: u8 = 3;
    pub(super) const ABANDONED: u8 = 4;
    pub(super) const DONE: u8 = 5;
    pub(super) const CLOCK: u8 = 6;
    pub(super) const STOPPING: u8 = 7;
    pub(super) const SET: u8 = 8;
    pub(super) const OVER: u8 = 9;
    pub(super) const LISTED: u8 = 10;
    pub(super) const CHECKPOINT: u8 = 11;
    pub(super) const RELEASED: u8 = 12;
    pub(super) const SOURCES: u8 = 13;
    pub(super) const UNDONE: u8 = 14;
    pub(super) const AGAIN: u8 = 15;
}

impl Record {
    /// Most ranges in one [`Done`](Self::Done); writers split.
    pub const RANGES_MAX: usize = Control::ENTRIES_MAX;

    /// Whether the encoded records in `bytes` begin with a checkpoint.
    #[must_use]
    pub fn is_checkpoint_first(bytes: &[u8]) -> bool {
        bytes.first() == Some(&kind::CHECKPOINT)
    }

    /// Appends the bytes of the record.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let mut out = Writer::new(bytes);
        match self {
            Self::Opened { run } => {
                out.u8(kind::OPENED);
                out.u64(run.0);
            }
            Self::Roster { id, first, members } => {
                out.u8(kind::ROSTER);
                out.u32(id.0);
                out.u64(first.0);
                out.list(members, |out, member| {
                    out.u16(member.flp.0);
                    out.u64(member.incarnation.0);
                });
            }
            Self::Verdict {
                tf,
                attempt,
                verdict,
                bytes,
            } => {
                out.u8(kind::VERDICT);
                write_decision(&mut out, *tf, *attempt, verdict, *bytes);
            }
            Self::Abandoned { tf, target } => {
                out.u8(kind::ABANDONED);
                out.u64(tf.0);
                write_target(&mut out, *target);
            }
            Self::Done { ranges } => {
                out.u8(kind::DONE);
                write_ranges(&mut out, ranges);
            }
            Self::Clock { elapsed_ns } => {
                out.u8(kind::CLOCK);
                out.u64(*elapsed_ns);
            }
            Self::Stopping { stop_at } => {
                out.u8(kind::STOPPING);
                out.u8(u8::from(stop_at.is_some()));
                out.u64(stop_at.map_or(0, |tf| tf.0));
            }
            Self::Set {
                epn,
                weight_milli,
                enabled,
            } => {
                out.u8(kind::SET);
                out.u16(epn.0);
                out.u32(*weight_milli);
                out.u8(u8::from(*enabled));
            }
            Self::Over => out.u8(kind::OVER),
            Self::Listed { epns } => {
                out.u8(kind::LISTED);
                out.list(epns, |out, epn| out.u16(epn.0));
            }
            Self::Checkpoint(checkpoint) => {
                out.u8(kind::CHECKPOINT);
                checkpoint.write(&mut out);
            }
            Self::Released { ranges } => {
                out.u8(kind::RELEASED);
                write_ranges(&mut out, ranges);
            }
            Self::Sources { sources } => {
                out.u8(kind::SOURCES);
                out.list(sources, |out, source| {
                    out.u16(source.flp.0);
                    out.u64(source.built);
                });
            }
            Self::Undone {
                tf,
                attempt,
                verdict,
                bytes,
            } => {
                out.u8(kind::UNDONE);
                write_decision(&mut out, *tf, *attempt, verdict, *bytes);
            }
            Self::Again(record) => {
                out.u8(kind::AGAIN);
                record.encode_into(bytes);
            }
        }
    }

    /// Reads one record off the front of `bytes`; gives it and the rest.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first field that is cut, too long or no record's; nothing is allocated beyond the
    /// bytes that are there.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut input = Reader::new(bytes);
        let record = Self::read(&mut input)?;
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

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let max = Control::ENTRIES_MAX;
        Ok(match input.u8("kind of record")? {
            kind::OPENED => Self::Opened {
                run: RunId(input.u64("run")?),
            },
            kind::ROSTER => Self::Roster {
                id: RosterId(input.u32("roster id")?),
                first: read_tf(input)?,
                members: input.list("roster", max, 10, |input| {
                    Ok(Source {
                        flp: FlpId(input.u16("FLP id")?),
                        incarnation: Incarnation(input.u64("incarnation")?),
                    })
                })?,
            },
            kind::VERDICT => Self::read_decision(input)?,
            kind::ABANDONED => Self::Abandoned {
                tf: read_tf(input)?,
                target: read_target(input)?,
            },
            kind::DONE => Self::Done {
                ranges: input.list("done ranges", Self::RANGES_MAX, 16, read_range)?,
            },
            kind::CLOCK => Self::Clock {
                elapsed_ns: input.u64("elapsed ns")?,
            },
            kind::STOPPING => {
                let is_agreed = input.flag("stop agreed")?;
                let tf = read_tf(input)?;
                Self::Stopping {
                    stop_at: is_agreed.then_some(tf),
                }
            }
            kind::SET => Self::Set {
                epn: EpnId(input.u16("EPN id")?),
                weight_milli: input.u32("weight")?,
                enabled: input.flag("enabled")?,
            },
            kind::OVER => Self::Over,
            kind::LISTED => Self::Listed {
                epns: input.list("listed EPNs", max, 2, |input| {
                    Ok(EpnId(input.u16("EPN id")?))
                })?,
            },
            kind::CHECKPOINT => Self::Checkpoint(Box::new(Checkpoint::read(input)?)),
            kind::RELEASED => Self::Released {
                ranges: input.list("released ranges", Self::RANGES_MAX, 16, read_range)?,
            },
            kind::SOURCES => Self::Sources {
                sources: input.list("summed sources", max, 10, |input| {
                    Ok(SummedSource {
                        flp: FlpId(input.u16("FLP id")?),
                        built: input.u64("built STFs")?,
                    })
                })?,
            },
            kind::UNDONE => match Self::read_decision(input)? {
                Self::Verdict {
                    tf,
                    attempt,
                    verdict,
                    bytes,
                } => Self::Undone {
                    tf,
                    attempt,
                    verdict,
                    bytes,
                },
                other => other,
            },
            // One level only: what nests without end would end the stack of a reader.
            kind::AGAIN => match input.u8("kind of a record said again")? {
                kind::VERDICT => Self::Again(Box::new(Self::read_decision(input)?)),
                kind::ABANDONED => Self::Again(Box::new(Self::Abandoned {
                    tf: read_tf(input)?,
                    target: read_target(input)?,
                })),
                found => {
                    return Err(DecodeError::Invalid {
                        what: "kind of a record said again",
                        found: u64::from(found),
                        expected: "3 (verdict) or 4 (abandoned)",
                    });
                }
            },
            found => {
                return Err(DecodeError::Invalid {
                    what: "kind of record",
                    found: u64::from(found),
                    expected: "1 to 15",
                });
            }
        })
    }

    fn read_decision(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tf = read_tf(input)?;
        let attempt = Attempt(input.u32("attempt")?);
        let bytes = input.u64("TF bytes")?;
        Ok(Self::Verdict {
            tf,
            attempt,
            verdict: read_verdict(input)?,
            bytes,
        })
    }
}

fn write_decision(out: &mut Writer<'_>, tf: TfId, attempt: Attempt, verdict: &Verdict, bytes: u64) {
    out.u64(tf.0);
    out.u32(attempt.0);
    out.u64(bytes);
    write_verdict(out, verdict);
}

fn write_ranges(out: &mut Writer<'_>, ranges: &[(TfId, TfId)]) {
    out.list(ranges, |out, (first, end)| {
        out.u64(first.0);
        out.u64(end.0);
    });
}

fn read_range(input: &mut Reader<'_>) -> Result<(TfId, TfId), DecodeError> {
    Ok((read_tf(input)?, read_tf(input)?))
}

fn write_verdict(out: &mut Writer<'_>, verdict: &Verdict) {
    match verdict {
        Verdict::Complete { target } => {
            out.u8(1);
            write_target(out, *target);
        }
        Verdict::Incomplete { target, missing } => {
            out.u8(2);
            write_target(out, *target);
            out.list(missing, |out, flp| out.u16(flp.0));
        }
        Verdict::Dropped { reason } => {
            out.u8(3);
            out.u8(u8::try_from(reason.index()).expect("ten reasons"));
        }
    }
}

fn read_verdict(input: &mut Reader<'_>) -> Result<Verdict, DecodeError> {
    Ok(match input.u8("verdict")? {
        1 => Verdict::Complete {
            target: read_target(input)?,
        },
        2 => Verdict::Incomplete {
            target: read_target(input)?,
            missing: input.list("missing FLPs", Control::ENTRIES_MAX, 2, |input| {
                Ok(FlpId(input.u16("FLP id")?))
            })?,
        },
        3 => {
            let code = input.u8("drop reason")?;
            let reason = DropReason::ALL.get(usize::from(code)).copied();
            Verdict::Dropped {
                reason: reason.ok_or(DecodeError::Invalid {
                    what: "drop reason",
                    found: u64::from(code),
                    expected: "0 to 9",
                })?,
            }
        }
        found => {
            return Err(DecodeError::Invalid {
                what: "verdict",
                found: u64::from(found),
                expected: "1 (complete), 2 (incomplete) or 3 (dropped)",
            });
        }
    })
}

fn read_tf(input: &mut Reader<'_>) -> Result<TfId, DecodeError> {
    Ok(TfId(input.u64("TF id")?))
}

fn write_target(out: &mut Writer<'_>, target: Target) {
    out.u16(target.epn.0);
    out.u64(target.incarnation.0);
}

fn read_target(input: &mut Reader<'_>) -> Result<Target, DecodeError> {
    Ok(Target {
        epn: EpnId(input.u16("EPN id")?),
        incarnation: Incarnation(input.u64("incarnation")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Record::Done {
                ranges: vec![(TfId(0), TfId(7))],
            },
            Record::Clock { elapsed_ns: 5 },
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
            Record::Undone {
                tf,
                attempt: Attempt(2),
                verdict: Verdict::Complete { target },
                bytes: 8,
            },
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
        for bytes in [&[0][..], &[16], &[4; 7], &[7, 2, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(Record::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_is_named() {
        let check = |bytes: &[u8], expected: &str| {
            let error = Record::decode(bytes).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        check(&[11, 2], "version of a checkpoint is 2, expected 1");
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
            "kind of a record said again is 15, expected 3 (verdict) or 4 (abandoned)",
        );
        check(
            &[12, 255, 255, 255, 255],
            "released ranges has 4294967295 entries, at most 8192 are allowed",
        );
    }
}
