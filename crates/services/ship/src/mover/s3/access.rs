//! Server and credentials of a bucket.

use crate::mover::DestinationError;
use jiff::Timestamp;
use rusty_s3::{Bucket, Method, signing};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a bucket is, and who writes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Access {
    /// Address of the server, such as `http://127.0.0.1:8333`; without one AWS, where the region names the server.
    pub endpoint: Option<String>,
    /// Region that requests are signed for; without one `us-east-1`.
    pub region: Option<String>,
    /// Keys, if they do not stand in a file.
    pub keys: Option<S3Keys>,
    /// File with keys in the form of `~/.aws/credentials`, read again for each request; goes before
    /// [`keys`](Self::keys).
    pub credentials_file: Option<PathBuf>,
    /// Bytes of a part of a large file, each held in memory while it is sent; without it 64 MiB.
    pub part_bytes: Option<u64>,
}

/// Keys of a user of S3. Their secret half is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// Name of the key.
    pub id: String,
    /// Secret that requests are signed with.
    pub secret: String,
    /// Token of a session, of keys that are good for a while.
    pub session_token: Option<String>,
}

impl fmt::Debug for S3Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Keys")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl S3Keys {
    /// Returns the address of a request to `bucket` for an object, or without `key` for the bucket, with a signature
    /// over `query` and `headers` that holds for so long from now.
    #[must_use]
    pub fn sign(
        &self,
        bucket: &Bucket,
        (method, key): (Method, Option<&str>),
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        good: Duration,
    ) -> String {
        let url = match key {
            Some(key) => bucket.object_url(key),
            None => bucket.base_url().clone(),
        };
        // In the order of their names, as they are signed.
        let query: BTreeMap<&str, &str> = query.iter().copied().collect();
        let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
        let signed = signing::sign(
            &Timestamp::now(),
            method,
            url,
            &self.id,
            &self.secret,
            self.session_token.as_deref(),
            bucket.region(),
            good.as_secs(),
            query.iter().map(|(name, value)| (*name, *value)),
            headers.iter().map(|(name, value)| (*name, *value)),
        );
        signed.into()
    }
}

impl S3Access {
    /// Returns the keys as they are now.
    ///
    /// # Errors
    ///
    /// [`DestinationError`] if there are none, or their file cannot be read.
    pub fn keys_now(&self, destination: &str) -> Result<S3Keys, DestinationError> {
        match (&self.credentials_file, &self.keys) {
            (Some(path), _) => read(path),
            (None, Some(keys)) => Ok(keys.clone()),
            (None, None) => Err(DestinationError::NoKeys {
                destination: destination.to_owned(),
                expected: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3-credentials FILE",
            }),
        }
    }
}

fn read(path: &Path) -> Result<S3Keys, DestinationError> {
    let refused = |error: String| DestinationError::Access {
        path: path.to_owned(),
        error,
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    parse(&text).map_err(|lacking| {
        refused(format!(
            "found no {lacking}, expected one in the section [default]"
        ))
    })
}

/// Reads the keys of the section `default`, or of a file without sections. Fails with the name of a key that is not
/// there.
fn parse(text: &str) -> Result<S3Keys, &'static str> {
    let (mut id, mut secret, mut session_token) = (None, None, None);
    let mut is_ours = true;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_ours = section.trim_end_matches(']').trim() == "default";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_ours) {
            let place = match key.trim() {
                "aws_access_key_id" => &mut id,
                "aws_secret_access_key" => &mut secret,
                "aws_session_token" => &mut session_token,
                _ => continue,
            };
            *place = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    Ok(S3Keys {
        id: id.ok_or("aws_access_key_id")?,
        secret: secret.ok_or("aws_secret_access_key")?,
        session_token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_default_section() {
        let text = "[other]\naws_access_key_id = NO\n\n[default]\n# ours\naws_access_key_id=ID\n\
                    aws_secret_access_key = a=b/c+\nregion = x\n[last]\naws_session_token = NO\n";
        let keys = parse(text).expect("both are there");
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("ID", "a=b/c+"));
        assert_eq!(keys.session_token, None);
        let plain = "aws_access_key_id = ID\naws_secret_access_key = S\naws_session_token = T\n";
        let keys = parse(plain).expect("both are there");
        assert_eq!(keys.session_token.as_deref(), Some("T"));
        assert!(!format!("{keys:?}").contains("secret: "), "{keys:?}");
        assert_eq!(parse("").err(), Some("aws_access_key_id"));
        let cut = "[default]\naws_access_key_id = ID\naws_secret_access_key =\n";
        assert_eq!(parse(cut).err(), Some("aws_secret_access_key"));
    }
}
