//! A message: parts that arrive together or not at all.

use bytes::{Bytes, BytesMut};

/// One or more parts. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    parts: Vec<Bytes>,
}

impl Message {
    /// Creates a message of `parts`; without any, of one that is empty: ZMTP has no message of no part.
    #[must_use]
    pub fn new(mut parts: Vec<Bytes>) -> Self {
        if parts.is_empty() {
            parts.push(Bytes::new());
        }
        Self { parts }
    }

    /// Returns the parts, at least one.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Returns bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// Returns the bytes of the parts from `first` on, one behind the other. Of one part they are not copied.
    #[must_use]
    pub fn joined(&self, first: usize) -> Bytes {
        match self.parts.get(first..).unwrap_or_default() {
            [] => Bytes::new(),
            [only] => only.clone(),
            several => {
                let mut joined = BytesMut::with_capacity(several.iter().map(Bytes::len).sum());
                several
                    .iter()
                    .for_each(|part| joined.extend_from_slice(part));
                joined.freeze()
            }
        }
    }
}

impl From<Bytes> for Message {
    fn from(part: Bytes) -> Self {
        Self::new(vec![part])
    }
}

impl From<&'static [u8]> for Message {
    fn from(part: &'static [u8]) -> Self {
        Bytes::from_static(part).into()
    }
}
