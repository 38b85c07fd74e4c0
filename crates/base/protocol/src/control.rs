//! The control messages: all that ICN, FLPs, EPNs and writers send each other besides the bytes of STFs.
//!
//! Grouped by sender and receiver. A message either states a fact (a pulse, a release, a list of EPNs):
//! then a later one replaces it; or it is repeated until the answer comes (announce, built, commit): then
//! a duplicate is harmless. So no message needs a reply of its own kind, and any of them may be lost.
//! Layouts: `docs/reference/protocol.md`, section "Control messages".

mod handoff;
mod wire;

use crate::digest::Digest;
use crate::id::{
    Attempt, EpnId, FlpId, Incarnation, NodeId, RosterId, RunId, Source, Target, Term, TfId,
};
use crate::protect;
use crate::range_set::RangeSet;
use crate::reject::Code;
use crate::verdict::DropReason;
use bytes::Bytes;
pub use handoff::{
    HeldPart, HeldTf, Move, Record, StreamFate, TfCopy, WriterHello, WriterPulse, WriterWelcome,
    WrittenTf,
};

/// Sender, run and order of a control message, which stand before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The run that the message belongs to; zero before the sender knows one.
    pub run: RunId,
    /// Sender of the message.
    pub sender: NodeId,
    /// Minor version of the protocol that the sender speaks ([`version`](crate::version)).
    pub minor: u8,
    /// Which life of the sender.
    pub incarnation: Incarnation,
    /// The fencing epoch of the ICN that the sender follows, or is.
    pub term: Term,
    /// Counts up by one with each message of this life of the sender.
    pub sequence: u64,
}

