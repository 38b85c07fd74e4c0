//! Records through shared memory: one writer, one reader, any two processes.
//!
//! Both ends count bytes up from 0 and publish their count in a word of its own cache line. A reader that is about to
//! sleep sets a flag in a third word; the writer that finds it set wakes it. Neither trusts the other: what a peer
//! could have written there is checked before it is used.

use crate::fault::ShmFault;
use crate::mapping::Mapping;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Memory that a ring lies in: words that both ends change atomically, and bytes. Tests put a model in its place.
pub(crate) trait Memory {
    /// Returns a word, and all that was written before it was published.
    fn see(&self, at: usize) -> u64;
    /// Writes a word behind all that was written before.
    fn publish(&self, at: usize, value: u64);
    fn flag(&self, at: usize) -> u32;
    fn set_flag(&self, at: usize, value: u32);
    /// Clears a flag, and returns what it was.
    fn take_flag(&self, at: usize) -> u32;
    /// Orders all accesses before it ahead of all behind it, for every process.
    fn fence(&self);
    /// Copies whole words, each of them atomically. A peer that does not keep to the rules may write there meanwhile:
    /// what is copied out is any bytes then, and is checked as such.
    fn copy_in(&self, at: usize, words: &[[u8; WORD]]);
    fn copy_out(&self, at: usize, words: &mut [[u8; WORD]]);
}

