//! Watched processes: found by pid file, program or command line, and followed from one life to the next.

use super::{Kind, Missing, Opened, Place, ReadError, Sensor};
use crate::config::{AgentConfig, WatchConfig};
use crate::file::{KeptFile, names};
use crate::sheet::Sheet;
use sheaf_metrics::{Event, Metric};
use sheaf_sensors::{Change, Life, Process, Watch, process};
use std::path::Path;
use std::sync::Arc;
use tracing::{info, warn};

const LABEL: &[&str] = &["process"];
const RUNNING: Metric = Metric::gauge(
    "machine_process_running",
    "1 while a watched process runs, else 0.",
)
.labels(LABEL)
.advice("**alarm** at 0; the event `machine_process_change` has the time");
const RESTARTS: Metric = Metric::counter(
    "machine_process_restarts_total",
    "Times that a watched process was found again in another life.",
)
.labels(LABEL)
.advice("growing: it crashes, or is restarted by hand");
const CPU: Metric = Metric::counter(
    "machine_process_cpu_seconds_total",
    "Processor time of a watched process, over all its lives, in seconds.",
)
.labels(LABEL);
const RESIDENT: Metric = Metric::gauge(
    "machine_process_resident_bytes",
    "Resident memory of a watched process, in bytes.",
)
.labels(LABEL);
const VIRTUAL: Metric = Metric::gauge(
    "machine_process_virtual_bytes",
    "Size of the address space of a watched process, in bytes.",
)
.labels(LABEL);
const THREADS: Metric =
    Metric::gauge("machine_process_threads", "Threads of a watched process.").labels(LABEL);
const FILES: Metric = Metric::gauge(
    "machine_process_files_open",
    "Open file descriptors of a watched process.",
)
.labels(LABEL)
.advice("missing: the agent runs as another user, and may not see them");
/// Event with what became of a process.
const CHANGE: Metric = Metric {
    name: "machine_process_change",
    kind: sheaf_metrics::Kind::Event,
    help: "Begin or end of a watched process: whether it runs, its pid, and the pid before.",
    labels: LABEL,
    advice: "an end without a begin: it does not run any more",
};
const CHANGE_FIELDS: &[&str] = &["running", "pid", "pid_before"];

/// Bytes of a name that the kernel keeps.
const NAME_BYTES: usize = 15;

pub(super) const KIND: Kind = Kind {
    name: "process",
    help: "Watched processes: whether they run, processor time, memory, threads, file descriptors, restarts.",
    metrics: &[
        RUNNING, RESTARTS, CPU, RESIDENT, VIRTUAL, THREADS, FILES, CHANGE,
    ],
    open,
};

#[derive(Debug)]
struct Processes {
    place: Place,
    watched: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    config: WatchConfig,
    watch: Watch,
    /// `/proc/PID/stat`, which gives an error when the process has ended, also if its pid is used again.
    file: Option<KeptFile>,
    event: Option<Arc<Event>>,
}

fn open(place: &Place, config: &AgentConfig) -> Opened {
    if config.watch.is_empty() {
        return Err(Missing::Nothing(
            "no process is watched: agent.watch is empty",
        ));
    }
    let watched = |config: &WatchConfig| Watched {
        config: config.clone(),
        watch: Watch::default(),
        file: None,
        event: None,
    };
    Ok(Box::new(Processes {
        place: place.clone(),
        watched: config.watch.iter().map(watched).collect(),
    }))
}

impl Sensor for Processes {
    fn read(&mut self, sheet: &mut Sheet) -> Result<(), ReadError> {
        for watched in &mut self.watched {
            watched.read(&self.place, sheet);
        }
        Ok(())
    }
}

impl Watched {
    fn read(&mut self, place: &Place, sheet: &mut Sheet) {
        let name = self.config.name.clone();
        let labels = [("process", name.as_str())];
        // Registered at the first reading, so that a process that ends at once is an event, too.
        let registry = sheet.registry();
        let event = self
            .event
            .get_or_insert_with(|| registry.event(CHANGE.name, CHANGE.help, &labels, CHANGE_FIELDS))
            .clone();
        let found = self.follow(place, sheet);
        let change = self.watch.note(found);
        sheet.level(&RUNNING, &[&name], f64::from(u8::from(found.is_some())));
        sheet.count(&RESTARTS, &[&name], self.watch.restarts());
        match change {
            None => {}
            Some(Change::Began(now)) => {
                info!(process = name, pid = now.pid, "The watched process runs");
                event.send(&[1.0, f64::from(now.pid), 0.0]);
            }
            Some(Change::Ended(before)) => {
                warn!(
                    process = name,
                    pid = before.pid,
                    "The watched process has ended"
                );
                event.send(&[0.0, 0.0, f64::from(before.pid)]);
            }
            Some(Change::Restarted(before, now)) => {
                warn!(
                    process = name,
                    pid = now.pid,
                    pid_before = before.pid,
                    "The watched process was restarted"
                );
                event.send(&[1.0, f64::from(now.pid), f64::from(before.pid)]);
            }
        }
    }

