//! Names of other systems made legal for PromQL.
//!
//! Characters that PromQL does not allow become `_`, and a leading digit gets one in front. Two names that differ only
//! in such characters become equal: `disk.free` and `disk-free` are both `disk_free`.

use std::borrow::Cow;

/// Returns `text` as the name of a metric: `[a-zA-Z_:][a-zA-Z0-9_:]*`. An empty text becomes `_`.
#[must_use]
pub fn metric_name(text: &str) -> Cow<'_, str> {
    legal(text, true)
}

/// Returns `text` as the name of a label: `[a-zA-Z_][a-zA-Z0-9_]*`. An empty text becomes `_`.
#[must_use]
pub fn label_name(text: &str) -> Cow<'_, str> {
    legal(text, false)
}

/// Returns whether `text` is legal as the name of a metric.
#[must_use]
pub fn is_metric_name(text: &str) -> bool {
    is_legal(text, true)
}

/// Returns whether `text` is legal as the name of a label.
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    is_legal(text, false)
}

fn fits(char: char, colon: bool) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || (colon && char == ':')
}

fn is_legal(text: &str, colon: bool) -> bool {
    !text.is_empty()
        && !text.starts_with(|char: char| char.is_ascii_digit())
        && text.chars().all(|char| fits(char, colon))
}

fn legal(text: &str, colon: bool) -> Cow<'_, str> {
    if is_legal(text, colon) {
        return Cow::Borrowed(text);
    }
    let needs_front = text.is_empty() || text.starts_with(|char: char| char.is_ascii_digit());
    let front = needs_front.then_some('_');
    let rest = text
        .chars()
        .map(|char| if fits(char, colon) { char } else { '_' });
    Cow::Owned(front.into_iter().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_characters_become_underscores() {
        assert_eq!(metric_name("disk.free"), "disk_free");
        assert_eq!(metric_name("a:b"), "a:b");
        assert_eq!(label_name("a:b"), "a_b");
        assert_eq!(label_name("0x"), "_0x");
        assert_eq!(metric_name("µs"), "_s");
        assert_eq!(metric_name(""), "_");
    }

    proptest! {
        #[test]
        fn every_text_becomes_legal_and_legal_ones_stay(text in any::<String>()) {
            let (metric, label) = (metric_name(&text), label_name(&text));
            prop_assert!(is_metric_name(&metric) && is_label_name(&label));
            prop_assert_eq!(metric == text, is_metric_name(&text));
            prop_assert_eq!(label == text, is_label_name(&text));
        }
    }
}
