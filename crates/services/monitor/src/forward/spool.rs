//! Spool of a forwarder: requests on disk that no engine has taken yet, in their order, up to a bound.
//!
//! A folder has segments, files of records: length, samples and CRC-32C of the body (4 bytes each, little-endian), then
//! the body. `position` names the first record that was not taken. It is written without a sync: after a loss of power
//! a few requests may be sent again, none is left out.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes in front of a body.
const HEAD: u64 = 12;
/// Largest body that is believed.
const BODY_MAX: u32 = 64 << 20;

/// Request that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Body as it is sent.
    pub(crate) body: Vec<u8>,
    /// Samples in it.
    pub(crate) samples: u64,
    segment: u64,
    end: u64,
}

impl Waiting {
    /// Returns what no other request of this spool has: segment and end.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.segment, self.end)
    }
}

/// Figures of a spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filling {
    /// Samples that wait.
    pub(crate) samples: u64,
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Samples dropped so far because the spool was full.
    pub(crate) dropped: u64,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// Samples of it that were not taken.
    samples: u64,
}

#[derive(Debug)]
struct State {
    /// The oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    file: File,
    /// Place in the oldest segment.
    read: u64,
    dropped: u64,
    is_closed: bool,
}

/// Spool of one forwarder, with one writer and one reader.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    segment_bytes: u64,
    state: Mutex<State>,
    filled: Condvar,
}

impl Spool {
    /// Opens the spool in `folder`, with what a process before left there. A record that is cut ends its segment.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".seg"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        let (mut from, mut read) = position(folder);
        let mut segments = VecDeque::new();
        for number in &numbers {
            let path = path(folder, *number);
            if *number < from {
                fs::remove_file(path)?;
                continue;
            }
            if *number > from {
                // The position is of a segment that is gone.
                (from, read) = if segments.is_empty() {
                    (*number, 0)
                } else {
                    (from, read)
                };
            }
            let skip = if *number == from { read } else { 0 };
            let (bytes, samples) = scan(&path, skip)?;
            segments.push_back(Segment {
                number: *number,
                bytes,
                samples,
            });
        }
        let number = numbers.last().map_or(from, |last| last.max(&from) + 1);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path(folder, number))?;
        read = segments.front().map_or(0, |first| read.min(first.bytes));
        segments.push_back(Segment {
            number,
            bytes: 0,
            samples: 0,
        });
        let state = State {
            segments,
            file,
            read,
            dropped: 0,
            is_closed: false,
        };
        Ok(Self {
            folder: folder.to_owned(),
            bytes_max,
            // A full spool loses an eighth at a time.
            segment_bytes: (bytes_max / 8).clamp(1, 8 << 20),
            state: Mutex::new(state),
            filled: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between lock and unlock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a request and makes it durable. A spool that is full drops its oldest segments.
    pub(crate) fn push(&self, body: &[u8], samples: u64) -> io::Result<()> {
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, "request beyond 4 GiB");
        let mut record = Vec::with_capacity(body.len() + 12);
        record.extend(u32::try_from(body.len()).map_err(wrong)?.to_le_bytes());
        record.extend(u32::try_from(samples).map_err(wrong)?.to_le_bytes());
        record.extend(crc(body).to_le_bytes());
        record.extend(body);
        let length = record.len() as u64;
        let mut file = {
            let mut state = self.lock();
            let last = state.segments.back().expect("one is written to");
            if last.bytes > 0 && last.bytes + length > self.segment_bytes {
                let number = last.number + 1;
                let path = path(&self.folder, number);
                state.file = OpenOptions::new()
                    .append(true)
                    .create_new(true)
                    .open(path)?;
                state.segments.push_back(Segment {
                    number,
                    bytes: 0,
                    samples: 0,
                });
            }
            while state.segments.len() > 1 && state.bytes() + length > self.bytes_max {
                let gone = state.segments.pop_front().expect("two at least");
                state.dropped += gone.samples;
                state.read = 0;
                fs::remove_file(path(&self.folder, gone.number))?;
            }
            state.file.try_clone()?
        };
        // The reader goes on meanwhile: this is the one writer.
        let begin = self
            .lock()
            .segments
            .back()
            .expect("one is written to")
            .bytes;
        let written = file.write_all(&record).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // What was written of it would cut off what follows.
            file.set_len(begin)?;
            return Err(error);
        }
        let mut state = self.lock();
        let last = state.segments.back_mut().expect("one is written to");
        last.bytes += length;
        last.samples += samples;
        drop(state);
        self.filled.notify_all();
        Ok(())
    }

    /// Returns the oldest request; waits up to `patience` for one. `None`: there is none.
    pub(crate) fn oldest(&self, patience: Duration) -> io::Result<Option<Waiting>> {
        let is_idle = |state: &mut State| state.is_empty() && !state.is_closed;
        let waited = self
            .filled
            .wait_timeout_while(self.lock(), patience, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        loop {
            let is_only = state.segments.len() == 1;
            let read = state.read;
            let first = state.segments.front().expect("one is written to");
            if read < first.bytes {
                let (segment, bytes) = (first.number, first.bytes);
                // Held meanwhile, so that the file is not dropped: one read of memory, mostly.
                let mut file = File::open(path(&self.folder, segment))?;
                file.seek(SeekFrom::Start(read))?;
                let (body, samples) = read_record(&mut file, bytes - read)?;
                return Ok(Some(Waiting {
                    end: read + HEAD + body.len() as u64,
                    body,
                    samples,
                    segment,
                }));
            }
            if is_only {
                return Ok(None);
            }
            let gone = state.segments.pop_front().expect("two at least");
            state.read = 0;
            fs::remove_file(path(&self.folder, gone.number))?;
        }
    }

    /// Goes on to the request after `taken`, unless that was dropped meanwhile.
    pub(crate) fn advance(&self, taken: &Waiting) -> io::Result<()> {
        let mut state = self.lock();
        let first = state.segments.front_mut().expect("one is written to");
        if first.number != taken.segment {
            return Ok(());
        }
        first.samples -= taken.samples.min(first.samples);
        state.read = taken.end;
        drop(state);
        let text = format!("{} {}\n", taken.segment, taken.end);
        let draft = self.folder.join("position.new");
        fs::write(&draft, text)?;
        fs::rename(draft, self.folder.join("position"))
    }

    /// Drops what is left of the oldest segment; returns the samples in it that were not taken.
    pub(crate) fn drop_oldest(&self) -> u64 {
        let mut state = self.lock();
        let first = state.segments.front_mut().expect("one is written to");
        let (lost, end) = (std::mem::take(&mut first.samples), first.bytes);
        state.read = end;
        lost
    }

    /// Returns whether nothing more comes.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Ends waiting for further requests.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    pub(crate) fn filling(&self) -> Filling {
        let state = self.lock();
        Filling {
            samples: state.segments.iter().map(|segment| segment.samples).sum(),
            bytes: state.bytes(),
            dropped: state.dropped,
        }
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn is_empty(&self) -> bool {
        self.segments.len() == 1 && self.segments[0].bytes <= self.read
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016}.seg"))
}

