//! A folder of many files: how long it takes to list them, and to start again after a crash with many open.

use super::{Blob, Load, PATIENCE, config, take, wait};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde::Serialize;
use sheaf_figures::stat;
use sheaf_protocol::Timestamp;
use sheaf_stream_files::{Catalogue, Durability, Engine, EngineConfig, FileRow, FileState, IoMode};
use sheaf_write::{FileName, Place, StreamId, Sums, SyncEvery, Template};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Files in the catalogue that is listed.
const FILES: u64 = 500_000;
/// Times that it is listed.
const LISTS: usize = 5;
/// Files that are open at the crash, and records in each.
const OPEN: u16 = 100;
const RECORDS: u64 = 20;

/// Times of a folder with many files.
#[derive(Clone, Debug, Serialize)]
pub struct FolderTimes {
    /// Files in the catalogue.
    pub files: u64,
    /// Seconds of `sheaf files list`, all lines printed into a pipe: median.
    pub list_s: f64,
    /// Seconds of `sheaf files list --run 1 --stream s7`.
    pub list_some_s: f64,
    /// Files that were open at a crash.
    pub open_files: usize,
    /// Bytes in them.
    pub open_bytes: u64,
    /// Seconds until the next life had closed them all.
    pub restart_s: f64,
    /// Bytes that it read of them: those behind the last sync.
    pub restart_read_bytes: u64,
}

impl fmt::Display for FolderTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} files listed in {:.2} s, those of one run and stream in {:.2} s",
            self.files, self.list_s, self.list_some_s
        )?;
        writeln!(
            f,
            "{} open files with {} MB closed {:.2} s after a crash, {} MB read",
            self.open_files,
            self.open_bytes / 1_000_000,
            self.restart_s,
            self.restart_read_bytes / 1_000_000
        )
    }
}

/// Measures in a folder that is there and empty.
pub(super) fn measure(program: &Path, folder: &Path) -> anyhow::Result<FolderTimes> {
    let (many, crashed) = (folder.join("many"), folder.join("crashed"));
    for folder in [&many, &crashed] {
        std::fs::create_dir(folder).context("a folder cannot be made")?;
    }
    fill(&many)?;
    let list_s = list(program, &many, &[])?;
    let list_some_s = list(program, &many, &["--run", "1", "--stream", "s7"])?;
    let open_bytes = crash(&crashed)?;
    let begin = Instant::now();
    let (engine, found) = open(&crashed, &(Arc::new(|| {}) as Arc<dyn Fn() + Send + Sync>))?;
    let restart_s = begin.elapsed().as_secs_f64();
    drop(engine);
    ensure!(
        found.iter().map(|one| one.bytes).sum::<u64>() == open_bytes,
        "the next life has not found all that was acknowledged"
    );
    Ok(FolderTimes {
        files: FILES,
        list_s,
        list_some_s,
        open_files: found.len(),
        open_bytes,
        restart_s,
        restart_read_bytes: found.iter().map(|one| one.read_bytes).sum(),
    })
}

/// Fills a catalogue with the rows of closed files.
fn fill(folder: &Path) -> anyhow::Result<()> {
    let catalogue = Catalogue::open(folder)?;
    let template = Template::parse(Template::DEFAULT)?;
    let row = |number: u64| {
        let name = FileName {
            project: "bench".to_owned(),
            run: number / 50_000,
            stream: format!("s{}", number % 20),
            block: number / 20 % 2500,
            node: "w-0".to_owned(),
            seq: 0,
        };
        let opened_ns = 1_790_000_000_000_000_000 + number.cast_signed() * 1_000_000_000;
        FileRow {
            file: template.name(&name),
            name,
            state: FileState::Closed,
            opened_ns,
            closed_ns: Some(opened_ns + 60_000_000_000),
            records: 1000,
            sums: Sums {
                bytes: 4_000_000_000,
                adler32: 0x1234_5678,
                crc32c: None,
                xxh3: None,
            },
        }
    };
    catalogue.add_all((0..FILES).map(row))?;
    Ok(())
}

/// Returns the seconds that `sheaf files list` takes.
fn list(program: &Path, folder: &Path, more: &[&str]) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..LISTS {
        let begin = Instant::now();
        let mut child = Command::new(program)
            .args(["files", "list"])
            .arg(folder)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .context("the list cannot be started")?;
        let mut output = child.stdout.take().context("a pipe was asked for")?;
        let printed = std::io::copy(&mut output, &mut std::io::sink())?;
        ensure!(
            child.wait()?.success() && printed > 1000,
            "the list is empty"
        );
        times.push(begin.elapsed().as_secs_f64());
    }
    Ok(stat::quantile(&times, 0.5).unwrap_or(f64::NAN))
}

fn settings(folder: &Path) -> anyhow::Result<EngineConfig> {
    let mut config = config(&Load {
        folder: folder.to_owned(),
        policy: "open-rate".to_owned(),
        workers: 4,
        streams: OPEN,
        hot_share: 0.0,
        record_bytes: 1_000_000,
        bytes: 0,
        worker_bytes_per_s: None,
        io: IoMode::Direct.name().to_owned(),
        durability: Durability::Every.name().to_owned(),
        seed: 1,
    })?;
    config.writer.sync_every = Some(SyncEvery {
        bytes: 8_000_000,
        time: Duration::from_secs(3600),
    });
    Ok(config)
}

type Opened = (Engine<Blob>, Vec<sheaf_stream_files::Found>);

fn open(folder: &Path, wake: &Arc<dyn Fn() + Send + Sync>) -> anyhow::Result<Opened> {
    // Records of one size: whole ones are as long.
    let walk = |reader: &mut dyn Read| {
        let mut record = Vec::new();
        reader.take(1_000_000).read_to_end(&mut record)?;
        let is_whole = record.len() == 1_000_000 && record.iter().any(|byte| *byte != 0);
        Ok(is_whole.then_some(1_000_000))
    };
    Ok(Engine::open(settings(folder)?, &walk, wake)?)
}

/// Leaves a folder as a crash does, with open files of which all was acknowledged. Returns the bytes in them.
fn crash(folder: &Path) -> anyhow::Result<u64> {
    let (sender, wakes) = sync_channel(1);
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = sender.try_send(()); // A wake that is pending already need not be repeated.
    });
    let (mut engine, _) = open(folder, &wake)?;
    let record = Bytes::from(vec![7; 1_000_000]);
    let now = Timestamp(0);
    let mut acknowledged = 0;
    for number in 0..RECORDS * u64::from(OPEN) {
        while !engine.has_room(1_000_000) {
            acknowledged += wait(&mut engine, &wakes, now)?;
        }
        let place = Place {
            run: 1,
            stream: StreamId((number % u64::from(OPEN)) as u16),
            block: 0,
        };
        let appended = engine.append(now, place, Blob(record.clone()));
        ensure!(appended.is_ok(), "a record was refused");
        acknowledged += take(&mut engine)?;
    }
    let due = Instant::now() + PATIENCE;
    while engine.held() != (0, 0) && Instant::now() < due {
        acknowledged += wait(&mut engine, &wakes, now)?;
    }
    // Dropped without an end: nothing is closed, as after a kill.
    drop(engine);
    Ok(acknowledged * 1_000_000)
}
