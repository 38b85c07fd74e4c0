//! The bytes of control messages: envelope, kind, fields. Little-endian, no padding.

use super::{
    Absent, Announced, Assign, Built, Commit, Control, Envelope, EpnAddress, EpnPulse, FlpPulse,
    Hello, Offered, Order, Recover, Release, Skipped, SlotHeld, Start, Welcome,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{
    Attempt, EpnId, FlpId, Incarnation, NodeId, Role, RosterId, RunId, Source, Target, Term, TfId,
};
use crate::reject::Code;
use crate::verdict::DropReason;

/// The code of each kind on the wire. A number is never given out twice.
mod kind {
    pub(super) const HELLO: u16 = 1;
    pub(super) const LEAVING: u16 = 2;
    pub(super) const ANNOUNCE: u16 = 10;
    pub(super) const SKIPPED: u16 = 11;
    pub(super) const STOPPED: u16 = 12;
    pub(super) const ENDED: u16 = 13;
    pub(super) const FLP_PULSE: u16 = 14;
    pub(super) const UNREACHABLE: u16 = 15;
    pub(super) const BUILT: u16 = 20;
    pub(super) const COMMIT_ACK: u16 = 21;
    pub(super) const CORRUPT: u16 = 22;
    pub(super) const EPN_PULSE: u16 = 23;
    pub(super) const SLOTS: u16 = 24;
    pub(super) const STORED: u16 = 25;
    pub(super) const NOT_STORED: u16 = 26;
    pub(super) const WELCOME: u16 = 30;
    pub(super) const REFUSED: u16 = 31;
    pub(super) const RELEASE: u16 = 32;
    pub(super) const ICN_PULSE: u16 = 33;
    pub(super) const DISMISSED: u16 = 34;
    pub(super) const START: u16 = 40;
    pub(super) const PACE: u16 = 41;
    pub(super) const STOP: u16 = 42;
    pub(super) const STOP_AT: u16 = 43;
    pub(super) const EPNS: u16 = 44;
    pub(super) const ROSTER: u16 = 50;
    pub(super) const SOURCE_GONE: u16 = 51;
    pub(super) const COMMIT: u16 = 52;
    pub(super) const SOURCE_BACK: u16 = 54;
    pub(super) const ABSENT: u16 = 53;
    pub(super) const RECOVER: u16 = 55;
    pub(super) const DISCARD: u16 = 56;
    pub(super) const ASSIGN: u16 = 60;
    pub(super) const STANDBY: u16 = 70;
    pub(super) const FENCED: u16 = 71;
    pub(super) const LEDGER: u16 = 72;
    pub(super) const REJECTED: u16 = 73;
    pub(super) const ORDER: u16 = 80;
    pub(super) const ANSWER: u16 = 81;
    pub(super) const OFFER: u16 = 90;
    pub(super) const WITHDRAWN: u16 = 91;
    pub(super) const GRANT: u16 = 92;
}

impl Control {
    /// The bytes of the message behind `envelope`, fit to be the head of a control frame.
    ///
    /// # Panics
    ///
    /// In debug builds if a list is longer than [`ENTRIES_MAX`](Self::ENTRIES_MAX): senders split.
    #[must_use]
    pub fn encode(&self, envelope: &Envelope) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        let mut out = Writer::new(&mut bytes);
        write_envelope(&mut out, envelope);
        out.u16(self.kind());
        self.write_body(&mut out);
        bytes
    }

    /// Reads a message and the envelope before it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first field that is cut, too long or not of the protocol; nothing is
    /// allocated beyond the bytes that are there.
    pub fn decode(head: &[u8]) -> Result<(Envelope, Self), DecodeError> {
        let mut input = Reader::new(head);
        let envelope = read_envelope(&mut input)?;
        let kind = input.u16("kind")?;
        let control = Self::read_body(kind, &mut input)?;
        input.end(control.name())?;
        Ok((envelope, control))
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Leaving => kind::LEAVING,
            Self::Announce(_) => kind::ANNOUNCE,
            Self::Skipped(_) => kind::SKIPPED,
            Self::Stopped { .. } => kind::STOPPED,
            Self::Ended { .. } => kind::ENDED,
            Self::FlpPulse(_) => kind::FLP_PULSE,
            Self::Unreachable { .. } => kind::UNREACHABLE,
            Self::Built(_) => kind::BUILT,
            Self::CommitAck { .. } => kind::COMMIT_ACK,
            Self::Corrupt { .. } => kind::CORRUPT,
            Self::EpnPulse(_) => kind::EPN_PULSE,
            Self::Slots(_) => kind::SLOTS,
            Self::Stored(_) => kind::STORED,
            Self::NotStored(_) => kind::NOT_STORED,
            Self::Rejected { .. } => kind::REJECTED,
            Self::Recover(_) => kind::RECOVER,
            Self::Discard(_) => kind::DISCARD,
            Self::Fenced => kind::FENCED,
            Self::Ledger(_) => kind::LEDGER,
            Self::Order(_) => kind::ORDER,
            Self::Standby => kind::STANDBY,
            Self::Answer { .. } => kind::ANSWER,
            Self::Welcome(_) => kind::WELCOME,
            Self::Refused { .. } => kind::REFUSED,
            Self::Release(_) => kind::RELEASE,
            Self::IcnPulse { .. } => kind::ICN_PULSE,
            Self::Dismissed => kind::DISMISSED,
            Self::Start(_) => kind::START,
            Self::Pace(_) => kind::PACE,
            Self::Stop => kind::STOP,
            Self::StopAt { .. } => kind::STOP_AT,
            Self::Epns(_) => kind::EPNS,
            Self::Roster { .. } => kind::ROSTER,
            Self::SourceGone { .. } => kind::SOURCE_GONE,
            Self::SourceBack { .. } => kind::SOURCE_BACK,
            Self::Commit(_) => kind::COMMIT,
            Self::Absent(_) => kind::ABSENT,
            Self::Assign(_) => kind::ASSIGN,
            Self::Offer(_) => kind::OFFER,
            Self::Withdrawn(_) => kind::WITHDRAWN,
            Self::Grant(_) => kind::GRANT,
        }
    }

    fn write_body(&self, out: &mut Writer<'_>) {
        match self {
            Self::Hello(hello) => write_hello(out, hello),
            Self::Leaving | Self::Dismissed | Self::Stop | Self::Standby | Self::Fenced => {}
            Self::IcnPulse { elapsed_ns } => out.u64(*elapsed_ns),
            Self::Announce(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u64(item.bytes);
            }),
            Self::Skipped(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u8(u8::try_from(item.reason.index()).expect("ten reasons"));
            }),
            Self::Stopped { next } | Self::Ended { next } | Self::StopAt { next } => {
                out.u64(next.0);
            }
            Self::FlpPulse(pulse) => write_flp_pulse(out, pulse),
            Self::Unreachable { target } => write_target(out, *target),
            Self::Built(items) => out.list(items, write_built),
            Self::CommitAck { tfs, sink_bytes } => {
                out.u64(*sink_bytes);
                out.list(tfs, |out, tf| out.u64(tf.0));
            }
            Self::Corrupt { tf, flp } => {
                out.u64(tf.0);
                out.u16(flp.0);
            }
            Self::EpnPulse(pulse) => write_epn_pulse(out, pulse),
            Self::Stored(tfs)
            | Self::NotStored(tfs)
            | Self::Discard(tfs)
            | Self::Withdrawn(tfs)
            | Self::Grant(tfs) => {
                out.list(tfs, |out, tf| out.u64(tf.0));
            }
            Self::Offer(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u64(item.bytes);
            }),
            Self::Rejected { code, detail } => {
                out.u8(code.number());
                out.text(detail, Self::TEXT_BYTES_MAX);
            }
            Self::Recover(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u64(item.incarnation.0);
                out.list(&item.missing, |out, flp| out.u16(flp.0));
            }),
            Self::Slots(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u64(item.bytes);
            }),
            Self::Ledger(message) => out.blob(message),
            Self::Order(order) => write_order(out, *order),
            Self::Answer { done, detail } => {
                out.u8(u8::from(*done));
                out.text(detail, Self::TEXT_BYTES_MAX);
            }
            Self::Welcome(welcome) => {
                out.u64(welcome.pulse_ns);
                out.u64(welcome.stf_bytes_max);
            }
            Self::Refused { detail } => out.text(detail, Self::TEXT_BYTES_MAX),
            Self::Release(release) => {
                out.u64(release.version);
                out.u64(release.floor.0);
                out.list(&release.ranges, |out, (first, end)| {
                    out.u64(first.0);
                    out.u64(end.0);
                });
            }
            Self::Start(start) => {
                out.u64(start.first.0);
                out.u64(start.end.0);
                out.u64(start.elapsed_ns);
            }
            Self::Pace(tfs) => out.list(tfs, |out, tf| out.u64(tf.0)),
            Self::Absent(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.list(&item.flps, |out, flp| out.u16(flp.0));
            }),
            Self::Epns(items) => out.list(items, |out, item| {
                write_target(out, item.target);
                out.text(&item.address, Self::TEXT_BYTES_MAX);
            }),
            Self::Roster { id, members } => {
                out.u32(id.0);
                out.list(members, |out, member| write_source(out, *member));
            }
            Self::SourceGone { source } | Self::SourceBack { source } => {
                write_source(out, *source);
            }
            Self::Commit(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.list(&item.missing, |out, flp| out.u16(flp.0));
            }),
            Self::Assign(items) => out.list(items, |out, item| {
                out.u64(item.tf.0);
                out.u32(item.attempt.0);
                write_target(out, item.target);
                out.u32(item.roster.0);
            }),
        }
    }

    fn read_body(kind: u16, input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let max = Self::ENTRIES_MAX;
        Ok(match kind {
            kind::HELLO => Self::Hello(read_hello(input)?),
            kind::LEAVING => Self::Leaving,
            kind::ANNOUNCE => Self::Announce(input.list("announced TFs", max, 16, |input| {
                Ok(Announced {
                    tf: read_tf(input)?,
                    bytes: input.u64("STF bytes")?,
                })
            })?),
            kind::SKIPPED => Self::Skipped(input.list("skipped TFs", max, 9, |input| {
                Ok(Skipped {
                    tf: read_tf(input)?,
                    reason: read_reason(input)?,
                })
            })?),
            kind::STOPPED => Self::Stopped {
                next: read_tf(input)?,
            },
            kind::ENDED => Self::Ended {
                next: read_tf(input)?,
            },
            kind::FLP_PULSE => Self::FlpPulse(read_flp_pulse(input)?),
            kind::UNREACHABLE => Self::Unreachable {
                target: read_target(input)?,
            },
            kind::BUILT => Self::Built(input.list("built TFs", max, 40, read_built)?),
            kind::COMMIT_ACK => {
                let sink_bytes = input.u64("sink bytes")?;
                Self::CommitAck {
                    tfs: input.list("acknowledged TFs", max, 8, read_tf)?,
                    sink_bytes,
                }
            }
            kind::CORRUPT => Self::Corrupt {
                tf: read_tf(input)?,
                flp: FlpId(input.u16("FLP id")?),
            },
            kind::EPN_PULSE => Self::EpnPulse(read_epn_pulse(input)?),
            kind::SLOTS => Self::Slots(input.list("held slots", max, 16, |input| {
                Ok(SlotHeld {
                    tf: read_tf(input)?,
                    bytes: input.u64("slot bytes")?,
                })
            })?),
            kind::STORED => Self::Stored(input.list("stored TFs", max, 8, read_tf)?),
            kind::NOT_STORED => Self::NotStored(input.list("TFs not stored", max, 8, read_tf)?),
            kind::DISCARD => Self::Discard(input.list("discarded TFs", max, 8, read_tf)?),
            kind::RECOVER => Self::Recover(input.list("TFs to recover", max, 20, |input| {
                Ok(Recover {
                    tf: read_tf(input)?,
                    incarnation: Incarnation(input.u64("incarnation")?),
                    missing: read_missing(input)?,
                })
            })?),
            kind::REJECTED => Self::Rejected {
                code: read_code(input)?,
                detail: input.text("rejection", Self::TEXT_BYTES_MAX)?,
            },
            kind::STANDBY => Self::Standby,
            kind::FENCED => Self::Fenced,
            kind::LEDGER => {
                let message = input.blob("message of the verdict log", Self::LEDGER_BYTES_MAX)?;
                Self::Ledger(message.to_vec().into())
            }
            kind::ORDER => Self::Order(read_order(input)?),
            kind::ANSWER => Self::Answer {
                done: input.flag("done")?,
                detail: input.text("answer", Self::TEXT_BYTES_MAX)?,
            },
            kind::WELCOME => Self::Welcome(Welcome {
                pulse_ns: input.u64("pulse ns")?,
                stf_bytes_max: input.u64("STF bytes max")?,
            }),
            kind::REFUSED => Self::Refused {
                detail: input.text("refusal", Self::TEXT_BYTES_MAX)?,
            },
            kind::RELEASE => Self::Release(Release {
                version: input.u64("release version")?,
                floor: read_tf(input)?,
                ranges: input.list("released ranges", max, 16, |input| {
                    Ok((read_tf(input)?, read_tf(input)?))
                })?,
            }),
            kind::ICN_PULSE => Self::IcnPulse {
                elapsed_ns: input.u64("elapsed ns")?,
            },
            kind::DISMISSED => Self::Dismissed,
            kind::START => Self::Start(Start {
                first: read_tf(input)?,
                end: read_tf(input)?,
                elapsed_ns: input.u64("elapsed ns")?,
            }),
            kind::PACE => Self::Pace(input.list("paced TFs", max, 8, read_tf)?),
            kind::STOP => Self::Stop,
            kind::STOP_AT => Self::StopAt {
                next: read_tf(input)?,
            },
            kind::EPNS => Self::Epns(input.list("EPNs", max, 12, |input| {
                Ok(EpnAddress {
                    target: read_target(input)?,
                    address: input.text("EPN address", Self::TEXT_BYTES_MAX)?,
                })
            })?),
            kind::ROSTER => Self::Roster {
                id: RosterId(input.u32("roster id")?),
                members: input.list("roster", max, 10, read_source)?,
            },
            kind::SOURCE_BACK => Self::SourceBack {
                source: read_source(input)?,
            },
            kind::SOURCE_GONE => Self::SourceGone {
                source: read_source(input)?,
            },
            kind::COMMIT => Self::Commit(input.list("committed TFs", max, 12, |input| {
                Ok(Commit {
                    tf: read_tf(input)?,
                    missing: read_missing(input)?,
                })
            })?),
            kind::ABSENT => Self::Absent(input.list("absent FLPs", max, 12, |input| {
                Ok(Absent {
                    tf: read_tf(input)?,
                    flps: read_missing(input)?,
                })
            })?),
            kind::ASSIGN => Self::Assign(input.list("assignments", max, 26, |input| {
                Ok(Assign {
                    tf: read_tf(input)?,
                    attempt: Attempt(input.u32("attempt")?),
                    target: read_target(input)?,
                    roster: RosterId(input.u32("roster id")?),
                })
            })?),
            kind::OFFER => Self::Offer(input.list("offered STFs", max, 16, |input| {
                Ok(Offered {
                    tf: read_tf(input)?,
                    bytes: input.u64("STF bytes")?,
                })
            })?),
            kind::WITHDRAWN => Self::Withdrawn(input.list("withdrawn TFs", max, 8, read_tf)?),
            kind::GRANT => Self::Grant(input.list("granted TFs", max, 8, read_tf)?),
            found => {
                return Err(DecodeError::Invalid {
                    what: "kind of control message",
                    found: u64::from(found),
                    expected: "a kind of docs/protocol.md",
                });
            }
        })
    }
}

