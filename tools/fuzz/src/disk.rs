//! Targets for files that a node reads, and for bytes that other programs feed it.

use sheaf_formats::tf_file::read_tf_file;
use sheaf_node::config::FarmConfig;
use sheaf_node::source::RecordHeader;
use sheaf_protocol::crc32c;
use std::path::Path;

/// A farm file: every text is a configuration, or a list of errors that point into it.
pub fn farm_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let path = Path::new("farm.toml");
    match FarmConfig::parse_for(text, path, &[]) {
        Ok(config) => {
            let written = config
                .to_toml()
                .expect("it was TOML, so its paths are text");
            let again = FarmConfig::parse_for(&written, path, &[]);
            assert_eq!(again.expect("what was written is read"), config);
        }
        Err(errors) => {
            assert!(!errors.0.is_empty());
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            for error in &errors.0 {
                assert!(
                    error.line.is_none_or(|line| (1..=lines).contains(&line)),
                    "{error}"
                );
            }
            assert!(!errors.to_string().is_empty());
        }
    }
}

/// The head of an STF that another program feeds to an FLP.
pub fn feed_record(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<{ RecordHeader::SIZE }>()
        && let Ok(header) = RecordHeader::decode(head)
    {
        assert_eq!(&header.encode(), head);
    }
}

/// A TF file, as it is and with the digest that its head should have.
pub fn tf_file(bytes: &[u8]) {
    read_tf(bytes);
    // The head says at byte 8 how long it is, and ends with its digest.
    let mut bytes = bytes.to_vec();
    let stated = bytes.get(8..12).and_then(<[u8]>::first_chunk);
    let length = stated.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    if let Some(head) = bytes.get_mut(..length)
        && let Some((covered, digest)) = head.split_last_chunk_mut::<4>()
    {
        *digest = crc32c(covered).to_le_bytes();
        read_tf(&bytes);
    }
}

fn read_tf(bytes: &[u8]) {
    let Ok(tf) = read_tf_file(bytes) else {
        return;
    };
    assert!(tf.bytes() <= bytes.len() as u64);
    for part in &tf.parts {
        assert_eq!(
            (part.bytes, part.digest),
            (part.payload.len() as u64, crc32c(part.payload))
        );
    }
    assert!(tf.parts.is_sorted_by_key(|part| part.source.flp));
}
