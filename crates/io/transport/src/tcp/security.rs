//! What an endpoint says in the clear, and to whom.

use super::address::Address;
use crate::transport::CloseReason;
use sheaf_auth::Tls;

/// How the connections of an endpoint are guarded.
#[derive(Clone, Debug, Default)]
pub enum Security {
    /// In the clear, and therefore on loopback and Unix sockets only: listening or connecting anywhere else is refused.
    #[default]
    Loopback,
    /// In the clear, anywhere. Whoever reaches the network can read, change and send everything.
    Insecure,
    /// TLS 1.3 with certificates on both sides.
    Tls {
        /// What sessions are made from.
        tls: Tls,
        /// Whether bulk data is encrypted, too.
        bulk: Bulk,
    },
}

/// What happens to bulk data where control streams are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bulk {
    /// It is encrypted and authenticated like everything else.
    #[default]
    Encrypted,
    /// It travels in the clear, with its CRC-32C against accidents, and its sender proves nothing.
    CrcOnly,
}

impl Security {
    /// What sessions of control streams, or of bulk data, are made from; `None` for plain ones.
    pub(super) fn tls(&self, is_bulk: bool) -> Option<&Tls> {
        match self {
            Self::Tls {
                bulk: Bulk::CrcOnly,
                ..
            } if is_bulk => None,
            Self::Tls { tls, .. } => Some(tls),
            Self::Loopback | Self::Insecure => None,
        }
    }

    /// Whether a plain connection to or from `address` was asked for.
    pub(super) fn allows(&self, address: &Address) -> bool {
        !matches!(self, Self::Loopback) || address.is_of_this_machine()
    }
}

/// A peer that was turned away before its connection stood: no event tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its address.
    pub peer: String,
    /// What was wrong.
    pub reason: CloseReason,
}
