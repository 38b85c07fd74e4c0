//! Check of a payload against its format: for the `verify` sink of an EPN.

use crate::fault::{Fault, Findings};
use crate::km3net::{Packets, Records};
use crate::stf_file::{PayloadError, TfPayload};
use crate::walk::Walker;
use crate::xtc2::Datagrams;
use sheaf_protocol::PayloadFormat;
use thiserror::Error;

/// Counts of the parts of a good payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages, records, packets, datagrams or blocks; 0 for an opaque payload.
    pub parts: u64,
    /// HBFs; 0 unless the payload is of pages.
    pub hbfs: u64,
}

/// Fault of a payload whose structure is broken. If its digest is right, it was broken at its source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("payload has {count} faults, the first at {first}")]
pub struct StfFault {
    /// The first fault. Its offset is that within the payload.
    pub first: Fault,
    /// Number of faults.
    pub count: usize,
}

/// Walks `payload` from end to end: of O2 blocks headers and sizes, not what stands in the
/// blocks. An empty one is good, an opaque one is not looked at.
///
/// # Errors
///
/// [`StfFault`] with the first fault, if there is any.
pub fn check_stf(format: PayloadFormat, payload: &[u8]) -> Result<Counts, StfFault> {
    let mut counts = Counts::default();
    let mut findings = Findings::default();
    match format {
        PayloadFormat::Opaque => {}
        PayloadFormat::RdhPages => {
            let mut walker = Walker::new(payload);
            for page in walker.by_ref() {
                counts.parts += 1;
                counts.hbfs += u64::from(page.rdh.opens_hbf());
            }
            findings = walker.finish();
        }
        PayloadFormat::Km3netRecords if Packets::are_at_start_of(payload) => {
            let mut packets = Packets::new(payload);
            counts.parts = count(|| packets.next_good(&mut findings));
        }
        PayloadFormat::Km3netRecords => {
            let mut records = Records::new(payload);
            while let Some(record) = records.next_good(&mut findings) {
                record.count_frames(&mut findings);
                counts.parts += 1;
            }
        }
        PayloadFormat::Xtc2Datagrams => {
            let mut datagrams = Datagrams::new(payload);
            counts.parts = count(|| datagrams.next_good(&mut findings));
        }
        PayloadFormat::O2Blocks if payload.is_empty() => {}
        PayloadFormat::O2Blocks => match TfPayload::read(payload) {
            Ok(tf) => counts.parts = tf.blocks().len() as u64,
            Err(PayloadError { first, count }) => return Err(StfFault { first, count }),
        },
    }
    let count = findings.faults.len();
    findings
        .faults
        .into_iter()
        .next()
        .map_or(Ok(counts), |first| Err(StfFault { first, count }))
}

fn count<T>(next: impl FnMut() -> Option<T>) -> u64 {
    std::iter::from_fn(next).fold(0, |count, _| count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::page;

    #[test]
    fn a_broken_payload_names_its_first_fault() {
        let good = [page(1, 0, false, 0), page(1, 1, true, 1)].concat();
        let counts = Counts { parts: 2, hbfs: 1 };
        assert_eq!(check_stf(PayloadFormat::RdhPages, &good), Ok(counts));
        let broken = check_stf(PayloadFormat::RdhPages, &good[..100]).unwrap_err();
        assert_eq!(
            broken.to_string(),
            "payload has 2 faults, the first at byte 0: unclosed-hbf: HBF of orbit 1 on link 1.0.2 is not \
             closed: the input ends after its page 0"
        );
        for format in [
            PayloadFormat::Km3netRecords,
            PayloadFormat::Xtc2Datagrams,
            PayloadFormat::O2Blocks,
        ] {
            assert!(check_stf(format, b"neither record nor datagram nor block").is_err());
            assert_eq!(check_stf(format, b""), Ok(Counts::default()));
        }
        assert_eq!(
            check_stf(PayloadFormat::Opaque, b"anything"),
            Ok(Counts::default())
        );
    }
}
