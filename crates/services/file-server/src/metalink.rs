//! Lists of the copies of a file, in the format Metalink (RFC 5854), which davix and other clients of grids ask for.

use crate::head::Head;
use sheaf_write::Sums;
use std::fmt::Write as _;

/// Media type of a list.
pub(crate) const TYPE: &str = "application/metalink4+xml";

/// Returns whether a request asks for the list in place of the file: by its media type, or by the query `metalink`.
pub(crate) fn is_wanted(head: &Head) -> bool {
    let is_type = |one: &str| one.split(';').next().unwrap_or_default().trim() == TYPE;
    let accepted = head.list("accept").unwrap_or_default();
    let query = head.target().split_once('?').map_or("", |(_, query)| query);
    accepted.split(',').any(is_type) || query.split('&').any(|one| one == "metalink")
}

/// Writes a list, the best address first.
pub(crate) fn write<'a>(name: &str, sums: &Sums, urls: impl Iterator<Item = &'a str>) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n  \
         <file name=\"{}\">\n    <size>{}</size>\n    <hash type=\"adler32\">{:08x}</hash>\n",
        escaped(name),
        sums.bytes,
        sums.adler32
    );
    if let Some(crc32c) = sums.crc32c {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    <hash type=\"crc32c\">{crc32c:08x}</hash>");
    }
    for (at, url) in urls.enumerate() {
        let _ = writeln!(
            text,
            "    <url priority=\"{}\">{}</url>",
            at + 1,
            escaped(url)
        );
    }
    text + "  </file>\n</metalink>\n"
}

/// Replaces what has a meaning in XML, and what cannot stand there at all.
pub(crate) fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            c if c.is_control() => all.push('\u{fffd}'),
            c => all.push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_size_checksums_and_addresses() {
        let sums = Sums {
            bytes: 9,
            adler32: 0x11e6_0398,
            crc32c: None,
            xxh3: None,
        };
        let urls = ["http://a/x", "http://b/x&y"];
        let text = write("a<b\u{1}.tf", &sums, urls.into_iter());
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n  <file name=\"a&lt;b\u{fffd}.tf\">\n    \
             <size>9</size>\n    <hash type=\"adler32\">11e60398</hash>\n    \
             <url priority=\"1\">http://a/x</url>\n    <url priority=\"2\">http://b/x&amp;y</url>\n  \
             </file>\n</metalink>\n";
        assert_eq!(text, expected);
    }
}
