//! Files of any size, read a window at a time.

use anyhow::Context as _;
use sheaf_formats::View;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Largest window. Two of them are held: a walk looks at an index and at what it is about in turn.
const WINDOW_BYTES: usize = 1 << 20;
/// Window after a jump: a walk that leaves payloads out reads headers, not files.
const WINDOW_BYTES_MIN: usize = 4 << 10;
/// Bytes of a pipe or a device that are read at most: there is no way back in them, so they are kept.
const PIPE_BYTES_MAX: u64 = 256 << 20;

/// A file, of which at most two windows are in memory.
#[derive(Debug)]
pub(crate) struct FileView {
    input: Input,
    end: usize,
    windows: [Window; 2],
    /// The window that was used last.
    last: usize,
    error: Option<io::Error>,
}

#[derive(Debug)]
enum Input {
    File(File),
    /// All that came out of a pipe.
    Memory(Vec<u8>),
}

#[derive(Debug, Default)]
struct Window {
    at: usize,
    bytes: Vec<u8>,
}

impl FileView {
    /// Opens `path`, which has at least a byte.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let metadata = file.metadata().with_context(cannot)?;
        let (input, end) = if metadata.is_file() {
            (Input::File(file), usize::try_from(metadata.len())?)
        } else {
            let bytes = all_of(file, PIPE_BYTES_MAX).with_context(cannot)?;
            let end = bytes.len();
            (Input::Memory(bytes), end)
        };
        anyhow::ensure!(end > 0, "cannot read {}: the file is empty", path.display());
        Ok(Self {
            input,
            end,
            windows: Default::default(),
            last: 0,
            error: None,
        })
    }

    /// Fails if the file could not be read, or got shorter, since it was opened.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Reads the window that begins at byte `at` in place of the one that was not used last.
    fn load(&mut self, file_at: usize, count: usize) {
        let Input::File(file) = &self.input else {
            return;
        };
        let before = &self.windows[self.last];
        let behind = before.at + before.bytes.len();
        let follows =
            !before.bytes.is_empty() && (before.at..=behind + WINDOW_BYTES_MIN).contains(&file_at);
        let window = if follows {
            (2 * before.bytes.len()).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES)
        } else {
            self.last = 1 - self.last;
            WINDOW_BYTES_MIN
        };
        let bytes = window.max(count).min(self.end - file_at);
        let window = &mut self.windows[self.last];
        window.at = file_at;
        window.bytes.resize(bytes, 0);
        if let Err(error) = file.read_exact_at(&mut window.bytes, file_at as u64) {
            window.bytes.clear();
            self.end = file_at;
            self.error.get_or_insert(error);
        }
    }
}

impl View for FileView {
    fn end(&self) -> usize {
        self.end
    }

    fn at(&mut self, at: usize, count: usize) -> &[u8] {
        let count = count.min(self.end.saturating_sub(at));
        let is_file = matches!(self.input, Input::File(_));
        if count > 0 && is_file {
            let has =
                |window: &Window| at >= window.at && at + count <= window.at + window.bytes.len();
            if !has(&self.windows[self.last]) {
                if has(&self.windows[1 - self.last]) {
                    self.last = 1 - self.last;
                } else {
                    self.load(at, count);
                }
            }
        }
        let (from, bytes) = match &self.input {
            Input::File(_) => {
                let window = &self.windows[self.last];
                (window.at, &window.bytes)
            }
            Input::Memory(bytes) => (0, bytes),
        };
        let rest = at.checked_sub(from).and_then(|at| bytes.get(at..));
        let rest = rest.unwrap_or_default();
        rest.get(..count).unwrap_or(rest)
    }
}

/// The bytes of a pipe or a device, at most `bytes_max`.
fn all_of(file: File, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(
        bytes.len() as u64 <= bytes_max,
        "it is no regular file and has more than {bytes_max} bytes, expected a file, or a pipe with at most as many"
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::splitmix::SplitMix64;
    use std::io::Write as _;

    #[test]
    fn what_never_ends_is_refused_and_an_empty_file_too() {
        let error = FileView::open(Path::new("/dev/zero")).unwrap_err();
        assert!(
            format!("{error:#}").contains("more than 268435456 bytes"),
            "{error:#}"
        );
        let empty = tempfile::NamedTempFile::new().unwrap();
        let error = FileView::open(empty.path()).unwrap_err().to_string();
        assert!(error.ends_with("the file is empty"), "{error}");
        let error = FileView::open(Path::new("/")).unwrap_err();
        assert!(format!("{error:#}").contains("directory"), "{error:#}");
    }

    #[test]
    fn a_file_that_gets_shorter_is_an_error_and_no_panic() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut view = FileView::open(file.path()).unwrap();
        file.as_file().set_len(10).unwrap();
        assert_eq!(view.at(1 << 19, 64), b"");
        assert_eq!((view.end(), view.at(1 << 19, 64)), (1 << 19, &b""[..]));
        assert!(view.finish().is_err() && view.finish().is_ok());
    }

    #[test]
    fn a_view_has_the_bytes_of_the_file_and_holds_two_windows() {
        for seed in 0..40 {
            let mut random = SplitMix64::new(seed);
            let mut below = |bound: usize| usize::try_from(random.draw()).unwrap() % bound;
            let bytes: Vec<u8> = (0..1 + below(3_000_000))
                .map(|at| (at % 251) as u8)
                .collect();
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let mut view = FileView::open(file.path()).unwrap();
            assert_eq!(view.end(), bytes.len());
            let mut at = 0;
            for look in 0..200 {
                // Mostly forward, as a walk goes.
                at = if below(4) == 0 {
                    below(bytes.len() + 1)
                } else {
                    (at + below(20_000)).min(bytes.len())
                };
                let count = below(70_000);
                let expected = bytes.as_slice().at(at, count).to_vec();
                assert!(view.at(at, count) == expected, "seed {seed}, look {look}");
                let held: usize = view.windows.iter().map(|w| w.bytes.capacity()).sum();
                assert!(
                    held <= 4 * WINDOW_BYTES,
                    "seed {seed}: {held} bytes are held"
                );
            }
            view.finish().unwrap();
        }
    }
}
