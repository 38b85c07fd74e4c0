use super::words::{self, Word};
use super::*;
use crate::arena::{Arena, ArenaOptions};
use crate::mapping::{Mapping, read_only};
use crate::shm::ShmFault;
use crate::shm::lane::{self, Borrower, Came, Lendable, Lender};
use crate::transport::Frame;
use bytes::Bytes;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sheaf_protocol::{Limits, WireKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
const NOW: Option<Duration> = Some(Duration::ZERO);

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn arena(is_shared: bool) -> Arc<Arena> {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: is_shared,
    };
    Arena::new(4 << 20, options).unwrap()
}

fn body(arena: &Arc<Arena>, bytes: &[u8]) -> Bytes {
    let mut block = arena.allocate(bytes.len()).unwrap();
    block.as_mut().copy_from_slice(bytes);
    block.freeze()
}

/// A message is the bodies that it keeps alive.
type Message = Vec<Bytes>;

fn pair(own: &[Arc<Arena>], holdings: Holdings) -> (Giver<Message>, Taker) {
    let (near, far) = sockets();
    let giver = Giver::new(near, own.to_vec(), holdings).unwrap();
    let words::Heard::Word(Some(Word::Hello { .. }), files, _) = words::hear(far.as_fd()) else {
        panic!("a giver says hello");
    };
    (giver, Taker::begin(far, files).unwrap())
}

fn give(giver: &mut Giver<Message>, head: &[u8], bodies: Message) {
    let kept = bodies.clone();
    let gave = giver.give(bodies, head, kept.iter());
    assert!(matches!(gave, Ok(Gave::Offered)), "{gave:?}");
}

fn take(taker: &mut Taker) -> Taken {
    match taker.next(PATIENCE).unwrap() {
        Next::Message(message) => message,
        other => panic!("no message: {other:?}"),
    }
}

/// What the giver hears: messages taken, messages back, whether the taker is there.
fn heard(giver: &mut Giver<Message>) -> (usize, Vec<Message>, bool) {
    let (mut taken, mut back) = (0, Vec::new());
    let is_there = giver.take_in(|_| taken += 1, |message| back.push(message));
    (taken, back, is_there.unwrap())
}

#[test]
fn bodies_are_looked_at_where_they_lie_and_go_back_after_the_last_look() {
    let arena = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&arena), Holdings::default());
    let bodies = vec![body(&arena, b"one"), Bytes::new(), body(&arena, b"three")];
    let written = bodies[0].as_ptr();
    give(&mut giver, b"head", bodies);
    assert_eq!(heard(&mut giver), (0, vec![], true));
    let message = take(&mut taker);
    assert_eq!((&message.head[..], message.bodies.len()), (&b"head"[..], 3));
    assert_eq!(message.bodies[0], &b"one"[..]);
    assert_ne!(
        message.bodies[0].as_ptr(),
        written,
        "the taker has a mapping of its own"
    );
    assert_eq!((heard(&mut giver), giver.untaken()), ((1, vec![], true), 0));
    let last = message.bodies[2].clone();
    drop(message);
    assert_eq!(heard(&mut giver), (0, vec![], true));
    assert_eq!(last, &b"three"[..]);
    drop(last);
    let (_, back, _) = heard(&mut giver);
    assert_eq!(back.len(), 1);
    drop(back);
    assert_eq!((arena.used_bytes(), giver.copied_bytes()), (0, 0));
    assert!(matches!(taker.next(NOW).unwrap(), Next::Nothing));
}

#[test]
fn what_lies_elsewhere_is_copied_once_and_its_memory_is_forgotten() {
    let shared = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&shared), Holdings::default());
    for turn in 0..3_u8 {
        let private = body(&arena(false), &[turn; 100]);
        let heap = Bytes::from(vec![turn; 70_000]);
        give(
            &mut giver,
            &[turn],
            vec![private, body(&shared, b"in place"), heap],
        );
        let message = take(&mut taker);
        assert_eq!(message.bodies[0], vec![turn; 100]);
        assert_eq!(message.bodies[1], &b"in place"[..]);
        assert_eq!(message.bodies[2], vec![turn; 70_000]);
        drop(message);
        assert_eq!(heard(&mut giver).1.len(), 1);
    }
    assert_eq!(giver.copied_bytes(), 3 * 70_100);
    give(&mut giver, b"", vec![]);
    take(&mut taker);
    let seen = format!("{taker:?}");
    assert_eq!(
        seen, "Taker { regions: 1, .. }",
        "the arena alone is still known"
    );
}