fn write_envelope(out: &mut Writer<'_>, envelope: &Envelope) {
    out.u64(envelope.run.0);
    out.u64(envelope.incarnation.0);
    out.u64(envelope.term.0);
    out.u64(envelope.sequence);
    out.u8(match envelope.sender.role {
        Role::Icn => 1,
        Role::Flp => 2,
        Role::Epn => 3,
        Role::Operator => 4,
    });
    out.u8(0);
    out.u16(envelope.sender.index);
}

fn read_envelope(input: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
    let run = RunId(input.u64("run")?);
    let incarnation = Incarnation(input.u64("incarnation")?);
    let term = Term(input.u64("term")?);
    let sequence = input.u64("sequence")?;
    let role = match input.u8("role")? {
        1 => Role::Icn,
        2 => Role::Flp,
        3 => Role::Epn,
        4 => Role::Operator,
        found => {
            return Err(DecodeError::Invalid {
                what: "role",
                found: u64::from(found),
                expected: "1 (ICN), 2 (FLP), 3 (EPN) or 4 (operator)",
            });
        }
    };
    input.u8("reserved byte")?;
    let sender = NodeId {
        role,
        index: input.u16("node index")?,
    };
    Ok(Envelope {
        run,
        sender,
        incarnation,
        term,
        sequence,
    })
}

