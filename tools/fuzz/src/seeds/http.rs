//! Seeds: requests of clients of the file server.

use super::{Seed, seed};

/// All of them.
pub(super) fn all() -> Vec<Seed> {
    let get = |name, lines: &str| {
        let text = format!("GET /run/a%20b.tf?x=1 HTTP/1.1\r\nHost: store\r\n{lines}\r\n");
        seed("http_request", name, text)
    };
    let put = "PUT /up/a HTTP/1.1\r\nHost: store\r\nTransfer-Encoding: chunked\r\nDigest: adler32=03da0195\r\n\r\n\
               4;x=y\r\nbeam\r\n0\r\nTrailer: t\r\n\r\n";
    let copy = "COPY http://store/a HTTP/1.1\r\nHost: store\r\nSource: https://other/a\r\nExpect: 100-continue\r\n\
                Content-Length: 0\r\nConnection: close\r\n\r\n";
    vec![
        get("range", "Range: bytes=0-9,20-, -5\r\n"),
        get(
            "conditions",
            "If-Match: \"a\", W/\"b\"\r\nIf-Modified-Since: Fri, 27 Nov 2026 12:00:00 GMT\r\n",
        ),
        get(
            "wants",
            "Want-Digest: adler32;q=0.5, crc32c\r\nWant-Repr-Digest: adler=3\r\n",
        ),
        get("repr-digest", "Repr-Digest: adler=:A9oBlQ==:\r\n"),
        get("two-lengths", "Content-Length: 4\r\nContent-Length: 5\r\n"),
        seed("http_request", "put", put),
        seed("http_request", "copy", copy),
    ]
}
