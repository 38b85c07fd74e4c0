//! Reasons why a record from outside is bad: a closed list of codes.

use std::fmt;

/// Defines [`Code`] from its table: variant, name, what was found, what an operator does about it. The table of
/// `docs/reference/monitoring-protocols.md` is held against this one by a test.
macro_rules! codes {
    ($($code:ident = $name:literal, $found:literal, $advice:literal;)+) => {
        /// Reason why a record, line or message is bad.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Code {
            $(
                #[doc = concat!("`", $name, "`: ", $found, ".")]
                $code,
            )+
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$code),+];

            /// Returns the name in metrics, logs and documents, such as `"bad-number"`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }

            /// Returns a description of the input, as on the reference page.
            #[must_use]
            pub fn found(self) -> &'static str {
                match self {
                    $(Self::$code => $found,)+
                }
            }

            /// Returns what an operator does about the input.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$code => $advice,)+
                }
            }
        }
    };
}

codes! {
    TextValue = "text-value",
        "a field whose value is a text; a sample is a number",
        "nothing, if the text is not needed; else send it as a tag";
    LineTooLong = "line-too-long",
        "a line longer than the limit",
        "send fewer fields a line, or raise the limit";
    NotUtf8 = "not-utf8",
        "a name, label or text that is not UTF-8",
        "look at the sender";
    BadSeries = "bad-series",
        "a line whose measurement or tags do not follow the grammar",
        "look at the sender: an empty name, a tag without value, a control character";
    BadLabels = "bad-labels",
        "labels of which one stands twice, has no name or is too long",
        "look at the sender: names may become equal when characters are replaced by `_`";
    NoFields = "no-fields",
        "a line that ends before its first field",
        "look at the sender";
    BadField = "bad-field",
        "a field without name or value, or characters behind its value",
        "look at the sender";
    BadNumber = "bad-number",
        "a value that is no number of its type, or beyond its range",
        "look at the sender";
    BadTime = "bad-time",
        "a time that is no integer, or beyond the range of ms since 1970 in 64 bits",
        "look at the precision that the sender states";
    OpenQuote = "open-quote",
        "a text whose closing quote is missing",
        "look at the sender: a quote inside of a text is written `\\\"`";
    Truncated = "truncated",
        "a length beyond the end of the input",
        "look whether the sender or a proxy cuts what it sends";
    TooBig = "too-big",
        "more labels, samples or bytes than the limit; nothing was allocated for them",
        "send smaller messages, or look who the sender is";
    BadCompression = "bad-compression",
        "bytes that are no Snappy block",
        "look at the sender: remote write 1.0 is a block, not a stream";
    BadMessage = "bad-message",
        "bytes that are no message of the protocol",
        "look at the sender and its version of the protocol";
    Unsupported = "unsupported",
        "a record of a kind that has no samples here: a native histogram of remote write, a delta of an exponential \
         histogram, an event or service check of DogStatsD, an unknown kind of a scrape",
        "let the sender use another kind, such as classic histograms";
    BadPart = "bad-part",
        "a part of a collectd packet whose content is not of its type",
        "look at the sender";
    Unsigned = "unsigned",
        "values of collectd without a signature, where one is demanded",
        "set `SecurityLevel Sign` at the sender, or do not demand it";
    BadSignature = "bad-signature",
        "a collectd packet whose signature is not that of its user's password; all of it is refused",
        "compare user and password at both ends, and look who the sender is";
    Encrypted = "encrypted",
        "an encrypted collectd packet",
        "set `SecurityLevel Sign` at the sender";
}

impl Code {
    /// Place in [`ALL`](Self::ALL), for tables of counts.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bad record in an input from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {code}: {}", .code.found())]
pub struct Fault {
    /// Reason.
    pub code: Code,
    /// Place in the input, in bytes from its begin.
    pub offset: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_stands_at_its_index_and_has_a_name_of_its_own() {
        for (at, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code.index(), at);
            assert!(!code.advice().is_empty());
        }
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn a_fault_names_place_and_code() {
        let fault = Fault {
            code: Code::NoFields,
            offset: 12,
        };
        assert_eq!(
            fault.to_string(),
            "byte 12: no-fields: a line that ends before its first field"
        );
    }
}