fn write_hello(out: &mut Writer<'_>, hello: &Hello) {
    out.u64(hello.capacity_bytes);
    out.u64(hello.stf_bytes_max);
    out.u32(hello.slots);
    out.u32(hello.weight_milli);
    out.u8(u8::from(hello.keeps));
    out.text(&hello.data_address, Control::TEXT_BYTES_MAX);
}

fn read_hello(input: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let capacity_bytes = input.u64("capacity bytes")?;
    let stf_bytes_max = input.u64("STF bytes max")?;
    let slots = input.u32("slots")?;
    let weight_milli = input.u32("weight")?;
    let keeps = input.flag("keeps")?;
    let data_address = input.text("data address", Control::TEXT_BYTES_MAX)?;
    Ok(Hello {
        data_address,
        capacity_bytes,
        slots,
        stf_bytes_max,
        weight_milli,
        keeps,
    })
}

fn write_flp_pulse(out: &mut Writer<'_>, pulse: &FlpPulse) {
    out.u64(pulse.held_stfs);
    out.u64(pulse.held_bytes);
    out.u64(pulse.made_stfs);
    out.u64(pulse.sent_bytes);
    out.u64(pulse.released_version);
    out.u8(u8::from(pulse.started));
    out.u64(pulse.elapsed_ns);
    out.u32(pulse.epns_digest);
}