#[test]
fn what_a_peer_has_lent_is_passed_on_and_stays_lent_when_the_giver_is_gone() {
    let source = arena(true);
    let (flp, epn) = sockets();
    let rings = Mapping::shared(lane::MEMORY_BYTES).unwrap();
    let map =
        |file: OwnedFd, bytes, is_writable| Mapping::of_peer(file, bytes, is_writable).unwrap();
    let theirs = map(
        rings.file().unwrap().try_clone_to_owned().unwrap(),
        rings.len(),
        true,
    );
    let (file, bytes) = source.file().unwrap();
    let region = map(read_only(file).unwrap(), bytes, false);
    let mut lender = Lender::new(
        Arc::new(rings),
        vec![Lendable::new(source.clone(), u64::MAX)],
        flp,
        u64::MAX,
    );
    let mut borrower = Borrower::new(theirs, vec![region], epn);
    let holdings = Holdings::default();
    holdings.add(borrower.session());

    let frame = Frame {
        kind: WireKind::Stf,
        head: Bytes::from_static(b"head"),
        body: body(&source, b"payload"),
    };
    assert_eq!(lender.send(&frame), Ok(lane::Sent::Lent));
    drop(frame);
    lender.publish();
    let keep = &mut |head: &[u8]| Bytes::copy_from_slice(head);
    let Came::Frame(lent) = borrower.next(&Limits::default(), keep).unwrap() else {
        panic!("a frame was sent");
    };
    let (mut giver, mut taker) = pair(&[], holdings);
    give(&mut giver, b"", vec![lent.body]);
    assert_eq!(giver.copied_bytes(), 0);
    let message = take(&mut taker);
    assert_eq!(message.bodies[0], &b"payload"[..]);

    // Nobody in the middle has the memory any more: whom it belongs to still takes its borrower for alive.
    drop((borrower, giver.part()));
    let hear = || crate::shm::meeting::listen(lender.socket());
    assert_eq!(hear(), crate::shm::meeting::Heard::Wakes);
    drop(taker);
    assert_eq!(hear(), crate::shm::meeting::Heard::Wakes);
    assert_eq!(message.bodies[0], &b"payload"[..]);
    drop(message);
    assert_eq!(hear(), crate::shm::meeting::Heard::Gone);
}

#[test]
fn what_is_called_back_is_not_taken() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    for number in 0..4_u8 {
        give(&mut giver, &[number], vec![]);
    }
    assert_eq!(take(&mut taker).head, [0]);
    assert_eq!(giver.call_back().len(), 3);
    assert_eq!(heard(&mut giver).0, 1);
    assert!(matches!(taker.next(NOW).unwrap(), Next::Nothing));
    give(&mut giver, b"more", vec![]);
    assert_eq!(take(&mut taker).head, b"more");
    drop(taker);
    assert!(!heard(&mut giver).2);
}

#[test]
fn a_taker_leaves_what_it_has_not_taken_and_what_it_took() {
    let arena = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&arena), Holdings::default());
    for number in 0..3_u8 {
        give(&mut giver, &[], vec![body(&arena, &[number])]);
    }
    let first = take(&mut taker);
    assert_eq!(heard(&mut giver).0, 1);
    let second = take(&mut taker);
    assert!(!giver.is_leaving());
    drop(taker);
    assert!(heard(&mut giver).2, "its bodies are out");
    assert!(giver.is_leaving());
    let refused = giver.give(vec![], b"", [].iter()).unwrap();
    assert!(matches!(refused, Gave::Full(_)));
    drop(first);
    assert_eq!(heard(&mut giver).1.len(), 1);
    let left = giver.part();
    let told: Vec<bool> = left.taken.iter().map(|(_, is_told)| *is_told).collect();
    assert_eq!((left.untaken.len(), told), (1, vec![true]));
    assert_eq!(second.bodies[0], &[1][..]);
    assert_eq!(left.untaken[0][0], &[2][..]);
}

