use super::*;
use crate::arena::{Arena, ArenaOptions};
use crate::fault::ShmFault;
use crate::mapping::{Mapping, read_only, unchanging};
use crate::shm::lane::{self, Came, LaneReceiver, LaneSender};
use crate::shm::lendable::Lendable;
use crate::shm::message::{self, ControlMessage};
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

fn pair(own: &[Arc<Arena>], holdings: Holdings) -> (Lender<Message>, Borrower) {
    meet(own, holdings, None)
}

fn meet<M>(
    own: &[Arc<Arena>],
    holdings: Holdings,
    answers: Option<Answers>,
) -> (Lender<M>, Borrower) {
    let (near, far) = sockets();
    let lender = Lender::new(near, own.to_vec(), holdings, answers).unwrap();
    let message::Received::Message(ControlMessage::Hello { answers, .. }, files) =
        message::receive(far.as_fd())
    else {
        panic!("a lender says hello");
    };
    (lender, Borrower::begin(far, files, answers).unwrap())
}

fn give(lender: &mut Lender<Message>, head: &[u8], bodies: Message) {
    let kept = bodies.clone();
    let gave = lender.give(bodies, head, kept.iter());
    assert!(matches!(gave, Ok(Gave::Offered)), "{gave:?}");
}

fn take(borrower: &mut Borrower) -> Taken {
    match borrower.next(PATIENCE).unwrap() {
        Next::Message(message) => message,
        other => panic!("no message: {other:?}"),
    }
}

/// Events of the lender: messages taken, messages back, whether the borrower is there.
fn take_in(lender: &mut Lender<Message>) -> (usize, Vec<Message>, bool) {
    let (mut taken, mut back) = (0, Vec::new());
    let is_there = lender.take_in(|_| taken += 1, |message, _| back.push(message));
    (taken, back, is_there.unwrap())
}

#[test]
fn bodies_are_looked_at_where_they_lie_and_go_back_after_the_last_look() {
    let arena = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&arena), Holdings::default());
    let bodies = vec![body(&arena, b"one"), Bytes::new(), body(&arena, b"three")];
    let written = bodies[0].as_ptr();
    give(&mut lender, b"head", bodies);
    assert_eq!(take_in(&mut lender), (0, vec![], true));
    let message = take(&mut borrower);
    assert_eq!((&message.head[..], message.bodies.len()), (&b"head"[..], 3));
    assert_eq!(message.bodies[0], &b"one"[..]);
    assert_ne!(
        message.bodies[0].as_ptr(),
        written,
        "the borrower has a mapping of its own"
    );
    assert_eq!(
        (take_in(&mut lender), lender.untaken()),
        ((1, vec![], true), 0)
    );
    let last = message.bodies[2].clone();
    drop(message);
    assert_eq!(take_in(&mut lender), (0, vec![], true));
    assert_eq!(last, &b"three"[..]);
    drop(last);
    let (_, back, _) = take_in(&mut lender);
    assert_eq!(back.len(), 1);
    drop(back);
    assert_eq!((arena.used_bytes(), lender.copied_bytes()), (0, 0));
    assert!(matches!(borrower.next(NOW).unwrap(), Next::Nothing));
}

#[test]
fn what_lies_elsewhere_is_copied_once_and_its_memory_is_forgotten() {
    let shared = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&shared), Holdings::default());
    for turn in 0..3_u8 {
        let private = body(&arena(false), &[turn; 100]);
        let heap = Bytes::from(vec![turn; 70_000]);
        give(
            &mut lender,
            &[turn],
            vec![private, body(&shared, b"in place"), heap],
        );
        let message = take(&mut borrower);
        assert_eq!(message.bodies[0], vec![turn; 100]);
        assert_eq!(message.bodies[1], &b"in place"[..]);
        assert_eq!(message.bodies[2], vec![turn; 70_000]);
        drop(message);
        assert_eq!(take_in(&mut lender).1.len(), 1);
    }
    assert_eq!(lender.copied_bytes(), 3 * 70_100);
    give(&mut lender, b"", vec![]);
    take(&mut borrower);
    let seen = format!("{borrower:?}");
    assert_eq!(
        seen, "Borrower { regions: 1, .. }",
        "the arena alone is still known"
    );
}

