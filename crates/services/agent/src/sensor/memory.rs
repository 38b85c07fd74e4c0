//! Memory and swap.

use super::{Kind, Opened, Place, ReadError, Sensor, with};
use crate::file::KeptFile;
use crate::sheet::Sheet;
use sheaf_metrics::Metric;
use sheaf_sensors::{meminfo, vmstat};

const MEMORY: Metric = Metric::gauge(
    "machine_memory_bytes",
    "Memory of the machine, by use, in bytes.",
)
.labels(&["use"])
.advice("`available` near 0: processes will be killed. `dirty` growing: disks are too slow");
const SWAP: Metric = Metric::gauge(
    "machine_swap_bytes",
    "Swap space of the machine, by use, in bytes.",
)
.labels(&["use"]);
const SWAPPED: Metric = Metric::counter(
    "machine_swapped_bytes_total",
    "Bytes moved to swap space and back.",
)
.labels(&["direction"])
.advice("growing: memory is too small, and everything is slow");
const FAULTS: Metric = Metric::counter(
    "machine_page_faults_total",
    "Page faults, by whether a disk had to be read.",
)
.labels(&["kind"]);
const KILLS: Metric = Metric::counter(
    "machine_oom_kills_total",
    "Processes killed for want of memory.",
)
.advice("**alarm**: the log of the kernel says which");

/// Names of the kernel and ours.
const USES: [(&str, &str); 16] = [
    ("MemTotal", "total"),
    ("MemFree", "free"),
    ("MemAvailable", "available"),
    ("Buffers", "buffers"),
    ("Cached", "cached"),
    ("Dirty", "dirty"),
    ("Writeback", "writeback"),
    ("AnonPages", "anonymous"),
    ("Mapped", "mapped"),
    ("Shmem", "shared"),
    ("SReclaimable", "slab_reclaimable"),
    ("SUnreclaim", "slab_unreclaimable"),
    ("KernelStack", "kernel_stacks"),
    ("PageTables", "page_tables"),
    ("Mlocked", "locked"),
    ("Hugetlb", "huge_pages"),
];
const SWAP_USES: [(&str, &str); 3] = [
    ("SwapTotal", "total"),
    ("SwapFree", "free"),
    ("SwapCached", "cached"),
];

pub(super) const KIND: Kind = Kind {
    name: "memory",
    help: "Memory, swap, page faults, processes killed for want of memory.",
    metrics: &[MEMORY, SWAP, SWAPPED, FAULTS, KILLS],
    open: |place, _| open(place),
};

#[derive(Debug)]
struct Memory {
    meminfo: KeptFile,
    vmstat: Option<KeptFile>,
}

fn open(place: &Place) -> Opened {
    Ok(Box::new(Memory {
        meminfo: place.open("proc/meminfo")?,
        vmstat: place.open("proc/vmstat").ok(),
    }))
}

impl Sensor for Memory {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        with(&mut self.meminfo, |text| {
            for (name, bytes) in meminfo(text)? {
                for (metric, uses) in [(&MEMORY, &USES[..]), (&SWAP, &SWAP_USES[..])] {
                    if let Some((_, use_)) = uses.iter().find(|(known, _)| *known == name) {
                        sheet.level(metric, &[use_], bytes as f64);
                    }
                }
            }
            Ok(())
        })?;
        let Some(file) = &mut self.vmstat else {
            return Ok(());
        };
        let page_bytes = rustix::param::page_size() as u64;
        with(file, |text| {
            let (mut faults, mut major) = (None, None);
            for (name, value) in vmstat(text)? {
                match name {
                    "pswpin" => sheet.count(&SWAPPED, &["in"], value.saturating_mul(page_bytes)),
                    "pswpout" => sheet.count(&SWAPPED, &["out"], value.saturating_mul(page_bytes)),
                    "oom_kill" => sheet.count(&KILLS, &[], value),
                    "pgfault" => faults = Some(value),
                    "pgmajfault" => major = Some(value),
                    _ => {}
                }
            }
            if let (Some(faults), Some(major)) = (faults, major) {
                sheet.count(&FAULTS, &["minor"], faults.saturating_sub(major));
                sheet.count(&FAULTS, &["major"], major);
            }
            Ok(())
        })
    }
}
