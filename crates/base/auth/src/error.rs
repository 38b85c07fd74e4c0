//! Errors of certificates and keys.

use crate::moment::Moment;
use crate::name::{Identity, NameError};
use sheaf_protocol::NodeId;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a certificate, a key or a CA cannot be used. Each names the file, and what it holds as far as that is known.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read the {what} {}: {source}", path.display())]
    Unreadable {
        /// Certificate, private key or CA certificate.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Existing file that is not to be replaced.
    #[error("{} is there already; --force replaces it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read a private key.
    #[error(
        "private key {} can be read by others: found mode {mode:04o}, expected 0600 (chmod 600 {})",
        path.display(), path.display()
    )]
    KeyOpenToOthers {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// A file holds no PEM block of the kind that was expected.
    #[error("{} is no {what}: found no PEM block of that kind ({detail})", path.display())]
    NotPem {
        /// Certificate, private key or CA certificate.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Message of the reader.
        detail: String,
    },
    /// A PEM block holds something else than it says.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Message of the reader.
        detail: String,
    },
    /// A CA was expected, and this certificate is of a node.
    #[error("{} ({subject}) is no CA certificate", path.display())]
    NotAuthority {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
    },
    /// A certificate was signed by another CA than that of the farm.
    #[error("certificate {} ({subject}) was not signed by {} ({ca_subject}): {detail}", path.display(), ca.display())]
    WrongAuthority {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
        /// The file of the CA certificate.
        ca: PathBuf,
        /// The subject of the CA.
        ca_subject: String,
        /// Message of the verifier.
        detail: String,
    },
    /// A certificate holds no more.
    #[error("certificate {} ({subject}) expired at {not_after}, and it is {now} now", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
        /// Last moment.
        not_after: Moment,
        /// Moment of the check.
        now: Moment,
    },
    /// A certificate does not hold yet, or the clock of this machine is wrong.
    #[error("certificate {} ({subject}) is valid from {not_before} on, and it is {now} now", path.display())]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
        /// First moment.
        not_before: Moment,
        /// Moment of the check.
        now: Moment,
    },
    /// A certificate names no node.
    #[error("certificate {} ({subject}) names no node: expected one URI sheaf://FARM/ROLE/INDEX", path.display())]
    NoNode {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
    },
    /// A certificate is of another node.
    #[error("certificate {} ({subject}) is for {found}, expected {expected}", path.display())]
    WrongNode {
        /// The file.
        path: PathBuf,
        /// The subject of the certificate.
        subject: String,
        /// Node that the certificate names.
        found: Identity,
        /// Node that this process runs as.
        expected: NodeId,
    },
    /// A private key is not that of the certificate.
    #[error("private key {} is not that of certificate {} ({subject})", key.display(), certificate.display())]
    WrongKey {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The subject of the certificate.
        subject: String,
    },
    /// A name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The library that writes certificates cannot go on.
    #[error("cannot make a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The TLS library does not take what was read.
    #[error("cannot make a TLS configuration of certificate {}: {detail}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Message of the library.
        detail: String,
    },
}