#[test]
fn what_a_peer_has_lent_is_passed_on_and_stays_lent_when_the_lender_is_gone() {
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
    let mut lane_sender = LaneSender::new(
        Arc::new(rings),
        vec![Lendable::new(source.clone(), u64::MAX)],
        flp,
        u64::MAX,
    );
    let mut lane_receiver = LaneReceiver::new(theirs, vec![region], epn);
    let holdings = Holdings::default();
    holdings.add(lane_receiver.session());

    let frame = Frame {
        kind: WireKind::Stf,
        head: Bytes::from_static(b"head"),
        body: body(&source, b"payload"),
    };
    assert_eq!(lane_sender.send(&frame), Ok(lane::Sent::Lent));
    drop(frame);
    lane_sender.publish();
    let keep = &mut |head: &[u8]| Bytes::copy_from_slice(head);
    let Came::Frame(lent) = lane_receiver.next(&Limits::default(), keep).unwrap() else {
        panic!("a frame was sent");
    };
    let (mut lender, mut borrower) = pair(&[], holdings);
    give(&mut lender, b"", vec![lent.body]);
    assert_eq!(lender.copied_bytes(), 0);
    let message = take(&mut borrower);
    assert_eq!(message.bodies[0], &b"payload"[..]);

    // No process in the middle holds the memory any more: its owner still takes the borrower for alive.
    drop((lane_receiver, lender.part()));
    let listen = || crate::shm::meeting::listen(lane_sender.socket());
    assert_eq!(listen(), crate::shm::meeting::Signal::Wakes);
    drop(borrower);
    assert_eq!(listen(), crate::shm::meeting::Signal::Wakes);
    assert_eq!(message.bodies[0], &b"payload"[..]);
    drop(message);
    assert_eq!(listen(), crate::shm::meeting::Signal::Gone);
}

#[test]
fn what_is_called_back_is_not_taken() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    for number in 0..4_u8 {
        give(&mut lender, &[number], vec![]);
    }
    assert_eq!(take(&mut borrower).head, [0]);
    assert_eq!(lender.call_back().len(), 3);
    assert_eq!(take_in(&mut lender).0, 1);
    assert!(matches!(borrower.next(NOW).unwrap(), Next::Nothing));
    give(&mut lender, b"more", vec![]);
    assert_eq!(take(&mut borrower).head, b"more");
    drop(borrower);
    assert!(!take_in(&mut lender).2);
}

#[test]
fn a_borrower_leaves_what_it_has_not_taken_and_what_it_took() {
    let arena = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&arena), Holdings::default());
    for number in 0..3_u8 {
        give(&mut lender, &[], vec![body(&arena, &[number])]);
    }
    let first = take(&mut borrower);
    assert_eq!(take_in(&mut lender).0, 1);
    let second = take(&mut borrower);
    assert!(!lender.is_leaving());
    drop(borrower);
    assert!(take_in(&mut lender).2, "its bodies are out");
    assert!(lender.is_leaving());
    let refused = lender.give(vec![], b"", [].iter()).unwrap();
    assert!(matches!(refused, Gave::Full(_)));
    drop(first);
    assert_eq!(take_in(&mut lender).1.len(), 1);
    let left = lender.part();
    let told: Vec<bool> = left.taken.iter().map(|(_, is_told)| *is_told).collect();
    assert_eq!((left.untaken.len(), told), (1, vec![true]));
    assert_eq!(second.bodies[0], &[1][..]);
    assert_eq!(left.untaken[0][0], &[2][..]);
}

#[test]
fn each_message_is_had_by_one_borrower_however_they_race() {
    const MESSAGES: u64 = 20_000;
    let ends: Vec<(Lender<u64>, std::thread::JoinHandle<Vec<u64>>)> = (0..2)
        .map(|_| {
            let (lender, mut borrower) = meet(&[], Holdings::default(), None);
            let thread = std::thread::spawn(move || {
                let mut had = Vec::new();
                loop {
                    match borrower.next(PATIENCE).unwrap() {
                        Next::Message(message) => {
                            had.push(u64::from_le_bytes(message.head.try_into().unwrap()));
                        }
                        Next::Nothing => panic!("had {} messages", had.len()),
                        Next::End => return had,
                    }
                }
            });
            (lender, thread)
        })
        .collect();
    let (mut lenders, threads): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut waiting: std::collections::VecDeque<u64> = (0..MESSAGES).collect();
    let (mut told, mut back, mut turn) = (0, 0, 0_usize);
    while back < MESSAGES {
        turn += 1;
        let lender = &mut lenders[turn % 2];
        for _ in 0..turn % 7 {
            let Some(number) = waiting.pop_front() else {
                break;
            };
            match lender
                .give(number, &number.to_le_bytes(), [].iter())
                .unwrap()
            {
                Gave::Offered => {}
                Gave::Full(number) => waiting.push_front(number),
            }
        }
        if turn.is_multiple_of(3) {
            waiting.extend(lender.call_back());
        }
        assert!(lender.take_in(|_| told += 1, |_, _| back += 1).unwrap());
    }
    assert_eq!(told, MESSAGES);
    drop(lenders);
    let mut had: Vec<u64> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    had.sort_unstable();
    assert!(had.into_iter().eq(0..MESSAGES));
}

