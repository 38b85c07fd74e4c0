//! Promises of the parsers for any bytes that a client sends, for fuzzing.

use crate::chunk::{ChunkError, Chunks, Piece};
use crate::digest::{Stated, Want};
use crate::head::{Framing, Head, HeadLimits};
use crate::path::TreePath;
use crate::range::{self, Wanted};

const LIMITS: HeadLimits = HeadLimits {
    bytes: 2048,
    headers: 16,
};
/// Size of the file that ranges are of.
const SIZE: u64 = 1000;

/// Reads `bytes` as what a client sends: a request with its body.
///
/// # Panics
///
/// If a promise of a parser is broken: a head means the same whatever follows and however it comes, a path stays in
/// the folder and survives being written, ranges lie in the file, and a body does not depend on the size of reads.
pub fn check_request(bytes: &[u8]) {
    let Ok(Some((head, length))) = Head::parse(bytes, LIMITS) else {
        return;
    };
    assert!(length <= bytes.len(), "a head is longer than the input");
    let (alone, same) = Head::parse(&bytes[..length], LIMITS)
        .ok()
        .flatten()
        .expect("a head that is alone is read too");
    assert_eq!(same, length);
    assert_eq!(
        (alone.method(), alone.target(), alone.framing),
        (head.method(), head.target(), head.framing)
    );
    let cut = Head::parse(&bytes[..length - 1], LIMITS);
    assert!(
        !matches!(cut, Ok(Some(_))),
        "a head that is cut counts as whole"
    );
    if let Ok(path) = TreePath::of_target(head.target()) {
        check_path(&path);
    }
    if let Some(value) = head.get("Range") {
        check_ranges(range::parse(value, SIZE));
    }
    if let Some(list) = head.list("Want-Digest") {
        let _ = Want::of_want_digest(&list);
    }
    if let Some(list) = head.list("Want-Repr-Digest") {
        let _ = Want::of_want_repr_digest(&list);
    }
    let mut stated = Stated::default();
    if let Some(list) = head.list("Digest") {
        let _ = stated.add_digest(&list);
    }
    if let Some(list) = head.list("Repr-Digest") {
        let _ = stated.add_repr_digest(&list);
    }
    if head.framing == Framing::Chunked {
        let body = &bytes[length..];
        assert_eq!(
            unchunked(body, body.len()),
            unchunked(body, 1),
            "the size of reads changes a body"
        );
    }
}

fn check_path(path: &TreePath) {
    let relative = path.relative();
    let mut names = relative.split('/');
    let is_inside = relative == "." || names.all(|name| !matches!(name, "" | "." | ".."));
    assert!(is_inside, "{relative:?} leads out of the folder");
    let again = TreePath::of_target(&path.to_target()).expect("a path that is written is read");
    assert_eq!(again.as_str(), path.as_str());
}

fn check_ranges(wanted: Wanted) {
    let Wanted::Ranges(ranges) = wanted else {
        return;
    };
    let mut bytes = 0;
    for range in ranges {
        assert!(
            range.first <= range.last && range.last < SIZE,
            "{range:?} is not in a file of {SIZE} bytes"
        );
        bytes += range.length();
    }
    assert!(
        bytes <= SIZE,
        "ranges ask for {bytes} bytes of a file of {SIZE}"
    );
}

/// Returns the body of chunks that come in reads of `step` bytes, and the bytes that it took with its frames; `None`
/// if its end does not come.
fn unchunked(input: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, ChunkError> {
    let mut chunks = Chunks::default();
    let mut body = Vec::new();
    let (mut taken, mut come) = (0, 0);
    loop {
        match chunks.next(&input[taken..come])? {
            Piece::Skip(count) => taken += count,
            Piece::Data(count) => {
                body.extend_from_slice(&input[taken..taken + count]);
                taken += count;
            }
            Piece::Done => return Ok(Some((body, taken))),
            Piece::More if come == input.len() => return Ok(None),
            Piece::More => come = (come + step.max(1)).min(input.len()),
        }
    }
}
