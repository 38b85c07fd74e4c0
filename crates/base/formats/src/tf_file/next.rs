//! Files of several TFs, one behind the other, read from the front.

use super::{FIXED, FLPS_MAX, Fields, MAGIC, TfFileError, head_bytes, head_of, with_payloads};
use bytes::Bytes;
use sheaf_protocol::{Tf, crc32c};
use std::io::{self, Read};

/// Next item in a file of TFs, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextTf {
    /// A whole TF, of which every byte was checked, and the bytes that it takes in the file.
    Whole(Tf<Bytes>, u64),
    /// Bytes that are no whole TF.
    Broken(TfFileError),
    /// The end of the file.
    End,
}

/// Reads the next TF of a file of TFs. No more is allocated than there are bytes to read.
///
/// # Errors
///
/// Errors of `reader`. The end of the file in the middle of a TF is [`NextTf::Broken`].
pub fn next_tf(reader: &mut dyn Read) -> io::Result<NextTf> {
    let mut bytes = Vec::with_capacity(FIXED);
    let read_to = |end: u64, bytes: &mut Vec<u8>, reader: &mut dyn Read| {
        let wanted = end - bytes.len() as u64;
        reader.take(wanted).read_to_end(bytes)?;
        Ok::<bool, io::Error>(bytes.len() as u64 == end)
    };
    if !read_to(FIXED as u64, &mut bytes, reader)? && bytes.is_empty() {
        return Ok(NextTf::End);
    }
    let fields = Fields { bytes: &bytes };
    let counts = fields
        .u32(32)
        .and_then(|parts| Ok((parts, fields.u32(36)?)));
    if let Ok((parts, missing)) = counts
        && bytes.starts_with(&MAGIC)
        && u64::from(parts.max(missing)) <= FLPS_MAX
    {
        read_to(head_bytes(parts.into(), missing.into()), &mut bytes, reader)?;
    }
    let (head, head_bytes) = match head_of(&bytes) {
        Ok(head) => head,
        Err(error) => return Ok(NextTf::Broken(error)),
    };
    let end = head_bytes.saturating_add(head.bytes());
    let whole = with_payloads(head, |part| {
        let mut payload = Vec::new();
        // An error of the reader is met again by the next call.
        let taken = reader.take(part.bytes).read_to_end(&mut payload);
        let got = payload.len() as u64;
        if taken.is_err() || got != part.bytes {
            return Err(TfFileError::Truncated { got, needed: end });
        }
        let (found, stated, flp) = (crc32c(&payload), part.digest, part.source.flp);
        if found != stated {
            return Err(TfFileError::PayloadDigest { flp, found, stated });
        }
        Ok(Bytes::from(payload))
    });
    Ok(match whole {
        Ok(tf) => NextTf::Whole(tf, end),
        Err(error) => NextTf::Broken(error),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::tf;
    use super::super::tf_file_head;
    use super::*;

    #[test]
    fn a_file_of_tfs_is_read_up_to_what_is_not_whole() {
        let tfs = [tf(1, &[b"abc", b""]), tf(2, &[]), tf(3, &[&[7; 5000]])];
        let mut file = Vec::new();
        for tf in &tfs {
            file.extend(tf_file_head(tf));
            for part in &tf.parts {
                file.extend_from_slice(&part.payload);
            }
        }
        let mut reader = file.as_slice();
        for tf in &tfs {
            let (before, next) = (reader.len(), next_tf(&mut reader).expect("memory"));
            let taken = (before - reader.len()) as u64;
            assert_eq!(next, NextTf::Whole(tf.clone(), taken));
        }
        assert_eq!(next_tf(&mut reader).expect("memory"), NextTf::End);
        // Cut anywhere in the last one, or changed anywhere, it is no TF.
        let last = file.len() - tf_file_head(&tfs[2]).len() - 5000;
        for cut in (last + 1..file.len()).step_by(37) {
            let next = next_tf(&mut &file[last..cut]).expect("memory");
            assert!(matches!(next, NextTf::Broken(_)), "{cut}: {next:?}");
        }
        for at in (last..file.len()).step_by(41) {
            let mut bad = file[last..].to_vec();
            bad[at - last] ^= 0x10;
            let next = next_tf(&mut bad.as_slice()).expect("memory");
            assert!(matches!(next, NextTf::Broken(_)), "{at}: {next:?}");
        }
    }
}
