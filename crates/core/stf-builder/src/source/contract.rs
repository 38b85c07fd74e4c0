//! Contract of every [`StfSource`], as a check that each implementation runs, ours or a user's.

use super::{HeapSlots, Made, Slots, StfSource};
use bytes::Bytes;
use sheaf_protocol::{TfId, crc32c};

/// Slots that never have room.
struct NoSlots;

impl Slots for NoSlots {
    fn fill(&mut self, _: usize, _: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        None
    }
}

/// Makes TFs `0..tfs` forwards, backwards and with full slots in between, and compares.
///
/// # Panics
///
/// If the source breaks its contract: the message names the breach and the TF.
pub fn check(source: &mut dyn StfSource, tfs: u64) {
    let forwards: Vec<Made> = (0..tfs).map(|tf| make_checked(source, tf)).collect();
    for tf in (0..tfs).rev() {
        let again = make_checked(source, tf);
        let first = &forwards[usize::try_from(tf).expect("as long as the list")];
        assert!(
            again == *first,
            "TF {tf} is another one when it is made again"
        );
    }
    let ended = forwards.iter().skip_while(|made| **made != Made::End);
    assert!(
        ended.into_iter().all(|made| *made == Made::End),
        "a TF follows the end"
    );
}

fn make_checked(source: &mut dyn StfSource, tf: u64) -> Made {
    let full = source.make(TfId(tf), &mut NoSlots);
    let made = source.make(TfId(tf), &mut HeapSlots);
    match &made {
        Made::NoRoom => panic!("TF {tf} finds no room although there is"),
        Made::End => assert_eq!(full, Made::End, "TF {tf} is behind the end, room or not"),
        Made::Payload(payload) => {
            assert!(
                full == Made::NoRoom || full == made,
                "TF {tf} differs when slots are full"
            );
            let (bytes, bytes_max) = (payload.len() as u64, source.bytes_max());
            assert!(
                bytes <= bytes_max,
                "TF {tf} has {bytes} bytes, at most {bytes_max} are stated"
            );
            let (found, expected) = (payload.digest, crc32c(payload));
            assert!(
                found == expected,
                "TF {tf} has the digest {expected:08x}, {found:08x} is stated"
            );
        }
    }
    made
}
