//! Messages between EPNs and writer nodes: TFs that are handed over, and what became of them.

use crate::id::{Attempt, FlpId, Incarnation, RunId, Source, Target, TfId};

/// One TF as it was handed to a writer. A TF that goes to another writer, because the one before has not acknowledged
/// it, gets the next number; the highest number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TfCopy {
    /// The run.
    pub run: RunId,
    /// The TF.
    pub tf: TfId,
    /// The assignment that it was built for.
    pub attempt: Attempt,
    /// Number of the copy, from 0.
    pub copy: u32,
}

/// Sender and receiver of TFs that are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterHello {
    /// Index of the writer that the EPN means.
    pub writer: u16,
    /// The EPN.
    pub epn: Target,
    /// Number of the stream's [`Challenge`](super::Control::Challenge).
    pub nonce: u64,
}

/// One TF that is handed to a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which copy of which TF.
    pub copy: TfCopy,
    /// Whether another EPN may have handed it over before.
    pub is_redelivered: bool,
    /// Whether it is stored before it is committed: [`Publish`](super::Control::Publish) or
    /// [`Void`](super::Control::Void) follows.
    pub is_held: bool,
    /// Whether it was stored at another writer, which is gone, and committed.
    pub is_committed: bool,
    /// Whether the writer, in this or a former life, may have it already.
    pub may_be_here: bool,
    /// STFs that follow.
    pub parts: u32,
    /// Payload bytes of them.
    pub bytes: u64,
    /// FLPs of the roster without a part.
    pub missing: Vec<FlpId>,
    /// Other writers that may have an earlier copy.
    pub elsewhere: Vec<u16>,
}

/// Bounds of what an EPN may have at a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterWelcome {
    /// Life of the writer.
    pub incarnation: Incarnation,
    /// Payload bytes that may be with the writer without an acknowledgement.
    pub window_bytes: u64,
    /// TFs that may be with it.
    pub window_tfs: u32,
    /// Period of pulses, in ns.
    pub pulse_ns: u64,
}

/// State of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterPulse {
    /// TFs that wait to be written, of all EPNs.
    pub queued_tfs: u64,
    /// Payload bytes of them.
    pub queued_bytes: u64,
    /// Payload bytes that all windows allow together.
    pub capacity_bytes: u64,
    /// Whether the disks take nothing now: what waits for them can go to another writer.
    pub is_full: bool,
    /// Whether the writer is asked to end: it writes what it has, and takes nothing new.
    pub is_leaving: bool,
    /// Longest run delay of the writer lately, in ns ([`FlpPulse::run_delay_ns`](super::FlpPulse::run_delay_ns)).
    pub run_delay_ns: u64,
}

/// One TF that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenTf {
    /// Which copy of which TF.
    pub copy: TfCopy,
    /// Fate in each stream that was to have something of it.
    pub streams: Vec<StreamFate>,
}

/// Fate of a TF in a stream of files: written, if neither text says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFate {
    /// Name of the stream.
    pub stream: String,
    /// Why it was shed; empty if it was not.
    pub shed: String,
    /// Why it was refused; empty if it was not.
    pub refused: String,
}

/// A copy of a TF that replaces earlier ones at another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The copy that counts.
    pub copy: TfCopy,
    /// Writer with an earlier copy.
    pub from: u16,
}

/// TF that a former life of an EPN has stored at a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTf {
    /// Which copy of which TF.
    pub copy: TfCopy,
    /// The life of the EPN.
    pub incarnation: Incarnation,
    /// STFs of the TF.
    pub parts: Vec<HeldPart>,
    /// FLPs of the roster without a part.
    pub missing: Vec<FlpId>,
    /// Whether the writer has published it: it counts, and is not to be revoked.
    pub is_published: bool,
    /// Fate in each stream that was to have something of it.
    pub streams: Vec<StreamFate>,
}

/// One STF of a stored TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// The source.
    pub source: Source,
    /// Payload bytes.
    pub bytes: u64,
    /// CRC-32C of the payload.
    pub digest: u32,
}
