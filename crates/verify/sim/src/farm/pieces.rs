//! Detector of the harness: payloads that differ between sources, lives and TFs, at no cost.

use bytes::Bytes;
use sheaf_protocol::splitmix::mix;
use sheaf_protocol::{PayloadFormat, Source, TfId};
use sheaf_stf_builder::{Made, Payload, Slots, StfSource};
use std::collections::BTreeSet;

/// Bytes that payloads are slices of.
const POOL_BYTES: u64 = 16 << 10;

/// Payloads of one life of one FLP; those of one TF differ from run to run.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    pool: Bytes,
    salt: u64,
    bytes_mean: u64,
    /// Runs before the present one, and the TFs made in this.
    runs: u64,
    made: BTreeSet<u64>,
}

/// Returns the bytes that all payloads of a farm are slices of.
pub(crate) fn pool(seed: u64) -> Bytes {
    let words = (0..POOL_BYTES / 8).map(|word| mix(seed ^ (word << 32)));
    words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

impl Pieces {
    pub(crate) fn new(pool: Bytes, source: Source, bytes_mean: u64) -> Self {
        let salt = mix(source.incarnation.0 << 16 | u64::from(source.flp.0));
        Self {
            pool,
            salt,
            bytes_mean,
            runs: 0,
            made: BTreeSet::new(),
        }
    }
}

impl StfSource for Pieces {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::Opaque
    }

    fn bytes_max(&self) -> u64 {
        2 * self.bytes_mean
    }

    fn make(&mut self, tf: TfId, _: &mut dyn Slots) -> Made {
        if !self.made.insert(tf.0) {
            // No FLP makes a TF twice in a run.
            self.runs += 1;
            self.made = BTreeSet::from([tf.0]);
        }
        let chance = mix(self.salt ^ tf.0 ^ (self.runs << 40));
        let bytes = (chance >> 32) % (2 * self.bytes_mean + 1);
        let first = (chance & 0xffff_ffff) % (POOL_BYTES - bytes);
        let bytes = self.pool.slice(first as usize..(first + bytes) as usize);
        Made::Payload(Payload::of(bytes))
    }
}
