//! Files of TFs as DataDistribution writes them, read from the front one TF at a time.

use super::header::{DataHeader, HeaderError};
use super::layout::META_BYTES;
use super::read::{FileTf, FileTfs};
use crate::fault::{Fault, FaultKind, Findings};
use crate::fields::array;
use std::io::{self, Read};

/// Bytes that are read first: fewer than any TF has.
const FIRST_BYTES: usize = 80 + META_BYTES;
/// Most bytes of the headers in front of a TF that are believed.
const HEADERS_MAX: usize = 1 << 16;

/// Next item in a file of TFs, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStf {
    /// A whole TF without a fault, and its bytes. Places in it are counted from its own first byte.
    Whole(Box<FileTf>, Vec<u8>),
    /// Bytes that are no whole TF, with the first fault; its place is counted from the end of the TF before.
    Broken(Fault),
    /// The end of the file.
    End,
}

/// Reads the next TF of a file. No more is allocated than there are bytes to read. The format has no checksum: that a
/// TF is whole says that its headers agree with each other, and nothing about its data.
///
/// # Errors
///
/// Errors of `reader`. The end of the file in the middle of a TF is [`NextStf::Broken`].
pub fn next_stf(reader: &mut dyn Read) -> io::Result<NextStf> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES);
    if !read_to(reader, FIRST_BYTES, &mut bytes)? && bytes.is_empty() {
        return Ok(NextStf::End);
    }
    // Headers may follow the first one, and the size of the TF stands behind all of them.
    let front = loop {
        let needed = match DataHeader::decode(&bytes) {
            Ok((_, head)) => head + META_BYTES,
            Err(HeaderError::Truncated { needed, .. }) => bytes.len().max(needed) + 1,
            Err(_) => break None,
        };
        if needed <= bytes.len() {
            break Some(needed);
        }
        if needed > HEADERS_MAX || !read_to(reader, needed, &mut bytes)? {
            break None;
        }
    };
    let size = front.and_then(|end| array(&bytes, end - META_BYTES + 8));
    let size = size.and_then(|size| usize::try_from(u64::from_le_bytes(size)).ok());
    if let Some(size) = size.filter(|size| *size > bytes.len()) {
        read_to(reader, size, &mut bytes)?;
    }
    let mut findings = Findings::default();
    let tf = FileTfs::new(&bytes).next_good(&mut findings);
    findings.sort();
    Ok(match (tf, findings.faults.into_iter().next()) {
        (Some(tf), None) if tf.bytes == bytes.len() => NextStf::Whole(Box::new(tf), bytes),
        (_, Some(fault)) => NextStf::Broken(fault),
        (tf, None) => NextStf::Broken(Fault {
            offset: 0,
            kind: FaultKind::BadOffset,
            detail: format!(
                "TF states {} bytes, expected at least the {} of its headers",
                tf.map_or(0, |tf| tf.bytes),
                bytes.len()
            ),
        }),
    })
}

/// Reads until `bytes` has `end` bytes. Returns whether there were so many.
fn read_to(reader: &mut dyn Read, end: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let wanted = end.saturating_sub(bytes.len());
    reader.take(wanted as u64).read_to_end(bytes)?;
    Ok(bytes.len() >= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::o2_tf;

    /// Reads TFs up to the first item that is none; returns counters and sizes, and the item.
    fn read(mut bytes: &[u8]) -> (Vec<(u32, usize)>, NextStf) {
        let mut found = Vec::new();
        loop {
            match next_stf(&mut bytes).expect("memory") {
                NextStf::Whole(tf, own) => {
                    assert_eq!(tf.bytes, own.len());
                    found.push((tf.counter(), own.len()));
                }
                other => return (found, other),
            }
        }
    }

    #[test]
    fn tfs_are_read_one_by_one_and_a_cut_anywhere_is_seen() {
        let tfs: Vec<Vec<u8>> = (0..60).map(|seed| o2_tf(seed, 9, 1)).collect();
        let file = tfs.concat();
        let (found, end) = read(&file);
        let sizes: Vec<usize> = found.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(end, NextStf::End);
        assert_eq!(sizes, tfs.iter().map(Vec::len).collect::<Vec<_>>());
        for tf in &tfs[..20] {
            for cut in 1..tf.len() {
                let next = next_stf(&mut &tf[..cut]).expect("memory");
                assert!(matches!(next, NextStf::Broken(_)), "{cut}: {next:?}");
            }
        }
    }

    #[test]
    fn other_bytes_are_named() {
        for (bytes, text) in [
            (vec![0; 500], "header starts with [00, 00, 00, 00]"),
            (b"O2O2".to_vec(), "header is cut: 4 of"),
        ] {
            let (_, NextStf::Broken(fault)) = read(&bytes) else {
                panic!("{bytes:?}");
            };
            assert!(fault.to_string().contains(text), "{fault}");
        }
        // A header that states a size of 4 GB is not waited for.
        let mut tf = o2_tf(1, 9, 1);
        tf[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&tf), (_, NextStf::Broken(_))));
    }
}
