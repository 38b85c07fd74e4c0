//! The `[network]` table of a scenario.

use serde::{Deserialize, Serialize};

/// Wires and switches: one NIC a node, a switch that is fast enough, or racks with uplinks.
///
/// ```text
///   FLP ══nic══► [port] rack switch [port] ══uplink══► core ══uplink══► [port] rack switch [port] ══nic══► EPN
/// ```
///
/// Every arrow is a link with a rate and a delay, and the switch's port before it has a buffer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Line rate of an FLP's NIC, in Mbit/s.
    pub flp_mbit_s: f64,
    /// Line rate of an EPN's NIC, in Mbit/s.
    pub epn_mbit_s: f64,
    /// Payload bytes for each byte of the line: 1448 of 1538 for full Ethernet frames, 94.15 of 100 Mbit/s.
    pub efficiency: f64,
    /// One way between any two nodes in one rack, in µs; a way over uplinks takes twice this.
    pub delay_us: u64,
    /// Bytes that the switch keeps for one port; a pushed burst beyond it is lost.
    pub port_buffer_bytes: u64,
    /// Bytes that a shaped port lets through at once after a pause, on the line; 0 for a line as it is. The token
    /// buckets of the lab; needs [`machine_mbit_s`](Self::machine_mbit_s), which is how fast a burst is.
    #[serde(skip_serializing_if = "is_zero")]
    pub burst_bytes: u64,
    /// Payload that the processors move for all nodes together if they share one machine, in Mbit/s: making, sending,
    /// forwarding, receiving. None: every node has processors enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_mbit_s: Option<f64>,
    /// Processor time that an STF takes if all nodes share one machine, whatever its bytes, in µs: messages, system
    /// calls, wake-ups. STFs that begin together take it one after the other. 0: every node has processors enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub stf_us: u64,
    /// Bytes that a TCP sender has under way before the first acknowledgement: 10 segments of 1460.
    pub window_bytes: u64,
    /// Least time after which TCP retransmits, in ms; it doubles with every failure.
    pub rto_ms: u64,
    /// Time after which TCP finds out that its last segments were lost, by a probe, in ms (RFC 8985); a sender that a
    /// full port has cost its first window goes on then, among the others. 0: it waits for the retransmission timeout,
    /// as it does where the windows of a port are more than twice what it keeps.
    pub probe_ms: u64,
    /// Racks; nodes beyond them are in one more rack, without a bound on its uplink. None: one switch for all.
    pub racks: Vec<Rack>,
    /// Network of control messages.
    pub control: Control,
    /// A control message from node to node, in µs; messages on the primary network also wait for its links.
    pub control_delay_us: u64,
    /// Tolerance of the shares of links: a flow's share is passed on to the links it shares when it changes by more
    /// than this part. 0 for the exact max-min share.
    pub tolerance: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            flp_mbit_s: 1000.0,
            epn_mbit_s: 1000.0,
            efficiency: 1448.0 / 1538.0,
            delay_us: 50,
            port_buffer_bytes: 128 << 10,
            burst_bytes: 0,
            machine_mbit_s: None,
            stf_us: 0,
            window_bytes: 14_600,
            rto_ms: 200,
            probe_ms: 20,
            racks: Vec::new(),
            control: Control::Auxiliary,
            control_delay_us: 100,
            tolerance: 0.0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Nodes on one top-of-rack switch, taken in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rack {
    /// FLPs in it.
    #[serde(default)]
    pub flps: u32,
    /// EPNs in it.
    #[serde(default)]
    pub epns: u32,
    /// Line rate of its uplink each way, in Mbit/s.
    pub uplink_mbit_s: f64,
}

/// Network of control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// A network of their own.
    #[default]
    Auxiliary,
    /// Over the NICs of the data, whose queues they wait in.
    Primary,
}