    /// Returns the present life of the process, whose values go into `sheet`.
    fn follow(&mut self, place: &Place, sheet: &mut Sheet) -> Option<Life> {
        let named = self.pid_of_file(place);
        // A pid file that names another process counts more than the process that was followed.
        if named.is_some() && named != self.watch.life().map(|life| life.pid) {
            self.file = None;
        }
        if let Some(life) = self.read_file(place, sheet) {
            return Some(life);
        }
        let pid = if self.config.pid_file.is_empty() {
            self.search(place)
        } else {
            named
        }?;
        self.file = KeptFile::open(place.path(&format!("proc/{pid}/stat"))).ok();
        self.read_file(place, sheet)
    }

    /// Reads the process that is followed; `None` if it has ended.
    fn read_file(&mut self, place: &Place, sheet: &mut Sheet) -> Option<Life> {
        let text = self
            .file
            .as_mut()?
            .read()
            .map(std::borrow::Cow::into_owned)
            .ok();
        let found = text.as_deref().and_then(|text| process(text).ok());
        let Some(found) = found.filter(Process::is_alive) else {
            self.file = None;
            return None;
        };
        let labels = [self.config.name.as_str()];
        sheet.count(&CPU, &labels, found.cpu_ns);
        let page_bytes = rustix::param::page_size() as f64;
        let levels = [
            (&RESIDENT, found.resident_pages as f64 * page_bytes),
            (&VIRTUAL, found.virtual_bytes as f64),
            (&THREADS, found.threads as f64),
        ];
        for (metric, value) in levels {
            sheet.level(metric, &labels, value);
        }
        if let Some(files) = files_open(&place.path(&format!("proc/{}/fd", found.pid))) {
            sheet.level(&FILES, &labels, files as f64);
        }
        Some(Life {
            pid: found.pid,
            start_ticks: found.start_ticks,
        })
    }

    fn pid_of_file(&self, place: &Place) -> Option<u32> {
        let path = &self.config.pid_file;
        if path.is_empty() {
            return None;
        }
        let text = std::fs::read_to_string(place.path(path)).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Returns the oldest process of that program or command line, other than this one.
    fn search(&self, place: &Place) -> Option<u32> {
        let root = place.path("proc");
        let own = std::process::id();
        let mut oldest: Option<(u64, u32)> = None;
        for name in names(&root, |name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            let Ok(pid) = name.parse::<u32>() else {
                continue;
            };
            let folder = root.join(&name);
            let Some(text) = (pid != own)
                .then(|| std::fs::read(folder.join("stat")).ok())
                .flatten()
            else {
                continue;
            };
            let text = String::from_utf8_lossy(&text);
            let Some(found) = process(&text).ok().filter(Process::is_alive) else {
                continue;
            };
            let age = (found.start_ticks, pid);
            if oldest.is_none_or(|oldest| age < oldest) && self.is_meant(&found, &folder) {
                oldest = Some(age);
            }
        }
        oldest.map(|(_, pid)| pid)
    }

    fn is_meant(&self, found: &Process<'_>, folder: &Path) -> bool {
        let WatchConfig {
            program, command, ..
        } = &self.config;
        if !program.is_empty() {
            let cut = &program.as_bytes()[..program.len().min(NAME_BYTES)];
            return found.name.as_bytes() == cut;
        }
        let words = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(command.as_str())
    }
}

/// Returns the number of entries of a folder `fd`; `None` if this user may not see them.
fn files_open(folder: &Path) -> Option<u64> {
    // Since Linux 6.2 its size is their number, which spares looking at each.
    let size = std::fs::metadata(folder).ok()?.len();
    let entries = std::fs::read_dir(folder).ok()?;
    Some(if size > 0 {
        size
    } else {
        entries.count() as u64
    })
}
