//! Messages of ZeroMQ as STFs: how each says which TF it is of. Layouts: `docs/how-to/zmq.md`.

use super::ZmqSource;
use crate::source::feed::Fed;
use crate::source::record::{RecordError, RecordHeader};
use crate::zmq::o2_balancer::{O2Data, O2Error};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_protocol::{PayloadFormat, Stf, TfId};
use sheaf_zmtp::Message;
use thiserror::Error;

/// How a message of a producer says which TF it is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqFraming {
    /// A record of `docs/reference/feed.md`: a head of 24 bytes, then the payload.
    #[default]
    Record,
    /// A part with the TF id, then the payload.
    TfId,
    /// A part of 24 bytes as O2-Balancer2 has it, then the payload.
    O2Balancer,
    /// No id: the whole message is payload, and each message is the next TF.
    Count,
}

/// Format of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StfFormat {
    /// Bytes without structure.
    #[default]
    Opaque,
    /// ALICE raw-data pages.
    Rdh,
    /// KM3NeT records.
    Km3net,
    /// LCLS-II datagrams.
    Xtc2,
    /// TFs of files of DataDistribution, with their O2 headers.
    O2Blocks,
}

impl From<StfFormat> for PayloadFormat {
    fn from(format: StfFormat) -> Self {
        match format {
            StfFormat::Opaque => Self::Opaque,
            StfFormat::Rdh => Self::RdhPages,
            StfFormat::Km3net => Self::Km3netRecords,
            StfFormat::Xtc2 => Self::Xtc2Datagrams,
            StfFormat::O2Blocks => Self::O2Blocks,
        }
    }
}

/// Why a message is no STF. The next one is looked at all the same.
#[derive(Debug, Error)]
pub enum FramingError {
    /// First part that is no head of a record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// First part that is too short for the head of a record.
    #[error(
        "first part has {found} bytes, expected at least {}, the head of a record",
        RecordHeader::SIZE
    )]
    RecordCut {
        /// Bytes found.
        found: usize,
    },
    /// The head of its record states another size.
    #[error("record states a payload of {stated} bytes, the message has {found}")]
    RecordBytes {
        /// Value in the head.
        stated: u64,
        /// Value found.
        found: u64,
    },
    /// There is a TF id, and no payload.
    #[error("message has one part, expected two: what says the TF, and the payload")]
    NoPayload,
    /// The TF id is no number of a size that is read.
    #[error("TF id has {found} bytes, expected 4 or 8")]
    IdBytes {
        /// Bytes found.
        found: usize,
    },
    /// First part that is no header of O2-Balancer2.
    #[error(transparent)]
    O2Balancer(#[from] O2Error),
    /// List of channels instead of data.
    #[error("message configures channels, expected data")]
    Configures,
    /// Message from before the run.
    #[error("TF has the number {found}, expected at least {first} (flp.source.first_tf)")]
    BeforeFirst {
        /// The number found.
        found: u64,
        /// The first one.
        first: u64,
    },
}

impl FramingError {
    /// A short name for metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Record(_) | Self::RecordCut { .. } => "record",
            Self::RecordBytes { .. } => "record-bytes",
            Self::NoPayload => "no-payload",
            Self::IdBytes { .. } => "id-bytes",
            Self::O2Balancer(_) => "o2-balancer",
            Self::Configures => "configures",
            Self::BeforeFirst { .. } => "before-first",
        }
    }
}

/// How messages are read.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    kind: ZmqFraming,
    format: PayloadFormat,
    first_tf: u64,
}

impl Framing {
    /// Bytes of a message beside its payload at most.
    pub const HEAD_BYTES_MAX: u64 = RecordHeader::SIZE as u64;

    /// As a farm file says.
    #[must_use]
    pub fn new(source: &ZmqSource) -> Self {
        Self {
            kind: source.framing,
            format: source.format.into(),
            first_tf: source.first_tf,
        }
    }

    /// The STF of a message. A payload in one part is not copied.
    ///
    /// # Errors
    ///
    /// [`FramingError`] if it is none.
    pub fn read(&self, message: &Message) -> Result<Fed, FramingError> {
        let (number, format, payload) = match self.kind {
            ZmqFraming::Record => record(message)?,
            ZmqFraming::TfId => {
                let (id, payload) = id_and_payload(message)?;
                (tf_id(id)?, self.format, payload)
            }
            ZmqFraming::O2Balancer => {
                let (head, payload) = id_and_payload(message)?;
                let head = O2Data::decode(head)?;
                if head.configures {
                    return Err(FramingError::Configures);
                }
                (head.heartbeat, self.format, payload)
            }
            ZmqFraming::Count => {
                let stf = Stf::new(TfId(0), self.format, message.joined(0));
                return Ok(Fed::Counted(stf));
            }
        };
        let Some(tf) = number.checked_sub(self.first_tf) else {
            return Err(FramingError::BeforeFirst {
                found: number,
                first: self.first_tf,
            });
        };
        Ok(Fed::Stf(Stf::new(TfId(tf), format, payload)))
    }
}

/// A message has a first part.
fn first(message: &Message) -> Bytes {
    message.parts().first().cloned().unwrap_or_default()
}

fn id_and_payload(message: &Message) -> Result<(&[u8], Bytes), FramingError> {
    match message.parts() {
        [id, _, ..] => Ok((id, message.joined(1))),
        _ => Err(FramingError::NoPayload),
    }
}

