//! Both ends of a ring in all orders that two processors can see, by loom.
//!
//! The words of a ring and its bytes are those of loom, which runs the two threads in every order of their accesses
//! (with at most [`PREEMPTIONS_MAX`] forced changes between them), and lets each load return every value that the
//! memory model allows. A lost wake is a deadlock there, and a record that is read too early has other bytes.

use super::*;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc as ModelArc, Notify};
use loom::thread;

const PREEMPTIONS_MAX: usize = 3;

/// Bytes of the ring: two records.
const CAPACITY: usize = 2 * WORD;

/// Parts of the protocol that a model leaves out, to show that it fails then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Fences,
    Release,
}

struct Model {
    /// Ends.
    words: [AtomicU64; 2],
    flags: [AtomicU32; 2],
    data: [AtomicU64; CAPACITY / WORD],
    without: Without,
}

impl Model {
    fn new(without: Without) -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            flags: std::array::from_fn(|_| AtomicU32::new(0)),
            data: std::array::from_fn(|_| AtomicU64::new(0)),
            without,
        }
    }

    fn flag_at(&self, at: usize) -> &AtomicU32 {
        match at {
            SLEEPS => &self.flags[0],
            WAITS => &self.flags[1],
            _ => panic!("no flag at {at}"),
        }
    }
}

impl Memory for Model {
    fn see(&self, at: usize) -> u64 {
        self.words[at / APART].load(Ordering::Acquire)
    }

    fn publish(&self, at: usize, value: u64) {
        let ordering = match self.without {
            Without::Release => Ordering::Relaxed,
            Without::Nothing | Without::Fences => Ordering::Release,
        };
        self.words[at / APART].store(value, ordering);
    }

    fn flag(&self, at: usize) -> u32 {
        self.flag_at(at).load(Ordering::Relaxed)
    }

    fn set_flag(&self, at: usize, value: u32) {
        self.flag_at(at).store(value, Ordering::Relaxed);
    }

    fn take_flag(&self, at: usize) -> u32 {
        self.flag_at(at).swap(0, Ordering::Relaxed)
    }

    fn fence(&self) {
        if self.without != Without::Fences {
            fence(Ordering::SeqCst);
        }
    }

    fn copy_in(&self, at: usize, words: &[[u8; WORD]]) {
        for (to, word) in self.data[(at - DATA) / WORD..].iter().zip(words) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    fn copy_out(&self, at: usize, words: &mut [[u8; WORD]]) {
        for (from, word) in self.data[(at - DATA) / WORD..].iter().zip(words) {
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

/// Passes `records` records of four bytes from one thread to another. Each end sleeps when it finds nothing to do.
fn pass(records: u32, without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(move || {
        let memory = Arc::new(Model::new(without));
        let (to_reader, to_writer) = (ModelArc::new(Notify::new()), ModelArc::new(Notify::new()));
        let mut reader = Reader::new(Arc::clone(&memory), 0, CAPACITY);
        let mut writer = Writer::new(memory, 0, CAPACITY);
        let (wakes_reader, writer_wakes) = (ModelArc::clone(&to_reader), to_writer.clone());
        let writing = thread::spawn(move || {
            for number in 1..=records {
                while !writer.push(&[&number.to_le_bytes()]).unwrap() {
                    if writer.wait().unwrap() {
                        to_writer.wait();
                    }
                }
                if writer.publish() {
                    wakes_reader.notify();
                }
            }
        });
        let (mut number, mut record) = (0, Vec::new());
        while number < records {
            if reader.pop(&mut record).unwrap() {
                number += 1;
                assert_eq!(record, u32::to_le_bytes(number), "record {number}");
                if reader.free() {
                    writer_wakes.notify();
                }
            } else if reader.sleep() {
                to_reader.wait();
            }
        }
        writing.join().unwrap();
    });
}

#[test]
#[cfg_attr(miri, ignore = "loom runs it")]
fn no_record_is_read_early_and_no_wake_is_lost_in_any_order() {
    pass(2, Without::Nothing);
}

#[test]
#[cfg_attr(miri, ignore = "loom runs it")]
fn room_is_reused_in_any_order() {
    pass(3, Without::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
#[cfg_attr(miri, ignore = "loom runs it")]
fn without_the_fences_a_wake_is_lost_in_some_order() {
    pass(2, Without::Fences);
}

#[test]
#[should_panic(expected = "record ")]
#[cfg_attr(miri, ignore = "loom runs it")]
fn without_release_a_record_is_read_early_in_some_order() {
    pass(2, Without::Release);
}
