//! A bucket of S3: AWS, or any server that speaks its protocol.
//!
//! Every request carries the CRC-32C of its body, and an upload in parts that of the whole file, where the store keeps
//! it: the store itself refuses what came otherwise. What the store has is then compared by that checksum, which is
//! known here from this copy or from the catalogue; where that is not the same, it is read back. An ETag is not
//! compared: it is an MD5 only of some objects at some stores.

mod access;
mod store;
mod xml;

use super::{Access, Checksum, DestinationError, Made, MoveError, Mover, Stored, sum};
use crate::pace::Pace;
pub use access::{S3Access, S3Keys};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rusty_s3::Method;
use sheaf_write::{Kinds, Summing, Sums};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use store::{Ask, Store};
use tracing::warn;
use ureq::http::HeaderMap;
use xml::Part;

/// Bytes of a part if nothing else is said, and the largest number of parts that S3 takes.
const PART_BYTES: u64 = 64 << 20;
const PARTS_MAX: u64 = 10_000;
/// Header with the CRC-32C of a body, or of an object.
const CRC32C: &str = "x-amz-checksum-crc32c";
/// Header that says whether a checksum is that of the whole object, and its value then.
const TYPE: &str = "x-amz-checksum-type";
const WHOLE: &str = "FULL_OBJECT";
const ALGORITHM: &str = "x-amz-checksum-algorithm";
/// Sums of what is sent.
const KINDS: Kinds = Kinds {
    crc32c: true,
    xxh3: false,
};

#[derive(Debug)]
pub(super) struct S3 {
    store: Store,
    prefix: String,
    part_bytes: u64,
}

impl S3 {
    pub(super) fn make(address: &str, access: &Access) -> Made {
        let rest = address.strip_prefix("s3://").unwrap_or(address);
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if bucket.len() < 3 || bucket.len() > 63 || !bucket.chars().all(is_of_name) {
            return Err(DestinationError::Address {
                found: format!("bucket \"{bucket}\" of {address}"),
                expected: "s3://BUCKET/PREFIX with a bucket of 3 to 63 letters, digits, dots and dashes",
            });
        }
        let part_bytes = access.s3.part_bytes.unwrap_or(PART_BYTES).max(1);
        Ok(Box::new(Self {
            store: Store::open(address, bucket, access)?,
            prefix: prefix.trim_matches('/').to_owned(),
            part_bytes,
        }))
    }

    fn key(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// Sends a file in parts. Until the store is ordered to make an object of them nothing has the name.
    fn copy_in_parts(
        &self,
        file: File,
        key: &str,
        part_bytes: u64,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Sums, MoveError> {
        self.abort_left(key, pace);
        let upload = self.begin(key, pace)?;
        let copied = upload.copy(file, part_bytes, expected, pace);
        let is_named = matches!(&copied, Ok(read) if expected.compare(read).is_ok());
        if !is_named && let Err(error) = upload.abort() {
            warn!(key, %error, "Parts of an upload that failed are still in the bucket");
        }
        copied
    }

    fn begin<'a>(&'a self, key: &'a str, pace: &Pace) -> Result<Upload<'a>, MoveError> {
        let mut answer = self.store.send(
            &Ask {
                method: Method::Post,
                key: Some(key),
                query: &[("uploads", "")],
                headers: &[(ALGORITHM, "CRC32C"), (TYPE, WHOLE)],
                body: &[],
            },
            pace,
        )?;
        let has = |name, wanted: &str| {
            let value = answer.headers().get(name);
            value.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(wanted.as_bytes()))
        };
        let (has_sums, has_whole) = (has(ALGORITHM, "CRC32C"), has(TYPE, WHOLE));
        let text = answer.body_mut().read_to_string();
        let text = text.map_err(MoveError::at_destination)?;
        let id = xml::text_of(&text, "UploadId").ok_or_else(|| {
            MoveError::Destination("found no id of an upload in the answer to POST".to_owned())
        })?;
        Ok(Upload {
            store: &self.store,
            key,
            id,
            has_sums,
            has_whole,
        })
    }

    /// Aborts uploads of this key that a life that was killed has left. It is done as far as the store lets us.
    fn abort_left(&self, key: &str, pace: &Pace) {
        let listed = self.store.ask(
            &Ask {
                method: Method::Get,
                key: None,
                query: &[("uploads", ""), ("prefix", key)],
                headers: &[],
                body: &[],
            },
            pace,
        );
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => {
                warn!(key, %error, "Cannot look for parts of former uploads");
                return;
            }
        };
        for one in xml::elements(&listed, "Upload") {
            let of = |name| xml::text_of(one, name).unwrap_or_default();
            if of("Key") != key {
                continue;
            }
            let upload = Upload {
                store: &self.store,
                key,
                id: of("UploadId"),
                has_sums: false,
                has_whole: false,
            };
            if let Err(error) = upload.abort() {
                warn!(key, %error, "Parts of a former upload are still in the bucket");
            }
        }
    }
}

