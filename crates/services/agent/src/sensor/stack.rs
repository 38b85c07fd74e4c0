//! TCP and UDP.

use super::{Kind, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{WhenLower, pairs};

const SEGMENTS: Metric = Metric::counter(
    "machine_tcp_segments_total",
    "TCP segments received or sent.",
)
.labels(&["direction"]);
const RETRANSMITS: Metric = Metric::counter(
    "machine_tcp_retransmits_total",
    "TCP segments sent once more.",
)
.advice(
    "divided by the segments sent: above 0.001 the network loses packets, or a peer is overloaded",
);
const OPENS: Metric = Metric::counter(
    "machine_tcp_opens_total",
    "TCP connections opened, by who began.",
)
.labels(&["side"]);
const FAILURES: Metric = Metric::counter("machine_tcp_failures_total", "TCP connections and segments that failed, by reason.")
    .labels(&["reason"])
    .advice("`listen_overflow`: a program accepts too slowly. `reset`: a peer or firewall ends connections. `timeout`: a path is broken");
const CONNECTIONS: Metric = Metric::gauge(
    "machine_tcp_connections",
    "TCP connections that are established.",
);
const DATAGRAMS: Metric = Metric::counter(
    "machine_udp_datagrams_total",
    "UDP datagrams received or sent.",
)
.labels(&["direction"]);
const UDP_FAILURES: Metric = Metric::counter(
    "machine_udp_failures_total",
    "UDP datagrams that were dropped, by reason.",
)
.labels(&["reason"])
.advice("`receive_buffer`: a program reads too slowly, or net.core.rmem_max is too small");

/// Name of protocol and field, the metric, and the value of its label.
const FIELDS: &[(&str, &str, &Metric, &[&str])] = &[
    ("Tcp", "InSegs", &SEGMENTS, &["in"]),
    ("Tcp", "OutSegs", &SEGMENTS, &["out"]),
    ("Tcp", "RetransSegs", &RETRANSMITS, &[]),
    ("Tcp", "ActiveOpens", &OPENS, &["active"]),
    ("Tcp", "PassiveOpens", &OPENS, &["passive"]),
    ("Tcp", "AttemptFails", &FAILURES, &["attempt"]),
    ("Tcp", "EstabResets", &FAILURES, &["reset"]),
    ("Tcp", "InErrs", &FAILURES, &["damaged"]),
    ("TcpExt", "ListenOverflows", &FAILURES, &["listen_overflow"]),
    ("TcpExt", "TCPAbortOnTimeout", &FAILURES, &["timeout"]),
    ("TcpExt", "TCPAbortOnMemory", &FAILURES, &["memory"]),
    ("Udp", "InDatagrams", &DATAGRAMS, &["in"]),
    ("Udp", "OutDatagrams", &DATAGRAMS, &["out"]),
    ("Udp", "RcvbufErrors", &UDP_FAILURES, &["receive_buffer"]),
    ("Udp", "SndbufErrors", &UDP_FAILURES, &["send_buffer"]),
    ("Udp", "NoPorts", &UDP_FAILURES, &["no_port"]),
    ("Udp", "InCsumErrors", &UDP_FAILURES, &["damaged"]),
];

pub(super) const KIND: Kind = Kind {
    name: "tcp",
    help: "Segments, retransmits, connections and failures of TCP, and datagrams of UDP.",
    metrics: &[
        SEGMENTS,
        RETRANSMITS,
        OPENS,
        FAILURES,
        CONNECTIONS,
        DATAGRAMS,
        UDP_FAILURES,
    ],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Stack(Vec<KeptFile>);

fn open(place: &Place) -> Opened {
    let mut files = vec![place.open("proc/net/snmp")?];
    files.extend(place.open("proc/net/netstat"));
    Ok(Box::new(Stack(files)))
}

impl Sensor for Stack {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        for file in &mut self.0 {
            with(file, |text| {
                pairs(text, |protocol, name, value| {
                    if (protocol, name) == ("Tcp", "CurrEstab") {
                        sheet.level(&CONNECTIONS, &[], value as f64);
                    }
                    let field = FIELDS
                        .iter()
                        .find(|field| (field.0, field.1) == (protocol, name));
                    if let Some((_, _, metric, labels)) = field {
                        sheet.count_as(metric, labels, value, 1, WhenLower::Wrap32);
                    }
                });
                Ok(())
            })?;
        }
        Ok(())
    }
}
