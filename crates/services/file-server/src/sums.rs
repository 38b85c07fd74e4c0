//! Checksums of files: from the writer's catalogue, from the upload that made a file, or read once.

use crate::path::TreePath;
use crate::tree::Tree;
use rustix::fs::{Stat, XattrFlags, fgetxattr, fsetxattr, fstat};
use sheaf_stream_files::{Catalogue, CatalogueError, FileRow, FileState, Place};
use sheaf_write::{Kinds, Summing, Sums};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

/// Checksums that this server takes: Adler-32 always, and this one.
pub(crate) const KINDS: Kinds = Kinds {
    crc32c: true,
    xxh3: false,
};
/// Extended attribute with the checksums of an uploaded file.
const ATTRIBUTE: &str = "user.sheaf.sums";
/// Files whose checksums are remembered.
const REMEMBERED_MAX: usize = 16_384;
/// Catalogues that are kept open.
const CATALOGUES_MAX: usize = 64;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// File as it was when its checksums were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    /// Changes with every write, also where the time of the last change is set back.
    changed: (i64, i64),
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// Checksums that are known.
#[derive(Default)]
pub(crate) struct SumStore {
    remembered: Mutex<Remembered>,
    /// By folder; `None` where there is none that can be read.
    catalogues: Mutex<HashMap<String, Catalogue>>,
}

#[derive(Default)]
struct Remembered {
    sums: HashMap<Identity, Sums>,
    /// In the order in which they came, so that the oldest goes first.
    order: VecDeque<Identity>,
}

impl SumStore {
    /// Returns the checksums of a file if they are known without reading it.
    pub(crate) fn known(&self, tree: &Tree, path: &TreePath, file: &File) -> Option<Sums> {
        let stat = fstat(file).ok()?;
        // An upload may have replaced a file of the writer, whose row is older then.
        of_attribute(file, &stat)
            .or_else(|| self.of_catalogue(tree, path, &stat))
            .or_else(|| {
                let remembered = self
                    .remembered
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                remembered.sums.get(&Identity::of(&stat)).copied()
            })
    }

    /// Reads a file and remembers its checksums.
    ///
    /// # Errors
    ///
    /// That of reading.
    pub(crate) fn take(&self, file: &File) -> std::io::Result<Sums> {
        let before = Identity::of(&fstat(file)?);
        let mut summing = Summing::new(KINDS);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // At the place, as others send from the same descriptor.
            match file.read_at(&mut buffer, summing.sums().bytes)? {
                0 => break,
                got => summing.update(&buffer[..got]),
            }
        }
        let sums = summing.sums();
        let is_same = Identity::of(&fstat(file)?) == before;
        if is_same && sums.bytes == before.size.unsigned_abs() {
            self.remember(before, sums);
        }
        Ok(sums)
    }

    fn remember(&self, identity: Identity, sums: Sums) {
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if remembered.sums.insert(identity, sums).is_none() {
            remembered.order.push_back(identity);
        }
        if remembered.order.len() > REMEMBERED_MAX
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.sums.remove(&oldest);
        }
    }

    /// Returns the destinations that have a file, as the catalogue in its folder knows them.
    pub(crate) fn shipped_to(&self, tree: &Tree, path: &TreePath) -> Vec<String> {
        let of = |catalogue: &Catalogue, name: &str| catalogue.places(Some(name));
        let places = self.ask(tree, path, of).unwrap_or_default();
        let places = places.into_iter().map(|(_, place)| place);
        places
            .filter(Place::has_it)
            .map(|place| place.destination)
            .collect()
    }

    /// Asks the catalogue in the folder of the file.
    fn of_catalogue(&self, tree: &Tree, path: &TreePath, stat: &Stat) -> Option<Sums> {
        let row = self.ask(tree, path, Catalogue::get)?;
        let is_of_this = |row: &FileRow| {
            let modified_ns = stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec as i64;
            row.state != FileState::Open
                && row.sums.bytes == stat.st_size.unsigned_abs()
                && row
                    .closed_ns
                    .is_some_and(|closed_ns| modified_ns <= closed_ns)
        };
        row.filter(is_of_this).map(|row| row.sums)
    }

    /// Puts a question to the catalogue in the folder of a file; `None` if there is none, or none that can be read.
    fn ask<T>(
        &self,
        tree: &Tree,
        path: &TreePath,
        question: impl FnOnce(&Catalogue, &str) -> Result<T, CatalogueError>,
    ) -> Option<T> {
        let (folder, name) = path.split()?;
        let place = tree.path().join(folder.as_str());
        let mut catalogues = self
            .catalogues
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !catalogues.contains_key(folder.as_str()) {
            if !Catalogue::is_in(&place) {
                return None;
            }
            let catalogue = Catalogue::read(&place).ok()?;
            if catalogues.len() == CATALOGUES_MAX {
                catalogues.clear();
            }
            catalogues.insert(folder.as_str().to_owned(), catalogue);
        }
        let answer = question(catalogues.get(folder.as_str())?, name);
        if answer.is_err() {
            // Replaced or damaged: opened again by the next request.
            catalogues.remove(folder.as_str());
        }
        answer.ok()
    }
}

