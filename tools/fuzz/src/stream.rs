//! A TCP stream of any bytes, in reads of any size.

use sheaf_protocol::{Limits, Prefix, crc32c};
use sheaf_transport::tcp::frames_of;
use sheaf_transport::{Arena, ArenaOptions};

/// Whatever comes, frames are whole and within the limits, and the size of the reads changes nothing. The first
/// byte picks that size.
pub fn stream(bytes: &[u8]) {
    let Some((piece_bytes, stream)) = bytes.split_first() else {
        return;
    };
    let limits = Limits {
        head_bytes_max: 4 << 10,
        body_bytes_max: 64 << 10,
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: false,
    };
    let arena = Arena::new(1 << 20, options).expect("a megabyte is there");
    let cut = frames_of(stream, usize::from(*piece_bytes), &limits, &arena);
    let arena = Arena::new(1 << 20, options).expect("a megabyte is there");
    let whole = frames_of(stream, usize::MAX, &limits, &arena);
    assert_eq!(cut.frames, whole.frames);
    assert_eq!((cut.refused, cut.missing), (whole.refused, whole.missing));
    let mut at = 0;
    for (frame, digest) in &whole.frames {
        assert!(frame.head.len() <= 4 << 10 && frame.body.len() <= 64 << 10);
        assert_eq!(*digest, crc32c(&frame.body));
        at += Prefix::SIZE + frame.head.len();
        assert_eq!(stream[at..at + frame.body.len()], frame.body[..]);
        at += frame.body.len();
    }
}
