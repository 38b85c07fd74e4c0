//! Names of series.

use std::fmt;

/// The label that holds the name of the metric.
pub const NAME: &str = "__name__";

/// Labels of one series: pairs of name and value, sorted by name, each name once, no empty value.
///
/// One allocation: every name and value with its length (2 bytes, little-endian) in front. The bytes are the same for
/// the same labels, so they serve as key of a table and of a store ([`Labels::as_bytes`]).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(Box<[u8]>);

/// Reason why labels are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// Two values under one name; the sender has to drop one.
    #[error("label {0:?} stands twice, expected once")]
    Twice(String),
    /// A label without a name.
    #[error("a label has no name, expected at least one character")]
    NoName,
    /// A name or value that its length field cannot hold.
    #[error("a label of {found} bytes, expected {} at most", Labels::BYTES_MAX)]
    TooLong {
        /// Length in bytes.
        found: usize,
    },
    /// Bytes that [`Labels::as_bytes`] did not write.
    #[error("bytes are no labels: {0}")]
    Malformed(&'static str),
}

impl Labels {
    /// Longest name or value, in bytes.
    pub const BYTES_MAX: usize = u16::MAX as usize;

    /// Returns the labels of `pairs`, in any order. A pair with an empty value is left out: it means the same as none.
    ///
    /// # Errors
    ///
    /// If a name is empty or stands twice, or a name or value is longer than [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, LabelsError> {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().collect();
        pairs.sort_by(|left, right| left.0.as_ref().cmp(right.0.as_ref()));
        let mut bytes = Vec::with_capacity(
            pairs
                .iter()
                .map(|(name, value)| name.as_ref().len() + value.as_ref().len() + 4)
                .sum(),
        );
        let mut last: Option<&str> = None;
        for (name, value) in &pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            if name.is_empty() {
                return Err(LabelsError::NoName);
            }
            if last == Some(name) {
                return Err(LabelsError::Twice(name.to_owned()));
            }
            last = Some(name);
            if !value.is_empty() {
                push(&mut bytes, name)?;
                push(&mut bytes, value)?;
            }
        }
        Ok(Self(bytes.into_boxed_slice()))
    }

    /// Returns the labels that `bytes` hold, which [`as_bytes`](Self::as_bytes) gave once.
    ///
    /// # Errors
    ///
    /// [`LabelsError::Malformed`] if lengths, order or UTF-8 are wrong, as after damage of a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LabelsError> {
        let (mut rest, mut last) = (bytes, None);
        while !rest.is_empty() {
            let name = checked(&mut rest)?;
            let value = checked(&mut rest)?;
            if name.is_empty() || value.is_empty() {
                return Err(LabelsError::Malformed("a name or value is empty"));
            }
            if last.is_some_and(|last| last >= name) {
                return Err(LabelsError::Malformed("names are out of order"));
            }
            last = Some(name);
        }
        Ok(Self(bytes.into()))
    }

    /// Bytes of the labels: equal for equal labels, and for no others.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Pairs in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let mut next = || checked(&mut rest).expect("checked when the labels were made");
                (next(), next())
            })
        })
    }

    /// Value of the label `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .take_while(|pair| pair.0 <= name)
            .find_map(|pair| (pair.0 == name).then_some(pair.1))
    }

    /// Name of the metric, the label [`NAME`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.get(NAME)
    }

    /// Number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether there is no label at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the labels whose names `keep` accepts.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len());
        for (name, value) in self.iter().filter(|pair| keep(pair.0)) {
            for text in [name, value] {
                push(&mut bytes, text).expect("as long as before");
            }
        }
        Self(bytes.into_boxed_slice())
    }

    /// Returns the labels with `name` set to `value`; an empty value takes the label away.
    ///
    /// # Errors
    ///
    /// As of [`new`](Self::new).
    pub fn with(&self, name: &str, value: &str) -> Result<Self, LabelsError> {
        Self::new(
            self.iter()
                .filter(|pair| pair.0 != name)
                .chain([(name, value)]),
        )
    }
}

fn push(bytes: &mut Vec<u8>, text: &str) -> Result<(), LabelsError> {
    let found = text.len();
    let length = u16::try_from(found).map_err(|_| LabelsError::TooLong { found })?;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn checked<'a>(rest: &mut &'a [u8]) -> Result<&'a str, LabelsError> {
    let cut = LabelsError::Malformed("a length is beyond the end");
    let (length, after) = rest.split_first_chunk().ok_or_else(|| cut.clone())?;
    let (text, after) = after
        .split_at_checked(usize::from(u16::from_le_bytes(*length)))
        .ok_or(cut)?;
    *rest = after;
    std::str::from_utf8(text).map_err(|_| LabelsError::Malformed("a text is not UTF-8"))
}

/// PromQL's notation: `name{label="value", …}`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        f.write_str(name.unwrap_or_default())?;
        let mut others = self.iter().filter(|pair| pair.0 != NAME).peekable();
        if others.peek().is_none() && name.is_some() {
            return Ok(());
        }
        f.write_str("{")?;
        for (index, (name, value)) in others.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_of_the_pairs_does_not_matter() {
        let one = Labels::new([("b", "2"), ("__name__", "rate"), ("a", "1")]).unwrap();
        let two = Labels::new([("a", "1"), ("b", "2"), ("__name__", "rate")]).unwrap();
        assert_eq!(one, two);
        assert_eq!(one.as_bytes(), two.as_bytes());
        assert_eq!(one.to_string(), r#"rate{a="1", b="2"}"#);
        assert_eq!(
            (one.name(), one.get("b"), one.get("c")),
            (Some("rate"), Some("2"), None)
        );
    }

    #[test]
    fn an_empty_value_is_no_label() {
        let labels = Labels::new([("a", ""), ("b", "1")]).unwrap();
        assert_eq!(labels.to_string(), r#"{b="1"}"#);
        assert_eq!(labels.with("b", "").unwrap(), Labels::default());
        assert_eq!(Labels::default().to_string(), "{}");
    }

    #[test]
    fn wrong_pairs_are_refused_by_name() {
        let twice = Labels::new([("a", "1"), ("a", "2")]);
        assert_eq!(twice, Err(LabelsError::Twice("a".to_owned())));
        assert_eq!(Labels::new([("", "1")]), Err(LabelsError::NoName));
        let found = Labels::BYTES_MAX + 1;
        let long = "x".repeat(found);
        assert_eq!(
            Labels::new([("a", long)]),
            Err(LabelsError::TooLong { found })
        );
    }

    proptest! {
        #[test]
        fn bytes_come_back(pairs in proptest::collection::btree_map("[a-z_]{1,8}", ".{0,12}", 0..8)) {
            let labels = Labels::new(&pairs).unwrap();
            let filled: Vec<_> = pairs.iter().filter(|pair| !pair.1.is_empty())
                .map(|(name, value)| (name.as_str(), value.as_str())).collect();
            prop_assert_eq!(labels.iter().collect::<Vec<_>>(), filled);
            prop_assert_eq!(Labels::from_bytes(labels.as_bytes()), Ok(labels.clone()));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(labels) = Labels::from_bytes(&bytes) {
                let again = Labels::new(labels.iter()).unwrap();
                prop_assert_eq!(again.as_bytes(), &bytes[..]);
            }
        }
    }
}
