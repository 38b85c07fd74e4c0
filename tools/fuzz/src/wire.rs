//! The decoders of what nodes send to each other.

use sheaf_protocol::{Control, DataHello, Limits, Prefix, StfHeader, WireKind};

/// Smaller than the defaults, so that inputs cross them.
const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 12,
    body_bytes_max: 1 << 20,
};

/// A frame: prefix, head, and the decoder of its kind.
pub fn frame(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first_chunk::<{ Prefix::SIZE }>() else {
        return;
    };
    let Ok(prefix) = Prefix::decode(first, &LIMITS) else {
        return;
    };
    assert!(prefix.head_bytes <= LIMITS.head_bytes_max);
    assert!(prefix.body_bytes <= LIMITS.body_bytes_max);
    assert_eq!(Prefix::decode(&prefix.encode(), &LIMITS), Ok(prefix));
    let Some(head) = rest.get(..prefix.head_bytes as usize) else {
        return;
    };
    // A digest is hard to hit by chance: what follows must hold behind a right one, too.
    let right = Prefix::new(prefix.kind, head, prefix.body_bytes);
    assert_eq!(right.check(head), Ok(()));
    assert_eq!(prefix.check(head).is_ok(), right == prefix);
    match prefix.kind {
        WireKind::Control => control(head),
        WireKind::Stf => header(head, prefix.body_bytes),
        WireKind::DataHello => data_hello(head),
        // A word between transports: `sheaf-transport` has tests of it.
        WireKind::Lane => {}
    }
}

/// A control message with its envelope.
pub fn control(head: &[u8]) {
    let Ok((envelope, control)) = Control::decode(head) else {
        return;
    };
    let again = control.encode(&envelope);
    assert_eq!(again.len(), head.len(), "{control:?}");
    assert_eq!(Control::decode(&again), Ok((envelope, control)));
}

/// The head of an STF frame.
pub fn stf_header(head: &[u8]) {
    header(head, head.len() as u64);
    // The payload size that the header itself states: the only one that it is read with.
    if let Some(stated) = head.get(40..48).and_then(<[u8]>::first_chunk) {
        header(head, u64::from_le_bytes(*stated));
    }
}

fn header(head: &[u8], framed: u64) {
    if let Ok(header) = StfHeader::decode(head, framed) {
        assert_eq!(header.payload_bytes, framed);
        assert_eq!(StfHeader::decode(&header.encode(), framed), Ok(header));
    }
}

/// The first frame of a data stream.
pub fn data_hello(head: &[u8]) {
    if let Ok(hello) = DataHello::decode(head) {
        assert_eq!(hello.encode(), head);
    }
}