/// One control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    // FLP or EPN → ICN
    /// First message on a stream: who joins and what it has.
    Hello(Hello),
    /// The sender wants to leave: nothing new for it; [`Dismissed`](Self::Dismissed) answers when it holds nothing.
    Leaving,
    /// Lines of the log of the sender's process, since minor version 1; also from an ICN to an ICN. The last ones
    /// are repeated on a new stream, and the receiver leaves out what it has.
    Log(Vec<LogLine>),

    // FLP → ICN
    /// STFs that the FLP holds.
    Announce(Vec<Announced>),
    /// TFs for which the FLP will never have an STF, and why.
    Skipped(Vec<Skipped>),
    /// Answers [`Stop`](Self::Stop): the FLP pauses; `next` is the first TF that it has not made.
    Stopped {
        /// The first TF not made.
        next: TfId,
    },
    /// The source is over: the FLP made what it could below `next` and will make nothing more.
    Ended {
        /// The first TF not made.
        next: TfId,
    },
    /// Sign of life, with the state of the sender.
    FlpPulse(FlpPulse),
    /// Where the source stands against the run.
    Position(Position),
    /// Answers [`Assign`](Self::Assign): an ICN has released these TFs, and the FLP has no STF of them any more.
    Released(Vec<TfId>),
    /// The FLP cannot reach this EPN's data address.
    Unreachable {
        /// The EPN that cannot be reached.
        target: Target,
    },

    // EPN → ICN
    /// TFs that the EPN has put together.
    Built(Vec<Built>),
    /// TFs that the EPN has delivered to its consumer.
    CommitAck {
        /// The TFs.
        tfs: Vec<TfId>,
        /// Work of the consumer so far, these TFs included.
        consumed: Consumed,
    },
    /// The payload of an STF arrived twice with the same digest, which is not the one stated.
    Corrupt {
        /// The TF.
        tf: TfId,
        /// The FLP whose STF it is.
        flp: FlpId,
    },
    /// Sign of life, with the state of the sender.
    EpnPulse(EpnPulse),
    /// TFs that former lives of the EPN have on disk, whole but not published. Repeated until each is answered by
    /// [`Recover`](Self::Recover) or [`Discard`](Self::Discard).
    Stored(Vec<TfId>),
    /// Answers [`Recover`](Self::Recover): these TFs are not on the disk of the EPN, under no name.
    NotStored(Vec<TfId>),
    /// Answers [`Recall`](Self::Recall): TFs that no consumer has been given and that the EPN will never deliver.
    Undelivered(Vec<TfId>),
    /// Parts of undecided TFs that the EPN has, said when it joins: an ICN that has just taken over goes on there.
    Slots(Vec<SlotHeld>),

    /// FLPs that have a data stream open to the EPN. Replaces the list before it.
    Sources(Vec<Source>),
    /// The consumer has finished with TFs since the last acknowledgement that told of its work.
    Freed(Consumed),

    // FLP → EPN, on a data stream
    /// STFs that are assigned to the EPN and wait here until it asks for them with [`Grant`](Self::Grant). Replaces
    /// what was offered of the same TFs before.
    Offer(Vec<Offered>),
    /// Answers [`Grant`](Self::Grant): of these TFs nothing will come on this stream unless it is offered again.
    Withdrawn(Vec<TfId>),

    // EPN → FLP, on a data stream
    /// Send what you have offered of these TFs.
    Grant(Vec<TfId>),

    // EPN → writer, on a stream of its own
    /// First message on a stream to a writer: who hands TFs over.
    WriterHello(WriterHello),
    /// A TF follows: as many STF frames as it has parts, with nothing between them.
    Record(Record),
    /// Copies of TFs that are not to count, as a later copy is elsewhere: all with a lower number. Repeated until
    /// each is answered by [`Voided`](Self::Voided).
    Void(Vec<TfCopy>),
    /// Answers [`Moves`](Self::Moves): earlier copies of these TFs do not count any more.
    Settled(Vec<Move>),
    /// TFs that were stored before they were committed, and are committed now. Repeated on each new stream until each
    /// is answered by [`Published`](Self::Published).
    Publish(Vec<TfCopy>),

    // Writer → EPN
    /// Answers [`WriterHello`](Self::WriterHello).
    WriterWelcome(WriterWelcome),
    /// Sign of life, with the state of the writer.
    WriterPulse(WriterPulse),
    /// TFs that are written as the durability of the writer demands.
    Written(Vec<WrittenTf>),
    /// Answers [`Void`](Self::Void): lower copies of these TFs do not count at the writer.
    Voided(Vec<TfCopy>),
    /// Copies that the writer has of TFs with earlier copies at other writers, where they may still count. Repeated
    /// until answered by [`Settled`](Self::Settled).
    Moves(Vec<Move>),
    /// TFs that former lives of the EPN have stored at the writer before they were committed, with those that were
    /// published lately. An empty list ends them.
    Held(Vec<HeldTf>),
    /// Answers [`Publish`](Self::Publish): these TFs count.
    Published(Vec<TfCopy>),

    // any → any
    /// Rejection of a frame that the receiver sent. The stream is closed behind it, or goes on if that does no harm.
    Rejected {
        /// Why; the table is in docs/reference/codes.md.
        code: Code,
        /// Value found and value expected.
        detail: String,
    },

    // any → ICN
    /// The sender follows the ICN of the envelope's term, which is higher than that of the message it answers.
    Fenced,
    /// From an ICN to an ICN: a message of the verdict log, which the log alone understands.
    Ledger(Bytes),
    /// From an operator.
    Order(Order),

    // ICN → any, EPN → FLP on a data stream
    /// First message on an accepted stream: the hello has to repeat the nonce, which no other stream has. So a record
    /// of a stream is not taken for the node that it was made of.
    Challenge {
        /// Random number.
        nonce: u64,
    },

    // ICN → any
    /// Answers [`Hello`](Self::Hello): this ICN does not lead. It keeps the stream, and welcomes when it leads.
    Standby,
    /// Answers [`Order`](Self::Order).
    Answer {
        /// Whether the order is carried out.
        done: bool,
        /// Result, or the reason why the order is not carried out.
        detail: String,
    },
    /// Part of the answer to [`Order::Status`], the status of the farm as JSON (`docs/reference/status.md`), or to
    /// [`Order::Log`].
    Status {
        /// Parts behind this one.
        left: u32,
        /// Bytes of the text.
        part: Bytes,
    },

    // ICN → FLP and EPN
    /// Answers [`Hello`](Self::Hello): the sender belongs to the run of the envelope.
    Welcome(Welcome),
    /// Answers [`Hello`](Self::Hello): the sender may not join. It exits with this text.
    Refused {
        /// Reason, for the log.
        detail: String,
        /// Lowest incarnation with which it may join, for a node whose clock was set back; 0: none.
        incarnation_min: u64,
    },
    /// All TFs that are decided and done: holds, slots and tombstones may go.
    Release(Release),
    /// Sign of life, with the time of the run.
    IcnPulse {
        /// Time since the first TF of the run was due, in ns; 0 before the run has begun.
        elapsed_ns: u64,
        /// Longest run delay of the ICN lately, in ns ([`FlpPulse::run_delay_ns`]).
        run_delay_ns: u64,
    },
    /// The sender of [`Leaving`](Self::Leaving) may go, or the run is over for all.
    Dismissed,

    // ICN → FLP
    /// Begin to make TFs.
    Start(Start),
    /// Make these TFs now (paced mode: the heartbeat of the farm).
    Pace(Vec<TfId>),
    /// Pause, and say how far you are.
    Stop,
    /// Make every TF below `next`, then end.
    StopAt {
        /// The first TF that is not to be made.
        next: TfId,
    },
    /// All EPNs and where they listen. Connect to these, leave all others.
    Epns(Vec<EpnAddress>),

    // ICN → EPN
    /// Sources whose STFs make a TF whole.
    Roster {
        /// The name by which assignments call this roster.
        id: RosterId,
        /// The sources, by FLP id.
        members: Vec<Source>,
    },
    /// This life of an FLP is over: what it has not sent will not come.
    SourceGone {
        /// The source.
        source: Source,
        /// The latest roster when it was sent: a later one that names the source revokes it.
        roster: RosterId,
    },
    /// A source that was said to be gone is back in the same life.
    SourceBack {
        /// The source.
        source: Source,
        /// The latest roster when it was sent: it revokes no notice that was sent after a later one.
        roster: RosterId,
    },
    /// Order to deliver these TFs, with exactly the parts that are not missing.
    Commit(Vec<Commit>),
    /// Give these committed TFs back unless a consumer has them. Repeated until each is acknowledged as delivered, or
    /// answered by [`Undelivered`](Self::Undelivered).
    Recall(Vec<TfId>),
    /// FLPs that have no STF of a TF and never will.
    Absent(Vec<Absent>),
    /// Publish these TFs, which a former life of the EPN has stored and which are committed to it. Repeated until
    /// acknowledged as a commit is, or answered by [`NotStored`](Self::NotStored).
    Recover(Vec<Recover>),
    /// Remove what former lives of the EPN have stored of these TFs: they are not committed to it.
    Discard(Vec<TfId>),

    // ICN → FLPs and the EPN
    /// Which EPN builds which TF.
    Assign(Vec<Assign>),
}

