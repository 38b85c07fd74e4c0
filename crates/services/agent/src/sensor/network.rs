//! Interfaces.

use super::{Kind, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{WhenLower, interfaces};

const LABELS: &[&str] = &["interface", "direction"];
const BYTES: Metric = Metric::counter(
    "machine_network_bytes_total",
    "Bytes that an interface received or sent.",
)
.labels(LABELS);
const PACKETS: Metric = Metric::counter(
    "machine_network_packets_total",
    "Packets that an interface received or sent.",
)
.labels(LABELS);
const ERRORS: Metric = Metric::counter(
    "machine_network_errors_total",
    "Packets that an interface could not receive or send because of an error.",
)
.labels(LABELS)
.advice("growing: cable, transceiver or switch port");
const DROPS: Metric = Metric::counter(
    "machine_network_drops_total",
    "Packets of an interface dropped by kernel or driver.",
)
.labels(LABELS)
.advice(
    "growing: the rings of the interface or the queues of the kernel are too small for the bursts",
);

pub(super) const KIND: Kind = Kind {
    name: "network",
    help: "Bytes, packets, errors and drops of interfaces.",
    metrics: &[BYTES, PACKETS, ERRORS, DROPS],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Interfaces(KeptFile);

fn open(place: &Place) -> Opened {
    Ok(Box::new(Interfaces(place.open("proc/net/dev")?)))
}

impl Sensor for Interfaces {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        with(&mut self.0, |text| {
            for one in interfaces(text)? {
                let counts = [
                    (&BYTES, one.bytes),
                    (&PACKETS, one.packets),
                    (&ERRORS, one.errors),
                    (&DROPS, one.drops),
                ];
                // An interface that never carried anything is as good as none.
                if one.packets == [0, 0] && one.errors == [0, 0] && one.drops == [0, 0] {
                    continue;
                }
                for (metric, both) in counts {
                    for (direction, value) in ["in", "out"].iter().zip(both) {
                        sheet.count_as(metric, &[one.name, direction], value, 1, WhenLower::Wrap32);
                    }
                }
            }
            Ok(())
        })
    }
}