#[test]
fn a_borrower_that_keeps_everything_fills_its_slots_and_no_more() {
    let arena = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&arena), Holdings::default());
    let one = body(&arena, b"x");
    let mut kept = Vec::new();
    let full = loop {
        match lender
            .give(vec![one.clone()], b"", [one.clone()].iter())
            .unwrap()
        {
            Gave::Offered => kept.push(take(&mut borrower)),
            Gave::Full(message) => break message,
        }
    };
    assert_eq!((kept.len(), full.len()), (SLOTS as usize, 1));
    take_in(&mut lender);
    drop(kept.pop());
    assert_eq!(take_in(&mut lender).1.len(), 1);
    give(&mut lender, b"", full);
}

#[test]
fn a_sleeper_is_told_of_what_was_taken_and_of_what_is_back() {
    let arena = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&arena), Holdings::default());
    assert!(lender.sleep().unwrap());
    give(&mut lender, b"", vec![body(&arena, b"x")]);
    while !lender.sleep().unwrap() {}
    assert_quiet(&lender);
    let message = take(&mut borrower);
    assert_woken(&lender);
    assert_eq!(take_in(&mut lender), (1, vec![], true));
    while !lender.sleep().unwrap() {}
    assert_quiet(&lender);
    drop(message);
    assert_woken(&lender);
    assert_eq!(take_in(&mut lender).1.len(), 1);
}

fn assert_quiet(lender: &Lender<Message>) {
    let received = message::receive(lender.socket());
    assert!(
        matches!(received, message::Received::Nothing),
        "{received:?}"
    );
}

fn assert_woken(lender: &Lender<Message>) {
    let received = message::receive(lender.socket());
    assert!(
        matches!(
            received,
            message::Received::Message(ControlMessage::Wake, _)
        ),
        "{received:?}"
    );
}

#[test]
fn nobody_sleeps_over_what_was_taken_before_something_else_was_offered() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    let head = vec![7; 1 << 20];
    for _ in 0..3 {
        give(&mut lender, &head, vec![]);
    }
    assert_eq!(take_in(&mut lender).0, 0);
    // What has no room is not copied.
    let large = vec![Bytes::from_static(b"large")];
    let full = lender.give(large.clone(), &head, large.iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)) && lender.copied_bytes() == 0);
    take(&mut borrower);
    give(&mut lender, &head, vec![]); // which looks for room, and sees where the borrower is
    assert!(!lender.sleep().unwrap());
    assert_eq!(take_in(&mut lender).0, 1);
}

#[test]
fn who_found_the_ring_full_is_told_of_room_even_if_nothing_in_it_is_offered() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    let head = vec![7; 1 << 20];
    for _ in 0..3 {
        give(&mut lender, &head, vec![]);
    }
    assert_eq!(lender.call_back().len(), 3);
    let full = lender.give(vec![], &head, [].iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)));
    while !lender.sleep().unwrap() {}
    assert_quiet(&lender);
    assert!(matches!(borrower.next(NOW).unwrap(), Next::Nothing));
    assert_woken(&lender);
    give(&mut lender, &head, vec![]);
}

#[test]
fn what_cannot_be_said_waits_until_the_socket_is_writable() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    while message::send(lender.socket(), ControlMessage::Wake, &[]).unwrap() {}
    let copied = vec![Bytes::from_static(b"to be copied")];
    let full = lender.give(copied.clone(), b"", copied.iter()).unwrap();
    assert!(matches!(full, Gave::Full(_)));
    assert!(lender.wants_writable() && lender.shortage().is_none());
    assert_eq!(lender.copied_bytes(), 0);
    assert!(matches!(borrower.next(NOW).unwrap(), Next::Nothing));
    assert_eq!(take_in(&mut lender), (0, vec![], true));
    assert!(!lender.wants_writable());
    give(&mut lender, b"", copied);
    assert_eq!(lender.copied_bytes(), 12);
    assert_eq!(take(&mut borrower).bodies[0], &b"to be copied"[..]);
}

