//! Records through shared memory: one writer, one reader, any two processes.
//!
//! Both ends count bytes up from 0 and publish their count in a word of its own cache line. A reader that is about to
//! sleep sets a flag in a third word; the writer that finds it set wakes it. Neither trusts the other: what a peer
//! could have written there is checked before it is used.

use crate::fault::ShmFault;
use crate::mapping::Mapping;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Words lie this far apart, so that no two share a cache line (or a pair, which some processors fetch at once).
const APART: usize = 128;
/// Bytes published by the writer.
const TAIL: usize = 0;
/// Bytes consumed by the reader.
const HEAD: usize = APART;
/// Whether the reader sleeps until something is published.
const SLEEPS: usize = 2 * APART;
/// Whether the writer waits for room.
const WAITS: usize = 3 * APART;
/// The records.
const DATA: usize = 4 * APART;

/// Every record begins with its length, and at a multiple of this.
const ALIGNMENT: usize = 8;
/// The length before a record.
const LENGTH: usize = 4;

/// Returns bytes of memory that a ring of `capacity` takes.
pub(crate) const fn bytes_of(capacity: usize) -> usize {
    DATA + capacity
}

/// Where a ring lies.
#[derive(Clone)]
struct Place {
    memory: Arc<Mapping>,
    offset: usize,
    /// A power of two.
    capacity: usize,
}

impl Place {
    fn new(memory: Arc<Mapping>, offset: usize, capacity: usize) -> Self {
        assert!(
            capacity.is_power_of_two() && offset.is_multiple_of(APART),
            "a ring of {capacity} bytes at {offset}"
        );
        Self {
            memory,
            offset,
            capacity,
        }
    }

    fn publish(&self, word: usize, value: u64) {
        let word = self.memory.word(self.offset + word);
        word.store(value, Ordering::Release);
    }

    fn see(&self, word: usize) -> u64 {
        self.memory.word(self.offset + word).load(Ordering::Acquire)
    }

    /// Says that this end is going to wait. What the other end does from now on, it does after it has seen this.
    fn set(&self, flag: usize) {
        let flag = self.memory.half(self.offset + flag);
        flag.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn clear(&self, flag: usize) {
        let flag = self.memory.half(self.offset + flag);
        flag.store(0, Ordering::Relaxed);
    }

    /// Returns whether the other end waits, and has to be woken for what was just published.
    fn take(&self, flag: usize) -> bool {
        fence(Ordering::SeqCst);
        let flag = self.memory.half(self.offset + flag);
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::Relaxed) != 0
    }

    /// Returns bytes between the ends, if they fit each other.
    fn filled(&self, head: u64, tail: u64) -> Result<usize, ShmFault> {
        let capacity = self.capacity;
        let filled = tail.wrapping_sub(head);
        match usize::try_from(filled) {
            Ok(filled) if filled <= capacity && filled.is_multiple_of(ALIGNMENT) => Ok(filled),
            _ => Err(ShmFault::Ends {
                head,
                tail,
                capacity,
            }),
        }
    }

    /// Returns the pieces of `bytes` bytes that begin at `at`: a ring goes round.
    fn pieces(&self, at: u64, bytes: usize) -> (usize, usize) {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the capacity")]
        let begin = at as usize & (self.capacity - 1);
        (self.offset + DATA + begin, bytes.min(self.capacity - begin))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let (offset, whole) = self.pieces(at, bytes.len());
        let (first, rest) = bytes.split_at(whole);
        self.memory.copy_in(offset, first);
        if !rest.is_empty() {
            self.memory.copy_in(self.offset + DATA, rest);
        }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        let (offset, whole) = self.pieces(at, bytes.len());
        let (first, rest) = bytes.split_at_mut(whole);
        self.memory.copy_out(offset, first);
        if !rest.is_empty() {
            self.memory.copy_out(self.offset + DATA, rest);
        }
    }
}

/// The end that writes.
pub(crate) struct Writer {
    place: Place,
    tail: u64,
    published: u64,
    /// Where the reader was when it was last looked at.
    head: u64,
}

impl Writer {
    /// Creates the writing end of the ring of `capacity` at `offset`, which is still empty.
    pub(crate) fn new(memory: Arc<Mapping>, offset: usize, capacity: usize) -> Self {
        Self {
            place: Place::new(memory, offset, capacity),
            tail: 0,
            published: 0,
            head: 0,
        }
    }

