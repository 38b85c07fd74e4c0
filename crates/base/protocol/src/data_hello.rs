//! The first frame of a data stream: which FLP it comes from, and which EPN it means.

use crate::codec::{DecodeError, Reader, Writer};
use crate::id::{EpnId, FlpId, Incarnation, RunId, Source, Target};

/// Names both ends of a data stream. Layout: `docs/reference/protocol.md`, section "Data hello".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHello {
    /// The run that the FLP makes STFs for.
    pub run: RunId,
    /// FLP that sends on the stream.
    pub source: Source,
    /// EPN that is addressed. An EPN that has restarted at the same address refuses the stream of its predecessor.
    pub target: Target,
    /// Number of the stream's [`Challenge`](crate::Control::Challenge).
    pub nonce: u64,
}

impl DataHello {
    /// Returns the bytes of the head of a data hello frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(36);
        let mut out = Writer::new(&mut bytes);
        out.u64(self.run.0);
        out.u16(self.source.flp.0);
        out.u16(self.target.epn.0);
        out.u64(self.source.incarnation.0);
        out.u64(self.target.incarnation.0);
        out.u64(self.nonce);
        bytes
    }

    /// Reads the head of a data hello frame.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] unless it is exactly 36 bytes.
    pub fn decode(head: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(head);
        let run = RunId(input.u64("run")?);
        let flp = FlpId(input.u16("FLP id")?);
        let epn = EpnId(input.u16("EPN id")?);
        let source = Source {
            flp,
            incarnation: Incarnation(input.u64("FLP incarnation")?),
        };
        let target = Target {
            epn,
            incarnation: Incarnation(input.u64("EPN incarnation")?),
        };
        let nonce = input.u64("nonce")?;
        input.end("data hello")?;
        Ok(Self {
            run,
            source,
            target,
            nonce,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_hello_survives_the_wire_and_a_cut_one_does_not() {
        let hello = DataHello {
            run: RunId(1),
            source: Source {
                flp: FlpId(2),
                incarnation: Incarnation(3),
            },
            target: Target {
                epn: EpnId(4),
                incarnation: Incarnation(5),
            },
            nonce: 6,
        };
        let bytes = hello.encode();
        assert_eq!(DataHello::decode(&bytes), Ok(hello));
        for cut in 0..bytes.len() {
            assert!(DataHello::decode(&bytes[..cut]).is_err());
        }
    }
}
