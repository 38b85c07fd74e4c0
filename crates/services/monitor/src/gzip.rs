//! Bodies in gzip, unpacked up to a bound.

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use std::io::Read as _;

/// Reason why a body is not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GzipError {
    /// Bytes that are no gzip, or are cut.
    #[error("body is no gzip: {0}")]
    Damaged(std::io::Error),
    /// More than is allowed.
    #[error("body is over {0} bytes without its compression")]
    TooBig(usize),
}

/// Unpacks a body into at most `bytes_max` bytes.
pub(crate) fn unpack(body: &[u8], bytes_max: usize) -> Result<Bytes, GzipError> {
    let mut bytes = Vec::new();
    let mut reader = MultiGzDecoder::new(body).take(bytes_max as u64 + 1);
    reader.read_to_end(&mut bytes).map_err(GzipError::Damaged)?;
    if bytes.len() > bytes_max {
        return Err(GzipError::TooBig(bytes_max));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_bound_holds_for_what_is_unpacked() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&[b'a'; 1000]).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(unpack(&packed, 1000).unwrap().len(), 1000);
        assert!(matches!(unpack(&packed, 999), Err(GzipError::TooBig(999))));
        assert!(matches!(
            unpack(&packed[..20], 1000),
            Err(GzipError::Damaged(_))
        ));
    }
}
