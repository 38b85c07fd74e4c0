//! Lines of the log about disks and overload, each change of one kind at most once in a while.

use sheaf_placement::TargetId;
use sheaf_protocol::Timestamp;
use sheaf_write::{DiskNews, LeftOut};
use std::path::PathBuf;
use std::time::Duration;
use tracing::{info, warn};

/// Least time between two lines about the overload.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Writer of these lines.
pub(super) struct Teller {
    folders: Vec<PathBuf>,
    /// When a line about the overload was written last, and how many were left out since.
    told_at: Option<Timestamp>,
    untold: u64,
}

impl Teller {
    pub(super) fn new(folders: Vec<PathBuf>) -> Self {
        Self {
            folders,
            told_at: None,
            untold: 0,
        }
    }

    /// Says what has changed; `error` is that of a disk that fails.
    pub(super) fn tell(&mut self, now: Timestamp, news: DiskNews, error: &str) {
        // A disk that is left out rests for longer each time, so its lines are few.
        match news {
            DiskNews::LeftOut(disk, why) => {
                let directory = self.name(disk);
                match why {
                    LeftOut::Failing => {
                        warn!(directory, error, "A disk fails and gets no new files");
                    }
                    LeftOut::Slow => warn!(directory, "A disk is slow and gets no new files"),
                    LeftOut::Low => {
                        warn!(
                            directory,
                            "A disk has too little free and gets no new files"
                        );
                    }
                }
                return;
            }
            DiskNews::Back(disk) => {
                let directory = self.name(disk);
                info!(directory, "A disk gets files again");
                return;
            }
            DiskNews::Shedding(_) | DiskNews::Spilling(_) => {}
        }
        let Some(untold) = self.due(now) else {
            return;
        };
        match news {
            DiskNews::Shedding(0) => info!(untold, "No stream is shed any more"),
            DiskNews::Shedding(classes) => {
                warn!(classes, untold, "Streams of the lowest classes are shed");
            }
            DiskNews::Spilling(true) => {
                let directory = self.folders.last();
                let directory = directory.map(|path| path.display().to_string());
                warn!(directory, untold, "TFs go to the directory for overload");
            }
            DiskNews::Spilling(false) => info!(untold, "TFs go to the disks again"),
            DiskNews::LeftOut(..) | DiskNews::Back(_) => {}
        }
    }

    fn name(&self, disk: TargetId) -> String {
        let folder = self.folders.get(disk.0 as usize);
        folder.map_or(String::new(), |path| path.display().to_string())
    }

    /// Returns how many lines were left out, if one is due.
    fn due(&mut self, now: Timestamp) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.since(at) < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_for_those_that_were_left_out() {
        let mut teller = Teller::new(Vec::new());
        let mut after = |seconds: u64| teller.due(Timestamp(seconds * 1_000_000_000));
        assert_eq!(
            [after(1), after(2), after(10), after(11), after(12)],
            [Some(0), None, None, Some(2), None]
        );
    }
}