#[test]
fn what_is_looked_at_when_its_lender_is_dropped_is_not_used_again() {
    let arena = arena(true);
    let (mut lender, mut borrower) = pair(std::slice::from_ref(&arena), Holdings::default());
    for byte in 0..3 {
        give(&mut lender, b"", vec![body(&arena, &[byte])]);
    }
    let message = take(&mut borrower);
    let unseen = take(&mut borrower);
    drop(unseen);
    drop(lender);
    let kept = arena.used_bytes() / crate::arena::UNIT_BYTES as u64;
    assert_eq!(kept, 2, "the other one has not been polled yet");
    assert_eq!(message.bodies[0], &[0][..]);
}

#[test]
fn who_breaks_the_rules_is_found_out() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    give(&mut lender, b"", vec![]);
    let claim = || borrower.memory.word(claim_at(0));
    claim().store(77, Ordering::Relaxed);
    let fault = lender.take_in(|_| {}, |_, _| {}).unwrap_err();
    assert_eq!(fault.to_string(), "message 0 is marked 0x4d");
    claim().store(mark(0, OFFERED), Ordering::Relaxed);
    borrower
        .returns
        .back
        .lock()
        .unwrap()
        .push(&[&[9, 0, 0, 0, 0, 0, 0, 0]])
        .unwrap();
    let _ = borrower.returns.back.lock().unwrap().publish();
    let fault = lender.take_in(|_| {}, |_, _| {}).unwrap_err();
    assert_eq!(fault, ShmFault::Slot { slot: 9 });
    let read = borrower.memory.word(128).swap(1 << 40, Ordering::Relaxed);
    let fault = lender.take_in(|_| {}, |_, _| {}).unwrap_err();
    assert!(matches!(fault, ShmFault::Ends { .. }), "{fault}");
    borrower.memory.word(128).store(read, Ordering::Relaxed);

    let send = |control| assert!(message::send(lender.socket(), control, &[]).unwrap());
    send(ControlMessage::Region {
        number: 5,
        bytes: 9,
    });
    let error = borrower.next(NOW).map(|_| ()).unwrap_err().to_string();
    take(&mut borrower);
    assert!(
        error.ends_with("expected memory with its descriptor"),
        "{error}"
    );
    send(ControlMessage::Leave);
    let error = borrower.next(NOW).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.ends_with("expected a message of a lender of version 2"),
        "{error}"
    );
    assert_eq!(
        lender.call_back().len(),
        0,
        "the message was taken, whatever became of it"
    );
}

#[test]
fn records_that_cannot_be_are_refused() {
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
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
    borrower
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
        lender.ring.push(&[&record]).unwrap();
        let _ = lender.ring.publish();
        let error = borrower.next(NOW).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    let large = vec![0; RING_BYTES];
    let (error, _) = lender.give(vec![], &large, [].iter()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a message of 0 bodies needs a record of 4194324 bytes, of at most 4194296"
    );
}

#[test]
fn what_is_no_lender_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let connect = || Borrower::connect(&path, Duration::ZERO).unwrap_err();
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
    assert!(silent.ends_with("has sent nothing for 0 ms"), "{silent}");
}

const ANSWERS: Option<Answers> = Some(Answers {
    product_bytes_max: 100,
});

/// Messages that are back at `lender`, with their answers.
fn answers(lender: &mut Lender<Message>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let is_there = lender.take_in(|_| {}, |_, answer| answers.push(answer));
    assert!(is_there.unwrap());
    answers
}

#[test]
fn a_message_goes_back_with_its_answer_after_the_last_look() {
    let arena = arena(true);
    let (mut lender, mut borrower) =
        meet(std::slice::from_ref(&arena), Holdings::default(), ANSWERS);
    for _ in 0..3 {
        give(&mut lender, b"head", vec![body(&arena, b"payload")]);
    }
    let Taken { bodies, reply, .. } = take(&mut borrower);
    reply.answer("physics,muon-1", Some(b"made of it")).unwrap();
    assert_eq!(answers(&mut lender), [], "its body is out");
    drop(bodies);
    drop(take(&mut borrower));
    take(&mut borrower).reply.answer("calib", None).unwrap();
    let [first, second, third] = answers(&mut lender).try_into().unwrap();
    assert_eq!(first.tags, "physics,muon-1");
    assert_eq!(first.product.as_deref(), Some(&b"made of it"[..]));
    assert_eq!(second, Answer::default());
    assert_eq!(third, Answer::tagged("calib"));
    drop((lender, borrower));
    assert_eq!(
        first.product.as_deref(),
        Some(&b"made of it"[..]),
        "it stays mapped"
    );
}