#[test]
fn each_message_is_had_by_one_taker_however_they_race() {
    const MESSAGES: u64 = 20_000;
    let ends: Vec<(Giver<u64>, std::thread::JoinHandle<Vec<u64>>)> = (0..2)
        .map(|_| {
            let (near, far) = sockets();
            let giver = Giver::new(near, vec![], Holdings::default()).unwrap();
            let words::Heard::Word(_, files, _) = words::hear(far.as_fd()) else {
                panic!("a giver says hello");
            };
            let mut taker = Taker::begin(far, files).unwrap();
            let thread = std::thread::spawn(move || {
                let mut had = Vec::new();
                loop {
                    match taker.next(PATIENCE).unwrap() {
                        Next::Message(message) => {
                            had.push(u64::from_le_bytes(message.head.try_into().unwrap()));
                        }
                        Next::Nothing => panic!("had {} messages", had.len()),
                        Next::End => return had,
                    }
                }
            });
            (giver, thread)
        })
        .collect();
    let (mut givers, threads): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut waiting: std::collections::VecDeque<u64> = (0..MESSAGES).collect();
    let (mut told, mut back, mut turn) = (0, 0, 0_usize);
    while back < MESSAGES {
        turn += 1;
        let giver = &mut givers[turn % 2];
        for _ in 0..turn % 7 {
            let Some(number) = waiting.pop_front() else {
                break;
            };
            match giver
                .give(number, &number.to_le_bytes(), [].iter())
                .unwrap()
            {
                Gave::Offered => {}
                Gave::Full(number) => waiting.push_front(number),
            }
        }
        if turn.is_multiple_of(3) {
            waiting.extend(giver.call_back());
        }
        assert!(giver.take_in(|_| told += 1, |_| back += 1).unwrap());
    }
    assert_eq!(told, MESSAGES);
    drop(givers);
    let mut had: Vec<u64> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    had.sort_unstable();
    assert!(had.into_iter().eq(0..MESSAGES));
}

#[test]
fn a_taker_that_keeps_everything_fills_its_slots_and_no_more() {
    let arena = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&arena), Holdings::default());
    let one = body(&arena, b"x");
    let mut kept = Vec::new();
    let full = loop {
        match giver
            .give(vec![one.clone()], b"", [one.clone()].iter())
            .unwrap()
        {
            Gave::Offered => kept.push(take(&mut taker)),
            Gave::Full(message) => break message,
        }
    };
    assert_eq!((kept.len(), full.len()), (SLOTS as usize, 1));
    heard(&mut giver);
    drop(kept.pop());
    assert_eq!(heard(&mut giver).1.len(), 1);
    give(&mut giver, b"", full);
}

#[test]
fn a_sleeper_is_told_of_what_was_taken_and_of_what_is_back() {
    let arena = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&arena), Holdings::default());
    assert!(giver.sleep().unwrap());
    give(&mut giver, b"", vec![body(&arena, b"x")]);
    while !giver.sleep().unwrap() {}
    assert_quiet(&giver);
    let message = take(&mut taker);
    assert_woken(&giver);
    assert_eq!(heard(&mut giver), (1, vec![], true));
    while !giver.sleep().unwrap() {}
    assert_quiet(&giver);
    drop(message);
    assert_woken(&giver);
    assert_eq!(heard(&mut giver).1.len(), 1);
}

fn assert_quiet(giver: &Giver<Message>) {
    let heard = words::hear(giver.socket());
    assert!(matches!(heard, words::Heard::Nothing), "{heard:?}");
}

fn assert_woken(giver: &Giver<Message>) {
    let heard = words::hear(giver.socket());
    assert!(
        matches!(heard, words::Heard::Word(Some(Word::Wake), ..)),
        "{heard:?}"
    );
}

#[test]
fn nobody_sleeps_over_what_was_taken_before_something_else_was_offered() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    let head = vec![7; 1 << 20];
    for _ in 0..3 {
        give(&mut giver, &head, vec![]);
    }
    assert_eq!(heard(&mut giver).0, 0);
    // What has no room is not copied.
    let large = vec![Bytes::from_static(b"large")];
    let full = giver.give(large.clone(), &head, large.iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)) && giver.copied_bytes() == 0);
    take(&mut taker);
    give(&mut giver, &head, vec![]); // which looks for room, and sees where the taker is
    assert!(!giver.sleep().unwrap());
    assert_eq!(heard(&mut giver).0, 1);
}

#[test]
fn who_found_the_ring_full_is_told_of_room_even_if_nothing_in_it_is_offered() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    let head = vec![7; 1 << 20];
    for _ in 0..3 {
        give(&mut giver, &head, vec![]);
    }
    assert_eq!(giver.call_back().len(), 3);
    let full = giver.give(vec![], &head, [].iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)));
    while !giver.sleep().unwrap() {}
    assert_quiet(&giver);
    assert!(matches!(taker.next(NOW).unwrap(), Next::Nothing));
    assert_woken(&giver);
    give(&mut giver, &head, vec![]);
}

#[test]
fn what_cannot_be_said_waits_until_the_socket_is_writable() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    while words::say(giver.socket(), Word::Wake, &[]).unwrap() {}
    let copied = vec![Bytes::from_static(b"to be copied")];
    let full = giver.give(copied.clone(), b"", copied.iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)));
    assert!(giver.wants_writable() && giver.shortage().is_none());
    assert_eq!(giver.copied_bytes(), 0);
    assert!(matches!(taker.next(NOW).unwrap(), Next::Nothing));
    assert_eq!(heard(&mut giver), (0, vec![], true));
    assert!(!giver.wants_writable());
    give(&mut giver, b"", copied);
    assert_eq!(giver.copied_bytes(), 12);
    assert_eq!(take(&mut taker).bodies[0], &b"to be copied"[..]);
}

