//! Checksums that a request states of its body, and the one that it wants to be sent.

use crate::answer::Answer;
use crate::digest::{Stated, Want};
use crate::head::Head;
use crate::path::TreePath;

/// Returns the checksum that a client wants to be sent.
pub(crate) fn want(head: &Head) -> Option<Want> {
    let repr = head.list("want-repr-digest");
    let repr = repr.and_then(|list| Want::of_want_repr_digest(&list));
    repr.or_else(|| Want::of_want_digest(&head.list("want-digest")?))
}

/// Checks that a request states a whole file. Returns the checksums that it states.
pub(crate) fn acceptable(head: &Head, path: &TreePath) -> Result<Stated, Answer> {
    if path.split().is_none() || path.is_folder {
        return Err(Answer::refusal(405, "this is the name of a folder"));
    }
    if !head.states_body {
        return Err(Answer::refusal(411, "expected `Content-Length` or chunks"));
    }
    // A server that takes a part for the whole would destroy the file (RFC 9110, section 14.5).
    if head.all("content-range").next().is_some() {
        return Err(Answer::refusal(
            400,
            "found `Content-Range`, expected a whole file",
        ));
    }
    let coding = head.list("content-encoding").unwrap_or_default();
    if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
        return Err(Answer::refusal(
            415,
            "found `Content-Encoding`, expected none",
        ));
    }
    let mut stated = Stated::default();
    let digest = head.list("digest").unwrap_or_default();
    let repr = ["repr-digest", "content-digest"].map(|name| head.list(name).unwrap_or_default());
    let read = stated
        .add_digest(&digest)
        .and_then(|()| stated.add_repr_digest(&repr[0]))
        .and_then(|()| stated.add_repr_digest(&repr[1]));
    match read {
        Ok(()) => Ok(stated),
        Err(error) => Err(Answer::refusal(400, error)),
    }
}
