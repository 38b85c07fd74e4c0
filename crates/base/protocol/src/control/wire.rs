//! The bytes of control messages: envelope, kind, fields.

use super::{
    Absent, Announced, Assign, Built, Commit, Consumed, Control, Counter, Envelope, EpnAddress,
    EpnPulse, FlpPulse, HeldPart, HeldTf, Hello, LogLevel, LogLine, Move, Offered, Order, Position,
    Record, Recover, Release, Skipped, SlotHeld, Start, StreamFate, TfCopy, Welcome, WriterHello,
    WriterPulse, WriterWelcome, WrittenTf,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{
    Attempt, EpnId, FlpId, Incarnation, NodeId, Role, RosterId, RunId, Source, Target, Term, TfId,
};
use crate::reject::Code;
use crate::verdict::DropReason;
use crate::version;
use crate::wire::{Kinds, Layout, Name, Wire, wire_enum, wire_struct};
use bytes::Bytes;

// The number of each kind on the wire, its name in logs and its fields. A number is never given out twice.
wire_enum! {
    Control: u16 = "kind", "kind of control message", "a kind of docs/reference/protocol.md";
    1 "hello" Hello(hello: Hello);
    2 "leaving" Leaving;
    3 "log" Log(lines: Vec<LogLine> = "log lines");
    10 "announce" Announce(stfs: Vec<Announced> = "announced TFs");
    11 "skipped" Skipped(tfs: Vec<Skipped> = "skipped TFs");
    12 "stopped" Stopped { next: TfId };
    13 "ended" Ended { next: TfId };
    14 "flp-pulse" FlpPulse(pulse: FlpPulse);
    15 "unreachable" Unreachable { target: Target };
    16 "position" Position(position: Position);
    17 "released" Released(tfs: Vec<TfId> = "released TFs");
    20 "built" Built(tfs: Vec<Built> = "built TFs");
    21 "commit-ack" CommitAck { consumed: Consumed, tfs: Vec<TfId> = "acknowledged TFs" };
    22 "corrupt" Corrupt { tf: TfId, flp: FlpId };
    23 "epn-pulse" EpnPulse(pulse: EpnPulse);
    24 "slots" Slots(slots: Vec<SlotHeld> = "held slots");
    25 "stored" Stored(tfs: Vec<TfId> = "stored TFs");
    26 "not-stored" NotStored(tfs: Vec<TfId> = "TFs not stored");
    27 "undelivered" Undelivered(tfs: Vec<TfId> = "undelivered TFs");
    28 "sources" Sources(sources: Vec<Source> = "sources with a stream");
    29 "freed" Freed(consumed: Consumed);
    30 "welcome" Welcome(welcome: Welcome);
    31 "refused" Refused {
        detail: String = "refusal",
        incarnation_min: u64 = "lowest incarnation that may join; 0: none",
    };
    32 "release" Release(release: Release);
    33 "icn-pulse" IcnPulse { elapsed_ns: u64 = "elapsed ns", run_delay_ns: u64 = "run delay" };
    34 "dismissed" Dismissed;
    41 "pace" Pace(tfs: Vec<TfId> = "paced TFs");
    42 "stop" Stop;
    43 "stop-at" StopAt { next: TfId };
    44 "epns" Epns(epns: Vec<EpnAddress> = "EPNs");
    // 40 was a start without the first TF of the run.
    45 "start" Start(start: Start);
    50 "roster" Roster { id: RosterId, members: Vec<Source> = "roster" };
    52 "commit" Commit(tfs: Vec<Commit> = "committed TFs");
    53 "absent" Absent(tfs: Vec<Absent> = "absent FLPs");
    // 51 and 54 were the notices of a source without the roster that orders them.
    55 "recover" Recover(tfs: Vec<Recover> = "TFs to recover");
    56 "discard" Discard(tfs: Vec<TfId> = "discarded TFs");
    57 "recall" Recall(tfs: Vec<TfId> = "recalled TFs");
    58 "source-gone" SourceGone { source: Source, roster: RosterId };
    59 "source-back" SourceBack { source: Source, roster: RosterId };
    60 "assign" Assign(tfs: Vec<Assign> = "assignments");
    70 "standby" Standby;
    71 "fenced" Fenced;
    72 "ledger" Ledger(message: Bytes = "message of the verdict log");
    73 "rejected" Rejected { code: Code, detail: String = "rejection" };
    74 "challenge" Challenge { nonce: u64 = "nonce" };
    80 "order" Order(order: Order);
    81 "answer" Answer { done: bool = "done", detail: String = "answer" };
    82 "status" Status { left: u32 = "parts left", part: Bytes = "status of the farm" };
    90 "offer" Offer(stfs: Vec<Offered> = "offered STFs");
    91 "withdrawn" Withdrawn(tfs: Vec<TfId> = "withdrawn TFs");
    92 "grant" Grant(tfs: Vec<TfId> = "granted TFs");
    100 "writer-hello" WriterHello(hello: WriterHello);
    101 "record" Record(record: Record);
    102 "void" Void(copies: Vec<TfCopy> = "void copies");
    103 "settled" Settled(moves: Vec<Move> = "settled moves");
    104 "publish" Publish(copies: Vec<TfCopy> = "published copies");
    110 "writer-welcome" WriterWelcome(welcome: WriterWelcome);
    111 "writer-pulse" WriterPulse(pulse: WriterPulse);
    112 "written" Written(tfs: Vec<WrittenTf> = "written TFs");
    113 "voided" Voided(copies: Vec<TfCopy> = "voided copies");
    114 "moves" Moves(moves: Vec<Move> = "moves");
    115 "held" Held(tfs: Vec<HeldTf> = "held TFs");
    116 "published" Published(copies: Vec<TfCopy> = "published copies");
}

wire_enum! {
    Order: u8 = "order", "order", "0 (report), 1 (drain), 2 (set), 3 (stop), 4 (status), 5 (restart) or 6 (log)";
    0 "report" Report reserved EpnId;
    1 "drain" Drain { epn: EpnId };
    2 "set" Set {
        epn: EpnId,
        weight_milli: Option<u32> = "weight" if "weight given",
        enabled: Option<bool> = "enabled" if "enabled given",
    };
    3 "stop" Stop reserved EpnId;
    4 "status" Status reserved EpnId;
    5 "restart" Restart { term: Term };
    6 "log" Log { after: u64 = "last line" };
}

wire_enum! {
    LogLevel: u8 = "log level", "log level", "1 (error), 2 (warn), 3 (info), 4 (debug) or 5 (trace)";
    1 "error" Error;
    2 "warn" Warn;
    3 "info" Info;
    4 "debug" Debug;
    5 "trace" Trace;
}

wire_enum! {
    Counter: u8 = "counter", "state of a counter", "0 (in step), 1 (behind) or 2 (ahead)";
    0 "in-step" InStep;
    1 "behind" Behind;
    2 "ahead" Ahead;
}

wire_enum! {
    Role: u8 = "role", "role", "1 (ICN), 2 (FLP), 3 (EPN), 4 (operator) or 5 (writer)";
    1 "ICN" Icn;
    2 "FLP" Flp;
    3 "EPN" Epn;
    4 "operator" Operator;
    5 "writer" Writer;
}

// Fields in the order of the wire, which need not be that of the struct.
wire_struct! {
    Hello {
        capacity_bytes: u64 = "capacity bytes",
        stf_bytes_max: u64 = "STF bytes max",
        slots: u32 = "slots",
        weight_milli: u32 = "weight",
        is_durable: bool = "durable",
        decided_tfs: u64 = "decided TFs",
        committed_end: TfId,
        nonce: u64 = "nonce",
        data_address: String = "data address",
    }
    LogLine { sequence: u64 = "sequence", at_unix_ns: u64 = "time of the line", level: LogLevel, text: String = "log line" }
    Announced { tf: TfId, bytes: u64 = "STF bytes" }
    Offered { tf: TfId, bytes: u64 = "STF bytes" }
    Skipped { tf: TfId, reason: DropReason }
    FlpPulse {
        held_stfs: u64 = "held STFs",
        held_bytes: u64 = "held bytes",
        made_stfs: u64 = "made STFs",
        sent_bytes: u64 = "sent bytes",
        released_version: u64 = "released version",
        started: bool = "started",
        elapsed_ns: u64 = "elapsed ns",
        epns_digest: u32 = "digest of EPNs",
        run_delay_ns: u64 = "run delay",
    }
    Position { first: TfId, counter: Counter, refused_stfs: u64 = "refused STFs" }
    Consumed {
        sink_bytes: u64 = "sink bytes",
        freed_bytes: u64 = "freed bytes",
        busy_ns: u64 = "busy ns",
    }
    EpnPulse {
        open_tfs: u64 = "open TFs",
        open_bytes: u64 = "open bytes",
        consumed: Consumed,
        delivered_tfs: u64 = "delivered TFs",
        received_bytes: u64 = "received bytes",
        duplicates_refused: u64 = "duplicates refused",
        digest_mismatches: u64 = "digest mismatches",
        released_version: u64 = "released version",
        storage_full: bool = "storage full",
        run_delay_ns: u64 = "run delay",
    }
    Built {
        tf: TfId,
        attempt: Attempt,
        bytes: u64 = "TF bytes",
        first_byte_age_ns: u64 = "first byte age",
        last_byte_age_ns: u64 = "last byte age",
        missing: Vec<FlpId> = "missing FLPs",
    }
    SlotHeld { tf: TfId, bytes: u64 = "slot bytes" }
    Welcome { pulse_ns: u64 = "pulse ns", stf_bytes_max: u64 = "STF bytes max" }
    Release { version: u64 = "release version", floor: TfId, ranges: Vec<(TfId, TfId)> = "released ranges" }
    Start { first: TfId, end: TfId, elapsed_ns: u64 = "elapsed ns", origin: TfId }
    EpnAddress { target: Target, address: String = "EPN address" }
    Commit { tf: TfId, is_redelivered: bool = "redelivered", missing: Vec<FlpId> = "missing FLPs" }
    Recover {
        tf: TfId,
        incarnation: Incarnation,
        missing: Vec<FlpId> = "missing FLPs",
        parts: Vec<FlpId> = "FLPs with a part",
    }
    Absent { tf: TfId, flps: Vec<FlpId> = "missing FLPs" }
    Assign { tf: TfId, attempt: Attempt, target: Target, roster: RosterId }
    TfCopy { run: RunId, tf: TfId, attempt: Attempt, copy: u32 = "copy" }
    WriterHello { writer: u16 = "writer index", epn: Target, nonce: u64 = "nonce" }
    Record {
        copy: TfCopy,
        is_redelivered: bool = "redelivered",
        is_held: bool = "held",
        is_committed: bool = "committed",
        may_be_here: bool = "may be here",
        parts: u32 = "STFs",
        bytes: u64 = "TF bytes",
        missing: Vec<FlpId> = "missing FLPs",
        elsewhere: Vec<u16> = "other writers",
    }
    WriterWelcome {
        incarnation: Incarnation,
        window_bytes: u64 = "window bytes",
        window_tfs: u32 = "window TFs",
        pulse_ns: u64 = "pulse ns",
    }
    WriterPulse {
        queued_tfs: u64 = "queued TFs",
        queued_bytes: u64 = "queued bytes",
        capacity_bytes: u64 = "capacity bytes",
        is_full: bool = "full",
        is_leaving: bool = "leaving",
        run_delay_ns: u64 = "run delay",
    }
    WrittenTf { copy: TfCopy, streams: Vec<StreamFate> = "fates in streams" }
    StreamFate { stream: String = "stream", shed: String = "reason of shedding", refused: String = "refusal" }
    Move { copy: TfCopy, from: u16 = "writer before" }
    HeldTf {
        copy: TfCopy,
        incarnation: Incarnation,
        parts: Vec<HeldPart> = "held STFs",
        missing: Vec<FlpId> = "missing FLPs",
        is_published: bool = "published",
        streams: Vec<StreamFate> = "fates in streams",
    }
    HeldPart { source: Source, bytes: u64 = "STF bytes", digest: u32 = "digest" }
}

impl Envelope {
    fn write(&self, out: &mut Writer<'_>) {
        RunId::write(&self.run, out);
        Incarnation::write(&self.incarnation, out);
        Term::write(&self.term, out);
        out.u64(self.sequence);
        Role::write(&self.sender.role, out);
        // Builds before minor version 1 wrote 0 here, and did not look at it.
        out.u8(self.minor);
        out.u16(self.sender.index);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let run = RunId::read(input, Name::NONE)?;
        let incarnation = Incarnation::read(input, Name::NONE)?;
        let term = Term::read(input, Name::NONE)?;
        let sequence = input.u64("sequence")?;
        let role = Role::read(input, Name::NONE)?;
        let minor = input.u8("minor version")?;
        let index = input.u16("node index")?;
        Ok(Self {
            run,
            sender: NodeId { role, index },
            minor,
            incarnation,
            term,
            sequence,
        })
    }
}

impl Control {
    /// Returns the minor version of the protocol that brought the message: nodes of a lower one do not know it, and it
    /// is not sent to them.
    #[must_use]
    pub fn since(&self) -> u8 {
        match self {
            Self::Log(_) | Self::Order(Order::Log { .. }) => version::LOG,
            _ => version::MINOR_FIRST,
        }
    }

    /// Returns the bytes of the message behind `envelope`: the head of a control frame.
    ///
    /// Senders split lists above [`ENTRIES_MAX`](Self::ENTRIES_MAX), which no receiver takes.
    #[must_use]
    pub fn encode(&self, envelope: &Envelope) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(96);
        let mut out = Writer::new(&mut bytes);
        envelope.write(&mut out);
        Self::write(self, &mut out);
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
        let envelope = Envelope::read(&mut input)?;
        let control = Self::read(&mut input, Name::NONE)?;
        input.end(control.name())?;
        Ok((envelope, control))
    }

    /// Returns the name in logs, such as `"announce"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind_name()
    }

    /// Returns a message of every kind and form, for test vectors and fuzz seeds.
    #[must_use]
    pub fn samples() -> Vec<Self> {
        <Self as Kinds>::samples()
    }

    /// Returns the layouts of all messages in the order of their numbers, for `docs/reference/protocol.md`.
    #[must_use]
    pub fn layouts() -> Vec<Layout> {
        <Self as Kinds>::layouts()
    }
}

#[cfg(test)]
mod tests;
