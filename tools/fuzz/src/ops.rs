//! Reads a sequence of operations out of plain bytes, so that every input is one and a mutation of a byte is
//! a small change of the sequence.

/// Rest of the input. Behind its end every value is 0.
#[derive(Clone, Debug)]
pub(crate) struct Ops<'a>(&'a [u8]);

impl<'a> Ops<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The code of the next operation; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number below `count`, which is at most 256.
    pub(crate) fn below(&mut self, count: u16) -> u16 {
        u16::from(self.next().unwrap_or(0)) % count
    }

    /// True once in `of` values.
    pub(crate) fn once_in(&mut self, of: u16) -> bool {
        self.below(of) == of - 1
    }

    /// A number that is mostly small, and sometimes anything: 248 of 256 codes are themselves.
    pub(crate) fn number(&mut self) -> u64 {
        match self.next().unwrap_or(0) {
            small @ 0..=247 => u64::from(small),
            248 => u64::MAX,
            249 => u64::MAX - 1,
            250 => 1 << 32,
            251 => 1 << 63,
            252..=253 => u64::from(self.next().unwrap_or(0)) << 16,
            _ => {
                let mut bytes = [0; 8];
                bytes.fill_with(|| self.next().unwrap_or(0));
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Returns as many values as the next byte says, fewer than `count`.
    pub(crate) fn list<T>(&mut self, count: u16, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(count)).map(|_| item(self)).collect()
    }
}
