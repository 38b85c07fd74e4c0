//! Room in file systems.

use super::{Kind, Opened, Place, ReadError, Rescan, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use rustix::fs::statvfs;
use sheaf_metrics::Metric;
use sheaf_sensors::mounts;

const BYTES: Metric = Metric::gauge(
    "machine_filesystem_bytes",
    "Room in a file system on a disk, by use, in bytes.",
)
.labels(&["mount", "use"])
.advice("`available` near 0: what writes there stops");
const FILES: Metric = Metric::gauge(
    "machine_filesystem_inodes",
    "Inodes of a file system on a disk, by use.",
)
.labels(&["mount", "use"])
.advice("`free` near 0: no file can be made, whatever room there is");
const READ_ONLY: Metric = Metric::gauge(
    "machine_filesystem_read_only",
    "1 if a file system cannot be written to, else 0.",
)
.labels(&["mount"])
.advice("1 after a fault of the disk: the log of the kernel says which");

pub(super) const KIND: Kind = Kind {
    name: "filesystem",
    help: "Room in file systems that lie on disks.",
    metrics: &[BYTES, FILES, READ_ONLY],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct FileSystems {
    place: Place,
    file: KeptFile,
    mounts: Vec<String>,
    rescan: Rescan,
}

fn open(place: &Place) -> Opened {
    let mut file = place.open("proc/self/mounts")?;
    let mounts = with(&mut file, |text| Ok(mounts(text))).unwrap_or_default();
    Ok(Box::new(FileSystems {
        place: place.clone(),
        file,
        mounts,
        rescan: Rescan::default(),
    }))
}

impl Sensor for FileSystems {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        if self.rescan.is_due() {
            self.mounts = with(&mut self.file, |text| Ok(mounts(text)))?;
        }
        for mount in &self.mounts {
            // One that was unmounted meanwhile, or that this user may not see, has no values.
            let Ok(found) = statvfs(self.place.path(mount)) else {
                continue;
            };
            let bytes = |blocks: u64| blocks as f64 * found.f_frsize as f64;
            let room = [
                ("total", found.f_blocks),
                ("free", found.f_bfree),
                ("available", found.f_bavail),
            ];
            for (use_, blocks) in room {
                sheet.level(&BYTES, &[mount, use_], bytes(blocks));
            }
            for (use_, inodes) in [("total", found.f_files), ("free", found.f_ffree)] {
                sheet.level(&FILES, &[mount, use_], inodes as f64);
            }
            let is_read_only = found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
            sheet.level(&READ_ONLY, &[mount], f64::from(u8::from(is_read_only)));
        }
        Ok(())
    }
}
