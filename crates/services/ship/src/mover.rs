//! Ways to a destination.

mod client;
mod command;
mod folder;
mod http;
mod s3;

use crate::pace::Pace;
use command::Command;
use folder::Folder;
use http::Http;
use s3::S3;
pub use s3::{S3Access, S3Keys};
use sheaf_stream_files::SummingReader;
use sheaf_write::{Kinds, Sums};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Checksum that a destination has of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Adler32(u32),
    Crc32c(u32),
}

/// Length and checksum of a file at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) bytes: u64,
    pub(crate) checksum: Checksum,
}

impl Stored {
    /// Whether it is the file with these sums; not if they lack the checksum that there is.
    pub(crate) fn is(&self, expected: &Sums) -> bool {
        let is_same = match self.checksum {
            Checksum::Adler32(found) => expected.adler32 == found,
            Checksum::Crc32c(found) => expected.crc32c == Some(found),
        };
        is_same && self.bytes == expected.bytes
    }
}

impl From<Sums> for Stored {
    fn from(sums: Sums) -> Self {
        Self {
            bytes: sums.bytes,
            checksum: Checksum::Adler32(sums.adler32),
        }
    }
}

/// Reads all of `reader`.
fn sum(reader: impl Read) -> io::Result<Sums> {
    let mut reader = SummingReader::new(reader, Kinds::default());
    io::copy(&mut reader, &mut io::sink())?;
    Ok(reader.sums())
}

/// Why a file is not at its destination.
#[derive(Debug, Error)]
pub(crate) enum MoveError {
    /// The file on this disk cannot be read.
    #[error("{0}")]
    Source(io::Error),
    /// The destination does not take it, or does not answer.
    #[error("{0}")]
    Destination(String),
}

impl MoveError {
    pub(crate) fn at_destination(error: impl fmt::Display) -> Self {
        Self::Destination(error.to_string())
    }
}

/// Mover of files to one destination.
pub(crate) trait Mover: fmt::Debug + Send + Sync {
    /// Copies a file, over what is there, and returns the sums of what was read of it. A mover that can gives the file
    /// its name only if they are as `expected`.
    fn copy(
        &self,
        source: &Path,
        name: &str,
        expected: &Sums,
        pace: &Pace,
    ) -> Result<Sums, MoveError>;

    /// Removes what the destination has under a name, if it has something.
    fn remove(&self, name: &str, pace: &Pace) -> Result<(), MoveError>;

    /// Returns what the destination has under a name, by a checksum of its own that `expected` has as well, or read
    /// back; none if it has nothing.
    fn stored(&self, name: &str, expected: &Sums, pace: &Pace)
    -> Result<Option<Stored>, MoveError>;
}

/// Credentials that a destination may need beside its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// File with a token, sent as `Authorization: Bearer`; read again for each file.
    pub token_file: Option<PathBuf>,
    /// Certificate of the authority that signed that of the server, as PEM; needed for `https`.
    pub ca: Option<PathBuf>,
    /// Server and credentials of `s3`.
    pub s3: S3Access,
}

/// Why a destination is refused, before anything is copied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// No scheme is known that begins so.
    #[error("found destination \"{found}\", expected one of: {}", examples())]
    Scheme {
        /// The destination.
        found: String,
    },
    /// The folder is not there.
    #[error("the directory {} is not there, or cannot be written: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        error: String,
    },
    /// The program that copies there is not installed.
    #[error("{destination} needs the program {program}, which is not installed")]
    Program {
        /// The destination.
        destination: String,
        /// The program.
        program: &'static str,
    },
    /// A file of the access cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        error: String,
    },
    /// An encrypted address without a certificate to check it by.
    #[error("{destination} needs --ca FILE, the certificate of the authority of that server")]
    NoCa {
        /// The destination.
        destination: String,
    },
    /// No credentials for a destination that takes nothing without.
    #[error("{destination} needs credentials: {expected}")]
    NoKeys {
        /// The destination.
        destination: String,
        /// Where they may stand.
        expected: &'static str,
    },
    /// An address that no server can have.
    #[error("found {found}, expected {expected}")]
    Address {
        /// The address.
        found: String,
        /// Shape of an address.
        expected: &'static str,
    },
    /// The destination says that nothing can be stored there: no such bucket, or keys that it does not know.
    #[error("{destination} refuses: {error}")]
    Refused {
        /// The destination.
        destination: String,
        /// Answer of the server.
        error: String,
    },
}

