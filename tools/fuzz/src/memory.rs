//! Memory that a peer shares with this process, and writes whatever it likes to.

use sheaf_protocol::Limits;
use sheaf_transport::recorded::{
    RingBytes, Said, frames_of_lane, messages_of_lender, returns_of_borrower,
};
use std::collections::BTreeSet;

const LIMITS: Limits = Limits {
    head_bytes_max: 4 << 10,
    body_bytes_max: 64 << 10,
};

/// Messages that the borrower of [`lender`] has been given.
const MESSAGES: u32 = 4;

/// A lane: the end of its ring (2 bytes), and its bytes. Frames are within the limits, their bodies lie in the region,
/// and each body that was named goes back once.
pub fn lane(bytes: &[u8]) {
    let Some((end, bytes)) = bytes.split_first_chunk() else {
        return;
    };
    let end = u16::from_le_bytes(*end).into();
    let region: Vec<u8> = (0..=u8::MAX).collect();
    let of_lane = frames_of_lane(RingBytes { bytes, end }, &region, &LIMITS)
        .expect("memory and sockets are there");
    let mut lent = 0;
    for frame in &of_lane.frames {
        assert!(frame.head.len() <= 4 << 10);
        let begin = frame.body.first().copied().map_or(0, usize::from);
        assert_eq!(region[begin..][..frame.body.len()], frame.body[..]);
        lent += usize::from(!frame.body.is_empty());
    }
    let refused = usize::from(of_lane.is_refused);
    let frames = of_lane.frames.len();
    let back = of_lane.give_back().expect("our own ring is whole");
    assert!(
        (lent..=frames + refused).contains(&back),
        "{back} of {lent} bodies went back"
    );
}

/// Reads what the peer of a hand-over says: how many bytes of its ring are written (2 bytes), packets on the socket
/// (1 byte), each with its length (1 byte), marks of messages (1 byte), each of a number and a state (2 bytes), and
/// the ring.
fn said(bytes: &[u8], read: impl FnOnce(Said<'_>)) -> Option<()> {
    let (end, mut rest) = bytes.split_first_chunk()?;
    let mut packets = Vec::new();
    for _ in 0..*rest.split_off_first()? % 8 {
        let length = usize::from(*rest.split_off_first()?);
        packets.push(rest.split_off(..length)?);
    }
    // An empty packet is the end of a socket.
    packets.retain(|packet| !packet.is_empty());
    let mut claims = Vec::new();
    for _ in 0..*rest.split_off_first()? % 16 {
        let [number, state] = *rest.split_off(..2)? else {
            return None;
        };
        claims.push(u64::from(number) << 2 | u64::from(state % 4));
    }
    let end = u16::from_le_bytes(*end).into();
    read(Said {
        packets: &packets,
        ring: RingBytes { bytes: rest, end },
        claims: &claims,
    });
    Some(())
}

/// A lender that gives messages to this process. Bodies lie in regions of it, which are 0 all over, and a message that
/// is marked once is taken once.
pub fn borrower(bytes: &[u8]) {
    said(bytes, |said| {
        let (messages, _) = messages_of_lender(said).expect("memory and sockets are there");
        assert!(messages.len() <= said.claims.len());
        for (head, bodies) in &messages {
            assert!(head.len() as u64 <= said.ring.end);
            for body in bodies {
                assert!(body.len() <= 4096 && body.iter().all(|byte| *byte == 0));
            }
        }
    });
}

/// A borrower of messages of this process. Each comes back once, or is left over.
pub fn lender(bytes: &[u8]) {
    said(bytes, |said| {
        let of_borrower =
            returns_of_borrower(MESSAGES, said).expect("memory and sockets are there");
        let back = of_borrower.back.iter().map(|(number, answer)| {
            let product = answer.product.as_deref();
            assert!(product.is_none_or(|product| b"ten bytes!".starts_with(product)));
            *number
        });
        let all: Vec<u32> = back.chain(of_borrower.left.iter().copied()).collect();
        assert_eq!(all.len(), MESSAGES as usize);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    });
}
