//! Which shard owns a series.

use sheaf_samples::Labels;

/// Index of the shard, of `shards`, that owns the series with `labels`. The same in every build and on every machine.
///
/// FNV-1a of 64 bits over the bytes of the labels (Fowler, Noll, Vo: `draft-eastlake-fnv`), and the finaliser of
/// MurmurHash3, since FNV leaves its high bits to the last bytes.
///
/// # Panics
///
/// If `shards` is 0.
#[must_use]
pub fn shard_of(labels: &Labels, shards: u32) -> u32 {
    assert!(shards > 0, "a series needs a shard");
    let mut hash = labels
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    // The high half of a product maps onto the range without a division, and evenly.
    u32::try_from((u128::from(hash) * u128::from(shards)) >> 64).expect("below `shards`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(host: u32) -> Labels {
        Labels::new([("__name__", "cpu"), ("host", &format!("flp{host:03}"))]).unwrap()
    }

    #[test]
    fn series_spread_evenly() {
        let mut counts = [0_u32; 7];
        for host in 0..7000 {
            counts[shard_of(&labels(host), 7) as usize] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 880 && *most < 1120, "{counts:?}");
    }

    #[test]
    fn the_answer_is_part_of_the_interface() {
        let found: Vec<_> = (0..8).map(|host| shard_of(&labels(host), 1000)).collect();
        assert_eq!(found, [550, 438, 721, 297, 983, 454, 821, 252]);
        assert_eq!(shard_of(&labels(1), 1), 0);
    }
}