/// Address and resources of a node that joins, and the newest facts of the verdict log that it knows.
///
/// An ICN whose log lacks these facts has an old copy of it: run and term of the envelope, TFs decided, TFs committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Where an EPN listens for STFs; empty for an FLP.
    pub data_address: String,
    /// Bytes that an EPN can hold for TFs in building and with its consumer; for an FLP its hold.
    pub capacity_bytes: u64,
    /// TFs that an EPN builds at the same time; STFs that an FLP holds.
    pub slots: u32,
    /// Largest STF that an FLP will announce; 0 for an EPN.
    pub stf_bytes_max: u64,
    /// Share of the work relative to other EPNs, in thousandths; 1000 is usual.
    pub weight_milli: u32,
    /// Whether what an EPN reports as built is on its disk: a later life of it can still hand it on.
    pub is_durable: bool,
    /// TFs of the envelope's run that the sender knows to be decided ([`Release::decided_tfs`]).
    pub decided_tfs: u64,
    /// The first TF above all that were committed to the sender in the envelope's run; 0 if none was.
    pub committed_end: TfId,
    /// Number of the stream's [`Challenge`](Control::Challenge).
    pub nonce: u64,
}

/// One STF that an FLP holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The TF.
    pub tf: TfId,
    /// Payload bytes.
    pub bytes: u64,
}

/// One STF that an EPN may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The TF.
    pub tf: TfId,
    /// Payload bytes.
    pub bytes: u64,
}

/// One TF for which an FLP has no STF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The TF.
    pub tf: TfId,
    /// Why there is none.
    pub reason: DropReason,
}

/// Position of an FLP's source against the run: where it can begin, or how its counter of TF ids went astray.
///
/// An FLP sends it when it joins and knows it, when it changes, and repeats it until the run has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// First TF that the source can give from now on; 0 if the source gives any.
    pub first: TfId,
    /// State of the counter.
    pub counter: Counter,
    /// STFs of the source that the FLP has refused since the process began.
    pub refused_stfs: u64,
}

/// State of a source's counter of TF ids against the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counter {
    /// The next id is one that the run takes.
    #[default]
    InStep,
    /// The ids have gone back: STFs are refused until the counter has passed what it gave before.
    Behind,
    /// The ids lie too far ahead of the run: STFs are refused until the run gets there.
    Ahead,
}

impl Counter {
    /// Returns the name in status views and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InStep => "in-step",
            Self::Behind => "behind",
            Self::Ahead => "ahead",
        }
    }
}

