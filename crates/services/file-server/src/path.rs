//! Paths of requests: percent-encoding taken off, and nothing in them that could lead out of the folder.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use std::borrow::Cow;
use thiserror::Error;

/// Longest path in bytes, that of Linux (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4095;
/// Longest name in a path in bytes, that of Linux (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Beginning of the names of a catalogue and of the files that SQLite puts beside it.
const CATALOGUE: &str = "catalogue.sqlite";
/// End of the names of files that are being written.
const PART: &str = ".part";

/// Characters that are encoded in a path: all but the unreserved ones (RFC 3986, section 2.3) and slashes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

/// Reason why a path is none of this server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum PathError {
    /// Does not begin with a slash, or with a scheme and a host.
    #[error("found the target `{0}`, expected a path that begins with `/`")]
    NotAPath(String),
    /// A name such as `..`, or one with a slash or a zero byte in it.
    #[error(
        "found the name `{0}` in the path, expected none that is `.` or `..`, or has `/` or a zero byte in it"
    )]
    Name(String),
    /// Bytes that are not UTF-8.
    #[error("found a name that is not UTF-8, expected UTF-8 with percent-encoding")]
    NotUtf8,
    /// Longer than the file system allows.
    #[error(
        "found a path of {0} bytes, expected names up to {NAME_BYTES_MAX} and paths up to {PATH_BYTES_MAX}"
    )]
    TooLong(usize),
}

/// Path below the folder that is served; without a slash at its beginning, empty for the folder itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TreePath {
    text: String,
    /// Whether the path ended in a slash, as that of a folder does.
    pub(crate) is_folder: bool,
}

impl TreePath {
    /// Reads the target of a request, of which the query is left out.
    ///
    /// # Errors
    ///
    /// [`PathError`] if it could name something outside of the folder, or nothing.
    pub(crate) fn of_target(target: &str) -> Result<Self, PathError> {
        let path = without_host(target).ok_or_else(|| PathError::NotAPath(target.to_owned()))?;
        // A fragment is for the client alone; what one means that sends it is not known.
        if path.contains('#') {
            return Err(PathError::NotAPath(target.to_owned()));
        }
        let path = path.split('?').next().unwrap_or_default();
        let mut text = String::with_capacity(path.len());
        for encoded in path.split('/').filter(|name| !name.is_empty()) {
            let bytes: Cow<'_, [u8]> = percent_decode(encoded.as_bytes()).into();
            let name = std::str::from_utf8(&bytes).map_err(|_| PathError::NotUtf8)?;
            // A slash would begin another name behind this check.
            if name == "." || name == ".." || name.contains(['/', '\0']) {
                return Err(PathError::Name(name.escape_debug().to_string()));
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(PathError::TooLong(name.len()));
            }
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(name);
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong(text.len()));
        }
        Ok(Self {
            text,
            is_folder: path.ends_with('/'),
        })
    }

    /// Path for system calls that begin at the folder.
    pub(crate) fn relative(&self) -> &str {
        if self.text.is_empty() {
            "."
        } else {
            &self.text
        }
    }

    /// Path as a client sees it, not encoded.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Path as it stands in a request.
    pub(crate) fn to_target(&self) -> String {
        let path = utf8_percent_encode(&self.text, ENCODED);
        let end = if self.is_folder && !self.text.is_empty() {
            "/"
        } else {
            ""
        };
        format!("/{path}{end}")
    }

    /// Name or path as it stands in a request, without a slash in front.
    pub(crate) fn encoded(name: &str) -> String {
        utf8_percent_encode(name, ENCODED).to_string()
    }

    /// Returns the last name and the path of the folder that it is in; `None` for the folder that is served.
    pub(crate) fn split(&self) -> Option<(Self, &str)> {
        if self.text.is_empty() {
            return None;
        }
        let (folder, name) = self.text.rsplit_once('/').unwrap_or(("", &self.text));
        let folder = Self {
            text: folder.to_owned(),
            is_folder: true,
        };
        Some((folder, name))
    }

    /// Returns whether `other` is this, or below it.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let rest = other.text.strip_prefix(self.text.as_str());
        self.text.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Path of a file in this folder, whose name is one of the file system.
    pub(crate) fn join(&self, name: &str) -> Self {
        let gap = if self.text.is_empty() { "" } else { "/" };
        Self {
            text: format!("{}{gap}{name}", self.text),
            is_folder: false,
        }
    }

    /// Returns whether any name on the path is hidden.
    pub(crate) fn is_hidden(&self) -> bool {
        self.text.split('/').any(is_hidden)
    }
}

/// Returns whether a name is neither served nor written: temporary files, names that begin with a dot, catalogues.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.ends_with(PART) || name.starts_with(CATALOGUE)
}

/// Takes scheme and host off a target in the absolute form (RFC 9112, section 3.2.2).
fn without_host(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    Some(rest.find('/').map_or("/", |at| &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(target: &str) -> Result<String, PathError> {
        TreePath::of_target(target).map(|path| path.text)
    }

    #[test]
    fn targets_are_paths_below_the_folder() {
        let good = [
            ("/", ""),
            ("/a", "a"),
            ("//a///b/", "a/b"),
            ("/a%20b/%C3%A9?query=/../x", "a b/é"),
            ("http://host:80/a", "a"),
            ("HTTPS://host", ""),
            ("/a%2", "a%2"),
            ("/...", "..."),
        ];
        for (target, expected) in good {
            assert_eq!(text(target), Ok(expected.to_owned()), "{target}");
        }
        assert!(TreePath::of_target("/a/").unwrap().is_folder);
        assert!(!TreePath::of_target("/a").unwrap().is_folder);
    }

    #[test]
    fn what_could_lead_out_is_refused() {
        for target in [
            "/..",
            "/a/../b",
            "/%2e%2e/b",
            "/.%2E/",
            "/a/.",
            "/a%2fb",
            "/..%2f..%2fetc",
            "/a%00b",
        ] {
            assert!(matches!(text(target), Err(PathError::Name(_))), "{target}");
        }
        for target in ["a", "*", "ftp://host/a", "", "/a#b"] {
            assert!(
                matches!(text(target), Err(PathError::NotAPath(_))),
                "{target}"
            );
        }
        assert_eq!(text("/%ff"), Err(PathError::NotUtf8));
        let long = format!("/{}", "a".repeat(256));
        assert_eq!(text(&long), Err(PathError::TooLong(256)));
        let deep = "/abc".repeat(1025);
        assert_eq!(text(&deep), Err(PathError::TooLong(4099)));
    }

    #[test]
    fn names_of_this_program_are_hidden() {
        let hidden = |target| TreePath::of_target(target).unwrap().is_hidden();
        for target in [
            "/a.part",
            "/.a.3f.part",
            "/.git/config",
            "/d/catalogue.sqlite",
            "/catalogue.sqlite-wal",
            "/a.part/b",
        ] {
            assert!(hidden(target), "{target}");
        }
        for target in ["/", "/a.parts", "/part", "/a/my.catalogue.sqlite"] {
            assert!(!hidden(target), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_out(target in "\\PC{0,40}|(/|\\.|%2e|%2f|%00|a|\\?){0,20}") {
            if let Ok(path) = TreePath::of_target(&target) {
                prop_assert_eq!(TreePath::of_target(&path.to_target()), Ok(path.clone()));
                prop_assert!(!path.text.starts_with('/'));
                for name in path.text.split('/') {
                    prop_assert!(name != "." && name != ".." && !name.contains('\0'));
                }
            }
        }
    }
}
