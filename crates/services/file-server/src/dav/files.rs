//! The folder that is served, as the crate `dav-server` wants to see it: folders, metadata, properties.

use crate::path::TreePath;
use crate::properties;
use crate::tree::{Tree, TreeError, is_folder, size, version};
use crate::upload;
use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavFileSystem, DavMetaData, DavProp, FsError, FsFuture, FsResult,
    FsStream, OpenOptions, ReadDirMeta,
};
use futures_util::stream;
use http::StatusCode;
use rustix::fs::{FileType, Stat};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

/// Folder that is served.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) tree: Arc<Tree>,
    pub(super) is_synced: bool,
}

impl From<TreeError> for FsError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::NotFound => Self::NotFound,
            TreeError::Outside | TreeError::Denied | TreeError::NotAFile => Self::Forbidden,
            TreeError::Exists => Self::Exists,
            TreeError::TooLong => Self::PathTooLong,
            TreeError::Full => Self::InsufficientStorage,
            TreeError::Busy | TreeError::Failed(_) => Self::GeneralFailure,
        }
    }
}

/// Checks a path of the crate by the rules for those of requests.
fn checked(path: &DavPath) -> FsResult<TreePath> {
    TreePath::of_target(&path.as_url_string()).map_err(|_| FsError::Forbidden)
}

impl Files {
    fn at<T>(
        &self,
        path: &DavPath,
        work: impl FnOnce(&Tree, &TreePath) -> Result<T, TreeError>,
    ) -> FsResult<T> {
        Ok(work(&self.tree, &checked(path)?)?)
    }

    /// Does work on a thread that may wait for the disk.
    fn away<T: Send + 'static>(
        &self,
        paths: [&DavPath; 2],
        work: impl FnOnce(&Tree, [&TreePath; 2]) -> Result<T, TreeError> + Send + 'static,
    ) -> FsFuture<'static, T> {
        let tree = self.tree.clone();
        let paths = paths.map(checked);
        Box::pin(async move {
            let [first, second] = paths;
            let (first, second) = (first?, second?);
            let done = tokio::task::spawn_blocking(move || work(&tree, [&first, &second]));
            let done = done.await.map_err(|_| FsError::GeneralFailure)?;
            Ok(done?)
        })
    }
}

/// Wraps what is known at once.
fn now<T: Send + 'static>(value: FsResult<T>) -> FsFuture<'static, T> {
    Box::pin(ready(value))
}

impl DavFileSystem for Files {
    fn open<'a>(&'a self, _: &'a DavPath, _: OpenOptions) -> FsFuture<'a, Box<dyn DavFile>> {
        // GET and PUT never come here.
        now(Err(FsError::NotImplemented))
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        let keeps_links = meta != ReadDirMeta::Data;
        let listed = self.away([path, path], move |tree, [path, _]| {
            tree.list(path, keeps_links)
        });
        Box::pin(async move {
            let entries = listed.await?.into_iter().map(|(name, stat)| {
                let entry = Entry { name, stat };
                Ok(Box::new(entry) as Box<dyn DavDirEntry>)
            });
            let entries: FsStream<Box<dyn DavDirEntry>> = Box::pin(stream::iter(entries));
            Ok(entries)
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        now(self
            .at(path, Tree::stat)
            .map(|stat| Box::new(Meta(stat)) as _))
    }

    fn symlink_metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        now(self
            .at(path, Tree::stat_name)
            .map(|stat| Box::new(Meta(stat)) as _))
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        now(self.at(path, Tree::make_folder))
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        now(self.at(path, Tree::remove_folder))
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        self.away([path, path], |tree, [path, _]| tree.remove_file(path))
    }

    fn rename<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        self.away([from, to], |tree, [from, to]| tree.rename(from, to, false))
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        let is_synced = self.is_synced;
        self.away([from, to], move |tree, [from, to]| {
            upload::copy(tree, from, to, is_synced, false)
        })
    }

    fn have_props<'a>(&'a self, _: &'a DavPath) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(ready(true))
    }

    fn patch_props<'a>(
        &'a self,
        path: &'a DavPath,
        patch: Vec<(bool, DavProp)>,
    ) -> FsFuture<'a, Vec<(StatusCode, DavProp)>> {
        let changed = self.at(path, |tree, path| {
            let found = tree.read(path)?;
            Ok(properties::change(&found.file, &patch)?)
        });
        let status = match changed {
            Ok(()) => StatusCode::OK,
            Err(FsError::NotFound) => return now(Err(FsError::NotFound)),
            // Of the attributes of one file there are so many, whatever room the disk has.
            Err(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        let named = patch.into_iter().map(|(_, property)| {
            let property = DavProp {
                xml: None,
                ..property
            };
            (status, property)
        });
        now(Ok(named.collect()))
    }

    fn get_props<'a>(&'a self, path: &'a DavPath, do_content: bool) -> FsFuture<'a, Vec<DavProp>> {
        now(self.at(path, |tree, path| {
            let mut all = properties::read(&tree.read(path)?.file);
            for property in all.iter_mut().filter(|_| !do_content) {
                property.xml = None;
            }
            Ok(all)
        }))
    }

    fn get_prop<'a>(&'a self, path: &'a DavPath, wanted: DavProp) -> FsFuture<'a, Vec<u8>> {
        let found = self.at(path, |tree, path| {
            Ok(properties::read(&tree.read(path)?.file))
        });
        let is_it = |property: &DavProp| {
            property.name == wanted.name
                && property.namespace.as_deref().unwrap_or_default()
                    == wanted.namespace.as_deref().unwrap_or_default()
        };
        now(found.and_then(|all| {
            let property = all.into_iter().find(is_it);
            property
                .and_then(|property| property.xml)
                .ok_or(FsError::NotFound)
        }))
    }

    fn get_quota(&'_ self) -> FsFuture<'_, (u64, Option<u64>)> {
        now(self.tree.room().map_err(FsError::from))
    }
}

/// File or folder in a list.
#[derive(Debug)]
struct Entry {
    name: String,
    stat: Stat,
}

impl DavDirEntry for Entry {
    fn name(&self) -> Vec<u8> {
        self.name.clone().into_bytes()
    }

    fn metadata(&'_ self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        now(Ok(Box::new(Meta(self.stat)) as _))
    }
}

/// Metadata of a file or folder.
#[derive(Clone, Debug)]
struct Meta(Stat);

impl DavMetaData for Meta {
    fn len(&self) -> u64 {
        size(&self.0)
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(version(&self.0).modified)
    }

    fn is_dir(&self) -> bool {
        is_folder(&self.0)
    }

    fn is_symlink(&self) -> bool {
        FileType::from_raw_mode(self.0.st_mode).is_symlink()
    }

    fn etag(&self) -> Option<String> {
        // The crate puts it into an element as it is.
        (!self.is_dir()).then(|| version(&self.0).etag)
    }

    fn created(&self) -> FsResult<SystemTime> {
        // Linux has a time of birth only on some file systems; RFC 4918 wants one for clients that sort by it.
        self.modified()
    }
}
