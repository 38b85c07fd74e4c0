//! Memory nodes: the sides of a machine with several sockets, each with memory of its own.
//!
//! A page lies where the thread runs that touches it first. Memory for bodies is touched once, by the thread that maps
//! it, and used by others: so that thread has a policy where its pages are to lie. Source: Linux,
//! `Documentation/admin-guide/mm/numa_memory_policy.rst`.

#![expect(
    unsafe_code,
    reason = "the memory policy of a thread has no safe interface"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Constants of the Linux headers, which `libc` lacks for musl.
const MPOL_PREFERRED: libc::c_long = 1;
const MPOL_INTERLEAVE: libc::c_long = 3;

/// Words of a mask of memory nodes: Linux has 1,024 at the most.
const MASK_WORDS: usize = 1024 / 64;

/// Has new pages of this thread, and of threads that it starts from now on, lie at these memory nodes: at one, or by
/// turns at several. A node that is full is left out by the kernel. Nothing changes without nodes.
///
/// # Errors
///
/// That of the kernel, if it has no such memory node or no policies; nothing has changed then.
pub fn prefer_memory_nodes(nodes: &BTreeSet<u32>) -> io::Result<()> {
    let mut mask = [0_u64; MASK_WORDS];
    for node in nodes {
        let word = mask.get_mut(*node as usize / 64);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % 64);
    }
    match nodes.len() {
        0 => Ok(()),
        1 => set_policy(MPOL_PREFERRED, &mask),
        _ => set_policy(MPOL_INTERLEAVE, &mask),
    }
}

fn set_policy(policy: libc::c_long, mask: &[u64]) -> io::Result<()> {
    // The kernel counts one more than there are.
    let bits = mask.len() * 64 + 1;
    // SAFETY: the kernel reads as many bits as `mask` has, which lives as long as the call.
    let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, mask.as_ptr(), bits) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the bytes at each memory node of the areas that begin from `start` on and before `end`, out of the lines of
/// `/proc/self/numa_maps`.
pub(crate) fn bytes_in(maps: &str, start: u64, end: u64) -> BTreeMap<u32, u64> {
    let mut bytes = BTreeMap::new();
    for line in maps.lines() {
        let mut words = line.split(' ');
        let at = words.next().and_then(|at| u64::from_str_radix(at, 16).ok());
        if !at.is_some_and(|at| (start..end).contains(&at)) {
            continue;
        }
        let pairs = words.filter_map(|word| word.split_once('='));
        let (mut pages, mut page_bytes) = (Vec::new(), 0);
        for (key, value) in pairs {
            let value = value.parse::<u64>().unwrap_or_default();
            let node = key.strip_prefix('N').and_then(|node| node.parse().ok());
            match node {
                Some(node) => pages.push((node, value)),
                None if key == "kernelpagesize_kB" => page_bytes = value << 10,
                None => {}
            }
        }
        for (node, pages) in pages {
            *bytes.entry(node).or_default() += pages * page_bytes;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_node_within_the_range() {
        let maps = "7f0000000000 default anon=9 dirty=9 N0=9 kernelpagesize_kB=4\n\
                    7f0000200000 prefer:1 anon=512 dirty=512 N0=2 N1=510 kernelpagesize_kB=4\n\
                    7f0000400000 default file=/memfd:sheaf\\040(deleted) huge dirty=3 N1=3 kernelpagesize_kB=2048\n\
                    7f0000a00000 default\n";
        let found = bytes_in(maps, 0x7f00_0020_0000, 0x7f00_00a0_0000);
        assert_eq!(found, [(0, 2 << 12), (1, (510 << 12) + (6 << 20))].into());
        assert_eq!(bytes_in("", 0, u64::MAX), [].into());
    }

    #[test]
    fn a_node_that_there_is_not_is_refused() {
        assert!(prefer_memory_nodes(&[1023].into()).is_err());
        assert!(prefer_memory_nodes(&[5000].into()).is_err());
        prefer_memory_nodes(&[].into()).unwrap();
    }
}
