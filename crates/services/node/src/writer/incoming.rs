//! TFs that come in on the streams of EPNs: a record, and then its STFs.

use super::WriterNode;
use bytes::Bytes;
use sheaf_protocol::control::{HeldPart, Record};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{Part, StfHeader, Target, Tf, Timestamp, crc32c};
use sheaf_transport::{ConnId, Frame, Transport};
use sheaf_write::Received;

/// A TF whose STFs come in.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) record: Record,
    pub(super) parts: Vec<Part<Bytes>>,
    /// Payload bytes of these.
    pub(super) bytes: u64,
}

/// Stream of an EPN.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Set from its hello on.
    pub(super) epn: Option<Target>,
    pub(super) arriving: Option<Arriving>,
}

/// STFs of a TF: one of each FLP, whose numbers have 16 bits.
const PARTS_MAX: u32 = 1 << 16;

impl<T: Transport> WriterNode<T> {
    pub(super) fn handle_record(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        epn: Target,
        record: Record,
    ) {
        if record.bytes > self.welcome.window_bytes {
            let detail = format!(
                "found a TF of {} bytes, the window has {}",
                record.bytes, self.welcome.window_bytes
            );
            return self.reject(now, conn, Code::TooBig, &detail);
        }
        if record.parts > PARTS_MAX {
            let detail = format!(
                "found {} STFs, at most {PARTS_MAX} FLPs have one",
                record.parts
            );
            return self.reject(now, conn, Code::TooBig, &detail);
        }
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let is_whole = record.parts == 0;
        peer.arriving = Some(Arriving {
            record,
            parts: Vec::new(),
            bytes: 0,
        });
        if is_whole {
            self.complete(now, conn, epn);
        }
    }

    pub(super) fn handle_stf(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        frame: Frame,
        digest: Option<u32>,
    ) {
        let bytes = frame.body.len() as u64;
        let header = match StfHeader::decode(&frame.head, bytes) {
            Ok(header) => header,
            Err(error) => {
                return self.reject(now, conn, Code::BadMessage, &error.to_string());
            }
        };
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let (Some(epn), Some(arriving)) = (peer.epn, &mut peer.arriving) else {
            return self.reject(now, conn, Code::NotJoined, "an STF without a record");
        };
        let copy = arriving.record.copy;
        let of = (header.key.run, header.key.tf, header.attempt);
        if of != (copy.run, copy.tf, copy.attempt) {
            let detail = format!(
                "an STF of TF {} in the record of TF {}",
                header.key.tf, copy.tf
            );
            return self.reject(now, conn, Code::WrongStream, &detail);
        }
        let digest = digest.unwrap_or_else(|| crc32c(&frame.body));
        if digest != header.digest {
            let (tf, stated) = (header.key.tf, header.digest);
            let detail = format!("TF {tf} has CRC-32C {digest:08x}, stated is {stated:08x}");
            return self.reject(now, conn, Code::BadDigest, &detail);
        }
        arriving.bytes += bytes;
        let (found, stated) = (arriving.bytes, arriving.record.bytes);
        if found > stated {
            let detail = format!("STFs of {found} bytes, their record says {stated}");
            return self.reject(now, conn, Code::BadMessage, &detail);
        }
        arriving.parts.push(Part {
            source: header.key.source,
            format: header.format,
            digest,
            bytes,
            payload: frame.body,
        });
        if arriving.parts.len() == arriving.record.parts as usize {
            self.complete(now, conn, epn);
        }
    }

    /// Takes a TF whose STFs are all here.
    fn complete(&mut self, now: Timestamp, conn: ConnId, epn: Target) {
        let arriving = self
            .peers
            .get_mut(&conn)
            .and_then(|peer| peer.arriving.take());
        let Some(Arriving {
            record,
            parts,
            bytes,
        }) = arriving
        else {
            return;
        };
        if bytes != record.bytes {
            let detail = format!("a TF of {bytes} bytes, its record says {}", record.bytes);
            return self.reject(now, conn, Code::BadMessage, &detail);
        }
        self.counts.tfs += 1;
        self.counts.bytes += bytes;
        let held = || {
            let part = |part: &Part<Bytes>| HeldPart {
                source: part.source,
                bytes: part.bytes,
                digest: part.digest,
            };
            parts.iter().map(part).collect()
        };
        let may_be_here = match self.receipts.handle_record(conn, epn, &record, held) {
            Received::Write => false,
            Received::WriteMissing => true,
            Received::Known => {
                self.counts.again += 1;
                return;
            }
            Received::Stale => return,
        };
        let tf = Tf {
            run: record.copy.run,
            tf: record.copy.tf,
            attempt: record.copy.attempt,
            is_redelivered: record.is_redelivered,
            parts,
            missing: record.missing,
        };
        self.queued_bytes += bytes;
        self.waiting.push_back((tf, may_be_here));
    }
}