fn read_flp_pulse(input: &mut Reader<'_>) -> Result<FlpPulse, DecodeError> {
    Ok(FlpPulse {
        held_stfs: input.u64("held STFs")?,
        held_bytes: input.u64("held bytes")?,
        made_stfs: input.u64("made STFs")?,
        sent_bytes: input.u64("sent bytes")?,
        released_version: input.u64("released version")?,
        started: input.flag("started")?,
        elapsed_ns: input.u64("elapsed ns")?,
        epns_digest: input.u32("digest of EPNs")?,
    })
}

fn write_epn_pulse(out: &mut Writer<'_>, pulse: &EpnPulse) {
    out.u64(pulse.open_tfs);
    out.u64(pulse.open_bytes);
    out.u64(pulse.sink_bytes);
    out.u64(pulse.delivered_tfs);
    out.u64(pulse.received_bytes);
    out.u64(pulse.duplicates_refused);
    out.u64(pulse.digest_mismatches);
    out.u64(pulse.released_version);
    out.u8(u8::from(pulse.storage_full));
}

fn read_epn_pulse(input: &mut Reader<'_>) -> Result<EpnPulse, DecodeError> {
    Ok(EpnPulse {
        open_tfs: input.u64("open TFs")?,
        open_bytes: input.u64("open bytes")?,
        sink_bytes: input.u64("sink bytes")?,
        delivered_tfs: input.u64("delivered TFs")?,
        received_bytes: input.u64("received bytes")?,
        duplicates_refused: input.u64("duplicates refused")?,
        digest_mismatches: input.u64("digest mismatches")?,
        released_version: input.u64("released version")?,
        storage_full: input.flag("storage full")?,
    })
}

