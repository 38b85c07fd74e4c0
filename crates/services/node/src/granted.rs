//! Settings of the farm file that the kernel need not grant: congestion control, socket buffers, huge pages.
//!
//! A node runs without them, only slower: each one that is not granted is a warning at the start, with the command that
//! changes the machine.

use crate::config::TransportConfig;
use sheaf_transport::Arena;
use sheaf_transport::tcp::SocketOptions;
use std::fs;
use tracing::warn;

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const SEND_MAX: &str = "/proc/sys/net/core/wmem_max";
const RECEIVE_MAX: &str = "/proc/sys/net/core/rmem_max";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const HUGE_PAGES_SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// A setting that the kernel did not grant.
#[derive(Debug, PartialEq, Eq)]
struct Shortfall {
    /// Key of the farm file.
    key: &'static str,
    found: String,
    wanted: String,
    /// Command that changes the machine.
    remedy: String,
}

/// Grants and limits of the kernel.
struct Granted {
    congestion: String,
    /// Largest send and receive buffer that a process may ask for, in bytes; `None` if it is not known.
    send_max: Option<u64>,
    receive_max: Option<u64>,
    arena_bytes: u64,
    /// Bytes of the arena in huge pages; `None` if it is not known.
    huge_bytes: Option<u64>,
    is_shared: bool,
    /// Content of the file about huge pages of memory of the arena's kind.
    huge_pages: String,
}

/// Logs a warning for each setting in `wanted` that is not granted. `is_local`: no stream leaves the machine.
pub(crate) fn warn_of_shortfalls(
    wanted: &TransportConfig,
    sockets: &SocketOptions,
    arena: &Arena,
    is_local: bool,
) {
    let is_shared = arena.is_shared();
    let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
    let granted = Granted {
        congestion: sockets.congestion_control.clone(),
        send_max: number(SEND_MAX),
        receive_max: number(RECEIVE_MAX),
        arena_bytes: arena.capacity_bytes(),
        huge_bytes: arena.huge_bytes(),
        is_shared,
        huge_pages: fs::read_to_string(huge_pages_file(is_shared)).unwrap_or_default(),
    };
    for Shortfall {
        key,
        found,
        wanted,
        remedy,
    } in shortfalls(wanted, &granted, is_local)
    {
        warn!(%found, %wanted, %remedy, "The kernel does not grant {key}");
    }
}

fn huge_pages_file(is_shared: bool) -> &'static str {
    if is_shared {
        HUGE_PAGES_SHARED
    } else {
        HUGE_PAGES
    }
}

fn shortfalls(wanted: &TransportConfig, granted: &Granted, is_local: bool) -> Vec<Shortfall> {
    let mut all = Vec::new();
    if !wanted.congestion.is_empty() && wanted.congestion != granted.congestion {
        all.push(Shortfall {
            key: "transport.congestion",
            found: granted.congestion.clone(),
            wanted: wanted.congestion.clone(),
            remedy: format!(
                "modprobe tcp_{0}; sysctl -w net.ipv4.tcp_allowed_congestion_control=\"$(cat {CONGESTION})\"",
                wanted.congestion
            ),
        });
    }
    let asked = u64::from(wanted.socket_buffer_bytes);
    let buffers = [
        (granted.send_max, "wmem_max"),
        (granted.receive_max, "rmem_max"),
    ];
    let small = buffers.iter().filter_map(|(max, name)| {
        let max = max.filter(|max| *max < asked)?;
        Some((max, *name))
    });
    // Local streams have buffers of their own size, and no wire to fill.
    let small: Vec<_> = small.filter(|_| !is_local).collect();
    if let Some((least, _)) = small.iter().min() {
        let settings: Vec<String> = small
            .iter()
            .map(|(_, name)| format!("net.core.{name}={asked}"))
            .collect();
        all.push(Shortfall {
            key: "transport.socket_buffer_bytes",
            found: format!("{least} bytes"),
            wanted: format!("{asked} bytes"),
            remedy: format!("sysctl -w {}", settings.join(" ")),
        });
    }
    if let Some(found) = granted
        .huge_bytes
        .filter(|found| wanted.huge_pages && 2 * found < granted.arena_bytes)
    {
        let file = huge_pages_file(granted.is_shared);
        let is_off = ["[never]", "[deny]"]
            .iter()
            .any(|off| granted.huge_pages.contains(off));
        let remedy = if is_off {
            let word = if granted.is_shared {
                "advise"
            } else {
                "madvise"
            };
            format!("echo {word} > {file}")
        } else if granted.huge_pages.is_empty() {
            "a kernel with transparent huge pages, or huge_pages = false".to_owned()
        } else {
            "echo 1 > /proc/sys/vm/compact_memory, before the start of the node".to_owned()
        };
        all.push(Shortfall {
            key: "transport.huge_pages",
            found: format!("{found} bytes in huge pages"),
            wanted: format!("{} bytes, the payload memory", granted.arena_bytes),
            remedy,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted() -> Granted {
        Granted {
            congestion: "cubic".to_owned(),
            send_max: Some(4 << 20),
            receive_max: Some(4 << 20),
            arena_bytes: 8 << 20,
            huge_bytes: Some(8 << 20),
            is_shared: false,
            huge_pages: "always [madvise] never\n".to_owned(),
        }
    }

    /// Key and remedy of each shortfall.
    fn found(granted: &Granted, is_local: bool) -> Vec<(&'static str, String)> {
        let all = shortfalls(&TransportConfig::default(), granted, is_local);
        all.into_iter().map(|one| (one.key, one.remedy)).collect()
    }

    #[test]
    fn what_is_granted_is_no_shortfall() {
        assert_eq!(found(&granted(), false), []);
    }

    #[test]
    fn each_shortfall_names_its_remedy() {
        let reno = Granted {
            congestion: "reno".to_owned(),
            ..granted()
        };
        assert_eq!(found(&reno, false)[0].0, "transport.congestion");
        let small = Granted {
            send_max: Some(212_992),
            ..granted()
        };
        let remedy = "sysctl -w net.core.wmem_max=4194304".to_owned();
        let expected = [("transport.socket_buffer_bytes", remedy)];
        assert_eq!(found(&small, false), expected);
        assert_eq!(found(&small, true), []);
    }

    #[test]
    fn huge_pages_are_named_with_the_file_of_their_kind() {
        let off = |is_shared, huge_pages: &str| {
            let off = Granted {
                huge_bytes: Some(0),
                is_shared,
                huge_pages: huge_pages.to_owned(),
                ..granted()
            };
            found(&off, false).remove(0).1
        };
        let expected = format!("echo advise > {HUGE_PAGES_SHARED}");
        assert_eq!(off(true, "always advise [never] deny\n"), expected);
        let expected = format!("echo madvise > {HUGE_PAGES}");
        assert_eq!(off(false, "always madvise [never]\n"), expected);
        assert!(off(false, "always [madvise] never\n").contains("compact_memory"));
        assert!(off(false, "").contains("huge_pages = false"));
    }
}
