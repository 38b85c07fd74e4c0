//! Lines packed into datagrams.

/// Bytes of a datagram by default: what an Ethernet frame of 1500 bytes carries behind the headers of IPv6 and UDP and
/// a tunnel's 20.
pub const DATAGRAM_BYTES: usize = 1432;

/// Packs lines into datagrams of at most a number of bytes. A line is never split.
///
/// The datagrams have no line end at their end if `push` was not given one: a line brings its own.
#[derive(Clone, Debug)]
pub struct Packer {
    bytes_max: usize,
    buffer: Vec<u8>,
    lines: usize,
}

impl Packer {
    /// Returns a packer of datagrams of at most `bytes_max` bytes, at least 1.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(1);
        Self {
            bytes_max,
            buffer: Vec::with_capacity(bytes_max),
            lines: 0,
        }
    }

    /// Adds `line` with its line end, and gives the datagram to `send` that it no longer fits into.
    ///
    /// Returns `false`, and leaves the line out, if it is longer than a datagram; the caller counts it.
    pub fn push(&mut self, line: &[u8], send: impl FnOnce(&[u8], usize)) -> bool {
        if line.len() > self.bytes_max {
            return false;
        }
        if self.buffer.len() + line.len() > self.bytes_max {
            self.flush(send);
        }
        self.buffer.extend_from_slice(line);
        self.lines += 1;
        true
    }

    /// Gives the datagram that is begun to `send` with its number of lines; nothing, if there is none.
    pub fn flush(&mut self, send: impl FnOnce(&[u8], usize)) {
        if self.lines > 0 {
            send(&self.buffer, self.lines);
            self.buffer.clear();
            self.lines = 0;
        }
    }

    /// Bytes of the datagram that is begun.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new(DATAGRAM_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_that_fits_exactly_is_taken_and_a_longer_one_is_not() {
        let mut packer = Packer::new(4);
        assert!(packer.push(b"abc\n", |_, _| panic!("nothing is full")));
        assert!(!packer.push(b"abcd\n", |_, _| panic!("nothing is full")));
        let mut sent = Vec::new();
        packer.flush(|bytes, lines| sent.push((bytes.to_vec(), lines)));
        packer.flush(|_, _| panic!("nothing is left"));
        assert_eq!(sent, [(b"abc\n".to_vec(), 1)]);
    }

    proptest! {
        #[test]
        fn datagrams_hold_all_lines_in_order_and_whole(
            lines in proptest::collection::vec("[a-z]{0,20}", 0..60),
            bytes_max in 21_usize..80,
        ) {
            let mut packer = Packer::new(bytes_max);
            let mut datagrams: Vec<(String, usize)> = Vec::new();
            let mut keep = |bytes: &[u8], lines: usize| {
                datagrams.push((String::from_utf8(bytes.to_vec()).unwrap(), lines));
            };
            for line in &lines {
                let is_taken = packer.push(format!("{line}\n").as_bytes(), &mut keep);
                prop_assert!(is_taken);
            }
            packer.flush(&mut keep);
            for (text, count) in &datagrams {
                prop_assert!(text.len() <= bytes_max);
                prop_assert_eq!(text.lines().count(), *count);
            }
            // No datagram could have taken the first line of the next one.
            for pair in datagrams.windows(2) {
                let next = pair[1].0.split_inclusive('\n').next().unwrap();
                prop_assert!(pair[0].0.len() + next.len() > bytes_max);
            }
            let all: String = datagrams.into_iter().map(|one| one.0).collect();
            prop_assert_eq!(all, lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        }
    }
}