/// A mover, or why there can be none.
type Made = Result<Box<dyn Mover>, DestinationError>;

/// Way to a destination, by the beginning of its address.
pub struct Scheme {
    /// Beginning of the address, such as `https://`; empty for a folder.
    pub prefix: &'static str,
    /// An address.
    pub example: &'static str,
    /// Description of the way, in a sentence.
    pub doc: &'static str,
    make: fn(&Scheme, &str, &Access) -> Made,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scheme").field(&self.prefix).finish()
    }
}

/// The one table of ways to a destination. A folder is last: it takes what no other does.
static SCHEMES: [Scheme; 7] = [
    Scheme {
        prefix: "https://",
        example: "https://store.example.org/raw",
        doc: "PUT over TLS; the checksum is asked with Want-Digest, or the file is read back",
        make: |_, address, access| Http::make(address, access),
    },
    Scheme {
        prefix: "http://",
        example: "http://127.0.0.1:8080/raw",
        doc: "PUT, as to WebDAV; the checksum is asked with Want-Digest, or the file is read back",
        make: |_, address, access| Http::make(address, access),
    },
    Scheme {
        prefix: "s3://",
        example: "s3://bucket/raw",
        doc: "PUT to a bucket, in parts if large; CRC-32C is compared, or the file is read back",
        make: |_, address, access| S3::make(address, access),
    },
    Scheme {
        prefix: "root://",
        example: "root://eos.example.org//eos/raw",
        doc: "xrdcp; the checksum is asked with xrdfs",
        make: |_, address, _| Command::xrootd(address),
    },
    Scheme {
        prefix: "gfal+",
        example: "gfal+davs://dcache.example.org/raw",
        doc: "gfal-copy to any address that it knows; the checksum is asked with gfal-sum",
        make: |_, address, _| Command::gfal(address),
    },
    Scheme {
        prefix: "gsiftp://",
        example: "gsiftp://se.example.org/raw",
        doc: "globus-url-copy; the file is read back",
        make: |_, address, _| Command::globus(address),
    },
    Scheme {
        prefix: "",
        example: "/mnt/tape-buffer",
        doc: "a folder that is there: copied under another name, synced, renamed, and read back",
        make: |_, address, _| Folder::make(address),
    },
];

/// Returns all ways to a destination.
#[must_use]
pub fn schemes() -> &'static [Scheme] {
    &SCHEMES
}

fn examples() -> String {
    let examples: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.example).collect();
    examples.join(", ")
}

/// A place that files are shipped to.
#[derive(Debug)]
pub struct Destination {
    /// Address, as it stands in the catalogue.
    pub address: String,
    pub(crate) mover: Box<dyn Mover>,
}

impl Destination {
    /// Opens a destination.
    ///
    /// # Errors
    ///
    /// [`DestinationError`] if it cannot work whatever is copied there.
    pub fn open(address: &str, access: &Access) -> Result<Self, DestinationError> {
        let address = address.trim_end_matches('/');
        let is_of = |scheme: &&Scheme| {
            let is_url = address.contains("://");
            address.starts_with(scheme.prefix) && (!scheme.prefix.is_empty() || !is_url)
        };
        let scheme = SCHEMES.iter().find(is_of);
        let scheme = scheme.filter(|_| !address.is_empty());
        let Some(scheme) = scheme else {
            let found = address.to_owned();
            return Err(DestinationError::Scheme { found });
        };
        Ok(Self {
            address: address.to_owned(),
            mover: (scheme.make)(scheme, address, access)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        let refused = |address: &str| {
            let error = Destination::open(address, &Access::default()).expect_err(address);
            error.to_string()
        };
        assert!(
            refused("ftp://host/x").contains("expected one of: https://"),
            "{}",
            refused("ftp://host/x")
        );
        assert!(refused("").contains("expected one of"));
        assert!(
            refused("/no/such/folder").starts_with("the directory /no/such/folder is not there")
        );
        assert!(refused("https://host/x").contains("needs --ca FILE"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = format!("{}/", folder.path().display());
        let opened = Destination::open(&path, &Access::default()).expect("a folder");
        assert_eq!(opened.address, path.trim_end_matches('/'));
    }
}
