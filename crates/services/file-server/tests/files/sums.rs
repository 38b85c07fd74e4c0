//! Checksums that are asked for.

use crate::client::{Site, bytes};

#[test]
fn a_checksum_comes_from_the_catalogue_without_reading_the_file() {
    let site = Site::start(|_| ());
    site.write("run.tf", b"12345");
    // Not the one of the bytes, so that it tells where it comes from.
    site.close_in_catalogue("run.tf", 0x0102_0304);
    let mut client = site.connect();
    for (method, headers, name, value) in [
        (
            "GET",
            "Want-Digest: adler32\r\n",
            "digest",
            "adler32=01020304",
        ),
        (
            "HEAD",
            "Want-Digest: md5;q=1, adler32;q=0.2\r\n",
            "digest",
            "adler32=01020304",
        ),
        (
            "HEAD",
            "Want-Repr-Digest: adler=5\r\n",
            "repr-digest",
            "adler=:AQIDBA==:",
        ),
        (
            "GET",
            "Range: bytes=1-2\r\nWant-Digest: adler32\r\n",
            "digest",
            "adler32=01020304",
        ),
    ] {
        let reply = client.ask(method, "/run.tf", headers);
        assert_eq!(reply.get(name), Some(value), "{method} {headers}");
    }
    let reply = client.ask("HEAD", "/run.tf", "Want-Digest: sha-256\r\n");
    assert_eq!((reply.status, reply.get("digest")), (200, None));
}

#[test]
fn a_file_of_others_is_read_for_its_checksum() {
    let site = Site::start(|_| ());
    site.write("a", b"Wikipedia");
    site.write("large", &bytes(5_000_000));
    let mut client = site.connect();
    let mut digest = |target: &str, want: &str| {
        let reply = client.ask("HEAD", target, &format!("Want-Digest: {want}\r\n"));
        reply.get("digest").map(str::to_owned)
    };
    assert_eq!(digest("/a", "adler32").as_deref(), Some("adler32=11e60398"));
    let first = digest("/large", "crc32c");
    assert!(first.is_some());
    assert_eq!(digest("/large", "crc32c"), first);
    site.write("a", b"wikipedia");
    assert_eq!(digest("/a", "adler32").as_deref(), Some("adler32=130603b8"));
}
