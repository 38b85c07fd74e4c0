//! Ranges of bytes that a request wants (RFC 9110, section 14).

/// Most ranges of one request; a client of ROOT asks for some hundred at once.
const RANGES_MAX: usize = 1024;

/// Bytes of a file from `first` up to `last`, both among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl ByteRange {
    /// Number of bytes, at least one.
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Parts of a file that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it: no header, one that is none, or one that costs more than all.
    All,
    /// These, one at least, in the order in which the client wants them.
    Ranges(Vec<ByteRange>),
    /// Bytes that the file does not have.
    Unsatisfiable,
}

/// Reads the value of `Range` for a file of `size` bytes.
///
/// A value that breaks the grammar is ignored, as section 14.2 allows; so are more than [`RANGES_MAX`] ranges, and
/// ranges that together are longer than the file, by which a client could ask for the same bytes again and again.
pub(crate) fn parse(value: &str, size: u64) -> Wanted {
    let Some((unit, list)) = value.split_once('=') else {
        return Wanted::All;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::All;
    }
    let mut ranges = Vec::new();
    let mut bytes = 0_u64;
    let mut is_empty = true;
    for (at, spec) in list
        .split(',')
        .map(trim)
        .filter(|spec| !spec.is_empty())
        .enumerate()
    {
        is_empty = false;
        if at == RANGES_MAX {
            return Wanted::All;
        }
        match one(spec, size) {
            None => return Wanted::All,
            Some(None) => {}
            Some(Some(range)) => {
                bytes = bytes.saturating_add(range.length());
                ranges.push(range);
            }
        }
    }
    if is_empty || bytes > size {
        Wanted::All
    } else if ranges.is_empty() {
        Wanted::Unsatisfiable
    } else {
        Wanted::Ranges(ranges)
    }
}

/// Reads one range: `None` if it is none, `Some(None)` if the file does not have its bytes.
fn one(spec: &str, size: u64) -> Option<Option<ByteRange>> {
    let (first, last) = spec.split_once('-')?;
    let (first, last) = (trim(first), trim(last));
    if first.is_empty() {
        let suffix = number(last)?;
        let has_any = suffix > 0 && size > 0;
        return Some(has_any.then(|| ByteRange {
            first: size.saturating_sub(suffix),
            last: size - 1,
        }));
    }
    let first = number(first)?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        number(last)?
    };
    if first > last {
        return None;
    }
    Some((first < size).then(|| ByteRange {
        first,
        last: last.min(size - 1),
    }))
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Reads digits; a number beyond 64 bits is behind the end of every file.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, size: u64, expected: &str) {
        let found = match parse(value, size) {
            Wanted::All => "all".to_owned(),
            Wanted::Unsatisfiable => "416".to_owned(),
            Wanted::Ranges(ranges) => {
                let ranges = ranges
                    .iter()
                    .map(|range| format!("{}-{}", range.first, range.last));
                ranges.collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(found, expected, "{value} of {size}");
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        check("bytes=0-499", 10_000, "0-499");
        check("bytes=9500-", 10_000, "9500-9999");
        check("bytes=-500", 10_000, "9500-9999");
        check("bytes=-500", 100, "0-99");
        check("Bytes = 0-0 , -1", 10_000, "0-0 9999-9999");
        check("bytes=0-99999", 100, "0-99");
        check("bytes=5-6,,200-,0-1", 100, "5-6 0-1");
        check("bytes=0-18446744073709551616", 100, "0-99");
    }

    #[test]
    fn bytes_behind_the_end_are_unsatisfiable() {
        check("bytes=100-", 100, "416");
        check("bytes=-0", 100, "416");
        check("bytes=0-", 0, "416");
        check("bytes=-1", 0, "416");
        check("bytes=99999999999999999999-", 100, "416");
        check("bytes=100-,200-300", 100, "416");
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "items=0-1",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=1",
            "bytes=--1",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=0x1-2",
        ] {
            check(value, 100, "all");
        }
    }

    #[test]
    fn ranges_that_cost_more_than_the_file_are_ignored() {
        check("bytes=0-,0-", 100, "all");
        let many = vec!["0-0"; RANGES_MAX + 1].join(",");
        check(&format!("bytes={many}"), 1 << 40, "all");
    }

    proptest! {
        #[test]
        fn ranges_lie_in_the_file(value in "bytes=([0-9]{0,3}-[0-9]{0,3},?){0,6}", size in 0_u64..500) {
            if let Wanted::Ranges(ranges) = parse(&value, size) {
                prop_assert!(!ranges.is_empty());
                for range in ranges {
                    prop_assert!(range.first <= range.last && range.last < size);
                }
            }
        }
    }
}
