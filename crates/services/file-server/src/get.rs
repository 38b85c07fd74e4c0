//! GET and HEAD: which bytes of which file answer a request.

use crate::answer::{Answer, Content};
use crate::condition::{Conditions, Outcome};
use crate::head::Head;
use crate::path::TreePath;
use crate::range::{self, ByteRange, Wanted};
use crate::tree::{Found, Tree, TreeError};
use httpdate::HttpDate;
use std::fmt::Write as _;

/// Media type of files whose name tells none.
const UNKNOWN: &str = "application/octet-stream";

/// Reads the conditions of a request.
pub(crate) fn conditions(head: &Head) -> Conditions<'_> {
    Conditions {
        if_match: head.get("if-match"),
        if_none_match: head.get("if-none-match"),
        if_modified_since: head.get("if-modified-since"),
        if_unmodified_since: head.get("if-unmodified-since"),
        if_range: head.get("if-range"),
    }
}

/// Makes the answer that refuses a path.
pub(crate) fn refusal(error: TreeError) -> Answer {
    let answer = Answer::refusal(error.status(), error);
    match error {
        TreeError::Busy => answer.with("Retry-After", 1),
        _ => answer,
    }
}

/// Opens the file of a request and makes the answer to it.
///
/// The body stands in the answer to a HEAD as well, so that both have the same headers; the connection leaves it out.
pub(crate) fn answer(tree: &Tree, path: &TreePath, head: &Head) -> Answer {
    match tree.read(path) {
        Err(error) => refusal(error),
        Ok(found) if found.is_folder() => {
            Answer::refusal(403, "this is a folder; PROPFIND lists it")
        }
        Ok(found) => of_file(found, path, head),
    }
}

fn of_file(found: Found, path: &TreePath, head: &Head) -> Answer {
    let version = found.version();
    let conditions = conditions(head);
    let tagged = |status| {
        Answer::new(status)
            .with("ETag", &version.etag)
            .with("Last-Modified", HttpDate::from(version.modified))
            .with("Accept-Ranges", "bytes")
    };
    match conditions.check(Some(&version), true) {
        Outcome::Go => {}
        Outcome::NotModified => return tagged(304),
        Outcome::Failed => return Answer::refusal(412, "the file is another version"),
    }
    let kind = media_type(path.as_str());
    let size = found.size();
    let wanted = match head.get("range") {
        Some(value) if head.method() == "GET" && conditions.range_counts(&version) => {
            range::parse(value, size)
        }
        _ => Wanted::All,
    };
    match wanted {
        Wanted::All => {
            let last = size.checked_sub(1);
            let range = last.map(|last| ByteRange { first: 0, last });
            let file = found.file;
            tagged(200)
                .with("Content-Type", kind)
                .content(Content::File { file, range })
        }
        Wanted::Unsatisfiable => Answer::refusal(416, format_args!("the file has {size} bytes"))
            .with("Content-Range", format_args!("bytes */{size}")),
        Wanted::Ranges(ranges) => match ranges[..] {
            [range] => tagged(206)
                .with("Content-Type", kind)
                .with("Content-Range", content_range(range, size))
                .content(Content::File {
                    file: found.file,
                    range: Some(range),
                }),
            _ => {
                let boundary = boundary();
                let content = parts(found, &ranges, kind, &boundary);
                let kind = format_args!("multipart/byteranges; boundary={boundary}").to_string();
                tagged(206).with("Content-Type", kind).content(content)
            }
        },
    }
}

/// Media type by the end of a name.
fn media_type(name: &str) -> &'static str {
    mime_guess::from_path(name).first_raw().unwrap_or(UNKNOWN)
}

fn content_range(range: ByteRange, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.first, range.last)
}

fn parts(found: Found, ranges: &[ByteRange], kind: &str, boundary: &str) -> Content {
    let size = found.size();
    let mut parts = Vec::with_capacity(ranges.len());
    for (at, &range) in ranges.iter().enumerate() {
        let mut head = String::new();
        // The CR LF in front of a delimiter belongs to it (RFC 2046, section 5.1.1). Writing to a string cannot fail.
        let _ = write!(
            head,
            "{}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {}\r\n\r\n",
            if at == 0 { "" } else { "\r\n" },
            content_range(range, size)
        );
        parts.push((head, range));
    }
    Content::Parts {
        file: found.file,
        parts,
        end: format!("\r\n--{boundary}--\r\n"),
    }
}

