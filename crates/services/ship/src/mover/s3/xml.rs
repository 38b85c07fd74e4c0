//! The little XML that uploads in parts need.

/// Part of an upload that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) etag: String,
    /// CRC-32C of it in Base64, where the upload has checksums.
    pub(super) crc32c: Option<String>,
}

/// Returns the text of the first element of a name in `xml`.
pub(super) fn text_of(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).next().map(unescape)
}

/// Returns what stands in each element of a name, which has no attributes and none of its own name in it.
pub(super) fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&begin)?;
        let (inner, behind) = behind.split_once(&end)?;
        rest = behind;
        Some(inner)
    })
}

/// Names for the characters that cannot stand in a text; `&` first when written, last when read.
const ESCAPES: [(&str, &str); 5] = [
    ("&amp;", "&"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&apos;", "'"),
];

fn unescape(text: &str) -> String {
    let numbered = text.replace("&#34;", "\"").replace("&#39;", "'");
    let pairs = ESCAPES.iter().rev();
    pairs.fold(numbered, |text, (name, sign)| text.replace(name, sign))
}

fn escape(text: &str) -> String {
    let pairs = ESCAPES.iter();
    pairs.fold(text.to_owned(), |text, (name, sign)| {
        text.replace(sign, name)
    })
}

/// Returns the order to make one object of `parts`.
pub(super) fn complete(parts: &[Part]) -> String {
    let mut xml =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for (part, number) in parts.iter().zip(1..) {
        xml += "<Part>";
        if let Some(crc32c) = &part.crc32c {
            xml += &format!("<ChecksumCRC32C>{crc32c}</ChecksumCRC32C>");
        }
        let etag = escape(&part.etag);
        xml += &format!("<ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>");
    }
    xml + "</CompleteMultipartUpload>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_texts_are_escaped() {
        let xml = "<?xml version=\"1.0\"?><R xmlns=\"x\"><Upload><Key>a&amp;lt;b</Key></Upload>\
                   <Upload><Key>c</Key><UploadId>7</UploadId></Upload></R>";
        assert_eq!(text_of(xml, "Key").as_deref(), Some("a&lt;b"));
        assert_eq!(text_of(xml, "UploadId").as_deref(), Some("7"));
        assert_eq!(text_of(xml, "Code"), None);
        assert_eq!(text_of("<Key>cut", "Key"), None);
        let uploads: Vec<&str> = elements(xml, "Upload").collect();
        assert_eq!(uploads.len(), 2);
        assert_eq!(text_of(uploads[0], "UploadId"), None);
        let parts = [
            Part {
                etag: "\"1&2\"".to_owned(),
                crc32c: None,
            },
            Part {
                etag: "x".to_owned(),
                crc32c: Some("AAAAAA==".to_owned()),
            },
        ];
        let expected = "<Part><ETag>&quot;1&amp;2&quot;</ETag><PartNumber>1</PartNumber></Part>\
                        <Part><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C><ETag>x</ETag><PartNumber>2</PartNumber></Part>";
        assert!(complete(&parts).contains(expected), "{}", complete(&parts));
    }
}