    /// Returns bytes written that the reader cannot see.
    pub(crate) fn unpublished(&self) -> u64 {
        self.tail - self.published
    }

    /// Returns bytes written so far.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns bytes that the reader has taken so far.
    pub(crate) fn head(&mut self) -> Result<u64, ShmFault> {
        let head = self.place.see(HEAD);
        self.place.filled(head, self.tail)?;
        self.head = head;
        Ok(head)
    }

    /// Returns whether a record of `bytes` can be written now.
    pub(crate) fn has_room(&mut self, bytes: usize) -> Result<bool, ShmFault> {
        let space = (LENGTH + bytes).next_multiple_of(ALIGNMENT);
        if self.place.capacity - self.place.filled(self.head, self.tail)? < space {
            self.head()?;
        }
        Ok(self.place.capacity - self.place.filled(self.head, self.tail)? >= space)
    }

    /// Writes one record of `parts`; `false` if there is no room now. The reader sees it after
    /// [`publish`](Self::publish).
    pub(crate) fn push(&mut self, parts: &[&[u8]]) -> Result<bool, ShmFault> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if !self.has_room(bytes)? {
            return Ok(false);
        }
        let space = (LENGTH + bytes).next_multiple_of(ALIGNMENT);
        let length = u32::try_from(bytes).expect("rings are smaller than 4 GiB");
        self.place.write(self.tail, &length.to_le_bytes());
        let mut at = self.tail + LENGTH as u64;
        for part in parts {
            self.place.write(at, part);
            at += part.len() as u64;
        }
        self.tail += space as u64;
        Ok(true)
    }

    /// Shows the reader what was written; `true` if it sleeps and is to be woken.
    #[must_use]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        self.place.publish(TAIL, self.tail);
        self.place.take(SLEEPS)
    }

    /// Asks to be woken when the reader has made room; `false` if it has made some meanwhile.
    pub(crate) fn wait(&mut self) -> Result<bool, ShmFault> {
        self.place.set(WAITS);
        let head = self.place.see(HEAD);
        self.place.filled(head, self.tail)?;
        let waits = head == self.head;
        self.head = head;
        if !waits {
            self.place.clear(WAITS);
        }
        Ok(waits)
    }
}

/// The end that reads.
pub(crate) struct Reader {
    place: Place,
    head: u64,
    freed: u64,
    /// Where the writer was when it was last looked at.
    tail: u64,
}

impl Reader {
    /// Creates the reading end of the ring of `capacity` at `offset`.
    pub(crate) fn new(memory: Arc<Mapping>, offset: usize, capacity: usize) -> Self {
        Self {
            place: Place::new(memory, offset, capacity),
            head: 0,
            freed: 0,
            tail: 0,
        }
    }

    /// Copies the next record into `record`; `false` if there is none.
    pub(crate) fn pop(&mut self, record: &mut Vec<u8>) -> Result<bool, ShmFault> {
        if self.head == self.tail {
            self.tail = self.place.see(TAIL);
        }
        let filled = self.place.filled(self.head, self.tail)?;
        if filled == 0 {
            return Ok(false);
        }
        let mut length = [0; LENGTH];
        self.place.read(self.head, &mut length);
        let found = u32::from_le_bytes(length) as usize;
        let most = filled - LENGTH;
        if found > most {
            let least = 0;
            return Err(ShmFault::Record { found, least, most });
        }
        record.resize(found, 0);
        self.place.read(self.head + LENGTH as u64, record);
        self.head += (LENGTH + found).next_multiple_of(ALIGNMENT) as u64;
        Ok(true)
    }

    /// Gives the room of what was read back; `true` if the writer waits for it and is to be woken.
    #[must_use]
    pub(crate) fn free(&mut self) -> bool {
        if self.freed == self.head {
            return false;
        }
        self.freed = self.head;
        self.place.publish(HEAD, self.head);
        self.place.take(WAITS)
    }

    /// Returns whether something was published that has not been read.
    pub(crate) fn has_more(&self) -> bool {
        self.head != self.tail || self.head != self.place.see(TAIL)
    }

