//! Authentication of nodes: certificates and TLS.
//!
//! This crate answers one question: *is the peer the node that it claims to be?* It makes a private
//! certificate authority (CA) and one certificate for each node, reads them back with every doubt named, and
//! builds the TLS configurations of both ends of a connection. What a node of a role may say, and what happens
//! when it says something else, is the business of the node; moving bytes that of the transport.
//!
//! - [`Identity`] is farm, role and index, as they stand in a certificate;
//! - [`Authority`] makes certificates, [`Certificate`] is one that was read;
//! - [`Credentials`] are what a node proves itself with, [`Tls`] what its connections are made from;
//! - [`web`] is TLS with programs that are no nodes.

mod authority;
mod certificate;
mod credentials;
mod error;
mod files;
mod moment;
mod name;
mod tls;
mod verify;
pub mod web;

pub use authority::{Authority, Pem};
pub use certificate::Certificate;
pub use credentials::Credentials;
pub use error::IdentityError;
pub use files::CertFiles;
pub use moment::{Moment, Validity};
pub use name::{Identity, NameError, parse_node};
pub use tls::{PeerError, Tls};
