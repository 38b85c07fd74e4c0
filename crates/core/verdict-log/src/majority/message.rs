//! Messages between the members of a majority, and their bytes.
//!
//! Little-endian, without padding: version (1 byte), kind (1), term of the sender (8), then the fields in the order
//! of the table below. Bytes that are no message change nothing.

use crate::entry::{BodyError, Entry};
use bytes::Bytes;
use sheaf_protocol::{Control, Term};
use thiserror::Error;

/// The version of these messages.
const VERSION: u8 = 1;
/// Bytes of an entry in a message beside its body: term and length.
const ENTRY_BYTES: usize = 12;
/// Bytes of an [`Append`](Message::Append) without its entries.
const APPEND_BYTES: usize = 2 + 8 + 8 + 8 + 8 + 8 + 4;
/// Upper bound of terms and indexes, beyond the work of years: no message may push a log to where counting ends.
const NUMBER_MAX: u64 = 1 << 56;

/// Message of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request for a vote.
    AskVote {
        /// The term to lead in.
        term: Term,
        /// Whether this is a pre-vote: a question that changes nothing at the other side.
        is_pre_vote: bool,
        /// Index of the last entry of the candidate.
        last_index: u64,
        /// Term of that entry.
        last_term: Term,
    },
    /// Answer to a request for a vote.
    Vote {
        /// The term of the voter.
        term: Term,
        /// The term of the request.
        asked: Term,
        /// As in the request.
        is_pre_vote: bool,
        /// Whether the vote is granted.
        is_granted: bool,
    },
    /// Entries from the leader; without entries, a pulse.
    Append {
        /// The leader's term.
        term: Term,
        /// Number of the leader's message; the answer has the same.
        round: u64,
        /// The index before the first entry.
        previous_index: u64,
        /// The term of the entry there.
        previous_term: Term,
        /// Index up to which everything is committed.
        commit: u64,
        /// The entries, one after the other.
        entries: Vec<Entry>,
    },
    /// Answer to entries.
    Appended {
        /// The term of the follower.
        term: Term,
        /// Round of the message that is answered last.
        round: u64,
        /// Index up to which the follower has the leader's log on its disk, or else from which the leader should go on.
        outcome: Result<u64, u64>,
    },
    /// Request of a leader that leaves: campaign at once.
    Campaign {
        /// The leader's term.
        term: Term,
    },
    /// Question of a blank member for the state of another.
    AskState {
        /// The term of the sender.
        term: Term,
        /// Number drawn in each life.
        nonce: u64,
    },
    /// Answer to the question for the state.
    State {
        /// The term of the sender.
        term: Term,
        /// As in the question.
        nonce: u64,
        /// The last entry of the sender.
        last_index: u64,
        /// Whether the sender leads in this term.
        is_leader: bool,
    },
    /// Order to install the leader's log: the leader has no entry any more that this follower lacks, so the follower
    /// throws its log away and goes on behind the entry before the checkpoint that the leader's log begins with. The
    /// answer is [`Appended`](Self::Appended).
    Install {
        /// The leader's term.
        term: Term,
        /// As in [`Append`](Self::Append).
        round: u64,
        /// The entry before the first one of the leader's log, which is committed.
        base_index: u64,
        /// The term of that entry.
        base_term: Term,
    },
}

/// Reason why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The bytes end inside a field.
    #[error("ledger message is cut: {what} needs {needed} bytes, {left} are left")]
    Cut {
        /// The field.
        what: &'static str,
        /// Size of the field.
        needed: usize,
        /// Bytes left.
        left: usize,
    },
    /// More bytes than fields.
    #[error("{left} bytes are left over behind a ledger message")]
    Trailing {
        /// Number of further bytes.
        left: usize,
    },
    /// A field has an impossible value.
    #[error("{what} of a ledger message is {found}, expected {expected}")]
    Value {
        /// The field.
        what: &'static str,
        /// The value.
        found: u64,
        /// The possible values.
        expected: &'static str,
    },
    /// An entry holds no records.
    #[error("entry {number} of a ledger message: {source}")]
    Body {
        /// Number of the entry, from 0.
        number: usize,
        /// Fault of the entry.
        source: BodyError,
    },
}

/// Declares the kinds of messages: number, variant, and the fields behind the term, each with its form on the wire and
/// its name in errors. Encoder and decoder follow.
macro_rules! messages {
    ($($number:literal $variant:ident { $($field:ident: $form:ty = $what:literal),* };)*) => {
        impl Message {
            /// Returns the term of the sender.
            #[must_use]
            pub fn term(&self) -> Term {
                match self {
                    $(Self::$variant { term, .. })|* => *term,
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { term, $($field),* } => {
                        out.push($number);
                        <Term as Form>::write(term, out);
                        $(<$form as Form>::write($field, out);)*
                    })*
                }
            }

            fn read(input: &mut Input<'_>) -> Result<Self, MessageError> {
                let kind = input.u8("kind")?;
                let term = <Term as Form>::read(input, "term")?;
                Ok(match kind {
                    $($number => {
                        $(let $field = <$form as Form>::read(input, $what)?;)*
                        Self::$variant { term, $($field),* }
                    })*
                    found => return Err(value("kind", found.into(), "1 to 8")),
                })
            }
        }
    };
}