fn write_built(out: &mut Writer<'_>, built: &Built) {
    out.u64(built.tf.0);
    out.u32(built.attempt.0);
    out.u64(built.bytes);
    out.u64(built.first_byte_age_ns);
    out.u64(built.last_byte_age_ns);
    out.list(&built.missing, |out, flp| out.u16(flp.0));
}

fn read_built(input: &mut Reader<'_>) -> Result<Built, DecodeError> {
    Ok(Built {
        tf: read_tf(input)?,
        attempt: Attempt(input.u32("attempt")?),
        bytes: input.u64("TF bytes")?,
        first_byte_age_ns: input.u64("first byte age")?,
        last_byte_age_ns: input.u64("last byte age")?,
        missing: read_missing(input)?,
    })
}

fn write_order(out: &mut Writer<'_>, order: Order) {
    let (code, epn) = match order {
        Order::Report => (0, EpnId(0)),
        Order::Drain { epn } => (1, epn),
        Order::Set { epn, .. } => (2, epn),
        Order::Stop => (3, EpnId(0)),
    };
    out.u8(code);
    out.u16(epn.0);
    if let Order::Set {
        weight_milli,
        enabled,
        ..
    } = order
    {
        out.u8(u8::from(weight_milli.is_some()));
        out.u32(weight_milli.unwrap_or(0));
        out.u8(u8::from(enabled.is_some()));
        out.u8(u8::from(enabled.unwrap_or(false)));
    }
}

