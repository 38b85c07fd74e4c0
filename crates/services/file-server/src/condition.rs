//! Conditions of a request: whether the file is the one that the client knows (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

/// End of the year 9999, in seconds since 1970.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Version of a file by which clients name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Entity tag with its quotes; a strong one.
    pub(crate) etag: String,
    /// Time of the last change, in whole seconds.
    pub(crate) modified: SystemTime,
}

/// Conditions of a request, as its headers state them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions<'a> {
    pub(crate) if_match: Option<&'a str>,
    pub(crate) if_none_match: Option<&'a str>,
    pub(crate) if_modified_since: Option<&'a str>,
    pub(crate) if_unmodified_since: Option<&'a str>,
    pub(crate) if_range: Option<&'a str>,
}

/// Outcome of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The request is answered.
    Go,
    /// The client has the file already: 304.
    NotModified,
    /// The file is another one than the client expects: 412.
    Failed,
}

impl Conditions<'_> {
    /// Checks all conditions but `If-Range` in the order of section 13.2.2.
    ///
    /// `version` is `None` if there is no such file; `is_read` tells GET and HEAD from what changes a file.
    pub(crate) fn check(&self, version: Option<&Version>, is_read: bool) -> Outcome {
        if let Some(list) = self.if_match {
            if !has_tag(list, version, false) {
                return Outcome::Failed;
            }
        } else if let Some(since) = self.if_unmodified_since.and_then(date)
            && version.is_none_or(|version| version.modified > since)
        {
            return Outcome::Failed;
        }
        if let Some(list) = self.if_none_match {
            return match (has_tag(list, version, true), is_read) {
                (false, _) => Outcome::Go,
                (true, true) => Outcome::NotModified,
                (true, false) => Outcome::Failed,
            };
        }
        if is_read
            && let Some(since) = self.if_modified_since.and_then(date)
            && version.is_some_and(|version| version.modified <= since)
        {
            return Outcome::NotModified;
        }
        Outcome::Go
    }

    /// Returns whether `Range` counts: without `If-Range`, or if that names this version (section 13.1.5).
    pub(crate) fn range_counts(&self, version: &Version) -> bool {
        match self.if_range {
            None => true,
            Some(tag) if tag.starts_with(['"', 'W']) => tag == version.etag,
            // A date must be the very one that was sent, so that it names no older version.
            Some(text) => date(text) == Some(version.modified),
        }
    }
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// Returns the time of so many seconds since 1970, within the years that a header can carry.
pub(crate) fn whole_seconds(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns whether a list of entity tags has that of `version`. A weak comparison takes `W/"x"` for `"x"`.
fn has_tag(list: &str, version: Option<&Version>, is_weak: bool) -> bool {
    let Some(version) = version else {
        return false;
    };
    let list = list.trim();
    if list == "*" {
        return true;
    }
    // Tags of this server have no comma in them, so a foreign one that is cut there matches none.
    list.split(',').map(str::trim).any(|tag| {
        let tag = match tag.strip_prefix("W/") {
            Some(tag) if is_weak => tag,
            _ => tag,
        };
        tag == version.etag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: &str = "Thu, 01 Jan 1970 00:01:40 GMT"; // 100 s
    const BEFORE: &str = "Thu, 01 Jan 1970 00:01:39 GMT";

    fn version() -> Version {
        Version {
            etag: "\"a-1\"".to_owned(),
            modified: whole_seconds(100),
        }
    }

    fn check(conditions: Conditions<'_>, is_read: bool) -> Outcome {
        conditions.check(Some(&version()), is_read)
    }

    #[test]
    fn if_match_wants_a_strong_tag() {
        let with = |list| Conditions {
            if_match: Some(list),
            ..Conditions::default()
        };
        for list in ["*", "\"a-1\"", "\"x\", \"a-1\""] {
            assert_eq!(check(with(list), false), Outcome::Go, "{list}");
        }
        for list in ["\"x\"", "W/\"a-1\"", ""] {
            assert_eq!(check(with(list), true), Outcome::Failed, "{list}");
        }
        assert_eq!(with("*").check(None, false), Outcome::Failed);
    }

    #[test]
    fn if_none_match_is_not_modified_for_reads_and_fails_for_writes() {
        let with = |list| Conditions {
            if_none_match: Some(list),
            // Counts only without If-None-Match.
            if_modified_since: Some(DAY),
            ..Conditions::default()
        };
        for list in ["*", "W/\"a-1\"", "\"x\",\"a-1\""] {
            assert_eq!(check(with(list), true), Outcome::NotModified, "{list}");
            assert_eq!(check(with(list), false), Outcome::Failed, "{list}");
        }
        assert_eq!(check(with("\"x\""), true), Outcome::Go);
        assert_eq!(with("*").check(None, false), Outcome::Go);
    }

    #[test]
    fn dates_count_where_no_tag_does() {
        let modified = |since| Conditions {
            if_modified_since: Some(since),
            ..Conditions::default()
        };
        assert_eq!(check(modified(DAY), true), Outcome::NotModified);
        assert_eq!(check(modified(BEFORE), true), Outcome::Go);
        assert_eq!(check(modified("yesterday"), true), Outcome::Go);
        assert_eq!(check(modified(DAY), false), Outcome::Go);
        let unmodified = |since| Conditions {
            if_unmodified_since: Some(since),
            ..Conditions::default()
        };
        assert_eq!(check(unmodified(DAY), false), Outcome::Go);
        assert_eq!(check(unmodified(BEFORE), true), Outcome::Failed);
        assert_eq!(check(unmodified("yesterday"), true), Outcome::Go);
    }

    #[test]
    fn a_range_counts_for_the_version_that_the_client_has() {
        let counts = |tag| {
            let conditions = Conditions {
                if_range: Some(tag),
                ..Conditions::default()
            };
            conditions.range_counts(&version())
        };
        assert!(Conditions::default().range_counts(&version()));
        assert!(counts("\"a-1\"") && counts(DAY));
        assert!(!counts("\"x\"") && !counts("W/\"a-1\"") && !counts(BEFORE) && !counts("x"));
    }
}
