//! Lines of the event logs: observations of each process, one JSON object a line.
//!
//! Nodes write them (`sheaf_node::event`), `sheaf_audit` reads them. Schema and examples:
//! `docs/reference/events.md`.

use serde::{Deserialize, Serialize};

/// Registration of an event, for the reference page.
#[derive(Clone, Copy, Debug)]
pub struct EventKind {
    /// Value of `event` in a line.
    pub name: &'static str,
    /// Roles that write it.
    pub of: &'static str,
    /// Lines of the description.
    pub about: &'static [&'static str],
    /// Name and description of each field.
    pub fields: &'static [(&'static str, &'static str)],
}

/// Defines [`Event`] from its table: variant, name in a line, roles that write it, and fields. `unless "is_zero"` leaves
/// a field out of lines where it is 0.
macro_rules! events {
    ($(
        $(#[doc = $about:literal])+
        $variant:ident = $name:literal of $of:literal $({
            $(#[doc = $doc:literal] $field:ident: $type:ty $(, unless $skip:literal)?;)+
        })?
    )+) => {
        /// One line of an event log. Schema: `docs/reference/events.md`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "event")]
        pub enum Event {
            $(
                $(#[doc = $about])+
                #[serde(rename = $name)]
                $variant $({
                    $(
                        #[doc = $doc]
                        $(#[serde(default, skip_serializing_if = $skip)])?
                        $field: $type,
                    )+
                })?,
            )+
        }

        impl Event {
            /// All events, in the order of the reference page.
            pub const KINDS: &'static [EventKind] = &[
                $(EventKind {
                    name: $name,
                    of: $of,
                    about: &[$($about),+],
                    fields: &[$($((stringify!($field), $doc)),+)?],
                },)+
            ];
        }
    };
}

events! {
    /// A process begins; first line of each life.
    Begin = "begin" of "all" {
        /// Name of the node: `icn:0`, `flp:2`, …
        node: String;
        /// Life of the node.
        incarnation: u64;
    }
    /// The FLP makes STFs for this run from now on; the ICN opened the run, or goes on with it.
    Run = "run" of "FLP, ICN" {
        /// 16 hexadecimal digits.
        run: String;
    }
    /// An STF was made and its digest taken.
    Made = "made" of "FLP" {
        /// The TF.
        tf: u64;
        /// Payload bytes.
        bytes: u64;
        /// CRC-32C at the source.
        digest: u32;
    }
    /// No STF of this TF will be made.
    Skipped = "skipped" of "FLP" {
        /// The TF.
        tf: u64;
        /// Name of a drop reason.
        reason: String;
    }
    /// An STF of the source was refused; it counts nowhere else.
    Refused = "refused" of "FLP" {
        /// The TF that the source gave.
        tf: u64;
        /// `before_first`, `behind`, `ahead`, `not_running` or `after_end`.
        reason: String;
    }
    /// An STF was passed to the stream to an EPN.
    Sent = "sent" of "FLP" {
        /// The TF.
        tf: u64;
        /// The term of the ICN that gave the assignment; left out if 0, as in logs of one term.
        term: u64, unless "is_zero";
        /// The assignment obeyed.
        attempt: u32;
        /// The EPN.
        epn: u16;
        /// Life of the EPN.
        incarnation: u64;
    }
    /// A TF was delivered to the consumer, which has taken it, or the sink has done its own work on it.
    Delivered = "delivered" of "EPN" {
        /// The TF.
        tf: u64;
        /// The assignment built.
        attempt: u32;
        /// Whether it is marked: an EPN that died may have delivered it before. Left out if not.
        redelivered: bool, unless "is_false";
        /// The STFs in it.
        parts: Vec<PartEvent>;
        /// FLPs without an STF in it.
        missing: Vec<u16>;
        /// The TF as the sink `stf-file` wrote it: `bytes`, `digest` (CRC-32C). Left out by other sinks.
        file: Option<FileEvent>, unless "Option::is_none";
        /// Fate in each stream of the sink `streams`: `stream`, and `shed` or `refused`: why no file of it has it.
        streams: Vec<StreamEvent>, unless "Vec::is_empty";
        /// Whether the consumer works on it now: `freed` follows when it has finished. Left out if not.
        held: bool, unless "is_false";
    }
    /// A consumer has finished with a TF that it held.
    Freed = "freed" of "EPN" {
        /// The TF.
        tf: u64;
    }
    /// Ack level `processed`: the consumer that held the TF has died, and another one has taken it.
    TakenAgain = "taken-again" of "EPN" {
        /// The TF.
        tf: u64;
    }
    /// Ack level `stored`: a TF that a former life had stored, and that is committed to that life, is visible now, or
    /// was found so: that life may have died before it wrote the line.
    Recovered = "recovered" of "EPN" {
        /// The TF.
        tf: u64;
        /// The former life, which the verdict names.
        incarnation: u64;
        /// The assignment built.
        attempt: u32;
        /// The STFs in it, their digests computed from the file.
        parts: Vec<PartEvent>;
        /// FLPs without an STF in it.
        missing: Vec<u16>;
        /// Fate in each stream, of a TF at a writer node.
        streams: Vec<StreamEvent>, unless "Vec::is_empty";
    }
    /// The consumer found a fault in a TF that was delivered to it.
    Fault = "fault" of "EPN" {
        /// The TF.
        tf: u64;
        /// The fault.
        detail: String;
    }
    /// The ICN leads from now on; the content of the verdict log, which begins at the last checkpoint, is written again
    /// behind this line.
    Leads = "leads" of "ICN" {
        /// The term.
        term: u64;
    }
    /// The ICN leads no longer, and its decisions have no effect any more.
    Deposed = "deposed" of "ICN" {
        /// The highest term known to the ICN.
        term: u64;
        /// Reason, as the ICN learned it.
        why: String;
    }
    /// The ids of the sources begin behind these TFs, or have gone on behind them: they are no TFs of the run.
    Passed = "passed" of "ICN" {
        /// The first TF passed over.
        first: u64;
        /// The first TF behind.
        end: u64;
    }
    /// From a TF on, these FLPs make a TF whole. Replaces earlier rosters with the same or a later `first`.
    Roster = "roster" of "ICN" {
        /// Name of the roster in assignments.
        roster: u32;
        /// First TF of the roster.
        first: u64;
        /// The FLPs: `flp`, `incarnation`.
        members: Vec<MemberEvent>;
    }
    /// A TF exists from now on (paced mode: it was called for).
    Called = "called" of "ICN" {
        /// The TF.
        tf: u64;
    }
    /// The verdict on a TF is durable.
    Verdict = "verdict" of "ICN" {
        /// The TF.
        tf: u64;
        /// `complete`, `incomplete` or `dropped`.
        verdict: String;
        /// The EPN that built it.
        epn: Option<u16>;
        /// Life of that EPN.
        incarnation: Option<u64>;
        /// FLPs without an STF in it.
        missing: Vec<u16>;
        /// Reason of the drop.
        reason: Option<String>;
    }
    /// The EPN of the verdict died before it acknowledged, and another EPN has built the TF; amends the verdict.
    /// Delivered with a mark.
    Redelivered = "redelivered" of "ICN" {
        /// The TF.
        tf: u64;
        /// `complete` or `incomplete`.
        verdict: String;
        /// The EPN that built it.
        epn: u16;
        /// Life of that EPN.
        incarnation: u64;
        /// FLPs without an STF in it.
        missing: Vec<u16>;
    }
    /// The EPN died before it acknowledged; amends the verdict.
    Abandoned = "abandoned" of "ICN" {
        /// The TF.
        tf: u64;
    }
    /// No consumer took a committed TF, and its EPN gave it back; of the ICN, amends the verdict to dropped.
    Undelivered = "undelivered" of "EPN, ICN" {
        /// The TF.
        tf: u64;
    }
    /// Every TF of the run is decided and done.
    Over = "over" of "ICN"
    /// The event log goes on from an earlier file; first line of each file but the first.
    Continued = "continued" of "all" {
        /// Number of the file in its series; the first, which has no such line, is 1.
        part: u64;
    }
    /// The event log goes on in a later file; last line of each file but the last.
    Rotated = "rotated" of "all" {
        /// Number of the file that ends here.
        part: u64;
    }
    /// The process ends in order; last line of a life that was not cut short.
    End = "end" of "all"
}

/// One STF of a delivered TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEvent {
    /// The FLP that made the STF.
    pub flp: u16,
    /// Life of the FLP.
    pub incarnation: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// CRC-32C computed from the bytes received.
    pub digest: u32,
}

/// A TF as it stands in a file of DataDistribution, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEvent {
    /// Bytes of the TF.
    pub bytes: u64,
    /// CRC-32C of these, computed as they are written.
    pub digest: u32,
}

/// Fate of a TF, or of the part of it that a stream was to have, in one stream. Without a reason it is in a file of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamEvent {
    /// Name of the stream.
    pub stream: String,
    /// Reason why it was shed, one of [`SHED_REASONS`](Self::SHED_REASONS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shed: Option<String>,
    /// Reason why its writer refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl StreamEvent {
    /// Reasons for which a stream is shed: the queue, the free space, or the disks.
    pub const SHED_REASONS: [&'static str; 3] = ["queue", "space", "disk"];

    /// Returns whether the TF is in a file of the stream.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.shed.is_none() && self.refused.is_none()
    }
}

/// One FLP of a roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEvent {
    /// The FLP.
    pub flp: u16,
    /// Life of the FLP.
    pub incarnation: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(term: &u64) -> bool {
    *term == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_term_is_of_term_0_and_is_written_back_without() {
        let line = r#"{"event":"sent","tf":3,"attempt":1,"epn":2,"incarnation":7}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
        let Event::Sent { term, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!(term, 0);
    }

    #[test]
    fn every_documented_event_can_be_read() {
        let page = include_str!("../../../../docs/reference/events.md");
        let examples: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("{\"event\""))
            .collect();
        for example in &examples {
            let event: Event = serde_json::from_str(example).unwrap();
            let (fields, _) = example.split_once(",\"at_ns\":").unwrap();
            assert_eq!(
                serde_json::to_string(&event).unwrap(),
                format!("{fields}}}")
            );
        }
        assert!(examples.len() >= 4, "{examples:?}");
    }
}