/// An upload in parts.
struct Upload<'a> {
    store: &'a Store,
    key: &'a str,
    id: String,
    /// Whether the store keeps checksums of parts, and one of the whole object.
    has_sums: bool,
    has_whole: bool,
}

impl Upload<'_> {
    fn copy(
        &self,
        mut file: File,
        part_bytes: u64,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Sums, MoveError> {
        let mut parts = Vec::new();
        let (mut piece, mut whole) = (Vec::new(), Sums::empty(KINDS));
        loop {
            piece.clear();
            let read = file.by_ref().take(part_bytes).read_to_end(&mut piece);
            if read.map_err(MoveError::Source)? == 0 {
                break;
            }
            let sums = sums_of(&piece);
            whole = whole.then(sums);
            parts.push(self.send(parts.len() + 1, &piece, &sums, pace)?);
        }
        if expected.compare(&whole).is_ok() {
            self.complete(&parts, &whole, pace)?;
        }
        Ok(whole)
    }

    fn send(
        &self,
        number: usize,
        piece: &[u8],
        sums: &Sums,
        pace: &Pace,
    ) -> Result<Part, MoveError> {
        let (number, crc32c) = (number.to_string(), base64_of(sums));
        let answer = self.store.send(
            &Ask {
                method: Method::Put,
                key: Some(self.key),
                query: &[("partNumber", &number), ("uploadId", &self.id)],
                headers: &[(CRC32C, &crc32c)],
                body: piece,
            },
            pace,
        )?;
        let etag = answer.headers().get("etag");
        let etag = etag.and_then(|etag| etag.to_str().ok());
        let etag = etag.ok_or_else(|| {
            MoveError::Destination(format!("found no ETag of part {number}, expected one"))
        })?;
        Ok(Part {
            etag: etag.to_owned(),
            crc32c: self.has_sums.then_some(crc32c),
        })
    }

    fn complete(&self, parts: &[Part], whole: &Sums, pace: &Pace) -> Result<(), MoveError> {
        let (order, crc32c) = (xml::complete(parts), base64_of(whole));
        let whole = [(CRC32C, crc32c.as_str()), (TYPE, WHOLE)];
        let answer = self.store.ask(
            &Ask {
                method: Method::Post,
                key: Some(self.key),
                query: &[("uploadId", &self.id)],
                headers: match self.has_whole {
                    true => &whole,
                    false => &[],
                },
                body: order.as_bytes(),
            },
            pace,
        )?;
        // The status stands before the store knows whether it succeeds.
        match xml::text_of(&answer, "Code") {
            Some(code) => Err(MoveError::Destination(format!("POST: {code}"))),
            None => Ok(()),
        }
    }

    /// Makes the store drop the parts, also when all shall end.
    fn abort(&self) -> Result<(), store::Refusal> {
        let ask = Ask {
            method: Method::Delete,
            key: Some(self.key),
            query: &[("uploadId", &self.id)],
            headers: &[],
            body: &[],
        };
        match self.store.send(&ask, &Pace::default()) {
            Err(refusal) if refusal.status != Some(404) => Err(refusal),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn sums_of(bytes: &[u8]) -> Sums {
    let mut summing = Summing::new(KINDS);
    summing.update(bytes);
    summing.sums()
}

/// Returns CRC-32C as S3 writes it: most significant byte first, in Base64.
fn base64_of(sums: &Sums) -> String {
    BASE64_STANDARD.encode(sums.crc32c.unwrap_or_default().to_be_bytes())
}

/// Reads the CRC-32C of a whole object; there is none if the store says that it is made of the sums of its parts.
fn crc32c_of(headers: &HeaderMap) -> Option<u32> {
    let is_whole = headers
        .get(TYPE)
        .is_none_or(|it| it.as_bytes() == WHOLE.as_bytes());
    let bytes = BASE64_STANDARD.decode(headers.get(CRC32C)?).ok()?;
    let bytes: [u8; 4] = bytes.try_into().ok()?;
    is_whole.then_some(u32::from_be_bytes(bytes))
}

impl Mover for S3 {
    fn copy(
        &self,
        source: &Path,
        name: &str,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Sums, MoveError> {
        let key = self.key(name);
        let mut file = File::open(source).map_err(MoveError::Source)?;
        let length = file.metadata().map_err(MoveError::Source)?.len();
        if length > self.part_bytes {
            let part_bytes = self.part_bytes.max(length.div_ceil(PARTS_MAX));
            return self.copy_in_parts(file, &key, part_bytes, expected, pace);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(MoveError::Source)?;
        let sums = sums_of(&bytes);
        if expected.compare(&sums).is_ok() {
            let ask = Ask {
                method: Method::Put,
                key: Some(&key),
                query: &[],
                headers: &[(CRC32C, &base64_of(&sums))],
                body: &bytes,
            };
            self.store.send(&ask, pace)?;
        }
        Ok(sums)
    }

    fn remove(&self, name: &str, pace: &Pace) -> Result<(), MoveError> {
        let ask = Ask {
            method: Method::Delete,
            key: Some(&self.key(name)),
            query: &[],
            headers: &[],
            body: &[],
        };
        match self.store.send(&ask, pace) {
            Err(refusal) if refusal.status != Some(404) => Err(refusal.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn stored(
        &self,
        name: &str,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Option<Stored>, MoveError> {
        let key = self.key(name);
        let mut ask = Ask {
            method: Method::Head,
            key: Some(&key),
            query: &[],
            headers: &[("x-amz-checksum-mode", "ENABLED")],
            body: &[],
        };
        let head = match self.store.send(&ask, pace) {
            Err(refusal) if refusal.status == Some(404) => return Ok(None),
            answer => answer?,
        };
        let length = head.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let (Some(bytes), Some(crc32c)) = (length, crc32c_of(head.headers())) {
            let checksum = Checksum::Crc32c(crc32c);
            let stored = Stored { bytes, checksum };
            if stored.is(expected) || bytes != expected.bytes {
                return Ok(Some(stored));
            }
        }
        // No checksum, or another one: some stores tell one that is made of those of the parts as if it were that of
        // the object. The bytes decide.
        ask.method = Method::Get;
        ask.headers = &[];
        let mut answer = self.store.send(&ask, pace)?;
        let stored = sum(answer.body_mut().as_reader());
        let stored = stored.map_err(MoveError::at_destination)?;
        Ok(Some(stored.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_one_of_a_whole_object_only() {
        let crc32c = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().expect("a value"));
            }
            crc32c_of(&headers)
        };
        // Of "123456789", the check value of CRC-32C.
        let sums = sums_of(b"123456789");
        assert_eq!(base64_of(&sums), "4waSgw==");
        assert_eq!(crc32c(&[(CRC32C, "4waSgw==")]), Some(0xe306_9283));
        assert_eq!(crc32c(&[(CRC32C, "4waSgw=="), (TYPE, WHOLE)]), sums.crc32c);
        assert_eq!(crc32c(&[(CRC32C, "4waSgw=="), (TYPE, "COMPOSITE")]), None);
        for other in ["4waSgw==-2", "4waS", ""] {
            assert_eq!(crc32c(&[(CRC32C, other)]), None, "{other}");
        }
        assert_eq!(crc32c(&[]), None);
    }

    #[test]
    fn an_address_without_a_bucket_is_refused() {
        for address in ["s3://", "s3://ab/raw", "s3://a b c/raw", "s3:///raw"] {
            let refused = S3::make(address, &Access::default()).expect_err(address);
            let text = refused.to_string();
            assert!(text.contains("expected s3://BUCKET/PREFIX"), "{text}");
        }
    }
}
