//! One entry of a log: its term and index, and a body that holds the records of one append or a piece of them.
//!
//! An append is all or none. When its records do not fit one entry, all pieces but the last announce that more follows,
//! and a reader holds them back until the last one has come: pieces of a leader that dies in the middle are never read.

use bytes::Bytes;
use sheaf_protocol::{DecodeError, Record, Term};
use thiserror::Error;

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The term of the leader that appended it.
    pub term: Term,
    /// Index of the entry, from 1, without gaps.
    pub index: u64,
    /// Kind (1 byte), number of records (4 bytes), records; at least [`HEAD_BYTES`](Self::HEAD_BYTES).
    pub body: Bytes,
}

/// Kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// No record: the no-op entry that a leader appends at the begin of its term.
    NoOp,
    /// The records of an append, or the last piece of them.
    Whole,
    /// A piece of an append; more follows in the next entry.
    Piece,
}

/// Reason why bytes are no body of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// Too short for a head or too long for a message.
    #[error(
        "entry body of {found} bytes, expected {} to {}",
        Entry::HEAD_BYTES,
        Entry::BODY_BYTES_MAX
    )]
    Size {
        /// Bytes found.
        found: usize,
    },
    /// No kind of this version.
    #[error("kind of entry is {found}, expected 0 (no-op), 1 (whole) or 2 (piece)")]
    Kind {
        /// The code found.
        found: u8,
    },
    /// A record cannot be read.
    #[error("record {number} of an entry: {source}")]
    Record {
        /// Number of the record, from 0.
        number: usize,
        /// Fault of the record.
        source: DecodeError,
    },
    /// The number in the head is another one.
    #[error("entry states {stated} records and has {found}")]
    Count {
        /// Number in the head.
        stated: u32,
        /// Number of records that are there.
        found: usize,
    },
}

impl Entry {
    /// Bytes before the records.
    pub const HEAD_BYTES: usize = 5;
    /// Upper bound of a body. A record is far smaller, and half a message of the log has room for one.
    pub const BODY_BYTES_MAX: usize = 256 << 10;

    /// Returns the no-op entry at the begin of a term.
    #[must_use]
    pub fn no_op(term: Term, index: u64) -> Self {
        Self {
            term,
            index,
            body: Bytes::from_static(&[0; Self::HEAD_BYTES]),
        }
    }

    /// Returns the entries that `records` make, the first of them at `index`. There is always one.
    #[must_use]
    pub fn of(term: Term, mut index: u64, records: &[Record]) -> Vec<Self> {
        let mut entries = Vec::with_capacity(1);
        let mut body = vec![0; Self::HEAD_BYTES];
        let (mut count, mut one) = (0_u32, Vec::new());
        let close = |body: Vec<u8>, kind: u8, count: u32, index: u64| {
            let mut body = body;
            body[0] = kind;
            body[1..Self::HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
            Self {
                term,
                index,
                body: body.into(),
            }
        };
        for record in records {
            one.clear();
            record.encode_into(&mut one);
            if count > 0 && body.len() + one.len() > Self::BODY_BYTES_MAX {
                let full = std::mem::replace(&mut body, vec![0; Self::HEAD_BYTES]);
                entries.push(close(full, 2, count, index));
                (count, index) = (0, index + 1);
            }
            body.extend_from_slice(&one);
            count += 1;
        }
        entries.push(close(body, 1, count, index));
        entries
    }

    /// Returns the kind of the body.
    ///
    /// # Errors
    ///
    /// [`BodyError::Size`] and [`BodyError::Kind`].
    pub fn kind(&self) -> Result<BodyKind, BodyError> {
        let found = self.body.len();
        match self.body.first() {
            _ if !(Self::HEAD_BYTES..=Self::BODY_BYTES_MAX).contains(&found) => {
                Err(BodyError::Size { found })
            }
            Some(0) => Ok(BodyKind::NoOp),
            Some(1) => Ok(BodyKind::Whole),
            Some(2) => Ok(BodyKind::Piece),
            Some(found) => Err(BodyError::Kind { found: *found }),
            None => Err(BodyError::Size { found }),
        }
    }

    /// Returns whether a checkpoint begins with the entry, which is an append of its own.
    #[must_use]
    pub fn begins_checkpoint(&self) -> bool {
        let records = self.body.get(Self::HEAD_BYTES..).unwrap_or_default();
        !matches!(self.kind(), Ok(BodyKind::NoOp)) && Record::is_checkpoint_first(records)
    }

    /// Returns the number of records in the head of the body; 0 if there is no head.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        let count = self.body.get(1..Self::HEAD_BYTES);
        count.map_or(0, |bytes| {
            u64::from(u32::from_le_bytes(bytes.try_into().expect("4 of 5 bytes")))
        })
    }

