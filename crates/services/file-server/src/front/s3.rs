//! A bucket of S3 as a store: requests are signed in their address.

use super::store::{Ask, Entry, Page, Store};
use crate::digest::{Algorithm, Stated};
use crate::path::TreePath;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, UrlStyle};
use sheaf_ship::S3Access;
use std::time::{Duration, SystemTime};

/// Time that a signature is good for.
const GOOD: Duration = Duration::from_secs(3600);
/// Most bytes of an object that is sent at once, as AWS has it.
const BYTES_MAX: u64 = 5 << 30;
/// Headers with the CRC-32C of an object, and with whether it is that of the whole.
const CRC32C: &str = "x-amz-checksum-crc32c";
const TYPE: &str = "x-amz-checksum-type";
/// Header by which a store is asked for checksums.
const MODE: &str = "x-amz-checksum-mode";
/// Header in which this server keeps the Adler-32 that a client has stated, and that was right.
const ADLER32: &str = "x-amz-meta-adler32";

/// Bucket, and the prefix of its keys.
pub(super) struct S3 {
    url: String,
    bucket: Bucket,
    /// Beginning of all keys, with a slash at its end if there is one.
    prefix: String,
    access: S3Access,
}

impl S3 {
    pub(super) fn new(url: &str, access: S3Access) -> Result<Self, String> {
        let expected = || format!("found `{url}`, expected s3://BUCKET/PREFIX");
        let rest = url.strip_prefix("s3://").ok_or_else(expected)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let region = access.region.clone();
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = access.endpoint.clone();
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let place = endpoint.parse().map_err(|_| {
            format!(
                "found the endpoint `{endpoint}`, expected a URL such as https://store.example.org"
            )
        })?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
            return Err(expected());
        }
        let bucket = Bucket::new(place, UrlStyle::Path, bucket.to_owned(), region);
        let store = Self {
            url: url.to_owned(),
            bucket: bucket.map_err(|error| error.to_string())?,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            access,
        };
        store.sign(&Method::HEAD, None, &[], &[])?;
        Ok(store)
    }

    fn key(&self, path: &TreePath) -> String {
        format!("{}{}", self.prefix, path.as_str())
    }

    /// Beginning of the keys of what is in a folder.
    fn inside(&self, path: &TreePath) -> String {
        match path.as_str() {
            "" => self.prefix.clone(),
            folder => format!("{}{folder}/", self.prefix),
        }
    }

    fn sign(
        &self,
        method: &Method,
        key: Option<&str>,
        query: &[(&str, &str)],
        headers: &[(&'static str, String)],
    ) -> Result<Ask, String> {
        let keys = self.access.keys_now(&self.url);
        let keys = keys.map_err(|error| error.to_string())?;
        let method = match method.as_str() {
            "GET" => rusty_s3::Method::Get,
            "HEAD" => rusty_s3::Method::Head,
            "PUT" => rusty_s3::Method::Put,
            "DELETE" => rusty_s3::Method::Delete,
            other => return Err(format!("found the method {other}, which S3 does not have")),
        };
        let signed: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let url = keys.sign(&self.bucket, (method, key), query, &signed, GOOD);
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
            all.insert(HeaderName::from_static(name), value);
        }
        Ok(Ask { url, headers: all })
    }
}

impl Store for S3 {
    fn ask(&self, method: &Method, path: &TreePath, sent: &Stated) -> Result<Ask, String> {
        let mut headers = Vec::new();
        if method == Method::PUT {
            if let Some(sum) = sent.get(Algorithm::Crc32c) {
                headers.push((CRC32C, BASE64.encode(sum.to_be_bytes())));
            }
            if let Some(sum) = sent.get(Algorithm::Adler32) {
                headers.push((ADLER32, format!("{sum:08x}")));
            }
        } else if method != Method::DELETE {
            headers.push((MODE, "ENABLED".to_owned()));
        }
        self.sign(method, Some(&self.key(path)), &[], &headers)
    }

