//! Layout of what a stream gets of a TF, by the format of the stream.

use crate::sink::stf_files::image_of;
use bytes::Bytes;
use sheaf_formats::StreamFormat;
use sheaf_formats::stf_file::{Piece, TfImage};
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::Tf;

/// Layout of the bytes of a record, beside the payloads that it takes from its TF.
pub(super) struct Layout {
    kind: Kind,
    bytes: u64,
}

enum Kind {
    /// The head of a TF file.
    Tf(Vec<u8>),
    StfFile(TfImage),
    Raw,
}

impl Layout {
    /// Lays `part` out, at least a byte of which is in a record of its format.
    pub(super) fn new(format: StreamFormat, part: &Tf<Bytes>) -> Self {
        match format {
            StreamFormat::Tf => {
                let head = tf_file_head(part);
                Self {
                    bytes: head.len() as u64 + part.bytes(),
                    kind: Kind::Tf(head),
                }
            }
            StreamFormat::StfFile => {
                let image = image_of(part);
                Self {
                    bytes: image.bytes,
                    kind: Kind::StfFile(image),
                }
            }
            StreamFormat::Raw => Self {
                bytes: part.bytes(),
                kind: Kind::Raw,
            },
        }
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the format has checksums, so that a whole record is known by its bytes.
    pub(super) fn has_checksums(&self) -> bool {
        matches!(self.kind, Kind::Tf(_))
    }

    /// Returns the bytes piece by piece; `part` is what was laid out.
    pub(super) fn slices<'a>(&'a self, part: &'a Tf<Bytes>) -> Vec<&'a [u8]> {
        let payloads = part.parts.iter().map(|part| part.payload.as_ref());
        match &self.kind {
            Kind::Tf(head) => std::iter::once(head.as_slice()).chain(payloads).collect(),
            Kind::Raw => payloads.collect(),
            Kind::StfFile(image) => {
                let slice = |piece: &Piece| match piece {
                    Piece::Head(range) => &image.heads[range.clone()],
                    Piece::Payload { part: at, range } => &part.parts[*at].payload[range.clone()],
                };
                image.pieces.iter().map(slice).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::tf;
    use super::super::walk;
    use super::*;
    use sheaf_formats::Findings;
    use sheaf_formats::sample::{hbf, o2_tf};
    use sheaf_formats::stf_file::FileTfs;
    use sheaf_formats::tf_file::read_tf_file;
    use sheaf_protocol::{PayloadFormat, crc32c};

    fn record(format: StreamFormat, part: &Tf<Bytes>) -> Vec<u8> {
        let layout = Layout::new(format, part);
        let bytes = layout.slices(part).concat();
        assert_eq!(layout.bytes(), bytes.len() as u64);
        bytes
    }

    /// A TF of these payloads, all of one format.
    fn of(format: PayloadFormat, payloads: &[&[u8]]) -> Tf<Bytes> {
        let mut tf = tf(6, payloads);
        tf.parts.iter_mut().for_each(|part| part.format = format);
        tf
    }

    #[test]
    fn a_record_of_tfs_is_a_tf_file_that_a_walk_finds() {
        let tf = of(PayloadFormat::Opaque, &[b"abc", b"", b"defg"]);
        let bytes = record(StreamFormat::Tf, &tf);
        let read = read_tf_file(&bytes).expect("a TF file");
        assert_eq!(read.parts[2].digest, crc32c(b"defg"));
        let length = bytes.len() as u64;
        let file = [&bytes[..], &bytes[..]].concat();
        for cut in 0..=file.len() {
            let (mut reader, mut found) = (&file[..cut], 0);
            while let Some(bytes) = walk(&mut reader).expect("memory") {
                assert_eq!(bytes, length);
                found += 1;
            }
            assert_eq!(found, cut / bytes.len(), "{cut}");
        }
    }

    #[test]
    fn a_record_of_datadistribution_is_its_tf() {
        // Pages of two links become a block each.
        let pages = [hbf(7, 1), hbf(7, 2)].concat();
        let bytes = record(
            StreamFormat::StfFile,
            &of(PayloadFormat::RdhPages, &[&pages]),
        );
        let mut findings = Findings::default();
        let mut tfs = FileTfs::new(&bytes);
        let read = tfs.next_good(&mut findings).expect("a TF");
        assert_eq!((read.run(), read.counter()), (0xabc, 7));
        let names: Vec<String> = read
            .blocks
            .iter()
            .map(|block| block.header.equipment.to_string())
            .collect();
        assert_eq!(names, ["ITS/RAWDATA/0x10002", "ITS/RAWDATA/0x10003"]);
        let payloads = read
            .blocks
            .iter()
            .map(|block| &bytes[block.payload.clone()]);
        assert_eq!(payloads.collect::<Vec<_>>().concat(), pages);
        assert_eq!(
            (tfs.next_good(&mut findings), findings.faults),
            (None, vec![])
        );
        // What came from such a file is what was in it.
        let file = o2_tf(3, 0xabc, 7);
        let blocks = of(PayloadFormat::O2Blocks, &[&file]);
        assert_eq!(record(StreamFormat::StfFile, &blocks), file);
    }

    #[test]
    fn a_record_of_raw_data_is_its_payload() {
        let pages = [hbf(7, 1), hbf(7, 2)].concat();
        let tf = of(PayloadFormat::RdhPages, &[&pages]);
        assert_eq!(record(StreamFormat::Raw, &tf), pages);
    }

    #[test]
    fn a_walk_finds_nothing_in_formats_without_checksums() {
        let tf = of(PayloadFormat::Opaque, &[b"abc"]);
        for format in [StreamFormat::StfFile, StreamFormat::Raw] {
            assert!(!Layout::new(format, &tf).has_checksums());
            let bytes = record(format, &tf);
            assert_eq!(walk(&mut bytes.as_slice()).expect("memory"), None);
        }
        assert!(Layout::new(StreamFormat::Tf, &tf).has_checksums());
    }
}
