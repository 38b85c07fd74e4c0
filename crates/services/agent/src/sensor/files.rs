//! File descriptors of the whole machine.

use super::{Kind, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::files;

const OPEN: Metric = Metric::gauge(
    "machine_files_open",
    "Open files of the machine, as the kernel counts them.",
)
.advice("near `machine_files_max`: nothing can be opened any more");
const MAX: Metric = Metric::gauge("machine_files_max", "Files that the machine may have open.");

pub(super) const KIND: Kind = Kind {
    name: "files",
    help: "Open files of the machine.",
    metrics: &[OPEN, MAX],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Files(KeptFile);

fn open(place: &Place) -> Opened {
    Ok(Box::new(Files(place.open("proc/sys/fs/file-nr")?)))
}

impl Sensor for Files {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        let (open, max) = with(&mut self.0, files)?;
        sheet.level(&OPEN, &[], open as f64);
        sheet.level(&MAX, &[], max as f64);
        Ok(())
    }
}