#[test]
fn what_is_looked_at_when_its_giver_is_dropped_is_not_used_again() {
    let arena = arena(true);
    let (mut giver, mut taker) = pair(std::slice::from_ref(&arena), Holdings::default());
    for byte in 0..3 {
        give(&mut giver, b"", vec![body(&arena, &[byte])]);
    }
    let message = take(&mut taker);
    let unseen = take(&mut taker);
    drop(unseen);
    drop(giver);
    let kept = arena.used_bytes() / crate::arena::UNIT_BYTES as u64;
    assert_eq!(kept, 2, "nobody has looked whether the other one is back");
    assert_eq!(message.bodies[0], &[0][..]);
}

#[test]
fn who_breaks_the_rules_is_found_out() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    give(&mut giver, b"", vec![]);
    let claim = || taker.memory.word(claim_at(0));
    claim().store(77, Ordering::Relaxed);
    let fault = giver.take_in(|_| {}, |_| {}).unwrap_err();
    assert_eq!(fault.to_string(), "message 0 is marked 0x4d");
    claim().store(mark(0, OFFERED), Ordering::Relaxed);
    taker
        .returns
        .back
        .lock()
        .unwrap()
        .push(&[&9_u32.to_le_bytes()])
        .unwrap();
    let _ = taker.returns.back.lock().unwrap().publish();
    let fault = giver.take_in(|_| {}, |_| {}).unwrap_err();
    assert_eq!(fault, ShmFault::Slot { slot: 9 });
    let read = taker.memory.word(128).swap(1 << 40, Ordering::Relaxed);
    let fault = giver.take_in(|_| {}, |_| {}).unwrap_err();
    assert!(matches!(fault, ShmFault::Ends { .. }), "{fault}");
    taker.memory.word(128).store(read, Ordering::Relaxed);

    let say = |word| assert!(words::say(giver.socket(), word, &[]).unwrap());
    say(Word::Region {
        number: 5,
        bytes: 9,
    });
    let error = taker.next(NOW).map(|_| ()).unwrap_err().to_string();
    take(&mut taker);
    assert!(
        error.ends_with("expected memory with its descriptor"),
        "{error}"
    );
    say(Word::Leave);
    let error = taker.next(NOW).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.ends_with("expected a word of a giver of version 1"),
        "{error}"
    );
    assert_eq!(
        giver.call_back().len(),
        0,
        "the message was taken, whatever became of it"
    );
}

#[test]
fn records_that_cannot_be_are_refused() {
    let (mut giver, mut taker) = pair(&[], Holdings::default());
    let fixed = |slot: u32, head: u32, bodies: u32| {
        let number = 0_u64.to_le_bytes();
        [
            &number[..],
            &slot.to_le_bytes(),
            &head.to_le_bytes(),
            &bodies.to_le_bytes(),
        ]
        .concat()
    };
    taker
        .memory
        .word(claim_at(0))
        .store(mark(0, OFFERED), Ordering::Relaxed);
    let place = [
        &9_u32.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &2_u64.to_le_bytes(),
    ]
    .concat();
    for (record, expected) in [
        (vec![0; 5], "record has 5 bytes, expected 20 to 4194304"),
        (
            fixed(0, 1, 0),
            "record has 20 bytes, expected 21 to 4194304",
        ),
        (
            fixed(0, u32::MAX, u32::MAX),
            "expected 90194313215 to 4194304",
        ),
        (fixed(SLOTS, 0, 0), "slot 4096 comes back and was not lent"),
        (
            [fixed(0, 0, 1), place].concat(),
            "body of 2 bytes from 1 is not in region 9",
        ),
    ] {
        giver.ring.push(&[&record]).unwrap();
        let _ = giver.ring.publish();
        let error = taker.next(NOW).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    let large = vec![0; RING_BYTES];
    let (error, _) = giver.give(vec![], &large, [].iter()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a message of 0 bodies needs a record of 4194324 bytes, of at most 4194296"
    );
}

#[test]
fn what_is_no_giver_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let connect = || Taker::connect(&path, Duration::ZERO).unwrap_err();
    assert!(matches!(connect(), TakeError::Connect { .. }));
    let _stream = UnixListener::bind(&path).unwrap();
    let error = connect().to_string();
    assert!(
        error.ends_with("Protocol wrong type for socket (os error 91)"),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    let listener = crate::shm::meeting::socket().unwrap();
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let silent = connect().to_string();
    assert!(silent.ends_with("has said nothing for 0 ms"), "{silent}");
}
