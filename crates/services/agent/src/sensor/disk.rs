//! Disks: operations, bytes, times.

use super::{Kind, Opened, Place, ReadError, Rescan, Sensor, with};
use crate::file::{KeptFile, names};
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{Operation, SECTOR_BYTES, WhenLower, disks};

const OPERATIONS: Metric = Metric::counter(
    "machine_disk_operations_total",
    "Operations of a disk that are completed.",
)
.labels(&["disk", "operation"]);
const BYTES: Metric = Metric::counter(
    "machine_disk_bytes_total",
    "Bytes that a disk read, wrote or discarded.",
)
.labels(&["disk", "operation"]);
const SECONDS: Metric = Metric::counter(
    "machine_disk_operation_seconds_total",
    "Time that operations of a disk took, all together, in seconds.",
)
.labels(&["disk", "operation"])
.advice("its rate divided by that of the operations is how long one takes: growing, the disk is overloaded or fails");
const BUSY: Metric = Metric::counter(
    "machine_disk_busy_seconds_total",
    "Time in which a disk had something to do, in seconds.",
)
.labels(&["disk"])
.advice("a rate of 1: a hard disk can do no more; an SSD may");
const QUEUED: Metric = Metric::counter(
    "machine_disk_queued_seconds_total",
    "Time of all operations in the queue of a disk, in seconds.",
)
.labels(&["disk"])
.advice("its rate is the length of the queue");
const IN_FLIGHT: Metric = Metric::gauge(
    "machine_disk_operations_in_flight",
    "Operations of a disk that are under way.",
)
.labels(&["disk"]);

const NS_PER_MS: u64 = 1_000_000;

pub(super) const KIND: Kind = Kind {
    name: "disk",
    help: "Operations, bytes and times of whole disks.",
    metrics: &[OPERATIONS, BYTES, SECONDS, BUSY, QUEUED, IN_FLIGHT],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Disks {
    place: Place,
    file: KeptFile,
    /// Names of whole disks; empty where `/sys` does not say which these are.
    whole: Vec<String>,
    rescan: Rescan,
}

fn open(place: &Place) -> Opened {
    Ok(Box::new(Disks {
        file: place.open("proc/diskstats")?,
        whole: whole(place),
        place: place.clone(),
        rescan: Rescan::default(),
    }))
}

fn whole(place: &Place) -> Vec<String> {
    names(&place.path("sys/block"), |name| {
        !name.starts_with("loop") && !name.starts_with("ram")
    })
}

impl Sensor for Disks {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        if self.rescan.is_due() {
            self.whole = whole(&self.place);
        }
        let whole = &self.whole;
        with(&mut self.file, |text| {
            for disk in disks(text)? {
                let is_used = disk.read.count + disk.write.count > 0;
                let is_whole = whole.is_empty() || whole.iter().any(|name| name == disk.name);
                if !is_used || !is_whole {
                    continue;
                }
                let operations = [
                    ("read", Some(disk.read)),
                    ("write", Some(disk.write)),
                    ("discard", disk.discard),
                    ("flush", disk.flush),
                ];
                for (name, operation) in operations {
                    if let Some(operation) = operation {
                        count(sheet, &[disk.name, name], operation);
                    }
                }
                for (metric, ms) in [(&BUSY, disk.busy_ms), (&QUEUED, disk.weighted_ms)] {
                    sheet.count_as(metric, &[disk.name], ms, NS_PER_MS, WhenLower::Wrap32);
                }
                sheet.level(&IN_FLIGHT, &[disk.name], disk.in_flight as f64);
            }
            Ok(())
        })
    }
}

fn count(sheet: &mut Sheet, labels: &[&str; 2], operation: Operation) {
    let Operation { count, sectors, ms } = operation;
    // On machines of 32 bits all of them have 32; the times have them everywhere.
    sheet.count_as(&OPERATIONS, labels, count, 1, WhenLower::Wrap32);
    sheet.count_as(&SECONDS, labels, ms, NS_PER_MS, WhenLower::Wrap32);
    if labels[1] != "flush" {
        sheet.count_as(&BYTES, labels, sectors, SECTOR_BYTES, WhenLower::Wrap32);
    }
}
