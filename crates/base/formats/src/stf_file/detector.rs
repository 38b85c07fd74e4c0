//! Detector of a payload, as far as its first header tells.

use super::payload::TfPayload;
use crate::detector::{detector_name, detector_of_origin};
use crate::rdh::Rdh;
use sheaf_protocol::PayloadFormat;

/// Returns the detector of a payload: of RDH pages that of the system id of the first page, of O2 blocks the origin of
/// the first block; `None` if it is empty, has another format, or names no detector that is known.
#[must_use]
pub fn detector_of(format: PayloadFormat, payload: &[u8]) -> Option<&'static str> {
    match format {
        PayloadFormat::RdhPages => detector_name(Rdh::decode(payload).ok()?.system_id),
        PayloadFormat::O2Blocks if !payload.is_empty() => {
            let tf = TfPayload::read(payload).ok()?;
            detector_of_origin(tf.blocks().first()?.header.equipment.origin)
        }
        PayloadFormat::O2Blocks
        | PayloadFormat::Opaque
        | PayloadFormat::Km3netRecords
        | PayloadFormat::Xtc2Datagrams => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FileTfs, TfImage, TfName};
    use super::*;
    use crate::fault::Findings;
    use crate::sample::{hbf, page};
    use crate::stf_file::Excerpt;
    use sheaf_protocol::FlpId;

    #[test]
    fn the_first_header_names_the_detector() {
        let pages = hbf(7, 2);
        assert_eq!(detector_of(PayloadFormat::RdhPages, &pages), Some("ITS"));
        assert_eq!(detector_of(PayloadFormat::Opaque, &pages), None);
        assert_eq!(detector_of(PayloadFormat::RdhPages, &pages[..63]), None);
        assert_eq!(detector_of(PayloadFormat::O2Blocks, b""), None);
        // System id 0 is that of no detector.
        let unnamed = page(7, 0, true, 0);
        assert_eq!(detector_of(PayloadFormat::RdhPages, &unnamed), None);
        let name = TfName {
            run: 1,
            counter: 1,
            write_time_ms: 1,
        };
        let image = TfImage::new(name, &[(FlpId(0), PayloadFormat::RdhPages, &pages)]);
        let file: Vec<u8> = image.slices(&[&pages]).flatten().copied().collect();
        assert_eq!(detector_of(PayloadFormat::O2Blocks, &file), Some("ITS"));
        // The share of an FLP begins with a block of ours, which is no data.
        let tf = FileTfs::new(&file).next_good(&mut Findings::default());
        let tf = tf.expect("a whole TF");
        let shares = [(0, file.as_slice(), &tf), (0, file.as_slice(), &tf)];
        let share = Excerpt::new(&shares, |_| true);
        let mut payload = share.heads.clone();
        for (_, range) in &share.pieces {
            payload.extend_from_slice(&file[range.clone()]);
        }
        assert_eq!(detector_of(PayloadFormat::O2Blocks, &payload), Some("ITS"));
    }
}