// A number is never given out twice.
messages! {
    1 AskVote { is_pre_vote: bool = "pre-vote", last_index: Index = "last index", last_term: Term = "last term" };
    2 Vote { asked: Term = "asked term", is_pre_vote: bool = "pre-vote", is_granted: bool = "granted" };
    3 Append {
        round: u64 = "round",
        previous_index: Index = "previous index",
        previous_term: Term = "previous term",
        commit: Index = "commit",
        entries: Entries = "entries"
    };
    4 Appended { round: u64 = "round", outcome: Outcome = "outcome" };
    5 Campaign {};
    6 AskState { nonce: u64 = "nonce" };
    7 State { nonce: u64 = "nonce", last_index: Index = "last index", is_leader: bool = "leader" };
    8 Install { round: u64 = "round", base_index: Index = "base index", base_term: Term = "base term" };
}

impl Message {
    /// Bytes of entries, with 16 for each beside its body, that fit one message.
    pub const ENTRIES_BYTES_MAX: usize = Control::LEDGER_BYTES_MAX - APPEND_BYTES;

    /// Returns the bytes of the message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        self.write(&mut out);
        out.into()
    }

    /// Reads a message that fills `bytes` exactly. Nothing is allocated beyond the bytes that are there.
    ///
    /// # Errors
    ///
    /// [`MessageError`] names the first field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut input = Input(bytes);
        let version = input.u8("version")?;
        if version != VERSION {
            return Err(value("version", version.into(), "1"));
        }
        let message = Self::read(&mut input)?.checked()?;
        match input.0.len() {
            0 => Ok(message),
            left => Err(MessageError::Trailing { left }),
        }
    }

    /// Checks what concerns several fields, and gives entries their indexes.
    fn checked(mut self) -> Result<Self, MessageError> {
        match &mut self {
            Self::Install {
                term, base_term, ..
            } if *base_term > *term => {
                let expected = "not above the leader's";
                return Err(value("base term", base_term.0, expected));
            }
            Self::Append {
                term,
                previous_index,
                previous_term,
                entries,
                ..
            } => {
                let mut newest = *previous_term;
                for (number, entry) in entries.iter_mut().enumerate() {
                    if entry.term < newest || entry.term > *term {
                        let expected = "not below the one before nor above the leader's";
                        return Err(value("term of an entry", entry.term.0, expected));
                    }
                    newest = entry.term;
                    entry.index = *previous_index + 1 + number as u64;
                    // An entry that cannot be replayed must not get into a log.
                    let records = entry.records();
                    records.map_err(|source| MessageError::Body { number, source })?;
                }
            }
            _ => {}
        }
        Ok(self)
    }
}

fn value(what: &'static str, found: u64, expected: &'static str) -> MessageError {
    MessageError::Value {
        what,
        found,
        expected,
    }
}

