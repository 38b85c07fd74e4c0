//! Figures of the kernel about sockets of datagrams: buffers that it granted and datagrams that it dropped.

use std::fs;
use std::os::fd::AsFd;

/// Returns the datagrams that the kernel dropped at the sockets with these inodes, since they were opened.
///
/// Column `drops` of `/proc/net/udp` and `/proc/net/udp6` (proc(5)); 0 where these cannot be read. Unix sockets drop
/// nothing: their senders wait.
pub(crate) fn drops(inodes: &[u64]) -> u64 {
    ["/proc/net/udp", "/proc/net/udp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| drops_in(&text, inodes))
        .sum()
}

fn drops_in(text: &str, inodes: &[u64]) -> u64 {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let inode = fields.get(9)?.parse().ok()?;
        let dropped = fields.last()?.parse::<u64>().ok()?;
        inodes.contains(&inode).then_some(dropped)
    };
    text.lines().skip(1).filter_map(of_line).sum()
}

/// Returns the inode of a socket.
pub(crate) fn inode(socket: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_sockets_asked_for() {
        let head = "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops";
        let row = |inode: u64, drops: u64| {
            let queues = "07 00000000:00000000 00:00000000 00000000";
            format!(
                "12: 0100007F:1F99 00000000:0000 {queues}     0        0 {inode} 2 0000000000000000 {drops}\n"
            )
        };
        let text = &format!("  {head}\n{}{}", row(4711, 17), row(4712, 5));
        assert_eq!(drops_in(text, &[4711]), 17);
        assert_eq!(drops_in(text, &[4711, 4712]), 22);
        assert_eq!(drops_in("", &[1]), 0);
    }

    #[test]
    fn a_socket_has_an_inode() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = inode(&socket).unwrap();
        let table = fs::read_to_string("/proc/net/udp").unwrap();
        assert!(table.contains(&inode.to_string()));
        assert_eq!(drops(&[inode]), 0);
    }
}
