//! Both ends of a lane in one process.

use super::*;
use crate::arena::{Arena, ArenaOptions};
use crate::mapping::read_only;
use crate::shm::meeting::{self, Signal};
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_protocol::WireKind;

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 1 << 20,
};

/// Both ends of a lane, the memory that is lent, and that of the lane.
struct Two {
    lane_sender: LaneSender,
    lane_receiver: LaneReceiver,
    arena: Arc<Arena>,
    memory: Arc<Mapping>,
}

fn two(lent_bytes_max: u64, under_way_bytes_max: u64) -> Two {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: true,
    };
    let arena = Arena::new(4 << 20, options).unwrap();
    let memory = Arc::new(Mapping::shared(MEMORY_BYTES).unwrap());
    let again = |file, bytes, is_writable| {
        let file = BorrowedFd::try_clone_to_owned(&file).unwrap();
        Mapping::of_peer(file, bytes, is_writable).unwrap()
    };
    let (file, bytes) = arena.file().unwrap();
    let region = Mapping::of_peer(read_only(file).unwrap(), bytes, false).unwrap();
    let lane = again(memory.file().unwrap(), MEMORY_BYTES, true);
    let flags = SocketFlags::NONBLOCK;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let lendable = vec![Lendable::new(Arc::clone(&arena), lent_bytes_max)];
    Two {
        lane_sender: LaneSender::new(Arc::clone(&memory), lendable, one, under_way_bytes_max),
        lane_receiver: LaneReceiver::new(lane, vec![region], other),
        arena,
        memory,
    }
}

fn frame(body: Bytes) -> Frame {
    Frame {
        kind: WireKind::Stf,
        head: Bytes::from_static(b"head"),
        body,
    }
}

impl Two {
    fn body(&self, fill: u8, bytes: usize) -> Bytes {
        let mut block = self.arena.allocate(bytes).unwrap();
        block.as_mut().fill(fill);
        block.freeze()
    }

    fn next(&mut self) -> Frame {
        match self
            .lane_receiver
            .next(&LIMITS, &mut Bytes::copy_from_slice)
            .unwrap()
        {
            Came::Frame(frame) => frame,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_elsewhere_is_copied_once_and_what_is_too_much_travels() {
    let mut two = two(300_000, u64::MAX);
    let sent = |two: &mut Two, body| two.lane_sender.send(&frame(body)).unwrap();
    assert_eq!(sent(&mut two, Bytes::from(vec![5; 200_000])), Sent::Lent);
    let here = two.body(6, 100_000);
    assert_eq!(sent(&mut two, here.clone()), Sent::Lent);
    assert_eq!(sent(&mut two, here.clone()), Sent::OnStream);
    two.lane_sender.publish();
    let copied = two.next();
    assert_eq!(copied.body, vec![5; 200_000]);
    assert_eq!(two.next().body, here);
    assert!(matches!(
        two.lane_receiver.next(&LIMITS, &mut Bytes::copy_from_slice),
        Ok(Came::OnStream)
    ));
    drop(copied);
    two.lane_receiver.show_given_back();
    two.lane_sender.reap().unwrap();
    assert_eq!(sent(&mut two, here), Sent::Lent);
}

#[test]
fn what_is_under_way_is_bounded_in_bytes() {
    let mut two = two(u64::MAX, 250_000);
    let body = two.body(1, 100_000);
    let mut sent = || two.lane_sender.send(&frame(body.clone())).unwrap();
    assert_eq!(
        (sent(), sent(), sent()),
        (Sent::Lent, Sent::Lent, Sent::Full)
    );
    two.lane_sender.publish();
    assert!(two.lane_sender.wait().unwrap());
    let frame_of_one = two.next();
    two.lane_receiver.free();
    assert_eq!(meeting::listen(two.lane_sender.socket()), Signal::Wakes);
    let sent = two.lane_sender.send(&frame(body)).unwrap();
    assert_eq!(sent, Sent::Lent, "what is taken is not under way");
    assert_eq!(frame_of_one.body.len(), 100_000);
}

#[test]
fn a_lender_without_a_slot_goes_on_when_one_comes_back() {
    let mut two = two(u64::MAX, u64::MAX);
    let body = two.body(1, 64);
    let mut held = Vec::new();
    while held.len() < SLOTS as usize {
        assert_eq!(two.lane_sender.send(&frame(body.clone())), Ok(Sent::Lent));
        two.lane_sender.publish();
        held.push(two.next());
        two.lane_receiver.free();
    }
    let one_more = frame(body);
    assert_eq!(two.lane_sender.send(&one_more), Ok(Sent::Full));
    assert_eq!(two.lane_sender.reap(), Ok(false));
    while !two.lane_sender.wait().unwrap() {} // The ring has room: it is looked at once more.
    held.truncate(SLOTS as usize - 1);
    two.lane_receiver.show_given_back();
    assert_eq!(meeting::listen(two.lane_sender.socket()), Signal::Wakes);
    assert_eq!(two.lane_sender.reap(), Ok(true));
    assert_eq!(two.lane_sender.send(&one_more), Ok(Sent::Lent));
}

#[test]
fn a_place_that_was_not_lent_is_refused_in_both_directions() {
    let mut two = two(u64::MAX, u64::MAX);
    let prefix = Prefix::new(WireKind::Stf, b"", 100).encode();
    for (region, offset) in [(1, 0), (0, (4 << 20) - 99), (0, u64::MAX)] {
        let bytes = 100;
        let place = Place {
            region,
            offset,
            bytes,
        };
        let (head, places) = ([&prefix[..], b""], [place.encode()]);
        assert!(two.lane_sender.push(0, head, &places).unwrap());
        let _ = two.lane_sender.ring.publish();
        let refused = two
            .lane_receiver
            .next(&LIMITS, &mut Bytes::copy_from_slice)
            .unwrap_err();
        assert_eq!(refused, LaneError::Shm(place.fault()));
    }
    // Memory that was refused went back, although it had not been lent.
    two.lane_receiver.show_given_back();
    assert_eq!(two.lane_sender.reap(), Err(ShmFault::Slot { slot: 0 }));
}

proptest! {
    #[test]
    fn no_record_breaks_the_borrower(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..20),
        noise in prop::collection::vec(((0_usize..512).prop_map(|word| 8 * word), any::<u64>()), 0..20),
    ) {
        let mut two = two(u64::MAX, u64::MAX);
        for mut record in records {
            if let Some(kind) = record.first_mut() {
                *kind %= 4;
            }
            prop_assert!(two.lane_sender.ring.push(&[&record]).unwrap());
        }
        let _ = two.lane_sender.ring.publish();
        for (at, value) in noise {
            two.memory.word(at).store(value, Ordering::Relaxed);
        }
        let mut frames = Vec::new();
        for _ in 0..100 {
            match two.lane_receiver.next(&LIMITS, &mut Bytes::copy_from_slice) {
                Ok(Came::Frame(frame)) => frames.push(frame),
                Ok(Came::OnStream) => {}
                Ok(Came::Nothing) | Err(_) => break,
            }
        }
    }
}