fn crc(body: &[u8]) -> u32 {
    // A checksum of 32 bits.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32
}

/// Reads segment and place of the first request that was not taken; the begin for a position that cannot be read.
fn position(folder: &Path) -> (u64, u64) {
    let text = fs::read_to_string(folder.join("position")).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(segment)), Some(Ok(place))) => (segment, place),
        _ => (0, 0),
    }
}

/// Returns the bytes of whole records of a segment, and the samples behind `skip`.
fn scan(path: &Path, skip: u64) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let (mut at, mut waiting) = (0, 0);
    while let Ok((body, samples)) = read_record(&mut file, length - at) {
        if at >= skip {
            waiting += samples;
        }
        at += HEAD + body.len() as u64;
    }
    Ok((at, waiting))
}

/// Reads the record at the place of `file`, of which `left` bytes are behind it.
fn read_record(file: &mut File, left: u64) -> io::Result<(Vec<u8>, u64)> {
    let wrong = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut head = [0; HEAD as usize];
    file.read_exact(&mut head)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let (length, samples, expected) = (word(0), word(4), word(8));
    if length > BODY_MAX || HEAD + u64::from(length) > left {
        return Err(wrong("a record is longer than its segment"));
    }
    let mut body = vec![0; length as usize];
    file.read_exact(&mut body)?;
    if crc(&body) != expected {
        return Err(wrong("a record is damaged"));
    }
    Ok((body, u64::from(samples)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes everything that waits, as texts.
    fn drain(spool: &Spool) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(waiting) = spool.oldest(Duration::ZERO).unwrap() {
            spool.advance(&waiting).unwrap();
            all.push(String::from_utf8(waiting.body).unwrap());
        }
        all
    }

    fn push(spool: &Spool, names: std::ops::Range<u32>) {
        for name in names {
            spool
                .push(format!("request {name:04}").as_bytes(), 2)
                .unwrap();
        }
    }

    fn names(names: std::ops::Range<u32>) -> Vec<String> {
        names.map(|name| format!("request {name:04}")).collect()
    }

    #[test]
    fn what_was_not_taken_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path(), 1 << 20).unwrap();
        push(&spool, 0..5);
        for _ in 0..2 {
            let waiting = spool.oldest(Duration::ZERO).unwrap().unwrap();
            spool.advance(&waiting).unwrap();
        }
        drop(spool);
        let spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(spool.filling().samples, 6);
        push(&spool, 5..7);
        assert_eq!(drain(&spool), names(2..7));
        assert_eq!(spool.filling().samples, 0);
        drop(spool);
        let spool = Spool::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(drain(&spool), names(0..0));
        push(&spool, 7..8);
        assert_eq!(drain(&spool), names(7..8));
    }

    #[test]
    fn a_full_spool_drops_the_oldest_and_counts() {
        let folder = tempfile::tempdir().unwrap();
        // A record has 24 bytes, a segment 10 of them.
        let spool = Spool::open(folder.path(), 80 * 24).unwrap();
        push(&spool, 0..200);
        let filling = spool.filling();
        assert!(filling.bytes <= 80 * 24, "{filling:?}");
        assert_eq!(filling.samples + filling.dropped, 400);
        let left = drain(&spool);
        assert_eq!(left.len() as u64 * 2, filling.samples);
        assert_eq!(left.last().unwrap(), "request 0199");
    }

    #[test]
    fn a_record_that_is_cut_or_damaged_ends_its_segment_only() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path(), 1 << 20).unwrap();
        push(&spool, 0..3);
        let file = path(folder.path(), spool.lock().segments.back().unwrap().number);
        drop(spool);
        let bytes = fs::read(&file).unwrap();
        for (kept, left) in [(bytes.len() - 1, 2), (30, 1), (5, 0)] {
            fs::write(&file, &bytes[..kept]).unwrap();
            let spool = Spool::open(folder.path(), 1 << 20).unwrap();
            push(&spool, 9..10);
            let expected = [names(0..left), names(9..10)].concat();
            assert_eq!(drain(&spool), expected, "{kept}");
            drop(spool);
            for entry in fs::read_dir(folder.path()).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
}