    /// Returns the records of the body.
    ///
    /// # Errors
    ///
    /// [`BodyError`] names the fault; entries from a disk or a peer are checked in this way before they count.
    pub fn records(&self) -> Result<Vec<Record>, BodyError> {
        self.kind()?;
        let mut rest = &self.body[Self::HEAD_BYTES..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let number = records.len();
            let (record, behind) =
                Record::decode(rest).map_err(|source| BodyError::Record { number, source })?;
            records.push(record);
            rest = behind;
        }
        let stated = self.record_count();
        if stated != records.len() as u64 {
            return Err(BodyError::Count {
                stated: u32::try_from(stated).expect("read from 4 bytes"),
                found: records.len(),
            });
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;
    use sheaf_protocol::TfId;

    fn done(ranges: usize) -> Record {
        Record::Done {
            ranges: vec![(TfId(1), TfId(2)); ranges],
        }
    }

    fn read(entries: Vec<Entry>) -> Vec<(u64, Record)> {
        Records::new(entries.into_iter().map(Ok))
            .map(|read| read.expect("entries made here can be read"))
            .map(|(_, index, record)| (index, record))
            .collect()
    }

    #[test]
    fn what_does_not_fit_one_entry_is_cut_and_comes_back_whole() {
        let records = vec![
            done(Record::RANGES_MAX),
            done(Record::RANGES_MAX),
            Record::Over,
        ];
        let entries = Entry::of(Term(3), 7, &records);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].index, 8);
        let back: Vec<Record> = read(entries)
            .into_iter()
            .map(|(_, record)| record)
            .collect();
        assert_eq!(back, records);
    }

    #[test]
    fn pieces_without_their_end_are_nothing() {
        let records = vec![done(Record::RANGES_MAX); 2];
        let mut entries = Entry::of(Term(3), 1, &records);
        entries.truncate(1);
        assert!(read(entries.clone()).is_empty());
        entries.push(Entry::no_op(Term(4), 2));
        entries.extend(Entry::of(Term(4), 3, &[Record::Over]));
        assert_eq!(read(entries), [(3, Record::Over)]);
    }

    #[test]
    fn an_append_of_nothing_is_an_entry_of_nothing() {
        let entries = Entry::of(Term(1), 1, &[]);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].records(), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_body_is_named() {
        let check = |body: &'static [u8], expected: &str| {
            let entry = Entry {
                term: Term(1),
                index: 1,
                body: Bytes::from_static(body),
            };
            assert_eq!(entry.records().unwrap_err().to_string(), expected);
        };
        check(&[], "entry body of 0 bytes, expected 5 to 262144");
        check(
            &[3, 0, 0, 0, 0],
            "kind of entry is 3, expected 0 (no-op), 1 (whole) or 2 (piece)",
        );
        check(&[1, 2, 0, 0, 0, 9], "entry states 2 records and has 1");
        check(
            &[1, 1, 0, 0, 0, 6],
            "record 0 of an entry: message is cut: elapsed ns needs 8 bytes, 0 are left",
        );
    }
}