/// Notes the checksums of a file that was just written, where the file system can.
pub(crate) fn note(file: &File, sums: &Sums) {
    let Ok(stat) = fstat(file) else {
        return;
    };
    // A file system without attributes costs a later request a reading.
    let _ = fsetxattr(
        file,
        ATTRIBUTE,
        text(&stat, sums).as_bytes(),
        XattrFlags::empty(),
    );
}

fn text(stat: &Stat, sums: &Sums) -> String {
    let (size, seconds, ns) = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    let crc32c = sums
        .crc32c
        .map_or_else(String::new, |sum| format!("{sum:08x}"));
    format!(
        "1 {size} {seconds}.{ns} adler32={:08x} crc32c={crc32c}",
        sums.adler32
    )
}

/// Reads the noted checksums; `None` if the file was changed since.
fn of_attribute(file: impl AsFd, stat: &Stat) -> Option<Sums> {
    let mut room = [0_u8; 128];
    let length = fgetxattr(file, ATTRIBUTE, &mut room[..]).ok()?;
    let noted = std::str::from_utf8(&room[..length]).ok()?;
    let field = |name: &str| {
        let mut fields = noted.split(' ');
        let value = fields.find_map(|field| field.strip_prefix(name));
        u32::from_str_radix(value?, 16).ok()
    };
    let sums = Sums {
        bytes: stat.st_size.unsigned_abs(),
        adler32: field("adler32=")?,
        crc32c: field("crc32c="),
        xxh3: None,
    };
    (text(stat, &sums) == noted).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_write::FileName;

    /// A time after that of any change of a file, in ns since 1970.
    const LATER: i64 = i64::MAX;

    struct Case {
        folder: tempfile::TempDir,
        tree: Tree,
        store: SumStore,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self {
                tree: Tree::open(folder.path()).unwrap(),
                folder,
                store: SumStore::default(),
            }
        }

        fn known(&self, name: &str) -> Option<u32> {
            let path = TreePath::of_target(&format!("/{name}")).unwrap();
            let found = self.tree.read(&path).unwrap();
            self.store
                .known(&self.tree, &path, &found.file)
                .map(|sums| sums.adler32)
        }

        fn write(&self, name: &str, text: &str) -> File {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            File::open(path).unwrap()
        }
    }

    #[test]
    fn a_file_is_read_once_until_it_changes() {
        let case = Case::new();
        let file = case.write("a", "Wikipedia");
        assert_eq!(case.known("a"), None);
        let sums = case.store.take(&file).unwrap();
        assert_eq!(sums.adler32, 0x11e6_0398);
        assert_eq!(case.known("a"), Some(0x11e6_0398));
        // Equal in size and in the time of its last change.
        let modified = file.metadata().unwrap().modified().unwrap();
        std::fs::write(case.folder.path().join("a"), "wikipedia").unwrap();
        File::options()
            .write(true)
            .open(case.folder.path().join("a"))
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert_eq!(case.known("a"), None);
    }

    #[test]
    fn noted_checksums_are_those_of_the_file_as_it_was_written() {
        let case = Case::new();
        let file = case.write("a", "Wikipedia");
        let sums = case.store.take(&file).unwrap();
        note(&file, &sums);
        let after_a_restart = SumStore::default();
        let path = TreePath::of_target("/a").unwrap();
        let known = || {
            let found = case.tree.read(&path).unwrap();
            after_a_restart.known(&case.tree, &path, &found.file)
        };
        assert_eq!(known(), Some(sums));
        std::fs::write(case.folder.path().join("a"), "Wikipedia!").unwrap();
        assert_eq!(known(), None);
    }

    #[test]
    fn closed_files_are_known_by_the_catalogue_while_its_writer_writes() {
        let case = Case::new();
        case.write("run.tf", "12345");
        let writer = Catalogue::open(case.folder.path()).unwrap();
        let mut row = FileRow {
            file: "run.tf".to_owned(),
            name: FileName {
                project: "p".to_owned(),
                run: 1,
                stream: "main".to_owned(),
                block: 0,
                node: "epn-0".to_owned(),
                seq: 0,
            },
            state: FileState::Open,
            opened_ns: 0,
            closed_ns: None,
            records: 1,
            sums: Sums {
                bytes: 5,
                adler32: 7,
                crc32c: None,
                xxh3: None,
            },
        };
        writer.add(&row).unwrap();
        assert_eq!(
            case.known("run.tf"),
            None,
            "an open file has no checksum yet"
        );
        writer
            .close("run.tf", FileState::Closed, LATER, 1, &row.sums)
            .unwrap();
        assert_eq!(case.known("run.tf"), Some(7));
        case.write("run.tf", "123456");
        assert_eq!(case.known("run.tf"), None, "another size is another file");
        row.file = "other.tf".to_owned();
        row.name.seq = 1;
        writer.add(&row).unwrap();
        case.write("other.tf", "12345");
        writer
            .close("other.tf", FileState::Recovered, LATER, 1, &row.sums)
            .unwrap();
        assert_eq!(case.known("other.tf"), Some(7));
        writer
            .close("other.tf", FileState::Recovered, 1, 1, &row.sums)
            .unwrap();
        assert_eq!(case.known("other.tf"), None, "changed after it was closed");
    }
}