/// Draws a delimiter that no file has in it but by a chance of 2⁻¹²⁸.
fn boundary() -> String {
    format!("{:032x}", crate::chance::draw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadLimits;

    struct Case {
        folder: tempfile::TempDir,
        tree: Tree,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("a.txt"), "0123456789").unwrap();
            std::fs::write(folder.path().join("empty"), "").unwrap();
            let tree = Tree::open(folder.path()).unwrap();
            Self { folder, tree }
        }

        /// Returns status and headers, without those that every answer has.
        fn ask(&self, target: &str, headers: &str) -> (u16, String, Answer) {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            let limits = HeadLimits {
                bytes: 1000,
                headers: 10,
            };
            let (head, _) = Head::parse(text.as_bytes(), limits).unwrap().unwrap();
            let path = TreePath::of_target(target).unwrap();
            let answer = answer(&self.tree, &path, &head);
            let mut text = String::new();
            answer.write_head(&mut text, "", None);
            (answer.status, text, answer)
        }
    }

    #[test]
    fn a_file_is_answered_whole_or_in_ranges() {
        let case = Case::new();
        let (status, head, _) = case.ask("/a.txt", "");
        assert_eq!(status, 200);
        for line in [
            "Content-Type: text/plain",
            "Content-Length: 10",
            "Accept-Ranges: bytes",
        ] {
            assert!(head.contains(&format!("{line}\r\n")), "{head}");
        }
        let (status, head, _) = case.ask("/a.txt", "Range: bytes=2-4\r\n");
        assert_eq!(status, 206);
        assert!(
            head.contains("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"),
            "{head}"
        );
        let (status, head, _) = case.ask("/a.txt", "Range: bytes=10-\r\n");
        assert_eq!(status, 416);
        assert!(head.contains("Content-Range: bytes */10\r\n"), "{head}");
        let (status, head, _) = case.ask("/empty", "");
        assert_eq!(status, 200);
        assert!(head.contains("Content-Type: application/octet-stream\r\nContent-Length: 0\r\n"));
    }

    #[test]
    fn several_ranges_are_parts_with_a_stated_length() {
        let case = Case::new();
        let (status, head, answer) = case.ask("/a.txt", "Range: bytes=0-1,-1\r\n");
        assert_eq!(status, 206);
        let Content::Parts { parts, end, .. } = &answer.content else {
            panic!("no parts: {answer:?}");
        };
        let boundary = head
            .split("boundary=")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap();
        assert!(
            parts[0]
                .0
                .starts_with(&format!("--{boundary}\r\nContent-Type: text/plain\r\n"))
        );
        assert!(parts[1].0.contains("Content-Range: bytes 9-9/10\r\n\r\n"));
        assert_eq!(end, &format!("\r\n--{boundary}--\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", answer.content.length())));
    }

    #[test]
    fn conditions_are_kept() {
        let case = Case::new();
        let (_, head, _) = case.ask("/a.txt", "");
        let etag = head
            .split("ETag: ")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap();
        let status = |headers: &str| case.ask("/a.txt", headers).0;
        assert_eq!(status(&format!("If-None-Match: {etag}\r\n")), 304);
        assert_eq!(status("If-None-Match: \"x\"\r\n"), 200);
        assert_eq!(status("If-Match: \"x\"\r\n"), 412);
        assert_eq!(
            status(&format!("If-Range: {etag}\r\nRange: bytes=0-0\r\n")),
            206
        );
        assert_eq!(status("If-Range: \"x\"\r\nRange: bytes=0-0\r\n"), 200);
        std::fs::write(case.folder.path().join("a.txt"), "changed").unwrap();
        assert_eq!(status(&format!("If-None-Match: {etag}\r\n")), 200);
    }

    #[test]
    fn a_folder_and_what_is_not_there_are_refused() {
        let case = Case::new();
        assert_eq!(case.ask("/", "").0, 403);
        assert_eq!(case.ask("/none", "").0, 404);
    }
}
