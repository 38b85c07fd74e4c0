//! Lines of the event logs: observations of each process, one JSON object a line.
//!
//! Nodes write them (`sheaf_node::event`), `sheaf_audit` reads them. Schema and examples:
//! `docs/reference/events.md`.

use serde::{Deserialize, Serialize};

/// One line of an event log. Schema: `docs/reference/events.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// First line of each life of a process.
    Begin {
        /// Name of the node: `icn:0`, `flp:2`, …
        node: String,
        /// Life of the node.
        incarnation: u64,
    },
    /// FLP: it makes STFs for this run from now on. ICN: it opened the run.
    Run {
        /// 16 hexadecimal digits.
        run: String,
    },
    /// FLP: an STF was made, its digest taken.
    Made {
        /// The TF.
        tf: u64,
        /// Payload bytes.
        bytes: u64,
        /// CRC-32C at the source.
        digest: u32,
    },
    /// FLP: no STF of this TF will be made.
    Skipped {
        /// The TF.
        tf: u64,
        /// Name of a drop reason.
        reason: String,
    },
    /// FLP: an STF was handed to the stream to an EPN.
    Sent {
        /// The TF.
        tf: u64,
        /// The term of the ICN that gave the assignment; 0 in logs of one term.
        #[serde(default, skip_serializing_if = "is_zero")]
        term: u64,
        /// The assignment obeyed.
        attempt: u32,
        /// The EPN.
        epn: u16,
        /// Life of the EPN.
        incarnation: u64,
    },
    /// EPN: a TF was delivered to the consumer.
    Delivered {
        /// The TF.
        tf: u64,
        /// The assignment built.
        attempt: u32,
        /// The STFs in it.
        parts: Vec<PartEvent>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
    },
    /// EPN: a TF that a former life of it had stored, and that is committed to that life, is visible now, or was found
    /// so: that life may have died before it wrote the line.
    Recovered {
        /// The TF.
        tf: u64,
        /// The life that the verdict names.
        incarnation: u64,
        /// The assignment built.
        attempt: u32,
        /// The STFs in it, their digests computed from the file.
        parts: Vec<PartEvent>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
    },
    /// EPN: the consumer found a fault in a TF that was delivered to it.
    Fault {
        /// The TF.
        tf: u64,
        /// The fault.
        detail: String,
    },
    /// ICN: it leads from now on. The content of the log is written again behind this line.
    Leads {
        /// The term.
        term: u64,
    },
    /// ICN: it leads no longer, and its decisions have no effect any more.
    Deposed {
        /// The highest term known to the ICN.
        term: u64,
        /// Reason, as the ICN learned it.
        why: String,
    },
    /// ICN: from a TF on, these FLPs make a TF whole. Replaces earlier ones with the same or a later `first`.
    Roster {
        /// Name of the roster in assignments.
        roster: u32,
        /// First TF of the roster.
        first: u64,
        /// The FLPs.
        members: Vec<MemberEvent>,
    },
    /// ICN: a TF exists from now on (paced mode: it was called for).
    Called {
        /// The TF.
        tf: u64,
    },
    /// ICN: the verdict on a TF is durable.
    Verdict {
        /// The TF.
        tf: u64,
        /// `complete`, `incomplete` or `dropped`.
        verdict: String,
        /// The EPN that built it.
        epn: Option<u16>,
        /// Life of that EPN.
        incarnation: Option<u64>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
        /// Reason of the drop.
        reason: Option<String>,
    },
    /// ICN: the EPN died before it acknowledged; amends the verdict.
    Abandoned {
        /// The TF.
        tf: u64,
    },
    /// ICN: every TF of the run is decided and done.
    Over,
    /// The process ends in order; last line of a life that was not cut short.
    End,
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
