//! Many slices in few system calls, without putting them together first.

use std::io::{self, IoSlice, Write};

/// Writes all of `slices`. When the writer would block, `wait` is called and may give up with an error.
pub(super) fn write_all_vectored(
    writer: &mut impl Write,
    mut slices: &mut [IoSlice<'_>],
    mut wait: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // leaves out empty ones at the front
    while !slices.is_empty() {
        match writer.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => IoSlice::advance_slices(&mut slices, bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many bytes a call as its plan says; 0 stands for a call that would block.
    struct Slow {
        plan: Vec<usize>,
        written: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.plan.pop() {
                Some(0) => Err(io::ErrorKind::WouldBlock.into()),
                Some(most) => {
                    let bytes = &bytes[..bytes.len().min(most)];
                    self.written.extend_from_slice(bytes);
                    Ok(bytes.len())
                }
                None => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes `pieces` to a writer with `plan`; `expected` is what arrived, how often it blocked, and the error.
    fn check(pieces: &[&str], plan: &[usize], expected: (&str, usize, Option<io::ErrorKind>)) {
        let mut slow = Slow {
            plan: plan.iter().rev().copied().collect(),
            written: Vec::new(),
        };
        let mut slices: Vec<IoSlice<'_>> = pieces
            .iter()
            .map(|piece| IoSlice::new(piece.as_bytes()))
            .collect();
        let mut waits = 0;
        let wait = || {
            waits += 1;
            Ok(())
        };
        let error = write_all_vectored(&mut slow, &mut slices, wait).err();
        let written = String::from_utf8(slow.written).unwrap();
        assert_eq!((written.as_str(), waits, error.map(|e| e.kind())), expected);
    }

    #[test]
    fn short_and_blocked_writes_go_on_where_they_ended() {
        check(
            &["", "abc", "", "de", ""],
            &[1, 0, 5, 0, 0, 1, 1],
            ("abcde", 3, None),
        );
        check(&["", ""], &[], ("", 0, None));
        check(&["ab"], &[1], ("a", 0, Some(io::ErrorKind::StorageFull)));
    }
}