#[test]
fn answers_that_cannot_be_are_refused_where_they_are_given() {
    let (mut lender, mut borrower) = meet(&[], Holdings::default(), ANSWERS);
    let large = [0; 101];
    for (tags, product, expected) in [
        ("Muon", None, "found the tags \"Muon\""),
        (
            "",
            Some(&b""[..]),
            "found a product of 0 bytes, expected 1 to 100",
        ),
        (
            "",
            Some(&large[..]),
            "found a product of 101 bytes, expected 1 to 100",
        ),
    ] {
        give(&mut lender, b"", vec![]);
        let refused = take(&mut borrower).reply.answer(tags, product).unwrap_err();
        assert!(refused.to_string().starts_with(expected), "{refused}");
        assert_eq!(answers(&mut lender), [Answer::default()]);
    }
    let (mut lender, mut borrower) = pair(&[], Holdings::default());
    give(&mut lender, b"", vec![]);
    let refused = take(&mut borrower).reply.answer("calib", None).unwrap_err();
    assert!(matches!(refused, AnswerError::NotTaken), "{refused}");
}

#[test]
fn products_wait_for_room_on_the_socket_and_none_is_lost() {
    const MESSAGES: u32 = 2000;
    let (mut lender, mut borrower) = meet::<Message>(&[], Holdings::default(), ANSWERS);
    let thread = std::thread::spawn(move || {
        for _ in 0..MESSAGES {
            let Taken { head, reply, .. } = take(&mut borrower);
            reply.answer("", Some(&head)).unwrap();
        }
    });
    let (mut given, mut products) = (0_u32, Vec::<Bytes>::new());
    while products.len() < MESSAGES as usize {
        let head = given.to_le_bytes();
        if given < MESSAGES && matches!(lender.give(vec![], &head, [].iter()), Ok(Gave::Offered)) {
            given += 1;
        }
        // The borrower may be gone as soon as it has answered all.
        let seen = lender.take_in(|_| {}, |_, answer| products.extend(answer.product));
        seen.unwrap();
    }
    thread.join().unwrap();
    let products: Vec<u32> = products
        .iter()
        .map(|product| u32::from_le_bytes(product.as_ref().try_into().unwrap()))
        .collect();
    assert_eq!(products, (0..MESSAGES).collect::<Vec<u32>>());
}

#[test]
fn products_that_break_the_rules_are_refused() {
    let back = |borrower: &Borrower, record: &[u8]| {
        let mut ring = borrower.returns.back.lock().unwrap();
        assert!(ring.push(&[record]).unwrap());
        let _ = ring.publish();
    };
    let fault = |act: &dyn Fn(&Borrower)| {
        let (mut lender, mut borrower) = meet(&[], Holdings::default(), ANSWERS);
        give(&mut lender, b"", vec![]);
        let taken = take(&mut borrower);
        act(&borrower);
        let fault = lender.take_in(|_| {}, |_, _| {}).unwrap_err();
        drop(taken);
        fault.to_string()
    };
    let sent = |bytes: u64, files: &[OwnedFd]| {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        fault(&|borrower| {
            let product = ControlMessage::Product { number: 7, bytes };
            assert!(message::send(borrower.socket(), product, &files).unwrap());
        })
    };
    let file = || unchanging(b"ten bytes!").unwrap();
    let open = Mapping::shared(4096).unwrap();
    let open = open.file().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(
        sent(101, &[file()]),
        "product 7 has 101 bytes, expected 1 to 100"
    );
    assert_eq!(
        sent(0, &[file()]),
        "product 7 has 0 bytes, expected 1 to 100"
    );
    assert_eq!(sent(10, &[]), "product 7 has no descriptor");
    let short = sent(11, &[file()]);
    assert!(short.contains("has 10 bytes, its owner says 11"), "{short}");
    assert_eq!(
        sent(10, &[open]),
        "product 7 memory that its owner can still change"
    );
    let unsent = fault(&|borrower| back(borrower, &[0, 0, 0, 0, 5, 0, 0, 0]));
    assert_eq!(unsent, "product 5 was not sent");
    let short = fault(&|borrower| back(borrower, &[0; 7]));
    assert_eq!(short, "record has 7 bytes, expected 4 to 72");
    let tags = fault(&|borrower| back(borrower, b"\0\0\0\0\0\0\0\0Mu"));
    assert!(tags.ends_with("tags that are no words"), "{tags}");
}
