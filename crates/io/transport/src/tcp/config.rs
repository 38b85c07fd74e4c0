//! Configuration of TCP.

use super::kernel_trial::KernelTls;
use crate::transport::WhenFull;
use sheaf_protocol::Limits;

/// Options of an endpoint. The defaults are for a farm node; tests make the bounds small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The largest frame that is sent or accepted. No body is accepted that neither the arena nor the heap could
    /// ever hold, see [`Tcp::limits`](crate::Tcp::limits).
    pub limits: Limits,
    /// Bytes that may be queued on one connection, beside what the kernel has. One frame is always taken.
    pub queue_bytes_max: u64,
    /// Behaviour of a full queue, unless set for the connection.
    pub when_full: WhenFull,
    /// Heap memory that may stand in for a full arena, over all connections. 0: never.
    pub heap_bytes_max: u64,
    /// Whether connections of peers wait until they are [admitted](crate::Transport::admit), and get no memory for
    /// bodies before. Endpoints of nodes do; without it every peer is admitted as soon as it has connected.
    pub awaits_admission: bool,
    /// Longest time until the first whole frame of an accepted connection, and until it is admitted, in ms.
    pub first_frame_ms: u64,
    /// Longest time to establish a connection, in ms. The kernel alone would try for two minutes.
    pub connect_ms: u64,
    /// Pause before a connection attempt without an answer is repeated, in ms; each further time
    /// takes as long, from the fifth on twice as long. The kernel waits for a second.
    pub connect_retry_ms: u64,
    /// Longest TLS handshake, in ms.
    pub handshake_ms: u64,
    /// TLS handshakes that peers may have under way at once. One more, and the oldest is closed: an honest peer
    /// needs a few ms, and others cannot keep it out.
    pub handshakes_max: usize,
    /// Longest stall inside a frame, in ms. While there is no room for a body, it counts only if the peer has sent
    /// nothing of that body either.
    pub stall_ms: u64,
    /// Longest time that sent bytes may stay unacknowledged before the connection is closed, in ms.
    /// Left to itself the kernel would go on for a quarter of an hour.
    pub unacknowledged_ms: u64,
    /// Send buffer that the kernel is asked for, in bytes; 1 MiB at most on loopback. It gives what
    /// `net.core.wmem_max` allows, twice.
    pub send_buffer_bytes: usize,
    /// Receive buffer that the kernel is asked for, in bytes; 1 MiB at most on loopback. It gives what
    /// `net.core.rmem_max` allows, twice.
    pub receive_buffer_bytes: usize,
    /// Congestion control, by its kernel name; `None` or one that the kernel refuses: the machine's. BBR, the
    /// default of some distributions, paces even on loopback and halves the throughput there.
    pub congestion_control: Option<String>,
    /// Connections that may wait to be accepted: at least the number of nodes that start at once.
    pub listen_backlog: u16,
    /// Connections that peers may have open at once; further ones are closed at once and counted.
    pub accepted_max: usize,
    /// The same for the peers of one address.
    pub accepted_per_ip_max: usize,
    /// Connections of peers that are not admitted, or whose first frame has not come. One more, and the oldest is
    /// closed: an honest peer sends its hello at once, and others cannot keep it out.
    pub greeting_max: usize,
    /// Whether large bodies are sent without a copy by the kernel (`MSG_ZEROCOPY`), on connections that we make to
    /// other machines, until the kernel says that it copies after all.
    pub zero_copy: bool,
    /// The same to this machine, where it always copies: for tests.
    pub zero_copy_everywhere: bool,
    /// Choice between the kernel and the process for the records of TLS sessions.
    pub kernel_tls: KernelTls,
    /// Records that one key of a session may protect, if fewer than its suite allows: for tests.
    pub records_per_key_max: Option<u64>,
    /// Whether the CRC-32C of bodies is taken while they arrive. Without it damaged ones are not noticed, unless
    /// the receiver takes it later, from memory.
    pub body_digests: bool,
    /// Whether bulk data between two processes of one machine stays where it is: see [`Tcp::lend`](crate::Tcp::lend).
    pub shared_memory: bool,
    /// Bytes of frames that may lie in such a lane and wait for the peer to take them, one frame in any case.
    pub lane_bytes_max: u64,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            queue_bytes_max: 8 << 20,
            when_full: WhenFull::Block,
            heap_bytes_max: 0,
            awaits_admission: false,
            first_frame_ms: 3_000,
            connect_ms: 3_000,
            connect_retry_ms: 200,
            handshake_ms: 3_000,
            handshakes_max: 256,
            stall_ms: 10_000,
            unacknowledged_ms: 2_000,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 4 << 20,
            congestion_control: Some("cubic".to_owned()),
            listen_backlog: 1024,
            accepted_max: 4096,
            accepted_per_ip_max: 2048,
            greeting_max: 512,
            zero_copy: true,
            zero_copy_everywhere: false,
            kernel_tls: KernelTls::Auto,
            records_per_key_max: None,
            body_digests: true,
            shared_memory: true,
            lane_bytes_max: 32 << 20,
        }
    }
}
