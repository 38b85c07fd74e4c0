//! Differences between stores behind a server: addresses and headers of requests, checksums, and what they cannot do.

use crate::digest::Stated;
use crate::path::TreePath;
use http::{HeaderMap, Method};
use std::time::SystemTime;

/// Request to a store.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Address, which may have a signature in its query.
    pub(super) url: String,
    pub(super) headers: HeaderMap,
}

/// File or folder in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) etag: Option<String>,
}

/// Page of a list, and by what the next one is asked for.
pub(super) type Page = (Vec<Entry>, Option<String>);

/// Store of files.
///
/// # Contract
///
/// - a request is for the file of the path and no other one, whatever characters are in its name;
/// - `stated` has checksums of whole files alone;
/// - what `cannot` does not name, the store does, or refuses by a status of its own.
pub(super) trait Store: Send + Sync {
    /// Request for a file, with the checksums of what is to be sent, as far as the client states them.
    ///
    /// # Errors
    ///
    /// The reason why none can be made: credentials that are gone.
    fn ask(&self, method: &Method, path: &TreePath, sent: &Stated) -> Result<Ask, String>;

    /// Checksums of a file in the headers of an answer.
    fn stated(&self, headers: &HeaderMap) -> Stated;

    /// Reason why the store cannot do what a method means.
    fn cannot(&self, method: &str) -> Option<&'static str>;

    /// Whether it may keep what came of an upload that broke off.
    fn keeps_halves(&self) -> bool;

    /// Most bytes of an upload.
    fn bytes_max(&self) -> Option<u64>;

    /// Request for a page of what is in a folder; `None` if the store answers PROPFIND itself.
    fn list(&self, path: &TreePath, from: Option<&str>) -> Option<Result<Ask, String>>;

    /// Reads a page of a list.
    ///
    /// # Errors
    ///
    /// What was found that is none.
    fn read_list(&self, path: &TreePath, text: &str) -> Result<Page, String>;
}
