//! Bodies in chunks (RFC 9112, section 7.1), read as strictly as heads.

use thiserror::Error;

/// Longest line with the size of a chunk, with its extensions.
const LINE_BYTES_MAX: usize = 256;
/// Most bytes of trailers, which are read and ignored.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Reason why a body in chunks cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum ChunkError {
    /// Line that states no size, or that ends in LF alone.
    #[error("found no size of a chunk in hexadecimal digits that ends in CR LF")]
    Size,
    /// Bytes behind the ones that were stated.
    #[error("found no CR LF behind a chunk")]
    End,
    /// Trailers that do not end.
    #[error("found more than {TRAILER_BYTES_MAX} bytes of trailers, or a line that ends in LF")]
    Trailers,
}

/// Reader of a body in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunks {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    /// Behind the data of a chunk.
    Gap,
    Trailers {
        bytes: usize,
    },
    Done,
}

/// Next piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Number of bytes at the start of the input that are none of the body.
    Skip(usize),
    /// Number of bytes of the body at the start of the input.
    Data(usize),
    /// Further input is needed.
    More,
    /// End of the body.
    Done,
}

impl Chunks {
    /// Takes the next piece off the start of `input`; the caller passes over its bytes before the next call.
    pub(crate) fn next(&mut self, input: &[u8]) -> Result<Piece, ChunkError> {
        match self.state {
            State::Size => self.size(input),
            State::Data(left) if input.is_empty() => {
                debug_assert!(left > 0, "the gap follows the last byte");
                Ok(Piece::More)
            }
            State::Data(left) => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - here as u64;
                self.state = if left == 0 {
                    State::Gap
                } else {
                    State::Data(left)
                };
                Ok(Piece::Data(here))
            }
            State::Gap => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Piece::Skip(2))
                }
                [] | [b'\r'] => Ok(Piece::More),
                _ => Err(ChunkError::End),
            },
            State::Trailers { bytes } => self.trailer(input, bytes),
            State::Done => Ok(Piece::Done),
        }
    }

    fn size(&mut self, input: &[u8]) -> Result<Piece, ChunkError> {
        let Some(length) = line(input, LINE_BYTES_MAX).map_err(|()| ChunkError::Size)? else {
            return Ok(Piece::More);
        };
        let text = &input[..length - 2];
        let digits = text.split(|byte| *byte == b';').next().unwrap_or_default();
        // At most 15 digits: 16 of them could mean more bytes than a file can have.
        let is_number =
            (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).map_err(|_| ChunkError::Size)?;
        let size = u64::from_str_radix(digits, 16).ok().filter(|_| is_number);
        self.state = match size.ok_or(ChunkError::Size)? {
            0 => State::Trailers { bytes: 0 },
            size => State::Data(size),
        };
        Ok(Piece::Skip(length))
    }

    fn trailer(&mut self, input: &[u8], bytes: usize) -> Result<Piece, ChunkError> {
        let room = TRAILER_BYTES_MAX - bytes;
        let Some(length) = line(input, room).map_err(|()| ChunkError::Trailers)? else {
            return Ok(Piece::More);
        };
        self.state = if length == 2 {
            State::Done
        } else {
            State::Trailers {
                bytes: bytes + length,
            }
        };
        Ok(Piece::Skip(length))
    }
}

/// Returns the length of the first line with its CR LF, `None` if it is not there yet.
fn line(input: &[u8], most: usize) -> Result<Option<usize>, ()> {
    let window = &input[..input.len().min(most)];
    match memchr::memchr(b'\n', window) {
        Some(at) if at > 0 && window[at - 1] == b'\r' => {
            // A CR alone could end a line for another program.
            let has_bare = memchr::memchr(b'\r', &window[..at - 1]).is_some();
            if has_bare { Err(()) } else { Ok(Some(at + 1)) }
        }
        Some(_) => Err(()),
        None if input.len() >= most => Err(()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a body that comes in pieces of `step` bytes. Returns it and how much follows it.
    fn read(input: &[u8], step: usize) -> Result<Option<(Vec<u8>, usize)>, ChunkError> {
        let mut chunks = Chunks::default();
        let (mut at, mut end, mut body) = (0, 0, Vec::new());
        loop {
            match chunks.next(&input[at..end])? {
                Piece::Skip(bytes) => at += bytes,
                Piece::Data(bytes) => {
                    body.extend_from_slice(&input[at..at + bytes]);
                    at += bytes;
                }
                Piece::More if end == input.len() => return Ok(None),
                Piece::More => end = input.len().min(end + step),
                Piece::Done => return Ok(Some((body, input.len() - at))),
            }
        }
    }

    #[test]
    fn a_body_ends_with_an_empty_chunk_and_its_trailers() {
        let input = b"4;a=b\r\nWiki\r\nA\r\npedia in  \r\n0\r\nDigest: x\r\n\r\nGET";
        for step in [1, 2, 7, 100] {
            assert_eq!(read(input, step), Ok(Some((b"Wikipedia in  ".to_vec(), 3))));
        }
        assert_eq!(read(b"0\r\n\r\n", 1), Ok(Some((Vec::new(), 0))));
        assert_eq!(read(b"3\r\nab", 1), Ok(None));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (input, error) in [
            (&b"\r\n"[..], ChunkError::Size),
            (b"0x1\r\na\r\n", ChunkError::Size),
            (b" 1\r\na\r\n", ChunkError::Size),
            (b"1 \r\na\r\n", ChunkError::Size),
            (b"1\na\r\n", ChunkError::Size),
            (b"1;a\nb\r\na\r\n", ChunkError::Size),
            (b"1;a\rb\r\na\r\n", ChunkError::Size),
            (b"fffffffffffffffff\r\n", ChunkError::Size),
            (b"1\r\nab", ChunkError::End),
            (b"1\r\na\n", ChunkError::End),
            (b"0\r\na: b\n\r\n", ChunkError::Trailers),
        ] {
            let shown = String::from_utf8_lossy(input);
            assert_eq!(read(input, 1), Err(error), "{shown:?}");
        }
        assert_eq!(read(&[b'1'; 300], 7), Err(ChunkError::Size));
        let trailers = [&b"0\r\n"[..], &b"a: b\r\n".repeat(2000)].concat();
        assert_eq!(read(&trailers, 100), Err(ChunkError::Trailers));
    }

    proptest! {
        #[test]
        fn a_body_does_not_depend_on_how_it_comes(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            step in 1_usize..20,
        ) {
            let mut input = Vec::new();
            for chunk in &chunks {
                input.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                input.extend_from_slice(chunk);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(read(&input, step), Ok(Some((chunks.concat(), 0))));
        }

        #[test]
        fn no_bytes_make_it_panic(input in proptest::collection::vec(any::<u8>(), 0..200), step in 1_usize..9) {
            let _ = read(&input, step);
        }
    }
}
