//! Answers of a borrower to messages, which go back with them.

use bytes::Bytes;
use std::io;
use thiserror::Error;

/// Bytes of all tags of an answer, with a comma between two.
pub const TAGS_BYTES_MAX: usize = 64;

/// Answers that a lender takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Largest product, in bytes.
    pub product_bytes_max: u64,
}

/// Answer of a borrower to one message. Without tags and product for a message that it just gave back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Tags, with a comma between two.
    pub tags: String,
    /// Bytes that the borrower made of the message. They lie in memory that no process can change.
    pub product: Option<Bytes>,
}

impl Answer {
    /// Creates an answer of one tag.
    #[must_use]
    pub fn tagged(tag: &str) -> Self {
        Self {
            tags: tag.to_owned(),
            product: None,
        }
    }

    /// Whether one of the tags is `tag`.
    #[must_use]
    pub fn has(&self, tag: &str) -> bool {
        self.tags.split(',').any(|found| found == tag)
    }
}

/// Why a message cannot be answered. It goes back without an answer then.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The lender does nothing with answers.
    #[error("the lender takes no answers: an EPN does if its farm file has [epn.sink.write]")]
    NotTaken,
    /// Tags that are none, or too long.
    #[error(
        "found the tags \"{found}\", expected words of a-z, 0-9, - and _, in all at most {TAGS_BYTES_MAX} bytes with \
         a comma between two"
    )]
    Tags {
        /// The tags.
        found: String,
    },
    /// A product without a byte, or with too many.
    #[error("found a product of {found} bytes, expected 1 to {most}")]
    Product {
        /// Bytes.
        found: u64,
        /// Largest that the lender takes.
        most: u64,
    },
    /// The product cannot be passed on: no memory for it, or the lender is gone.
    #[error("cannot pass a product on: {0}")]
    Io(#[from] io::Error),
}

/// Whether `tags` are words of a-z, 0-9, - and _ with a comma between two, or none.
#[must_use]
pub fn are_tags(tags: &str) -> bool {
    let is_word = |word: &str| {
        let is_of_word =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        !word.is_empty() && word.bytes().all(is_of_word)
    };
    tags.len() <= TAGS_BYTES_MAX && (tags.is_empty() || tags.split(',').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_short_words_with_commas_between() {
        for tags in ["", "physics", "muon-1,calib_2", &"a".repeat(TAGS_BYTES_MAX)] {
            assert!(are_tags(tags), "{tags}");
        }
        for tags in [
            ",",
            "a,",
            "Muon",
            "a b",
            "\u{b5}",
            &"a".repeat(TAGS_BYTES_MAX + 1),
        ] {
            assert!(!are_tags(tags), "{tags}");
        }
        let answer = Answer::tagged("muon,calib");
        assert!(answer.has("muon") && answer.has("calib") && !answer.has("mu"));
        assert!(!Answer::default().has("muon"));
    }
}
