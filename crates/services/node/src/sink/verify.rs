//! Sink `verify`: checks every byte against what the FLPs made, then discards.

use super::handle::SinkHandle;
use super::{DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, recomputed};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::check_stf;
use sheaf_protocol::Tf;

/// Computes every digest again, and walks the pages, records or datagrams of every payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verify;

/// The `[epn.sink]` table with `kind = "verify"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifySink {}

impl SinkKind for VerifySink {
    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        SinkHandle::spawn(Box::new(Verify), opening.queue_tfs, opening.wake)
    }
}

impl Sink for Verify {
    fn name(&self) -> &'static str {
        "verify"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        let mut delivery = recomputed(tf);
        for part in &tf.parts {
            if let Err(fault) = check_stf(part.format, &part.payload) {
                delivery
                    .faults
                    .push(format!("{}: {fault}", part.source.flp));
            }
        }
        Ok(delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tf;
    use super::*;
    use sheaf_protocol::PayloadFormat;

    fn check(tf: &Tf<Bytes>, expected: &[&str]) {
        let delivery = Verify.deliver(tf, &Patience::none()).unwrap();
        assert_eq!(delivery.faults, expected);
        assert_eq!(delivery.parts.len(), tf.parts.len());
    }

    #[test]
    fn damage_is_named_by_its_flp() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../testdata/alice-its-rdh7/10_rdh.raw"
        );
        let pages = std::fs::read(file).unwrap();
        let mut good = tf(1, &[b"opaque", &pages]);
        good.parts[1].format = PayloadFormat::RdhPages;
        check(&good, &[]);
        let mut cut = good.clone();
        cut.parts[1].payload.truncate(1190);
        check(
            &cut,
            &[
                "flp:1: payload has 1190 bytes, expected 1200",
                "flp:1: payload has CRC-32C d21f39b4, expected 123e9f93",
                "flp:1: payload has 2 faults, the first at byte 960: unclosed-hbf: HBF of \
                 orbit 516 on link 23.0.8 is not closed: the input ends after its page 0",
            ],
        );
    }
}