fn tf_id(id: &[u8]) -> Result<u64, FramingError> {
    if let Ok(bytes) = id.try_into() {
        return Ok(u64::from_le_bytes(bytes));
    }
    let bytes = id
        .try_into()
        .map_err(|_| FramingError::IdBytes { found: id.len() })?;
    Ok(u32::from_le_bytes(bytes).into())
}

/// The head stands at the start of the first part; what is behind it there and in all other parts is payload.
fn record(message: &Message) -> Result<(u64, PayloadFormat, Bytes), FramingError> {
    let first = first(message);
    let Some(head) = first.first_chunk() else {
        return Err(FramingError::RecordCut { found: first.len() });
    };
    let head = RecordHeader::decode(head)?;
    let begun = first.slice(RecordHeader::SIZE..);
    let payload = match (begun.is_empty(), message.parts().len()) {
        (true, _) => message.joined(1),
        (false, 1) => begun,
        (false, _) => message.joined(0).slice(RecordHeader::SIZE..),
    };
    let found = payload.len() as u64;
    if found != head.payload_bytes {
        return Err(FramingError::RecordBytes {
            stated: head.payload_bytes,
            found,
        });
    }
    Ok((head.tf.0, head.format, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StfFormat;

    fn framing(kind: ZmqFraming, first_tf: u64) -> Framing {
        Framing::new(&ZmqSource {
            framing: kind,
            format: StfFormat::Xtc2,
            first_tf,
            ..ZmqSource::default()
        })
    }

    fn message(parts: &[&[u8]]) -> Message {
        let parts = parts.iter().map(|part| Bytes::copy_from_slice(part));
        Message::new(parts.collect())
    }

    /// Returns TF, format and payload of `parts`, or the reason of a refusal.
    #[track_caller]
    fn check(framing: Framing, parts: &[&[u8]], expected: &str) {
        let found = match framing.read(&message(parts)) {
            Ok(Fed::Stf(stf)) => format!(
                "{} {:?} {}",
                stf.tf.0,
                stf.format,
                String::from_utf8_lossy(&stf.payload)
            ),
            Ok(Fed::Counted(stf)) => {
                format!(
                    "next {:?} {}",
                    stf.format,
                    String::from_utf8_lossy(&stf.payload)
                )
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => format!("{}: {error}", error.code()),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_record_may_be_cut_into_parts_behind_its_head() {
        let head = RecordHeader {
            format: PayloadFormat::RdhPages,
            tf: TfId(7),
            payload_bytes: 4,
        };
        let head = head.encode();
        let framing = framing(ZmqFraming::Record, 2);
        let good = "5 RdhPages abcd";
        check(framing, &[&head, b"abcd"], good);
        check(framing, &[&head, b"ab", b"", b"cd"], good);
        check(framing, &[&[&head[..], b"abcd"].concat()], good);
        check(framing, &[&[&head[..], b"a"].concat(), b"bcd"], good);
        check(
            framing,
            &[&head],
            "record-bytes: record states a payload of 4 bytes, the message has 0",
        );
        check(
            framing,
            &[&head[..23], b"abcd"],
            "record: first part has 23 bytes, expected at least 24, the head of a record",
        );
        check(
            framing,
            &[&[b'x'; 24], b"abcd"],
            "record: record starts with [78, 78, 78, 78], expected [53, 54, 46, 46] (\"STFF\")",
        );
    }

    #[test]
    fn a_tf_id_is_a_part_of_its_own() {
        let framing = framing(ZmqFraming::TfId, 1);
        check(framing, &[b"\x03\0\0\0", b"ab"], "2 Xtc2Datagrams ab");
        check(
            framing,
            &[&(1_u64 << 40).to_le_bytes(), b"a", b"b"],
            "1099511627775 Xtc2Datagrams ab",
        );
        check(framing, &[b"\x01\0\0\0", b""], "0 Xtc2Datagrams ");
        check(
            framing,
            &[b"\0\0\0\0", b"ab"],
            "before-first: TF has the number 0, expected at least 1 (flp.source.first_tf)",
        );
        check(
            framing,
            &[b"\x03\0", b"ab"],
            "id-bytes: TF id has 2 bytes, expected 4 or 8",
        );
        check(
            framing,
            &[b"\x03\0\0\0"],
            "no-payload: message has one part, expected two: what says the TF, and the payload",
        );
    }

    #[test]
    fn o2_balancer_says_it_in_24_bytes() {
        let framing = framing(ZmqFraming::O2Balancer, 0);
        let mut head = O2Data {
            heartbeat: 9,
            channel: 1,
            configures: false,
        };
        check(framing, &[&head.encode(), b"aaaa"], "9 Xtc2Datagrams aaaa");
        check(
            framing,
            &[&[0; 16], b"aaaa"],
            "o2-balancer: O2Data has 16 bytes, expected 24",
        );
        head.configures = true;
        check(
            framing,
            &[&head.encode(), &[0; 24]],
            "configures: message configures channels, expected data",
        );
    }

    #[test]
    fn without_an_id_all_parts_are_payload() {
        let framing = framing(ZmqFraming::Count, 5);
        check(framing, &[b"ab", b"c"], "next Xtc2Datagrams abc");
        check(framing, &[b""], "next Xtc2Datagrams ");
    }
}