impl Memory for Mapping {
    fn see(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn publish(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    fn flag(&self, at: usize) -> u32 {
        self.half(at).load(Ordering::Relaxed)
    }

    fn set_flag(&self, at: usize, value: u32) {
        self.half(at).store(value, Ordering::Relaxed);
    }

    fn take_flag(&self, at: usize) -> u32 {
        self.half(at).swap(0, Ordering::Relaxed)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn copy_in(&self, at: usize, words: &[[u8; WORD]]) {
        for (to, word) in self.words(at, words.len()).iter().zip(words) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    fn copy_out(&self, at: usize, words: &mut [[u8; WORD]]) {
        for (from, word) in self.words(at, words.len()).iter().zip(words) {
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

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

/// Bytes of a word. Every record takes whole ones, and begins with its length.
const WORD: usize = 8;
/// The length before a record.
const LENGTH: usize = 4;

/// Returns bytes of memory that a ring of `capacity` takes.
pub(crate) const fn bytes_of(capacity: usize) -> usize {
    DATA + capacity
}

/// Returns bytes of a ring that a record of `bytes` takes.
pub(crate) const fn space_of(bytes: usize) -> usize {
    (LENGTH + bytes).next_multiple_of(WORD)
}

/// Writes a ring at `offset` as a peer could that keeps to no rules: its bytes, up to the size of the smallest ring of
/// the crate, and how many of them it says to have written.
pub(crate) fn write_raw(memory: &Mapping, offset: usize, bytes: &[u8], end: u64) {
    let mut bytes = bytes[..bytes.len().min(512 << 10)].to_vec();
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    Memory::copy_in(memory, offset + DATA, bytes.as_chunks().0);
    memory.publish(offset + TAIL, end);
}

/// Where a ring lies.
struct Place<M> {
    memory: Arc<M>,
    offset: usize,
    /// A power of two.
    capacity: usize,
}

impl<M: Memory> Place<M> {
    fn new(memory: Arc<M>, offset: usize, capacity: usize) -> Self {
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
        self.memory.publish(self.offset + word, value);
    }

    fn see(&self, word: usize) -> u64 {
        self.memory.see(self.offset + word)
    }

    /// Says that this end is going to wait. What the other end does from now on, it does after it has seen this.
    fn set(&self, flag: usize) {
        self.memory.set_flag(self.offset + flag, 1);
        self.memory.fence();
    }

    fn clear(&self, flag: usize) {
        self.memory.set_flag(self.offset + flag, 0);
    }

    /// Returns whether the other end waits, and has to be woken for what was just published.
    fn take(&self, flag: usize) -> bool {
        self.memory.fence();
        let flag = self.offset + flag;
        self.memory.flag(flag) != 0 && self.memory.take_flag(flag) != 0
    }

    /// Returns bytes between the ends, if they fit each other.
    fn filled(&self, head: u64, tail: u64) -> Result<usize, ShmFault> {
        let capacity = self.capacity;
        let filled = tail.wrapping_sub(head);
        match usize::try_from(filled) {
            Ok(filled) if filled <= capacity && filled.is_multiple_of(WORD) => Ok(filled),
            _ => Err(ShmFault::Ends {
                head,
                tail,
                capacity,
            }),
        }
    }

    /// Returns the pieces of `words` words that begin at `at`: a ring goes round.
    fn pieces(&self, at: u64, words: usize) -> (usize, usize) {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the capacity")]
        let begin = at as usize & (self.capacity - 1);
        let whole = (self.capacity - begin) / WORD;
        (self.offset + DATA + begin, words.min(whole))
    }

    fn write(&self, at: u64, words: &[[u8; WORD]]) {
        let (offset, whole) = self.pieces(at, words.len());
        let (first, rest) = words.split_at(whole);
        self.memory.copy_in(offset, first);
        if !rest.is_empty() {
            self.memory.copy_in(self.offset + DATA, rest);
        }
    }

    fn read(&self, at: u64, words: &mut [[u8; WORD]]) {
        let (offset, whole) = self.pieces(at, words.len());
        let (first, rest) = words.split_at_mut(whole);
        self.memory.copy_out(offset, first);
        if !rest.is_empty() {
            self.memory.copy_out(self.offset + DATA, rest);
        }
    }
}

/// The end that writes.
pub(crate) struct Writer<M = Mapping> {
    place: Place<M>,
    tail: u64,
    published: u64,
    /// Where the reader was when it was last looked at.
    head: u64,
    /// The record that is written.
    record: Vec<u8>,
}

impl<M: Memory> Writer<M> {
    /// Creates the writing end of the ring of `capacity` at `offset`, which is still empty.
    pub(crate) fn new(memory: Arc<M>, offset: usize, capacity: usize) -> Self {
        Self {
            place: Place::new(memory, offset, capacity),
            tail: 0,
            published: 0,
            head: 0,
            record: Vec::new(),
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
        let space = space_of(bytes);
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
        let space = space_of(bytes);
        let length = u32::try_from(bytes).expect("rings are smaller than 4 GiB");
        self.record.clear();
        self.record.extend_from_slice(&length.to_le_bytes());
        for part in parts {
            self.record.extend_from_slice(part);
        }
        self.record.resize(space, 0);
        self.place.write(self.tail, self.record.as_chunks().0);
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
pub(crate) struct Reader<M = Mapping> {
    place: Place<M>,
    head: u64,
    freed: u64,
    /// Where the writer was when it was last looked at.
    tail: u64,
}

impl<M: Memory> Reader<M> {
    /// Creates the reading end of the ring of `capacity` at `offset`.
    pub(crate) fn new(memory: Arc<M>, offset: usize, capacity: usize) -> Self {
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
        let mut first = [0; WORD];
        self.place.read(self.head, std::slice::from_mut(&mut first));
        let length = first[..LENGTH].try_into().expect("four bytes");
        let found = u32::from_le_bytes(length) as usize;
        let most = filled - LENGTH;
        if found > most {
            let least = 0;
            return Err(ShmFault::Record { found, least, most });
        }
        record.resize(space_of(found), 0);
        self.place.read(self.head, record.as_chunks_mut().0);
        record.truncate(LENGTH + found);
        record.drain(..LENGTH);
        self.head += space_of(found) as u64;
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
mod models;

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
        #[cfg_attr(miri, ignore = "takes minutes, and needs files")]
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
        memory.word(APART + DATA).store(1000, Ordering::Relaxed);
        let fault = reader.pop(&mut Vec::new()).unwrap_err();
        assert!(matches!(fault, ShmFault::Record { found: 1000, .. }));
        memory.word(APART + HEAD).store(99, Ordering::Relaxed);
        while let Ok(true) = writer.push(&[&[1; 20]]) {}
        assert!(writer.push(&[&[1; 20]]).is_err());
    }
}