/// State of an FLP, sent with every pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlpPulse {
    /// STFs held, and TFs skipped, that the FLP does not know the fate of.
    pub held_stfs: u64,
    /// Bytes held.
    pub held_bytes: u64,
    /// STFs made since the process began.
    pub made_stfs: u64,
    /// Payload bytes passed to the network since the process began, repeats included.
    pub sent_bytes: u64,
    /// The newest [`Release`] applied.
    pub released_version: u64,
    /// Whether a [`Start`] was received.
    pub started: bool,
    /// Time since the first TF of the run was due as the FLP has it, in ns; 0 before it was started.
    pub elapsed_ns: u64,
    /// [`digest_of_targets`] of the EPNs that it knows. The ICN says them again as long as that is
    /// another one than its own.
    pub epns_digest: u32,
    /// Longest time lately, between two pulses, for which the event loop was ready to run and had no processor, in ns.
    /// The sender may be silent for as long again.
    pub run_delay_ns: u64,
}

/// Returns what two nodes compare to know whether they have the same list of EPNs. Give `targets` in ascending order;
/// of none it is 0.
#[must_use]
pub fn digest_of_targets(targets: impl IntoIterator<Item = Target>) -> u32 {
    let mut digest = Digest::default();
    for target in targets {
        digest.update(&target.epn.0.to_le_bytes());
        digest.update(&target.incarnation.0.to_le_bytes());
    }
    digest.value()
}

/// Work of the consumer of an EPN so far: sent with acknowledgements, when it has finished with a TF, and with every
/// pulse.
///
/// The sums only grow. The bytes and the time between two reports are the pace at which the consumer works, whatever
/// the time between the reports was, and however long it had nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Bytes with the consumer, those that wait for it included.
    pub sink_bytes: u64,
    /// Bytes of the TFs that it has finished with since the process began.
    pub freed_bytes: u64,
    /// Time for which it had something to do, up to the last TF that it has finished with, in ns.
    pub busy_ns: u64,
}

/// State of an EPN, sent with every pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpnPulse {
    /// TFs in building.
    pub open_tfs: u64,
    /// Bytes of them.
    pub open_bytes: u64,
    /// Bytes with the consumer, and its work so far.
    pub consumed: Consumed,
    /// TFs delivered since the process began.
    pub delivered_tfs: u64,
    /// Payload bytes received since the process began, refused ones included.
    pub received_bytes: u64,
    /// STFs refused because they were here already.
    pub duplicates_refused: u64,
    /// STFs whose bytes did not have the stated digest.
    pub digest_mismatches: u64,
    /// The newest [`Release`] applied.
    pub released_version: u64,
    /// The storage behind the EPN takes nothing now: it is full, or fails. The EPN can take no TF.
    pub storage_full: bool,
    /// Longest run delay of the EPN lately, in ns ([`FlpPulse::run_delay_ns`]).
    pub run_delay_ns: u64,
}

/// One TF that an EPN has put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The TF.
    pub tf: TfId,
    /// The latest assignment of it that the EPN knows.
    pub attempt: Attempt,
    /// FLPs of the roster whose STF is not there.
    pub missing: Vec<FlpId>,
    /// Payload bytes of the parts.
    pub bytes: u64,
    /// Age of the first byte, in ns.
    pub first_byte_age_ns: u64,
    /// Age of the last byte, in ns.
    pub last_byte_age_ns: u64,
}

/// Parts of one TF that an EPN has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHeld {
    /// The TF.
    pub tf: TfId,
    /// Payload bytes of the parts.
    pub bytes: u64,
}

/// Order of an operator to a running farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Answer with the state of the farm in one line; changes nothing.
    Report,
    /// The EPN gets nothing new and is dismissed when it holds nothing of the run.
    Drain {
        /// The EPN.
        epn: EpnId,
    },
    /// Change what the EPN gets; `None` leaves as it is.
    Set {
        /// The EPN.
        epn: EpnId,
        /// Share of the work in thousandths.
        weight_milli: Option<u32>,
        /// Whether it gets anything new.
        enabled: Option<bool>,
    },
    /// The sources stop, the farm drains, the run ends.
    Stop,
    /// Answer with the whole status, by [`Status`](Control::Status); changes nothing.
    Status,
    /// The process of the ICN that leads in `term` begins its next life, and the run is kept. A leader of a later term
    /// has nothing to do.
    Restart {
        /// Term of the leader.
        term: Term,
    },
    /// Answer with lines of the logs of all nodes, by [`Status`](Control::Status); changes nothing. Since minor
    /// version 1.
    Log {
        /// Number of the last line of this leader that the operator has; 0: none.
        after: u64,
    },
}

/// Level of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Data is or may be lost, or the node cannot go on.
    Error,
    /// Something is not as it should be, and the node goes on.
    Warn,
    /// An event of the node.
    Info,
    /// A detail for a search for errors.
    Debug,
    /// Everything else.
    Trace,
}