/// Rest of the bytes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, what: &'static str, needed: usize) -> Result<&'a [u8], MessageError> {
        let left = self.0.len();
        let (head, rest) =
            self.0
                .split_at_checked(needed)
                .ok_or(MessageError::Cut { what, needed, left })?;
        self.0 = rest;
        Ok(head)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, MessageError> {
        Ok(self.take(what, 1)?[0])
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, MessageError> {
        let bytes = self.take(what, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, MessageError> {
        let bytes = self.take(what, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }
}

/// Form of a field on the wire.
trait Form {
    /// The field in memory.
    type Value;

    fn write(value: &Self::Value, out: &mut Vec<u8>);

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self::Value, MessageError>;
}

/// Any number.
impl Form for u64 {
    type Value = Self;

    fn write(value: &Self, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self, MessageError> {
        input.u64(what)
    }
}

/// One byte, 0 or 1.
impl Form for bool {
    type Value = Self;

    fn write(value: &Self, out: &mut Vec<u8>) {
        out.push(u8::from(*value));
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self, MessageError> {
        match input.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(value(what, found.into(), "0 or 1")),
        }
    }
}

/// Number of an entry, at most [`NUMBER_MAX`].
struct Index;

impl Form for Index {
    type Value = u64;

    fn write(value: &u64, out: &mut Vec<u8>) {
        u64::write(value, out);
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<u64, MessageError> {
        match input.u64(what)? {
            index if index <= NUMBER_MAX => Ok(index),
            found => Err(value(what, found, "at most 2^56")),
        }
    }
}

/// A term, at most [`NUMBER_MAX`].
impl Form for Term {
    type Value = Self;

    fn write(value: &Self, out: &mut Vec<u8>) {
        u64::write(&value.0, out);
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self, MessageError> {
        Index::read(input, what).map(Self)
    }
}

/// A flag (1: ok), and an index.
struct Outcome;

impl Form for Outcome {
    type Value = Result<u64, u64>;

    fn write(value: &Self::Value, out: &mut Vec<u8>) {
        bool::write(&value.is_ok(), out);
        u64::write(&value.unwrap_or_else(|hint| hint), out);
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self::Value, MessageError> {
        let is_ok = bool::read(input, what)?;
        let index = Index::read(input, "index")?;
        Ok(if is_ok { Ok(index) } else { Err(index) })
    }
}

/// A number of entries (u32), each as its term, the length of its body (u32) and the body. Indexes follow from the
/// message.
struct Entries;

impl Form for Entries {
    type Value = Vec<Entry>;

    fn write(entries: &Self::Value, out: &mut Vec<u8>) {
        let bodies: usize = entries.iter().map(|entry| entry.body.len()).sum();
        out.reserve(4 + entries.len() * ENTRY_BYTES + bodies);
        let count = u32::try_from(entries.len()).expect("a message is capped at 512 KiB");
        out.extend_from_slice(&count.to_le_bytes());
        for entry in entries {
            Term::write(&entry.term, out);
            let length = u32::try_from(entry.body.len()).expect("bodies are capped");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&entry.body);
        }
    }

    fn read(input: &mut Input<'_>, what: &'static str) -> Result<Self::Value, MessageError> {
        let count = input.u32(what)? as usize;
        let needed = count.saturating_mul(ENTRY_BYTES + Entry::HEAD_BYTES);
        let left = input.0.len();
        if needed > left {
            return Err(MessageError::Cut { what, needed, left });
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let term = Term::read(input, "term of an entry")?;
            let length = input.u32("length of an entry")? as usize;
            let body = Bytes::copy_from_slice(input.take("entry", length)?);
            entries.push(Entry {
                term,
                index: 0,
                body,
            });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::Record;

    fn one_of_each() -> Vec<Message> {
        let term = Term(7);
        let mut entries = Entry::of(Term(6), 4, &[Record::Over]);
        entries.push(Entry::no_op(term, 5));
        vec![
            Message::AskVote {
                term,
                is_pre_vote: true,
                last_index: 3,
                last_term: Term(2),
            },
            Message::Vote {
                term,
                asked: Term(8),
                is_pre_vote: false,
                is_granted: true,
            },
            Message::Append {
                term,
                round: 9,
                previous_index: 3,
                previous_term: Term(2),
                commit: 1,
                entries,
            },
            Message::Appended {
                term,
                round: 9,
                outcome: Ok(5),
            },
            Message::Appended {
                term,
                round: 9,
                outcome: Err(2),
            },
            Message::Campaign { term },
            Message::AskState {
                term,
                nonce: u64::MAX,
            },
            Message::State {
                term,
                nonce: 1,
                last_index: 2,
                is_leader: true,
            },
            Message::Install {
                term,
                round: 9,
                base_index: 40,
                base_term: Term(6),
            },
        ]
    }

    #[test]
    fn every_message_is_read_back_and_a_cut_one_is_named() {
        for message in one_of_each() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message.clone()));
            for cut in 0..bytes.len() {
                let error = Message::decode(&bytes[..cut]).unwrap_err();
                assert!(
                    matches!(error, MessageError::Cut { .. }),
                    "{message:?} at {cut}: {error}"
                );
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(
                Message::decode(&longer),
                Err(MessageError::Trailing { left: 1 })
            );
        }
    }

    #[test]
    fn what_is_no_message_is_named() {
        let check = |message: &Message, at: usize, to: u8, expected: &str| {
            let mut bytes = message.encode().to_vec();
            bytes[at] = to;
            assert_eq!(Message::decode(&bytes).unwrap_err().to_string(), expected);
        };
        let all = one_of_each();
        check(
            &all[0],
            0,
            2,
            "version of a ledger message is 2, expected 1",
        );
        check(
            &all[0],
            1,
            9,
            "kind of a ledger message is 9, expected 1 to 8",
        );
        check(
            &all[0],
            9,
            1,
            "term of a ledger message is 72057594037927943, expected at most 2^56",
        );
        check(
            &all[0],
            10,
            2,
            "pre-vote of a ledger message is 2, expected 0 or 1",
        );
        check(
            &all[8],
            26,
            8,
            "base term of a ledger message is 8, expected not above the leader's",
        );
        check(
            &all[2],
            46,
            8,
            "term of an entry of a ledger message is 8, expected not below the one before nor above the leader's",
        );
        check(
            &all[2],
            58,
            3,
            "entry 0 of a ledger message: kind of entry is 3, expected 0 (no-op), 1 (whole) or 2 (piece)",
        );
        check(
            &all[2],
            45,
            1,
            "ledger message is cut: entries needs 285212706 bytes, 35 are left",
        );
    }
}
