//! The `[transport]` table.

use serde::{Deserialize, Serialize};
use sheaf_transport::{ArenaOptions, KernelTls, TcpConfig};

/// The `[transport]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportConfig {
    /// Congestion control, by its kernel name; empty: the machine's own.
    pub congestion: String,
    /// Send and receive buffer that the kernel is asked for, in bytes each; 1 MiB at most on loopback. It may give
    /// less.
    pub socket_buffer_bytes: u32,
    /// Whether payload memory is asked for in huge pages.
    pub huge_pages: bool,
    /// Whether STFs for an EPN on the same machine stay where they are, and the EPN looks at them there.
    pub shared_memory: bool,
    /// Whether the kernel is asked not to copy large STFs that go to other machines. It is asked no more on a
    /// connection where it copies after all, or where a trial shows that copies take less processor time.
    pub zero_copy: bool,
    /// Choice between the kernel and the process for the records of TLS sessions.
    pub kernel_tls: KernelTlsConfig,
    /// Connections that peers may have open at once.
    pub connections_max: u32,
    /// The same for the peers of one address.
    pub connections_per_address_max: u32,
}

/// Choice between the kernel and the node for the records of TLS sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTlsConfig {
    /// The kernel, where it can change keys and takes less processor time.
    #[default]
    Auto,
    /// The kernel, where it can change keys.
    On,
    /// The node.
    Off,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            congestion: "cubic".to_owned(),
            socket_buffer_bytes: 4 << 20,
            huge_pages: true,
            shared_memory: true,
            zero_copy: true,
            kernel_tls: KernelTlsConfig::Auto,
            connections_max: 4096,
            connections_per_address_max: 2048,
        }
    }
}

impl TransportConfig {
    /// How a TCP endpoint behaves; what is not in the table has its default.
    #[must_use]
    pub fn tcp(&self) -> TcpConfig {
        let buffer_bytes = self.socket_buffer_bytes as usize;
        TcpConfig {
            congestion_control: (!self.congestion.is_empty()).then(|| self.congestion.clone()),
            send_buffer_bytes: buffer_bytes,
            receive_buffer_bytes: buffer_bytes,
            accepted_max: self.connections_max as usize,
            accepted_per_ip_max: self.connections_per_address_max as usize,
            shared_memory: self.shared_memory,
            zero_copy: self.zero_copy,
            kernel_tls: match self.kernel_tls {
                KernelTlsConfig::Auto => KernelTls::Auto,
                KernelTlsConfig::On => KernelTls::On,
                KernelTlsConfig::Off => KernelTls::Off,
            },
            awaits_admission: true,
            ..TcpConfig::default()
        }
    }

    /// How payload memory is had.
    #[must_use]
    pub fn arena(&self) -> ArenaOptions {
        ArenaOptions {
            huge_pages: self.huge_pages,
            ..ArenaOptions::default()
        }
    }

    /// How payload memory is had that other processes of the machine map, whatever becomes of the streams.
    #[must_use]
    pub fn shared_arena(&self) -> ArenaOptions {
        ArenaOptions {
            shared: true,
            ..self.arena()
        }
    }

    /// How payload memory is had that may be lent to processes of the same machine.
    #[must_use]
    pub fn lent_arena(&self) -> ArenaOptions {
        ArenaOptions {
            shared: self.shared_memory,
            ..self.arena()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_transport() {
        let config = TransportConfig::default();
        let expected = TcpConfig {
            awaits_admission: true,
            ..TcpConfig::default()
        };
        assert_eq!(config.tcp(), expected);
        assert_eq!(config.arena(), ArenaOptions::default());
    }
}