    /// Asks to be woken when something is published; `false` if something is there.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        self.place.set(SLEEPS);
        let sleeps = !self.has_more();
        if !sleeps {
            self.place.clear(SLEEPS);
        }
        sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(capacity: usize) -> (Arc<Mapping>, Writer, Reader) {
        let memory = Arc::new(Mapping::shared(bytes_of(capacity) + APART).unwrap());
        let writer = Writer::new(Arc::clone(&memory), APART, capacity);
        let reader = Reader::new(Arc::clone(&memory), APART, capacity);
        (memory, writer, reader)
    }

    proptest! {
        #[test]
        fn records_of_any_length_come_out_as_they_went_in(
            steps in prop::collection::vec((0_usize..60, any::<bool>(), any::<bool>()), 1..300)
        ) {
            let (_, mut writer, mut reader) = ring(256);
            let (mut expected, mut record) = (std::collections::VecDeque::new(), Vec::new());
            for (number, (bytes, reads, publishes)) in steps.into_iter().enumerate() {
                let fill = u8::try_from(number % 251).unwrap();
                let written = vec![fill; bytes];
                let (front, back) = written.split_at(bytes / 2);
                if writer.push(&[front, back]).unwrap() {
                    expected.push_back(written);
                } else {
                    prop_assert!(!expected.is_empty(), "an empty ring has room");
                }
                if publishes || reads {
                    prop_assert!(!writer.publish(), "no reader sleeps");
                }
                if reads && reader.pop(&mut record).unwrap() {
                    prop_assert_eq!(Some(record.clone()), expected.pop_front());
                    prop_assert!(!reader.free(), "no writer waits");
                }
            }
            let _ = writer.publish();
            while reader.pop(&mut record).unwrap() {
                prop_assert_eq!(Some(record.clone()), expected.pop_front());
            }
            prop_assert!(expected.is_empty());
        }
    }

    #[test]
    fn who_sleeps_is_woken_once_and_who_has_something_does_not_sleep() {
        let (_, mut writer, mut reader) = ring(64);
        assert!(reader.sleep());
        assert!(writer.push(&[b"one"]).unwrap());
        assert!(writer.publish());
        assert!(writer.push(&[b"two"]).unwrap());
        assert!(!writer.publish());
        assert!(!reader.sleep());
        let mut record = Vec::new();
        while reader.pop(&mut record).unwrap() {}
        assert!(reader.sleep());
    }

    #[test]
    fn who_waits_for_room_is_woken_once() {
        let (_, mut writer, mut reader) = ring(64);
        while writer.push(&[&[7; 12]]).unwrap() {}
        let _ = writer.publish();
        assert!(writer.wait().unwrap());
        let mut record = Vec::new();
        assert!(reader.pop(&mut record).unwrap());
        assert!(reader.free());
        assert!(reader.pop(&mut record).unwrap());
        assert!(!reader.free());
        assert!(writer.push(&[&[7; 12]]).unwrap());
        while writer.push(&[&[7; 12]]).unwrap() {}
        assert!(reader.pop(&mut record).unwrap());
        assert!(!reader.free());
        assert!(!writer.wait().unwrap(), "there is room now");
    }

    #[test]
    fn ends_and_lengths_that_cannot_be_are_refused() {
        let (memory, mut writer, mut reader) = ring(64);
        memory.word(APART + TAIL).store(72, Ordering::Relaxed);
        let fault = reader.pop(&mut Vec::new()).unwrap_err();
        assert!(matches!(fault, ShmFault::Ends { tail: 72, .. }));
        memory.word(APART + TAIL).store(0, Ordering::Relaxed);
        let (_, mut reader) = (reader, Reader::new(Arc::clone(&memory), APART, 64));
        assert!(writer.push(&[b"abc"]).unwrap());
        let _ = writer.publish();
        memory.half(APART + DATA).store(1000, Ordering::Relaxed);
        let fault = reader.pop(&mut Vec::new()).unwrap_err();
        assert!(matches!(fault, ShmFault::Record { found: 1000, .. }));
        memory.word(APART + HEAD).store(99, Ordering::Relaxed);
        while let Ok(true) = writer.push(&[&[1; 20]]) {}
        assert!(writer.push(&[&[1; 20]]).is_err());
    }
}
