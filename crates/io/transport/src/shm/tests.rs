//! The protocol of lent memory between two threads, without sockets: Miri checks that it has no data race.

use super::lent::lent;
use super::record::{self, Fixed, Message, Place};
use super::ring::{Reader, Writer, bytes_of};
use super::slots::Slots;
use crate::arena::{Arena, ArenaOptions, Block, SharedBlocks};
use crate::mapping::Mapping;
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::thread;

const RING_BYTES: usize = 1 << 10;
const BODY_BYTES: usize = 40;
const MESSAGES: u64 = if cfg!(miri) { 60 } else { 20_000 };

/// Owner of a body, as that of a lane.
struct Loan {
    arena: Arc<Arena>,
    back: Arc<Mutex<Writer>>,
    slot: u32,
}

impl AsRef<Mapping> for Loan {
    fn as_ref(&self) -> &Mapping {
        self.arena.memory()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut back = self.back.lock().unwrap();
        assert!(back.push(&[&self.slot.to_le_bytes()]).unwrap());
        let _ = back.publish();
    }
}

fn fill(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}

/// Lends bodies, in memory that is used again as soon as it comes back.
fn lend(arena: &Arc<Arena>, mut ring: Writer, mut back: Reader, is_small: bool) {
    let (mut slots, mut shared, mut record) =
        (Slots::new(16), SharedBlocks::new(arena), Vec::new());
    let mut reap = |slots: &mut Slots<Bytes>| {
        while back.pop(&mut record).unwrap() {
            let (slot, product, tags) = record::read_back(&record).unwrap();
            assert_eq!((product, tags), (0, ""));
            assert!(slots.take_if(slot, |_| true).is_some(), "slot {slot}");
        }
        let _ = back.free();
    };
    for number in 0..MESSAGES {
        let (slot, mut block): (u32, Block) = loop {
            reap(&mut slots);
            let block = match is_small {
                true => shared.take(arena, BODY_BYTES, BODY_BYTES),
                false => arena.allocate(BODY_BYTES),
            };
            let slot = block.is_some().then(|| slots.reserve()).flatten();
            match (slot, block) {
                (Some(slot), Some(block)) => break (slot, block),
                _ => thread::yield_now(),
            }
        };
        block.as_mut().fill(fill(number));
        let body = block.freeze();
        let fixed = Fixed {
            number,
            slot,
            head_bytes: 0,
            bodies: 1,
        };
        let place = Place {
            region: 0,
            offset: arena.memory().place_of(&body).unwrap(),
            bytes: BODY_BYTES as u64,
        };
        slots.fill(slot, body);
        while !ring.push(&[&fixed.encode(), &place.encode()]).unwrap() {
            reap(&mut slots);
            thread::yield_now();
        }
        let _ = ring.publish();
    }
    while slots.len() > 0 {
        reap(&mut slots);
        thread::yield_now();
    }
}

/// Reads bodies where they lie, keeps some of them for a while, and returns them from another thread.
fn borrow(arena: &Arc<Arena>, mut ring: Reader, back: &Arc<Mutex<Writer>>) {
    let (mut kept, mut record) = (Vec::new(), Vec::new());
    for number in 0..MESSAGES {
        while !ring.pop(&mut record).unwrap() {
            kept.clear();
            thread::yield_now();
        }
        let _ = ring.free();
        let message = Message::read(&record, RING_BYTES).unwrap();
        assert_eq!(message.number, number);
        let place = message.places().next().unwrap();
        let loan = Loan {
            arena: Arc::clone(arena),
            back: Arc::clone(back),
            slot: message.slot,
        };
        let body = lent(loan, place.offset, place.bytes).unwrap();
        assert_eq!(body, vec![fill(number); BODY_BYTES]);
        kept.push((number, body));
        if number % 5 == 0 {
            let kept = std::mem::take(&mut kept);
            let returner = thread::spawn(move || {
                for (number, body) in kept {
                    assert_eq!(body, vec![fill(number); BODY_BYTES]);
                }
            });
            if number % 10 == 0 {
                returner.join().unwrap();
            }
        }
    }
}

fn exchange(is_small: bool) {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: false,
    };
    let arena = Arena::new(1, options).unwrap();
    let memory = Arc::new(Mapping::shared(2 * bytes_of(RING_BYTES)).unwrap());
    let back_at = bytes_of(RING_BYTES);
    let ends = |offset| {
        let writer = Writer::new(Arc::clone(&memory), offset, RING_BYTES);
        (writer, Reader::new(Arc::clone(&memory), offset, RING_BYTES))
    };
    let ((ring, ring_reader), (back, back_reader)) = (ends(0), ends(back_at));
    let back = Arc::new(Mutex::new(back));
    thread::scope(|scope| {
        scope.spawn(|| lend(&arena, ring, back_reader, is_small));
        scope.spawn(|| borrow(&arena, ring_reader, &back));
    });
}

#[test]
fn memory_that_comes_back_is_written_to_again() {
    exchange(false);
}

#[test]
fn a_part_is_lent_while_its_neighbours_are_written_to() {
    exchange(true);
}