    fn stated(&self, headers: &HeaderMap) -> Stated {
        let text = |name: &str| {
            let value = headers.get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or("")
        };
        let is_whole = matches!(text(TYPE), "" | "FULL_OBJECT");
        let crc32c = Some(text(CRC32C)).filter(|sum| is_whole && !sum.is_empty());
        let adler32 = Some(text(ADLER32)).filter(|sum| !sum.is_empty());
        let crc32c = crc32c.map(|sum| format!("crc32c={sum}"));
        let adler32 = adler32.map(|sum| format!("adler32={sum}"));
        let mut stated = Stated::of_answer(&crc32c.unwrap_or_default(), "");
        stated.merge(&Stated::of_answer(&adler32.unwrap_or_default(), ""));
        stated
    }

    fn cannot(&self, method: &str) -> Option<&'static str> {
        (method == "MKCOL").then_some("a bucket has no folders: a name with a slash needs none")
    }

    fn keeps_halves(&self) -> bool {
        false
    }

    fn bytes_max(&self) -> Option<u64> {
        Some(BYTES_MAX)
    }

    fn list(&self, path: &TreePath, from: Option<&str>) -> Option<Result<Ask, String>> {
        let inside = self.inside(path);
        let mut query = vec![
            ("delimiter", "/"),
            ("list-type", "2"),
            ("prefix", inside.as_str()),
        ];
        if let Some(from) = from {
            query.push(("continuation-token", from));
        }
        Some(self.sign(&Method::GET, None, &query, &[]))
    }

    fn read_list(&self, path: &TreePath, text: &str) -> Result<Page, String> {
        let page = ListObjectsV2::parse_response(text);
        let page = page.map_err(|error| format!("found no list of a bucket: {error}"))?;
        let inside = self.inside(path);
        let folders = page.common_prefixes.iter().filter_map(|folder| {
            let name = folder.prefix.strip_prefix(&inside)?.trim_end_matches('/');
            Some(Entry {
                name: name.to_owned(),
                is_folder: true,
                bytes: 0,
                modified: None,
                etag: None,
            })
        });
        let files = page.contents.iter().filter_map(|file| {
            let name = file.key.strip_prefix(&inside)?;
            let modified = file.last_modified.as_deref();
            let modified = modified.and_then(|text| text.parse::<Timestamp>().ok());
            Some(Entry {
                name: name.to_owned(),
                is_folder: false,
                bytes: file.size.unwrap_or(0),
                modified: modified.map(SystemTime::from),
                etag: file.etag.clone(),
            })
        });
        let entries = folders.chain(files).filter(|entry| !entry.name.is_empty());
        Ok((entries.collect(), page.next_continuation_token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_ship::S3Keys;

    fn store(url: &str) -> Result<S3, String> {
        let keys = S3Keys {
            id: "ID".to_owned(),
            secret: "S".to_owned(),
            session_token: None,
        };
        let access = S3Access {
            endpoint: Some("http://127.0.0.1:8333".to_owned()),
            keys: Some(keys),
            ..S3Access::default()
        };
        S3::new(url, access)
    }

    #[test]
    fn a_file_is_the_object_below_the_prefix() {
        let store = store("s3://bucket/raw/").unwrap();
        let path = TreePath::of_target("/a%20b/c").unwrap();
        let ask = store.ask(&Method::GET, &path, &Stated::default()).unwrap();
        let start = "http://127.0.0.1:8333/bucket/raw/a%20b/c?";
        assert!(ask.url.starts_with(start), "{}", ask.url);
        assert!(ask.url.contains("X-Amz-Signature="), "{}", ask.url);
        let mut sent = Stated::default();
        sent.add_digest("adler32=11e60398, crc32c=AQIDBA==")
            .unwrap();
        let ask = store.ask(&Method::PUT, &path, &sent).unwrap();
        assert_eq!(ask.headers[ADLER32], "11e60398");
        assert_eq!(ask.headers[CRC32C], "AQIDBA==");
        assert_eq!(store.stated(&ask.headers).texts(), sent.texts());
    }

    #[test]
    fn addresses_without_a_bucket_or_keys_are_refused() {
        for url in ["s3://", "s3://ab", "s3://a b c/x", "http://bucket"] {
            let error = store(url).map(drop).unwrap_err();
            assert!(error.contains("expected s3://BUCKET/PREFIX"), "{error}");
        }
        let error = S3::new("s3://bucket", S3Access::default()).map(drop);
        assert!(error.unwrap_err().contains("needs credentials"));
    }
}