fn read_order(input: &mut Reader<'_>) -> Result<Order, DecodeError> {
    let code = input.u8("order")?;
    let epn = EpnId(input.u16("EPN id")?);
    Ok(match code {
        0 => Order::Report,
        1 => Order::Drain { epn },
        2 => {
            let has_weight = input.flag("weight given")?;
            let weight = input.u32("weight")?;
            let has_enabled = input.flag("enabled given")?;
            let enabled = input.flag("enabled")?;
            Order::Set {
                epn,
                weight_milli: has_weight.then_some(weight),
                enabled: has_enabled.then_some(enabled),
            }
        }
        3 => Order::Stop,
        found => {
            return Err(DecodeError::Invalid {
                what: "order",
                found: u64::from(found),
                expected: "0 (report), 1 (drain), 2 (set) or 3 (stop)",
            });
        }
    })
}

fn read_tf(input: &mut Reader<'_>) -> Result<TfId, DecodeError> {
    Ok(TfId(input.u64("TF id")?))
}

fn read_missing(input: &mut Reader<'_>) -> Result<Vec<FlpId>, DecodeError> {
    input.list("missing FLPs", Control::ENTRIES_MAX, 2, |input| {
        Ok(FlpId(input.u16("FLP id")?))
    })
}

fn read_reason(input: &mut Reader<'_>) -> Result<DropReason, DecodeError> {
    let code = input.u8("drop reason")?;
    DropReason::ALL
        .get(usize::from(code))
        .copied()
        .ok_or(DecodeError::Invalid {
            what: "drop reason",
            found: u64::from(code),
            expected: "0 to 9",
        })
}

fn read_code(input: &mut Reader<'_>) -> Result<Code, DecodeError> {
    let number = input.u8("rejection code")?;
    Code::of_number(number).ok_or(DecodeError::Invalid {
        what: "rejection code",
        found: u64::from(number),
        expected: "a code of docs/codes.md",
    })
}

fn write_source(out: &mut Writer<'_>, source: Source) {
    out.u16(source.flp.0);
    out.u64(source.incarnation.0);
}

fn read_source(input: &mut Reader<'_>) -> Result<Source, DecodeError> {
    Ok(Source {
        flp: FlpId(input.u16("FLP id")?),
        incarnation: Incarnation(input.u64("incarnation")?),
    })
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
mod tests;