impl LogLevel {
    /// All levels, the gravest first.
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// Returns the name in farm files and on the command line, such as `"warn"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        crate::wire::Kinds::kind_name(&self)
    }
}

/// One line of the log of a node's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counts up by one with each line of the process, from 1.
    pub sequence: u64,
    /// When it was logged, in ns since 1970-01-01 UTC on the clock of its machine.
    pub at_unix_ns: u64,
    /// Level.
    pub level: LogLevel,
    /// Message and fields, without control characters, at most [`Control::TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

/// The terms on which a node has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Period of pulses, in ns.
    pub pulse_ns: u64,
    /// Largest STF that the farm takes, in bytes.
    pub stf_bytes_max: u64,
}

/// All decided TFs, as a floor and ranges above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Counts up whenever the set grows.
    pub version: u64,
    /// Every TF below is decided.
    pub floor: TfId,
    /// Decided ranges above the floor: first TF and first TF behind.
    pub ranges: Vec<(TfId, TfId)>,
}

/// When and where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first TF to make.
    pub first: TfId,
    /// The first TF not to make; `u64::MAX` for no end.
    pub end: TfId,
    /// Time since the first TF of the run was due, in ns: an FLP that joins late falls into step with the others.
    pub elapsed_ns: u64,
    /// The first TF of the run, which was due when it began.
    pub origin: TfId,
}

/// One EPN and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpnAddress {
    /// Which life of which EPN.
    pub target: Target,
    /// Data address, such as `10.0.0.7:7100`.
    pub address: String,
}

/// Commit of one TF, which the EPN may then deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The TF.
    pub tf: TfId,
    /// Whether the TF was committed to another life of an EPN before, which died before it acknowledged. The mark goes
    /// with the TF to the consumer, which may have it already.
    pub is_redelivered: bool,
    /// FLPs of the roster without a part in it.
    pub missing: Vec<FlpId>,
}

/// TF that is committed to a former life of an EPN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recover {
    /// The TF.
    pub tf: TfId,
    /// The life of the EPN that the verdict names.
    pub incarnation: Incarnation,
    /// FLPs of the roster without a part in it.
    pub missing: Vec<FlpId>,
    /// FLPs of the roster with a part in it. The file may have been written with an older roster, and list FLPs as
    /// missing that are no members any more.
    pub parts: Vec<FlpId>,
}

/// The FLPs of a TF's roster that have no STF of it and never will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The TF.
    pub tf: TfId,
    /// The FLPs.
    pub flps: Vec<FlpId>,
}

/// One decision: this EPN builds this TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign {
    /// The TF.
    pub tf: TfId,
    /// Which assignment of it; a higher one replaces a lower one.
    pub attempt: Attempt,
    /// The EPN.
    pub target: Target,
    /// Sources whose STFs make the TF whole.
    pub roster: RosterId,
}

impl Control {
    /// Most entries of any list in a message. Senders split longer ones.
    pub const ENTRIES_MAX: usize = crate::wire::ENTRIES_MAX;
    /// Longest text in a message, in bytes.
    pub const TEXT_BYTES_MAX: usize = crate::wire::TEXT_BYTES_MAX;
    /// Largest message of the verdict log between two ICNs, in bytes.
    pub const LEDGER_BYTES_MAX: usize = crate::wire::BLOB_BYTES_MAX;
}

impl Release {
    /// Version `version` of `decided`, with as many of its ranges as a message takes; the floor moves on, and the
    /// others follow.
    #[must_use]
    pub fn of(version: u64, decided: &RangeSet) -> Self {
        let ranges = decided.ranges().take(Control::ENTRIES_MAX).collect();
        Self {
            version,
            floor: decided.floor(),
            ranges,
        }
    }

    /// Returns how many TFs it names as decided.
    #[must_use]
    pub fn decided_tfs(&self) -> u64 {
        let in_ranges = |sum: u64, (first, end): &(TfId, TfId)| {
            sum.saturating_add(end.0.saturating_sub(first.0))
        };
        self.ranges.iter().fold(self.floor.0, in_ranges)
    }

    /// Puts all decided TFs into `decided`.
    pub fn add_to(&self, decided: &mut RangeSet) {
        decided.raise_floor(protect!(ExactFloor, self.floor, else self.floor.next()));
        for (first, end) in &self.ranges {
            decided.insert_range(*first, *end);
        }
    }
}

impl EpnAddress {
    /// Returns the EPN without its incarnation.
    #[must_use]
    pub fn epn(&self) -> EpnId {
        self.target.epn
    }
}
