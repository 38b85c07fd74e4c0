//! Encryption of an endpoint: which streams use TLS, and with which peers.

use super::address::Address;
use crate::transport::CloseReason;
use sheaf_auth::Tls;

/// Protection of the connections of an endpoint.
#[derive(Clone, Debug, Default)]
pub enum Security {
    /// In the clear, and therefore on loopback and Unix sockets only: listening or connecting anywhere else is refused.
    #[default]
    Loopback,
    /// In the clear, anywhere. An attacker on the network can read, change and send everything.
    Insecure,
    /// TLS 1.3 with certificates on both sides.
    Tls {
        /// TLS configurations for sessions.
        tls: Tls,
        /// Whether bulk data is encrypted, too.
        bulk: Bulk,
    },
}

/// Protection of bulk data where control streams are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bulk {
    /// Encrypted and authenticated like everything else.
    #[default]
    Encrypted,
    /// In the clear, with a CRC-32C against accidents and without proof of the sender.
    CrcOnly,
}

impl Security {
    /// Returns what sessions of control streams, or of bulk data, are made from; `None` for plain ones.
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

    /// Returns whether a plain connection to or from `address` was asked for.
    pub(super) fn allows(&self, address: &Address) -> bool {
        !matches!(self, Self::Loopback) || address.is_of_this_machine()
    }
}

/// A peer that was turned away before its connection stood: no event tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Address.
    pub peer: String,
    /// Reason of the refusal.
    pub reason: CloseReason,
}
